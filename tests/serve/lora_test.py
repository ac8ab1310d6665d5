#!/usr/bin/env python3
"""LoRA adapters selected by model name: with OpenAI's package, and on the other endpoints."""
import concurrent.futures
import json
import os
import subprocess
import tempfile
import unittest

import adapters
import serving

openai = serving.package("openai")
COLOURS = [{"role": "user", "content": "Name three colours."}]


class Lora(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        words = adapters.flags(cls.folder.name, "poet", "clerk")
        cls.server = serving.Server(2048, *words)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0,
                                   timeout=serving.PATIENCE)
        cls.base = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.close()
        cls.folder.cleanup()

    def chat(self, model, **more):
        return self.client.chat.completions.create(model=model, messages=COLOURS, temperature=0,
                                                   max_tokens=16, **more)

    def test_models(self):
        models = self.client.models.list().data
        self.assertEqual([model.id for model in models], [self.base, "poet", "clerk"])
        self.assertFalse(hasattr(models[0], "parent"))
        for model in models[1:]:
            self.assertEqual(model.parent, self.base)
        self.assertEqual(self.client.models.retrieve("clerk").parent, self.base)
        with self.assertRaises(openai.NotFoundError) as caught:
            self.chat("painter")
        self.assertIn("'poet'", caught.exception.body["message"])

    def test_each_adapter_changes_the_answer(self):
        alone = {model: self.chat(model) for model in (self.base, "poet", "clerk")}
        texts = {model: answer.choices[0].message.content for model, answer in alone.items()}
        self.assertEqual(len(set(texts.values())), 3, texts)
        for model, answer in alone.items():
            self.assertEqual(answer.model, model)
        # The same prompt concurrently, and from the prefix cache.
        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            for model, answer in [(model, pool.submit(self.chat, model))
                                  for model in list(texts) * 3]:
                self.assertEqual(answer.result().choices[0].message.content, texts[model])
        chunks = list(self.chat("poet", stream=True))
        self.assertEqual({chunk.model for chunk in chunks}, {"poet"})
        said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(said, texts["poet"])

    def test_every_endpoint(self):
        asked = {"/v1/completions": {"prompt": "Once upon a time", "max_tokens": 12},
                 "/v1/responses": {"input": "Name three colours.", "max_output_tokens": 12},
                 "/v1/messages": {"messages": COLOURS, "max_tokens": 12},
                 "/v1/embeddings": {"input": "Name three colours."}}
        for path, body in asked.items():
            said = {}
            for model in (self.base, "poet", "clerk"):
                status, answer = self.server.json("POST", path,
                                                  {"model": model, "temperature": 0, **body})
                self.assertEqual(status, 200, answer)
                self.assertEqual(answer["model"], model)
                for key in ("choices", "output", "content", "data"):
                    if key in answer:
                        parts = answer[key][0]
                        said[model] = json.dumps([parts.get("text"), parts.get("content"),
                                                  parts.get("embedding")], sort_keys=True)
            self.assertEqual(len(set(said.values())), 3, said)
            status, answer = self.server.json("POST", path, {"model": "painter", **body})
            self.assertEqual(status, 404, answer)
        for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [5]}),
                           ("/v1/messages/count_tokens", {"messages": COLOURS})):
            self.assertEqual(self.server.json("POST", path, {"model": "poet", **body})[0], 200)
            self.assertEqual(self.server.json("POST", path, {"model": "painter", **body})[0], 404)

    def test_status_and_metrics_show_them(self):
        self.chat("clerk")
        metrics = self.server.call("GET", "/metrics")[2].decode()
        self.assertRegex(metrics, r'lora_requests_total\{[^}]*lora_name="clerk"[^}]*\} [1-9]')
        self.assertEqual(self.server.status()["adapters"], ["poet", "clerk"])

    def test_invalid_flags(self):
        poet = os.path.join(self.folder.name, "poet")
        base = os.path.basename(serving.model())[:-len(".gguf")]
        for word, said in ((poet, "NAME=FOLDER"), (f"{base}={poet}", "model's own name"),
                           (f"gpt-test={poet}", "model's own name"),
                           (f"a={poet}-x", "adapter_config.json")):
            ran = subprocess.run([serving.PROGRAM, "serve", serving.model(), "-t", "1", "--ctx",
                                  "256", "--port", "0", "--alias", "gpt-test", "--lora", word],
                                 capture_output=True, text=True, timeout=60)
            self.assertNotEqual(ran.returncode, 0)
            self.assertIn(said, ran.stderr)


if __name__ == "__main__":
    serving.main()
