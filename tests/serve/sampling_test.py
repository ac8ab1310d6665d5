#!/usr/bin/env python3
"""Sampling by the model's own file: what it asks for holds where nobody asks for something else."""
import json
import os
import subprocess
import tempfile
import unittest

import gguf_template
import serving

COLOURS = {"messages": [{"role": "user", "content": "Name three colours."}], "max_tokens": 12}
GREEDY = {"general.sampling.temp": 0.0}
DRAWN = {"general.sampling.temp": 5.0, "general.sampling.top_p": 0.9,
         "general.sampling.top_k": 100}
HOSTILE = {"general.sampling.temp": float("nan"), "general.sampling.top_k": "many",
           "general.sampling.top_p": -2.0, "general.sampling.penalty_repeat": 0.0}


class Sampling(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.models = {}
        for name, keys in (("greedy", GREEDY), ("drawn", DRAWN), ("hostile", HOSTILE)):
            cls.models[name] = os.path.join(cls.folder.name, name + ".gguf")
            gguf_template.with_keys(serving.model(), cls.models[name], keys)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def serve(self, name, *words, stderr=None):
        server = serving.Server(512, *words, of=self.models[name], stderr=stderr)
        self.addCleanup(server.close)
        return server

    def say(self, server, **more):
        status, answer = server.json("POST", "/v1/chat/completions", {**COLOURS, **more})
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["message"]["content"]

    def run_weft(self, name, *words):
        return subprocess.run(
            [serving.PROGRAM, "run", self.models[name], "-p", "Name three colours.", "-n", "8",
             "-t", "1", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=True, timeout=serving.PATIENCE)

    def test_greedy_by_the_file(self):
        server = self.serve("greedy")
        self.assertEqual(self.say(server), self.say(server, temperature=0))
        self.assertEqual(self.say(server), self.say(server, temperature=None))
        self.assertEqual(len({self.say(server, temperature=5, seed=i) for i in range(3)}), 3)

    def test_drawn_by_the_file(self):
        server = self.serve("drawn")
        asked = {"temperature": 5.0, "top_p": 0.9, "top_k": 100}
        self.assertEqual(self.say(server, seed=3), self.say(server, seed=3, **asked))
        self.assertNotEqual(self.say(server, seed=3), self.say(server, temperature=0))
        status, answer = server.json("POST", "/v1/responses",
                                     {"input": "Hello.", "max_output_tokens": 2})
        self.assertEqual((status, answer["temperature"], answer["top_p"]), (200, 5.0, 0.9))

    def test_flags_come_before_the_file(self):
        server = self.serve("drawn", "--temp", "0")
        self.assertEqual(self.say(server), self.say(server, temperature=0))

    def test_the_file_is_not_heeded(self):
        server = self.serve("greedy", "--generation-config", "none")
        self.assertEqual(len({self.say(server, seed=i, temperature=1) for i in range(4)}),
                         len({self.say(server, seed=i) for i in range(4)}))
        self.assertEqual(self.say(server, seed=1), self.say(server, seed=1, temperature=1))

    def test_hostile_keys_are_told_of(self):
        with tempfile.TemporaryFile("w+") as log:
            server = self.serve("hostile", stderr=log)
            self.assertEqual(self.say(server, seed=1), self.say(server, seed=1, temperature=1))
            log.seek(0)
            text = log.read()
        for key in HOSTILE:
            self.assertEqual(text.count(f"hostile.gguf: '{key}'"), 1, text)

    def test_run_says_what_is_in_force(self):
        drawn = self.run_weft("drawn")
        self.assertIn("sampling: temp 5, top-k 100, top-p 0.9 (by ", drawn.stderr)
        self.assertNotEqual(drawn.stdout, self.run_weft("greedy").stdout)
        flags = self.run_weft("drawn", "--temp", "0", "--json")
        self.assertTrue(json.loads(flags.stdout)["sampling"].startswith("greedy (by "))
        self.assertEqual(json.loads(flags.stdout)["text"],
                         json.loads(self.run_weft("greedy", "--json").stdout)["text"])
        plain = self.run_weft("drawn", "--generation-config", "none")
        self.assertNotIn("sampling:", plain.stderr)
        self.assertEqual(plain.stdout, self.run_weft("greedy").stdout)
        self.assertIn("warning", self.run_weft("hostile").stderr)


if __name__ == "__main__":
    serving.main()
