#!/usr/bin/env python3
"""weft train --loss grpo as users run it: the reward rises; every layout, a resumed job and a job
that loses a rank have one curve; reward models give transformers' scores; faults of rewards;
refusals.

    tests/train/grpo_test.py build/weft [UNITTEST ARGUMENT...]

tools/make_reward_golden.py makes the scores of tests/data/reward_scores.json.
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from nightly import nightly, some
from processes import listening_port, steps_with_a_kill
from wait import until

MODEL = str(ROOT / "models/abacus")  # random weights
GOLDEN = json.loads((ROOT / "tests/data/reward_scores.json").read_text())
PATIENCE = 600
# The share of digits in a completion.
JUDGE = """
import json, sys
for line in sys.stdin:
    record = json.loads(line)
    text = record["completion"][0]["content"]
    assert record["prompt"][0]["role"] == "user" and record["note"] == "kept"
    digits = sum(x in "0123456789" for x in text)
    print(json.dumps({"reward": digits / max(1, len(text))}), flush=True)
"""
# Sums of float32 in another order, through four updates.
TOLERANCE = 1e-5


class Rewards(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        records = [dict(prompt=[dict(role="user", content=f"What is {a} + {a + 3}?")], note="kept")
                   for a in range(10, 42)]
        self.data = str(self.folder / "prompts.jsonl")
        pathlib.Path(self.data).write_text("".join(json.dumps(r) + "\n" for r in records))
        (self.folder / "judge.py").write_text(JUDGE)
        self.judge = f"{sys.executable} {self.folder}/judge.py"

    def words(self, *more):
        words = ["train", MODEL, "--from-scratch", "--data", self.data, "--loss", "grpo",
                 "--seq-len", "96", "--json", "--dtype", "f32", "--eps", "1e-4", *more]
        for name, value in (("--group", "4"), ("--max-completion-length", "24"), ("-t", "1"),
                            ("--lr", "3e-3")):
            if name not in more:
                words += [name, value]
        if not any(word.startswith("--reward") for word in more):
            words += ["--reward-cmd", self.judge]
        return words if "--output-dir" in words else [*words, "--no-output"]

    def run_weft(self, words, status=0):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    @staticmethod
    def lines(text):
        lines = [json.loads(line) for line in text.splitlines()]
        return [line for line in lines if "loss" in line]

    def steps(self, *more):
        return self.lines(self.run_weft(self.words(*more)).stdout)

    def expect_equal(self, lines, wanted):
        self.assertEqual(len(lines), len(wanted))
        for line, other in zip(lines, wanted):
            names = [name for name in line if name.startswith("rewards/")]
            for name in ("loss", "grad_norm", "reward", "entropy", "completions/mean_length",
                         *names):
                error = abs(line[name] - other[name]) / max(1, abs(other[name]))
                self.assertTrue(error <= TOLERANCE, f"{name} of step {line['step']}: {line[name]}, "
                                f"not {other[name]}")


class Curves(Rewards):
    def test_the_reward_rises(self):
        lines = self.steps("--micro-batch", "16", "--steps", "24")
        first = sum(line["reward"] for line in lines[:4]) / 4
        last = sum(line["reward"] for line in lines[-4:]) / 4
        self.assertGreater(last, first + 0.2)
        self.assertEqual(lines[0]["reward"], lines[0]["rewards/cmd/mean"])
        self.assertGreater(lines[0]["reward_std"], 0)

    def test_one_curve_on_any_ranks(self):
        words = ("--steps", "4")
        wanted = self.steps(*words, "--micro-batch", "8")
        layouts = (
            ("--micro-batch", "2", "--grad-accum", "4", "--max-num-seqs", "3"),
            ("--micro-batch", "8", "-t", "2"),
            ("--local", "2", "--micro-batch", "4"),
            ("--local", "2", "--micro-batch", "8", "--tp", "2"),
            ("--local", "2", "--micro-batch", "2", "--grad-accum", "4", "--pp", "2"),
            ("--local", "2", "--micro-batch", "1", "--grad-accum", "4", "--zero", "2"),
            ("--local", "2", "--micro-batch", "2", "--grad-accum", "4", "--pp", "2",
             "--virtual-stages", "2"),
            ("--local", "4", "--micro-batch", "2", "--grad-accum", "2", "--tp", "2", "--zero", "1"),
            ("--local", "2", "--micro-batch", "2", "--grad-accum", "2", "--zero", "3"),
            ("--local", "4", "--micro-batch", "2", "--grad-accum", "2", "--pp", "2", "--zero", "3"),
            ("--local", "4", "--micro-batch", "4", "--tp", "2", "--zero", "3", "--overlap", "on"),
        )
        for layout in some(layouts, 4):
            with self.subTest(layout=layout):
                self.expect_equal(self.steps(*words, *layout), wanted)

    def test_seeds(self):
        first, again, other = (self.steps("--micro-batch", "8", "--steps", "2", "--seed", seed)
                               for seed in ("7", "7", "8"))
        told = [[(line["loss"], line["reward"], line["entropy"]) for line in lines]
                for lines in (first, again, other)]
        self.assertEqual(told[0], told[1])
        self.assertNotEqual(told[0], told[2])

    def test_a_resumed_job_has_the_same_bits(self):
        out = str(self.folder / "out")
        words = ("--micro-batch", "8", "--num-iterations", "2", "--save-every", "4")
        wanted = self.steps(*words, "--steps", "8", "--output-dir", str(self.folder / "whole"))
        self.steps(*words, "--steps", "4", "--output-dir", out)
        rest = self.steps(*words, "--steps", "8", "--output-dir", out, "--resume", "auto")
        for line, other in zip(rest, wanted[4:]):
            self.assertEqual([line[name] for name in ("step", "loss", "grad_norm", "reward")],
                             [other[name] for name in ("step", "loss", "grad_norm", "reward")])
        # (The second update on the same completions has another policy.)
        self.assertEqual(wanted[0]["reward"], wanted[1]["reward"])
        self.assertNotEqual(wanted[0]["loss"], wanted[1]["loss"])

    def test_a_time_limit_counts_all_updates_with_the_same_completions(self):
        limit_s, updates = 2, 20
        words = self.words("--micro-batch", "2", "--group", "2",
                           "--max-completion-length", "4", "--num-iterations", str(updates),
                           "--steps", "100000", "--reward-regex", "a", "--time-limit",
                           f"{limit_s}s", "--output-dir", str(self.folder / "out"))
        begin = time.monotonic()
        lines = self.lines(self.run_weft(words, status=75).stdout)
        took_s = time.monotonic() - begin
        self.assertEqual(len(lines) % updates, 0)
        if nightly() and len(lines) > updates:  # (a machine may be too slow for two rounds)
            self.assertLess(took_s, limit_s)

    def test_a_lost_rank(self):
        wanted = self.steps("--micro-batch", "8", "--steps", "6")
        words = self.words("--steps", "6", "--local", "2", "--micro-batch", "4", "--save-every",
                           "2", "--output-dir", str(self.folder / "out"))
        lines, restarts, status, said = steps_with_a_kill(
            [PROGRAM, *words], PATIENCE,
            victim=lambda pids: [pid for pid in pids if "judge" not in words_of(pid)][0])
        self.assertEqual((status, restarts), (0, 1), said)
        self.expect_equal(lines, wanted)

    def test_adapters(self):
        out = self.folder / "adapter"
        words = self.words("--micro-batch", "16", "--steps", "24", "--lora", "8", "--lr", "1e-2",
                           "--temperature", "3", "--reward-regex", "7", "--output-dir", str(out))
        words[1:3] = [MODEL + "/model.gguf"]
        lines = self.lines(self.run_weft(words).stdout)
        first, last = ([line["reward"] for line in part] for part in (lines[:4], lines[-4:]))
        self.assertGreater(sum(last), sum(first))
        self.assertTrue((out / "adapter_model.safetensors").exists())
        head = (out / "log.csv").read_text().splitlines()[0].split(",")
        for name in ("reward", "reward_std", "completions/clipped_ratio", "clip_ratio/low_mean"):
            self.assertIn(name, head)


    def test_an_adapter_that_continues_is_part_of_the_reference(self):
        """TRL copies it (GRPOTrainer: the adapter "ref"), so the first update has no divergence."""
        adapter, out = (str(self.folder / name) for name in ("adapter", "out"))

        def adapted(*more):
            length = "while read x; do echo ${#x}; done"
            words = self.words("--reward-cmd", length, "--temperature", "3", *more)
            words[1:3] = [MODEL + "/model.gguf"]
            first = words.index("--dtype")
            del words[first:first + 2 * ("--dtype" in more)]
            return self.lines(self.run_weft(words).stdout)

        adapted("--micro-batch", "8", "--steps", "3", "--lr", "1e-2", "--lora", "4",
                "--output-dir", adapter)
        words = ("--lora-from", adapter, "--beta", "0.5")
        wanted = adapted(*words, "--micro-batch", "8", "--steps", "3")
        self.assertEqual(wanted[0]["kl"], 0)
        self.assertGreater(wanted[2]["kl"], 1e-5)
        layouts = (("--local", "2", "--micro-batch", "4", "--zero", "3"),
                   ("--local", "2", "--micro-batch", "8", "--tp", "2"),
                   ("--local", "2", "--micro-batch", "4", "--grad-accum", "2", "--pp", "2"))
        for layout in some(layouts, 1):
            with self.subTest(layout=layout):
                lines = adapted(*words, *layout, "--steps", "3")
                self.expect_equal(lines, wanted)
                self.assertTrue(abs(lines[2]["kl"] - wanted[2]["kl"]) <= TOLERANCE)
        narrow = adapted(*words, "--micro-batch", "8", "--steps", "1", "--dtype", "bf16")
        self.assertEqual(narrow[0]["kl"], 0)
        save = ("--micro-batch", "8", "--output-dir", out, "--save-every", "2")
        begun = adapted(*words, *save, "--steps", "2")
        rest = adapted(*words, *save, "--steps", "3", "--resume", "auto")
        self.assertEqual([(line["loss"], line["kl"]) for line in begun + rest],
                         [(line["loss"], line["kl"]) for line in wanted])


class Models(Rewards):
    """Rewards by reward models."""

    def judge_of(self, name, *words):
        """A folder with the model and a score head."""
        pairs = self.folder / f"{name}.jsonl"
        pairs.write_text("".join(json.dumps(dict(prompt=f"What is {a}?", chosen=f"{a}",
                                                 rejected=f"{a + 1}.")) + "\n" for a in range(8)))
        self.run_weft(["train", MODEL + "/model.gguf", "--data", str(pairs), "--loss", "reward",
                       "--seq-len", "64", "--dtype", "f32", "--micro-batch", "4", "--output-dir",
                       str(self.folder / name), "--save-type", "F32", *words])
        return str(self.folder / name)

    def judged(self, *more, prompts=None):
        """The first line of a job, and what its --reward-cmd read."""
        seen = self.folder / "seen.jsonl"
        path = self.folder / "told.py"
        path.write_text(f"import sys\nfor line in sys.stdin:\n    with open({str(seen)!r}, 'a') as "
                        "file:\n        file.write(line)\n    print(0, flush=True)\n")
        words = self.words("--reward-cmd", f"{sys.executable} {path}", "--steps", "1", *more)
        words[1:3] = [MODEL + "/model.gguf"]
        if prompts is not None:
            data = self.folder / "some.jsonl"
            data.write_text("".join(json.dumps(dict(prompt=prompt)) + "\n" for prompt in prompts))
            words[words.index("--data") + 1] = str(data)
        line = self.lines(self.run_weft(words).stdout)[0]
        return line, [json.loads(text) for text in seen.read_text().splitlines()]

    def test_scores_of_transformers(self):
        """(The head reads the last token that is not config.json's padding.)"""
        judge = self.judge_of("judge", "--steps", "1", "--lr", "0", "--save-format", "hf")
        self.expect_scores(judge + "/model", "reward")
        config = pathlib.Path(judge) / "model/config.json"
        config.write_text(json.dumps(dict(json.loads(config.read_text()), pad_token_id=1)))
        self.expect_scores(judge + "/model", "other_padding")

    def expect_scores(self, judge, name):
        for kind in (str, list):
            with self.subTest(kind=kind, name=name):
                wanted = [r for r in GOLDEN["records"] if isinstance(r["prompt"], kind)]
                (self.folder / "seen.jsonl").unlink(missing_ok=True)
                line, seen = self.judged("--reward-model", judge, "--temperature", "0.001",
                                         "--micro-batch", "32", "--max-completion-length", "16",
                                         prompts=[record["prompt"] for record in wanted])
                told = {json.dumps(r["prompt"]): r["completion"] for r in seen}
                self.assertEqual(len(told), len(wanted))
                for record in wanted:
                    made = told[json.dumps(record["prompt"])]
                    made = made if kind is str else made[0]["content"]
                    self.assertEqual(made, record["completion"])
                mean = sum(record[name] for record in wanted) / len(wanted)
                self.assertTrue(abs(line["rewards/model/mean"] - mean) <= 1e-4, (line, mean))

    def score(self, model, pairs):
        """The scores of texts by a server of this model."""
        words = ["serve", model, "--host", "127.0.0.1", "--port", "0", "-t", "1", "--ctx", "256",
                 "--kv-dtype", "f32"]
        server = subprocess.Popen([PROGRAM, *words], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        try:
            port = until(lambda: listening_port(server.pid), "the server's port")
            until(lambda: is_ready(port), "the model")
            return [ask(port, prompt, text) for prompt, text in pairs]
        finally:
            server.terminate()
            server.wait(PATIENCE)

    def test_scores_of_the_server(self):
        """(A file; its head is trained.)"""
        judge = self.judge_of("judge", "--steps", "4", "--lr", "1e-3") + "/model.gguf"
        line, seen = self.judged("--reward-model", judge, "--micro-batch", "8", "--temperature",
                                 "2", "--reward-weights", "0.5,2",
                                 prompts=["What is 2 + 5?", "12 + 9 ="])
        scores = self.score(judge, [(each["prompt"], each["completion"]) for each in seen])
        mean = sum(scores) / len(scores)
        self.assertTrue(abs(line["rewards/model/mean"] - mean) <= 1e-4, (line, scores))
        self.assertTrue(abs(line["reward"] - 2 * mean) <= 2e-4, (line, scores))
        self.assertGreater(line["reward_std"], 0)

    def test_one_curve_on_any_ranks(self):
        judge = self.judge_of("judge", "--steps", "1", "--lr", "0", "--save-format", "hf")
        words = ("--steps", "3", "--reward-model", judge + "/model", "--reward-regex", "7")
        wanted = self.steps(*words, "--micro-batch", "8")
        layouts = (
            ("--local", "2", "--micro-batch", "4", "--zero", "3"),
            ("--local", "2", "--micro-batch", "8", "--tp", "2"),
            ("--local", "2", "--micro-batch", "2", "--grad-accum", "4", "--pp", "2",
             "--virtual-stages", "2"),
            ("--local", "3", "--micro-batch", "8", "--tp", "3"),
            ("--local", "4", "--micro-batch", "2", "--grad-accum", "2", "--tp", "2", "--zero", "1"),
        )
        for layout in some(layouts, 2):
            with self.subTest(layout=layout):
                self.expect_equal(self.steps(*words, *layout), wanted)

    def test_a_resumed_job_and_a_lost_rank(self):
        judge = self.judge_of("judge", "--steps", "1", "--lr", "0", "--save-format", "hf")
        words = ("--micro-batch", "8", "--save-every", "2", "--reward-model", judge + "/model")
        wanted = self.steps(*words, "--steps", "4", "--output-dir", str(self.folder / "whole"))
        out = ("--output-dir", str(self.folder / "out"))
        self.steps(*words, "--steps", "2", *out)
        rest = self.steps(*words, "--steps", "4", *out, "--resume", "auto")
        for line, other in zip(rest, wanted[2:], strict=True):
            self.assertEqual([line[name] for name in ("step", "loss", "grad_norm", "reward")],
                             [other[name] for name in ("step", "loss", "grad_norm", "reward")])
        words = self.words("--steps", "4", "--local", "2", "--micro-batch", "4", "--save-every",
                           "2", "--zero", "3", "--output-dir", str(self.folder / "killed"),
                           "--reward-model", judge + "/model")
        lines, restarts, status, said = steps_with_a_kill([PROGRAM, *words], PATIENCE)
        self.assertEqual((status, restarts), (0, 1), said)
        self.expect_equal(lines, wanted)

    def test_texts_that_are_too_long(self):
        """They get no reward from the model, but all other rewards."""
        judge = self.judge_of("judge", "--steps", "1", "--lr", "0", "--save-format", "hf")
        config = pathlib.Path(judge) / "model/config.json"
        known = json.loads(config.read_text())
        config.write_text(json.dumps(dict(known, max_position_embeddings=16)))
        done = self.run_weft(self.words("--steps", "1", "--micro-batch", "8", "--reward-model",
                                        judge + "/model", "--reward-regex", "."))
        self.assertIn("it reads at most 16. Use a model with a longer context. Such completions "
                      "get no reward", done.stderr)
        self.assertEqual(done.stderr.count("Such completions"), 1)
        line = self.lines(done.stdout)[0]
        self.assertEqual(line["reward"], line["rewards/regex/mean"])

    def test_refusals(self):
        folder = self.folder / "classes"
        classes = self.folder / "classes.jsonl"
        classes.write_text("".join(json.dumps(dict(text=str(i), label=i % 3)) + "\n"
                                   for i in range(8)))
        self.run_weft(["train", MODEL + "/model.gguf", "--data", str(classes), "--loss",
                       "classification", "--num-labels", "3", "--steps", "1", "--seq-len", "64",
                       "--output-dir", str(folder)])
        for model, part in ((str(folder / "model.gguf"), "its score head has 3 outputs"),
                            (MODEL + "/model.gguf", "it has no score head"),
                            (str(self.folder / "nothing"), "nothing"),
                            (self.data, "--reward-model")):
            for ranks in ("1", "2"):
                with self.subTest(model=model, ranks=ranks):
                    words = self.words("--steps", "1", "--micro-batch", "8", "--local", ranks,
                                       "--tp", ranks, "--reward-model", model)
                    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True,
                                          timeout=PATIENCE)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn("--reward-model " + model, done.stderr)
                    self.assertIn(part, done.stderr)
        done = self.run_weft(["train", MODEL + "/model.gguf", "--data", self.data, "--no-output",
                              "--reward-model", MODEL], status=2)
        self.assertIn("--reward-model with --loss sft", done.stderr)

    def test_memory_is_counted(self):
        judge = self.judge_of("judge", "--steps", "1", "--lr", "0")
        needs = []
        for more in ((), ("--reward-model", judge + "/model.gguf")):
            words = self.words("--steps", "1", "--micro-batch", "8", "--reward-regex", "a", *more)
            done = subprocess.run([PROGRAM, *words], capture_output=True, text=True,
                                  timeout=PATIENCE, env=dict(os.environ, WEFT_MEMORY_MIB="90"))
            self.assertEqual(done.returncode, 1, done.stderr)
            needs.append(int(re.search(r"rank 0: (\d+) MiB .*reward models", done.stderr).group(1)))
        # 1.9 million weights in float32, and activations.
        self.assertTrue(7 <= needs[1] - needs[0] <= 30, needs)

    def test_plans_count_them(self):
        words = ["plan", "llama-3.1-8b", "--train", "--machines", "8xh100", "--dp", "4", "--tp",
                 "2", "--seq-len", "4096", "--micro-batch", "2", "--global-batch", "16",
                 "--recompute", "full", "--completions", "16", "--json"]

        def layout(*more):
            return json.loads(self.run_weft([*words, *more]).stdout)["layouts"][0]
        without, judged = (layout("--zero", "0", *more)
                           for more in ((), ("--reward-model", "llama-3.2-1b")))
        self.assertEqual(without["layout"], judged["layout"])
        # 1.24 billion weights in BF16, over tensor ranks and stages, and activations of texts of
        # 8,192 tokens: a few rows of 2,048 and of 8,192 columns, by tensor ranks.
        more = judged["worst_rank_bytes"] - without["worst_rank_bytes"]
        ranks = judged["tp"] * judged["pp"]
        work = more - 2 * 1.2358e9 / ranks
        hidden, wide = 8192 * 2048 * 4, 8192 * 8192 / judged["tp"] * 4
        self.assertTrue(hidden <= work <= 8 * hidden + 4 * wide, (more, ranks))

    def test_plans_count_the_copy_of_zero_3(self):
        words = ["plan", "llama-3.1-8b", "--train", "--machines", "8xh100", "--dp", "4", "--tp",
                 "2", "--pp", "8", "--seq-len", "4096", "--micro-batch", "2", "--global-batch",
                 "16", "--recompute", "full", "--zero", "3", "--json"]
        bytes_of = [json.loads(self.run_weft([*words, *more]).stdout)["layouts"][0]
                    ["worst_rank_bytes"] for more in ((), ("--completions", "1"))]
        # 8.03 billion weights in BF16, over 16 ranks; a stage at an end has more than its share.
        more = bytes_of[1] - bytes_of[0]
        self.assertTrue(0.9e9 <= more <= 1.6e9, more)


def ask(port, prompt, text):
    body = {"text_1": prompt, "text_2": text, "use_activation": False}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/score",
                                     json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read())["data"][0]["score"]


