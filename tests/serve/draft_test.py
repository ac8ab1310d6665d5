#!/usr/bin/env python3
"""With --draft the server gives the same answers in fewer steps: on any layout, from the prefix
cache, and after the loss of a rank."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = str(ROOT / "models/abacus/model.gguf")
os.environ["WEFT_MODEL"] = MODEL

import serving  # noqa: E402
from processes import children  # noqa: E402

WAIT_S = 40


def requests():
    """Greedy and sampled requests, with formats, stops, penalties and log-probabilities."""
    bodies = []
    for seed in range(3):
        more = {"temperature": seed * 0.8, "seed": seed, "max_tokens": 40, "ignore_eos": True}
        bodies += [{"prompt": "What is 47 + 38?", **more},
                   {"prompt": "Sort these numbers: 42, 7, 93, 18", "n": 2, **more},
                   {"prompt": "Spell BREAD backwards.", "logprobs": 2, **more},
                   {"prompt": "Is 318 even or odd?", "stop": ["e", "1"], **more},
                   {"prompt": "What comes after 399?", "frequency_penalty": 0.7, **more},
                   {"prompt": "7 x 8 = ?", "response_format": {"type": "json_schema",
                    "json_schema": {"name": "n", "schema": {
                        "type": "array", "minItems": 5, "maxItems": 9,
                        "items": {"type": "integer", "minimum": 1, "maximum": 99}}}}, **more}]
    return bodies


class Draft(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        # The same model with fewer bits: it agrees mostly, but not always.
        cls.small = os.path.join(cls.folder.name, "small.gguf")
        serving.weft("quantize", MODEL, cls.small, "Q4_0", "--pure")
        cls.always = ("--draft", cls.small, "--draft-always", "--draft-tokens", "4")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def answers(self, *words):
        """Answers to all requests, first in one batch, then again from the prefix cache."""
        server = serving.Server(256, "--no-access-log", *words)

        def ask(body):
            status, answer = server.json("POST", "/v1/completions", body)
            self.assertEqual(status, 200, answer)
            return answer["choices"]
        try:
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(ask, requests())) + list(pool.map(ask, requests()))
            # The engine publishes its counters after the step whose tokens it emitted.
            idle = server.wait_for(lambda s: s["running"] + s["waiting"] == 0, WAIT_S)
            self.guesses = idle["speculation"]
            self.metrics = server.call("GET", "/metrics")[2].decode()
            return answers
        finally:
            server.close()

    # Stages give the bits of one rank; sums over tensor ranks almost always do.
    def check(self, expected, *words):
        for got, wanted in zip(self.answers(*words), expected):
            self.assertEqual(got, wanted, words)
        labels = '{engine="0",model_name="model"}'
        self.assertIn(f'accepted_tokens_total{labels} {self.guesses["accepted"]}',
                      self.metrics)
        if "--draft-always" in words:
            self.assertGreater(self.guesses["accepted"], self.guesses["drafted"] / 4)
            self.assertGreater(self.guesses["drafted"], self.guesses["accepted"])

    def test_one_rank_and_stages(self):
        expected = self.answers()
        self.assertEqual(self.guesses["drafted"], 0)
        self.check(expected, *self.always)
        self.check(expected, "--draft", self.small)
        self.check(expected, "--local", "2", "--pp", "2", *self.always)
        self.check(expected, *self.always, "--max-seqs", "1", "--no-prefix-cache")

    def test_tensor_ranks(self):
        ranks = ("--local", "2", "--tp", "2")
        self.check(self.answers(*ranks), *ranks, *self.always)

    def stream(self, server, body, after_first=None):
        """The text of a streamed answer; calls after_first() after its first text."""
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=serving.PATIENCE)
        try:
            connection.request("POST", "/v1/completions", json.dumps({"stream": True, **body}),
                               {"Content-Type": "application/json"})
            text = ""
            for line in connection.getresponse():
                if not line.startswith(b"data: {"):
                    continue
                text += json.loads(line[6:])["choices"][0]["text"]
                if after_first and text:
                    after_first()
                    after_first = None
            return text
        finally:
            connection.close()

    def test_a_rank_is_lost_under_a_stream(self):
        words = ("--local", "2", "--tp", "2", "--timeout-ms", "4000", *self.always)
        for temperature in (0, 1.5):
            body = {"prompt": "Sort these numbers: 42, 7, 93", "max_tokens": 230,
                    "temperature": temperature, "seed": 7, "ignore_eos": True}
            server = serving.Server(256, "--no-prefix-cache", *words)
            try:
                expected = self.stream(server, body)
                rank = children(server.process.pid)[0]
                got = self.stream(server, body, lambda: os.kill(rank, signal.SIGKILL))
                self.assertEqual(got, expected)
                status = server.wait_for(lambda s: s["state"] == "serving", WAIT_S)
                self.assertEqual(len(status["recoveries"]), 1)
                server.close()
            finally:
                server.process.kill()

    def refused(self, *words):
        ran = subprocess.run([serving.PROGRAM, "serve", MODEL, "-t", "1", "--port", "0", *words],
                             capture_output=True, text=True, timeout=serving.PATIENCE)
        self.assertEqual(ran.returncode, 2, ran.stderr)
        return ran.stderr

    def test_unsupported_combinations(self):
        both = self.refused("--draft", self.small, "--prompt-lookup")
        self.assertIn("exclude each other", both)
        self.assertIn("its vocabulary has", self.refused("--draft", "synthetic:smollm2-135m"))
        self.assertIn("a server of embeddings",
                      self.refused("--draft", self.small, "--embeddings"))
        self.assertIn("need rows in a step",
                      self.refused("--draft", self.small, "--step-tokens", "32"))


if __name__ == "__main__":
    serving.main()
