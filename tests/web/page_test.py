#!/usr/bin/env python3
"""The web page in headless Chromium, against a server that answers as each test tells it to.

    tests/web/page_test.py [unittest's arguments]      77: there is no Chromium here
"""
import json
import sys
import time
import unittest

import chromium
from chromium import slowness
from fake_server import CUT, FakeServer, slowly

DONE = "document.querySelector('.answer:last-child .stats')?.textContent.includes('token') && " \
    "document.querySelector('#stop').hidden"
STATUS = {
    "version": "0.1.0", "model": "fake", "context": 8192, "state": "serving", "error": "",
    "uptime_s": 7333, "layout": {"tp": 2, "pp": 2, "ep": 1, "split": "3,2"}, "transport": "tcp",
    "running": 5, "waiting": 2, "max_seqs": 32,
    "kv_pages": {"all": 4000, "free": 2000, "idle": 1000},
    "prefix_cache": {"asked_tokens": 80000, "hit_tokens": 60000}, "preemptions": 3,
    "requests": {"ended": 312, "failed": 1, "cancelled": 4},
    "tokens": {"prompt": 91234, "said": 40312}, "steps": {"count": 22011, "rows": 131000},
    "seconds": {"steps": 311.2, "plans": 0.4, "saying": 1.1},
    "ranks": [{"rank": i, "host": f"host{i}", "stage": i // 2, "share": f"layers of stage {i // 2}",
               "rss_bytes": 90 << 20, "weight_bytes": 47 << 20,
               "kv_bytes": 1 << 30 if i == 2 else 20 << 20,
               "load_s": 0.061, "step_s": 300.0, "wait_s": 30.0 * i, "power_w": 23.4 if i else None,
               "state": "up", "since_s": 1700000000, "why": None} for i in range(4)],
    "departed": [],
    "sync_us": {"bounds": [1, 2, 5, 10, 20, 50], "counts": [0, 30, 400, 2200, 900, 120, 3]},
    "recoveries": [
        {"epoch": 1, "lost_ranks": [3], "ranks": 4, "seconds": 1.5, "text": "came back"}],
    "errors": [{"time_s": 1700000000, "text": "rank 3: connection reset"}]}
KILLED = "its process was killed by signal 9 (Killed)"


def with_rank(number, **changes):
    """STATUS with a rank that is not as it was."""
    ranks = [rank | changes if rank["rank"] == number else rank for rank in STATUS["ranks"]]
    return STATUS | {"ranks": ranks, "state": "recovering"}


def setUpModule():
    Case.browser = chromium.Chromium()


def tearDownModule():
    Case.browser.__exit__()


class Case(unittest.TestCase):
    browser = None  # one for all tests; each has a page of its own, without a past

    def setUp(self):
        self.server = FakeServer()
        self.page = self.browser.page(self.server.url)

    def tearDown(self):
        troubles = self.page.troubles
        self.page.close()
        self.server.stop()
        self.assertEqual(troubles, [])

    def say(self, text, wait=True):
        self.page.click("#entry")
        self.page.type(text)
        self.page.press("Enter")
        if wait:
            self.page.wait(DONE)

    def answer_text(self):
        return self.page.text(".answer:last-child .markdown")

    def roles(self, request):
        return [(message["role"], message["content"]) for message in request["messages"]]


