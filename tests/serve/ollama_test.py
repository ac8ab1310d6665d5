#!/usr/bin/env python3
"""Ollama's API, called with its package and LangChain's, and with invalid requests."""
import asyncio
import contextlib
import datetime
import functools
import http.client
import json
import math
import operator
import os
import pathlib
import re
import signal
import tempfile
import unittest

import adapters
import gguf_template
import serving
from processes import children
from wait import until

serving.few_layers = True

ollama = serving.package("ollama")
ROOT = pathlib.Path(__file__).resolve().parents[2]
COLOURS = [{"role": "user", "content": "Name three colours."}]
COUNTED = re.compile(r"(?m)generation_tokens_total\{.*\} 12$")
GREEDY = {"temperature": 0, "num_predict": 12}
CHAT, TEXT = "/api/chat", "/api/generate"
TOOL = {"type": "function", "function": {
    "name": "weather", "description": "The weather.",
    "parameters": {"type": "object", "required": ["city"],
                   "properties": {"city": {"type": "string", "enum": ["Ulm", "Bonn"]}}}}}


class OllamaCase(serving.ServedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = ollama.Client(host=cls.server.url, timeout=serving.PATIENCE)
        cls.model = cls.client.list().models[0].model

    def chat(self, **more):
        return self.client.chat(**{"model": self.model, "messages": COLOURS, "options": GREEDY,
                                   **more})

    def generate(self, prompt="Name three colours.", **more):
        return self.client.generate(**{"model": self.model, "prompt": prompt, "options": GREEDY,
                                       **more})

    def lines(self, path, body, headers=None):
        """Status, type and the JSON lines of a stream."""
        status, headers, data = self.server.call("POST", path, body, headers)
        return status, headers["Content-Type"], [json.loads(x) for x in data.splitlines()]

    def refused(self, path, body, status=400, says=""):
        got, answer = self.server.json("POST", path, body)
        self.assertEqual(got, status, answer)
        self.assertEqual(list(answer), ["error"])
        self.assertIn(says, answer["error"])
        self.assertNotIn("\n", answer["error"])

    def check_end(self, last, reasons=("stop", "length")):
        self.assertIs(last["done"], True)
        self.assertIn(last["done_reason"], reasons)
        for name in ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"):
            self.assertIsInstance(last[name], int, name)
            self.assertGreaterEqual(last[name], 0, name)
        self.assertGreater(last["prompt_eval_count"], 5)
        self.assertGreater(last["eval_count"], 0)
        parts = last["load_duration"] + last["prompt_eval_duration"] + last["eval_duration"]
        self.assertGreaterEqual(last["total_duration"], parts)


class Models(OllamaCase):
    def test_list(self):
        models = self.client.list().models
        self.assertEqual(len(models), 1)
        self.assertTrue(models[0].model.endswith(":latest"))
        self.assertGreater(models[0].size, 10 ** 7)
        self.assertRegex(models[0].digest, r"^[0-9a-f]{64}$")
        self.assertEqual(models[0].details.family, "llama")
        # (The embedding, in Q8_0, is larger than a few layers.)
        self.assertEqual(models[0].details.quantization_level,
                         "Q4_1" if serving.layers() > serving.LAYERS else "Q8_0")
        self.assertRegex(models[0].details.parameter_size, r"^(1[36]\d|42)\.\d\dM$")
        self.assertLess(models[0].modified_at, datetime.datetime.now(datetime.timezone.utc))

    def test_its_names_work_in_other_apis(self):
        """VS Code lists models with /api/tags and then uses /v1/chat/completions."""
        name = self.client.list().models[0].model
        for path, more in (("chat/completions", {"messages": COLOURS, "max_tokens": 1}),
                           ("completions", {"prompt": "a", "max_tokens": 1}),
                           ("responses", {"input": "a", "max_output_tokens": 1}),
                           ("messages", {"messages": COLOURS, "max_tokens": 1})):
            status, answer = self.server.json("POST", f"/v1/{path}", {"model": name, **more})
            self.assertEqual(status, 200, answer)
        self.assertEqual(self.server.json("GET", f"/v1/models/{name}")[0], 200)

    def test_running(self):
        models = self.client.ps().models
        self.assertEqual([m.model for m in models], [self.model])
        self.assertEqual(models[0].context_length, self.context)
        self.assertEqual(models[0].size_vram, 0)
        self.assertGreater(models[0].expires_at.year, 2200)

    def test_show(self):
        for name in (self.model, self.model.removesuffix(":latest"), "gpt-test",
                     "gpt-test:latest"):
            shown = self.client.show(name)
            self.assertEqual(shown.capabilities, ["completion", "tools"])
            self.assertIn("<|im_start|>", shown.template)
            info = shown.modelinfo
            self.assertEqual(info["general.architecture"], "llama")
            self.assertEqual(info["llama.context_length"], self.context)
            self.assertEqual(info["llama.embedding_length"], 576)
            self.assertEqual(info["tokenizer.ggml.tokens"], [])
            self.assertNotIn("tokenizer.chat_template", info)
            self.assertIn(str(self.context), shown.parameters)
        self.assertEqual(self.server.json("POST", "/api/show", {"name": "gpt-test"})[0], 200)

    def test_version(self):
        status, answer = self.server.json("GET", "/api/version")
        self.assertEqual(status, 200)
        self.assertRegex(answer["version"], r"^\d+\.\d+\.\d+$")
        for path in ("/", "/api/version", "/api/tags"):
            status, _, body = self.server.call("HEAD", path)
            self.assertEqual((status, body), (200, b""), path)

    def test_pull(self):
        self.assertEqual(self.client.pull(self.model).status, "success")
        said = [line.status for line in self.client.pull(self.model, stream=True)]
        self.assertEqual((said[0], said[-1]), ("pulling manifest", "success"))
        with self.assertRaises(ollama.ResponseError) as caught:
            self.client.pull("llama3.2")
        self.assertEqual(caught.exception.status_code, 404)
        self.assertIn("weft pull", caught.exception.error)

    def test_unsupported_routes(self):
        for call in (lambda: self.client.delete(self.model),
                     lambda: self.client.copy(self.model, "other"),
                     lambda: self.client.push(self.model),
                     lambda: self.client.create(model="mine", from_=self.model)):
            with self.assertRaises(ollama.ResponseError) as caught:
                call()
            self.assertEqual(caught.exception.status_code, 501)
            self.assertIn("weft serve", caught.exception.error)

    def test_unknown(self):
        for call in (lambda: self.chat(model="other"), lambda: self.generate(model="other:7b"),
                     lambda: self.client.show("other"),
                     lambda: self.client.embed("other", "text")):
            with self.assertRaises(ollama.ResponseError) as caught:
                call()
            self.assertEqual(caught.exception.status_code, 404)
            self.assertRegex(caught.exception.error, r"model 'other(:7b)?' not found")

    def test_load(self):
        self.assertEqual(self.generate(prompt="").done_reason, "load")
        self.assertEqual(self.chat(messages=[]).done_reason, "load")
        self.assertEqual(self.generate(prompt="", keep_alive=0).done_reason, "unload")
        self.assertEqual(self.chat(messages=[], keep_alive="5m").message.content, "")


class Chat(OllamaCase):
    def test_whole(self):
        answer = self.chat()
        self.assertEqual(answer.model, self.model)
        self.assertEqual(answer.message.role, "assistant")
        self.assertTrue(answer.message.content)
        self.assertIsNone(answer.message.thinking)
        self.assertIsNone(answer.message.tool_calls)
        self.check_end(answer)
        self.assertEqual(answer.eval_count, 12)
        made = datetime.datetime.fromisoformat(answer.created_at[:19] + "+00:00")
        self.assertLess(abs((datetime.datetime.now(datetime.timezone.utc) - made).seconds), 3600)

    def test_stream(self):
        lines = list(self.chat(stream=True))
        self.assertGreater(len(lines), 5)
        self.assertTrue(all(line.done is False for line in lines[:-1]))
        text = "".join(line.message.content for line in lines)
        self.assertEqual(text, self.chat().message.content)
        self.check_end(lines[-1])

    def test_async(self):
        async def ask():
            client = ollama.AsyncClient(host=self.server.url, timeout=serving.PATIENCE)
            stream = await client.chat(self.model, COLOURS, stream=True, options=GREEDY)
            return "".join([line.message.content async for line in stream])
        self.assertEqual(asyncio.run(ask()), self.chat().message.content)

    def test_streaming_is_the_default(self):
        for path, body in ((CHAT, {"messages": COLOURS}), (TEXT, {"prompt": "One, two,"})):
            status, kind, lines = self.lines(path, {"model": "gpt-test", "options": GREEDY, **body})
            self.assertEqual((status, kind), (200, "application/x-ndjson"))
            self.assertEqual(lines[-1]["model"], "gpt-test")
            self.check_end(lines[-1])

    def test_same_text_as_openai(self):
        said = self.server.json("POST", "/v1/chat/completions", {
            "messages": COLOURS, "temperature": 0, "max_tokens": 12})[1]
        self.assertEqual(self.chat().message.content, said["choices"][0]["message"]["content"])
        self.assertEqual(self.chat().prompt_eval_count, said["usage"]["prompt_tokens"])

    def test_options(self):
        self.assertEqual(self.chat(options={**GREEDY, "num_predict": 3}).done_reason, "length")
        full = self.chat(options={**GREEDY, "num_predict": 24}).message.content
        word = full.split()[3]
        stopped = self.chat(options={**GREEDY, "num_predict": 24, "stop": [word]})
        self.assertEqual(stopped.done_reason, "stop")
        self.assertEqual(stopped.message.content, full[:full.index(word)])
        drawn = {"temperature": 1.5, "num_predict": 12, "top_k": 0, "top_p": 1}
        one, again, other = [self.chat(options={**drawn, "seed": seed}).message.content
                             for seed in (7, 7, 8)]
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)
        free = {self.chat(options={**drawn, "seed": -1}).message.content for _ in range(3)}
        self.assertGreater(len(free), 1)
        plain = self.chat(options={**GREEDY, "num_predict": 24}).message.content
        bound = {"repeat_penalty": 100, "repeat_last_n": -1}
        self.assertNotEqual(
            plain, self.chat(options={**GREEDY, "num_predict": 24, **bound}).message.content)

    def test_options_without_effect(self):
        greedy = self.chat().message.content
        odd = {"num_ctx": 131072, "num_gpu": 99, "num_thread": 8, "mirostat": 0, "nonsense": {},
               "typical_p": 7, "num_keep": 4, "tfs_z": None, "stop": None, "top_k": -5,
               "top_p": 7, "min_p": -1, "numa": True, "temperature": -3, "num_predict": 12.9}
        self.assertEqual(self.chat(options=odd).message.content, greedy)
        self.refused(CHAT, {"model": "gpt-test", "options": {"mirostat": 2},
                            "messages": [{"role": "user", "content": "a"}]}, says="mirostat")

    def test_json(self):
        answer = self.chat(messages=[{"role": "user", "content": "A JSON object of colours."}],
                           format="json", options={"temperature": 0, "num_predict": 200,
                                                   "stop": []})
        if answer.done_reason == "stop":
            self.assertIsInstance(json.loads(answer.message.content), dict)
        self.assertTrue(answer.message.content.lstrip().startswith("{"))

    def test_schema(self):
        schema = {"type": "object", "required": ["colour"], "additionalProperties": False,
                  "properties": {"colour": {"enum": ["red", "blue"]}}}
        answer = self.chat(format=schema, options={"temperature": 0})
        self.assertIn(json.loads(answer.message.content)["colour"], ("red", "blue"))
        greedy = {"temperature": 0}
        text = "".join(x.response for x in self.generate(format=schema, options=greedy,
                                                         stream=True))
        self.assertEqual(text, self.generate(format=schema, options=greedy).response)
        self.assertIn(json.loads(text)["colour"], ("red", "blue"))

    def test_logprobs(self):
        answer = self.chat(logprobs=True, top_logprobs=2)
        self.assertEqual(len(answer.logprobs), 12)
        self.assertEqual("".join(each.token for each in answer.logprobs), answer.message.content)
        for each in answer.logprobs:
            self.assertLessEqual(each.logprob, 0)
            self.assertEqual(len(each.top_logprobs), 2)
            self.assertEqual(each.top_logprobs[0].token, each.token)
        alone = self.generate(logprobs=True)
        self.assertIsNone(alone.logprobs[0].top_logprobs)
        streamed = [each for line in self.chat(logprobs=True, stream=True)
                    for each in line.logprobs or []]
        self.assertEqual([x.token for x in streamed], [x.token for x in answer.logprobs])

    def test_a_system_message_counts(self):
        system = {"role": "System", "content": "You speak like a pirate."}
        answers = [self.chat(messages=messages, logprobs=True)
                   for messages in ([system, *COLOURS], COLOURS)]
        self.assertGreater(answers[0].prompt_eval_count, answers[1].prompt_eval_count - 30)
        # On some CPUs the texts of the tiny model are equal.
        self.assertNotEqual(*([token.logprob for token in answer.logprobs] for answer in answers))

    def test_unsupported_features(self):
        for more, says in (({"think": True}, "does not support thinking"),
                           ({"think": "high"}, "does not support thinking"),
                           ({"messages": [{"role": "user", "content": "What is it?",
                                           "images": ["aGVsbG8="]}]}, "text only")):
            with self.assertRaises(ollama.ResponseError) as caught:
                self.chat(**more)
            self.assertEqual(caught.exception.status_code, 400)
            self.assertIn(says, caught.exception.error)
        self.assertTrue(self.chat(think=False).message.content)
        self.assertTrue(self.chat(tools=[]).message.content)

    def test_a_disconnect_frees_pages(self):
        before = self.server.status()["requests"]["cancelled"]
        stream = self.chat(stream=True, options={"num_predict": -1, "ignore_eos": True})
        next(stream)
        self.assertEqual(self.server.wait_for(lambda s: s["running"] == 1, 1)["running"], 1)
        stream.close()
        after = self.server.wait_for(lambda s: s["running"] == 0, 1)
        self.assertEqual(after["running"], 0)
        self.assertEqual(after["requests"]["cancelled"], before + 1)

    @serving.nightly_only
    def test_a_disconnect_during_prefill(self):
        before = self.server.status()["requests"]["cancelled"]
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
        text = " ".join(f"word {i}" for i in range(380))
        connection.request("POST", TEXT, json.dumps({"model": "gpt-test", "prompt": text}))
        self.server.wait_for(lambda s: s["running"] == 1, 1)
        connection.sock.close()
        connection.close()
        after = self.server.wait_for(
            lambda s: s["running"] == 0 and s["requests"]["cancelled"] == before + 1, 5)
        self.assertEqual(after["requests"]["cancelled"], before + 1)


