#!/usr/bin/env python3
"""Completion of command lines: weft's answers, and their effect in bash, zsh and fish when a
user presses the key at a terminal. Skips shells that are not installed.

    completion_test.py PROGRAM [UNITTEST ARGUMENT...]
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from cache import Cache
from terminal import PATIENCE, Terminal

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from nightly import nightly  # noqa: E402

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models/abacus/model.gguf"
HELD = "owner/tiny-GGUF"


class CompletionTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.work = self.folder / "work"
        (self.work / "a folder").mkdir(parents=True)
        (self.work / "some model.gguf").write_text("no model")
        (self.work / "secret.key").write_text("a key")
        cache = Cache(self.folder / "hub")
        cache.add("owner", "tiny-GGUF", {"tiny-Q4_0.gguf": MODEL})
        (self.folder / "bin").mkdir()
        (self.folder / "bin/weft").symlink_to(pathlib.Path(PROGRAM).resolve())
        self.env = {"HF_HUB_CACHE": str(cache.path), "HOME": str(self.folder),
                    "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}


class Answers(CompletionTest):
    def ask(self, *words, **env):
        """(offered words, kind of paths that the shell adds)"""
        done = subprocess.run([PROGRAM, "completion", "--", *words], capture_output=True, text=True,
                              timeout=PATIENCE, env={**os.environ, **self.env, **env}, check=True,
                              cwd=self.work)
        self.assertEqual(done.stderr, "")
        lines = done.stdout.splitlines()
        self.assertIn(lines[-1], (":none", ":files", ":folders"))
        return [line.split("\t")[0] for line in lines[:-1]], lines[-1]

    def test_commands(self):
        self.assertEqual(self.ask("ser"), (["serve"], ":none"))
        self.assertIn("run", self.ask("")[0])
        self.assertIn("run", self.ask()[0])
        self.assertEqual(self.ask("no-such")[0], [])
        self.assertEqual(self.ask("key", "")[0], ["new", "check"])
        self.assertEqual(self.ask("train", "da")[0], ["data"])

    def test_every_command_and_flag_of_help_is_offered(self):
        def read(command):
            text = subprocess.run([PROGRAM, *command, "--help"], capture_output=True, text=True,
                                  timeout=PATIENCE, check=False).stdout
            offered = set(self.ask(*command, "--")[0])
            for flag in re.findall(r"^  (?:-\w,)?(--[a-z][\w-]*)", text, re.MULTILINE):
                self.assertIn(flag, offered, command)
            below = re.search(r"^Subcommands:\n((?:  .*\n)*)", text, re.MULTILINE)
            for name in re.findall(r"^  ([a-z-]+) ", below[1] if below else "", re.MULTILINE):
                self.assertIn(name, self.ask(*command, "")[0], command)
                read((*command, name))
        read(())

    def test_what_is_left_out(self):
        self.assertEqual(self.ask("train", "--rec")[0], ["--recompute"])
        self.assertIn("data", self.ask("train", "")[0])
        self.assertEqual(self.ask("net", "--timeout-m")[0], ["--timeout-ms"])
        self.assertNotIn("--version", self.ask("run", "--")[0])

    def test_values(self):
        self.assertEqual(self.ask("run", "--overlap", "o")[0], ["off", "on"])
        self.assertEqual(self.ask("run", "--overlap=o")[0], ["--overlap=off", "--overlap=on"])
        self.assertEqual(self.ask("train", "--recompute", "s"), (["selective"], ":none"))
        self.assertEqual(self.ask("net", "allreduce", "--transport", "shm,t")[0], ["shm,tcp"])
        line = ["submit", "--to", "slurm", "-N", "2", "--"]
        self.assertEqual(self.ask(*line, "train", "--recomp")[0], ["--recompute"])
        self.assertEqual(self.ask("run", "-n", ""), ([], ":none"))  # a number
        self.assertEqual(self.ask("run", "--key-file", ""), ([], ":files"))
        self.assertEqual(self.ask("run", "--key-file=s")[1], ":files")
        self.assertEqual(self.ask("run", "x", "--lora", "")[1], ":folders")
        self.assertEqual(self.ask("completion", "z")[0], ["zsh"])

    def test_a_flag_is_offered_once(self):
        self.assertNotIn("--overlap", self.ask("run", "--overlap", "on", "--over")[0])
        self.assertNotIn("--overlap", self.ask("run", "--overlap=on", "--over")[0])

    def test_models(self):
        words, paths = self.ask("run", "own")
        self.assertEqual(paths, ":files")
        self.assertEqual([word for word in words if word.startswith(HELD)], words)
        self.assertTrue(words)
        self.assertTrue(self.ask("run", "hf:own")[0])
        self.assertTrue(self.ask("run", "x", "--draft", "own")[0])
        self.assertIn("qwen3:8b", self.ask("run", "qwen3:8")[0])
        self.assertEqual(self.ask("run", "model.gguf", "own")[0], [])  # only one MODEL

    def test_strange_lines(self):
        for words in (["--", "--"], ["run", "--", "-"], ["run", "--no-such", ""], ["\x1b[31m"],
                      ["run", "--=", ""], ["-", ""], ["run", "\udcff"], ["x" * 100000],
                      ["run", "="],
                      ["train", "--data", "a", "b", "--"], ["run", "--overlap=", "=", ":"],
                      ["submit", "--", "--", "--"]):
            self.ask(*words)

    def test_nothing_that_is_wrong_elsewhere_matters(self):
        self.assertEqual(self.ask("ser", WEFT_CPU="misspelt")[0], ["serve"])
        self.assertEqual(self.ask("run", "--overlap", "of", HF_HUB_CACHE="/nowhere")[0], ["off"])
        (self.folder / "file").write_text("")
        self.ask("run", "own", HF_HUB_CACHE=str(self.folder / "file"))


def drawn(text):
    """Visible text of a terminal whose output only grows."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00\x07]", "", text)
    while "\b" in text:
        text = re.sub(r"[^\b]?\x08", "", text, count=1)
    return text