class Chat(Case):
    def test_an_answer_grows_as_it_streams(self):
        self.server.answer = lambda body: slowly("one two three four five six seven eight", 0.15)
        self.say("Count.", wait=False)
        lengths = set()
        deadline = time.monotonic() + 10
        while not self.page.eval(DONE) and time.monotonic() < deadline:
            lengths.add(self.page.eval(
                "document.querySelector('.answer .markdown')?.textContent.length ?? 0"))
        self.assertGreaterEqual(len(lengths), 4, "the text came at once")
        self.assertEqual(self.answer_text(), "one two three four five six seven eight")
        stats = self.page.text(".answer .stats")
        self.assertRegex(stats, r"^8 tokens · [\d.]+ tok/s · first after [\d.]+ m?s$")
        request = self.server.requests[0]
        self.assertEqual(self.roles(request), [("user", "Count.")])
        self.assertEqual(request["model"], "fake")
        self.assertIs(request["stream"], True)
        self.assertNotIn("temperature", request)

    def test_stop_ends_an_answer_and_frees_the_server(self):
        self.server.answer = lambda body: slowly("word " * 200, 0.05)
        for number, halt in enumerate((lambda: self.page.click("#stop"),
                                       lambda: self.page.press("Escape")), 1):
            self.say("Talk.", wait=False)
            self.page.wait(f"document.querySelectorAll('.answer').length === {number} && "
                           "document.querySelector('.answer:last-child .markdown').textContent")
            halt()
            self.page.wait("document.querySelector('.answer:last-child .note')"
                           ".textContent === 'Stopped.'")
            length = len(self.answer_text())
            time.sleep(0.2)
            self.assertEqual(len(self.answer_text()), length)
            self.assertTrue(self.page.shown("#send"))
        deadline = time.monotonic() + 5
        while self.server.left < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(self.server.left, 2)

    def test_an_edited_message_is_sent_again_from_there(self):
        self.server.answer = lambda body: [f"about {body['messages'][-1]['content']}"]
        self.say("first")
        self.say("second")
        self.page.eval("document.querySelector('.user').scrollIntoView()")
        self.page.click(".user .tools button")
        self.page.eval("document.querySelector('.user textarea').select()")
        self.page.type("other")
        self.page.press("Enter")
        self.page.wait("document.querySelectorAll('.message').length === 2 && " + DONE)
        self.assertEqual(self.roles(self.server.requests[-1]), [("user", "other")])
        self.assertEqual(self.answer_text(), "about other")

    def test_another_answer_takes_the_place_of_one(self):
        answers = iter(["good", "better"])
        self.server.answer = lambda body: [next(answers)]
        self.say("Hm?")
        self.page.eval("document.querySelector('.answer .tools button:last-child').click()")
        self.page.wait("document.querySelector('.answer .markdown').textContent === 'better'")
        self.assertEqual(len(self.page.texts(".message")), 2)
        self.assertEqual(self.roles(self.server.requests[-1]), [("user", "Hm?")])

    def test_two_conversations_outlive_a_reload(self):
        self.server.answer = lambda body: ["said: " + body["messages"][-1]["content"]]
        self.say("apples")
        self.say("and pears")
        self.page.click("#new-chat")
        self.assertIn("Ask something", self.page.text("#messages"))
        self.say("bread")
        self.page.reload()
        self.assertEqual(self.page.texts("#conversations .open"), ["bread", "apples"])
        self.assertEqual(self.answer_text(), "said: bread")
        self.page.click("#conversations li:nth-child(2) .open")
        self.assertEqual(self.answer_text(), "said: and pears")
        self.say("more")
        self.assertEqual([text for _, text in self.roles(self.server.requests[-1])],
                         ["apples", "said: apples", "and pears", "said: and pears", "more"])

    def test_an_answer_goes_on_while_another_conversation_is_open(self):
        self.server.answer = lambda body: slowly("a b c d e f g h i j", 0.2)
        self.say("letters", wait=False)
        self.page.wait("document.querySelector('.answer .markdown').textContent")
        self.page.click("#new-chat")
        self.assertTrue(self.page.shown("#conversations .dot.busy"))
        self.page.wait("!document.querySelector('#conversations .dot.busy')")
        self.page.click("#conversations .open")
        self.assertEqual(self.answer_text(), "a b c d e f g h i j")

    def test_conversations_are_renamed_deleted_and_brought_back(self):
        self.say("apples")
        self.page.click("#conversations [title=Rename]")
        self.page.type("Fruit")
        self.page.press("Enter")
        self.assertEqual(self.page.texts("#conversations .open"), ["Fruit"])
        self.page.click("#conversations [title=Delete]")
        self.assertIn("Ask something", self.page.text("#messages"))
        self.page.click(".undo button")
        self.assertEqual(self.answer_text(), "Hello.")
        self.page.click("#conversations [title=Delete]")
        self.page.reload()
        self.assertEqual(self.page.texts("#conversations .open"), [])

    def test_keys_and_settings(self):
        self.page.click("#entry")
        self.page.type("a")
        self.page.press("Enter", shift=True)
        self.page.type("b")
        self.assertEqual(self.server.requests, [])
        self.page.click("#open-settings")
        self.assertFalse(self.page.shown("#settings-key"))
        self.page.click("#system")
        self.page.type("Be brief.")
        self.page.click("#temperature")
        self.page.type("0.5")
        self.page.click("#max-tokens")
        self.page.type("77")
        self.page.press("Enter")
        self.page.wait("!document.querySelector('#settings').open")
        self.page.click("#send")
        self.page.wait(DONE)
        request = self.server.requests[0]
        self.assertEqual(self.roles(request), [("system", "Be brief."), ("user", "a\nb")])
        self.assertEqual((request["temperature"], request["max_tokens"]), (0.5, 77))
        self.server.finish = "length"
        self.say("again")
        self.page.wait("document.querySelector('.answer:last-child .note').textContent"
                       ".includes('limit of tokens')")

    def test_reasoning_is_folded(self):
        self.server.answer = lambda body: [{"reasoning_content": "Hmm, "},
                                           {"reasoning_content": "so."}, "Yes."]
        self.say("Is it?")
        self.assertEqual(self.answer_text(), "Yes.")
        self.assertFalse(self.page.shown(".reasoning"))
        self.page.click(".answer summary")
        self.assertEqual(self.page.text(".reasoning"), "Hmm, so.")
        self.say("And?")
        self.assertNotIn("Hmm", json.dumps(self.server.requests[-1]))


    def test_a_long_pause_is_explained(self):
        self.server.answer = lambda body: ["Once", 4.5, " more"]
        self.say("Go on.", wait=False)
        self.page.wait("document.querySelector('.answer .markdown')?.textContent === 'Once'")
        self.server.status = {"model": "fake", "state": "recovering"}
        self.page.wait("document.querySelector('.answer .note').textContent"
                       ".includes('rank was lost')")
        self.assertIn("recovering", self.page.text("#server"))
        self.page.wait(DONE)
        self.assertEqual(self.answer_text(), "Once more")
        self.assertFalse(self.page.shown(".answer .note"))