class Generate(OllamaCase):
    def test_is_a_chat_of_one_message(self):
        answer = self.generate()
        self.assertEqual(answer.response, self.chat().message.content)
        self.check_end(answer)
        streamed = list(self.generate(stream=True))
        self.assertEqual("".join(line.response for line in streamed), answer.response)
        self.assertEqual(list(streamed[-1].context), list(answer.context))
        self.assertEqual(len(answer.context), answer.prompt_eval_count + answer.eval_count)
        system = self.generate(system="You speak like a pirate.")
        self.assertEqual(system.response, self.chat(messages=[
            {"role": "system", "content": "You speak like a pirate."}, *COLOURS]).message.content)

    def test_context_continues(self):
        first = self.generate("My name is Zebedee. Say hello.")
        second = self.generate("What is my name?", context=first.context)
        alone = self.generate("What is my name?")
        self.assertEqual(second.prompt_eval_count,
                         len(first.context) + alone.prompt_eval_count)
        self.assertEqual(list(second.context)[:len(first.context)], list(first.context))

    def test_raw(self):
        text = "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n"
        answer = self.generate(text, raw=True)
        self.assertIsNone(answer.context)
        said = self.server.json("POST", "/v1/completions", {
            "prompt": "One, two,", "temperature": 0, "max_tokens": 12})[1]["choices"][0]["text"]
        self.assertEqual(self.generate("One, two,", raw=True).response, said)
        # Special tokens are recognized: the prompt has fewer tokens than its spelling.
        spelled = self.server.json("POST", "/tokenize", {"prompt": text,
                                                         "parse_special": False})[1]["count"]
        self.assertLess(answer.prompt_eval_count, spelled)

    def test_refused(self):
        for more, says in (({"suffix": "}"}, "does not support insert"),
                           ({"template": "{{ .Prompt }}"}, "raw"),
                           ({"raw": True, "system": "a"}, "raw mode"),
                           ({"images": ["aGVsbG8="]}, "text only"),
                           ({"context": [-1]}, "context")):
            with self.assertRaises(ollama.ResponseError) as caught:
                self.generate(**more)
            self.assertEqual(caught.exception.status_code, 400)
            self.assertIn(says, caught.exception.error)


