#!/usr/bin/env python3
"""Commands whose output can't be written: a full disk, a pipe without a reader, a closed
descriptor. Colors and cursor movements appear only on terminals.

    output_test.py PROGRAM [UNITTEST ARGUMENT...]
"""
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from terminal import PATIENCE, Terminal

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "serve")]
import gguf_template  # noqa: E402
from nightly import nightly, nightly_only, some  # noqa: E402
from processes import children  # noqa: E402
from wait import Pace, outlast, until  # noqa: E402

MODEL = str(pathlib.Path(__file__).resolve().parents[2] / "models/abacus/model.gguf")
ESCAPE = "\x1b"
HEARTBEAT_S = 0.1  # time between two looks of rank 0 at the progress of the others
# A command line of each command that prints and ends by itself.
COMMANDS = [
    ["--help"],
    ["--version"],
    ["run", "--help"],
    ["run", MODEL, "--greedy", "-p", "What is 47 + 38?"],
    ["run", MODEL, "--greedy", "-p", "What is 47 + 38?", "--json"],
    ["run", MODEL, "--greedy", "-p", "What is 47 + 38?", "--tp", "2", "-t", "1"],
    ["bench", MODEL, "-p", "8", "-n", "4", "-r", "1", "-t", "1"],
    ["bench", MODEL, "-p", "8", "-n", "4", "-r", "1", "-t", "1", "-o", "json"],
    ["inspect", MODEL],
    ["inspect", MODEL, "--json"],
    ["tokenize", MODEL, "--text", "What is 47 + 38?"],
    ["logits", MODEL, "--tokens", "1,2,3"],
    ["models"],
    ["models", "--json"],
    ["plan", "synthetic:llama-3.2-1b", "--machines", "2xstrix-halo,roce"],
    ["doctor", "--list"],
    ["net", "allreduce", "--local", "2", "--sizes", "64,1K", "--iters", "10", "--transport", "shm",
     "--algorithm", "one_shot"],
]


def begin(words, **streams):
    return subprocess.Popen([PROGRAM, *words], stdin=subprocess.DEVNULL,
                            env={**os.environ, "WEFT_LOG": "warning"}, **streams)


def said(process):
    errors = process.communicate(timeout=PATIENCE)[1]
    return process.returncode, errors.decode()


