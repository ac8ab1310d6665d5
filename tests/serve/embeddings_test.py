#!/usr/bin/env python3
"""Embeddings, called with OpenAI's package, in every layout."""
import base64
import math
import struct
import unittest

import serving

openai = serving.package("openai")
TEXTS = ["The cat sat on the mat.", "A feline rested on the rug.",
         "Stock prices fell sharply on Monday.", "so on and " * 300]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a)
                                                        * sum(y * y for y in b))


class EmbeddingCase(serving.ServedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0,
                                   timeout=serving.PATIENCE)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        super().tearDownClass()

    def embed(self, texts, **more):
        return self.client.embeddings.create(model="gpt-test", input=texts, **more)

    def vectors(self, texts, **more):
        return [each.embedding for each in self.embed(texts, **more).data]


class Embeddings(EmbeddingCase):
    def test_vectors(self):
        answer = self.embed(TEXTS)
        self.assertEqual(answer.object, "list")
        self.assertEqual([each.index for each in answer.data], [0, 1, 2, 3])
        self.assertGreater(answer.usage.prompt_tokens, 620)
        self.assertEqual(answer.usage.prompt_tokens, answer.usage.total_tokens)
        first, second, third, _ = [each.embedding for each in answer.data]
        self.assertEqual(len(first), 576)
        self.assertAlmostEqual(sum(x * x for x in first), 1, places=5)
        self.assertGreater(cosine(first, second), cosine(first, third) + 0.05)

    def test_batching_does_not_change_vectors(self):
        texts = TEXTS if serving.nightly() else [*TEXTS[:3], "so on and " * 40]
        many = self.vectors(texts)
        for text, vector in zip(texts, many):
            self.assertEqual(self.vectors(text), [vector])
            self.assertEqual(self.vectors(text, extra_body={"cache_prompt": False}), [vector])

    def test_token_ids(self):
        status, tokens = self.server.json("POST", "/tokenize", {"prompt": TEXTS[0]})
        self.assertEqual(status, 200)
        expected = self.vectors(TEXTS[0])
        self.assertEqual(self.vectors(tokens["tokens"]), expected)
        self.assertEqual(self.vectors([tokens["tokens"]] * 2), expected * 2)

    def test_forms(self):
        asked = {"input": TEXTS[0], "encoding_format": "base64"}
        status, answer = self.server.json("POST", "/v1/embeddings", asked)
        self.assertEqual(status, 200)
        data = base64.b64decode(answer["data"][0]["embedding"], validate=True)
        exact = list(struct.unpack(f"<{len(data) // 4}f", data))
        _, answer = self.server.json("POST", "/v1/embeddings", {"input": TEXTS[0]})
        floats = answer["data"][0]["embedding"]
        packed = struct.unpack(f"<{len(floats)}f", struct.pack(f"<{len(floats)}f", *floats))
        self.assertEqual(list(packed), exact)

    def test_dimensions(self):
        whole, = self.vectors(TEXTS[0])
        for count in (1, 64, 575, 576):
            part, = self.vectors(TEXTS[0], dimensions=count)
            self.assertEqual(len(part), count)
            self.assertAlmostEqual(sum(x * x for x in part), 1, places=5)
            self.assertAlmostEqual(cosine(part, whole[:count]), 1, places=6)

    def test_many(self):
        texts = [f"text number {i}" for i in range(300)]
        vectors = self.vectors(texts)
        self.assertEqual(len(vectors), 300)
        self.assertEqual(vectors[217], self.vectors(texts[217])[0])

    def test_refused(self):
        for asked, *words in (
                ({"input": ""}, "'input'", "empty"), ({"input": ["a", ""]}, "input[1]", "empty"),
                ({"input": []}, "1 to 2048"), ({"input": 5}, "'input'"), ({}, "'input'"),
                ({"input": ["a", 5]}, "'input'"), ({"input": ["a"] * 2049}, "2048"),
                ({"input": "a", "dimensions": 577}, "577", "576"),
                ({"input": "a", "dimensions": 0}, "dimensions"),
                ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
                ({"input": [1, 10 ** 9]}, "1000000000", "49151"),
                ({"input": ["a", "x " * 2100]}, "2101 tokens", "2048")):
            status, answer = self.server.json("POST", "/v1/embeddings", asked)
            self.assertEqual(status, 400, answer)
            for word in words:
                self.assertIn(word, answer["error"]["message"])
        self.assertEqual(answer["error"]["code"], "context_length_exceeded")
        self.assertEqual(answer["error"]["param"], "input[1]")

    def test_a_text_of_the_whole_context(self):
        """No context is reserved for a generated token, neither for a vector nor for scores."""
        whole = [5 + i % 7 for i in range(2048)]
        self.assertEqual(len(self.vectors(whole)[0]), 576)
        status, answer = self.server.json("POST", "/v1/completions", {
            "prompt": whole, "max_tokens": 0, "echo": True, "logprobs": 0})
        self.assertEqual(status, 200, answer)
        self.assertEqual(len(answer["choices"][0]["logprobs"]["tokens"]), 2048)
        self.assertEqual(answer["usage"]["completion_tokens"], 0)
        for more, prompt in ((0, whole + [5]), (1, whole)):
            status, answer = self.server.json("POST", "/v1/completions",
                                              {"prompt": prompt, "max_tokens": more})
            self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))

    def test_beside_text(self):
        said = self.client.completions.create(model="gpt-test", prompt="One, two, three,",
                                              max_tokens=8, temperature=0).choices[0].text
        self.assertIn("four", said)


class Layouts(unittest.TestCase):
    def ask(self, *words):
        server = serving.Server(512, *words, of=serving.first_layers())
        try:
            status, answer = server.json("POST", "/v1/embeddings", {"input": TEXTS[:3]})
            ready = server.json("GET", "/ready")[0]
            text, _ = server.json("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})
        finally:
            server.close()
        self.assertEqual(ready, 200)
        return status, answer, text

    def test_as_one_rank(self):
        for pooling in serving.some(("last", "mean"), 2):
            _, alone, _ = self.ask("--pooling", pooling)
            for words, text_status in ((("--tp", "2"), 200), (("--pp", "2", "--embeddings"), 400)):
                status, answer, text = self.ask("--local", "2", *words, "--pooling", pooling)
                self.assertEqual(status, 200, answer)
                self.assertEqual(text, text_status)
                for one, other in zip(alone["data"], answer["data"]):
                    # Sums over ranks may be rounded differently: the tolerance for layouts of
                    # quantized weights is 5e-3 of the length.
                    self.assertGreater(cosine(one["embedding"], other["embedding"]), 1 - 2e-5)

    def test_pipeline_serves_text_or_embeddings(self):
        status, answer, text = self.ask("--local", "2", "--pp", "2")
        self.assertEqual((status, text), (400, 200))
        self.assertIn("--embeddings", answer["error"]["message"])
        self.assertEqual(answer["error"]["code"], "unsupported_value")


if __name__ == "__main__":
    serving.main()
