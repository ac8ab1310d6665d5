#!/usr/bin/env python3
"""A conversation that fills the context: the page says so, and continues without the oldest turns.

    tests/web/full_test.py [unittest's arguments]      77: there is no Chromium here
"""
import sys
import unittest

import chromium
from case import Case, setUpModule, tearDownModule  # noqa: F401
from nightly import nightly_only

ENDED = "document.querySelector('#stop').hidden && " \
    "document.querySelectorAll('.answer').length === {}"
# The fake server's usage: 9 prompt tokens, and one for each piece.
SMALL = {"model": "fake", "state": "serving", "context": 11}


class Full(Case):
    def ask(self, text, answers):
        self.say(text, wait=False)
        self.page.wait(ENDED.format(answers))

    def last(self):
        return [text for _, text in self.roles(self.server.requests[-1])]

    def three_turns(self):
        self.server.status = SMALL
        self.page.reload()
        self.page.wait("document.querySelector('#server').textContent.includes('fake')")
        for number, text in enumerate(("one", "two", "three"), 1):
            self.server.finish = "length" if text == "three" else "stop"
            self.server.answer = lambda body: ["an", "swer"]
            self.ask(text, number)
        self.server.finish = "stop"

    def test_an_answer_that_fills_the_context(self):
        self.three_turns()
        self.assertIn("context of 11 tokens is full", self.page.text(".answer:last-child .note"))
        self.page.click(".answer:last-child .drop")
        self.page.wait("document.querySelector('.start')")
        self.assertIn("no longer sees the turns above", self.page.text(".start"))
        self.assertEqual(len(self.page.texts("#messages .message")), 6, "all is still there")
        self.assertGreaterEqual(len(self.page.texts("#messages .dropped")), 2)
        self.ask("four", 4)
        self.assertEqual(self.last()[-1], "four")
        self.assertNotIn("one", self.last())
        self.page.reload()
        self.assertEqual(len(self.page.texts("#messages .message")), 8)
        self.page.click(".start button")
        self.page.wait("!document.querySelector('.start')")
        self.ask("five", 5)
        self.assertEqual(self.last()[::2], ["one", "two", "three", "four", "five"])

    def test_a_question_that_does_not_fit(self):
        for number, text in enumerate(("one", "two"), 1):
            self.ask(text, number)
        self.server.answer = lambda body: (400, "the context of 11 tokens is too short",
                                           "context_length_exceeded")
        self.ask("three", 3)
        self.server.answer = lambda body: ["It fits."]
        self.page.click(".answer:last-child .drop")
        self.page.wait("document.querySelector('.answer:last-child .markdown')?.textContent === "
                       "'It fits.'")
        self.assertEqual(self.last()[-1], "three")
        self.assertNotIn("one", self.last())

    @nightly_only
    def test_offers_nothing_if_nothing_helps(self):
        """A first question that is too long; a limit set by the user."""
        self.server.answer = lambda body: (400, "too short", "context_length_exceeded")
        self.ask("one", 1)
        self.assertFalse(self.page.shown(".answer:last-child .drop"))
        self.page.click("#new-chat")
        self.server.answer, self.server.finish = lambda body: ["a"], "length"
        self.ask("one", 1)
        self.ask("two", 2)
        self.assertIn("token limit", self.page.text(".answer:last-child .note"))
        self.assertFalse(self.page.shown(".answer:last-child .drop"))


if __name__ == "__main__":
    if chromium.program() is None:
        print("SKIPPED: there is no Chromium here (Debian: apt-get install chromium)")
        sys.exit(77)
    unittest.main()
