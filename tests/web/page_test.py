#!/usr/bin/env python3
"""The web page in headless Chromium, against a server whose answers each test defines.

    tests/web/page_test.py [unittest's arguments]      77: there is no Chromium here
"""
import json
import sys
import threading
import time
import unittest

import chromium
from case import DONE, Case, SharedPage, setUpModule, tearDownModule  # noqa: F401
from chromium import NIGHTLY, limit
from fake_server import CUT, slowly
from nightly import nightly_only, some
from wait import until

STATUS = {
    "version": "0.1.0", "model": "fake", "context": 8192, "state": "serving", "error": "",
    "uptime_s": 7333, "layout": {"tp": 2, "pp": 2, "ep": 1, "split": "3,2"}, "transport": "tcp",
    "running": 5, "waiting": 2, "max_seqs": 32,
    "kv_pages": {"all": 4000, "free": 2000, "idle": 1000},
    "prefix_cache": {"asked_tokens": 80000, "hit_tokens": 60000}, "preemptions": 3,
    "requests": {"ended": 312, "failed": 1, "cancelled": 4},
    "tokens": {"prompt": 91234, "generated": 40312}, "steps": {"count": 22011, "rows": 131000},
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
    """STATUS with one rank changed."""
    ranks = [rank | changes if rank["rank"] == number else rank for rank in STATUS["ranks"]]
    return STATUS | {"ranks": ranks, "state": "recovering"}


class Chat(Case):
    def test_an_answer_grows_as_it_streams(self):
        words = "one two three four five six seven eight".split()
        shown = threading.Semaphore(0)

        def answer(_):
            for word in words:
                yield word + " "
                self.assertTrue(shown.acquire(timeout=limit(60)), f"{word} was not shown")
        self.server.answer = answer
        self.say("Count.", wait=False)
        for word in words:
            self.page.wait("document.querySelector('.answer .markdown')?.textContent"
                           f".includes('{word}')")
            shown.release()
        self.page.wait(DONE)
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
            until(lambda: self.server.left == number, "the end of the connection")
            self.assertEqual(len(self.answer_text()), length)
            self.assertTrue(self.page.shown("#send"))
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
        self.assertEqual(self.page.text(".user .variants span"), "2/2")
        self.page.click(".user .variants button")
        self.assertEqual(self.page.texts(".answer .markdown"), ["about first", "about second"])

    @nightly_only
    def test_another_answer_stands_beside_the_former_one(self):
        answers = iter(["good", "better", "more", "other"])
        self.server.answer = lambda body: [next(answers)]
        self.say("Hm?")
        self.assertFalse(self.page.shown(".variants"))
        self.page.eval("document.querySelector('.answer .tools button:last-child').click()")
        self.page.wait("document.querySelector('.answer .markdown').textContent === 'better' && "
                       + DONE)
        self.assertEqual(len(self.page.texts(".message")), 2)
        self.assertEqual(self.roles(self.server.requests[-1]), [("user", "Hm?")])
        self.assertEqual(self.page.text(".answer .variants span"), "2/2")
        self.page.click(".answer .variants button")
        self.assertEqual((self.answer_text(), self.page.text(".answer .variants span")),
                         ("good", "1/2"))
        self.say("On.")
        self.assertEqual([text for _, text in self.roles(self.server.requests[-1])],
                         ["Hm?", "good", "On."])
        self.page.reload()
        self.assertEqual(self.page.texts(".answer .markdown"), ["good", "more"])
        self.page.click(".answer .variants button:last-child")
        self.assertEqual(self.page.texts(".answer .markdown"), ["better"])
        self.page.click(".answer .variants button")
        self.assertEqual(self.page.texts(".answer .markdown"), ["good", "more"])

    def test_files_are_attached_to_a_message(self):
        self.attach("notes.md", b"alpha\n```\nbeta\n")
        self.assertIn("notes.md", self.page.text("#attachments"))
        self.attach("picture.png", b"\x89PNG\0\1\2")
        self.assertIn("picture.png is not a text file", self.page.text("#attachment-words"))
        self.attach("bad.txt", b"\xff\xfe\xfa")
        self.assertIn("bad.txt is not a text file", self.page.text("#attachment-words"))
        self.attach("large.txt", b"x" * (256 * 1024 + 1))
        self.assertIn("large.txt has 257 KiB; a file may have 256 KiB",
                      self.page.text("#attachment-words"))
        self.attach("dropped.py", b"print(1)", drop=True)
        self.assertEqual(len(self.page.texts("#attachments li")), 2)
        self.say("What is it?")
        text = self.roles(self.server.requests[-1])[0][1]
        self.assertEqual(text, "File notes.md:\n````\nalpha\n```\nbeta\n````\n\n"
                               "File dropped.py:\n```\nprint(1)\n```\n\nWhat is it?")
        self.assertFalse(self.page.shown("#attachments"))
        self.page.reload()
        self.assertIn("notes.md", self.page.text(".user .file"))
        self.page.click(".user .tools button")
        self.page.type(" Again")
        self.page.press("Enter")
        self.page.wait("document.querySelector('.user .variants') && " + DONE)
        self.assertIn("File notes.md", self.roles(self.server.requests[-1])[0][1])

    def attach(self, name, data, drop=False):
        """Attaches a file with the picker or by drag and drop."""
        self.page.eval(f"""(() => {{
            const transfer = new DataTransfer();
            transfer.items.add(new File([new Uint8Array({list(data)})], {json.dumps(name)}));
            if ({json.dumps(drop)}) {{
              document.querySelector('#thread').dispatchEvent(new DragEvent('drop',
                {{dataTransfer: transfer, bubbles: true, cancelable: true}}));
            }} else {{
              const picker = document.querySelector('#pick-files');
              picker.files = transfer.files;
              picker.dispatchEvent(new Event('change'));
            }} }})()""")
        self.page.wait(f"document.querySelector('#composer').innerText.includes('{name}')")

    @nightly_only
    def test_parameters_show_the_servers_defaults(self):
        self.server.props = {"sampling": "temperature 0.7 (by the model)",
                             "default_generation_settings": {
            "temperature": 0.7, "params": {"top_k": 40, "top_p": 0.95, "min_p": 0.05,
                                           "n_predict": -1, "seed": -1}}}
        self.page.click("#open-settings")
        self.page.wait("document.querySelector('#top-k').placeholder === 'default 40'")
        self.assertIn("temperature 0.7 (by the model)", self.page.text("#sampling-words"))
        place = "document.querySelector('#{}').placeholder".format
        self.assertEqual([self.page.eval(place(field)) for field in
                          ("temperature", "top-p", "min-p", "max-tokens", "seed")],
                         ["default 0.7", "default 0.95", "default 0.05", "no limit", "random"])
        for field, value in (("top-p", "0.5"), ("top-k", "7"), ("min-p", "0.1"), ("seed", "42")):
            self.page.click(f"#{field}")
            self.page.type(value)
        self.page.press("Enter")
        self.page.wait("!document.querySelector('#settings').open")
        self.say("Hm?")
        request = self.server.requests[0]
        self.assertEqual([request.get(name) for name in ("top_p", "top_k", "min_p", "seed")],
                         [0.5, 7, 0.1, 42])
        self.assertNotIn("temperature", request)

    def test_a_model_or_adapter_is_chosen(self):
        self.assertFalse(self.page.shown("#model"))
        self.server.models = [{"id": "base"}, {"id": "law", "parent": "base"}]
        self.page.reload()
        self.page.wait("document.querySelectorAll('#model option').length === 2")
        self.assertEqual(self.page.texts("#model option"), ["base", "law (adapter)"])
        self.page.eval("const s = document.querySelector('#model'); s.value = 'law';"
                       "s.dispatchEvent(new Event('change'))")
        self.say("Hm?")
        self.assertEqual(self.server.requests[-1]["model"], "law")
        self.assertIn("law", self.page.text(".answer .stats"))
        self.page.reload()
        self.page.wait("document.querySelector('#model').value === 'law'")
        self.server.models = [{"id": "base"}]
        self.say("And?")
        self.assertEqual(self.server.requests[-1]["model"], "base")

    @nightly_only
    def test_search_finds_words_of_titles_and_messages(self):
        for text in ("apples and pears", "bread", "wool"):
            self.page.click("#new-chat")
            self.server.answer = lambda body, text=text: [f"I know all of {text} <b>& more</b>"]
            self.say(text)
        self.page.call("Input.dispatchKeyEvent", type="keyDown", key="k", code="KeyK",
                       windowsVirtualKeyCode=75, modifiers=2)
        self.assertEqual(self.page.eval("document.activeElement.id"), "search")
        self.page.type("ALL OF b")
        self.page.wait("document.querySelectorAll('#conversations li').length === 1")
        self.assertEqual(self.page.text("#conversations mark"), "all of b")
        self.assertIn("<b>", self.page.text("#conversations .hit"))
        self.page.click("#conversations .open")
        self.assertIn("bread", self.answer_text())
        self.page.eval("document.querySelector('#search').focus()")
        self.page.type("zzz")
        self.page.wait("document.querySelector('#conversations .none')")
        self.page.press("Escape")
        self.assertEqual(len(self.page.texts("#conversations .open")), 3)

    def test_conversations_are_exported_and_imported(self):
        self.server.answer = lambda body: ["**Hi** <script>"]
        self.say("first")
        self.page.eval("""window.saved = []; window.names = [];
            URL.createObjectURL = (blob) => { window.saved.push(blob.text()); return "#chat"; };
            HTMLAnchorElement.prototype.click = function () { window.names.push(this.download); };
            """)
        self.page.eval("document.querySelector('#export-markdown').click()")
        self.page.eval("document.querySelector('#export-all').click()")
        markdown, whole = self.page.eval("Promise.all(window.saved)")
        self.assertEqual(self.page.eval("window.names"), ["first.md", "weft-conversations.json"])
        self.assertEqual(markdown, "# first\n\n## You\n\nfirst\n\n## Answer\n\n**Hi** <script>\n")
        self.bring(whole)
        self.assertEqual(self.page.text("#exchange-words"), "0 imported, 1 already present.")
        self.page.click("#conversations [title=Delete]")
        self.bring(whole)
        self.assertEqual(self.page.text("#exchange-words"), "1 imported.")
        self.page.click("#conversations .open")
        self.assertEqual(self.answer_text(), "Hi <script>")

    def bring(self, text):
        self.page.eval("document.querySelector('#exchange-words').hidden = true")
        self.page.eval(f"""(() => {{
            const transfer = new DataTransfer();
            transfer.items.add(new File([{json.dumps(text)}], "x.json"));
            const picker = document.querySelector('#pick-import');
            picker.files = transfer.files;
            picker.dispatchEvent(new Event('change')); }})()""")
        self.page.wait("!document.querySelector('#exchange-words').hidden")

    def test_invalid_files_are_rejected_with_a_message(self):
        head = '{"format": "weft-conversations", "version": 1, "conversations": '
        attack = {"title": "<img src=x onerror=window.hit=1>", "__proto__": {"named": True},
                  "id": "../../x", "current": 9, "settings": {"temperature": "hot", "topK": 1e99},
                  "messages": [{"role": "user", "content": "<script>window.hit=1</script>",
                                "parent": 5, "files": [{"name": 1}, None]},
                               {"role": "assistant", "content": {}, "parent": 1}]}
        for text, words in (
                ("not json", "not JSON"), ("[]", "no conversations"), ("null", "no conversations"),
                ('{"format": "weft-conversations", "version": 99, "conversations": []}',
                 "incompatible version"),
                (head + '[null, 7, {"messages": 3}, {"messages": []}]}', "4 not readable"),
                ("[" * 100_000, "not JSON"),
                (head + json.dumps([attack]) + "}", "1 imported")):
            with self.subTest(text[:60]):
                self.bring(text)
                self.assertIn(words, self.page.text("#exchange-words"))
        self.page.click("#conversations .open")
        self.assertIn("<script>", self.page.text(".user .bubble"))
        self.assertIsNone(self.page.eval("window.hit ?? null"))
        self.page.reload()
        self.say("still works")

    def test_conversations_survive_a_reload(self):
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

    @nightly_only
    def test_an_answer_goes_on_while_another_conversation_is_open(self):
        self.server.answer = lambda body: slowly("a b c d e f g h i j", 0.2)
        self.say("letters", wait=False)
        self.page.wait("document.querySelector('.answer .markdown').textContent")
        self.page.click("#new-chat")
        self.assertTrue(self.page.shown("#conversations .dot.busy"))
        self.page.wait("!document.querySelector('#conversations .dot.busy')")
        self.page.click("#conversations .open")
        self.assertEqual(self.answer_text(), "a b c d e f g h i j")

    @nightly_only
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
                       ".includes('token limit')")

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


    @nightly_only
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
        self.server.answer = lambda body: (429, "9 requests are waiting; the limit is 9.")
        self.say("Hello?", wait=False)
        self.assertEqual(self.error(), "9 requests are waiting; the limit is 9.")
        self.server.answer = lambda body: ["Now."]
        self.page.click(".answer .tools button:last-child")
        self.page.wait(DONE)
        self.assertEqual(self.answer_text(), "Now.")
        self.assertFalse(self.page.shown(".answer .error"))

    @nightly_only
    def test_an_error_in_mid_stream_leaves_what_was_said(self):
        self.server.answer = lambda body: ["Half", {"error": {"message": "rank 1 was lost"}}]
        self.say("Tell.", wait=False)
        self.assertEqual(self.error(), "rank 1 was lost")
        self.assertEqual(self.answer_text(), "Half")
        self.server.answer = lambda body: ["Ha", CUT]
        self.say("More.", wait=False)
        self.page.wait("document.querySelectorAll('.answer').length === 2")
        self.assertIn("before it was complete", self.error())

    @nightly_only
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

    def enter_key(self, key):
        self.page.wait("document.querySelector('#key-dialog').open")
        self.page.eval("document.querySelector('#key').select()")
        self.page.type(key)
        self.page.press("Enter")

    def test_a_key_holds_without_room_to_store_it(self):
        self.server.key = "sesame"
        self.page.eval("""(() => {
            let text = "x".repeat(1 << 20);
            for (let i = 0; text.length > 0; ++i) {
                try { localStorage.setItem("f" + i, text); }
                catch { text = text.slice(0, text.length >> 1); }
            }
        })()""")
        self.say("Hello", wait=False)
        self.enter_key("sesame")
        self.page.wait("document.querySelectorAll('.answer').length === 1 && " + DONE)
        # Another key replaces it.
        self.server.key = "alongerword"
        self.say("And now?", wait=False)
        self.enter_key("alongerword")
        self.page.wait("document.querySelectorAll('.answer').length === 2 && " + DONE)

    def test_a_key_with_invisible_characters(self):
        self.server.key = "sesame"
        self.page.eval("localStorage.setItem('weft.key', 'sesame\\u200b')")
        self.say("Hello", wait=False)
        self.page.wait("document.querySelector('#key-dialog').open")
        self.assertIn("a character that no key has", self.page.text("#key-words"))
        self.enter_key(" sesame\u200b")
        self.page.wait("document.querySelectorAll('.answer').length === 1 && " + DONE)

    def test_invalid_storage_breaks_nothing(self):
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