class Embed(OllamaCase):
    def test_vectors(self):
        texts = ["The cat sat on the mat.", "Stock prices fell."]
        answer = self.client.embed(self.model, texts)
        self.assertEqual(answer.model, self.model)
        theirs = self.server.json("POST", "/v1/embeddings", {"input": texts})[1]
        self.assertEqual([list(v) for v in answer.embeddings],
                         [each["embedding"] for each in theirs["data"]])
        self.assertEqual(answer.prompt_eval_count, theirs["usage"]["prompt_tokens"])
        self.assertEqual(list(self.client.embed(self.model, texts[0]).embeddings[0]),
                         list(answer.embeddings[0]))
        self.assertEqual(list(self.client.embeddings(self.model, texts[0]).embedding),
                         list(answer.embeddings[0]))
        short = self.client.embed(self.model, texts, dimensions=8).embeddings
        self.assertEqual([len(v) for v in short], [8, 8])
        self.assertAlmostEqual(math.fsum(x * x for x in short[0]), 1, places=5)

    def test_empty_input(self):
        for nothing in ("", []):
            self.assertEqual(list(self.client.embed(self.model, nothing).embeddings), [])
        self.assertEqual(list(self.client.embeddings(self.model, "").embedding), [])

    def test_too_long(self):
        long = "word and " * 3000
        answer = self.client.embed(self.model, long)
        self.assertEqual(answer.prompt_eval_count, self.context)
        with self.assertRaises(ollama.ResponseError) as caught:
            self.client.embed(self.model, long, truncate=False)
        self.assertEqual(caught.exception.status_code, 400)
        if serving.nightly():
            self.assertEqual(len(self.client.embed(self.model, "\u00e4" * 40000).embeddings), 1)


