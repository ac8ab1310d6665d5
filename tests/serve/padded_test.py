#!/usr/bin/env python3
"""A model whose embedding has more rows than its tokenizer has tokens, as in Qwen."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import serving

ABACUS = pathlib.Path(__file__).resolve().parents[2] / "models" / "abacus"
ROWS, PAD = 640, 633
CONFIG = {"model_type": "llama", "hidden_size": 48, "intermediate_size": 96,
          "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 6,
          "head_dim": 8, "vocab_size": ROWS, "rms_norm_eps": 1e-5,
          "max_position_embeddings": 128, "tie_word_embeddings": True}


class PaddedCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        new = pathlib.Path(cls.folder.name) / "new"
        new.mkdir()
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(ABACUS / name, new)
        (new / "config.json").write_text(json.dumps(CONFIG))
        out = pathlib.Path(cls.folder.name) / "out"
        subprocess.run([serving.PROGRAM, "train", new, "--from-scratch", "--data",
                        "synthetic:random-tokens:17:8", "--steps", "1", "--seq-len", "16", "-t",
                        "1", "--save-format", "hf", "--output-dir", out],
                       check=True, stdout=subprocess.DEVNULL)
        cls.server = serving.Server(128, of=str(out / "model"))

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        cls.folder.cleanup()

    def test_ids_without_text(self):
        status, answer = self.server.json("POST", "/detokenize", {"tokens": [5, PAD, 6]})
        self.assertEqual(status, 200, answer)
        _, plain = self.server.json("POST", "/detokenize", {"tokens": [5, 6]})
        self.assertEqual(answer["prompt"], plain["prompt"])
        for number in (ROWS, 2 ** 31, 2 ** 40, -1):
            status, answer = self.server.json("POST", "/detokenize", {"tokens": [5, number]})
            self.assertEqual(status, 400)
            self.assertIn(f"Token {number} ", answer["error"]["message"])
            self.assertIn(f"0 to {ROWS - 1}", answer["error"]["message"])

    def test_ids_in_and_out(self):
        for stream in (False, True):
            body = {"prompt": [5, PAD, ROWS - 1], "max_tokens": 4, "temperature": 0,
                    "logit_bias": {str(PAD): 100}, "logprobs": 2, "stream": stream}
            if not stream:
                status, answer = self.server.json("POST", "/v1/completions", body)
                self.assertEqual(status, 200, answer)
                self.assertEqual(answer["choices"][0]["text"], "")
                self.assertEqual(answer["usage"]["completion_tokens"], 4)
                self.assertEqual(answer["usage"]["prompt_tokens"], 3)
            else:
                status, _, text = self.server.call("POST", "/v1/completions", body)
                self.assertEqual(status, 200)
                self.assertIn(b"[DONE]", text)
        status, answer = self.server.json("POST", "/v1/completions",
                                          {"prompt": [5, ROWS], "max_tokens": 1})
        self.assertEqual(status, 400)
        self.assertIn(f"token {ROWS} ", answer["error"]["message"])

    def test_a_format_applies(self):
        body = {"messages": [{"role": "user", "content": "1 + 1"}], "max_tokens": 8,
                "logit_bias": {str(PAD): 100},
                "response_format": {"type": "json_schema", "json_schema": {
                    "name": "n", "schema": {"type": "integer", "minimum": 1, "maximum": 9}}}}
        status, answer = self.server.json("POST", "/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        self.assertIn(int(answer["choices"][0]["message"]["content"]), range(1, 10))


if __name__ == "__main__":
    serving.main()