class Errors(Case):
    def error(self):
        self.page.wait("[...document.querySelectorAll('.answer .error')].at(-1)"
                       "?.checkVisibility()")
        return self.page.texts(".answer .error")[-1]

    def test_errors_are_shown_where_they_happen_in_the_servers_words(self):
        self.server.answer = lambda body: (429, "9 requests are waiting already.")
        self.say("Hello?", wait=False)
        self.assertEqual(self.error(), "9 requests are waiting already.")
        self.server.answer = lambda body: ["Now."]
        self.page.click(".answer .tools button:last-child")
        self.page.wait(DONE)
        self.assertEqual(self.answer_text(), "Now.")
        self.assertFalse(self.page.shown(".answer .error"))

    def test_an_error_in_mid_stream_leaves_what_was_said(self):
        self.server.answer = lambda body: ["Half", {"error": {"message": "rank 1 was lost"}}]
        self.say("Tell.", wait=False)
        self.assertEqual(self.error(), "rank 1 was lost")
        self.assertEqual(self.answer_text(), "Half")
        self.server.answer = lambda body: ["Ha", CUT]
        self.say("More.", wait=False)
        self.page.wait("document.querySelectorAll('.answer').length === 2")
        self.assertIn("before it was complete", self.error())

    def test_a_server_that_is_gone(self):
        self.server.stop()
        self.say("Hello?", wait=False)
        self.assertEqual(self.error(), "The server can't be reached.")

    def test_a_key_is_asked_for_once_it_is_needed(self):
        self.say("No key yet.")
        self.assertFalse(self.page.eval("document.querySelector('#key-dialog').open"))
        self.server.key = "sesame"
        self.say("Now?", wait=False)
        self.page.wait("document.querySelector('#key-dialog').open")
        self.assertEqual(self.page.text("#key-words"), "Bring a key, please.")
        self.page.type("wrong")
        self.page.press("Enter")
        self.page.wait("document.querySelector('#key-dialog').open && "
                       "document.querySelector('#key').value === 'wrong'")
        self.page.eval("document.querySelector('#key').select()")
        self.page.type("sesame")
        self.page.press("Enter")
        self.page.wait("document.querySelectorAll('.answer').length === 2 && " + DONE)
        self.page.reload()
        self.say("Still.")
        self.assertEqual(len(self.server.requests), 3)

    def test_what_others_left_in_the_storage_breaks_nothing(self):
        page = self.browser.page(self.server.url, storage={
            "weft.conversation.a": "not json", "weft.conversation.b": "null",
            "weft.conversation.c": '{"messages": 7}', "weft.settings": "[",
            "weft.conversation.d": '{"title": 5, "messages": [null, {"role": "user"}, '
            '{"role": "assistant", "content": {}, "stats": "x"}, {"role": "tool"}]}'})
        self.assertEqual(page.texts("#conversations .open"), ["Conversation"])
        page.click("#new-chat")
        page.type("Hello")
        page.press("Enter")
        page.wait(DONE)
        self.assertEqual(page.troubles, [])
        page.close()


