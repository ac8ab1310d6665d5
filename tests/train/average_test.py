#!/usr/bin/env python3
"""The result from an average of the weights: a moving average, and the mean of the last updates.

    tests/train/average_test.py build/weft [UNITTEST ARGUMENT...]

The expected average is computed here from the results of jobs that end after each update.
"""
import array
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "models/abacus/model.gguf")
PATIENCE = 600
STEPS = 5
TAKEN = 3000  # elements of each tensor that are compared


def tensors(folder):
    """The first elements of each tensor of a folder's safetensors file in float32."""
    data = (folder / "model/model.safetensors").read_bytes()
    size, = struct.unpack_from("<Q", data)
    head = json.loads(data[8:8 + size])
    found = {}
    for name, one in head.items():
        if name == "__metadata__":
            continue
        begin, end = one["data_offsets"]
        end = min(end, begin + 4 * TAKEN)
        found[name] = array.array("f", data[8 + size + begin:8 + size + end])
    return found


class Average(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.data = cls.folder / "data.jsonl"
        cls.data.write_text("".join(json.dumps(dict(question=f"What is {a} + 3?", answer=str(a)))
                                    + "\n" for a in range(40)))
        cls.weights = []
        for step in range(1, STEPS + 1):
            out = cls.folder / f"after{step}"
            cls.train(out, "--steps", str(step))
            cls.weights.append(tensors(out))

    @classmethod
    def train(cls, out, *more, status=0):
        words = [PROGRAM, "train", MODEL, "--data", str(cls.data), "--seq-len", "64",
                 "--dtype", "f32", "-t", "1", "--lr", "0.02", "--clip", "0", "--optimizer", "sgd",
                 "--momentum", "0.5", "--save-format", "hf", "--output-dir", str(out), *more]
        if "--micro-batch" not in more:
            words += ["--micro-batch", "4"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == status, done.stderr
        return done.stderr

    def compare(self, out, expected, tolerance):
        """expected: of the weights of one element after each update."""
        found = tensors(out)
        self.assertEqual(found.keys(), self.weights[0].keys())
        moved = 0
        for name, values in found.items():
            steps = [weights[name] for weights in self.weights]
            for i, value in enumerate(values):
                own = [step[i] for step in steps]
                error = abs(value - expected(own))
                self.assertLessEqual(error, tolerance * (max(abs(x) for x in own) + 0.1),
                                     name)
                moved = max(moved, abs(value - own[-1]))
        self.assertGreater(moved, 1e-3)  # (the average is not the last update)

    @staticmethod
    def moving(own):
        average = own[0]
        for weight in own[1:]:
            average = 0.75 * average + 0.25 * weight
        return average

    @staticmethod
    def last3(own):
        return sum(own[-3:]) / 3

    def both(self, name, tolerance, *layout):
        for flags, expected in ((("--ema", "0.75"), self.moving),
                                (("--average-last", "3"), self.last3)):
            out = self.folder / (name + flags[0])
            self.train(out, "--steps", str(STEPS), *flags, *layout)
            self.compare(out, expected, tolerance)

    def test_one_rank(self):
        self.both("one", 4e-7)

    def test_shards(self):
        self.both("shards", 2e-5, "--local", "2", "--zero", "3", "--micro-batch", "2")

    def test_stages(self):
        self.both("stages", 2e-5, "--pp", "2", "--micro-batch", "2", "--grad-accum", "2")

    def test_a_resumed_job(self):
        for flags, expected in ((("--ema", "0.75"), self.moving),
                                (("--average-last", "3"), self.last3)):
            out = self.folder / ("resumed" + flags[0])
            words = ("--steps", str(STEPS), "--save-every", "4", "--keep-last", "0", *flags)
            self.train(out, *words)
            shutil.rmtree(out / f"checkpoints/step-{STEPS:08}")
            shutil.rmtree(out / "model")
            self.train(out, *words, "--resume", "auto", "--local", "2", "--zero", "1",
                       "--micro-batch", "2")
            self.compare(out, expected, 2e-5)

    def test_a_checkpoint_without_an_average(self):
        out = self.folder / "later"
        self.train(out, "--steps", "2", "--save-every", "2")
        self.train(out, "--steps", str(STEPS), "--resume", "auto", "--average-last", "3")
        self.compare(out, self.last3, 4e-7)
        # After further updates, other updates are the last ones.
        out = self.folder / "short"
        self.train(out, "--steps", "2", "--save-every", "2", "--average-last", "1")
        self.train(out, "--steps", str(STEPS), "--resume", "auto", "--average-last", "3")
        self.compare(out, self.last3, 4e-7)

    def test_a_sum_of_other_updates_is_refused(self):
        out = self.folder / "longer"
        self.train(out, "--steps", "4", "--save-every", "2", "--average-last", "3")
        said = self.train(out, "--steps", str(STEPS), "--resume", "auto", "--average-last", "3",
                          status=2)
        self.assertIn("averages those from 3 on", said)
        self.assertIn("a sum of 3", said)

    def test_options_are_checked(self):
        for flags in (("--ema", "1"), ("--ema", "0.9", "--average-last", "2"),
                      ("--ema", "0.9", "--keep-best", "--test-split", "0.1"),
                      ("--average-last", "2", "--early-stopping-patience", "1", "--test-split",
                       "0.1")):
            said = self.train(self.folder / "refused", "--steps", "1", *flags, status=2)
            self.assertIn(flags[0], said)


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
