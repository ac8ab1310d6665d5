#!/usr/bin/env python3
"""Two tabs with the same conversation open: neither erases the other's messages.

    tests/web/tabs_test.py [unittest's arguments]      77: there is no Chromium here
"""
import json
import sys
import threading
import unittest

import chromium
from case import DONE, Case, setUpModule, tearDownModule  # noqa: F401
from nightly import nightly_only
from wait import until

STORED = "JSON.parse(Object.entries(localStorage).find(([key]) => " \
    "key.startsWith('weft.conversation.'))[1])"
KEY = "Object.keys(localStorage).find((key) => key.startsWith('weft.conversation.'))"


class Tabs(Case):
    def setUp(self):
        super().setUp()
        # A tab may have sent a follow-up of the other tab's unanswered question.
        self.server.answer = lambda body: [
            "said: " + body["messages"][-1]["content"].split("\n")[-1]]

    def tearDown(self):
        troubles = self.other.troubles if hasattr(self, "other") else []
        super().tearDown()
        self.assertEqual(troubles, [])

    def beside(self):
        """A second tab, showing the newest conversation."""
        self.other = self.browser.page(self.server.url, beside=self.page)
        return self.other

    def ask(self, page, text, wait=True):
        page.click("#entry")
        page.type(text)
        page.press("Enter")
        if wait:
            page.wait(DONE)

    def stored(self):
        """The texts of all stored messages."""
        return sorted(message["content"] for message in self.page.eval(STORED)["messages"])

    def expect_stored(self, texts):
        """Waits until `texts` are stored: a tab sees the other's writes one after another, and
        repairs a write that lost messages."""
        until(lambda: self.stored() == sorted(texts),
              lambda: f"{sorted(texts)}, not {self.stored()}", chromium.limit(chromium.WAIT_S))

    def shown(self, page):
        return page.texts("#messages .bubble") + page.texts("#messages .markdown")

    def test_both_ask_at_once(self):
        """The other tab writes its turn before it knows of this tab's running turn."""
        self.say("first")
        before = self.page.eval(STORED)
        other = self.beside()
        go = threading.Event()

        def held(body):
            yield "said: "
            go.wait(20)
            yield "apples"

        self.server.answer = held
        self.say("apples", wait=False)
        self.page.wait(f"{STORED}.messages.length === 4")
        now = self.page.eval("Date.now()")
        turn = [{"role": role, "content": text, "parent": parent, "id": text, "at": now + parent,
                 "changed": now + parent} for role, text, parent in
                (("user", "pears", 1), ("assistant", "said: pears", 2))]
        text = json.dumps({**before, "messages": before["messages"] + turn, "current": 3})
        other.eval(f"localStorage.setItem({KEY}, {json.dumps(text)})")
        self.page.wait(f"{STORED}.messages.length === 6")
        go.set()
        self.page.wait(DONE)
        everything = ["apples", "first", "pears", "said: apples", "said: first", "said: pears"]
        self.expect_stored(everything)
        # This tab keeps showing its own turn; the other one is beside it.
        self.assertEqual(self.shown(self.page), ["first", "apples", "said: first", "said: apples"])
        at = self.page.text(".user:nth-child(3) .variants span")
        self.page.click(".user:nth-child(3) .variants button:"
                        f"{'last' if at == '1/2' else 'first'}-child")
        self.assertEqual(self.shown(self.page), ["first", "pears", "said: first", "said: pears"])
        self.page.reload()
        self.assertEqual(self.stored(), everything)

    def test_many_turns_of_both(self):
        self.say("first")
        other = self.beside()
        for number in range(4):
            self.say(f"one {number}", wait=False)
            self.ask(other, f"two {number}", wait=False)
            for page in (self.page, other):
                page.wait(DONE)
        asked = ["first"] + [f"{tab} {i}" for tab in ("one", "two") for i in range(4)]
        self.expect_stored(asked + [f"said: {text}" for text in asked])

    def test_a_tab_follows_what_the_other_says(self):
        self.say("first")
        other = self.beside()
        self.ask(other, "second")
        self.page.wait("document.querySelectorAll('#messages .message').length === 4")
        self.page.wait("document.querySelector('.answer:last-child .markdown')?.textContent === "
                       "'said: second'")
        self.say("third")
        other.wait("document.querySelectorAll('#messages .message').length === 6")
        self.assertEqual(self.page.eval(STORED)["current"], 5)

    @nightly_only
    def test_an_editor_stays_open(self):
        self.say("first")
        other = self.beside()
        self.page.eval("document.querySelector('.user .tools button').click()")
        self.page.wait("document.querySelector('#messages textarea')")
        self.page.type(" more")
        self.ask(other, "second")
        self.page.wait(f"{STORED}.messages.length === 4")
        self.assertEqual(self.page.eval("document.querySelector('#messages textarea').value"),
                         "first more")
        self.page.press("Enter")
        self.page.wait(DONE)
        self.assertEqual(self.shown(self.page), ["first more", "said: first more"])
        self.assertEqual(len(self.stored()), 6)

    @nightly_only
    def test_a_title_and_an_answer(self):
        self.say("first")
        other = self.beside()
        go = threading.Event()

        def held(body):
            yield "said: "
            go.wait(20)
            yield "late"

        self.server.answer = held
        self.ask(other, "second", wait=False)
        self.page.wait(f"{STORED}.messages.length === 4")
        self.page.click("#conversations button[title='Rename']")
        self.page.type("A name")
        self.page.press("Enter")
        other.wait("document.querySelector('#conversations .open').title === 'A name'")
        go.set()
        other.wait(DONE)
        self.page.wait(f"{STORED}.messages.at(-1).content === 'said: late'")
        self.assertEqual(self.page.eval(STORED)["title"], "A name")

    def test_a_write_that_lost_messages_is_repaired(self):
        """A tab's write omits messages of the other tab; the tabs repair this and then stop
        writing."""
        self.say("first")
        before = self.page.eval(STORED)
        self.say("second")
        other = self.beside()
        self.page.eval("window.writes = 0; addEventListener('storage', () => ++window.writes)")
        old = json.dumps(json.dumps(before))
        other.eval(f"localStorage.setItem({KEY}, {old})")
        # Until the first event, this tab reads its own data.
        self.page.wait("window.writes >= 1")
        self.expect_stored(["first", "said: first", "said: second", "second"])
        # The event of a write made now arrives after those of all earlier writes.
        other.eval("localStorage.setItem('over', '1')")
        self.page.wait("window.writes >= 2")
        self.assertLessEqual(self.page.eval("window.writes"), 4)

    def test_conversations_of_older_pages(self):
        """Messages of older pages have no ids."""
        self.page.close()
        old = {"title": "Old", "created": 1, "changed": 2, "current": 3, "messages": [
            {"role": "user", "content": "a", "parent": -1},
            {"role": "assistant", "content": "b", "parent": 0},
            {"role": "user", "content": "c", "parent": 1},
            {"role": "assistant", "content": "d", "parent": 2}]}
        self.page = self.browser.page(self.server.url,
                                      storage={"weft.conversation.old": json.dumps(old)})
        other = self.beside()
        self.say("one", wait=False)
        self.ask(other, "two", wait=False)
        for page in (self.page, other):
            page.wait(DONE)
        self.expect_stored([*"abcd", "one", "said: one", "two", "said: two"])
        self.assertEqual(self.shown(self.page)[:2], ["a", "c"])

    def test_hostile_data_of_another_tab(self):
        self.say("first")
        other = self.beside()
        for text in ("{", "[]", "null", '{"messages": 5}', '{"messages": [null, 7]}',
                     '{"messages": [{"role": "user", "id": "x", "at": 1e999, "content": "e"},'
                     '{"role": "user", "id": "x", "at": "NaN", "parent": 9, "content": "f"}]}'):
            other.eval(f"localStorage.setItem({KEY}, {json.dumps(text)})")
            self.say("again")
            self.assertIn("first", self.stored())
        self.assertIn("f", self.stored())


if __name__ == "__main__":
    if chromium.program() is None:
        print("SKIPPED: there is no Chromium here (Debian: apt-get install chromium)")
        sys.exit(77)
    unittest.main()
