#!/usr/bin/env python3
"""Answers have all members that the clients' models require, with the right types. OpenAI's,
Anthropic's and Ollama's models check this strictly here; the packages themselves do not."""
import functools
import json
import os
import pathlib
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
os.environ["WEFT_MODEL"] = str(ROOT / "models/abacus/model.gguf")

import gguf_template  # noqa: E402
import serving  # noqa: E402

pydantic = serving.package("pydantic")
openai = serving.package("openai")
anthropic = serving.package("anthropic")
ollama = serving.package("ollama")
serving.package("openai.types.responses")
serving.package("anthropic.types.beta")

from anthropic.types import beta, MessageTokensCount, ModelInfo  # noqa: E402
from anthropic.types import Message, RawMessageStreamEvent  # noqa: E402
from openai import types  # noqa: E402
from openai.types import chat, responses  # noqa: E402

QUESTION = [{"role": "user", "content": "What is 47 + 38?"}]
PARAMETERS = {"type": "object", "required": ["sum"], "properties": {"sum": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "note", "parameters": PARAMETERS}}
ANTHROPIC_TOOL = {"name": "note", "input_schema": PARAMETERS}
OTHER = {"ping"}  # events in Anthropic's documentation that the package's union lacks


@functools.cache
def adapter(kind):
    """Building one takes longer than a request."""
    return pydantic.TypeAdapter(kind)


def events(data):
    lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


