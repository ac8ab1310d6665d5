#!/usr/bin/env python3
"""Losses over vectors as users run them: rewards, classes and embeddings on any ranks against the
curves of TRL, transformers and torch, resuming, evaluation, results that 'weft serve' and 'weft
merge' read, and refusals.

    tests/train/vector_test.py build/weft [UNITTEST ARGUMENT...]

The curves of tests/data/vector_curves.json are made by tools/make_vector_golden.py.
"""
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from nightly import in_turn
from processes import listening_port, steps_with_a_kill
from wait import until

MODEL = str(ROOT / "models/abacus/model.gguf")
GOLDEN = json.loads((ROOT / "tests/data/vector_curves.json").read_text())
PATIENCE = 600
# Relative to the value, or to 1, after six updates. A score is a sum of 64 products of float32; a
# gradient norm sums rounding errors of all layers.
TOLERANCES = {"loss": 1e-5, "grad_norm": 1e-4, "accuracy": 1e-9, "margin": 1e-5,
              "mean_reward": 1e-5}
STEPS = ("--steps", "6")


class Vectors(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, records in GOLDEN["data"].items():
            self.write(name, records)

    def write(self, name, records):
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return str(path)

    def words(self, curve, *more, model=MODEL, dtype="f32"):
        wanted = GOLDEN["curves"][curve]
        words = ["train", model, "--data", str(self.folder / f"{wanted['data']}.jsonl"),
                 "--seq-len", "127", "--no-shuffle", "--json", "--dtype", dtype, "--weight-decay",
                 "0", "-t", "1", "--lr", str(wanted["lr"]), "--eps", str(GOLDEN["eps"])]
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

    def lines(self, curve, *more, **words):
        done = self.run_weft(self.words(curve, *more, **words))
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

    @staticmethod
    def is_ready(port):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=PATIENCE).close()
        except urllib.error.HTTPError:
            return False
        return True

    def ask(self, model, path, body, *more):
        """The answer of a server of this model."""
        words = ["serve", model, "--host", "127.0.0.1", "--port", "0", "-t", "1", "--ctx", "256",
                 "--kv-dtype", "f32", *more]
        server = subprocess.Popen([PROGRAM, *words], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        try:
            port = until(lambda: listening_port(server.pid), "the server's port")
            until(lambda: self.is_ready(port), "the model")
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}",
                                             json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.loads(answer.read())
        finally:
            server.terminate()
            server.wait(PATIENCE)


class Curves(Vectors):
    def test_every_loss(self):
        for curve, wanted in GOLDEN["curves"].items():
            with self.subTest(curve=curve):
                self.expect_curve(curve, self.lines(curve, *STEPS, "--micro-batch",
                                                    str(wanted["batch"])))

    def test_any_ranks(self):
        """All texts of an update are negatives, on all replicas and in all micro-batches."""
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
        curves = ("reward", "triplets_mean", "reward_lora", "texts", "classes", "triplets_lora")
        for number, layout in enumerate(layouts):
            for turn, curve in enumerate(curves):
                if in_turn(number + turn, 3):
                    with self.subTest(curve=curve, layout=layout):
                        self.expect_curve(curve, self.lines(curve, *layout, *STEPS))

    def test_narrow_types(self):
        for curve in ("reward", "triplets_mean"):
            for dtype in ("bf16", "f16"):
                with self.subTest(curve=curve, dtype=dtype):
                    lines = self.lines(curve, *STEPS, "--micro-batch", "4", dtype=dtype)
                    # (Later losses differ: small updates do not change a narrow copy of a weight.
                    # The first one differs by the rounding of scores, 2^-8 of values up to 8.)
                    wanted = GOLDEN["curves"][curve]["steps"][0]["loss"]
                    self.assertTrue(abs(lines[0]["loss"] - wanted) <= 0.04, lines[0])
                    self.assertTrue(lines[4]["loss"] < lines[0]["loss"], lines[4])

    def test_resuming_and_a_lost_rank(self):
        for curve in ("reward", "texts", "classes_lora"):
            with self.subTest(curve=curve):
                out = ("--output-dir", str(self.folder / curve), "--save-every", "3")
                first = self.lines(curve, "--steps", "3", "--micro-batch", "4", *out)
                rest = self.lines(curve, *STEPS, "--micro-batch", "4", *out, "--resume", "auto")
                self.expect_curve(curve, first + rest)
        # New data in another order; the head's random values are those of the first seed.
        for last in ("8", "9"):
            lines = self.lines("reward", "--steps", last, "--micro-batch", "4", "--output-dir",
                               str(self.folder / "reward"), "--save-every", "1", "--resume",
                               "auto", "--new-data", "--seed", "5")
            self.assertEqual(str(lines[-1]["step"]), last)
        words = self.words("texts", *STEPS, "--local", "2", "--micro-batch", "2", "--save-every",
                           "2", "--output-dir", str(self.folder / "out"))
        lines, restarts, status, said = steps_with_a_kill([PROGRAM, *words], PATIENCE)
        self.assertEqual((status, restarts), (0, 1), said)
        self.expect_curve("texts", lines)

    def test_evaluation(self):
        for curve in ("reward", "triplets_mean", "classes"):
            with self.subTest(curve=curve):
                out = self.folder / f"eval_{curve}"
                lines = self.lines(curve, "--steps", "2", "--micro-batch", "2", "--output-dir",
                                   str(out), "--test-split", "0.4", "--eval-every", "1")
                for line in lines:
                    self.assertTrue(0 <= line["eval_accuracy"] <= 1, line)
                self.assertLess(lines[1]["eval_loss"], 3)
                self.assertNotIn("perplexity", lines[0])
                head = (out / "log.csv").read_text().splitlines()[0].split(",")
                self.assertIn("eval_accuracy", head)


