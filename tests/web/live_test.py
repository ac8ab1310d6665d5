#!/usr/bin/env python3
"""The web page in headless Chromium, served by the program itself.

    tests/web/live_test.py WEFT [unittest's arguments]      77: there is no Chromium here
The model is $WEFT_MODEL, or a model with random weights. The test in which a rank dies uses a small
one, because it only checks that no text is lost.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

import chromium
from processes import children, send
from nightly import nightly_only
from wait import until

WEFT = ""
START_S = 100
MODEL = os.environ.get("WEFT_MODEL") or "synthetic:smollm2-135m:q4_1"
SMALL = "synthetic:smollm2-135m:q4_1:layers=2"
STORY_TOKENS = 1200
LOG_CHARS = 4000
STREAMING = "document.querySelector('.answer.streaming .markdown')?.textContent.length > 20"
LOST = ".tile.lost, .tile.rejoining"
ENDED = "document.querySelector('.answer') && !document.querySelector('.answer.streaming')"
LENGTH = "document.querySelector('.answer:last-child .markdown').textContent.length"


class Serving:
    """`weft serve` as a process on a free port."""

    def __init__(self, model, *arguments):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [WEFT, "serve", model, "--port", "0", "-t", "1", "--ctx", "2048", "--json", *arguments],
            stdout=subprocess.PIPE, stderr=self.log)
        self.url = json.loads(self.process.stdout.readline())["url"] + "/"

    def __enter__(self):
        return self

    def __exit__(self, trouble, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        if trouble is not None:
            self.log.seek(0)
            print("The server said:\n" + self.log.read()[-LOG_CHARS:], file=sys.stderr)
        self.log.close()

    def children(self):
        return children(self.process.pid)

    def get(self, path, body=None):
        data = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(self.url + path, data, START_S) as answer:
            return json.loads(answer.read())


class Live(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = chromium.Chromium()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()

    def ask(self, page, text, most, temperature=0):
        """Sends a message with a limit on the answer's tokens."""
        page.click("#open-settings")
        page.wait("document.querySelector('#temperature').placeholder.startsWith('default ')")
        for field, value in (("#temperature", temperature), ("#max-tokens", most)):
            page.eval(f"document.querySelector('{field}').select()")
            page.type(str(value))
        page.press("Enter")
        page.wait("!document.querySelector('#settings').open")
        page.click("#entry")
        page.type(text)
        page.press("Enter")

    def test_a_message_is_answered_and_an_answer_stopped(self):
        with Serving(MODEL) as server:
            page = self.browser.page(server.url)
            self.assertIn(server.get("api/status")["model"], page.text("#server"))
            self.ask(page, "Tell me a long story about a weaver.", 120)
            lengths = set()
            while not page.eval(ENDED):
                lengths.add(page.eval(LENGTH + " ?? 0"))
            self.assertGreaterEqual(len(lengths), 3, "the text came at once")
            self.assertFalse(page.shown(".answer .error"), page.text(".answer .error"))
            self.assertRegex(page.text(".answer .stats"), r"^\d+ tokens · [\d.]+ tok/s · first ")
            self.ask(page, "Tell me another one, as long as you can.", 1500)
            page.wait(STREAMING)
            page.press("Escape")
            page.wait("document.querySelector('.answer:last-child .note').textContent "
                      "=== 'Stopped.'")
            until(lambda: server.get("api/status")["running"] == 0, "the end of the request")
            page.reload()
            self.assertEqual(len(page.texts(".message")), 4)
            page.click("nav a[href='#dashboard']")
            page.wait("document.querySelector('.panel.head dd')")
            self.assertIn("serving", page.text(".panel.head"))
            self.assertEqual(page.troubles, [])
            page.close()

    @nightly_only
    def test_a_rank_dies_and_comes_back_while_an_answer_streams(self):
        question = "Tell me a long story about a weaver."
        with Serving(SMALL, "--local", "2", "--tp", "2") as server:
            undisturbed = server.get("v1/chat/completions", {
                "messages": [{"role": "user", "content": question}], "temperature": 0,
                "max_tokens": STORY_TOKENS})["choices"][0]["message"]["content"]
            page = self.browser.page(server.url)
            self.ask(page, question, STORY_TOKENS)
            page.wait(STREAMING)
            before = server.children()
            self.assertEqual(len(before), 1)
            os.kill(before[0], signal.SIGKILL)
            length = page.eval(LENGTH)
            page.wait(ENDED, START_S)
            self.assertGreater(page.eval(LENGTH), length)
            self.assertFalse(page.shown(".answer .error"), page.text(".answer .error"))
            said = page.eval("JSON.parse(localStorage[Object.keys(localStorage).find((key) => "
                             "key.startsWith('weft.conversation.'))]).messages[1].content")
            self.assertEqual(said, undisturbed)
            self.assertNotEqual(server.children(), before)
            page.click("nav a[href='#dashboard']")
            page.wait("document.querySelector('.panel.events')?.innerText.includes('Recovery')")
            ranks = server.get("api/status").get("ranks", [])
            page.wait(f"document.querySelectorAll('.tile').length === {len(ranks)}")
            self.assertEqual(page.troubles, [])
            page.close()

    def test_a_lost_rank_is_shown_lost_until_it_is_back(self):
        tile = f"document.querySelector('{LOST}')"
        with Serving(SMALL, "--local", "2", "--tp", "2") as server:
            page = self.browser.page(server.url + "#dashboard")
            page.wait("document.querySelectorAll('.tile').length === 2", START_S)
            self.assertFalse(page.eval(tile + " !== null"))
            first = server.children()
            os.kill(first[0], signal.SIGKILL)
            # The replacement process is stopped, so that there is time to look.
            new = until(lambda: [pid for pid in server.children() if pid not in first],
                        "another process of the rank", pause_s=0.002)
            os.kill(new[0], signal.SIGSTOP)
            page.wait(tile + " !== null")
            self.assertRegex(page.text(LOST), r"(?s)Rank 1.*(lost|rejoining) since.*signal 9")
            self.assertEqual(len(page.texts(".tile")), 2)
            self.assertIn("recovering", page.text(".panel.head"))
            self.assertRegex(page.text("#server"), r"rank 1 (lost|rejoining)")
            self.assertRegex(page.text(".trouble"), r"Rank 1 .*(lost|rejoining) since.*signal 9")
            self.assertNotIn("has ended", page.text("#dashboard-view"))
            self.assertEqual(page.eval("document.querySelectorAll('.tile .good').length"), 1)
            with self.assertRaises(urllib.error.HTTPError) as refused:
                server.get("health")
            self.assertEqual(refused.exception.code, 503)
            self.assertEqual(server.get("live"), {"status": "alive"})
            for pid in server.children():
                send(pid, signal.SIGCONT)
            page.wait(f"{tile} === null && document.querySelectorAll('.tile').length === 2",
                      START_S)
            page.wait("document.querySelector('.panel.head').innerText.includes('serving')")
            page.wait("document.querySelector('.trouble').hidden")
            page.wait("!document.querySelector('#server').innerText.includes('rank 1')")
            self.assertNotIn("503", page.text(".panel.events"), "probes are no errors")
            self.assertEqual(server.get("api/status")["errors"], [])
            self.assertEqual(server.get("health"), {"status": "ok"})
            self.assertEqual(page.troubles, [])
            page.close()

    @nightly_only
    def test_the_page_says_which_rank_the_others_go_on_without(self):
        with Serving(SMALL, "--local", "2", "--tp", "2", "--timeout-ms",
                     chromium.timeout_ms(1000), "--elastic", "--restart-timeout-ms",
                     "1000") as server:
            page = self.browser.page(server.url + "#dashboard")
            page.wait("document.querySelectorAll('.tile').length === 2", START_S)
            os.kill(server.children()[0], signal.SIGKILL)
            # The replacement process does not become ready.
            def departed():
                for child in server.children():
                    send(child, signal.SIGSTOP)
                return server.get("api/status")["departed"]
            until(departed, "a rank that is gone")
            page.wait("document.querySelectorAll('.tile').length === 1 && "
                      "document.querySelector('.gone')", START_S)
            self.assertRegex(page.text(".gone"),
                             r"number 1 of epoch \d+, was lost at .* continue without it")
            page.wait("document.querySelector('.trouble').hidden")
            page.wait("document.querySelector('#server .dot').className === 'dot good'")
            self.assertEqual(page.troubles, [])
            page.close()


if __name__ == "__main__":
    if chromium.program() is None:
        print("SKIPPED: there is no Chromium here (Debian: apt-get install chromium)")
        sys.exit(77)
    WEFT = sys.argv.pop(1)
    unittest.main()
