#!/usr/bin/env python3
"""Sources of a request's sampling values: the request, flags, the model's file, built-in
defaults."""
import json
import os
import subprocess
import tempfile
import unittest

import gguf_template
import serving

serving.few_layers = True

COLOURS = {"messages": [{"role": "user", "content": "Name three colours."}], "max_tokens": 12}
GREEDY = {"general.sampling.temp": 0.0}
DRAWN = {"general.sampling.temp": 5.0, "general.sampling.top_p": 0.9,
         "general.sampling.top_k": 100, "general.sampling.min_p": 0.0}
DEFAULT = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
HOSTILE = {"general.sampling.temp": float("nan"), "general.sampling.top_k": "many",
           "general.sampling.top_p": -2.0, "general.sampling.penalty_repeat": 0.0}


class Sampling(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.models = {}
        for name, keys in (("greedy", GREEDY), ("drawn", DRAWN), ("hostile", HOSTILE),
                           ("plain", {}), ("warm", {"general.sampling.temp": 1.5})):
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
        said = {self.say(server, temperature=5, min_p=0, seed=i) for i in range(3)}
        self.assertEqual(len(said), 3)

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

    @serving.nightly_only
    def test_the_file_is_ignored(self):
        server = self.serve("greedy", "--generation-config", "none")
        self.assertEqual(len({self.say(server, seed=i, temperature=0.8) for i in range(4)}),
                         len({self.say(server, seed=i) for i in range(4)}))
        self.assertEqual(self.say(server, seed=1), self.say(server, seed=1, temperature=0.8))

    def test_invalid_keys_are_reported(self):
        with tempfile.TemporaryFile("w+") as log:
            server = self.serve("hostile", stderr=log)
            self.assertEqual(self.say(server, seed=1), self.say(server, seed=1, temperature=0.8))
            log.seek(0)
            text = log.read()
        for key in HOSTILE:
            self.assertEqual(text.count(f"hostile.gguf: ignoring '{key}'"), 1, text)

    def test_run_prints_the_values_in_force(self):
        drawn = self.run_weft("drawn")
        self.assertRegex(drawn.stderr, r"sampling: temp 5, top-k 100, top-p 0.9, seed \d+ \(by ")
        self.assertNotEqual(drawn.stdout, self.run_weft("greedy").stdout)
        flags = self.run_weft("drawn", "--temp", "0", "--json")
        self.assertTrue(json.loads(flags.stdout)["sampling"].startswith("greedy (by "))
        self.assertEqual(json.loads(flags.stdout)["text"],
                         json.loads(self.run_weft("greedy", "--json").stdout)["text"])
        plain = self.run_weft("drawn", "--generation-config", "none", "--seed", "7")
        self.assertIn("sampling: temp 0.8, top-k 40, top-p 0.95, min-p 0.05, seed 7 (Weft's "
                      "default)", plain.stderr)
        self.assertIn("warning", self.run_weft("hostile").stderr)

    @serving.nightly_only
    def test_run_is_random_without_a_seed(self):
        seeds = {json.loads(self.run_weft("plain", "--json").stdout)["seed"] for _ in range(2)}
        self.assertEqual(len(seeds), 2)
        hot = ("--temp", "5", "--min-p", "0", "--top-k", "0", "--top-p", "1")
        self.assertEqual(len({self.run_weft("plain", *hot).stdout for _ in range(3)}), 3)
        for same in (("--greedy",), (*hot, "--seed", "5")):
            said = {self.run_weft("plain", *same).stdout for _ in range(2)}
            self.assertEqual(len(said), 1, same)
        self.assertEqual(self.run_weft("drawn", "--greedy").stdout,
                         self.run_weft("plain", "--temp", "0").stdout)
        both = subprocess.run([serving.PROGRAM, "run", self.models["plain"], "-p", "a", "--greedy",
                               "--temp", "1"], capture_output=True, text=True, check=False,
                              timeout=serving.PATIENCE)
        self.assertEqual(both.returncode, 2)
        self.assertIn("--greedy", both.stderr)

    def test_one_default_in_every_api(self):
        """Absent and null give the same values as explicit ones, in each API and in weft run."""
        server = self.serve("plain")
        self.assertEqual({name: server.json("GET", "/props")[1]["default_generation_settings"]
                          ["params"][name] for name in DEFAULT}, DEFAULT)
        shown = server.json("POST", "/api/show", {"model": "gpt-test"})[1]["parameters"]
        self.assertEqual({line.split()[0]: float(line.split()[1]) for line in shown.splitlines()
                          if line.split()[0] in DEFAULT}, DEFAULT)
        words = "Name three colours."
        chat = [{"role": "user", "content": words}]
        flat = {"seed": 11, "ignore_eos": True}
        for path, body, told in (
                ("/v1/chat/completions", {"messages": chat, "max_tokens": 24, **flat}, ()),
                ("/v1/completions", {"prompt": words, "max_tokens": 24, **flat}, ()),
                ("/v1/responses", {"input": words, "max_output_tokens": 24, **flat}, ()),
                ("/v1/messages", {"messages": chat, "max_tokens": 24, **flat}, ()),
                ("/completion", {"prompt": words, "n_predict": 24, **flat}, ()),
                ("/infill", {"input_prefix": words, "input_suffix": "", "n_predict": 24, **flat},
                 ()),
                ("/api/chat", {"model": "gpt-test", "messages": chat, "stream": False,
                               "options": {"num_predict": 24, **flat}}, ("options",)),
                ("/api/generate", {"model": "gpt-test", "prompt": words, "stream": False,
                                   "options": {"num_predict": 24, **flat}}, ("options",))):
            with self.subTest(path):
                said = [self.text_of(server, path, body, told, values) for values in (
                    {}, dict.fromkeys(DEFAULT), DEFAULT,
                    {"temperature": 5, "top_k": 0, "top_p": 1, "min_p": 0})]
                if said[0] is None:
                    continue  # the model has no tokens for filling in
                self.assertEqual(said[0], said[1], "null")
                self.assertEqual(said[0], said[2], "by name")
                self.assertNotEqual(said[0], said[3], "the request's own")
        run = json.loads(self.run_weft("plain", "--seed", "11", "--ignore-eos", "--json").stdout)
        asked = self.say(server, seed=11, ignore_eos=True, max_tokens=8)
        self.assertEqual(run["text"], asked)

    def text_of(self, server, path, body, told, values):
        """The text of an answer to `body` with `values`, placed below the members `told`."""
        body = json.loads(json.dumps(body))
        place = body
        for member in told:
            place = place[member]
        place.update(values)
        status, answer = server.json("POST", path, body)
        if path == "/infill" and status == 400:
            return None
        self.assertEqual(status, 200, answer)
        for member in ("choices", "output", "content", "message", "response"):
            if member in answer:
                said = answer[member]
                if member == "output":
                    said = said[0]["content"]
                return json.dumps(said)
        return self.fail(answer)

    def test_the_file_sets_some_values(self):
        """Values that the file does not set are the built-in defaults."""
        server = self.serve("warm")
        params = server.json("GET", "/props")[1]["default_generation_settings"]["params"]
        self.assertEqual({name: params[name] for name in DEFAULT}, {**DEFAULT, "temperature": 1.5})
        self.assertIn("warm.gguf", server.json("GET", "/props")[1]["sampling"])
        self.assertEqual(self.say(server, seed=2), self.say(server, seed=2, **DEFAULT | {
            "temperature": 1.5}))


if __name__ == "__main__":
    serving.main()
