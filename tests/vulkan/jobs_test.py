#!/usr/bin/env python3
"""Whole jobs on a Vulkan device against the same jobs on the CPU, with the model in the repository:
answers, logits, layouts of ranks, a server with many requests at once, a rank that is killed.
Lavapipe suffices.

    jobs_test.py PROGRAM [UNITTEST ARGUMENT...]

Exit status 77: no Vulkan device can be used.
"""
import concurrent.futures
import http.client
import json
import math
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "support"), str(FOLDER.parent / "serve")]
import gguf_template  # noqa: E402
from nightly import nightly  # noqa: E402
from processes import children  # noqa: E402
from vulkan_device import MODEL, PATIENCE, SKIPPED, usable, validate  # noqa: E402
from wait import until  # noqa: E402

QUESTIONS = ["What is 47 + 38?", "What is 12 * 7?", "What is 90 - 45?", "What is 6 + 6?",
             "What is 81 / 9?"]
# For weights of 8 bits or fewer, the CPU rounds activations to 8 bits, and a GPU may not: an error
# of about 1/127 / sqrt(12) of each, over a dozen layers of sums that average such errors out.
ROUNDED = 3e-2
# The reference kernels do not round activations: only the cache's float16 and the order of sums
# differ.
UNROUNDED = 3e-3


def run(*words, device=None, status=0, env=None):
    command = [PROGRAM, *words] + (["--device", device] if device else [])
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, **(env or {})})
    if status is not None and done.returncode != status:
        raise AssertionError(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}")
    return done


def answer(question, *words, device=None):
    return run("run", MODEL, "--raw", "-p", question, "-n", "24", "--temp", "0", *words,
               device=device)


def npy(path):
    raw = pathlib.Path(path).read_bytes()
    begin = 10 + struct.unpack_from("<H", raw, 8)[0]
    return struct.unpack(f"<{(len(raw) - begin) // 4}f", raw[begin:])


def apart(got, want):
    difference = math.sqrt(sum((a - b) ** 2 for a, b in zip(got, want)))
    return difference / math.sqrt(sum(b * b for b in want))