class Hostile(OllamaCase):
    context = 128

    def tearDown(self):
        self.assertTrue(self.generate("One, two,").response)
        after = self.server.wait_for(lambda s: s["running"] + s["waiting"] == 0, 1)
        self.assertEqual(after["running"] + after["waiting"], 0)

    def test_length_without_bound(self):
        for most in (-1, -2, 0):
            answer = self.chat(options={"temperature": 0, "num_predict": most})
            self.assertGreater(answer.eval_count, 12)

    def test_no_json(self):
        for path in (CHAT, TEXT, "/api/embed", "/api/embeddings", "/api/show", "/api/pull"):
            for body in (b"", b"{", b"[1]", b"null", b'"a"', b"\x00", b"[" * 100000):
                self.refused(path, body)
            self.refused(path, {}, says="model is required")
            self.refused(path, {"model": None}, says="model is required")
            self.refused(path, {"model": ["gpt-test"]}, says="model")
            self.refused(path, {"model": "x" * 100000}, status=404, says="not found")

    def test_wrong_types(self):
        def tries(path, base, name, *values):
            for value in values:
                self.refused(path, {"model": "gpt-test", **base, name: value})
        chat, text = {"messages": COLOURS}, {"prompt": "a"}
        tries(CHAT, {}, "messages", "a", {}, 5, [5], [[]], [None], [{}], [{"role": 5}],
              [{"role": "robot", "content": "a"}], [{"role": "user", "content": 5}],
              [{"role": "user", "content": "a", "images": "b"}],
              [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}],
              [{"role": "assistant", "tool_calls": {}}],
              [{"role": "assistant", "tool_calls": [5]}],
              [{"role": "assistant", "tool_calls": [{"function": {}}]}],
              [{"role": "assistant", "tool_calls": [
                  {"function": {"name": "a", "arguments": "{}"}}]}],
              [{"role": "tool", "content": "a", "tool_name": 5}],
              [{"role": "assistant", "thinking": [], "content": "a"}],
              COLOURS * 10_001,
              [{"role": "assistant", "tool_calls": [{"function": {"name": "a"}}] * 1001}])
        for path, base in ((CHAT, chat), (TEXT, text)):
            tries(path, base, "stream", 1, "yes")
            tries(path, base, "format", "yaml", 5, [], True)
            tries(path, base, "think", "much", 5, {})
            tries(path, base, "keep_alive", True, {}, [])
            tries(path, base, "logprobs", 1)
            tries(path, base, "top_logprobs", -1, 21, "2")
            tries(path, base, "options", 5, [], "a", *({name: bad} for name, bad in (
                ("temperature", "hot"), ("top_k", "a"), ("top_k", [1]), ("seed", "x"),
                ("stop", 5), ("stop", [5]), ("stop", ["x"] * 17), ("num_predict", "many"),
                ("num_ctx", "big"), ("presence_penalty", 9), ("repeat_last_n", {}))))
        tries(CHAT, chat, "tools", 5, {}, "a")
        tries(TEXT, {}, "prompt", 5, ["a"])
        tries(TEXT, text, "context", 5, ["a"], [1.5], [10 ** 12], [49152])
        tries(TEXT, text, "raw", "yes")
        tries("/api/embed", {}, "input", 5, {}, [5], [[1]], ["a", ""], ["a", None])
        tries("/api/embed", {"input": "a"}, "dimensions", -1, 10 ** 9, "8")
        tries("/api/embed", {"input": "a"}, "truncate", "no")
        tries("/api/embeddings", {}, "prompt", 5, ["a"])

    def test_null_means_absent(self):
        nothing = {name: None for name in (
            "options", "format", "think", "keep_alive", "stream", "tools", "logprobs", "images",
            "suffix", "system", "template", "context", "raw", "top_logprobs", "truncate")}
        for path, base in ((CHAT, {"messages": [{"role": "user", "content": "a",
                                                 "images": None, "tool_calls": None}]}),
                           (TEXT, {"prompt": "a"})):
            status, kind, lines = self.lines(path, {
                "model": "gpt-test", **base, **nothing, "options": {"num_predict": 2}})
            self.assertEqual((status, kind), (200, "application/x-ndjson"))
            self.assertIs(lines[-1]["done"], True)

    def test_huge_numbers(self):
        for value in (10 ** 30, -10 ** 30, 2 ** 63, 1e300, -1e300):
            for name in ("seed", "num_predict", "num_ctx", "top_k", "temperature", "repeat_last_n",
                         "repeat_penalty", "keep_alive"):
                body = {"model": "gpt-test", "prompt": "a", "stream": False,
                        "options": {"num_predict": 2, name: value}}
                status, answer = self.server.json("POST", TEXT, body)
                self.assertIn(status, (200, 400), answer)
                if status == 400:
                    self.assertIn(name, answer["error"])

    def test_prompts_beyond_the_context(self):
        long = "word " * 200
        for path, body in ((CHAT, {"messages": [{"role": "user", "content": long}]}),
                           (TEXT, {"prompt": long}), (TEXT, {"prompt": long, "raw": True}),
                           (TEXT, {"prompt": "a", "context": [5] * 200})):
            self.refused(path, {"model": "gpt-test", **body}, says="context")
        self.refused(TEXT, {"model": "gpt-test", "prompt": "a" * 10 ** 7}, says="context")

    def test_methods_and_paths(self):
        for method, path, allowed in (
                ("GET", CHAT, "POST"), ("POST", "/api/tags", "GET, HEAD"), ("DELETE", CHAT, "POST"),
                ("POST", "/api/delete", "DELETE"), ("POST", "/api/nothing", None),
                ("POST", "/api/blobs/sha256:00", None), ("GET", "/api/", None)):
            status, headers, body = self.server.call(method, path)
            self.assertEqual(status, 405 if allowed else 404, path)
            self.assertEqual(headers["Allow"], allowed, path)
            self.assertIsInstance(json.loads(body)["error"], str)

    def test_web_forms_are_refused(self):
        status, answer = self.server.json("POST", CHAT, "a=b", {
            "Content-Type": "application/x-www-form-urlencoded", "Origin": self.server.url})
        self.assertIn(status, (403, 415), answer)


