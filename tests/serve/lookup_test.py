#!/usr/bin/env python3
"""With --lookup a server says what it says without, in many tokens a step; and tells how many."""
import concurrent.futures
import json
import re
import unittest

import serving

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
    return {"messages": [{"role": "user", "content": words}], "max_tokens": 48, **more}


def requests():
    """Greedy and drawn, quoting and free, of a given form, with stops, penalties and chances."""
    quote = f"Repeat this text word for word, with boats called ships: {TEXT}"
    bodies = [chat(quote, temperature=0), chat(quote, temperature=0.7, seed=3),
              chat(quote, temperature=1.0, seed=4, n=2, top_p=0.9),
              chat(quote, temperature=0, logprobs=True, top_logprobs=2),
              chat(quote, temperature=0, stop=["pier"]),
              chat(quote, temperature=0.5, seed=1, frequency_penalty=0.6),
              chat("Tell me of the sea.", temperature=1.2, seed=5),
              chat("Name three colours, again and again.", temperature=0, max_tokens=7)]
    for seed in range(3):
        bodies.append(chat(f"Which places are there? {TEXT}", temperature=seed / 2, seed=seed,
                           response_format=PLACES, max_tokens=100))
        bodies.append(chat("The weather in Lima for two days?", temperature=seed / 2, seed=seed,
                           tools=[WEATHER], tool_choice="required"))
    return bodies


def said(answer):
    """What must be the same; calls have ids of their own."""
    answer = {key: answer[key] for key in ("choices", "usage")}
    text = re.sub(r'"id": "call_[^"]*"', '"id": ""', json.dumps(answer))
    return json.loads(re.sub(r'"cached_tokens": \d+', '"cached_tokens": 0', text))


class Lookup(unittest.TestCase):
    def answers(self, server):
        def ask(body):
            status, answer = server.json("POST", "/v1/chat/completions", body)
            self.assertEqual(status, 200, answer)
            return said(answer)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            return list(pool.map(ask, requests()))

    def check(self, *words):
        plain = serving.Server(2048, "--no-access-log", *words)
        try:
            expected = self.answers(plain)
            self.assertEqual(plain.status()["speculation"]["drafted"], 0)
        finally:
            plain.close()
        for drafts in (("--draft-always", "--draft-tokens", "5"), ()):
            server = serving.Server(2048, "--lookup", "--no-access-log", *drafts, *words)
            try:
                for got, wanted in zip(self.answers(server), expected):
                    self.assertEqual(got, wanted, (words, drafts))
                self.counts(server, always=bool(drafts))
            finally:
                server.close()

    def counts(self, server, always):
        guesses = server.status()["speculation"]
        metrics = server.call("GET", "/metrics")[2].decode()
        for name, member in (("drafts", "drafts"), ("draft_tokens", "drafted"),
                             ("accepted_tokens", "accepted")):
            found = re.search(rf"^weft:spec_decode_num_{name}_total{{.*}} (\d+)", metrics, re.M)
            self.assertEqual(int(found[1]), guesses[member])
        places = re.findall(r"accepted_tokens_per_pos_total{.*} (\d+)", metrics)
        self.assertEqual(sum(map(int, places)), guesses["accepted"])
        self.assertEqual(len(places), 5 if always else 16)
        if always:
            self.assertGreater(guesses["accepted"], 50)
            self.assertGreater(guesses["drafted"], guesses["accepted"])

    def test_one_rank(self):
        self.check()

    def test_tensor_ranks(self):
        self.check("--local", "2", "--tp", "2")

    def test_two_stages(self):
        self.check("--local", "2", "--pp", "2")

    def test_three_stages(self):
        self.check("--local", "3", "--pp", "3")


if __name__ == "__main__":
    serving.main()
