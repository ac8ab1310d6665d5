#!/usr/bin/env python3
"""weft train on a Vulkan device against weft train on the CPU: loss curves, layouts, checkpoints
that one device writes and the other reads, ranks that are killed, and failing calls. Lavapipe
suffices.

    training_test.py PROGRAM CACHE OTHER_GPUS [UNITTEST ARGUMENT...]

CACHE: a folder that keeps compiled kernels. OTHER_GPUS: the library built from other_gpus.cc. Exit
status 77: no Vulkan device can be used.
"""
import array
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "support")]
from processes import children  # noqa: E402
from vulkan_device import (MODEL, PATIENCE, SKIPPED, keep_kernels, machine_env,  # noqa: E402
                           usable, validate)

# For losses in float32, and for gradient norms: a different order of sums, over about 50 ops.
LOSS, NORM = 1e-5, 1e-4
# For losses in BF16 and float16 (docs/numbers.md: one step), relative to losses of about 6.
NARROW = {"bf16": 2 ** -8, "f16": 2 ** -11}
HIDDEN, FFN, HEADS, KV_HEADS, HEAD, VOCAB, EXPERTS = 64, 96, 4, 2, 16, 576, 4


def shapes(family, layers):
    """Names and shapes of a model's tensors, in Hugging Face's layout."""
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for layer in range(layers):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (HIDDEN,)
        yield at + "post_attention_layernorm.weight", (HIDDEN,)
        for name, rows in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            yield at + f"self_attn.{name}_proj.weight", (rows * HEAD, HIDDEN)
            if family == "qwen2":
                yield at + f"self_attn.{name}_proj.bias", (rows * HEAD,)
        yield at + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD)
        if family == "qwen3_moe":
            yield at + "self_attn.q_norm.weight", (HEAD,)
            yield at + "self_attn.k_norm.weight", (HEAD,)
        block, names = at + "mlp.", ("gate_proj", "up_proj", "down_proj")
        if family == "mixtral":
            block, names = at + "block_sparse_moe.", ("w1", "w3", "w2")
        parts = [block]
        if family in ("mixtral", "qwen3_moe"):
            yield block + "gate.weight", (EXPERTS, HIDDEN)
            parts = [f"{block}experts.{expert}." for expert in range(EXPERTS)]
        for part in parts:
            yield f"{part}{names[0]}.weight", (FFN, HIDDEN)
            yield f"{part}{names[1]}.weight", (FFN, HIDDEN)
            yield f"{part}{names[2]}.weight", (HIDDEN, FFN)
    yield "model.norm.weight", (HIDDEN,)


def write_model(folder, family, layers=2):
    """A small model with random weights, and abacus's tokenizer."""
    architecture = {"llama": "Llama", "qwen2": "Qwen2", "qwen3_moe": "Qwen3Moe",
                    "mixtral": "Mixtral"}[family]
    config = {"architectures": [architecture + "ForCausalLM"], "model_type": family,
              "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": layers,
              "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
              "vocab_size": VOCAB, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
              "eos_token_id": 0, "num_local_experts": EXPERTS, "num_experts": EXPERTS,
              "num_experts_per_tok": 2, "moe_intermediate_size": FFN, "norm_topk_prob": True,
              "decoder_sparse_step": 1, "mlp_only_layers": []}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((pathlib.Path(MODEL).parent / name).read_bytes())
    draw, header, data = random.Random(1), {}, bytearray()
    for name, shape in shapes(family, layers):
        if len(shape) == 1:
            values = [1 + 0.1 * draw.uniform(-1, 1) for _ in range(shape[0])]
        else:
            values = [draw.gauss(0, shape[1] ** -0.5) for _ in range(shape[0] * shape[1])]
        floats = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(floats)]}
        data += floats
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return str(folder)


def write_questions(path):
    with open(path, "w") as file:
        for i in range(24):
            letter = chr(ord("a") + i % 7)
            record = {"question": f"which {letter}{i}", "context": f"it is {letter} " * (1 + i % 3),
                      "answer": f"{letter} and {letter}"}
            file.write(json.dumps(record) + "\n")


def command(*words, device):
    return [PROGRAM, "train", *words, "--json", "--device", device]


