#!/usr/bin/env python3
"""An answer that was stopped or lost is continued, and the model's reasoning is switched.

    tests/web/continue_test.py [unittest's arguments]      77: there is no Chromium here
"""
import json
import sys
import unittest

import chromium
from case import DONE, Case, setUpModule, tearDownModule  # noqa: F401
from fake_server import CUT, slowly


class Continue(Case):
    def go_on(self, said):
        """Presses Continue and waits until the answer is `said`."""
        self.page.click(".answer:last-child .go-on")
        self.page.wait("document.querySelector('.answer:last-child .markdown').textContent.trim() "
                       f"=== {json.dumps(said)} && " + DONE)

    def test_a_stopped_answer_is_continued(self):
        self.server.answer = lambda body: slowly("one two " * 200, 0.05)
        self.say("Count.", wait=False)
        self.page.wait("document.querySelector('.answer .markdown').textContent.includes('two')")
        self.assertFalse(self.page.shown(".go-on"))
        self.page.click("#stop")
        self.page.wait("document.querySelector('.answer .note').textContent === 'Stopped.'")
        begun = self.page.eval("JSON.parse(localStorage.getItem(Object.keys(localStorage)"
                               ".find((k) => k.startsWith('weft.conv')))).messages[1].content")
        self.server.answer = lambda body: ["three."]
        self.go_on(begun + "three.")
        request = self.server.requests[-1]
        self.assertEqual(self.roles(request), [("user", "Count."), ("assistant", begun)])
        self.assertIs(request["continue_final_message"], True)
        self.assertEqual(len(self.page.texts(".message")), 2)
        self.assertFalse(self.page.shown(".go-on"))
        self.say("And?")
        self.assertNotIn("continue_final_message", self.server.requests[-1])

    def test_a_lost_answer_is_continued(self):
        """The answer is cut by the connection, by a token limit or by a reload, also inside the
        reasoning."""
        self.server.answer = lambda body: [{"reasoning_content": "Hm"}, CUT]
        self.say("Hm?", wait=False)
        self.page.wait("document.querySelector('.answer .error').textContent !== ''")
        self.server.answer = lambda body: [{"reasoning_content": "m."}, "Ha", CUT]
        self.page.click(".go-on")
        self.page.wait("document.querySelector('.answer .error').textContent !== '' && "
                       "document.querySelector('.answer .markdown').textContent.trim() === 'Ha'")
        self.assertEqual(self.server.requests[-1]["messages"][1:],
                         [{"role": "assistant", "content": "", "reasoning_content": "Hm"}])
        self.assertEqual(self.page.eval("document.querySelector('.reasoning').textContent"),
                         "Hmm.")
        self.page.reload()
        self.page.wait("document.querySelector('.go-on')?.hidden === false")
        self.server.answer, self.server.finish = lambda body: ["lf"], "length"
        self.go_on("Half")
        self.assertEqual(self.page.text(".answer .note"), "Stopped at the token limit.")
        self.server.answer, self.server.finish = lambda body: [" done."], "stop"
        self.go_on("Half done.")
        self.assertEqual(self.server.requests[-1]["messages"][1:],
                         [{"role": "assistant", "content": "Half", "reasoning_content": "Hmm."}])

    def test_thinking_is_switched(self):
        self.assertFalse(self.page.shown("#thinking"))
        self.server.models = [{"id": "base", "meta": {"thinking": True}}]
        self.page.reload()
        self.page.wait("!document.querySelector('#thinking').hidden")
        for value, sent in (("off", {"enable_thinking": False}), ("on", {"enable_thinking": True}),
                            ("default", None)):
            self.page.eval("const s = document.querySelector('#thinking');"
                           f"s.value = '{value}'; s.dispatchEvent(new Event('change'))")
            self.say("Hm?")
            self.assertEqual(self.server.requests[-1].get("chat_template_kwargs"), sent)
            self.page.reload()
            self.page.wait(f"document.querySelector('#thinking').value === '{value}'")


if __name__ == "__main__":
    if chromium.program() is None:
        print("SKIPPED: there is no Chromium here (Debian: apt-get install chromium)")
        sys.exit(77)
    unittest.main()
