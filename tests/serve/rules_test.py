#!/usr/bin/env python3
"""Members of vLLM and llama-server that forbid, end or penalize tokens, on a real model."""
import unittest

import serving

COUNT = "One, two, three,"


class Rules(serving.ServedCase):
    context = 512

    def ask(self, path="/v1/completions", **more):
        body = {"prompt": COUNT, "max_tokens": 24, "temperature": 0, **more}
        status, answer = self.server.json("POST", path, body)
        self.assertEqual(status, 200, answer)
        return answer

    def say(self, **more):
        return self.ask(**more)["choices"][0]["text"]

    def chat(self, **more):
        body = {"messages": [{"role": "user", "content": "Count from one to ten in words."}],
                "max_tokens": 40, "temperature": 0, **more}
        status, answer = self.server.json("POST", "/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]

    def streamed(self, path, **body):
        _, _, data = self.server.call("POST", path, {"stream": True, "temperature": 0, **body})
        return data.decode()

    def ids(self, text):
        return self.server.json("POST", "/tokenize", {"content": text})[1]["tokens"]

    def test_stop_token_ids(self):
        plain = self.say()
        self.assertIn(" five", plain)
        [five] = self.ids(" five")
        answer = self.ask(stop_token_ids=[five])
        self.assertEqual(answer["choices"][0]["text"], plain[:plain.index(" five")])
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
        self.assertEqual(self.say(stop_token_ids=[five], include_stop_str_in_output=True),
                         plain[:plain.index(" five") + 5])

    def test_the_stop_is_part_of_the_text(self):
        plain = self.say()
        end = plain.index("five, ") + 6
        for more in ({}, {"logprobs": 1}):
            self.assertEqual(self.say(stop="five, ", **more), plain[:end - 6])
            self.assertEqual(
                self.say(stop=["five, "], include_stop_str_in_output=True, **more), plain[:end])
        self.assertEqual(self.say(stop="five, ", no_stop_trim=True), plain[:end])
        whole = self.chat()["message"]["content"]
        word = whole.split()[2]
        end = whole.index(word) + len(word)
        ended = self.chat(stop=word, include_stop_str_in_output=True)
        self.assertEqual(ended["message"]["content"], whole[:end])

    def test_min_tokens(self):
        plain = self.say()
        [five] = self.ids(" five")
        at = len(self.ids(plain[:plain.index(" five")]))
        for more in ({"stop_token_ids": [five]}, {"stop": " five"}):
            with self.subTest(more):
                self.assertEqual(self.say(min_tokens=at, **more), plain[:plain.index(" five")])
                answer = self.ask(min_tokens=at + 1, **more)
                self.assertGreaterEqual(answer["usage"]["completion_tokens"], at + 1)
                self.assertNotEqual(answer["choices"][0]["text"], plain[:plain.index(" five")])
        # The model's own end of the answer is postponed.
        short = {"messages": [{"role": "user", "content":
                               "Why does the moon have phases? Answer in two sentences."}],
                 "temperature": 0}
        usage = []
        for least in (0, 60):
            status, answer = self.server.json(
                "POST", "/v1/chat/completions", {**short, "max_tokens": 60, "min_tokens": least})
            self.assertEqual(status, 200, answer)
            usage.append(answer["usage"]["completion_tokens"])
        self.assertLess(usage[0], 60)
        self.assertEqual(usage[1], 60)

    def test_allowed_token_ids(self):
        ids = self.ids(" yes") + self.ids(" no")
        text = self.say(allowed_token_ids=ids, max_tokens=8)
        self.assertEqual(set(text.split()) - {"yes", "no"}, set())
        self.assertEqual(len(text.split()), 8)
        drawn = self.say(allowed_token_ids=ids, max_tokens=8, temperature=2, seed=5)
        self.assertEqual(set(drawn.split()) - {"yes", "no"}, set())
        # With a grammar, both rules hold; if they exclude everything, the request fails.
        self.assertEqual(self.say(allowed_token_ids=ids, guided_choice=[" no", " maybe"]), " no")
        status, answer = self.server.json("POST", "/v1/completions", {
            "prompt": COUNT, "allowed_token_ids": ids, "guided_regex": "[0-9]+"})
        self.assertEqual(status, 400, answer)
        self.assertIn("no token may come next", answer["error"]["message"])

    def test_bad_words(self):
        self.assertIn("five", self.say())
        self.assertNotIn(" five", self.say(bad_words=["five"]))
        self.assertNotIn(" five, six", self.say(bad_words=["five, six"]))
        self.assertIn(" five", self.say(bad_words=["five, six"]))

    def test_a_stream_is_the_same(self):
        whole = self.chat(stop="three", include_stop_str_in_output=True, min_tokens=2)
        streamed = self.streamed(
            "/v1/chat/completions", stop="three", include_stop_str_in_output=True, min_tokens=2,
            messages=[{"role": "user", "content": "Count from one to ten in words."}],
            max_tokens=40)
        text = "".join(serving.json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                       for line in streamed.splitlines()
                       if line.startswith("data: {") and '"choices":[{' in line)
        self.assertEqual(text, whole["message"]["content"])

    def test_dry(self):
        # (After two repetitions, " mat" and " cat" are so close that the processor decides.)
        prompt = 4 * "the cat sat on the mat, " + "the cat sat on the"
        self.assertTrue(self.say(prompt=prompt).startswith(" mat"))
        self.assertFalse(self.say(prompt=prompt, dry_multiplier=5).startswith(" mat"))
        self.assertTrue(self.say(prompt=prompt, dry_multiplier=5, dry_sequence_breakers=["the"])
                        .startswith(" mat"))
        self.assertTrue(self.say(prompt=prompt, dry_multiplier=5, dry_allowed_length=40)
                        .startswith(" mat"))
        self.assertTrue(self.say(prompt=prompt, dry_multiplier=5, dry_penalty_last_n=4)
                        .startswith(" mat"))

    def test_xtc_typical_and_sigma(self):
        best = self.say(max_tokens=1)
        self.assertNotEqual(
            self.say(max_tokens=1, xtc_probability=1, xtc_threshold=0.0001, top_k=5), best)
        hot = {"temperature": 3, "top_k": 0, "top_p": 1, "min_p": 0, "max_tokens": 12}
        for cut in ({"top_n_sigma": 0.01}, {"typical_p": 0.0001}):
            self.assertEqual(len({self.say(seed=i, **hot, **cut) for i in range(3)}), 1, cut)
        self.assertEqual(len({self.say(seed=i, **hot) for i in range(3)}), 3)
        for more in ({"xtc_probability": 0.5}, {"typical_p": 0.5}, {"dry_multiplier": 1}):
            drawn = {self.say(seed=7, **hot, **more) for _ in range(2)}
            self.assertEqual(len(drawn), 1, more)

    def test_truncated_prompts(self):
        text = "word " * 3000 + COUNT
        self.assertEqual(self.say(prompt=text, truncate_prompt_tokens=9),
                         self.say(prompt=self.ids(text)[-9:]))
        answer = self.ask(prompt=[5] * 2000, truncate_prompt_tokens=-1)
        self.assertEqual(answer["usage"]["prompt_tokens"], 512 - 24)

    def test_llama_servers_form(self):
        answer = self.ask("/completion", n_predict=4, typical_p=0.5, dry_multiplier=0.5)
        settings = answer["generation_settings"]
        self.assertEqual((settings["typical_p"], settings["dry_multiplier"]), (0.5, 0.5))
        self.assertEqual((settings["dry_base"], settings["xtc_probability"]), (1.75, 0))


class Drafted(serving.ServedCase):
    """Drafts change no answer under the rules."""

    @classmethod
    def setUpClass(cls):
        cls.plain = serving.Server(512)
        cls.server = serving.Server(512, "--prompt-lookup", "--draft-tokens", "4")

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.plain.close()

    def test_the_same_answers(self):
        prompt = "the cat sat on the mat, the dog sat on the mat, the cat sat on the"
        for more in ({"dry_multiplier": 0.8}, {"bad_words": ["mat"]}, {"typical_p": 0.6},
                     {"xtc_probability": 0.5, "xtc_threshold": 0.05}, {"top_n_sigma": 1},
                     {"min_tokens": 20, "stop": " sat"},
                     {"stop": " sat", "include_stop_str_in_output": True}):
            for base in ({"temperature": 0, "seed": 5}, {"temperature": 0.8, "seed": 3}):
                body = {"prompt": prompt, "max_tokens": 24, **base, **more}
                answers = [server.json("POST", "/v1/completions", body)[1]["choices"][0]["text"]
                           for server in (self.plain, self.server)]
                self.assertEqual(answers[0], answers[1], (base, more))


if __name__ == "__main__":
    serving.main()
