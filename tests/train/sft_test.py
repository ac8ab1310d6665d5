#!/usr/bin/env python3
"""Supervised fine-tuning with further terms of the loss, noise and token accuracy, as users run it:
TRL's curves on any ranks, resuming, evaluation, and refusals.

    tests/train/sft_test.py build/weft [UNITTEST ARGUMENT...]

The curves of tests/data/sft_curves.json are made by tools/make_sft_golden.py.
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from nightly import in_turn

MODEL = str(ROOT / "models/abacus/model.gguf")
GOLDEN = json.loads((ROOT / "tests/data/sft_curves.json").read_text())
PATIENCE = 600
# Relative to the value, or to 1, after six updates in float32. TRL's accuracies are float32.
TOLERANCES = {"loss": 1e-5, "grad_norm": 1e-4, "mean_token_accuracy": 1e-6}
STEPS = ("--steps", "6")
BATCH = ("--micro-batch", "4")


class Tuning(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.data = self.folder / "data.jsonl"
        self.data.write_text("".join(json.dumps(record) + "\n" for record in GOLDEN["data"]))

    def run_weft(self, *words, status=0):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def words(self, curve, *more):
        words = ["train", MODEL, "--data", str(self.data), "--seq-len", "127", "--no-shuffle",
                 "--json", "--dtype", "f32", "--weight-decay", "0", "-t", "1", "--lr",
                 str(GOLDEN["lr"]), "--eps", str(GOLDEN["eps"])]
        words += [] if "--pack" in more else ["--no-pack"]
        for name, value in GOLDEN["curves"][curve]["options"].items():
            words += ["--" + name.replace("_", "-"), str(value)]
        words += [word for word in more if word != "--pack"]
        return words if "--output-dir" in words else [*words, "--no-output"]

    def lines(self, curve, *more):
        done = self.run_weft(*self.words(curve, *more))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return [line for line in lines if "loss" in line]

    def expect_curve(self, curve, lines):
        steps = GOLDEN["curves"][curve]["steps"]
        self.assertEqual(len(lines), len(steps))
        for line, step in zip(lines, steps):
            for name, value in step.items():
                error = abs(line[name] - value) / max(1, abs(value))
                self.assertTrue(error <= TOLERANCES[name],
                                f"{name} of step {line['step']}: {line[name]}, not {value}")


class Curves(Tuning):
    def test_trls(self):
        for curve in GOLDEN["curves"]:
            with self.subTest(curve=curve):
                self.expect_curve(curve, self.lines(curve, *STEPS, *BATCH))

    def test_any_ranks(self):
        layouts = (
            ("--micro-batch", "1", "--grad-accum", "4"),
            ("--local", "2", *BATCH, "--tp", "2"),
            ("--local", "3", *BATCH, "--tp", "3"),
            ("--local", "2", *BATCH, "--cp", "2"),
            ("--local", "2", "--micro-batch", "1", "--grad-accum", "4", "--pp", "2"),
            ("--local", "2", "--micro-batch", "2", "--zero", "1", "--recompute", "full"),
            ("--local", "2", "--micro-batch", "1", "--grad-accum", "2", "--zero", "3"),
            ("--local", "4", "--micro-batch", "2", "--tp", "2", "--zero", "2",
             "--sequence-parallel", "on"),
        )
        for number, layout in enumerate(layouts):
            for turn, curve in enumerate(("both", "neftune")):
                if in_turn(number + turn, 2):
                    with self.subTest(curve=curve, layout=layout):
                        self.expect_curve(curve, self.lines(curve, *layout, *STEPS))

    def test_packed_records_have_the_loss_of_records(self):
        """A step of all records, in sequences of their own or of several."""
        apart = self.lines("both", "--micro-batch", "8", "--steps", "1")
        packed = self.lines("both", "--micro-batch", "8", "--steps", "1", "--pack")
        for name, tolerance in TOLERANCES.items():
            error = abs(packed[0][name] / apart[0][name] - 1)
            self.assertTrue(error <= tolerance, f"{name}: {packed[0][name]}, {apart[0][name]}")


class Jobs(Tuning):
    def test_resumed_noise_has_the_same_bits(self):
        out = str(self.folder / "out")
        words = (*BATCH, "--output-dir", out, "--save-every", "3")
        first = self.lines("neftune", *words, "--steps", "3")
        rest = self.lines("neftune", *words, *STEPS, "--resume", "auto")
        straight = self.lines("neftune", *STEPS, *BATCH)
        for line, other in zip(first + rest, straight):
            self.assertEqual((line["loss"], line["grad_norm"]),
                             (other["loss"], other["grad_norm"]))
        seeded = self.lines("neftune", *STEPS, *BATCH, "--seed", "1")
        self.assertNotEqual(seeded[0]["loss"], straight[0]["loss"])

    def test_evaluations_have_neither_terms_nor_noise(self):
        words = (*BATCH, "--test-split", "0.4", "--steps", "1",
                 "--warmup-steps", "1")
        plain = self.lines("plain", *words)[0]
        self.assertTrue(0 < plain["eval_mean_token_accuracy"] < 1)
        for curve in ("both", "neftune"):
            line = self.lines(curve, *words)[0]
            for name in ("eval_loss", "eval_perplexity", "eval_mean_token_accuracy"):
                self.assertEqual(line[name], plain[name], name)
            self.assertNotEqual(line["loss"], plain["loss"])
            self.assertEqual("perplexity" in line, curve == "neftune")

    def test_logs_have_the_accuracy(self):
        out = self.folder / "out"
        lines = self.lines("both", *BATCH, "--steps", "2", "--output-dir", str(out))
        with open(out / "log.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        for row, line in zip(rows, lines):
            self.assertEqual(float(row["mean_token_accuracy"]), line["mean_token_accuracy"])
            self.assertNotIn("perplexity", row)
        shown = self.run_weft(*[w for w in self.words("plain", *BATCH, "--steps", "1")
                                if w != "--json"])
        self.assertIn("accuracy", shown.stdout + shown.stderr)

    def test_refusals(self):
        for words, text in (
                (("--label-smoothing", "1"), "expected 0 to below 1"),
                (("--z-loss", "-1"), "expected 0 (none) or more"),
                (("--neftune-alpha", "-5"), "expected 0 (none) or more"),
                (("--loss", "dpo", "--z-loss", "1e-4"), "belongs to sft"),
                (("--loss", "dpo", "--neftune-alpha", "5"), "belongs to sft")):
            with self.subTest(words=words):
                done = self.run_weft(*self.words("plain", *words), status=2)
                self.assertIn(text, done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