class Jobs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def logits(self, *words, device=None):
        path = os.path.join(self.folder.name, "logits.npy")
        run("logits", MODEL, "--tokens", ",".join(str(3 + 5 * i % 90) for i in range(24)),
            "--all", "--npy", path, *words, device=device)
        return npy(path)

    def test_answers_are_those_of_the_cpu(self):
        for question in QUESTIONS if nightly() else QUESTIONS[:1]:
            self.assertEqual(answer(question, device=DEVICE).stdout, answer(question).stdout)

    def test_logits_are_near_those_of_the_reference(self):
        want = self.logits("--reference")
        for words, most in (((), ROUNDED), (("--reference",), UNROUNDED),
                            (("--prefill-chunk", "5"), ROUNDED), (("--kv-dtype", "q8_0"), ROUNDED),
                            (("--kv-dtype", "q8_0,q5_1"), 8 * ROUNDED),
                            (("--kv-dtype", "q4_0"), 16 * ROUNDED)):
            distance = apart(self.logits(*words, device=DEVICE), want)
            print(f"logits {words}: {distance:.2g} from the reference", flush=True)
            self.assertTrue(distance <= most, f"{words}: {distance}")

    def test_layouts(self):
        want = {question: answer(question).stdout for question in QUESTIONS[:2]}
        for words in (("--local", "2", "--tp", "2"),
                      ("--local", "2", "--tp", "2", "--transport", "tcp"),
                      ("--local", "2", "--pp", "2"),
                      ("--local", "4", "--tp", "2", "--pp", "2")):
            for question, said in want.items():
                self.assertEqual(answer(question, *words, device=DEVICE).stdout, said, words)

    def test_layouts_hold_the_same_bits_and_are_near_one_rank(self):
        one = self.logits(device=DEVICE)
        for words in (("--local", "2", "--tp", "2", "--verify"), ("--local", "2", "--pp", "2")):
            distance = apart(self.logits(*words, device=DEVICE), one)
            self.assertTrue(distance <= UNROUNDED, f"{words}: {distance}")

    def test_sums_within_a_submission_have_the_bits_of_those_between(self):
        for words in (("--tp", "2"), ("--tp", "3", "--transport", "tcp"),
                      ("--tp", "2", "--pp", "2"),
                      ("--tp", "2", "--allreduce-dtype", "bf16"))[:None if nightly() else 1]:
            # Few rows at a time, because no sum is within a submission for many. The built-in
            # table, because a measured one may use two_shot, which rounds BF16 sums once more.
            split, spin = (self.logits(*words, "--prefill-chunk", "4", "--net-table", "off",
                                       "--gpu-allreduce",
                                       how, device=DEVICE) for how in ("split", "spin"))
            self.assertEqual(split, spin, words)

    def test_a_rank_killed_amid_sums_is_named(self):
        model = os.path.join(self.folder.name, "long.gguf")
        gguf_template.with_keys(MODEL, model, {"llama.context_length": 4096})
        for how in ("split", "spin") if nightly() else ("spin",):
            with subprocess.Popen(
                    [PROGRAM, "run", model, "--raw", "-p", "1",
                     "-n", "4000", "--ignore-eos", "--temp", "0", "--tp", "2",
                     "--gpu-allreduce", how, "--device", DEVICE],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
                job.stdout.read(8)
                os.kill(children(job.pid)[0], signal.SIGKILL)
                begin = time.monotonic()
                said = job.communicate(timeout=PATIENCE)[1]
                self.assertLess(time.monotonic() - begin, PATIENCE / 4)
                self.assertEqual(job.returncode, 3, said)
                self.assertRegex(said, r"rank 1 \(host .*\) was lost")
                # (A warning may report failed exchanges: the device runs on the same cores.)
                self.assertEqual(said.count("error:"), 1, said)

    def test_the_start_up_proof_compares_with_the_record_of_one_rank(self):
        env = {"XDG_CACHE_HOME": self.folder.name}
        words = ("run", MODEL, "--greedy", "-p", QUESTIONS[0], "-n", "4")
        run(*words, device=DEVICE, env=env)
        records = os.listdir(os.path.join(self.folder.name, "weft/proof"))
        self.assertEqual(len(records), 1)
        self.assertIn("vulkan", records[0])
        run(*words, "--local", "2", "--tp", "2", device=DEVICE, env=env)
        run(*words, "--local", "2", "--pp", "2", device=DEVICE, env=env)
        self.assertEqual(os.listdir(os.path.join(self.folder.name, "weft/proof")), records)

    def test_bench_names_the_device(self):
        words = ("bench", MODEL, "-p", "16", "-n", "4", "-r", "1", "-o", "json")
        for row in json.loads(run(*words, device=DEVICE).stdout):
            self.assertEqual(row["backends"], "Vulkan")
            self.assertNotEqual(row["gpu_info"], "")
            self.assertGreater(row["avg_ts"], 0)
        for row in json.loads(run(*words).stdout):
            self.assertEqual((row["backends"], row["gpu_info"]), ("CPU", ""))
        self.assertIn("| Vulkan ", run(*words[:-1], "md", device=DEVICE).stdout)

    def test_perplexity(self):
        text = os.path.join(self.folder.name, "text")
        pathlib.Path(text).write_text("What is 47 + 38? It is 85. " * 20)
        words = ("perplexity", MODEL, text, "--ctx", "64", "--json")
        got, want = (json.loads(run(*words, device=device).stdout) for device in (DEVICE, None))
        self.assertAlmostEqual(got["perplexity"] / want["perplexity"], 1, delta=0.02)

    def test_a_trace_has_the_time_of_each_op(self):
        path = os.path.join(self.folder.name, "trace.json")
        run("run", MODEL, "-p", "1 + 1", "-n", "2", "--trace", path, device=DEVICE)
        events = [e for e in json.loads(pathlib.Path(path).read_text())["traceEvents"]
                  if e.get("ph") == "X"]
        self.assertGreater(len(events), 40)
        self.assertTrue(all(e["dur"] >= 0 for e in events))


class UnlikeDevices(unittest.TestCase):
    """Pipeline stages may run on a GPU and on the CPU; tensor ranks may not mix them."""

    def test_stages_have_no_sums_to_be_within_a_submission(self):
        said = answer(QUESTIONS[0], "--pp", "2", "--gpu-allreduce", "spin", device=f"{DEVICE},cpu")
        self.assertEqual(said.stdout, answer(QUESTIONS[0]).stdout)

    def test_stages(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "logits.npy")
            words = ("logits", MODEL, "--tokens", ",".join(str(3 + 5 * i % 90) for i in range(24)),
                     "--all", "--npy", path)
            run(*words, "--reference")
            want = npy(path)
            for devices in (f"{DEVICE},cpu", f"cpu,{DEVICE}", f"cpu,{DEVICE},cpu"):
                for reference, most in (((), ROUNDED), (("--reference",), UNROUNDED)):
                    run(*words, "--pp", str(devices.count(",") + 1), *reference, device=devices)
                    distance = apart(npy(path), want)
                    self.assertTrue(distance <= most, f"{devices} {reference}: {distance}")
            one = answer(QUESTIONS[0]).stdout
            for devices in (f"{DEVICE},cpu", f"cpu,{DEVICE}"):
                self.assertEqual(answer(QUESTIONS[0], "--pp", "2", device=devices).stdout, one)

    def test_the_start_up_proof_knows_how_unlike_devices_round(self):
        """Starts with the record of either device, in both orders; a damaged record is refused."""
        words = ("run", MODEL, "-p", QUESTIONS[0], "-n", "4")
        for alone in (DEVICE, "cpu") if nightly() else (DEVICE,):
            with tempfile.TemporaryDirectory() as folder:
                env = {"XDG_CACHE_HOME": folder}
                run(*words, device=alone, env=env)
                self.assertEqual(len(os.listdir(os.path.join(folder, "weft/proof"))), 1)
                for devices in (f"{DEVICE},cpu", f"cpu,{DEVICE}",
                                f"cpu,{DEVICE},cpu")[:None if nightly() else 1]:
                    said = run(*words, "--pp", str(devices.count(",") + 1), device=devices,
                               env={**env, "WEFT_LOG": "debug"}).stderr
                    self.assertRegex(said, r"self-test: .* unlike devices round differently: "
                                           r"[\d.e-]+ from one rank's logits")

    def test_tensor_ranks_are_refused_by_both_names(self):
        for layout in (("--tp", "2"), ("--tp", "2", "--transport", "tcp")):
            done = run("run", MODEL, "-p", "1", *layout, device=f"{DEVICE},cpu", status=2)
            self.assertRegex(done.stderr, r"rank 0 \(host .*\) computes on vulkan-.*, rank 1 "
                                          r"\(host .*\) on cpu-.*--pp")

    def test_lists_that_do_not_fit(self):
        for devices, layout in ((f"{DEVICE},cpu", ("--pp", "3")), (f"{DEVICE},cpu", ())):
            done = run("run", MODEL, "-p", "1", *layout, device=devices, status=2)
            self.assertIn("one for all, or one for each", done.stderr)
        for devices in (f"{DEVICE},", ",", f"{DEVICE},gpu"):
            self.assertIn("no device", run("run", MODEL, "-p", "1", "--pp", "2", device=devices,
                                           status=2).stderr)


class Refusals(unittest.TestCase):
    def refused(self, *words, status=1, device=None):
        return run(*words, status=status, device=device).stderr

    def test_names(self):
        ask = ("run", MODEL, "-p", "1")
        self.assertIn("vulkan:N", self.refused(*ask, status=2, device="vulkan:x"))
        self.assertIn(DEVICE, self.refused(*ask, device="vulkan:99"))

    def test_memory(self):
        said = self.refused("run", "synthetic:llama-3.1-70b:F16", "-p", "1", "--ctx", "131072",
                            device=DEVICE)
        self.assertRegex(said, r"weights \d+ MiB \+ KV cache \d+ MiB .* free")


class Server:
    def __init__(self, *words, env=None):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", MODEL, "--ctx", "256", "--port", "0", "--json", "--device", DEVICE,
             *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(env or {})})
        line = self.process.stdout.readline()
        if '"port"' not in line:
            raise RuntimeError(f"weft serve: {line}{self.process.communicate()[1]}")
        self.port = json.loads(line)["port"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=60)

    def ask(self, question, **more):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        body = {"messages": [{"role": "user", "content": question}], "temperature": 0,
                "max_tokens": 24, **more}
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body))
            answered = connection.getresponse()
            found = json.loads(answered.read())
        finally:
            connection.close()
        if answered.status != 200:
            raise RuntimeError(found)
        return found["choices"][0]["message"]["content"], found["usage"]


