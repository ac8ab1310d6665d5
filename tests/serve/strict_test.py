#!/usr/bin/env python3
"""Schemas with unsupported keywords: rejected by name if the request says "strict", skipped
otherwise, in each API; the log names the keywords."""
import json
import os
import pathlib
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
os.environ["WEFT_MODEL"] = str(ROOT / "models/abacus/model.gguf")

import gguf_template  # noqa: E402
import serving  # noqa: E402
from wait import until  # noqa: E402

# Shows no tools, so the server describes them in text; the context is long enough.
TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
# Only one value remains if 'uniqueItems' is skipped, so any model writes it.
SET = {"type": "object", "required": ["s"], "properties": {"s": {
    "type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 2, "uniqueItems": True}}}
VALUE = {"s": [1, 1]}
# Supported schemas of common clients: pydantic's Decimal and multiples, zod's records, OpenAPI
# 3.0's nullable, draft 7's tuples.
KEPT = {"type": "object", "required": ["d", "n", "r", "t"], "properties": {
    "d": {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", "maxLength": 4},
    "n": {"type": "integer", "multipleOf": 5, "minimum": -9223372036854775808, "maximum": 99,
          "nullable": True},
    "r": {"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]},
          "additionalProperties": {"type": "boolean"}, "required": ["a", "b"]},
    "t": {"type": "array", "items": [{"const": "x"}, {"type": "boolean"}]}}}
QUESTION = [{"role": "user", "content": "7 x 8?"}]


def tool(schema, **more):
    return {"name": "f", "parameters": schema, **more}


class Strict(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.log = tempfile.NamedTemporaryFile()
        cls.folder = tempfile.TemporaryDirectory()
        model = os.path.join(cls.folder.name, "model.gguf")
        gguf_template.with_template(serving.model(), model, TEMPLATE)
        cls.server = serving.Server(2048, stderr=cls.log, of=model)

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        cls.log.close()
        cls.folder.cleanup()

    def ask(self, path, body):
        return self.server.json("POST", path, {"model": "gpt-test", **body})

    def chat(self, schema, **strict):
        return self.ask("/v1/chat/completions", {
            "messages": QUESTION, "max_tokens": 100, "response_format": {
                "type": "json_schema", "json_schema": {"name": "s", "schema": schema, **strict}}})

    def call(self, schema, **strict):
        return self.ask("/v1/chat/completions", {
            "messages": QUESTION, "max_tokens": 60, "tool_choice": "required",
            "tools": [{"type": "function", "function": tool(schema, **strict)}]})

    def respond(self, **strict):
        return self.ask("/v1/responses", {
            "input": "7 x 8?", "max_output_tokens": 60, "text": {"format": {
                "type": "json_schema", "name": "s", "schema": SET, **strict}}})

    def respond_by_call(self, **strict):
        return self.ask("/v1/responses", {
            "input": "7 x 8?", "max_output_tokens": 60, "tool_choice": "required",
            "tools": [{"type": "function", **tool(SET, **strict)}]})

    def line_of(self, word):
        lines = pathlib.Path(self.log.name)
        return until(lambda: next((line for line in lines.read_text().splitlines()
                                   if word in line), None), f"a line with {word}")

    def test_strict_is_refused(self):
        for ask in (self.respond, self.respond_by_call, lambda **more: self.chat(SET, **more),
                    lambda **more: self.call(SET, **more)):
            status, answer = ask(strict=True)
            self.assertEqual(status, 400, answer)
            self.assertIn("#/properties/s: the keyword 'uniqueItems' is not supported",
                          answer["error"]["message"])

    def test_others_are_answered(self):
        for strict in {}, {"strict": False}, {"strict": None}:
            status, answer = self.chat(SET, **strict)
            self.assertEqual(status, 200, answer)
            self.assertEqual(json.loads(answer["choices"][0]["message"]["content"]), VALUE)
            status, answer = self.call(SET, **strict)
            self.assertEqual(status, 200, answer)
            call = answer["choices"][0]["message"]["tool_calls"][0]["function"]
            self.assertEqual(json.loads(call["arguments"]), VALUE)
            status, answer = self.respond(**strict)
            self.assertEqual(status, 200, answer)
            self.assertEqual(json.loads(answer["output"][-1]["content"][0]["text"]), VALUE)
            status, answer = self.respond_by_call(**strict)
            self.assertEqual(status, 200, answer)
            self.assertEqual(json.loads(answer["output"][-1]["arguments"]), VALUE)
        self.assertIn(" left_out=uniqueItems", self.line_of("left_out"))

    def test_apis_without_strict(self):
        status, answer = self.ask("/api/chat", {"messages": QUESTION, "format": SET,
                                                "stream": False, "options": {"num_predict": 60}})
        self.assertEqual(status, 200, answer)
        self.assertEqual(json.loads(answer["message"]["content"]), VALUE)
        for more in {"json_schema": SET}, {"guided_json": SET}:
            status, answer = self.ask("/v1/completions", {"prompt": "7", "max_tokens": 60, **more})
            self.assertEqual(status, 200, answer)
            self.assertEqual(json.loads(answer["choices"][0]["text"]), VALUE)
        status, answer = self.ask("/completion", {"prompt": "7", "n_predict": 60,
                                                  "json_schema": SET})
        self.assertEqual(status, 200, answer)
        self.assertEqual(json.loads(answer["content"]), VALUE)
        self.assertIn(" left_out=uniqueItems", self.line_of(" path=/completion "))
        status, answer = self.ask("/v1/messages", {
            "messages": QUESTION, "max_tokens": 60, "tool_choice": {"type": "any"},
            "tools": [{"name": "f", "input_schema": SET}]})
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["content"][-1]["input"], VALUE)

    def test_usual_schemas_are_supported(self):
        for strict in {"strict": True}, {}:
            status, answer = self.chat(KEPT, **strict)
            self.assertEqual(status, 200, answer)
            value = json.loads(answer["choices"][0]["message"]["content"])
            self.assertRegex(value["d"], r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$")
            self.assertLessEqual(len(value["d"]), 4)
            self.assertTrue(value["n"] is None or value["n"] % 5 == 0)
            self.assertEqual(list(value["r"]), ["a", "b"])
            self.assertEqual(value["t"][0], "x")

    def test_invalid_schemas_are_always_rejected(self):
        status, answer = self.chat({"type": "array", "items": {"$ref": "#/$defs/none"}})
        self.assertEqual(status, 400, answer)
        self.assertIn("does not exist in the schema", answer["error"]["message"])


if __name__ == "__main__":
    serving.main()
