#!/usr/bin/env python3
"""A weft built without GPU kernels: its messages, and that it computes on the CPU.

    without_test.py PROGRAM [UNITTEST ARGUMENT...]
"""
import json
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from vulkan_device import MODEL, PATIENCE  # noqa: E402

ASK = ("run", MODEL, "-p", "What is 47 + 38?", "-n", "8", "--temp", "0")


class Without(unittest.TestCase):
    def run_weft(self, *words, status=0):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def test_a_gpu_is_refused_with_what_to_do(self):
        for words in ((*ASK, "--device", "vulkan"), (*ASK, "--device", "vulkan:0"),
                      (*ASK, "--pp", "2", "--device", "vulkan:0,cpu"),
                      ("bench", MODEL, "--device", "vulkan"),
                      ("serve", MODEL, "--port", "0", "--device", "vulkan")):
            said = self.run_weft(*words, status=2).stderr
            for part in ("--device", "built without GPU kernels", "-DWEFT_GPU", "--device cpu"):
                self.assertIn(part, said)

    def test_auto_is_the_processor(self):
        answers = {self.run_weft(*ASK, *words).stdout
                   for words in ((), ("--device", "auto"), ("--device", "cpu"),
                                 ("--tp", "2", "--device", "auto"))}
        self.assertEqual(len(answers), 1)
        ranks = json.loads(self.run_weft(*ASK, "--json").stdout)["ranks"]
        self.assertEqual([rank["device"] for rank in ranks], ["cpu"])

    def test_lists_say_why_there_is_none(self):
        listed = json.loads(self.run_weft("inspect", "--devices", "--json").stdout)
        self.assertEqual((listed["gpus"], listed["shaders"]["count"]), ([], 0))
        for said in (listed["gpus_none"], self.run_weft("inspect", "--devices").stdout,
                     self.run_weft("--version").stdout):
            self.assertIn("-DWEFT_GPU=ON", said)


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
