#!/usr/bin/env python3
"""Former names of flags still work on a command line and in a file of flags, and no help or
message shows them.

    former_flags_test.py PROGRAM [UNITTEST ARGUMENT...]
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from terminal import PATIENCE

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "models/abacus/model.gguf")
# Former name, present name, a value that the flag refuses (None: the flag takes no value).
FLAGS = (("--chunk", "--prefill-chunk", "x"), ("--kv", "--kv-dtype", "x"),
         ("--split", "--tensor-split", "x"), ("--wait-for", "--expect-workers", "x"),
         ("--rejoin-ms", "--restart-timeout-ms", "x"), ("--gpu-sum", "--gpu-allreduce", "x"),
         ("--wire", "--allreduce-dtype", "x"), ("--lookup", "--prompt-lookup", None),
         ("--no-proof", "--skip-self-test", None))


def weft(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE,
                          stdin=subprocess.DEVNULL, check=False)


class FormerFlags(unittest.TestCase):
    def same_error(self, former, present):
        """Both lines are refused with the same message, which has no former name."""
        one, other = weft("run", *former), weft("run", *present)
        self.assertEqual((one.returncode, other.returncode), (2, 2), one.stderr)
        self.assertEqual(one.stderr, other.stderr)
        return one.stderr

    def test_a_former_name_means_the_present_one(self):
        for former, present, value in FLAGS:
            if value is not None:
                for join in (lambda flag: [flag, value], lambda flag: [f"{flag}={value}"]):
                    said = self.same_error([MODEL, *join(former)], [MODEL, *join(present)])
                    self.assertIn(present, said)
            else:
                # The former flag is accepted: the error is about the flag after it.
                said = self.same_error([MODEL, former, "--ctx", "x"],
                                       [MODEL, present, "--ctx", "x"])
                self.assertIn("--ctx", said)

    def test_in_a_file_of_flags_the_command_line_wins(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "weft.toml"
            for former, present, value in FLAGS:
                if value is None:
                    continue
                for name in (former[2:], former[2:].replace("-", "_")):
                    file.write_text(f'model = "{MODEL}"\n{name} = "x"\n')
                    self.assertIn(present, self.same_error(["--config", str(file)],
                                                           [MODEL, present, "x"]))
                for given in (former, present):
                    line = weft("run", "--config", str(file), given, "y")
                    self.assertIn("y", line.stderr)
                    self.assertNotIn("x'", line.stderr)

    def test_nothing_shows_them(self):
        formers = [former for former, _, _ in FLAGS]
        shown = re.compile("|".join(rf"(?<![\w-]){re.escape(flag)}(?![\w-])" for flag in formers))
        for command in ("run", "serve", "bench", "logits", "train", "plan", "pull", "inspect"):
            for words in ((command, "--help"), ("completion", "--", command, "--")):
                done = weft(*words)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIsNone(shown.search(done.stdout), words)
                self.assertNotIn("{false}", done.stdout, words)
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(weft("man", "--all", folder).returncode, 0)
            pages = list(pathlib.Path(folder).rglob("*.1"))
            self.assertTrue(pages)
            for page in pages:
                self.assertIsNone(shown.search(page.read_text().replace("\\-", "-")), page)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