class Markdown(Case):
    def show(self, text):
        self.server.answer = lambda body: [text[i:i + 50_000] for i in range(0, len(text), 50_000)]
        self.page.click("#new-chat")
        self.say("Show.")

    def html(self):
        return self.page.eval("document.querySelector('.answer .markdown').innerHTML")

    def test_blocks_and_inline_marks(self):
        cases = {
            "# Top\ntext": "<h3>Top</h3><p>text</p>",
            "a **b *c* d** `e*f*`": "<p>a <strong>b <em>c</em> d</strong> <code>e*f*</code></p>",
            "snake_case_name 2*3*4 * x": "<p>snake_case_name 2<em>3</em>4 * x</p>",
            "- a\n- b\n  1. c\n  2. d\n- e": "<ul><li>a</li><li>b<ol><li>c</li><li>d</li></ol></li>"
                                             "<li>e</li></ul>",
            "3. a\n4. b": '<ol start="3"><li>a</li><li>b</li></ol>',
            "> q\n> r\n\n---": "<blockquote><p>q<br>r</p></blockquote><hr>",
            "\\*a\\* **open": "<p>*a* **open</p>",
            "~~a~~ ***b***": "<p><del>a</del> <em><strong>b</strong></em></p>",
        }
        for text, html in cases.items():
            with self.subTest(text):
                self.show(text)
                self.assertEqual(self.html(), html)

    def test_tables_code_and_links(self):
        self.show("| a | b |\n|--:|:-:|\n| 1 | `x` |\n\n```py\nif a < b:\n    <b>\n```\n"
                  "[x](https://a.example/(1)?q=%22) and https://b.example/c.")
        self.assertEqual(self.page.texts(".markdown td"), ["1", "x"])
        self.assertEqual(self.page.eval("document.querySelector('th').className"), "right")
        self.assertEqual(self.page.text(".markdown pre"), "if a < b:\n    <b>")
        self.assertEqual(self.page.text(".code-head span"), "py")
        links = self.page.eval("[...document.querySelectorAll('.markdown a')]"
                               ".map((a) => [a.href, a.rel, a.textContent])")
        self.assertEqual(links, [
            ["https://a.example/(1)?q=%22", "noopener noreferrer", "x"],
            ["https://b.example/c", "noopener noreferrer", "https://b.example/c"]])
        self.page.click(".code-head button")
        self.page.wait("document.querySelector('.code-head button').textContent !== 'Copy'")

    def test_no_answer_can_inject_anything(self):
        attack = (
            "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>\n"
            "<svg onload=window.hit=1><iframe srcdoc='<script>parent.hit=1</script>'></iframe>\n\n"
            "[a](javascript:window.hit=1) [b](data:text/html,<script>1</script>) "
            "[c](JaVaScRiPt:window.hit=1) [d](//x.example) [e](\tjavascript:window.hit=1) "
            "[f](https://x.example/\"onmouseover=\"window.hit=1) ![g](https://x.example/i.png) "
            "<javascript:window.hit=1> [h](vbscript:1) [i](&#106;avascript:window.hit=1)\n\n"
            "# <img src=x onerror=window.hit=1>\n- <b onclick=window.hit=1>x</b>\n\n"
            "| <script>window.hit=1</script> | b |\n|---|---|\n"
            "| <img src=x onerror=window.hit=1> | c |\n\n"
            "```\"><script>window.hit=1</script>\n</code></pre><script>window.hit=1</script>\n```\n"
            "`<script>window.hit=1</script>`")
        self.server.answer = lambda body: [{"reasoning_content": attack}, attack]
        self.say(attack)
        self.page.click(".answer summary")
        for element in ("a", "b", "td", "li"):
            self.page.eval(f"document.querySelector('#messages {element}')?.dispatchEvent("
                           "new MouseEvent('mouseover', {bubbles: true}))")
        time.sleep(0.2)
        self.assertIsNone(self.page.eval("window.hit ?? null"))
        tags = set(self.page.eval(
            "[...document.querySelectorAll('#messages *')].map((e) => e.tagName)"))
        self.assertFalse(tags & {"SCRIPT", "IMG", "IFRAME", "SVG", "OBJECT", "STYLE", "LINK", "B"})
        attributes = set(self.page.eval(
            "[...document.querySelectorAll('#messages *')].flatMap((e) => e.getAttributeNames())"))
        self.assertFalse([name for name in attributes if name.startswith("on")])
        for href in self.page.eval(
                "[...document.querySelectorAll('#messages a')].map((a) => a.href)"):
            self.assertRegex(href, r"^https://x\.example/")
        self.assertIn("<script>window.hit", self.answer_text())
        self.assertIn("<script>", self.page.text("#conversations .open"))

    def test_hostile_texts_cost_little_time(self):
        letters = 60_000
        for seed in ("*", "**a ", "_a_b", "`", "`a``", "[", "[a](", "![a", "> ", "- ", "  - a\n",
                     "|", "|-|\n", "a|b\n-|-\n", "```\n", "<http://", "https://a ", "\\", "# ",
                     "1. a\n  ", "***a_b__c~~", "(_a(", "$", "$a ", "$x$ ", "\\(", "\\(x\\) ", "$$",
                     "$$\na\n\n", "\\[\n", "{", "x \n", "&amp;", "<a", "- [ ] ", "```x\n`` "):
            text = (seed * letters)[:letters]
            spent = self.page.eval(
                "(async () => { const { MarkdownView } = await import('/assets/markdown.js');"
                "const { untilLoaded } = await import('/assets/library.js');"
                "for (const name of ['markdown-it', 'katex', 'highlight']) await untilLoaded(name);"
                "const view = new MarkdownView(); const begin = performance.now();"
                f"view.show({json.dumps(text)}); return performance.now() - begin; }})()")
            self.assertLess(spent, 1500 * slowness(), f"{seed!r}")