def train(*words, device=None, status=0, env=None):
    """Returns the lines of the log and the messages."""
    words = command(*words, device=device or DEVICE)
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, **(env or {})})
    if done.returncode != status:
        raise AssertionError(f"{' '.join(words)}: status {done.returncode}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def steps(lines):
    return {line["step"]: line for line in lines if "loss" in line}


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.data = str(cls.folder / "data.jsonl")
        write_questions(cls.data)
        cls.models = {}

    def model(self, family, layers=2):
        key = f"{family}-{layers}"
        if key not in self.models:
            self.models[key] = write_model(self.folder / key, family, layers)
        return self.models[key]

    def words(self, *more, model=None, steps=3, data=None):
        return (model or self.model("llama"), "--data", data or self.data, "--seq-len", "64",
                "--lr", "1e-3", "--steps", str(steps), *more)

    def quiet(self, *more, **kinds):
        return self.words("--no-output", *more, **kinds)

    def near(self, got, want, loss=LOSS, norm=NORM):
        got, want = steps(got), steps(want)
        self.assertEqual(list(got), list(want))
        for step, line in want.items():
            for field, most in (("loss", loss), ("grad_norm", norm), ("aux_loss", loss),
                                ("eval_loss", loss)):
                # (None: not finite, for example after an overflow of float16.)
                self.assertEqual(got[step].get(field) is None, line.get(field) is None, field)
                if line.get(field) is not None:
                    error = abs(got[step][field] - line[field]) / abs(line[field])
                    self.assertTrue(error <= most, f"{field} of step {step}: {error}")

    def like_cpu(self, *more, dtype="f32", **kinds):
        words = self.quiet("--dtype", dtype, *more, **kinds)
        with self.subTest(words=words[1:]):
            got, want = train(*words)[0], train(*words, device="cpu")[0]
            # (A norm of 16-bit gradients: a few roundings of each.)
            self.near(got, want, NARROW.get(dtype, LOSS), 4 * NARROW.get(dtype, NORM / 4))

    def rewarded(self, *more, dtype="f32", model=None):
        """With a command and a reward model."""
        pairs, data = self.folder / "judged.jsonl", self.folder / "prompts.jsonl"
        judge = self.folder / "judge"
        if not judge.exists():
            pairs.write_text("".join(json.dumps({
                "prompt": f"which {i}", "chosen": f"it is {i}", "rejected": "it" + " not" * i
            }) + "\n" for i in range(4)))
            data.write_text("".join(json.dumps({"prompt": f"which {i}"}) + "\n" for i in range(8)))
            train(*self.words("--loss", "reward", "--output-dir", str(judge), data=str(pairs)),
                  device="cpu")
        return self.quiet("--dtype", dtype, "--loss", "grpo", "--group", "2",
                          "--max-completion-length", "12", "--beta", "0.1", "--eps", "1e-4",
                          "--reward-cmd", "while read -r x; do echo $((${#x} % 7)); done",
                          "--reward-model", str(judge / "model.gguf"), *more, data=str(data),
                          model=model)

    def near_rewards(self, got, want):
        """(Advantages sum to zero, so losses are near 0.)"""
        got, want = steps(got), steps(want)
        self.assertEqual(list(got), list(want))
        for step, line in want.items():
            for name in ("loss", "grad_norm", "reward", "kl", "entropy", "rewards/model/mean",
                         "completions/mean_length"):
                error = abs(got[step][name] - line[name]) / max(1, abs(line[name]))
                self.assertTrue(error <= (NORM if name == "grad_norm" else LOSS),
                                f"{name} of step {step}: {got[step][name]}, not {line[name]}")

    def cards(self, gpus):
        folder = tempfile.mkdtemp(dir=self.folder)
        env = machine_env(folder, OTHER_GPUS, gpus)
        env.pop("WEFT_VULKAN_VALIDATE", None)
        return env


class Curves(Training):
    def test_full(self):
        self.like_cpu("--micro-batch", "2")
        self.like_cpu("--micro-batch", "2", dtype="bf16")

    def test_any_device(self):
        words = self.quiet("--dtype", "f32")
        self.near(train(*words, device="auto")[0], train(*words, device="cpu")[0])

    def test_adapters(self):
        self.like_cpu("--lora", "4")

    def test_experts(self):
        self.like_cpu("--router-aux-loss", "0.05", model=self.model("qwen3_moe"))

    def test_batches(self):
        self.like_cpu("--no-pack", "--micro-batch", "3", "--grad-accum", "2", "--clip", "0.5",
                      "--schedule", "cosine", "--warmup-steps", "2")

    def test_preferences(self):
        """Rows of one micro-batch have different weights."""
        data = self.folder / "pairs.jsonl"
        data.write_text("".join(json.dumps({
            "prompt": f"which {i}", "chosen": f"it is {i}", "rejected": "it is " + "not " * (i % 3)
        }) + "\n" for i in range(8)))
        self.like_cpu("--loss", "dpo", "--beta", "0.5", "--micro-batch", "4", data=str(data))
        self.like_cpu("--loss", "orpo", "--beta", "0.5", "--micro-batch", "2", data=str(data))

    def test_terms_and_noise(self):
        self.like_cpu("--label-smoothing", "0.1", "--z-loss", "1e-3", "--neftune-alpha", "5")

    def test_averages_of_the_optimizer(self):
        """Evaluations read them."""
        self.like_cpu("--optimizer", "schedule-free", "--test-split", "0.3", "--eval-every", "1")
        self.like_cpu("--optimizer", "schedule-free", "--test-split", "0.3", dtype="bf16")

    def test_vectors(self):
        """The gradient of a step is a matrix."""
        data = self.folder / "texts.jsonl"
        data.write_text("".join(json.dumps({
            "anchor": f"which {i}", "positive": f"it is {i}", "negative": "it is" + " not" * i,
            "prompt": f"which {i}", "chosen": f"it is {i}", "rejected": "it is" + " not" * (i % 3)
        }) + "\n" for i in range(8)))
        self.like_cpu("--loss", "reward", "--micro-batch", "4", data=str(data))
        self.like_cpu("--loss", "reward", "--lora", "4", "--micro-batch", "4", data=str(data))
        self.like_cpu("--loss", "contrastive", "--pooling", "mean", "--micro-batch", "2",
                      "--grad-accum", "2", data=str(data))

    def test_evaluation(self):
        self.like_cpu("--test-split", "0.3", "--eval-every", "2")

    def test_rewards(self):
        """The device generates the completions, too."""
        words = self.rewarded("--micro-batch", "4")
        want = train(*words, device="cpu")[0]
        self.assertGreater(steps(want)[1]["reward_std"], 0)
        self.near_rewards(train(*words)[0], want)
        layout = self.rewarded("--local", "2", "--micro-batch", "2", "--zero", "3", "--overlap",
                               "on")
        self.near_rewards(train(*layout)[0], want)


class ManyCurves(Training):
    def test_dtypes_and_families(self):
        self.like_cpu("--micro-batch", "2", dtype="f16")
        self.like_cpu("--lora", "4", dtype="bf16")
        self.like_cpu("--recompute", "full", model=self.model("qwen2"))
        self.like_cpu("--router-aux-loss", "0.05", model=self.model("mixtral"))
        self.like_cpu("--router-aux-loss", "0.05", model=self.model("qwen3_moe"), dtype="bf16")

    def test_rewards_on_layouts_and_families(self):
        model = self.model("llama", 4)
        want = train(*self.rewarded("--micro-batch", "4", model=model), device="cpu")[0]
        for layout in (("--tp", "2", "--micro-batch", "4"),
                       ("--local", "2", "--zero", "1", "--micro-batch", "2"),
                       ("--pp", "2", "--virtual-stages", "2", "--micro-batch", "2", "--grad-accum",
                        "2")):
            with self.subTest(layout=layout):
                self.near_rewards(train(*self.rewarded(*layout, model=model))[0], want)
        for family in ("qwen2", "qwen3_moe", "mixtral"):
            with self.subTest(family=family):
                words = self.rewarded("--micro-batch", "4", model=self.model(family))
                self.near_rewards(train(*words)[0], train(*words, device="cpu")[0])

    def test_rewards_in_narrow_types(self):
        for dtype in NARROW:
            for more in ((), ("--lora", "4")):
                lines = steps(train(*self.rewarded("--micro-batch", "4", *more, dtype=dtype))[0])
                self.assertTrue(all(line["reward_std"] > 0 for line in lines.values()), lines)

    def test_quantized(self):
        for kind in ("Q4_1", "Q8_0", "Q4_K_M"):
            path = str(self.folder / f"{kind}.gguf")
            subprocess.run([PROGRAM, "quantize", MODEL, path, kind], check=True,
                           capture_output=True, timeout=PATIENCE)
            self.like_cpu("--lora", "4", model=path)
        # (Small updates: a second one of 1e-3 multiplies the norm by six, and its roundings.)
        self.like_cpu("--lora", "4", "--warmup-steps", "10", model=path, dtype="bf16")

    def test_optimizers(self):
        for words in (("sgd", "--momentum", "0.9", "--nesterov"), ("adafactor",
                      "--scale-parameter"), ("adam8bit",), ("adam",), ("lion",)):
            self.like_cpu("--optimizer", *words)


class Layouts(Training):
    BATCH = ("--no-pack", "--dtype", "f32")
    DAILY = (("--local", "2", "--zero", "3", "--micro-batch", "2", "--overlap", "on"),)
    NIGHTLY = (("--tp", "2", "--micro-batch", "4"),
               ("--pp", "2", "--micro-batch", "2", "--grad-accum", "2"),
               ("--pp", "2", "--virtual-stages", "2", "--micro-batch", "2", "--grad-accum", "2"),
               ("--local", "2", "--zero", "1", "--micro-batch", "2"),
               ("--local", "2", "--zero", "2", "--micro-batch", "1", "--grad-accum", "2",
                "--overlap", "on"),
               ("--tp", "2", "--local", "4", "--micro-batch", "2"),
               ("--local", "4", "--pp", "2", "--zero", "2", "--micro-batch", "1",
                "--grad-accum", "2"))

    def check(self, layouts):
        model = self.model("llama", 4)
        want = train(*self.quiet(*self.BATCH, "--micro-batch", "4", model=model))[0]
        for layout in layouts:
            with self.subTest(layout=layout):
                got = train(*self.quiet(*self.BATCH, *layout, model=model))[0]
                self.near(got, want, 2e-5)

    def test_some(self):
        self.check(self.DAILY)

    def test_others(self):
        self.check(self.NIGHTLY)


class Files(Training):
    def output(self, name):
        return "--output-dir", str(self.folder / name)

    def test_the_same_run_twice_writes_the_same_bytes(self):
        for name in ("once", "twice"):
            train(*self.words(*self.output(name), "--dtype", "bf16", "--micro-batch", "2"))
        once, twice = (hashlib.sha256((self.folder / name / "model.gguf").read_bytes()).digest()
                       for name in ("once", "twice"))
        self.assertEqual(once, twice)
        subprocess.run([PROGRAM, "run", str(self.folder / "once/model.gguf"), "-p", "1", "-n", "2",
                        "--device", DEVICE], check=True, capture_output=True, timeout=PATIENCE)

    def test_a_checkpoint_goes_from_device_to_device(self):
        whole = train(*self.quiet("--dtype", "f32", steps=6), device="cpu")[0]
        where = self.words(*self.output("moves"), "--dtype", "f32", "--save-every", "2",
                           "--keep-last", "1", "--schedule-steps", "6")
        seen = {}
        for end, device in ((2, "cpu"), (4, DEVICE), (6, "cpu")):
            words = list(where)
            words[words.index("--steps") + 1] = str(end)
            seen.update(steps(train(*words, "--resume", "auto", device=device)[0]))
        self.near(list(seen.values()), whole, 2e-5)
        self.assertEqual(len(os.listdir(self.folder / "moves/checkpoints")), 1)

    def test_samples_logs_and_formats(self):
        lines, _ = train(*self.words(*self.output("hf"), "--save-format", "hf", "--sample",
                                     "which a", "--sample-every", "2", "--sample-tokens", "4"))
        self.assertEqual(sum("sample" in line for line in lines), 2)
        written = os.listdir(self.folder / "hf")
        self.assertTrue(any("tfevents" in name for name in written), written)
        self.assertIn("log.csv", written)
        self.assertTrue((self.folder / "hf/model/config.json").exists())

    def test_a_time_limit(self):
        words = self.words(*self.output("limit"), "--time-limit", "8s", steps=100000)
        self.assertFalse(train(*words, status=75)[0][-1]["done"])

    def test_a_deepspeed_file(self):
        path = self.folder / "ds.json"
        path.write_text(json.dumps({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True},
                                    "zero_optimization": {"stage": 2},
                                    "gradient_accumulation_steps": 2}))
        lines, _ = train(*self.quiet("--ds-config", str(path), "--local", "2"))
        self.assertTrue(lines[-1]["done"])

    def killed(self, name, *more):
        """Returns the messages of a run in which rank 1 is killed after the fourth update."""
        words = command(*self.words(*self.output(name), "--dtype", "f32", "--save-every", "2",
                                    "--local", "2", "--zero", "1", *more, steps=8), device=DEVICE)
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as job:
            lines = []
            for text in job.stdout:
                lines.append(json.loads(text))
                if lines[-1].get("step") == 4 and not lines[-1].get("killed"):
                    os.kill(children(job.pid)[0], signal.SIGKILL)
                    break
            out, err = job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, 0, err)
        return lines + [json.loads(line) for line in out.splitlines()], err

    def test_a_killed_rank_is_started_again(self):
        want = train(*self.quiet("--dtype", "f32", "--local", "2", "--zero", "1", steps=8))[0]
        lines, err = self.killed("killed")
        self.assertEqual(lines[-1]["restarts"], 1, err)
        self.near(lines, want, 0, 0)  # the same bits

    def test_others_go_on_without_a_killed_rank(self):
        want = train(*self.quiet("--dtype", "f32", "--local", "2", "--zero", "1", steps=8))[0]
        lines, err = self.killed("elastic", "--elastic", "--restart-timeout-ms", "1000")
        self.assertTrue(lines[-1]["done"], err)
        self.near(lines, want, 2e-5)