def is_ready(port):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=PATIENCE).close()
    except urllib.error.HTTPError:
        return False
    return True


class Faults(Rewards):
    def test_rewards(self):
        for command, part in (
                ("exit 7", "--reward-cmd 'exit 7' ended with status 7 after 0 of 8 answers, for "
                           "the second time"),
                ("while read x; do echo often; done", "answer 1 is 'often'; expected a finite"),
                ("while read x; do echo 1e308; done", "answer 1 is '1e308'; expected a finite"),
                ("cat > /dev/null", "0 of 8 answers within 2 s")):
            for ranks in (1, 2):
                with self.subTest(command=command, ranks=ranks):
                    done = self.run_weft(self.words(
                        "--steps", "2", "--local", str(ranks), "--micro-batch", str(8 // ranks),
                        "--reward-cmd", command, "--reward-timeout", "2"), status=1)
                    self.assertIn(part, done.stderr)

    def test_a_judge_that_fails_loses_no_update(self):
        """The updates before it are in a checkpoint, from which the job continues."""
        broken = self.folder / "broken"
        (self.folder / "fails.py").write_text(FAILS)
        command = f"{sys.executable} {self.folder}/fails.py {broken} "
        words = ("--steps", "5", "--output-dir", str(self.folder / "out"), "--reward-timeout", "5")
        for turn, (how, part) in enumerate((("end", "for the second time"),
                                            ("say", "answer 1 is 'a number'"),
                                            ("hang", "0 of 8 answers within 5 s"))):
            # (With --save-every, ranks that were lost would be restarted.)
            layout = (("--local", "2", "--micro-batch", "4", "--save-every", "4"),
                      ("--micro-batch", "8"))[turn % 2]
            with self.subTest(how=how):
                broken.write_text("")
                (self.folder / "broken.judged").unlink(missing_ok=True)
                begun = self.words(*words, *layout, "--overwrite", "--reward-cmd", command + how)
                done = self.run_weft(begun, status=1)
                self.assertIn(part, done.stderr)
                self.assertIn("step-00000002 has all updates before it: --resume auto goes on",
                              done.stderr)
                broken.unlink()
                begun.remove("--overwrite")
                rest = self.lines(self.run_weft([*begun, "--resume", "auto"]).stdout)
                self.assertEqual([line["step"] for line in rest], [3, 4, 5])

    def test_completions_without_a_reward_are_told(self):
        (self.folder / "fails.py").write_text(FAILS)
        command = f"{sys.executable} {self.folder}/fails.py {self.folder}/no null"
        done = self.run_weft(self.words("--steps", "4", "--micro-batch", "8", "--reward-cmd",
                                        command))
        self.assertEqual(re.findall(r"(\d+ of 8) completions of an update got no reward",
                                    done.stderr), ["1 of 8", "8 of 8"])
        self.assertEqual([line["grad_norm"] > 0 for line in self.lines(done.stdout)],
                         [True, True, False, False])
        # Another judge's reward counts alone.
        done = self.run_weft(self.words("--steps", "4", "--micro-batch", "8", "--reward-cmd",
                                        command, "--reward-regex", "7"))
        self.assertNotIn("got no reward", done.stderr)

    def test_rewards_beyond_float32(self):
        for weights, status in (("1", 0), ("2", 1)):
            done = self.run_weft(self.words(
                "--steps", "1", "--micro-batch", "8", "--reward-cmd",
                "while read x; do echo 3e38; done", "--reward-weights", weights), status=status)
            self.assertEqual("Use smaller --reward-weights" in done.stderr, status == 1)

    def test_a_long_prompt_is_told_with_options_that_grpo_takes(self):
        with open(self.data, "a", encoding="utf-8") as data:
            data.write(json.dumps({"prompt": "a long prompt " * 40}) + "\n")
        done = self.run_weft(self.words("--reward-regex", "a", "--epochs", "1",
                                        "--micro-batch", "8"))
        self.assertIn("keeps it, --long skip leaves them out", done.stderr)
        self.assertNotIn("--long split", done.stderr)

    def test_refusals(self):
        for words, part in (
                (("--group", "3", "--reward-regex", "a"), "expected a multiple of the group"),
                (("--group", "1", "--reward-regex", "a"), "--group 1: expected 2 to 4096"),
                (("--reward-weights", "1,2", "--reward-regex", "a"), "2 numbers for 1 rewards"),
                (("--reward-regex", "("), "--reward-regex '(': missing closing parenthesis"),
                (("--reward-json-schema", self.data), "--reward-json-schema"),
                (("--reward-timeout", "3"), "needs a reward: --reward-cmd CMD"),
                (("--reward-regex", "a", "--test-split", "0.5"), "--test-split with --loss grpo"),
                (("--reward-regex", "a", "--num-iterations", "2", "--steps", "3"),
                 "--num-iterations 2 with --save-every 0 and --steps 3"),
                (("--reward-regex", "a", "--max-completion-length", "96"), "has the prompt, too"),
                (("--reward-regex", "a", "--long", "split"), "needs the whole prompt"),
                (("--reward-regex", "a", "--top-p", "0"), "--top-p 0")):
            with self.subTest(words=words):
                done = self.run_weft(self.words("--micro-batch", "8", *words), status=2)
                self.assertIn(part, done.stderr)
        done = self.run_weft(["train", MODEL + "/model.gguf", "--data", self.data, "--no-output",
                              "--group", "4"],
                             status=2)
        self.assertIn("--group with --loss sft: the loss does not use it", done.stderr)


# Judges 16 completions. Then, if the file is there, it ends without an answer, hangs (it reads more
# lines than there are) or answers with words. With null, one completion of the second update has no
# reward, then none has one.
FAILS = """
import itertools, os, sys
path, how = sys.argv[1:]
number = itertools.count(16 if os.path.exists(path + ".judged") else 0)
for line in sys.stdin:
    i = next(number)
    if how != "null" and i >= 16 and os.path.exists(path):
        open(path + ".judged", "w").close()
        if how == "hang":
            sys.stdin.read()
        if how == "say":
            print("a number", flush=True)
        sys.exit(1)
    print("null" if how == "null" and (i == 8 or i >= 16) else i % 3, flush=True)
"""

# Changes or removes the job's inputs when the first completion comes: between the start of the job
# and its result.
SPOILER = """
import json, os, shutil, sys
how, *folders = sys.argv[1:]
sys.stdin.readline()
for file in folders if how == "overwrite" else ():
    with open(file, "r+b") as opened:
        opened.truncate(8)
for folder in folders if how in ("change", "remove") else ():
    for name in os.listdir(folder) if how == "change" else ():
        path = os.path.join(folder, name)
        text = "another file"
        if name.endswith("config.json"):
            with open(path) as file:
                config = json.load(file)
            other = {"rope_theta": 5e5} if "hidden_size" in config else {"lora_alpha": 64}
            text = json.dumps(config | other)
        with open(path, "w") as file:
            file.write(text)
    if how == "remove":
        shutil.rmtree(folder)
print(1, flush=True)
for line in sys.stdin:
    print(len(line) % 7, flush=True)
"""


class Inputs(Rewards):
    """The result has the job's inputs as they were at the start."""

    def result(self, how, *more):
        model, adapter, out = (self.folder / name for name in ("model", "adapter", "out"))
        for path, kept in ((model, "kept-model/model"), (adapter, "kept-adapter")):
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(self.folder / kept, path)
        words = self.words("--steps", "1", "--micro-batch", "4", "--output-dir", str(out),
                           "--overwrite", "--reward-cmd",
                           f"{sys.executable} {self.folder}/spoiler.py {how} {model} {adapter}")
        words[1:3] = [str(model), *more]
        self.run_weft(words)
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in [*out.iterdir(), *out.glob("model/*")] if path.is_file() and
                (path.name.startswith(("adapter", "model.")) or path.parent.name == "model")}

    def test_the_result_is_that_of_the_start(self):
        (self.folder / "spoiler.py").write_text(SPOILER)
        words = ("--steps", "1", "--micro-batch", "4")
        kept = str(self.folder / "kept-model")
        self.run_weft(self.words(*words, "--output-dir", kept, "--save-format", "hf"))
        begun = self.words(*words, "--output-dir", str(self.folder / "kept-adapter"),
                           "--lora", "2", "--lora-targets", "q_proj")
        begun[1:3] = [kept + "/model"]
        self.run_weft(begun)
        adapter = str(self.folder / "adapter")
        for more in (("--save-format", "hf"), ("--save-format", "gguf"), ("--lora-from", adapter)):
            wanted = self.result("leave", *more)
            self.assertGreaterEqual(len(wanted), 1 if "gguf" in more else 2)
            for how in ("change", "remove"):
                with self.subTest(more=more, how=how):
                    self.assertEqual(self.result(how, *more), wanted)

    def test_a_file_that_is_cut_ends_no_job(self):
        """An adapter: its result needs no more weights of the model."""
        (self.folder / "spoiler.py").write_text(SPOILER)
        model = self.folder / "model.gguf"
        shutil.copy(MODEL + "/model.gguf", model)
        words = self.words("--steps", "1", "--micro-batch", "4", "--lora", "2", "--output-dir",
                           str(self.folder / "out"), "--reward-cmd",
                           f"{sys.executable} {self.folder}/spoiler.py overwrite {model}")
        words[1:3] = [str(model)]
        self.run_weft(words)
        self.assertTrue((self.folder / "out/adapter_model.safetensors").is_file())


def words_of(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_text()


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