class Dashboard(Case):
    def setUp(self):
        super().setUp()
        self.server.status = STATUS
        self.page.click("nav a[href='#dashboard']")
        self.page.wait("document.querySelectorAll('.tile').length === 4")

    def test_shows_ranks_layout_and_numbers(self):
        tiles = self.page.texts(".tile")
        for word in ("Rank 1", "host1", "layers of stage 0", "weights 47.0 MiB", "waiting 10.0 %",
                     "23.4 W", "tcp"):
            self.assertIn(word, tiles[1])
        self.assertNotIn(" W", tiles[0])
        self.assertIn("room for KV up to 1.0 GiB", tiles[2])
        self.assertIn("KV and other 43.0 MiB", tiles[2])
        self.assertFalse(self.page.shown(".trouble"))
        self.assertEqual(self.page.eval("document.querySelectorAll('svg.layout .stage').length"), 2)
        text = self.page.text("#dashboard-view")
        for word in ("tp 2 · pp 2 · split 3,2", "2 h 2 min", "5 running", "2 waiting, room for 32",
                     "25.0 % in use", "1,000 cached", "75.0 % hits", "312",
                     "rank 3: connection reset", "epoch 1, after 1.50 s: came back", "10 µs"):
            self.assertIn(word, text)
        widths = self.page.eval("[...document.querySelectorAll('.figure:nth-child(2) .bar span')]"
                                ".map((e) => e.style.width)")
        self.assertEqual(widths, ["25%", "25%"])

    def test_draws_tokens_a_second_over_time(self):
        for _ in range(3):
            tokens = dict(self.server.status["tokens"])
            tokens["said"] += 500
            self.server.status = STATUS | {"tokens": tokens}
            time.sleep(1.0)
        self.page.wait("document.querySelector('.line-chart polyline')")
        self.page.wait("parseFloat(document.querySelector('.speed .value').textContent) > 100", 3)

    def test_draws_what_is_there_and_leaves_out_the_rest(self):
        self.server.status = {"state": "serving", "model": "m"}
        self.page.wait("document.querySelector('.panel.ranks').hidden")
        self.server.status = {"ranks": [{"rank": 0}], "kv_pages": {}, "sync_us": {"bounds": [1]},
                              "layout": {"tp": 1, "pp": 1}, "recoveries": [{}], "errors": [{}]}
        self.page.wait("document.querySelectorAll('.tile').length === 1")
        self.assertNotIn("NaN", self.page.text("#dashboard-view"))
        self.assertNotIn("undefined", self.page.text(".tile"))

    def test_a_rank_is_lost_comes_back_and_is_up(self):
        head = "document.querySelector('#server').innerText"
        for state, tone in (("lost", "bad"), ("rejoining", "warn")):
            self.server.status = with_rank(3, state=state, why=KILLED)
            self.page.wait(f"document.querySelector('.tile.{state}')")
            tiles = self.page.texts(".tile")
            self.assertIn(f"{state} since ", tiles[3])
            self.assertIn(KILLED, tiles[3])
            self.assertNotIn("tcp", tiles[3])
            self.assertEqual(self.page.eval(
                "document.querySelectorAll('.tile')[3].querySelector('.dot').className"),
                f"dot {tone}")
            self.assertEqual(self.page.eval(
                f"document.querySelectorAll('svg.layout .{state}').length"), 1)
            self.page.wait(f"{head}.includes('rank 3 {state}')")
            self.assertEqual(self.page.eval("document.querySelector('#server .dot').className"),
                             "dot warn")
            self.assertIn(f"Rank 3 (host3) is {state} since", self.page.text(".trouble"))
        self.server.status = STATUS
        self.page.wait("document.querySelector('.trouble').hidden")
        self.page.wait("!document.querySelector('.tile.rejoining') && "
                       f"!{head}.includes('rank 3')")
        self.assertNotIn(KILLED, self.page.text("#dashboard-view"))
        self.assertEqual(self.page.eval("document.querySelector('#server .dot').className"),
                         "dot good")

    def test_a_rank_that_the_others_go_on_without(self):
        self.server.status = STATUS | {
            "ranks": STATUS["ranks"][:3],
            "departed": [{"rank": 3, "host": "host3", "state": "lost", "since_s": 1700000000,
                          "why": KILLED, "epoch": 1}]}
        self.page.wait("document.querySelectorAll('.tile').length === 3")
        words = self.page.text(".gone")
        for word in ("host3", "number 3 of epoch 1", KILLED, "go on without it"):
            self.assertIn(word, words)
        self.assertFalse(self.page.shown(".trouble"), "it is no passing trouble")

    def test_says_that_the_server_is_gone_and_recovers_by_itself(self):
        self.server.status = None
        self.page.wait("document.querySelector('.trouble').innerText.includes('being loaded')")
        port = self.server.http.server_port
        self.server.stop()
        self.page.wait("document.querySelector('.trouble').innerText.includes('not reachable')")
        self.assertTrue(self.page.eval(
            "document.querySelector('#dashboard-view').classList.contains('stale')"))
        self.assertIn("not known", self.page.text(".tile"), "who is up can't be told")
        self.assertEqual(self.page.eval("document.querySelectorAll('.tile .good').length"), 0)
        self.server.start(port)
        self.server.status = STATUS
        self.page.wait("document.querySelector('.trouble').hidden")

    def test_asks_for_a_key_where_the_status_needs_one(self):
        self.server.key = "sesame"
        self.page.click(".trouble button")
        self.page.wait("document.querySelector('#key-dialog').open")
        self.page.type("sesame")
        self.page.press("Enter")
        self.page.wait("document.querySelector('.trouble').hidden")

    def test_a_hidden_page_asks_nothing(self):
        hide = "Object.defineProperty(document, 'hidden', {{value: {}, configurable: true}});" \
            "document.dispatchEvent(new Event('visibilitychange'));"
        self.page.eval(hide.format("true"))
        time.sleep(1.0)  # a question may be on its way
        asked = self.server.asked
        time.sleep(1.5)
        self.assertEqual(self.server.asked, asked)
        self.page.eval(hide.format("false"))
        deadline = time.monotonic() + 5
        while self.server.asked == asked and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertGreater(self.server.asked, asked)