class Failures(Training):
    def test_a_model_that_does_not_fit(self):
        card = self.cards("discrete vram=28")
        words = self.quiet("--micro-batch", "1", "--device", "vulkan:0", model=MODEL)
        _, said = self.refused(words, card)
        self.assertRegex(said, r"does not fit into vulkan:0 of .* MiB are free\. It fits with")
        fits = re.search(r"It fits with ([^,.]*)", said).group(1).split()
        lines, _ = train(*words[:-2], *fits, device="vulkan:0", env=card)
        self.assertTrue(lines[-1]["done"])

    def refused(self, words, env):
        done = subprocess.run([PROGRAM, "train", *words], capture_output=True, text=True,
                              timeout=PATIENCE, env={**os.environ, **env})
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stdout, done.stderr

    def test_memory_of_a_card_is_written_before_it_is_read(self):
        """(All memory of a simulated card is NaN at first, and the host can map none of it.)"""
        words = self.quiet("--dtype", "f32", "--micro-batch", "2")
        self.near(train(*words, device="vulkan:0", env=self.cards("discrete"))[0],
                  train(*words, device="cpu")[0])

    def test_a_run_that_diverges_names_the_op(self):
        words = self.quiet("--dtype", "f32", "--lr", "1e20")
        words = words[:words.index("--lr")] + words[words.index("--lr") + 2:]  # the first one
        said = [train(*words, device=device, status=1)[1] for device in (DEVICE, "cpu")]
        for text in said:
            self.assertRegex(text, r"step 2: .*on rank 0, op \d+ \(\w+\) \S+ wrote the first value")
        self.assertEqual(*(re.search(r"op \d+ \((\w+)\)", text).group(1) for text in said))

    def test_a_progress_line_has_no_share_of_an_unknown_peak(self):
        words = [word for word in command(*self.quiet(steps=1), device=DEVICE) if word != "--json"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("GFLOP/s  ", done.stderr)
        self.assertNotIn("% of the peak", done.stderr)


class Drivers(Training):
    def test_a_driver_that_fails(self):
        """Fails calls of either rank in turn: the right losses, or one error in time."""
        words = self.quiet("--dtype", "f32", "--timeout-ms", "5000", steps=2)
        for layout in (("--tp", "2"), ("--local", "2", "--zero", "3")):
            counted = self.cards("discrete; discrete")
            calls = tempfile.mkdtemp(dir=self.folder)
            want, _ = train(*words, *layout, device="vulkan",
                            env={**counted, "WEFT_TEST_CALLS": calls})
            for path in sorted(pathlib.Path(calls).iterdir()):
                card, count = int(path.name[0]), int(path.read_text())
                self.assertGreater(count, 60)
                for at in range(0, count, count // 8):
                    gpus = ["discrete", "discrete"]
                    gpus[card] += f" fails={at} with={(-4, -2, -13)[at % 3]}"
                    with self.subTest(layout=layout, card=card, at=at):
                        self.check_failure(self.cards("; ".join(gpus)), (*words, *layout), want)

    def check_failure(self, env, words, want):
        done = subprocess.run(command(*words, device="vulkan"), capture_output=True, text=True,
                              timeout=PATIENCE, env=env)
        if done.returncode == 0:
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            self.near(lines, want, 0, 0)
            return
        self.assertIn(done.returncode, (1, 3), done.stderr)
        self.assertEqual(done.stderr.count("error: "), 1, done.stderr)
        self.assertRegex(done.stderr, r"device is lost|VK_ERROR_\w+|memory for|lost its device")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    CACHE = pathlib.Path(sys.argv.pop(1)).resolve()
    OTHER_GPUS = os.path.abspath(sys.argv.pop(1))
    (CACHE / "mesa").mkdir(parents=True, exist_ok=True)
    keep_kernels(CACHE / "mesa")
    os.environ["XDG_CACHE_HOME"] = str(CACHE)
    validate()
    DEVICE, why_not = usable(PROGRAM)
    if DEVICE is None:
        print(f"skipped: no Vulkan device to test with: {why_not}", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main()
