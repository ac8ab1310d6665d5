#!/usr/bin/env python3
"""A tiny BERT classifier and a tiny BERT of sentence-transformers (tests/data/rerank_encoders,
made by tools/make_encoder_golden.py): /v1/rerank, /v1/score and /v1/embeddings in every layout, and
what they refuse."""
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import serving

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "data/rerank_encoders.safetensors"


def read(path):
    """The metadata and float tensors of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    meta = header.pop("__metadata__")
    floats = {}
    for name, entry in header.items():
        begin, end = (8 + size + at for at in entry["data_offsets"])
        floats[name] = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
    return meta, floats


def formula(name, count):
    """tests/support/tiny_model.h's."""
    mask, seed = 0xFFFFFFFF, 2166136261
    for byte in name.encode():
        seed = ((seed ^ byte) * 16777619) & mask
    for i in range(count):
        h = (i * 2654435761 + seed) & mask
        h = ((h ^ (h >> 15)) * 2246822519) & mask
        h = ((h ^ (h >> 13)) * 3266489917) & mask
        yield ((h ^ (h >> 16)) >> 8) / 8388608.0 - 1.0


def write_tensors(path, shapes):
    header, data = {}, b""
    for name, (_, shape) in shapes.items():
        count = math.prod(shape)
        scale = 0.25 if len(shape) <= 1 else math.sqrt(3.0 / shape[-1])
        base = 1.0 if "norm" in name.lower() else 0.0
        values = struct.pack(f"<{count}f", *(base + x * scale for x in formula(name, count)))
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


META, FLOATS = read(GOLDEN)
PAIRS = json.loads(META["pairs"])
FOLDERS = tempfile.TemporaryDirectory(prefix="weft-encoders-")


def folder(case, scores):
    """The case's folder; without `scores`, the same model's from sentence-transformers."""
    path = pathlib.Path(FOLDERS.name) / f"{case}-{scores}"
    if path.exists():
        return path
    path.mkdir()
    for name, text in json.loads(META[f"{case}/files"]).items():
        (path / name).write_text(text)
    shapes = json.loads(META[f"{case}/tensors"])
    if not scores:
        shapes = {name: entry for name, entry in shapes.items() if "classifier" not in name}
        kinds = ("Transformer", "Pooling", "Normalize")
        (path / "modules.json").write_text(json.dumps([
            {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "",
             "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)]))
        (path / "1_Pooling").mkdir()
        (path / "1_Pooling/config.json").write_text(json.dumps(
            {"word_embedding_dimension": 48, "pooling_mode_mean_tokens": True}))
    write_tensors(path / "model.safetensors", shapes)
    return path


LAYOUTS = ((), ("--local", "2", "--tp", "2"), ("--local", "2", "--pp", "2"))


class Encoders(unittest.TestCase):
    def served(self, case, scores, *words):
        positions = 128 if case == "bertPairs" else 127
        server = serving.Server(positions, *words, of=folder(case, scores))
        self.addCleanup(server.close)
        return server

    def ask(self, server, path, body, expected=200):
        status, answer = server.json("POST", path, body)
        self.assertEqual(status, expected, answer)
        return answer

    def close_to(self, got, expected):
        self.assertEqual(len(got), len(expected))
        for one, other in zip(got, expected):
            self.assertAlmostEqual(one, other, delta=1e-5)

    def test_scores(self):
        first, second = zip(*PAIRS)
        for case in ("bertPairs", "robertaPairs"):
            for words in LAYOUTS:
                server = self.served(case, True, *words)
                body = {"text_1": first, "text_2": second}
                answer = self.ask(server, "/v1/score", body)
                self.close_to([each["score"] for each in answer["data"]],
                              FLOATS[f"{case}/scores"])
                raw = self.ask(server, "/v1/score", body | {"use_activation": False})
                self.close_to([each["score"] for each in raw["data"]], FLOATS[f"{case}/logits"])

    def test_rerank(self):
        server = self.served("bertPairs", True)
        many = self.ask(server, "/v1/rerank", {"query": PAIRS[0][0],
                                               "documents": [PAIRS[0][1], PAIRS[1][1]] * 30})
        results = sorted(many["results"], key=lambda each: each["index"])
        for i, each in enumerate(results):  # in steps of many texts: the same bits
            self.assertEqual(each["relevance_score"], results[i % 2]["relevance_score"])
        self.close_to([each["relevance_score"] for each in results[:2]],
                      FLOATS["bertPairs/scores"][:2])
        long = self.ask(server, "/v1/rerank", {"query": "why", "documents": ["sun " * 1000]})
        self.assertEqual(long["usage"]["prompt_tokens"], 128)  # cut to the model's positions

    def test_embeddings(self):
        texts = [second for _, second in PAIRS]
        for case in ("bertPairs", "robertaPairs"):
            expected = FLOATS[f"{case}/vectors"]
            for words in LAYOUTS:
                server = self.served(case, False, *words)
                many = self.ask(server, "/v1/embeddings", {"input": texts * 8})["data"]
                for i, each in enumerate(many):
                    self.assertEqual(each["embedding"], many[i % len(texts)]["embedding"])
                for i in range(len(texts)):
                    self.close_to(many[i]["embedding"], expected[48 * i:48 * i + 48])

    def test_refused(self):
        server = self.served("bertPairs", False)
        for path, body in (("/v1/chat/completions", {"messages": [{"role": "user",
                                                                   "content": "a"}]}),
                           ("/v1/completions", {"prompt": "a"})):
            answer = self.ask(server, path, body, 400)
            self.assertIn("encoder", answer["error"]["message"])
        for words in (("run", folder("bertPairs", False), "-p", "a"),
                      ("bench", folder("bertPairs", False)),
                      ("train", folder("bertPairs", False), "--data", "synthetic:random-tokens:9:4",
                       "--steps", "1", "--seq-len", "8", "--no-output", "--dropout", "0")):
            ran = subprocess.run([serving.PROGRAM, *map(str, words)], capture_output=True,
                                 text=True, timeout=serving.PATIENCE)
            self.assertEqual(ran.returncode, 1, ran.stderr)
            self.assertIn("writes no text", ran.stderr)


if __name__ == "__main__":
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
