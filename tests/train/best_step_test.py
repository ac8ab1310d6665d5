#!/usr/bin/env python3
"""The evaluation with the lowest loss: early stopping, its checkpoint, and the result from it.

    tests/train/best_step_test.py build/weft [UNITTEST ARGUMENT...]

With a rate that is far too high, the loss over the test part rises after some updates.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "models/abacus/model.gguf")
PATIENCE = 600


class BestStep(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"
        self.data = self.folder / "data.jsonl"
        self.data.write_text("".join(json.dumps(dict(question=f"What is {a} + 3?", answer=str(a)))
                                     + "\n" for a in range(40)))

    def train(self, *more, out=None, status=0, model=MODEL):
        words = [PROGRAM, "train", model, "--data", str(self.data), "--seq-len", "64", "--json",
                 "--dtype", "f32", "-t", "1", "--test-split", "0.3", "--eval-every", "1",
                 "--no-pack", "--lr", "3e-3", "--clip", "0", "--output-dir", str(out or self.out),
                 *more]
        if "--micro-batch" not in more:
            words += ["--micro-batch", "4"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        if status is not None:
            self.assertEqual(done.returncode, status, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return lines, done.stderr

    def checkpoints(self):
        return sorted(path.name for path in (self.out / "checkpoints").iterdir())

    def losses(self, lines):
        return [line["eval_loss"] for line in lines[:-1]]

    def test_training_ends_early(self):
        lines, said = self.train("--steps", "30", "--early-stopping-patience", "2")
        losses = self.losses(lines)
        self.assertLess(len(losses), 30)
        best = losses.index(min(losses))
        self.assertEqual(len(losses), best + 3)
        self.assertIn("2 evaluations in a row", said)
        self.assertEqual((lines[-1]["best_step"], lines[-1]["best_eval_loss"], lines[-1]["steps"]),
                         (best + 1, min(losses), best + 3))
        self.assertTrue((self.out / "model.gguf").exists())

    def test_the_threshold(self):
        lines, _ = self.train("--steps", "30", "--early-stopping-patience", "3",
                              "--early-stopping-threshold", "100")
        losses = self.losses(lines)
        self.assertEqual(len(losses), 4)  # only the first loss is lower by so much
        # The best weights are nevertheless those of the lowest loss.
        self.assertEqual((lines[-1]["best_step"], lines[-1]["best_eval_loss"]),
                         (losses.index(min(losses)) + 1, min(losses)))
        self.assertGreater(lines[-1]["best_step"], 1)

    def best_of(self, *layout):
        """The result has the weights of the best update, whose checkpoint outlives others."""
        lines, said = self.train("--steps", "8", "--keep-best", "--save-every", "1", "--keep-last",
                                 "2", *layout)
        losses = self.losses(lines)
        best = losses.index(min(losses)) + 1
        self.assertLess(best, 7, losses)  # (else the test shows nothing)
        self.assertEqual(self.checkpoints(),
                         [f"step-{step:08}" for step in (best, 7, 8)])
        self.assertIn(f"the result has the weights of step {best}", said)
        other = self.folder / "straight"
        self.train("--steps", str(best), out=other)
        return other, best

    def test_the_result_is_the_best(self):
        other, best = self.best_of()
        self.assertEqual((self.out / "model.gguf").read_bytes(),
                         (other / "model.gguf").read_bytes())
        # Resuming with no update left gives the same result.
        model = (self.out / "model.gguf").read_bytes()
        (self.out / "model.gguf").unlink()
        self.train("--steps", "8", "--keep-best", "--save-every", "1", "--resume", "auto")
        self.assertEqual((self.out / "model.gguf").read_bytes(), model)
        # If the best checkpoint is damaged or missing, the result is that of the last update.
        file = next((self.out / f"checkpoints/step-{best:08}").glob("rank-*.safetensors"))
        data = bytearray(file.read_bytes())
        data[-1000] ^= 1
        file.write_bytes(data)
        (self.out / "model.gguf").unlink()
        said = self.train("--steps", "8", "--keep-best", "--save-every", "1", "--resume",
                          "auto")[1]
        self.assertIn("are not those that were written", said)
        self.assertIn("the result has the weights of the last update, 8", said)
        last = (self.out / "model.gguf").read_bytes()
        self.assertNotEqual(last, model)
        (self.out / f"checkpoints/step-{best:08}/manifest.json").unlink()
        (self.out / "model.gguf").unlink()
        said = self.train("--steps", "8", "--keep-best", "--save-every", "1", "--resume",
                          "auto")[1]
        self.assertIn("the result has the weights of the last update, 8", said)
        self.assertEqual((self.out / "model.gguf").read_bytes(), last)

    def test_the_result_is_the_best_on_ranks(self):
        self.best_of("--local", "2", "--micro-batch", "2", "--zero", "3")

    def test_a_resumed_job_knows_the_best(self):
        straight = self.losses(self.train("--steps", "8", "--early-stopping-patience", "6")[0])
        words = ("--early-stopping-patience", "6", "--save-every", "3")
        out = self.folder / "parts"
        first, _ = self.train("--steps", "3", *words, out=out)
        rest, _ = self.train("--steps", "8", *words, "--resume", "auto", out=out)
        self.assertEqual(self.losses(first) + self.losses(rest), straight)
        self.assertEqual(rest[-1]["best_eval_loss"], min(straight))

    def test_the_best_is_one_over_the_same_data(self):
        words = ("--keep-best", "--save-every", "1", "--early-stopping-patience", "2")
        best = self.train("--steps", "6", *words)[0][-1]["best_eval_loss"]
        self.data.write_text("".join(json.dumps(dict(question=f"jklm {a} nop", answer="qrst" * 3))
                                     + "\n" for a in range(40)))
        lines, said = self.train("--steps", "12", *words, "--resume", "auto", "--new-data")
        losses = self.losses(lines)
        self.assertGreater(losses[0], best)  # (else the test shows nothing)
        self.assertIn("the data are new", said)
        self.assertEqual((lines[-1]["best_eval_loss"], lines[-1]["best_step"]),
                         (min(losses), 7 + losses.index(min(losses))))
        self.assertGreater(len(losses), 2)

    def test_the_best_is_one_of_the_same_loss(self):
        self.data.write_text("".join(json.dumps(dict(prompt=f"What is {a} + 3?", chosen=str(a + 3),
                                                     rejected="no")) + "\n" for a in range(40)))
        words = ("--keep-best", "--save-every", "1", "--early-stopping-patience", "3")
        best = self.train("--steps", "3", "--loss", "dpo", *words)[0][-1]["best_eval_loss"]
        lines, said = self.train("--steps", "9", "--loss", "ipo", *words, "--resume", "auto")
        losses = self.losses(lines)
        self.assertGreater(min(losses), best)  # (else the test shows nothing)
        self.assertIn("--loss is another one", said)
        self.assertEqual(lines[-1]["best_eval_loss"], min(losses))
        # A resumed job with the same loss continues the comparison.
        lines, said = self.train("--steps", "10", "--loss", "ipo", *words, "--resume", "auto")
        self.assertEqual(lines[-1]["best_eval_loss"], min(losses + self.losses(lines)))
        self.assertNotIn("another one", said)

    def test_the_best_is_one_of_this_folder(self):
        words = ("--keep-best", "--save-every", "1")
        first, _ = self.train("--steps", "8", *words)
        self.assertLess(first[-1]["best_step"], 8)
        out = self.folder / "other"
        lines, said = self.train("--steps", "12", *words, "--resume", str(self.out), out=out)
        losses = self.losses(lines)
        step = 9 + losses.index(min(losses))
        self.assertGreater(min(losses), first[-1]["best_eval_loss"])
        self.assertEqual(lines[-1]["best_step"], step, said)
        self.assertIn("is missing: the lowest loss over the test part so far", said)
        self.assertTrue((out / f"checkpoints/step-{step:08}/manifest.json").exists())

    def test_an_evaluation_that_is_not_finite_loses_no_update(self):
        """A token that only the test part has has no finite weights."""
        base = self.folder / "base"
        self.train("--steps", "1", "--save-format", "hf", out=base)
        model = base / "model"
        file = model / "model.safetensors"
        data = file.read_bytes()
        length = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:length])
        table = header["model.embed_tokens.weight"]
        begin, end = table["data_offsets"]
        header["lm_head.weight"] = dict(table, data_offsets=[len(data) - length,
                                                             len(data) - length + end - begin])
        rows = bytearray(data[length:] + data[length + begin:length + end])
        row = (end - begin) // table["shape"][0]
        token = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]["z"]
        rows[begin + token * row:begin + (token + 1) * row] = b"\0\0\xc0\x7f" * (row // 4)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        file.write_bytes(len(text).to_bytes(8, "little") + text + rows)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(dict(config, tie_word_embeddings=False)))
        for one in range(40):  # (the split decides which records are in the test part)
            self.data.write_text("".join(json.dumps(
                dict(question=f"What is {a} + 3?" + " z" * (a == one), answer=str(a))) + "\n"
                                         for a in range(40)))
            _, said = self.train("--steps", "2", "--overwrite", model=str(model), status=None)
            if "test part is nan" in said:
                break
        self.assertIn("step-00000001 has all updates before it", said)
        self.assertEqual(self.checkpoints(), ["step-00000001"])

    def test_refusals(self):
        for words, part in ((("--early-stopping-patience", "-1"), "expected 0 or more"),
                            (("--keep-best", "--test-split", "0"), "--test-split")):
            with self.subTest(words=words):
                done = subprocess.run([PROGRAM, "train", MODEL, "--data", str(self.data),
                                       "--output-dir", str(self.out), *words],
                                      capture_output=True, text=True, timeout=PATIENCE)
                self.assertEqual(done.returncode, 2)
                self.assertIn(part, done.stderr)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
