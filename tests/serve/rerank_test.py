#!/usr/bin/env python3
"""/v1/rerank and /v1/score of a language model that answers yes or no, in every layout, and what
they refuse."""
import unittest

import serving

QUERY = "What is the moon?"
DOCUMENTS = ["The moon orbits the Earth.", "A cat sat on the mat.", "Yes.",
             "Stock prices fell sharply on Monday. " * 20]


class RerankCase(serving.ServedCase):
    words = ("--pooling", "rank")

    def ask(self, path, body, expected=200):
        status, answer = self.server.json("POST", path, body)
        self.assertEqual(status, expected, answer)
        return answer

    def scores(self, documents, **more):
        answer = self.ask("/v1/rerank", {"query": QUERY, "documents": documents} | more)
        return {each["index"]: each["relevance_score"] for each in answer["results"]}


class Rerank(RerankCase):
    def test_forms(self):
        answer = self.ask("/v1/rerank", {"model": "gpt-test", "query": QUERY,
                                         "documents": [*DOCUMENTS[:3], {"text": DOCUMENTS[3]}]})
        self.assertEqual(answer["object"], "list")
        results = answer["results"]
        self.assertEqual(sorted(each["index"] for each in results), [0, 1, 2, 3])
        scores = [each["relevance_score"] for each in results]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertTrue(all(0 < score < 1 for score in scores))
        for each in results:
            self.assertEqual(each["document"], {"text": DOCUMENTS[each["index"]]})
        self.assertGreater(answer["usage"]["prompt_tokens"], 4 * 50)
        best = self.ask("/rerank", {"query": QUERY, "documents": DOCUMENTS, "top_n": 1,
                                    "return_documents": False})
        self.assertEqual(best["results"], [{name: results[0][name]
                                            for name in ("index", "relevance_score")}])
        tei = self.ask("/rerank", {"query": QUERY, "texts": DOCUMENTS, "return_text": True})
        self.assertEqual([(each["index"], each["score"], each["text"]) for each in tei],
                         [(each["index"], each["relevance_score"], each["document"]["text"])
                          for each in results])
        raw = self.ask("/rerank", {"query": QUERY, "texts": DOCUMENTS, "raw_scores": True})
        self.assertEqual([each["index"] for each in raw], [each["index"] for each in tei])
        self.assertNotEqual(raw[0]["score"], tei[0]["score"])

    def test_score(self):
        expected = self.scores(DOCUMENTS)
        answer = self.ask("/v1/score", {"text_1": QUERY, "text_2": DOCUMENTS})
        self.assertEqual({each["index"]: each["score"] for each in answer["data"]}, expected)
        pairs = self.ask("/score", {"queries": [QUERY] * 4, "documents": DOCUMENTS})
        self.assertEqual(pairs["data"], answer["data"])
        self.ask("/v1/score", {"text_1": [QUERY] * 3, "text_2": DOCUMENTS}, 400)

    def test_batching_does_not_change_scores(self):
        many = self.scores(DOCUMENTS * 20)
        for i, document in enumerate(DOCUMENTS):
            alone = self.scores([document], cache_prompt=False)[0]
            for turn in range(20):
                self.assertEqual(many[i + 4 * turn], alone)

    def test_instruction(self):
        self.assertNotEqual(self.scores(DOCUMENTS, instruction="Find cats"), self.scores(DOCUMENTS))

    def test_refused(self):
        for body, *words in (
                ({}, "'query'"), ({"query": 5, "documents": ["a"]}, "'query'"),
                ({"query": "", "documents": ["a"]}, "empty"), ({"query": "q"}, "'documents'"),
                ({"query": "q", "documents": []}, "1 to 2048"),
                ({"query": "q", "documents": ["a", ""]}, "documents[1]", "empty"),
                ({"query": "q", "documents": ["a", 5]}, "'documents'"),
                ({"query": "q", "documents": ["a", {"text": 5}]}, "'documents'"),
                ({"query": "q", "documents": ["a"] * 10_000}, "2048", "10000"),
                ({"query": "q", "documents": ["a"], "top_n": 0}, "top_n"),
                ({"query": "q", "documents": ["a", "x " * 3000], "truncate": False},
                 "documents[1]", "2048"),
                ({"query": "q", "documents": ["a" * 10_000_000], "truncate": False},
                 "documents[0]"),
                ({"query": "q " * 3000, "documents": ["a", "b"]}, "'query'", "2048")):
            answer = self.ask("/v1/rerank", body, 400)
            for word in words:
                self.assertIn(word, answer["error"]["message"])
        answer = self.ask("/v1/embeddings", {"input": "a"}, 400)
        self.assertIn("/v1/rerank", answer["error"]["message"])
        answer = self.ask("/v1/completions", {"prompt": "a"}, 400)
        self.assertEqual(len(self.scores(DOCUMENTS)), 4)


