#!/usr/bin/env python3
"""Reasoning before constrained text and required calls, its budget, and the server's variables of
the chat template. The model is the real one with <think> and </think> in place of two tokens that
it never uses; a bias makes it reason."""
import json
import os
import subprocess
import tempfile
import unittest

import serving
import gguf_template

serving.few_layers = True

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% endif %}")
OPENED = TEMPLATE.replace("{% endif %}{% endif %}", "{% else %}<think>\n{% endif %}{% endif %}")
ASKED = [{"role": "user", "content": "Where?"}]
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": {
    "type": "object", "properties": {"town": {"enum": ["Ulm", "Bonn"]}}, "required": ["town"],
    "additionalProperties": False}}}
TOOL = {"type": "function", "function": {"name": "go", "parameters": FORM["json_schema"]["schema"]}}


def thinking_model(folder, template):
    path = os.path.join(folder, "think.gguf")
    gguf_template.with_template(serving.model(), path + ".part", template)
    gguf_template.with_tokens(path + ".part", path, {"<gh_stars>": "<think>",
                                                     "<issue_start>": "</think>"})
    return path


class Reasoning(unittest.TestCase):
    template, words = TEMPLATE, ()

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = serving.Server(1024, *cls.words, of=thinking_model(cls.folder.name,
                                                                        cls.template))
        cls.think, = cls.tokens("<think>")
        cls.yes, = cls.tokens(" yes")

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        cls.folder.cleanup()

    @classmethod
    def tokens(cls, text):
        return cls.server.json("POST", "/tokenize", {"content": text})[1]["tokens"]

    def ask(self, path="/v1/chat/completions", bias=True, **more):
        """The model begins to reason if it may, and then repeats "yes" endlessly."""
        biased = {"logit_bias": {self.think: 60, self.yes: 100}} if bias else {}
        body = {"messages": ASKED, "max_tokens": 60, "temperature": 0, **biased, **more}
        status, answer = self.server.json("POST", path, body)
        self.assertEqual(status, 200, answer)
        return answer["choices"][0] if path.endswith("completions") else answer

    def check_town(self, text):
        self.assertIn(json.loads(text)["town"], ("Ulm", "Bonn"))


class OfTheModel(Reasoning):
    """As Qwen 3: the template does not open the reasoning."""

    def test_a_schema_holds_after_the_reasoning(self):
        said = self.ask(response_format=FORM, thinking_token_budget=6)["message"]
        self.assertEqual(said["reasoning_content"].split(), ["yes"] * 6)
        self.check_town(said["content"])
        # Without a budget, this model reasons until the limit.
        cut = self.ask(response_format=FORM)
        self.assertEqual((cut["finish_reason"], cut["message"]["content"]), ("length", ""))
        # Without reasoning: switched off, or the model does not begin any.
        for more in ({"chat_template_kwargs": {"enable_thinking": False}},
                     {"thinking_token_budget": 0}, {"reasoning_budget_tokens": 0},
                     {"bias": False}):
            said = self.ask(response_format=FORM, **more)["message"]
            self.assertNotIn("reasoning_content", said)
            self.check_town(said["content"])

    def test_a_required_call_follows_the_reasoning(self):
        for choice in ("required", {"type": "function", "function": {"name": "go"}}):
            said = self.ask(tools=[TOOL], tool_choice=choice, thinking_budget_tokens=4)
            self.assertEqual(said["message"]["reasoning_content"].split(), ["yes"] * 4)
            call, = said["message"]["tool_calls"]
            self.assertEqual((call["function"]["name"], said["finish_reason"]),
                             ("go", "tool_calls"))
            self.check_town(call["function"]["arguments"])
            plain, = self.ask(tools=[TOOL], tool_choice=choice, bias=False)["message"]["tool_calls"]
            self.check_town(plain["function"]["arguments"])

    def test_a_stream(self):
        data = self.server.call("POST", "/v1/chat/completions", {
            "messages": ASKED, "max_tokens": 60, "temperature": 0, "stream": True,
            "logit_bias": {self.think: 60, self.yes: 100}, "tools": [TOOL],
            "tool_choice": "required", "thinking_token_budget": 3})[2].decode()
        deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in data.splitlines()
                  if line.startswith("data: {")]
        thought = "".join(delta.get("reasoning_content", "") for delta in deltas)
        self.assertEqual(thought.split(), ["yes"] * 3)
        calls = [call["function"] for delta in deltas for call in delta.get("tool_calls", [])]
        self.check_town("".join(call.get("arguments", "") for call in calls))

    def test_a_continued_content_does_not_reason(self):
        begun = {"role": "assistant", "content": "No,", "reasoning_content": "Hm"}
        said = self.ask(messages=[*ASKED, begun], thinking_token_budget=0, max_tokens=8)["message"]
        self.assertEqual(said["content"].split(), ["yes"] * 8)
        for wrong in (-2, "x", 1.5):
            self.assertEqual(self.server.json("POST", "/v1/chat/completions", {
                "messages": ASKED, "thinking_token_budget": wrong})[0], 400)

    def test_other_routes(self):
        said = self.ask("/v1/messages", bias=False,
                        thinking={"type": "enabled", "budget_tokens": 1024})
        self.assertEqual(said["type"], "message")