class Failures(unittest.TestCase):
    def test_a_full_disk(self):
        for words in some(COMMANDS):
            with self.subTest(words=words), open("/dev/full", "wb") as full:
                status, errors = said(begin(words, stdout=full, stderr=subprocess.PIPE))
                self.assertEqual(status, 1, errors)
                self.assertIn("weft: error: standard output: No space left on device", errors)
                self.assertEqual(errors.count("error:"), 1, errors)
                self.assertNotIn("stopped by", errors)

    def test_a_pipe_that_nobody_reads(self):
        for words in COMMANDS if nightly() else COMMANDS[1::4]:
            with self.subTest(words=words):
                ours, theirs = os.pipe()
                os.close(ours)
                process = begin(words, stdout=theirs, stderr=subprocess.PIPE)
                os.close(theirs)
                status, errors = said(process)
                # Killed by SIGPIPE, or that status from a shell.
                self.assertIn(status, (-13, 141), errors)
                self.assertNotIn("error", errors)
                self.assertNotIn("stopped by", errors)

    def test_a_reader_that_leaves_amid_an_answer(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        model = folder.name + "/long.gguf"
        gguf_template.with_keys(MODEL, model, {"llama.context_length": 16384})
        for layout in ((), ("--tp", "2", "-t", "1"), ("--pp", "2", "-t", "1")):
            words = ["run", model, "-p", "a", "-n", "8000", "--ignore-eos", *layout]
            with self.subTest(layout=layout):
                process = begin(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                process.stdout.read(1)
                ranks = children(process.pid)
                self.assertEqual(len(ranks), 1 if layout else 0)
                process.stdout.close()
                start = time.monotonic()
                errors = process.stderr.read().decode()
                self.assertEqual(process.wait(PATIENCE), 141, errors)
                self.assertLess(time.monotonic() - start, PATIENCE / 4)
                self.assertNotIn("error", errors)
                process.stderr.close()
                for rank in ranks:
                    self.assertFalse(os.path.exists(f"/proc/{rank}"), "a rank goes on")

    def test_head(self):
        for words in (["inspect", MODEL], ["--help"], ["run", MODEL, "-p", "Sort 9, 7, 5."]):
            line = subprocess.run(
                ["bash", "-c", '"$@" | head -n 1; exit ${PIPESTATUS[0]}', "bash", PROGRAM, *words],
                capture_output=True, timeout=PATIENCE, check=False)
            self.assertIn(line.returncode, (0, 141), line.stderr)
            self.assertEqual(line.stdout.count(b"\n"), 1)

    def test_closed_descriptors(self):
        """Files opened later must not get the closed descriptors."""
        for closed, status in ((">&-", 1), ("2>&-", 0), ("<&-", 0)):
            done = subprocess.run(
                ["bash", "-c", f'"$@" {closed}', "bash", PROGRAM, "run", MODEL, "--greedy", "-p",
                 "What is 47 + 38?"], capture_output=True, timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            if closed == ">&-":
                self.assertIn(b"standard output: Bad file descriptor", done.stderr)
            else:
                self.assertIn(b"85", done.stdout)

    def test_standard_error_may_fail(self):
        with open("/dev/full", "wb") as full:
            process = begin(["run", MODEL, "--greedy", "-p", "What is 47 + 38?"],
                            stdout=subprocess.PIPE, stderr=full)
            self.assertIn(b"85", process.communicate(timeout=PATIENCE)[0])
            self.assertEqual(process.returncode, 0)

    def test_training_goes_on(self):
        """The model is written; the final error reports the lost lines."""
        with tempfile.TemporaryDirectory() as folder, open("/dev/full", "wb") as full:
            data = pathlib.Path(folder, "data.jsonl")
            data.write_text('{"text": "one two three"}\n' * 8)
            words = ["train", MODEL, "--data", str(data), "--output-dir", folder + "/out",
                     "--steps", "2", "--seq-len", "16", "--micro-batch", "1", "-t", "1", "--json"]
            status, errors = said(begin(words, stdout=full, stderr=subprocess.PIPE))
            self.assertEqual(status, 1, errors)
            self.assertIn("No space left on device", errors)
            self.assertTrue(os.path.exists(folder + "/out/model.gguf"), errors)

    def test_a_limit_of_file_sizes(self):
        """The limit cuts the first line that a job writes into its folder."""
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        with tempfile.TemporaryDirectory() as folder:
            words = ["train", MODEL, "--data", "synthetic:random-tokens:9:8", "--seq-len", "8",
                     "--output-dir", folder + "/out", "--steps", "1", "-t", "1"]
            status, errors = said(begin(
                words, stderr=subprocess.PIPE,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50, limits))))
            self.assertEqual(status, 1, errors)
            self.assertIn("of at most 50 bytes (ulimit -f): raise the limit", errors)


class Escapes(unittest.TestCase):
    """Output on a terminal, with cursor movements and colors."""

    def escapes(self, *words, **env):
        with Terminal(PROGRAM, *words, env={"NO_COLOR": "", **env}) as terminal:
            terminal.wait()
            return terminal.text.count(ESCAPE), terminal.text

    def test_progress(self):
        words = ("run", MODEL, "--greedy", "-p", "What is 47 + 38?")
        self.assertGreater(self.escapes(*words, TERM="xterm")[0], 0)
        for term in ("dumb", ""):
            count, text = self.escapes(*words, TERM=term)
            self.assertEqual(count, 0, text)
            self.assertIn("85", text)

    def test_progress_keeps_to_its_row(self):
        """A line as wide as the terminal would scroll it at each change."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        wide = pathlib.Path(folder.name) / ("\u65e5\u672c" * 20 + ".gguf")
        wide.symlink_to(MODEL)
        for columns in (200, 40, 12, 3):
            with Terminal(PROGRAM, "run", str(wide), "--greedy", "-p", "What is 47 + 38?",
                          env={"TERM": "xterm"}, columns=columns) as terminal:
                terminal.wait()
            lines = re.findall(r"\x1b\[K([^\x1b\n]*)", terminal.text)
            shown = [line for line in lines if line.startswith("lo")]
            self.assertTrue(shown, terminal.text)
            for line in shown:
                width = sum(2 if "\u65e5" in each or "\u672c" in each else 1 for each in line)
                self.assertLess(width, columns, line)
            if columns == 40:
                self.assertTrue(shown[0].endswith("gguf ..."), shown)

    def test_a_training_keeps_to_its_row(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        data = pathlib.Path(folder.name) / "data.jsonl"
        data.write_text('{"question": "What is 4 + 3?", "answer": "7"}\n' * 20)
        with Terminal(PROGRAM, "train", MODEL, "--data", str(data), "--seq-len", "32", "--steps",
                      "3", "-t", "1", "--no-output", env={"TERM": "xterm"},
                      columns=60) as terminal:
            self.assertEqual(terminal.wait(), 0, terminal.text)
        lines = re.findall(r"\x1b\[K(step [^\x1b\n]*)(\n?)", terminal.text)
        self.assertEqual([line[:8] for line, _ in lines], ["step 1/3", "step 2/3", "step 3/3"])
        for line, _ in lines:
            self.assertLess(len(line), 60, line)
        self.assertEqual(lines[-1][1], "\n")  # the last one stays

    def loading_slowly(self, *words):
        """Output of a program that runs a third of the time until it has loaded.

        If loading takes less than a few heartbeats, no progress appears.
        """
        with Terminal(PROGRAM, *words, env={"NO_COLOR": "", "TERM": "xterm"}) as terminal:
            stopped, running = Pace(0.1), Pace(0.05)

            def has_loaded():
                os.killpg(terminal.pid, signal.SIGSTOP)
                stopped.next()
                os.killpg(terminal.pid, signal.SIGCONT)
                running.next()
                terminal.more(0)
                return re.search("load: |warm-up", terminal.text)
            terminal.until("loading")
            until(has_loaded, lambda: terminal.text, PATIENCE)
            self.assertEqual(terminal.wait(), 0, terminal.text)
            return terminal.text.count(ESCAPE), terminal.text

    def test_loading(self):
        """The progress of the slowest rank, redrawn in one line and erased at the end."""
        model = "synthetic:llama-3.2-1b:Q8_0"
        for words in some((("run", model, "-p", "a", "-n", "1", "--tp", "2"),
                           ("run", model, "-p", "a", "-n", "1"),
                           ("bench", model, "-p", "1", "-n", "1", "-r", "1", "--pp", "2")), 3):
            count, text = self.loading_slowly(*words, "-t", "1")
            shares = [int(share) for share in re.findall(r"loading[^%\n]*: (\d+) %", text)]
            self.assertGreaterEqual(len(shares), 3, text)
            self.assertEqual(shares, sorted(shares), text)
            self.assertLessEqual(shares[-1], 100)
            after = text.rsplit(" %", 1)[1]
            self.assertTrue(after.startswith("\x1b[K") or after.startswith(ESCAPE), after)
            self.assertGreater(count, len(shares))
            if not nightly():
                continue  # test_progress
            self.assertEqual(self.escapes(*words, "-t", "1", TERM="dumb")[0], 0)

    @nightly_only
    def test_loading_is_that_of_the_slowest_rank(self):
        words = ("run", "synthetic:llama-3.2-1b:Q8_0", "-p", "a", "-n", "1", "--tp", "2", "-t", "1",
                 "--timeout-ms", "60000")
        with Terminal(PROGRAM, *words, env={"TERM": "xterm"}) as terminal:
            terminal.until(r": \d+ %")
            rank = children(terminal.pid)[0]
            os.kill(rank, signal.SIGSTOP)
            outlast(10 * HEARTBEAT_S)
            terminal.more(0)
            stopped = len(terminal.text)
            outlast(20 * HEARTBEAT_S)
            terminal.more(0)
            # Rank 0 continues; the progress line stops.
            self.assertNotRegex(terminal.text[stopped:], r": \d+ %")
            os.kill(rank, signal.SIGCONT)
            terminal.until(r"decode: 1 tokens")
            self.assertEqual(terminal.wait(), 0)

    def test_colours(self):
        words = ("doctor", "--no-measure", "--verbose")
        count, text = self.escapes(*words, TERM="xterm")
        self.assertGreater(count, 0, text)
        self.assertEqual(self.escapes(*words, TERM="dumb")[0], 0)
        self.assertEqual(self.escapes(*words, TERM="xterm", NO_COLOR="1")[0], 0)

    def test_no_terminal(self):
        for words in (["doctor", "--no-measure"], ["run", MODEL, "-p", "What is 47 + 38?"]):
            done = subprocess.run([PROGRAM, *words], capture_output=True, timeout=PATIENCE,
                                  env={**os.environ, "TERM": "xterm"}, check=False)
            self.assertNotIn(ESCAPE.encode(), done.stdout + done.stderr)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