class Shell:
    """Tests for every shell: type `line`, press the key, and compare the resulting line. Daily,
    shells other than bash run some of them."""
    daily = ("test_a_flag", "test_a_file_with_a_blank", "test_a_name_with_a_colon")

    def setUp(self):
        if not nightly() and self.daily and self._testMethodName not in self.daily:
            self.skipTest("./test --nightly runs it")
        super().setUp()

    def complete(self, typed, expected):
        with self.terminal() as shell:
            self.begin(shell)
            shell.type(typed + "\t")
            end = time.monotonic() + PATIENCE
            while expected not in drawn(shell.text[shell.at:]):
                if time.monotonic() > end or not shell.more(1):
                    self.fail(f"no {expected!r} in {drawn(shell.text[shell.at:])!r}")

    def test_a_command(self):
        self.complete("weft ser", "weft serve")

    def test_a_flag(self):
        self.complete("weft train --recomp", "weft train --recompute")

    def test_a_value(self):
        self.complete("weft run m --overlap of", "--overlap off")

    def test_a_joined_value(self):
        self.complete("weft run m --overlap=of", "--overlap=off")

    def test_a_file_with_a_blank(self):
        self.complete("weft run som", "some\\ model.gguf")

    def test_a_file_of_a_flag(self):
        self.complete("weft run m --key-file sec", "secret.key")

    def test_a_folder(self):
        self.complete("weft run m --lora a", "a\\ folder/")

    def test_a_model_of_the_cache(self):
        self.complete("weft run owner/ti", HELD)

    def test_a_name_with_a_colon(self):
        self.complete("weft run hf:owner/ti", "hf:" + HELD)


@unittest.skipUnless(shutil.which("bash"), "no bash here")
class Bash(Shell, CompletionTest):
    daily = ()

    def terminal(self):
        os.chdir(self.work)
        return Terminal(shutil.which("bash"), "--norc", "--noprofile", "-i",
                        env={**self.env, "PS1": "READY", "INPUTRC": "/dev/null"})

    def begin(self, shell):
        shell.until("READY")
        shell.type("bind 'set enable-bracketed-paste off'; source <(weft completion bash)\n")
        shell.until("READY")

    def test_in_the_middle_of_a_word(self):
        """Text after the cursor is not part of the word."""
        line = "weft run m --overlap=ofxyz"
        script = (f"source <(weft completion bash); COMP_LINE='{line}' COMP_POINT={len(line) - 3} "
                  "COMP_CWORD=5; COMP_WORDS=(weft run m --overlap = ofxyz); _weft 2>/dev/null; "
                  'printf "%s," "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True,
                              timeout=PATIENCE, env={**os.environ, **self.env}, cwd=self.work)
        self.assertEqual(done.stdout, "off,")


@unittest.skipUnless(shutil.which("zsh"), "no zsh here")
class Zsh(Shell, CompletionTest):
    def terminal(self):
        os.chdir(self.work)
        return Terminal(shutil.which("zsh"), "-f", "-i",
                        env={**self.env, "PS1": "READY", "TERM": "vt100"})

    def begin(self, shell):
        shell.until("READY")
        shell.type("unsetopt zle_bracketed_paste; autoload -U compinit; compinit -u -D; "
                   "source <(weft completion zsh); PS1=GO\n")
        shell.until("PS1=GO")
        shell.until("GO")


@unittest.skipUnless(shutil.which("fish"), "no fish here")
class Fish(Shell, CompletionTest):
    """(fish redraws its line at each key, so the test asks fish for its completions instead.)"""

    def complete(self, typed, expected):
        script = f"weft completion fish | source; complete -C '{typed}'"
        done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True,
                              timeout=PATIENCE, cwd=self.work, env={**os.environ, **self.env},
                              check=False)
        self.assertEqual(done.stderr, "")
        offered = [line.split("\t")[0] for line in done.stdout.splitlines()]
        # fish quotes inserted words.
        word = expected.split(" ", 1)[-1] if expected.startswith("weft ") else expected
        word = word.replace("\\ ", "_").split(" ")[-1].replace("_", " ")
        self.assertTrue(any(each.startswith(word) for each in offered), (word, offered))


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