class Templated(unittest.TestCase):
    """A model with another model's template."""

    def serve(self, template, model=None):
        """model: else the whole one, which must call tools."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = os.path.join(folder.name, "model.gguf")
        text = (ROOT / f"tests/data/chat/{template}.jinja").read_text()
        gguf_template.with_template(model or serving.whole_model(), file, text)
        server = serving.Server(4096, of=file)
        self.addCleanup(server.close)
        return server, ollama.Client(host=server.url, timeout=serving.PATIENCE)

    # A call of Llama 3 is plain JSON: the output of the requested format is a call.
    CALL = {"type": "object", "required": ["name", "parameters"], "additionalProperties": False,
            "properties": {"name": {"const": "weather"}, "parameters": {
                "type": "object", "required": ["city"], "additionalProperties": False,
                "properties": {"city": {"const": "Ulm"}}}}}
    QUESTION = {"role": "user", "content": "The weather in Ulm?"}

    def test_tools(self):
        server, client = self.serve("llama3")
        self.assertIn("tools", client.show("gpt-test").capabilities)

        def weather(city: str) -> str:
            """The weather.

            Args:
              city: Its name.
            """
            return city

        ask = {"model": "gpt-test", "tools": [weather], "format": self.CALL,
               "options": {"temperature": 0, "num_predict": 60}}
        first = client.chat(messages=[self.QUESTION], **ask)
        calls = first.message.tool_calls
        self.assertEqual([(c.function.name, dict(c.function.arguments)) for c in calls],
                         [("weather", {"city": "Ulm"})])
        self.assertFalse(first.message.content)
        self.assertEqual(first.done_reason, "stop")
        streamed = [c for line in client.chat(messages=[self.QUESTION], stream=True, **ask)
                    for c in line.message.tool_calls or []]
        self.assertEqual([dict(c.function.arguments) for c in streamed], [{"city": "Ulm"}])
        result = {"role": "tool", "tool_name": "weather", "content": "21.5 degrees"}
        second = client.chat(model="gpt-test", messages=[self.QUESTION, first.message, result],
                             tools=[weather], options=GREEDY)
        self.assertTrue(second.message.content)
        self.assertGreater(second.prompt_eval_count, first.prompt_eval_count)

    @serving.nightly_only
    def test_tools_of_langchain(self):
        langchain = serving.package("langchain_ollama")
        messages = serving.package("langchain_core.messages")
        server, _ = self.serve("llama3")
        ask = {"base_url": server.url, "model": "gpt-test", "temperature": 0, "num_predict": 60}
        question = messages.HumanMessage(self.QUESTION["content"])
        model = langchain.ChatOllama(**ask, format=self.CALL).bind_tools([TOOL])
        whole = model.invoke([question])
        for first in (whole, functools.reduce(operator.add, model.stream([question]))):
            self.assertEqual([(call["name"], call["args"]) for call in first.tool_calls],
                             [("weather", {"city": "Ulm"})])
            result = messages.ToolMessage("21.5 degrees", tool_call_id=first.tool_calls[0]["id"])
            second = langchain.ChatOllama(**ask).bind_tools([TOOL]).invoke(
                [question, first, result])
            self.assertTrue(second.content)

    def test_turns_are_those_of_openai(self):
        """Calls and results without ids, with names and arguments as objects."""
        asked = {"city": "Ulm"}
        for template in serving.some(("hermes", "mistral", "llama3", "qwen"), 2):
            with self.subTest(template):
                server, client = self.serve(template, serving.model())
                calls = [{"function": {"name": "weather", "arguments": asked}}]
                mine = [self.QUESTION, {"role": "assistant", "content": "", "tool_calls": calls},
                        {"role": "tool", "tool_name": "weather", "content": "21.5 degrees"}]
                answer = client.chat(model="gpt-test", messages=mine, tools=[TOOL],
                                     options={"temperature": 0, "num_predict": 1})
                call = {"id": "call_00000000", "type": "function",
                        "function": {"name": "weather", "arguments": json.dumps(asked)}}
                theirs = [self.QUESTION, {"role": "assistant", "tool_calls": [call]},
                          {"role": "tool", "tool_call_id": call["id"], "name": "weather",
                           "content": "21.5 degrees"}]
                status, tokens = server.json("POST", "/tokenize",
                                             {"messages": theirs, "tools": [TOOL]})
                self.assertEqual(status, 200, tokens)
                self.assertEqual(answer.prompt_eval_count, tokens["count"])

    def test_thinking(self):
        server, client = self.serve("qwen", serving.model())
        self.assertEqual(client.show("gpt-test").capabilities,
                         ["completion", "tools", "thinking"])
        ask = {"model": "gpt-test", "messages": COLOURS, "options": GREEDY}

        def count(**variables):
            return server.json("POST", "/tokenize", {
                "messages": COLOURS, "chat_template_kwargs": variables})[1]["count"]
        plain = client.chat(think=False, **ask)
        self.assertTrue(plain.message.content)
        self.assertEqual(plain.prompt_eval_count, count(enable_thinking=False))
        for think in (True, "low"):
            self.assertEqual(client.chat(think=think, **ask).prompt_eval_count,
                             count(enable_thinking=True))
        server, client = self.serve("deepseek", serving.model())
        thought = client.chat(**ask)
        if client.generate(model="gpt-test", prompt="Hm?", options=GREEDY).thinking:
            self.assertTrue(thought.message.thinking)


class Insert(unittest.TestCase):
    def test_suffix(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "model.gguf")
            gguf_template.with_keys(serving.model(), file, {
                f"tokenizer.ggml.fim_{name}_token_id": 11 + i
                for i, name in enumerate(("pre", "suf", "mid"))})
            server = serving.Server(512, of=file)
            try:
                client = ollama.Client(host=server.url, timeout=serving.PATIENCE)
                self.assertIn("insert", client.show("gpt-test").capabilities)
                ends = {"prompt": "The capital of France is", "suffix": ", and Rome of Italy."}
                answer = client.generate("gpt-test", **ends, options=GREEDY)
                theirs = server.json("POST", "/v1/completions", {
                    **ends, "temperature": 0, "max_tokens": 12})[1]
                self.assertEqual(answer.response, theirs["choices"][0]["text"])
                self.assertEqual(answer.prompt_eval_count, theirs["usage"]["prompt_tokens"])
                self.assertIsNone(answer.context)
                text = "".join(line.response for line in client.generate(
                    "gpt-test", **ends, options=GREEDY, stream=True))
                self.assertEqual(text, answer.response)
                first = client.generate("gpt-test", suffix=ends["suffix"], options=GREEDY)
                self.assertGreater(first.prompt_eval_count, 5)
                same = client.generate("gpt-test", **ends, system="Be a pirate.", options=GREEDY)
                self.assertEqual(same.response, answer.response)
            finally:
                server.close()


@contextlib.contextmanager
def served_to_alice(limits=""):
    """A server that requires a key, and a header with a valid one."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "keys")
        made = json.loads(serving.weft("key", "new", "alice", "--json"))
        with open(path, "w") as file:
            file.write(made["line"] + limits + "\n")
        server = serving.Server(2048, "--api-key-file", path)
        try:
            yield server, {"Authorization": f"Bearer {made['key']}"}
        finally:
            server.close()