class Shapes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        file = os.path.join(cls.folder.name, "model.gguf")
        template = (ROOT / "tests/data/chat/chatml.jinja").read_text()
        gguf_template.with_template(serving.model(), file, template)
        cls.server = serving.Server(2048, of=file)

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        cls.folder.cleanup()

    def post(self, path, body):
        status, _, data = self.server.call("POST", path, {"model": "gpt-test", **body})
        self.assertEqual(status, 200, data)
        return data

    def check(self, kind, value):
        """The value conforms to the type, and no required member is absent."""
        try:
            found = adapter(kind).validate_json(json.dumps(value), strict=True)
        except pydantic.ValidationError as error:
            self.fail(f"{kind}: {error}\n{json.dumps(value)[:2000]}")
        return found

    def check_all(self, path, kind, event, body, **stream):
        self.check(kind, json.loads(self.post(path, body)))
        seen = set()
        for value in events(self.post(path, {**body, "stream": True, **stream})):
            if value.get("type") in OTHER:
                continue
            # OpenAI's server sends null until the end, which the package's type does not allow.
            for choice in value.get("choices", []) if event is types.Completion else []:
                choice["finish_reason"] = choice["finish_reason"] or "stop"
            self.check(event, value)
            seen.add(value.get("type") or value.get("object"))
        return seen

    def test_chat(self):
        for more in ({}, {"logprobs": True, "top_logprobs": 2}, {"n": 2}, {"stop": "8"},
                     {"tools": [TOOL], "tool_choice": "required"}, {"max_tokens": 1}):
            self.check_all("/v1/chat/completions", chat.ChatCompletion, chat.ChatCompletionChunk,
                           {"messages": QUESTION, "max_tokens": 40, **more},
                           stream_options={"include_usage": True})

    def test_completions(self):
        for more in ({}, {"logprobs": 2}, {"echo": True}, {"prompt": ["a", "b"], "n": 2},
                     {"echo": True, "max_tokens": 0}):
            self.check_all("/v1/completions", types.Completion, types.Completion,
                           {"prompt": "1 +", "max_tokens": 4, **more},
                           stream_options={"include_usage": True})

    def test_responses(self):
        tool = {"type": "function", "name": "note", "parameters": PARAMETERS}
        for more in ({}, {"tools": [tool], "tool_choice": "required"}, {"instructions": "Add."},
                     {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
                     {"max_output_tokens": 1}, {"metadata": {"a": "b"}}):
            seen = self.check_all("/v1/responses", responses.Response,
                                  responses.ResponseStreamEvent,
                                  {"input": "What is 47 + 38?", "max_output_tokens": 60, **more})
            self.assertIn("response.created", seen)
        made = json.loads(self.post("/v1/responses", {"input": "Hm?", "max_output_tokens": 4}))
        status, _, data = self.server.call("GET", f"/v1/responses/{made['id']}")
        self.assertEqual(status, 200)
        self.check(responses.Response, json.loads(data))

    def test_messages(self):
        for more in ({}, {"stop_sequences": ["8"]}, {"max_tokens": 1},
                     {"tools": [ANTHROPIC_TOOL], "tool_choice": {"type": "any"}}):
            body = {"messages": QUESTION, "max_tokens": 60, **more}
            for path, message, event in (
                    ("/v1/messages", Message, RawMessageStreamEvent),
                    ("/v1/messages?beta=true", beta.BetaMessage, beta.BetaRawMessageStreamEvent)):
                seen = self.check_all(path, message, event, body)
                self.assertLessEqual({"message_start", "message_delta", "message_stop"}, seen)
        for path, kind in (("/v1/messages/count_tokens", MessageTokensCount),
                           ("/v1/messages/count_tokens?beta=true", beta.BetaMessageTokensCount)):
            self.check(kind, json.loads(self.post(path, {"messages": QUESTION})))

    def test_models(self):
        status, _, data = self.server.call("GET", "/v1/models")
        self.assertEqual(status, 200)
        for value in json.loads(data)["data"]:
            for kind in (types.Model, ModelInfo, beta.BetaModelInfo):
                self.check(kind, value)
            self.assertEqual(value["max_input_tokens"], 2048)
        status, _, data = self.server.call("GET", "/v1/models/gpt-test")
        self.assertEqual(status, 200)
        for kind in (types.Model, ModelInfo, beta.BetaModelInfo):
            self.check(kind, json.loads(data))

    def test_embeddings(self):
        self.check(types.CreateEmbeddingResponse,
                   json.loads(self.post("/v1/embeddings", {"input": ["a", "b"]})))

    def test_a_function_that_returns_nothing(self):
        call = {"id": "call_1", "type": "function",
                "function": {"name": "note", "arguments": '{"sum": 85}'}}
        asked = [*QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}]
        said = []
        for content in ({"content": None}, {}, {"content": ""}, {"content": []}):
            said.append(json.loads(self.post("/v1/chat/completions", {
                "messages": [*asked, {"role": "tool", "tool_call_id": "call_1", **content}],
                "tools": [TOOL], "max_tokens": 8, "temperature": 0}))["choices"])
        self.assertEqual(said[1:], said[:1] * 3)
        status, _, data = self.server.call("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": None}]})
        self.assertEqual(status, 400, data)
        said = []
        for output in ({"output": None}, {}, {"output": ""}, {"output": []}):
            said.append(json.loads(self.post("/v1/responses", {
                "input": [*QUESTION, {"type": "function_call", "call_id": "call_1",
                                      "name": "note", "arguments": '{"sum": 85}'},
                          {"type": "function_call_output", "call_id": "call_1", **output}],
                "max_output_tokens": 8, "temperature": 0}))["usage"]["input_tokens"])
        self.assertEqual(said[1:], said[:1] * 3)

    def test_tools_on_ollamas_route(self):
        """The template shows no tools: they are described in plain text, as on the other routes."""
        shown = json.loads(self.post("/api/show", {}))
        self.assertIn("tools", shown["capabilities"])
        answers = [json.loads(self.post(path, {"messages": QUESTION, "tools": [TOOL], **more}))
                   for path, more in (
                       ("/v1/chat/completions", {"max_tokens": 8, "temperature": 0}),
                       ("/api/chat", {"stream": False,
                                      "options": {"num_predict": 8, "temperature": 0}}))]
        self.assertEqual(answers[0]["usage"]["prompt_tokens"], answers[1]["prompt_eval_count"])
        self.assertEqual(answers[0]["choices"][0]["message"]["content"],
                         answers[1]["message"]["content"])
        result = [*QUESTION, {"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "note", "arguments": {"sum": 85}}}]},
            {"role": "tool", "tool_name": "note", "content": "done"}]
        self.post("/api/chat", {"messages": result, "tools": [TOOL], "stream": False,
                                "options": {"num_predict": 4}})

    def test_ollama(self):
        options = {"options": {"num_predict": 12}}
        for path, kind, body in (
                ("/api/chat", ollama.ChatResponse, {"messages": QUESTION}),
                ("/api/chat", ollama.ChatResponse, {"messages": QUESTION, "tools": [TOOL]}),
                ("/api/chat", ollama.ChatResponse, {"messages": QUESTION, "logprobs": True}),
                ("/api/generate", ollama.GenerateResponse, {"prompt": "What is 47 + 38?"})):
            self.check(kind, json.loads(self.post(path, {**body, **options, "stream": False})))
            for line in self.post(path, {**body, **options}).decode().splitlines():
                self.check(kind, json.loads(line))
        self.check(ollama.EmbedResponse, json.loads(self.post("/api/embed", {"input": "a"})))
        self.check(ollama.EmbeddingsResponse,
                   json.loads(self.post("/api/embeddings", {"prompt": "a"})))
        for path, kind in (("/api/tags", ollama.ListResponse), ("/api/ps", ollama.ProcessResponse)):
            self.check(kind, json.loads(self.server.call("GET", path)[2]))
        self.check(ollama.ShowResponse, json.loads(self.post("/api/show", {})))


if __name__ == "__main__":
    serving.main()