class Serving(unittest.TestCase):
    def test_many_at_once_and_a_prefix_that_is_kept(self):
        with Server() as server:
            alone = [server.ask(question)[0] for question in QUESTIONS]
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                together = [said for said, _ in pool.map(server.ask, QUESTIONS * 3)]
            self.assertEqual(together, alone * 3)
            long = "Here is a sum. " * 12 + QUESTIONS[0]
            first, usage = server.ask(long)
            again, kept = server.ask(long)
            self.assertEqual(again, first)
            self.assertGreater(kept["prompt_tokens_details"]["cached_tokens"], 63, kept)
            top, _ = server.ask(QUESTIONS[0], temperature=0.8, top_k=20, seed=7)
            self.assertEqual(server.ask(QUESTIONS[0], temperature=0.8, top_k=20, seed=7)[0], top)

    def test_answers_of_a_form(self):
        schema = {"type": "object", "properties": {"sum": {"type": "integer"}},
                  "required": ["sum"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
        with Server() as server:
            for question in QUESTIONS[:3]:
                said, _ = server.ask(question, response_format=form, max_tokens=48)
                self.assertEqual(list(json.loads(said)), ["sum"], said)

    def test_stages_that_compute_ahead(self):
        with Server() as server:
            alone = [server.ask(question)[0] for question in QUESTIONS]
        with Server("--local", "2", "--pp", "2") as server:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                together = [said for said, _ in pool.map(server.ask, QUESTIONS * 2)]
        self.assertEqual(together, alone * 2)

    def test_a_rank_that_is_killed_is_started_again(self):
        with Server("--local", "2", "--tp", "2", "--restart-timeout-ms", "60000") as server:
            before = server.ask(QUESTIONS[0])[0]
            victim = children(server.process.pid)[0]
            os.kill(victim, signal.SIGKILL)
            until(lambda: victim not in children(server.process.pid), "the loss", PATIENCE)

            def answer():
                try:
                    return server.ask(QUESTIONS[0])[0]
                except (RuntimeError, OSError):
                    return None
            self.assertEqual(until(answer, "an answer", PATIENCE), before)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    validate()
    DEVICE, why_not = usable(PROGRAM)
    if DEVICE is None:
        print(f"skipped: no Vulkan device to test with: {why_not}", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main()
