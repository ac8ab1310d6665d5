#!/usr/bin/env python3
"""weft list, show and rm: the content of the cache folder, its description and removal.

    list_test.py PROGRAM [UNITTEST ARGUMENT...]
"""
import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from cache import COMMIT, Cache
from terminal import PATIENCE, Terminal

MODEL = str(pathlib.Path(__file__).resolve().parents[2] / "models/abacus/model.gguf")
OTHER = "f" * 40


class CacheTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = Cache(self.folder / "hub")
        self.env = {"HF_HUB_CACHE": str(self.cache.path), "XDG_CACHE_HOME": str(self.folder)}

    def weft(self, *words, status=0, **env):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE,
                              stdin=subprocess.DEVNULL, check=False,
                              env={**os.environ, **self.env, **env})
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def list(self):
        return {model["name"]: model for model in json.loads(self.weft("list", "--json"))}

    def rm(self, *words):
        return json.loads(self.weft("rm", *words, "--yes", "--json"))["removed"]


class List(CacheTest):
    def test_nothing(self):
        self.assertEqual(self.weft("list"), "")
        self.assertEqual(self.list(), {})
        self.cache.path.mkdir()
        self.assertEqual(self.list(), {})

    def test_the_file_of_quickstart(self):
        own = self.folder / "weft"
        own.mkdir()
        (own / "notes.txt").write_text("no model")
        shutil.copy(MODEL, own / "small-Q8_0.gguf")
        name = str(own / "small-Q8_0.gguf")
        self.assertIn(name, self.weft("list"))
        listed = self.list()[name]
        self.assertEqual((listed["path"], listed["type"], listed["state"], listed["bytes"]),
                         (name, "Q8_0", "whole", os.path.getsize(MODEL)))

    def test_no_folder(self):
        self.cache.path.write_text("a file")
        self.assertIn("cannot list the cache folder", self.weft("list", status=1))

    @unittest.skipIf(os.geteuid() == 0, "root reads everything; the test above has the message")
    def test_a_folder_that_may_not_be_read(self):
        self.cache.path.mkdir(mode=0)
        self.assertIn("Permission denied", self.weft("list", status=1))

    def test_what_is_there_and_cannot_be_read(self):
        """Circular links, which root can't follow either."""
        self.cache.add("o", "good-GGUF", {"n-Q8_0.gguf": MODEL})
        self.cache.add("o", "n-GGUF", {"n-Q8_0.gguf": MODEL})
        repo = self.cache.repo("o", "n-GGUF")
        for what in ("refs", f"snapshots/{COMMIT}", f"snapshots/{COMMIT}/n-Q8_0.gguf", "."):
            path = repo if what == "." else repo / what
            path.rename(self.folder / "aside")
            path.symlink_to(path.name)
            for command in ("show", "inspect"):
                said = self.weft(command, "hf:o/n-GGUF:Q8_0", status=1)
                self.assertIn("Too many levels of symbolic links", said, what)
                self.assertNotIn("not in the cache folder", said)
            done = subprocess.run([PROGRAM, "list"], capture_output=True, text=True, check=True,
                                  timeout=PATIENCE, env={**os.environ, **self.env})
            self.assertIn("hf:o/good-GGUF:Q8_0", done.stdout)
            self.assertIn(f"weft: warning: {path}: cannot ", done.stderr)
            path.unlink()
            (self.folder / "aside").rename(path)
        self.weft("show", "hf:o/n-GGUF:Q8_0")

    @unittest.skipIf(os.geteuid() == 0, "root reads everything; the test above has the message")
    def test_a_repository_that_may_not_be_read(self):
        self.cache.add("o", "n-GGUF", {"n-Q8_0.gguf": MODEL})
        repo = self.cache.repo("o", "n-GGUF")
        for path in (repo, repo / "refs", repo / "snapshots", repo / "blobs"):
            path.chmod(0)
            self.assertIn("Permission denied", self.weft("show", "hf:o/n-GGUF:Q8_0", status=1))
            path.chmod(0o755)

    def test_another_type_is_there(self):
        self.cache.add("o", "n-GGUF", {"n-Q8_0.gguf": MODEL, "n-Q4_0.gguf": MODEL})
        said = self.weft("show", "hf:o/n-GGUF:Q5_K_M", status=1)
        self.assertIn("there are: Q4_0, Q8_0. Run 'weft pull hf:o/n-GGUF:Q5_K_M'", said)
        self.assertNotIn("incomplete", said)

    def test_models(self):
        size = os.path.getsize(MODEL)
        self.cache.add("o", "n-GGUF", {"n-Q8_0.gguf": MODEL, "sub/n-q4_k_m.gguf": b"x" * 500,
                                       "README.md": b"words"})
        self.cache.add("o", "plain", {"some model.gguf": MODEL}, ref=None)
        self.cache.add("o", "folder", {"config.json": b"{}", "model.safetensors": b"y" * 700})
        self.cache.add("o", "tagged", {"t-F16.gguf": b""}, ref="v1")
        models = self.list()
        self.assertEqual(set(models), {
            "hf:o/n-GGUF:Q8_0", "hf:o/n-GGUF:q4_k_m", f"hf:o/plain@{COMMIT}:some model.gguf",
            "hf:o/folder", "hf:o/tagged@v1:F16"})
        self.assertTrue(all(model["state"] == "whole" for model in models.values()), models)
        eight = models["hf:o/n-GGUF:Q8_0"]
        self.assertEqual((eight["bytes"], eight["held_bytes"], eight["type"]), (size, size, "Q8_0"))
        self.assertEqual(models["hf:o/folder"]["bytes"], 702)
        self.assertEqual(models["hf:o/tagged@v1:F16"]["bytes"], 0)
        self.assertRegex(eight["used"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(models[f"hf:o/plain@{COMMIT}:some model.gguf"]["type"], "BF16")
        table = self.weft("list")
        self.assertEqual(table.count("\n"), 6)
        self.assertTrue(table.startswith("NAME"))
        for name in models:
            self.assertIn(name, table)
        # A name from the list is accepted as MODEL.
        self.assertIn("llama", self.weft("show", f"hf:o/plain@{COMMIT}:some model.gguf"))

    def test_half_downloaded(self):
        self.cache.add("o", "fetching", {})
        blobs = self.cache.repo("o", "fetching") / "blobs"
        digest = "a" * 64
        (blobs / f"{digest}.weft.incomplete").write_bytes(b"z" * 1000)
        (blobs / f"{digest}.weft.incomplete.json").write_text(json.dumps(
            {"weft_part": 1, "hash": digest, "size": 1000, "etag": "e", "done": [[0, 300]]}))
        self.cache.add("o", "parts", {"p-Q8_0-00001-of-00002.gguf": b"1" * 400})
        model = self.list()["hf:o/fetching"]
        self.assertEqual((model["state"], model["held_bytes"], model["bytes"]),
                         ("incomplete", 300, 1000), model)
        self.assertEqual(self.list()["hf:o/parts:Q8_0"]["state"], "incomplete")
        table = self.weft("list")
        self.assertIn("incomplete: ", table)
        self.assertIn("'weft pull hf:o/fetching' resumes", table)
        self.assertEqual([gone["name"] for gone in self.rm("o/fetching")], ["hf:o/fetching"])
        self.assertFalse(self.cache.repo("o", "fetching").exists())

    def test_what_is_no_model(self):
        self.cache.add("o", "broken", {"b-Q8_0.gguf": b"no GGUF at all", "c.gguf": b""})
        (self.cache.path / "datasets--o--d").mkdir()
        (self.cache.path / "models--gpt2").mkdir()
        (self.cache.path / "models--..--n").mkdir()
        (self.cache.path / "models--o--file").write_text("")
        (self.cache.path / "models--o--empty/snapshots/main").mkdir(parents=True)
        dangling = self.cache.repo("o", "dangling") / "snapshots" / COMMIT
        dangling.mkdir(parents=True)
        (dangling / "d-Q8_0.gguf").symlink_to("../../blobs/none")
        (dangling / "loop.gguf").symlink_to("loop.gguf")
        self.assertEqual(set(self.list()), {"hf:o/broken:Q8_0", "hf:o/broken:c.gguf"})
        self.weft("list")
        self.assertIn("broken", self.weft("show", "o/broken:Q8_0", status=1))


class Show(CacheTest):
    def test_facts(self):
        facts = json.loads(self.weft("show", MODEL, "--json"))
        self.assertEqual(facts["architecture"], "llama")
        self.assertEqual(facts["context"], 256)
        self.assertEqual(facts["chat_template"], "own")
        self.assertEqual(facts["supported"], True)
        self.assertIn(facts["tokenizer"], ("gpt2", "llama"))
        self.assertEqual(sum(facts["quantization"].values()), facts["bytes"])
        inspected = json.loads(self.weft("inspect", MODEL, "--json"))
        self.assertEqual(facts["parameters"], inspected["parameters"])
        text = self.weft("show", MODEL)
        for words in ("llama", "BF16", "256", "own"):
            self.assertIn(words, text)

    def test_synthetic_and_none(self):
        facts = json.loads(self.weft("show", "synthetic:llama-3.1-70b:Q4_0", "--json"))
        self.assertGreater(facts["parameters"], 69e9)
        self.assertIn("none.gguf", self.weft("show", "none.gguf", status=1))


class Remove(CacheTest):
    def setUp(self):
        super().setUp()
        self.cache.add("o", "n", {"n-Q8_0.gguf": MODEL, "n-Q4_0.gguf": b"x" * 5000,
                                  "README.md": b"words"})

    def test_one_of_several(self):
        removed = self.rm("o/n:Q8_0")
        self.assertEqual([gone["name"] for gone in removed], ["hf:o/n:Q8_0"])
        self.assertGreaterEqual(removed[0]["freed_bytes"], os.path.getsize(MODEL))
        self.assertEqual(set(self.list()), {"hf:o/n:Q4_0"})
        self.assertEqual(sorted(self.cache.blobs("o", "n").values()), [5, 5000])
        self.rm("hf:o/n")
        self.assertFalse(self.cache.repo("o", "n").exists())
        self.assertIn("not in the cache", self.weft("rm", "o/n", "--yes", status=1))

    def test_contents_that_others_have_stay(self):
        self.cache.add("o", "n", {"n-Q8_0.gguf": MODEL}, commit=OTHER, ref="v2")
        removed = self.rm("o/n:Q8_0")[0]
        self.assertEqual(removed["freed_bytes"], 0)
        self.assertGreater(removed["kept_bytes"], 0)
        self.assertEqual(set(self.list()), {"hf:o/n:Q4_0", "hf:o/n@v2:Q8_0"})
        self.assertIn("85", self.weft("run", "o/n@v2:Q8_0", "--greedy", "-p", "What is 47 + 38?"))
        self.rm("o/n@v2")
        self.assertEqual(set(self.list()), {"hf:o/n:Q4_0"})
        self.assertFalse((self.cache.repo("o", "n") / "refs/v2").exists())
        self.assertTrue((self.cache.repo("o", "n") / "refs/main").exists())

    def test_nobody_to_ask(self):
        self.assertIn("--yes", self.weft("rm", "o/n:Q8_0", status=2))
        self.assertEqual(len(self.list()), 2)

    def test_a_user_is_asked(self):
        for answer, status in (("n", 130), ("", 130), ("maybe", 130), ("y", 0)):
            with Terminal(PROGRAM, "rm", "o/n:Q8_0", env=self.env) as terminal:
                self.assertIn("hf:o/n:Q8_0", terminal.until(re.escape("[y/N] ")))
                terminal.type(answer + "\n")
                self.assertEqual(terminal.wait(), status, terminal.text)
            self.assertEqual(len(self.list()), 1 if answer == "y" else 2)

    def test_nothing_outside(self):
        outside = self.folder / "outside"
        outside.mkdir()
        treasure = outside / "t-Q8_0.gguf"
        treasure.write_bytes(b"treasure")
        # A snapshot's link, a whole snapshot, and a repository that point outside the cache.
        snapshot = self.cache.add("o", "link", {})
        snapshot.mkdir(parents=True)
        (snapshot / "l-Q8_0.gguf").symlink_to(treasure)
        (self.cache.repo("o", "n") / "snapshots" / OTHER).symlink_to(outside)
        (self.cache.path / "models--o--away").symlink_to(outside / "repo")
        away = Cache(outside).add("x", "repo", {"a-Q8_0.gguf": b"away"})
        os.rename(outside / "models--x--repo", outside / "repo")
        self.rm("o/link")
        self.assertFalse(snapshot.exists())
        self.assertEqual(self.rm(f"o/n@{OTHER}")[0]["freed_bytes"], 0)
        self.assertIn("points outside the cache folder",
                      self.weft("rm", "o/away", "--yes", status=1))
        self.assertEqual(treasure.read_bytes(), b"treasure")
        self.assertTrue((outside / "repo").joinpath(*away.parts[-2:], "a-Q8_0.gguf").exists())
        for word in (str(treasure), "../outside/t-Q8_0.gguf", "o/../outside", "/", "."):
            self.assertNotEqual(self.weft("rm", word, "--yes", status=2), "")
        self.assertTrue(treasure.exists())

    def test_what_is_being_fetched(self):
        digest = next(name for name, size in self.cache.blobs("o", "n").items() if size == 5000)
        locks = self.cache.path / ".locks/models--o--n"
        locks.mkdir(parents=True)
        with open(locks / f"{digest}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertIn("another program is downloading",
                          self.weft("rm", "o/n:Q4_0", "--yes", status=1))
        self.assertEqual(len(self.list()), 2)
        (locks / f"{digest}.lock").unlink()
        self.rm("o/n:Q4_0")
        # It created the missing lock, so a concurrent download waits for it.
        self.assertTrue((locks / f"{digest}.lock").exists())
        self.rm("o/n")
        self.assertFalse(locks.exists())

    @unittest.skipIf(os.geteuid() == 0, "root sees everything")
    def test_a_snapshot_that_cannot_be_seen(self):
        """The other snapshot may need the contents, so they stay."""
        other = self.cache.add("o", "n", {"n-Q8_0.gguf": MODEL}, commit=OTHER, ref="v2")
        other.chmod(0)
        self.addCleanup(other.chmod, 0o755)
        blobs = self.cache.blobs("o", "n")
        self.assertIn("Nothing was deleted, because another",
                      self.weft("rm", "o/n:Q8_0", "--yes", status=1))
        self.assertEqual(self.cache.blobs("o", "n"), blobs)

    def test_names_that_a_terminal_would_obey(self):
        self.cache.add("o", "odd", {"a\x1b[31mb\x07-Q8_0.gguf": MODEL, "c-Q4_\x1b[0m.gguf": b"x"})
        table = self.weft("list")
        self.assertIn("o/odd:", table)
        self.assertTrue(table.replace("\n", "").isprintable(), table)

    def test_a_folder_without_links(self):
        """huggingface_hub stores this form on systems without symbolic links."""
        snapshot = self.cache.repo("o", "copies") / "snapshots" / COMMIT
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text("{}")
        (snapshot / "model.safetensors").write_bytes(b"x" * 8192)
        self.assertGreaterEqual(self.rm(f"o/copies@{COMMIT}")[0]["freed_bytes"], 8192)
        self.assertFalse(self.cache.repo("o", "copies").exists())


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
