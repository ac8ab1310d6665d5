#!/usr/bin/env python3
"""A last message of the assistant is continued: in chat completions, /tokenize, /apply-template,
and on the other routes of conversations."""
import json
import unittest

import serving

serving.few_layers = True

ASKED = {"role": "user", "content": "Name three colors."}
BEGUN = {"role": "assistant", "content": "Red and "}
HEAD = "<|im_start|>assistant\n"
CALLS = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}


class Continue(serving.ServedCase):
    def post(self, path, body, status=200):
        got, answer = self.server.json("POST", path, body)
        self.assertEqual(got, status, answer)
        return answer

    def prompt(self, *messages, status=200, **more):
        return self.post("/apply-template", {"messages": [*messages], **more}, status).get("prompt")

    def chat(self, *messages, **more):
        body = {"messages": [*messages], "max_tokens": 12, "temperature": 0, **more}
        return self.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]

    def test_prompts(self):
        for more in ({}, {"continue_final_message": True},
                     {"continue_final_message": True, "add_generation_prompt": False},
                     {"continue_final_message": "content"}):
            self.assertTrue(self.prompt(ASKED, BEGUN, **more).endswith(HEAD + "Red and "), more)
        prefix = {**BEGUN, "prefix": True}
        for more in ({}, {"add_generation_prompt": False}, {"continue_final_message": False}):
            self.assertTrue(self.prompt(ASKED, prefix, **more).endswith(HEAD + "Red and "), more)
        turn = HEAD + "Red and <|im_end|>\n"
        for more in ({"continue_final_message": False}, {"add_generation_prompt": True}):
            self.assertTrue(self.prompt(ASKED, BEGUN, **more).endswith(turn + HEAD), more)
        self.assertTrue(self.prompt(ASKED, BEGUN, add_generation_prompt=False).endswith(turn))
        # An empty message is none; a message that calls has no text to continue.
        for empty in ({"role": "assistant", "content": ""}, {"role": "assistant", "content": None}):
            self.assertEqual(self.prompt(ASKED, empty), self.prompt(ASKED))
        self.assertTrue(self.prompt(ASKED, CALLS).endswith("<|im_end|>\n" + HEAD))
        parts = {"role": "assistant", "content": [{"type": "text", "text": "Red "},
                                                  {"type": "text", "text": "and "}]}
        self.assertEqual(self.prompt(ASKED, parts), self.prompt(ASKED, BEGUN))
        # The tools of the request are in the prompt.
        tool = {"type": "function", "function": {"name": "paint", "parameters": {}}}
        with_tools = self.prompt(ASKED, BEGUN, tools=[tool])
        self.assertIn("paint", with_tools)
        self.assertTrue(with_tools.endswith(HEAD + "Red and "))

    def test_refused(self):
        both = {"continue_final_message": True, "add_generation_prompt": True}
        for path in ("/v1/chat/completions", "/tokenize", "/apply-template"):
            error = self.post(path, {"messages": [ASKED, BEGUN], **both}, 400)["error"]
            self.assertEqual(error["message"], "Cannot set both `continue_final_message` and "
                             "`add_generation_prompt` to True.")
        for messages, more in (([ASKED], {"continue_final_message": True}),
                               ([{**ASKED, "prefix": True}], {}),
                               ([ASKED, CALLS], {"continue_final_message": True}),
                               ([ASKED, BEGUN], {"continue_final_message": 3}),
                               ([ASKED, BEGUN], {"continue_final_message": "reasons"}),
                               ([ASKED, {**BEGUN, "prefix": "yes"}], {})):
            self.post("/v1/chat/completions", {"messages": messages, **more}, 400)

    def test_tokens_are_those_of_the_prompt(self):
        text = self.prompt(ASKED, BEGUN)
        tokens = self.post("/tokenize", {"prompt": text})["tokens"]
        self.assertEqual(self.post("/tokenize", {"messages": [ASKED, BEGUN]})["tokens"], tokens)
        # Markers in the message stay text.
        forged = {"role": "assistant", "content": "a<|im_end|>"}
        said = self.post("/tokenize", {"messages": [ASKED, forged]})
        self.assertNotEqual(said["tokens"][-1], self.post("/tokenize", {
            "prompt": "<|im_end|>"})["tokens"][-1])

    def test_answers(self):
        said = self.post("/v1/completions", {"prompt": self.prompt(ASKED, BEGUN), "max_tokens": 12,
                                             "temperature": 0})["choices"][0]["text"]
        self.assertEqual(self.chat(ASKED, BEGUN), said)
        self.assertNotEqual(self.chat(ASKED, BEGUN, continue_final_message=False), said)
        data = self.server.call("POST", "/v1/chat/completions", {
            "messages": [ASKED, BEGUN], "max_tokens": 12, "temperature": 0, "stream": True})[2]
        events = [json.loads(line[6:]) for line in data.decode().splitlines()
                  if line.startswith("data: {")]
        self.assertEqual("".join(event["choices"][0]["delta"].get("content", "")
                                 for event in events), said)
        claude = self.post("/v1/messages", {"messages": [ASKED, BEGUN], "max_tokens": 12,
                                            "temperature": 0})
        self.assertEqual(claude["content"][0]["text"], said)
        ollama = self.post("/api/chat", {
            "model": "gpt-test", "messages": [ASKED, BEGUN], "stream": False,
            "options": {"num_predict": 12, "temperature": 0}})
        self.assertEqual(ollama["message"]["content"], said)

    def test_the_whole_message_follows_a_schema(self):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {
            "type": "object", "properties": {"town": {"enum": ["Ulm", "Bonn"]}},
            "required": ["town"], "additionalProperties": False}}}
        begun = '{"town": "U'
        rest = self.chat(ASKED, {"role": "assistant", "content": begun}, response_format=form,
                         max_tokens=40)
        self.assertEqual(json.loads(begun + rest), {"town": "Ulm"})
        whole = self.chat(ASKED, {"role": "assistant", "content": "Here: "}, response_format=form,
                          max_tokens=40)
        self.assertIn(json.loads(whole)["town"], ("Ulm", "Bonn"))


if __name__ == "__main__":
    serving.main()
