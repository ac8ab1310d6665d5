#!/usr/bin/env python3
"""Flags of the sampler: each reaches it, other programs' names work, and wrong values are named.

    sampling_flags_test.py PROGRAM [UNITTEST ARGUMENT...]
"""
import json
import pathlib
import subprocess
import sys
import unittest

from terminal import PATIENCE

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "models/abacus/model.gguf")
# Flag, value, text of the sampler. The rules of XTC and DRY show together.
FLAGS = (("--typical", "0.5", "typical 0.5"), ("--top-nsigma", "1.5", "top-nsigma 1.5"),
         ("--xtc-probability", "0.25", "xtc-probability 0.25, xtc-threshold 0.1"),
         ("--dry-multiplier", "0.5",
          "dry-multiplier 0.5, dry-base 1.75, dry-allowed-length 2"),
         ("--typical-p", "0.25", "typical 0.25"), ("--top-n-sigma", "2", "top-nsigma 2"))
REFUSED = (("--typical", "0"), ("--typical", "1.5"), ("--top-nsigma", "-1"),
           ("--xtc-probability", "2"), ("--xtc-threshold", "-0.5"), ("--dry-multiplier", "-1"),
           ("--dry-allowed-length", "-1"))


def weft(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE,
                          stdin=subprocess.DEVNULL, check=False)


class SamplingFlags(unittest.TestCase):
    def run_json(self, *words, prompt="3 + 4 ="):
        done = weft("run", MODEL, "-n", "12", "-t", "1", "--json", "-p", prompt, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_each_reaches_the_sampler(self):
        for flag, value, text in FLAGS:
            said = self.run_json(flag, value, "--seed", "7")["sampling"]
            self.assertIn(text, said)
            self.assertIn("by flags", said)
        self.assertNotIn("typical", self.run_json("--seed", "7")["sampling"])
        both = self.run_json("--xtc-probability", "1", "--xtc-threshold", "0.2", "--dry-base", "2",
                             "--dry-multiplier", "1", "--dry-allowed-length", "3")["sampling"]
        self.assertIn("xtc-threshold 0.2, dry-multiplier 1, dry-base 2, dry-allowed-length 3", both)

    def test_dry_changes_a_repetition(self):
        words = ("--raw", "--temp", "0", "--ignore-eos")
        prompt = "1 1 1 1 1 1"
        plain = self.run_json(*words, prompt=prompt)
        dry = self.run_json(*words, "--dry-multiplier", "100", prompt=prompt)
        self.assertNotEqual(plain["tokens"], dry["tokens"])

    def test_wrong_values_are_named(self):
        for command in (("run", MODEL, "-p", "x"), ("serve", MODEL, "--port", "0")):
            for flag, value in REFUSED:
                done = weft(*command, f"{flag}={value}")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(flag[2:], done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