class Everywhere(Case):
    def test_reads_on_a_phone_and_has_names_for_everything(self):
        self.server.answer = lambda body: [
            "# A title\n" + "long" * 60 + "\n\n```\n" + "x" * 300 + "\n```\n\n" +
            "|" + "column |" * 12 + "\n|" + "---|" * 12 + "\n|" + "cell |" * 12]
        self.server.status = STATUS
        self.page.size(320, 568)
        self.say("Show all of it " + "w" * 200)
        unnamed = ("[...document.querySelectorAll('button, input, textarea, a')].filter((e) => "
                   "!(e.textContent.trim() || e.ariaLabel || e.labels?.length)).length")
        for view in ("#chat", "#dashboard"):
            self.page.eval(f"location.hash = '{view}'")
            self.page.wait(f"document.querySelector('nav a[href=\"{view}\"]').ariaCurrent")
            time.sleep(0.3)
            self.assertEqual(self.page.eval(
                "Math.max(...['html', '#thread', '#dashboard-view'].map((s) => "
                "document.querySelector(s)).map((e) => e.scrollWidth - e.clientWidth))"), 0, view)
            self.assertEqual(self.page.eval(unnamed), 0, view)
        self.page.eval("location.hash = '#chat'")
        self.assertFalse(self.page.shown("#new-chat"))
        self.page.click("#menu")
        self.page.click("#new-chat")
        self.page.wait("!document.querySelector('#sidebar').checkVisibility("
                       "{visibilityProperty: true})")


if __name__ == "__main__":
    if chromium.program() is None:
        print("SKIPPED: there is no Chromium here (Debian: apt-get install chromium)")
        sys.exit(77)
    unittest.main()