class Others(unittest.TestCase):
    def test_adapters(self):
        with tempfile.TemporaryDirectory() as folder:
            server = serving.Server(2048, *adapters.flags(folder, "poet"))
            try:
                client = ollama.Client(host=server.url, timeout=serving.PATIENCE)
                models = client.list().models
                self.assertEqual(models[1].model, "poet:latest")
                self.assertNotEqual(models[0].digest, models[1].digest)
                said = [client.chat(model=name, messages=COLOURS, options=GREEDY)
                        for name in ("gpt-test", "poet", "poet:latest")]
                self.assertEqual(said[1].message.content, said[2].message.content)
                self.assertNotEqual(said[0].message.content, said[1].message.content)
                self.assertEqual(said[2].model, "poet:latest")
                self.assertEqual(client.show("poet").details.parent_model, models[0].model
                                 .removesuffix(":latest"))
            finally:
                server.close()

    def test_keys(self):
        with served_to_alice() as (server, alices):
            for headers in ({}, {"Authorization": "Bearer nobody"}):
                stranger = ollama.Client(host=server.url, headers=headers)
                for call in (stranger.list, stranger.ps,
                             lambda: stranger.show("gpt-test"),
                             lambda: stranger.chat("gpt-test", COLOURS)):
                    with self.assertRaises(ollama.ResponseError) as caught:
                        call()
                    self.assertEqual(caught.exception.status_code, 401)
                    self.assertIn("API key", caught.exception.error)
            alice = ollama.Client(host=server.url, timeout=serving.PATIENCE, headers=alices)
            self.assertTrue(alice.chat("gpt-test", COLOURS, options=GREEDY).message.content)
            # A step's tokens are counted at its end, after the last one was sent.
            until(lambda: COUNTED.search(
                server.call("GET", "/metrics", headers=alices)[2].decode()),
                COUNTED.pattern, serving.PATIENCE)

    def test_a_disconnected_client_is_charged(self):
        with served_to_alice(" tokens=1000") as (server, alices):
            headers = {**alices, "Content-Type": "application/json"}
            connection = http.client.HTTPConnection("127.0.0.1", server.port,
                                                    timeout=serving.PATIENCE)
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": "Once", "max_tokens": 600, "ignore_eos": True, "stream": True}),
                headers)
            answer = connection.getresponse()
            for _ in range(400):
                answer.readline()  # a token, or the empty line after it
            connection.sock.close()
            connection.close()
            answer.close()

            def left():
                return int(server.call("POST", "/v1/completions", {
                    "prompt": "a", "max_tokens": 1}, headers)[1]["x-ratelimit-remaining-tokens"])
            # (Rarely: each look is charged a few tokens, too.)
            until(lambda: left() < 900, "a charge of more than 100 tokens", serving.PATIENCE,
                  pause_s=0.2)

    def test_sampling_by_the_model(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "model.gguf")
            gguf_template.with_keys(serving.model(), file, {"general.sampling.temp": 0.0})
            server = serving.Server(512, of=file)
            try:
                client = ollama.Client(host=server.url, timeout=serving.PATIENCE)
                shown = dict(line.split() for line in
                             client.show("gpt-test").parameters.splitlines())
                self.assertEqual(shown, {"num_ctx": "512", "temperature": "0", "top_k": "40",
                                         "top_p": "0.95", "min_p": "0.05"})
                said = [client.chat("gpt-test", COLOURS, options=options).message.content
                        for options in ({"num_predict": 12}, GREEDY)]
                self.assertEqual(said[0], said[1])
            finally:
                server.close()

    @serving.nightly_only
    def test_a_rank_is_lost_under_a_stream(self):
        server = serving.Server(1024, "--local", "2", "--tp", "2", "--timeout-ms", "4000",
                                "--max-restarts", "0")
        try:
            client = ollama.Client(host=server.url, timeout=serving.PATIENCE)
            stream = client.chat("gpt-test", COLOURS, stream=True, options={"ignore_eos": True})
            self.assertFalse(next(stream).done)
            os.kill(children(server.process.pid)[0], signal.SIGKILL)
            with self.assertRaises(ollama.ResponseError) as caught:
                for _ in stream:
                    pass
            self.assertIn("rank 1", caught.exception.error)
        finally:
            server.process.kill()
            server.process.wait()
            server.process.stdout.close()