class LongTexts(RerankCase):
    context = 256

    def test_documents_lose_their_end(self):
        """As in encoders, and in Qwen3-Reranker's own code: of a document, the beginning counts
        that fits the context beside the query."""
        begin = "The moon orbits the Earth, she said, and laughed. " * 10
        long = begin * 10
        scores = self.scores([long, long + "A cat.", "\u00e9" * 2_000_000, begin])
        self.assertEqual(scores[0], scores[1])
        self.assertNotEqual(scores[0], scores[3])

        def tokens(**more):
            return self.ask("/v1/rerank", {"query": QUERY, "documents": [long],
                                           **more})["usage"]["prompt_tokens"]
        self.assertIn(tokens(), range(256 - 8, 257))
        self.assertIn(tokens(truncate_prompt_tokens=200), range(200 - 8, 201))
        status, answer = self.server.json("POST", "/v1/rerank", {
            "query": QUERY, "documents": [long], "truncate_prompt_tokens": 0})
        self.assertEqual((status, answer["error"]["param"]), (400, "truncate_prompt_tokens"))
        pairs = self.ask("/v1/score", {"text_1": QUERY, "text_2": [long]})
        self.assertEqual(pairs["data"][0]["score"], scores[0])


class Layouts(unittest.TestCase):
    def test_as_one_rank(self):
        alone = None
        for words in ((), ("--local", "2", "--tp", "2"), ("--local", "2", "--pp", "2")):
            server = serving.Server(512, *words, "--pooling", "rank", of=serving.first_layers())
            try:
                status, answer = server.json("POST", "/v1/score",
                                             {"text_1": QUERY, "text_2": DOCUMENTS})
            finally:
                server.close()
            self.assertEqual(status, 200, answer)
            scores = [each["score"] for each in answer["data"]]
            alone = alone or scores
            for one, other in zip(alone, scores):
                self.assertAlmostEqual(one, other, places=2)  # quantized weights: as embeddings


class OfEmbeddings(unittest.TestCase):
    def test_cosines(self):
        server = serving.Server(512, "--embeddings", of=serving.first_layers())
        try:
            _, vectors = server.json("POST", "/v1/embeddings", {"input": [QUERY, DOCUMENTS[0]]})
            status, answer = server.json("POST", "/v1/score",
                                         {"text_1": QUERY, "text_2": DOCUMENTS[0]})
        finally:
            server.close()
        self.assertEqual(status, 200, answer)
        a, b = (each["embedding"] for each in vectors["data"])
        self.assertAlmostEqual(answer["data"][0]["score"], sum(x * y for x, y in zip(a, b)),
                               places=5)

    def test_a_server_of_text_refuses(self):
        server = serving.Server(512, of=serving.first_layers())
        try:
            status, answer = server.json("POST", "/v1/rerank", {"query": "q", "documents": ["a"]})
        finally:
            server.close()
        self.assertEqual(status, 400)
        self.assertIn("--pooling rank", answer["error"]["message"])


if __name__ == "__main__":
    del RerankCase
    serving.main()