class Results(Vectors):
    """The trained, written and served model equals that of transformers after the same updates."""

    def train(self, curve, *more):
        out = self.folder / f"result_{curve}"
        batch = str(GOLDEN["curves"][curve]["batch"])
        self.lines(curve, *STEPS, "--micro-batch", batch, "--output-dir", str(out), *more)
        return out

    def expect_score(self, model, curve):
        wanted = GOLDEN["curves"][curve]["after"]
        body = {"text_1": wanted["texts"][0], "text_2": wanted["texts"][1], "use_activation": False}
        answer = self.ask(model, "/v1/score", body)
        score = answer["data"][0]["score"]
        self.assertTrue(abs(score - wanted["score"]) <= 1e-4, (score, wanted))
        # The text of a special token is one token only if the request says so.
        marked = body | {"text_2": "<|end|>"}
        letters = self.ask(model, "/v1/score", marked)["usage"]["prompt_tokens"]
        token = self.ask(model, "/v1/score", marked | {"parse_special": True})
        self.assertLess(token["usage"]["prompt_tokens"], letters)

    def expect_vector(self, model, curve, *more):
        wanted = GOLDEN["curves"][curve]["after"]
        answer = self.ask(model, "/v1/embeddings", {"input": wanted["text"]}, *more)
        vector = answer["data"][0]["embedding"]
        worst = max(abs(a - b) for a, b in zip(vector, wanted["vector"], strict=True))
        self.assertTrue(worst <= 1e-4, worst)

    def test_rewards(self):
        folder = self.train("reward", "--save-format", "hf", "--save-type", "F32")
        config = json.loads((folder / "model/config.json").read_text())
        self.assertTrue(config["architectures"][0].endswith("ForSequenceClassification"))
        self.assertEqual(config["id2label"], {"0": "LABEL_0"})
        self.assertIsInstance(config["pad_token_id"], int)
        self.expect_score(str(folder / "model"), "reward")
        # The folder's head is the start of another training.
        lines = self.lines("reward", "--steps", "1", "--micro-batch", "8",
                           model=str(folder / "model"))
        self.assertLess(lines[0]["loss"], GOLDEN["curves"]["reward"]["steps"][0]["loss"])

    def test_rewards_in_a_file(self):
        folder = self.train("reward")
        self.expect_score(str(folder / "model.gguf"), "reward")

    def test_a_merged_adapter(self):
        folder = self.train("reward_lora")
        config = json.loads((folder / "adapter_config.json").read_text())
        self.assertEqual((config["task_type"], config["modules_to_save"]), ("SEQ_CLS", ["score"]))
        merged = str(self.folder / "merged.gguf")
        self.run_weft(["merge", MODEL, "--lora", str(folder), "-o", merged])
        self.expect_score(merged, "reward_lora")

    def test_an_adapter_of_vectors(self):
        folder = self.train("triplets_lora")
        config = json.loads((folder / "adapter_config.json").read_text())
        self.assertEqual(config["task_type"], "FEATURE_EXTRACTION")
        # PEFT loads it into transformers' AutoModel, whose modules have no "model." before them.
        with open(folder / "adapter_model.safetensors", "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        names = [name for name in header if name != "__metadata__"]
        self.assertTrue(all(name.startswith("base_model.model.layers.") for name in names), names)
        merged = str(self.folder / "merged.gguf")
        self.run_weft(["merge", MODEL, "--lora", str(folder), "-o", merged])
        self.expect_vector(merged, "triplets_lora", "--embeddings", "--pooling", "mean")

    def test_a_head_of_one_label_has_no_classes(self):
        folder = self.train("reward")
        words = ["train", str(folder / "model.gguf"), "--data", str(self.folder / "classes.jsonl"),
                 "--loss", "classification", "--no-output"]
        self.assertIn("has one label", self.run_weft(words, 2).stderr)

    def test_embeddings(self):
        folder = self.train("triplets_mean", "--save-format", "hf", "--save-type", "F32")
        modules = json.loads((folder / "model/modules.json").read_text())
        self.assertEqual([module["type"].split(".")[-1] for module in modules],
                         ["Transformer", "Pooling", "Normalize"])
        self.expect_vector(str(folder / "model"), "triplets_mean")
        file = self.train("texts")
        self.expect_vector(str(file / "model.gguf"), "texts")
        # The folder's pooling is the default of another training.
        lines = self.lines("triplets_mean", "--steps", "1", "--micro-batch", "4",
                           model=str(folder / "model"))
        self.assertLess(lines[0]["loss"], GOLDEN["curves"]["triplets_mean"]["steps"][0]["loss"])


class Plans(Vectors):
    def test_no_logits(self):
        words = ["plan", "llama-3.1-8b", "--train", "--machines", "8xh100", "--dp", "8",
                 "--seq-len", "4096", "--micro-batch", "2", "--global-batch", "16", "--zero", "0",
                 "--recompute", "full", "--json"]
        with_logits, without = (json.loads(self.run_weft([*words, *more]).stdout)["layouts"][0]
                                for more in ((), ("--vectors",)))
        self.assertLess(without["flops"], with_logits["flops"])
        # A tensor rank's part of the output matrix, 128,256 x 4,096: BF16 weights and gradients,
        # float32 weights and two moments.
        self.assertEqual(with_logits["layout"], without["layout"])
        less = with_logits["worst_rank_bytes"] - without["worst_rank_bytes"]
        self.assertGreaterEqual(less, 128_256 * 4_096 * 16 // with_logits["tp"])


class Memory(Vectors):
    def test_micro_batches_share_the_rows_weights(self):
        """A micro-batch has 4 x 2 texts of 60 tokens or more, each a row of 2,048 floats: 4 MB."""
        folder = self.folder / "wide"
        folder.mkdir()
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(ROOT / "models/abacus" / name, folder)
        (folder / "config.json").write_text(json.dumps(dict(
            model_type="llama", hidden_size=2048, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=1, num_key_value_heads=1, head_dim=32, vocab_size=576,
            rms_norm_eps=1e-5, max_position_embeddings=128, tie_word_embeddings=True)))
        text = "1 + 2 = 3, " * 6
        data = self.write("wide", [dict(anchor=f"{text}{i}", positive=f"{i}{text}")
                                   for i in range(64)])

        def peak(passes):
            done = self.run_weft(["train", str(folder), "--from-scratch", "--data", data, "--loss",
                                  "contrastive", "--pooling", "mean", "--steps", "1", "--seq-len",
                                  "127", "--micro-batch", "4", "--grad-accum", passes, "-t", "1",
                                  "--dtype", "f32", "--json", "--no-output"])
            return json.loads(done.stdout.splitlines()[-1])["peak_rss_bytes"][0]

        self.assertLess(peak("16") - peak("1"), 20e6)

    def test_the_rows_vectors_and_cosines_are_counted(self):
        """Vectors of 192 columns, in float32."""
        data = self.write("few", [dict(anchor="a", positive="b")] * 4)

        def needs(pooling, passes):
            done = subprocess.run(
                [PROGRAM, "train", MODEL, "--data", data, "--loss", "contrastive", "--pooling",
                 pooling, "--steps", "1", "--seq-len", "127", "--micro-batch", "64",
                 "--grad-accum", passes, "-t", "1", "--dtype", "f32", "--no-output"],
                capture_output=True, text=True, timeout=PATIENCE,
                env=dict(os.environ, WEFT_MEMORY_MIB="70"))
            self.assertEqual(done.returncode, 1, done.stderr)
            return int(re.search(r"rank 0: (\d+) MiB", done.stderr).group(1))

        last, mean, several = needs("last", "1"), needs("mean", "1"), needs("mean", "16")
        # All rows of 64 x 2 texts instead of their last ones, and the derivatives by them.
        self.assertTrue(abs(mean - last - 64 * 2 * 126 * 192 * 8 / 2**20) <= 1, (mean, last))
        # 1,024 records instead of 64: three times their vectors, and the square of cosines.
        more = (1024 - 64) * 2 * 192 * 3 + 1024**2 - 64**2
        self.assertTrue(abs(several - mean - more * 4 / 2**20) <= 1, (several, mean))


class Refusals(Vectors):
    def test_what_does_not_fit_the_loss(self):
        pairs = str(self.folder / "pairs.jsonl")
        for words, part in (
                (("--num-labels", "3"), "--num-labels with --loss sft"),
                (("--loss", "reward", "--pooling", "mean"), "belongs to contrastive"),
                (("--loss", "reward", "--beta", "0.2"), "belongs to dpo"),
                (("--loss", "reward", "--center-rewards-coefficient", "-1"), "expected 0"),
                (("--loss", "classification", "--num-labels", "1"), "expected 2 to"),
                (("--loss", "classification"), "--num-labels N gives it one"),
                (("--loss", "contrastive", "--pooling", "max"), "expected last, mean or cls"),
                (("--loss", "contrastive", "--contrastive-scale", "0"), "a number above 0"),
                (("--loss", "reward", "--long", "split"), "needs the whole text"),
                (("--loss", "reward", "--sample", "Hi"), "writes no text")):
            with self.subTest(words=words):
                done = subprocess.run([PROGRAM, "train", MODEL, "--data", pairs, "--no-output",
                                       "--steps", "1", *words], capture_output=True, text=True,
                                      timeout=PATIENCE)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(part, done.stderr)

    def test_the_line_and_the_member(self):
        classes = ("--loss", "classification", "--num-labels", "3")
        for words, good, record, part in (
                (("--loss", "reward"), dict(prompt="a", chosen="b", rejected="c"),
                 dict(prompt="a", chosen="b"),
                 "no 'rejected' in the record; --loss reward expects"),
                (("--loss", "reward"), dict(prompt="a", chosen="b", rejected="c"),
                 dict(prompt="a", chosen="b", rejected="c", margin="much"),
                 "'margin' is \"much\"; expected a number"),
                (("--loss", "reward"), dict(prompt="a", chosen="b", rejected="c"),
                 dict(prompt="a", chosen="b", rejected="c", margin=1e308),
                 "'margin' is 1e+308; expected a number of at most 3.4"),
                (classes, dict(text="a", label=0), dict(text="b", label=3),
                 "'label' is 3; expected the number of a class, 0 to 2"),
                (classes, dict(text="a", label=0), dict(text="b", label=-1), "'label' is -1"),
                (classes, dict(text="a", label=0), dict(text="b", label=1.5), "'label' is 1.5"),
                (classes, dict(text="a", label=0), dict(text="b"), "no 'label' in the record"),
                (classes, dict(text="a", label=0), dict(text=" ", label=1), "'text' is \" \""),
                (("--loss", "contrastive"), dict(anchor="a", positive="b"), dict(anchor="a"),
                 "no 'positive' in the record"),
                (("--loss", "contrastive"), dict(anchor="a", positive="b"),
                 dict(anchor="a", positive="b", negative="c"),
                 "3 texts (an anchor, a positive and 1 negatives); expected 2"),
                (("--loss", "contrastive"), dict(query="a", pos=["b"], neg=["c"]),
                 dict(query="a", pos=["b", "c"], neg=["d"]), "'pos' is [\"b\",\"c\"]")):
            path = self.write("bad", [good, record])
            with self.subTest(record=record):
                done = subprocess.run([PROGRAM, "train", MODEL, "--data", path, *words, "--steps",
                                       "2", "--no-shuffle", "--no-output"], capture_output=True,
                                      text=True, timeout=PATIENCE)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("line 2: ", done.stderr)
                self.assertIn(part, done.stderr)
                skipped = self.run_weft(["train", MODEL, "--data", path, *words, "--steps", "1",
                                         "--no-output", "--skip-bad", "--json"])
                self.assertTrue(math.isfinite(json.loads(skipped.stdout.splitlines()[0])["loss"]))

    def test_another_head(self):
        out = self.folder / "classes_model"
        self.lines("classes", "--steps", "1", "--micro-batch", "4", "--output-dir", str(out))
        done = subprocess.run([PROGRAM, "train", str(out / "model.gguf"), "--data",
                               str(self.folder / "pairs.jsonl"), "--loss", "reward", "--steps", "1",
                               "--no-output"], capture_output=True, text=True, timeout=PATIENCE)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("has 3 labels; expected 1", done.stderr)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