@serving.nightly_only
class LangChain(OllamaCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.langchain = serving.package("langchain_ollama")

    def chat_model(self, **more):
        return self.langchain.ChatOllama(base_url=self.server.url, model="gpt-test", temperature=0,
                                         num_predict=12, **more)

    def test_chat(self):
        named = self.langchain.ChatOllama(base_url=self.server.url, validate_model_on_init=True,
                                          model=self.model.removesuffix(":latest"))
        self.assertTrue(named)
        answer = self.chat_model().invoke("Name three colours.")
        self.assertEqual(answer.content, self.chat().message.content)
        self.assertEqual(answer.usage_metadata["output_tokens"], 12)
        self.assertEqual(answer.response_metadata["done_reason"], "length")
        pieces = list(self.chat_model().stream("Name three colours."))
        self.assertEqual("".join(piece.content for piece in pieces), answer.content)

    def test_structured(self):
        schema = {"title": "Choice", "type": "object", "required": ["colour"],
                  "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}}}
        model = self.langchain.ChatOllama(base_url=self.server.url, model="gpt-test", temperature=0)
        said = model.with_structured_output(schema, method="json_schema").invoke("A colour?")
        self.assertIn(said["colour"], ("red", "blue"))

    def test_text_and_vectors(self):
        model = self.langchain.OllamaLLM(base_url=self.server.url, model="gpt-test", temperature=0,
                                         num_predict=12)
        self.assertEqual(model.invoke("Name three colours."), self.chat().message.content)
        vectors = self.langchain.OllamaEmbeddings(base_url=self.server.url, model="gpt-test")
        self.assertEqual(len(vectors.embed_query("The cat sat.")), 576)
        self.assertEqual(len(vectors.embed_documents(["a", "b"])), 2)


if __name__ == "__main__":
    serving.main()