class Markdown(SharedPage):
    def show(self, text):
        self.server.answer = lambda body: [text[i:i + 50_000] for i in range(0, len(text), 50_000)]
        self.page.click("#new-chat")
        # An answer shown before the library is loaded is plain text until then.
        self.page.eval("import('/assets/library.js').then((m) => m.untilLoaded('markdown-it'))")
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
        self.page.eval(
            "new MutationObserver((changes) => changes.some((c) => /opied/.test("
            "c.target.textContent)) && (window.toldOfTheCopy = true)).observe("
            "document.body, {subtree: true, childList: true, characterData: true})")
        self.page.click(".code-head button")
        self.page.wait("window.toldOfTheCopy")  # the button shows it for 1.5 s

    def test_tasks_colours_and_formulas(self):
        self.show("- [x] done\n- [ ] open\n\n```python\ndef f(x): return 'a' # b\n```\n\n"
                  "Euler: $e^{i\\pi} = -1$ and \\(x_1\\), $\\sqrt{2}$; it costs $5 and $10, US$5 "
                  "or 10$.\n\n$$\n\\int_0^1 x\\,dx\n$$\n\n\\[ a \\]\n\n"
                  "$\\href{javascript:x}{y}$ \\$z$")
        self.page.wait("document.querySelectorAll('.markdown .katex').length === 6")
        boxes = self.page.eval("[...document.querySelectorAll('.task input')]"
                               ".map((e) => [e.checked, e.disabled])")
        self.assertEqual(boxes, [[True, True], [False, True]])
        self.page.wait("document.querySelector('.markdown .hljs-keyword')")
        self.assertEqual(self.page.text(".markdown .hljs-keyword"), "def")
        self.assertEqual(self.page.text(".markdown pre"), "def f(x): return 'a' # b")
        self.assertIn("it costs $5 and $10, US$5 or 10$.", self.answer_text())
        self.assertEqual(self.page.eval(
            "document.querySelectorAll('.markdown .formula.wide .katex-display').length"), 2)
        self.assertEqual(self.page.texts(".markdown .katex a"), [])
        self.assertTrue(self.page.eval("document.fonts.load('16px KaTeX_Main')"
                                       ".then((list) => list.length > 0)"))

    @nightly_only
    def test_formulas_that_define_commands_are_shown_as_written(self):
        grows = "\\def\\a{" + "x" * 2000 + "}" + "\\a " * 290
        more = "\\edef\\b{xxxxxxxxxx}" + ("\\edef\\b{" + "\\b" * 8 + "}") * 4 + "\\b" * 30
        self.show(f"$${grows}$$\n\n${more}$\n\n$\\newcommand{{\\c}}{{x}}\\c$ and $\\deg x$")
        self.page.wait("document.querySelectorAll('.markdown .katex').length === 1")
        self.assertEqual(len(self.page.texts(".markdown code.formula")), 3)
        self.assertIn("\\newcommand", self.answer_text())

    @nightly_only
    def test_a_table_of_millions_of_cells_is_shown_as_written(self):
        self.show("|a" * 2000 + "|\n" + "|-" * 2000 + "|\n" + "|b|\n" * 2000 + "\nafter\n\n"
                  "|c|d|\n|-|-|\n|e|f|\n")
        self.page.wait("document.querySelectorAll('.markdown td').length === 2")
        self.assertEqual(len(self.page.texts(".markdown pre")), 1)
        self.assertIn("after", self.answer_text())

    @nightly_only
    def test_endless_words_are_not_highlighted(self):
        self.show("```c\n" + "a " * 20_000 + "\n```\n\n```c\nint f(void) { return 1; }\n```\n")
        self.page.wait("document.querySelector('.markdown .hljs-keyword')")
        self.assertEqual(self.page.eval("[...document.querySelectorAll('.markdown pre')].map("
                                        "(e) => e.querySelector('span') !== null)"), [False, True])

    @nightly_only
    def test_a_long_answer_streams_in_little_time(self):
        text = "".join(f"## Part {n}\n\nSome **bold** text, `code` and $x_{n}$ in part {n}.\n\n"
                       f"- one\n- two\n\n```py\nx = {n}\n```\n\n" for n in range(200))
        pieces = [text[i:i + 5] for i in range(0, len(text), 5)]
        self.assertGreater(len(pieces), 3500)
        spent = self.page.eval(f"""(async () => {{
            const {{ MarkdownView }} = await import('/assets/markdown.js');
            const {{ untilLoaded }} = await import('/assets/library.js');
            for (const name of ['markdown-it', 'katex', 'highlight']) await untilLoaded(name);
            const view = new MarkdownView();
            document.body.append(view.element);
            const pieces = {json.dumps(pieces)};
            const halves = [0, 0];
            let text = '';
            pieces.forEach((piece, i) => {{
              text += piece;
              view.next = 0;  // as if each piece came when it may be drawn
              const begin = performance.now();
              view.show(text, true);
              halves[i < pieces.length / 2 ? 0 : 1] += performance.now() - begin;
            }});
            const streamed = view.element.textContent;
            view.show(text);
            const whole = view.element.textContent;
            view.element.remove();
            return [...halves, streamed === whole]; }})()""")
        self.assertTrue(spent[2], "what streamed is not what the whole text gives")
        if NIGHTLY:
            self.assertLess(spent[1], 3 * spent[0] + 100, "time per piece must not grow")
        self.assertLess(spent[0] + spent[1], limit(4000))

    def test_without_libraries_there_is_plain_text(self):
        self.server.libraries = {}
        self.page.reload()
        self.show("# a\n\n**b** $x$\n<i>c</i>")
        self.assertEqual(self.answer_text(), "# a\n\n**b** $x$\n<i>c</i>")
        self.server.reset()
        self.page.reload()

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
        self.page.click("#new-chat")
        self.say(attack)
        self.page.click(".answer summary")
        for element in ("a", "b", "td", "li"):
            self.page.eval(f"document.querySelector('#messages {element}')?.dispatchEvent("
                           "new MouseEvent('mouseover', {bubbles: true}))")
        # Events of elements that were added before precede those of images that are added now.
        for _ in range(2):
            self.page.eval("new Promise((done) => Object.assign(new Image(), "
                           "{src: '/assets/icon.svg', onload: done})).then(() => 0)")
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
        for seed in some(("*", "**a ", "_a_b", "`", "`a``", "[", "[a](", "![a", "> ", "- ",
                          "  - a\n", "|", "|-|\n", "a|b\n-|-\n", "```\n", "<http://",
                          "https://a ", "\\", "# ", "1. a\n  ", "***a_b__c~~", "(_a(", "$", "$a ",
                          "$x$ ", "\\(", "\\(x\\) ", "$$", "$$\na\n\n", "\\[\n", "{", "x \n",
                          "&amp;", "<a", "- [ ] ", "```x\n`` ")):
            text = (seed * letters)[:letters]
            spent = self.page.eval(
                "(async () => { const { MarkdownView } = await import('/assets/markdown.js');"
                "const { untilLoaded } = await import('/assets/library.js');"
                "for (const name of ['markdown-it', 'katex', 'highlight']) await untilLoaded(name);"
                "const view = new MarkdownView(); const begin = performance.now();"
                f"view.show({json.dumps(text)}); return performance.now() - begin; }})()")
            self.assertLess(spent, limit(1500), f"{seed!r}")


