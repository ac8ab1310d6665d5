#!/usr/bin/env python3
"""--cache-dir and --cache-ram: known prompts after a restart, in every layout, with the same bits;
two servers with one folder; killed servers, full disks."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import serving
from wait import until

serving.few_layers = True

PAGE = 64
TEXT = " ".join(f"{i} bottles of beer on the wall, {i} bottles of beer." for i in range(60))
PROMPT = TEXT + " Take one down,"
LAYOUTS = {"one": [], "tp": ["--local", "2", "--tp", "2"], "pp": ["--local", "2", "--pp", "2"]}


def ask(server, prompt=PROMPT):
    """Text, log-probabilities, and number of cached tokens of an answer."""
    status, answer = server.json("POST", "/v1/completions", {
        "prompt": prompt, "max_tokens": 8, "temperature": 0, "logprobs": 3})
    assert status == 200, answer
    choice = answer["choices"][0]
    usage = answer["usage"]
    return ((choice["text"], choice["logprobs"]["token_logprobs"],
             choice["logprobs"]["top_logprobs"]),
            usage.get("prompt_tokens_details", {}).get("cached_tokens", 0), usage["prompt_tokens"])


class KeptPages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weft-pages-")
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "pages")

    def serve(self, *words, stderr=None):
        server = serving.Server(2048, *words, stderr=stderr)
        self.addCleanup(server.process.kill)
        return server

    def pages(self):
        return list(pathlib.Path(self.folder).glob("*.page"))

    def test_a_restart_keeps_known_prompts(self):
        bits = None
        for name in LAYOUTS:
            with self.subTest(layout=name):
                plain = self.serve(*LAYOUTS[name])
                expected, _, tokens = ask(plain)
                plain.close()
                self.assertGreater(tokens, 10 * PAGE)
                # On processors, every layout has the same bits, but pages of its own.
                bits = bits or expected
                self.assertEqual(expected, bits)
                for again in (False, True):
                    server = self.serve(*LAYOUTS[name], "--cache-dir", self.folder)
                    answer, cached, _ = ask(server)
                    self.assertEqual(answer, expected)
                    self.assertEqual(cached, (tokens - 1) // PAGE * PAGE if again else 0)
                    kept = server.status()["kept_pages"]
                    self.assertEqual(kept["hit_tokens"], cached)
                    metrics = server.call("GET", "/metrics")[2].decode()
                    self.assertRegex(metrics, rf"external_prefix_cache_hits_total{{.*}} {cached}\n")
                    self.assertIn("kept_pages_damaged_total", metrics)
                    server.close()

    def test_ranks_agree_on_what_one_of_them_lacks(self):
        for name in ("tp", "pp"):
            with self.subTest(layout=name):
                words = [*LAYOUTS[name], "--cache-dir", self.folder]
                server = self.serve(*words)
                expected, _, tokens = ask(server)
                server.close()
                pages = self.pages()
                whole = tokens // PAGE
                self.assertEqual(len(pages), 2 * whole)
                # In the order of writing, each page has one part per rank.
                pages.sort(key=lambda page: page.stat().st_mtime_ns)
                for page in pages[whole:]:
                    page.unlink()
                server = self.serve(*words)
                answer, cached, _ = ask(server)
                self.assertEqual(answer, expected)
                self.assertLess(cached, (tokens - 1) // PAGE * PAGE)
                self.assertEqual(cached % PAGE, 0)
                server.close()
                shutil.rmtree(self.folder)

    def test_two_servers_share_a_folder(self):
        one = self.serve("--cache-dir", self.folder)
        other = self.serve("--cache-dir", self.folder)
        expected, cached, tokens = ask(one)
        self.assertEqual(cached, 0)
        until(lambda: len(self.pages()) >= tokens // PAGE, lambda: f"{len(self.pages())} pages")
        answer, cached, _ = ask(other)
        self.assertEqual(answer, expected)
        self.assertEqual(cached, (tokens - 1) // PAGE * PAGE)
        shutil.rmtree(self.folder)
        self.assertEqual(ask(one)[0], expected)
        self.assertEqual(ask(other, TEXT + " And")[2] > 0, True)
        one.close()
        other.close()

    def test_a_killed_server_loses_what_it_did_not_write(self):
        expected = None
        for pages in (1, 3, 6):
            server = self.serve("--cache-dir", self.folder)
            if expected is None:
                expected = ask(server)[0]
                shutil.rmtree(self.folder)
                server.close()
                server = self.serve("--cache-dir", self.folder)
            client = subprocess.Popen(
                ["curl", "-s", "-o", "/dev/null", "-d",
                 '{"prompt": "%s", "max_tokens": 8}' % PROMPT, server.url + "/v1/completions"])
            until(lambda: len(self.pages()) >= pages, lambda: f"{len(self.pages())} pages")
            server.process.kill()
            server.process.wait(60)
            client.wait(60)
            server = self.serve("--cache-dir", self.folder)
            answer, cached, _ = ask(server)
            self.assertEqual(answer, expected)
            self.assertGreaterEqual(cached, pages * PAGE)
            self.assertEqual(server.status()["kept_pages"]["damaged"], 0)
            server.close()
            shutil.rmtree(self.folder)

    def test_a_full_disk_is_one_warning(self):
        os.mkdir(self.folder, 0o700)
        if os.geteuid() != 0 or subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", self.folder],
                capture_output=True).returncode != 0:
            self.skipTest("cannot mount a small file system here")
        self.addCleanup(subprocess.run, ["umount", "-l", self.folder], check=True)
        with tempfile.TemporaryFile("w+") as log:
            server = self.serve("--cache-dir", self.folder, stderr=log)
            expected, _, tokens = ask(server)
            kept = server.wait_for(lambda s: s["kept_pages"]["dropped"] > 0, 60)["kept_pages"]
            self.assertLess(kept["written_bytes"], 1 << 20)
            self.assertGreater(ask(server, "A word. " + PROMPT)[2], tokens)
            server.close()
            log.seek(0)
            text = log.read()
            self.assertEqual(text.count("cannot write a page: No space left"), 1, text)
        server = self.serve("--cache-dir", self.folder)
        self.assertEqual(ask(server)[0], expected)
        server.close()

    def test_host_memory_has_what_the_kv_cache_lost(self):
        for name in LAYOUTS if serving.nightly() else serving.some(LAYOUTS):
            words = [*LAYOUTS[name], "--kv-tokens", "2048", "--cache-ram", "64MB"]
            with self.subTest(layout=name):
                server = self.serve(*words)
                expected, _, tokens = ask(server)
                for other in ("Another", "Still another"):
                    ask(server, f"{other} text. {PROMPT}")
                answer, cached, _ = ask(server)
                self.assertEqual(answer, expected)
                self.assertEqual(cached, (tokens - 1) // PAGE * PAGE)
                self.assertGreater(server.status()["kept_pages"]["hit_tokens"], 0)
                server.close()

    def test_a_folder_that_others_write_is_refused(self):
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o777)
        ended = subprocess.run(
            [serving.PROGRAM, "serve", serving.model(), "--port", "0", "--cache-dir", self.folder],
            capture_output=True, text=True, timeout=serving.PATIENCE, check=False)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("chmod 700", ended.stderr)


if __name__ == "__main__":
    serving.main()
