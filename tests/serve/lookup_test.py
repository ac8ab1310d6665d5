#!/usr/bin/env python3
"""With --prompt-lookup the server gives the same answers in fewer steps, and reports draft
counts."""
import concurrent.futures
import json
import re
import tempfile
import time
import unittest

import adapters
import serving

serving.few_layers = True

TEXT = ("The harbour office opens at seven. Boats from the north wait at the second pier until the "
        "pilot has signed their papers. Boats from the south may land at once.")
WEATHER = {"type": "function", "function": {
    "name": "weather", "parameters": {
        "type": "object", "required": ["city", "days"], "additionalProperties": False,
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Lima"]},
                       "days": {"type": "integer"}}}}}
PLACES = {"type": "json_schema", "json_schema": {"name": "places", "schema": {
    "type": "object", "required": ["places"], "additionalProperties": False, "properties": {
        "places": {"type": "array", "minItems": 3, "maxItems": 6, "items": {
            "type": "object", "required": ["name", "open"], "additionalProperties": False,
            "properties": {"name": {"enum": ["office", "pier", "harbour"]},
                           "open": {"type": "boolean"}}}}}}}}


def chat(words, **more):
    return {"messages": [{"role": "user", "content": words}], "max_tokens": 32, "top_k": 0,
            "top_p": 1, "min_p": 0, **more}


def requests():
    """Greedy and sampled requests, with repeated and new text, formats, stops, penalties,
    logprobs."""
    quote = f"Repeat this text word for word, with boats called ships: {TEXT}"
    bodies = [chat(quote, temperature=0), chat(quote, temperature=0.7, seed=3),
              chat(quote, temperature=1.0, seed=4, n=2, top_p=0.9),
              chat(quote, temperature=0, logprobs=True, top_logprobs=2),
              chat(quote, temperature=0, stop=["pier"]),
              chat(quote, temperature=0.5, seed=1, frequency_penalty=0.6),
              chat("Tell me of the sea.", temperature=1.2, seed=5),
              chat("Name three colours, again and again.", temperature=0, max_tokens=7)]
    for seed in range(3) if serving.nightly() else (1,):
        bodies.append(chat(f"Which places are there? {TEXT}", temperature=seed / 2, seed=seed,
                           response_format=PLACES, max_tokens=100))
        bodies.append(chat("The weather in Lima for two days?", temperature=seed / 2, seed=seed,
                           tools=[WEATHER], tool_choice="required"))
    return bodies


def said(answer):
    """The part of an answer that must be equal; ids of calls differ."""
    answer = {key: answer[key] for key in ("choices", "usage")}
    text = re.sub(r'"id": "call_[^"]*"', '"id": ""', json.dumps(answer))
    return json.loads(re.sub(r'"cached_tokens": \d+', '"cached_tokens": 0', text))


class Lookup(unittest.TestCase):
    models = ("gpt-test",)
    every = 1

    def answers(self, server):
        """Answers to all requests, for each model, in one batch."""
        def ask(body):
            status, answer = server.json("POST", "/v1/chat/completions", body)
            self.assertEqual(status, 200, answer)
            return said(answer)
        asked = [{"model": model, **body} for body in requests()[::self.every]
                 for model in self.models]
        try:
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(ask, asked))
            # A step of later stages may still run when all its sequences have been answered.
            deadline = time.monotonic() + 10
            while True:
                self.guesses = server.status()["speculation"]
                self.metrics = server.call("GET", "/metrics")[2].decode()
                if server.status()["speculation"] == self.guesses or time.monotonic() > deadline:
                    break
            return answers
        finally:
            server.close()

    def open(self, *words):
        return serving.Server(2048, "--no-access-log", *words)

    # Stages give the bits of one rank; sums over tensor ranks almost always do.
    def check(self, expected, *words):
        for got, wanted in zip(self.answers(self.open(*words)), expected):
            self.assertEqual(got, wanted, words)
        self.counts(always="--draft-always" in words)

    def test_one_rank_and_stages(self):
        expected = self.answers(self.open())
        self.assertEqual(self.guesses["drafted"], 0)
        always = ("--prompt-lookup", "--draft-always", "--draft-tokens", "5")
        self.check(expected, *always)
        if serving.nightly():
            self.check(expected, "--local", "2", "--pp", "2", "--prompt-lookup")
            self.check(expected, "--prompt-lookup")
            self.check(expected, "--local", "3", "--pp", "3", *always)
            self.check(expected, "--local", "3", "--pp", "3")

    def test_tensor_ranks(self):
        words, self.every = ("--local", "2", "--tp", "2"), 1 if serving.nightly() else 2
        expected = self.answers(self.open(*words))
        self.check(expected, *words, "--prompt-lookup", "--draft-always", "--draft-tokens", "5")

    @serving.nightly_only
    def test_adapters_beside_the_model(self):
        with tempfile.TemporaryDirectory() as folder:
            words = adapters.flags(folder, "poet", "clerk")
            self.models, self.every = ("gpt-test", "poet", "clerk"), 2
            expected = self.answers(self.open(*words))
            each = [json.dumps(expected[first::3]) for first in range(3)]
            self.assertEqual(len(set(each)), 3)  # adapters without an effect would test nothing
            always = ("--prompt-lookup", "--draft-always", "--draft-tokens", "5")
            stages = ("--prompt-lookup", "--local", "2", "--pp", "2")
            for flags in (always, stages) if serving.nightly() else (always,):
                self.check(expected, *words, *flags)

    def counts(self, always):
        for name, member in (("drafts", "drafts"), ("draft_tokens", "drafted"),
                             ("accepted_tokens", "accepted")):
            pattern = rf"^weft:spec_decode_num_{name}_total{{.*}} (\d+)"
            found = re.search(pattern, self.metrics, re.M)
            self.assertEqual(int(found[1]), self.guesses[member])
        places = re.findall(r"accepted_tokens_per_pos_total{.*} (\d+)", self.metrics)
        self.assertEqual(sum(map(int, places)), self.guesses["accepted"])
        if always:
            self.assertEqual(len(places), 5)
            self.assertGreater(self.guesses["accepted"], 50)
            self.assertGreater(self.guesses["drafted"], self.guesses["accepted"])


if __name__ == "__main__":
    serving.main()