class Dashboard(SharedPage):
    def setUp(self):
        super().setUp()
        self.server.status = STATUS
        self.page.click("nav a[href='#dashboard']")
        self.page.wait("document.querySelectorAll('.tile').length === 4 && "
                       "document.querySelector('.trouble').hidden && "
                       "!document.querySelector('.gone')?.checkVisibility()")

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
        begin, said = time.monotonic(), STATUS["tokens"]["generated"]

        def status():  # 500 tokens per second at each poll
            tokens = STATUS["tokens"] | {"generated": said + int(500 * (time.monotonic() - begin))}
            return STATUS | {"tokens": tokens}

        self.server.status = status
        self.page.wait("document.querySelector('.line-chart polyline')")
        self.page.wait("parseFloat(document.querySelector('.speed .value').textContent) > 400 && "
                       "parseFloat(document.querySelector('.speed .value').textContent) < 600")

    def test_omits_absent_members(self):
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
            self.assertEqual(self.page.eval(
                "document.querySelectorAll('svg.layout .broken').length"), 1)
            self.page.wait(f"{head}.includes('rank 3 {state}')")
            self.assertEqual(self.page.eval("document.querySelector('#server .dot').className"),
                             "dot warn")
            self.assertIn(f"Rank 3 (host3) has been {state} since", self.page.text(".trouble"))
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
        for word in ("host3", "number 3 of epoch 1", KILLED, "continue without it"):
            self.assertIn(word, words)
        self.assertFalse(self.page.shown(".trouble"), "it is no passing trouble")

    def test_says_that_the_server_is_gone_and_recovers_by_itself(self):
        self.server.status = None
        self.page.wait("document.querySelector('.trouble').innerText.includes('is loading')")
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
        periods = "(async () => { for (let i = 0; i < 20; ++i) " \
            "await new Promise((done) => setTimeout(done, 5000)); })()"
        self.page.eval("window.ofTheClock = window.setTimeout; "  # 500 times as fast
                       "window.setTimeout = (then, ms) => window.ofTheClock(then, ms / 500)")
        self.addCleanup(self.page.eval, "window.setTimeout = window.ofTheClock; 0")

        def asks_again():
            self.page.eval(hide.format("false"))
            asked = self.server.asked
            until(lambda: self.server.asked > asked + 3, "more requests")
        asks_again()
        self.page.eval(hide.format("true"))
        self.page.eval(periods)  # a request may be on its way
        asked = self.server.asked
        self.page.eval(periods)
        self.assertEqual(self.server.asked, asked)
        asks_again()


class Everywhere(Case):
    def test_fits_a_phone_and_labels_everything(self):
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
            self.page.wait("document.querySelector('.tile') !== null || "
                           f"'{view}' === '#chat'")
            self.page.wait("document.getAnimations().length === 0")
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