class OfTheTemplate(Reasoning):
    template, words = OPENED, ("--reasoning-budget", "5")

    def test_the_servers_budget(self):
        said = self.ask(response_format=FORM)["message"]
        self.assertEqual(said["reasoning_content"].split(), ["yes"] * 5)
        self.check_town(said["content"])
        said = self.ask(tools=[TOOL], tool_choice="required")["message"]
        self.assertEqual(said["reasoning_content"].split(), ["yes"] * 5)
        self.check_town(said["tool_calls"][0]["function"]["arguments"])
        for budget in (1, 2, 7):  # without a constraint
            said = self.ask(max_tokens=30, thinking_token_budget=budget)["message"]
            self.assertEqual(said["reasoning_content"].split(), ["yes"] * budget)
            self.assertEqual(set(said["content"].split()), {"yes"})
        said = self.ask(max_tokens=10, thinking_token_budget=-1)
        self.assertEqual(len(said["message"]["reasoning_content"].split()), 10)

    def test_a_reasoning_is_continued(self):
        begun = {"role": "assistant", "content": "", "reasoning_content": "Hm"}
        prompt = self.server.json("POST", "/apply-template", {"messages": [*ASKED, begun]})[1]
        self.assertTrue(prompt["prompt"].endswith("<think>\nHm"), prompt)
        said = self.ask(messages=[*ASKED, begun], max_tokens=20)["message"]
        self.assertEqual(said["reasoning_content"].split(), ["yes"] * 5)


class Variables(Reasoning):
    words = ("--reasoning-budget", "0", "--chat-template-kwargs", '{"mood": "calm"}')
    template = TEMPLATE + "{{ mood }}"

    def test_the_servers_variables(self):
        def prompt(**more):
            return self.server.json("POST", "/apply-template", {"messages": ASKED, **more})[1][
                "prompt"]
        self.assertTrue(prompt().endswith("<think>\n\n</think>\n\ncalm"))
        self.assertTrue(prompt(chat_template_kwargs={"mood": "wild"}).endswith("wild"))
        self.assertTrue(prompt(chat_template_kwargs={"enable_thinking": True})
                        .endswith("assistant\ncalm"))

    def test_invalid_ones(self):
        for wrong in ("{", "[]", "3"):
            done = subprocess.run([serving.PROGRAM, "serve", serving.model(),
                                   "--chat-template-kwargs", wrong], capture_output=True,
                                  timeout=serving.PATIENCE, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("is not a JSON object", done.stderr)


if __name__ == "__main__":
    del Reasoning
    serving.main()
