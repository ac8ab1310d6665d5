#!/usr/bin/env python3
"""Losses over preferences as users run them: TRL's curves on any ranks, the log-probabilities of
the reference model in a file, resuming, a lost rank, evaluation, and refusals.

    tests/train/preference_test.py build/weft [UNITTEST ARGUMENT...]

The curves of tests/data/preference_curves.json are made by tools/make_preference_golden.py.
"""
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from nightly import in_turn, some
from processes import steps_with_a_kill

MODEL = str(ROOT / "models/abacus/model.gguf")
GOLDEN = json.loads((ROOT / "tests/data/preference_curves.json").read_text())
PATIENCE = 600
# Relative to the value, or to 1, after six updates. A log-probability has a relative error of a few
# 2^-24. Log-probabilities are up to 300 here; rewards and KL are differences of them, so their
# absolute error is 300 times larger.
TOLERANCES = {"loss": 1e-5, "grad_norm": 1e-4, "logps": 1e-6, "rewards": 5e-5, "kl": 5e-5}
STEPS = ("--steps", "6")


class Preferences(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, records in GOLDEN["data"].items():
            lines = "".join(json.dumps(record) + "\n" for record in records)
            (self.folder / f"{name}.jsonl").write_text(lines)

    def data(self, name):
        return str(self.folder / f"{name}.jsonl")

    def words(self, curve, *more):
        wanted = GOLDEN["curves"][curve]
        words = ["train", MODEL, "--data", self.data(wanted["data"]), "--seq-len", "127",
                 "--no-shuffle", "--json", "--dtype", "f32", "--weight-decay", "0", "-t", "1",
                 "--lr", str(GOLDEN["lr"]), "--eps", str(GOLDEN["eps"])]
        if wanted["adapter"]:
            words += ["--lora", "4"]
        for name, value in wanted["options"].items():
            words += ["--" + name.replace("_", "-"), str(value)]
        words += more
        return words if "--output-dir" in words else [*words, "--no-output"]

    def run_weft(self, words, status=0):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def lines(self, curve, *more):
        done = self.run_weft(self.words(curve, *more))
        return self.steps(done.stdout)

    @staticmethod
    def steps(text):
        lines = [json.loads(line) for line in text.splitlines()]
        return [line for line in lines if "loss" in line]

    def expect_curve(self, curve, lines):
        self.expect_steps(GOLDEN["curves"][curve]["steps"], lines)

    def expect_steps(self, steps, lines):
        self.assertEqual(len(lines), len(steps))
        for line, step in zip(lines, steps):
            for name, value in step.items():
                error = abs(line[name] - value) / max(1, abs(value))
                self.assertTrue(error <= TOLERANCES[name.split("/")[0]],
                                f"{name} of step {line['step']}: {line[name]}, not {value}")


class Curves(Preferences):
    def test_every_loss(self):
        for curve, wanted in GOLDEN["curves"].items():
            # (KTO makes two answers of a pair.)
            batch = wanted["batch"] // (2 if curve == "kto_of_pairs" else 1)
            with self.subTest(curve=curve):
                self.expect_curve(curve, self.lines(curve, *STEPS, "--micro-batch", str(batch)))

    def test_any_ranks(self):
        layouts = (
            ("--micro-batch", "1", "--grad-accum", "4"),
            ("--local", "2", "--micro-batch", "2"),
            ("--local", "2", "--micro-batch", "4", "--tp", "2"),
            ("--local", "2", "--micro-batch", "1", "--grad-accum", "4", "--pp", "2"),
            ("--local", "2", "--micro-batch", "1", "--grad-accum", "2", "--zero", "3"),
            ("--local", "2", "--micro-batch", "2", "--zero", "1", "--recompute", "full"),
            ("--local", "2", "--micro-batch", "1", "--grad-accum", "4", "--pp", "2",
             "--virtual-stages", "2"),
            ("--local", "4", "--micro-batch", "2", "--tp", "2", "--zero", "2",
             "--sequence-parallel", "on"),
            ("--local", "4", "--micro-batch", "1", "--grad-accum", "2", "--pp", "2", "--zero", "2"),
            ("--local", "3", "--micro-batch", "4", "--tp", "3"),
        )
        for number, layout in enumerate(layouts):
            for turn, curve in enumerate(("dpo", "dpo_lora", "orpo")):
                if in_turn(number + turn, 3):
                    with self.subTest(curve=curve, layout=layout):
                        self.expect_curve(curve, self.lines(curve, *layout, *STEPS))

    def test_kto_on_any_ranks(self):
        """All answers of an update share one estimate of the KL divergence."""
        layouts = (
            ("--micro-batch", "2", "--grad-accum", "4"),
            ("--local", "2", "--micro-batch", "1", "--grad-accum", "8", "--pp", "2"),
            ("--local", "2", "--micro-batch", "4", "--zero", "2"),
            ("--local", "2", "--micro-batch", "8", "--tp", "2"),
        )
        for layout in some(layouts, 3):
            with self.subTest(layout=layout):
                self.expect_curve("kto", self.lines("kto", *layout, *STEPS))


class Reference(Preferences):
    def test_a_resumed_job_has_the_reference_of_the_start(self):
        out, copy = self.folder / "out", self.folder / "copy"
        words = ("--micro-batch", "4", "--save-every", "3")
        first = self.lines("dpo", *words, "--output-dir", str(out), "--steps", "3")

        def rest():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(out, copy)
            return self.lines("dpo", *words, "--output-dir", str(copy), *STEPS, "--resume", "auto")

        kept = rest()
        self.expect_curve("dpo", first + kept)
        # A damaged file: computed again from the model, not from the checkpoint.
        file = out / "reference.bin"
        content = bytearray(file.read_bytes())
        content[-20] ^= 1
        file.write_bytes(content)
        self.assertEqual([line["loss"] for line in rest()], [line["loss"] for line in kept])
        # The file is used: other values give another loss.
        other = self.folder / "other.gguf"
        self.run_weft(self.words("dpo", "--micro-batch", "4", "--steps", "1", "--output-dir",
                                 str(self.folder / "trained"), "--overwrite"))
        shutil.copy(self.folder / "trained/model.gguf", other)
        lines = self.lines("dpo", "--micro-batch", "4", "--steps", "1", "--ref-model", str(other))
        self.assertGreater(lines[0]["loss"], math.log(2) + 1e-4)
        self.assertLess(lines[0]["rewards/margins"], 0)

    def test_an_adapter_that_continues_is_part_of_the_reference(self):
        """TRL copies it (DPOTrainer, KTOTrainer: the adapter "ref")."""
        adapter, out = (str(self.folder / name) for name in ("adapter", "out"))
        merged = str(self.folder / "merged.gguf")
        self.lines("dpo_lora", "--steps", "3", "--micro-batch", "4", "--output-dir", adapter)
        self.run_weft(["merge", MODEL, "--lora", adapter, "-o", merged, "--save-type", "F32"])

        def lines(curve, *more):
            return self.lines(curve, "--lora-from", adapter, *STEPS, *more)

        for curve, steps in GOLDEN["continued"].items():
            with self.subTest(curve=curve):
                batch = "4" if curve != "kto_of_pairs" else "8"  # (two answers of a pair)
                self.expect_steps(steps, lines(curve, "--micro-batch", batch))
                self.assertEqual(steps[0]["rewards/chosen"], 0)
        wanted = GOLDEN["continued"]["dpo"]
        layouts = (("--local", "2", "--micro-batch", "2", "--zero", "2"),
                   ("--local", "2", "--micro-batch", "4", "--tp", "2"),
                   ("--local", "2", "--micro-batch", "2", "--grad-accum", "2", "--pp", "2"))
        for more in some(layouts, 1):
            with self.subTest(more=more):
                self.expect_steps(wanted, lines("dpo", *more))
        # A merged model rounds, so that the answers of step 1 are no exact ties.
        first = {name: value for name, value in wanted[0].items() if name != "rewards/accuracies"}
        self.expect_steps([first, *wanted[1:]],
                          lines("dpo", "--micro-batch", "4", "--ref-model", merged))
        # The values are computed again from the adapter, not from the checkpoint.
        save = ("--lora-from", adapter, "--micro-batch", "4", "--output-dir", out, "--save-every",
                "3")
        first = self.lines("dpo", *save, "--steps", "3")
        (self.folder / "out/reference.bin").unlink()
        self.expect_steps(wanted, first + self.lines("dpo", *save, *STEPS, "--resume", "auto"))

    def test_another_model_on_any_ranks(self):
        """It is loaded before the model in training, on the same ranks."""
        layouts = (
            ("--local", "2", "--micro-batch", "4", "--tp", "2"),
            ("--local", "2", "--micro-batch", "1", "--grad-accum", "4", "--pp", "2"),
            ("--local", "2", "--micro-batch", "2", "--zero", "3"),
        )
        for layout in some(layouts, 2):
            with self.subTest(layout=layout):
                self.expect_curve("dpo", self.lines("dpo", *layout, *STEPS, "--ref-model", MODEL))

    def test_a_lost_rank(self):
        words = self.words("dpo", *STEPS, "--local", "2", "--micro-batch", "2", "--save-every", "2",
                           "--output-dir", str(self.folder / "out"))
        lines, restarts, status, said = steps_with_a_kill([PROGRAM, *words], PATIENCE)
        self.assertEqual((status, restarts), (0, 1), said)
        self.expect_curve("dpo", lines)


class Reports(Preferences):
    def test_evaluation_and_logs(self):
        out = self.folder / "out"
        lines = self.lines("dpo", "--steps", "2", "--micro-batch", "2", "--output-dir", str(out),
                           "--test-split", "0.4", "--eval-every", "1", "--seed", "3")
        for line in lines:
            self.assertIn("eval_rewards/margins", line)
        self.assertLess(lines[1]["eval_loss"], math.log(2))
        head = (out / "log.csv").read_text().splitlines()[0].split(",")
        for name in ("rewards/chosen", "rewards/accuracies", "logps/rejected",
                     "eval_rewards/margins"):
            self.assertIn(name, head)

    def test_inspect(self):
        done = self.run_weft(["train", "data", "inspect", MODEL, "--data", self.data("pairs"),
                              "--loss", "dpo", "--seq-len", "127", "--json"])
        self.assertIn("47 + 38", done.stdout)


class Refusals(Preferences):
    def test_what_does_not_fit_the_loss(self):
        for words, part in (
                (("--beta", "0.2"), "--beta with --loss sft"),
                (("--loss", "ipo", "--label-smoothing", "0.1"), "belongs to sft, dpo, simpo"),
                (("--loss", "dpo", "--simpo-gamma", "1"), "belongs to simpo"),
                (("--loss", "orpo", "--ref-model", MODEL), "belongs to dpo, ipo, kto"),
                (("--loss", "simpo", "--desirable-weight", "2"), "belongs to kto"),
                (("--loss", "dpo", "--beta", "0"), "--beta 0: expected a number above 0"),
                (("--loss", "dpo", "--label-smoothing", "0.5"), "expected 0 to below 0.5"),
                (("--loss", "dpo", "--long", "split"), "needs the whole answer"),
                (("--loss", "ppo"), "ppo")):
            with self.subTest(words=words):
                done = self.run_weft(["train", MODEL, "--data", self.data("pairs"), "--no-output",
                                      *words], status=2)
                self.assertIn(part, done.stderr)

    def test_the_line_and_the_member(self):
        path = self.folder / "bad.jsonl"
        for loss, record, part in (
                ("dpo", dict(prompt="a", chosen="b"),
                 "no 'rejected' in the record; --loss dpo expects 'chosen' and 'rejected'"),
                ("ipo", dict(prompt="a", chosen=True, rejected="c"),
                 "'chosen' is boolean; expected a string or a list of messages"),
                ("kto", dict(prompt="a", completion="b", label="maybe"),
                 "expected true (the answer is wanted) or false"),
                ("kto", dict(prompt="a", completion="b"), "no 'label'")):
            good = dict(prompt="a", chosen="b", rejected="c")
            path.write_text(json.dumps(good) + "\n" + json.dumps(record) + "\n")
            with self.subTest(record=record):
                done = subprocess.run([PROGRAM, "train", MODEL, "--data", str(path), "--loss", loss,
                                       "--steps", "2", "--no-output"], capture_output=True,
                                      text=True, timeout=PATIENCE)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("line 2: ", done.stderr)
                self.assertIn(part, done.stderr)
        # (KTO also reads the record before.)
        path.write_text(json.dumps(dict(prompt="a", completion="b", label=True)) + "\n" + "{\n")
        done = self.run_weft(["train", MODEL, "--data", str(path), "--loss", "kto", "--steps", "2",
                              "--no-output"], status=1)
        self.assertIn("bad.jsonl: line 2: ", done.stderr)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
