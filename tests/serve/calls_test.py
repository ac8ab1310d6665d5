#!/usr/bin/env python3
"""Voluntary calls: a grammar makes a small model write calls in each family's format, with that
family's template. The answers of OpenAI's, Anthropic's and the Responses API contain the calls,
streamed and complete; the test returns the calls' results and gets an answer."""
import json
import os
import pathlib
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Any model works; only the template matters.
os.environ["WEFT_MODEL"] = str(ROOT / "models/abacus/model.gguf")

import gguf_template  # noqa: E402
import serving  # noqa: E402

PARAMETERS = {"type": "object", "required": ["city", "days"],
              "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.",
                                         "parameters": PARAMETERS}}
QUESTION = {"role": "user", "content": "The weather in Ulm?"}
CITIES = [{"city": "Ulm", "days": 3}, {"city": "89073", "days": 1}]
# Schemas with a single valid value, so that any model writes it: a value of each type, a reference
# into the function's own schema, and a second function that is not called.
FIXED = {"city": "Neu-Ulm", "days": -3, "warm": True, "at": "noon", "deep": {"x": [1, "two"]}}
FORCED = {"type": "function", "function": {
    "name": "forecast", "description": "The weather to come.", "parameters": {
    "type": "object", "required": list(FIXED), "$defs": {"time": {"enum": [FIXED["at"]]}},
    "properties": {**{key: {"type": kind, "enum": [FIXED[key]]} for key, kind in
                      (("city", "string"), ("days", "integer"), ("warm", "boolean"))},
                   "at": {"$ref": "#/$defs/time"}, "deep": {"const": FIXED["deep"]}}}}}


def objects(key="arguments"):
    return [json.dumps({"name": "weather", key: each}) for each in CITIES]


def each(form):
    return [form(c["city"], c["days"], json.dumps(c)) for c in CITIES]


def tagged():
    return [f"<tool_call>\n{one}\n</tool_call>" for one in objects()]


def bar(words):
    return "<\uff5ctool\u2581" + words + "\uff5c>"


def deepseek(city, days, arguments):
    return (bar("call\u2581begin") + "function" + bar("sep") + f"weather\n```json\n{arguments}\n```"
            + bar("call\u2581end"))


# template: text before all calls, the calls, text between them, text after all calls
FAMILIES = {
    "qwen": ("", tagged(), "\n", ""),
    "hermes": ("", tagged(), "\n", ""),
    "smollm3": ("", tagged(), "\n", ""),
    # Plain text: templates without functions.
    "gemma": ("", tagged(), "\n", ""),
    "olmo": ("", tagged(), "\n", ""),
    "phi3": ("", tagged(), "\n", ""),
    "chatml": ("", tagged(), "\n", ""),
    "llama3": ("", objects("parameters"), "\n", ""),
    "mistral": ("[TOOL_CALLS] [", objects(), ", ", "]"),
    "granite": ("<|tool_call|>[", objects(), ", ", "]"),
    "phi4mini": ("<|tool_call|>[", objects(), ", ", "]<|/tool_call|>"),
    "deepseek": (bar("calls\u2581begin"), each(deepseek), "\n", bar("calls\u2581end")),
    "glm": ("", each(lambda city, days, _: f"\n<tool_call>weather\n<arg_key>city</arg_key>\n"
                     f"<arg_value>{city}</arg_value>\n<arg_key>days</arg_key>\n"
                     f"<arg_value>{days}</arg_value>\n</tool_call>"), "", ""),
    "kimi": ("<|tool_calls_section_begin|>",
             each(lambda city, days, arguments: "<|tool_call_begin|>functions.weather:0"
                  f"<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"), "",
             "<|tool_calls_section_end|>"),
    "minimax": ("<minimax:tool_call>\n",
                each(lambda city, days, _: f'<invoke name="weather">\n<parameter name="city">{city}'
                     f'</parameter>\n<parameter name="days">{days}</parameter>\n</invoke>'), "\n",
                "\n</minimax:tool_call>"),
    "harmony": ("", each(lambda city, days, arguments: "<|channel|>commentary to=functions.weather "
                         f"<|constrain|>json<|message|>{arguments}<|call|>"), "<|start|>assistant",
                ""),
    "gemma4": ("", each(lambda city, days, _: f'<|tool_call>call:weather{{city:<|"|>{city}<|"|>,'
                        f'days:{days}}}<tool_call|>'), "", ""),
    "coder": ("", each(lambda city, days, _: "<tool_call>\n<function=weather>\n<parameter=city>\n"
                       f"{city}\n</parameter>\n<parameter=days>\n{days}\n</parameter>\n"
                       "</function>\n</tool_call>"), "\n", ""),
    "olmo3": ("<function_calls>",
              each(lambda city, days, _: f'weather(city="{city}", days={days})'), "\n",
              "</function_calls>"),
}
# Their templates have one call per message: the answer ends with the first.
ONE_CALL = {"llama3", "harmony"}
# Their prompts begin with reasoning, which a small model never ends; a grammar applies after it.
THINKERS = {"deepseek", "minimax"}


def events(data):
    """The JSON of a stream of events."""
    lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def saying(text):
    """A response format that makes the model write exactly `text`."""
    words = "".join(c if " " <= c <= "~" and c not in '"\\' else f"\\u{ord(c):04X}" for c in text)
    return {"type": "grammar", "grammar": f'root ::= "{words}"'}


class Unasked(unittest.TestCase):
    def post(self, path, body):
        status, _, data = self.server.call("POST", path, {"model": "gpt-test", **body})
        self.assertEqual(status, 200, data)
        return events(data) if body.get("stream") else json.loads(data)

    def chat(self, messages, text, **more):
        return self.post("/v1/chat/completions", {
            "messages": messages, "tools": [TOOL], "response_format": saying(text),
            "max_tokens": 1500, **more})

    def check_chat(self, text, expected, content=None):
        choice = self.chat([QUESTION], text)["choices"][0]
        message = choice["message"]
        self.assertEqual(choice["finish_reason"], "tool_calls", choice)
        self.assertEqual(message["content"], content)
        calls = [(c["function"]["name"], json.loads(c["function"]["arguments"]))
                 for c in message["tool_calls"]]
        self.assertEqual(calls, [("weather", one) for one in expected])

        said, streamed, reason = "", {}, None
        for chunk in self.chat([QUESTION], text, stream=True):
            choice = chunk["choices"][0]
            reason = choice["finish_reason"] or reason
            said += choice["delta"].get("content") or ""
            for piece in choice["delta"].get("tool_calls", []):
                call = streamed.setdefault(piece["index"], {"arguments": ""})
                call["name"] = piece["function"].get("name") or call["name"]
                call["arguments"] += piece["function"]["arguments"]
        self.assertEqual(reason, "tool_calls")
        self.assertEqual(said, content or "")
        self.assertEqual([(streamed[i]["name"], json.loads(streamed[i]["arguments"]))
                          for i in range(len(streamed))], calls)
        return message

    def check_second_turn(self, message):
        results = [{"role": "tool", "tool_call_id": call["id"],
                    "content": [{"type": "text", "text": "21.5 degrees"}]}
                   for call in message["tool_calls"]]
        history = [QUESTION, message, *results]
        answer = self.chat(history, "It is fine.")["choices"][0]
        self.assertEqual(answer["message"]["content"], "It is fine.")
        self.assertEqual(answer["finish_reason"], "stop")
        history += [answer["message"], {"role": "user", "content": "And in Bonn?"}]
        self.chat(history, "Fine, too.")

    def check_messages(self, text, expected):
        tool = {"name": "weather", "description": "The weather.", "input_schema": PARAMETERS}
        body = {"messages": [QUESTION], "tools": [tool], "max_tokens": 1500,
                "output_config": {"format": saying(text)}}
        answer = self.post("/v1/messages", body)
        self.assertEqual(answer["stop_reason"], "tool_use", answer)
        uses = [block for block in answer["content"] if block["type"] == "tool_use"]
        self.assertEqual([use["input"] for use in uses], expected)
        pieces = {}
        for event in self.post("/v1/messages", {**body, "stream": True}):
            begun = event.get("content_block", {})
            if event["type"] == "content_block_start" and begun["type"] == "tool_use":
                pieces[event["index"]] = ""
            if event["type"] == "content_block_delta" and "partial_json" in event["delta"]:
                pieces[event["index"]] += event["delta"]["partial_json"]
        self.assertEqual([json.loads(piece) for piece in pieces.values()], expected)
        self.post("/v1/messages", {
            "messages": [QUESTION, {"role": "assistant", "content": answer["content"]},
                         {"role": "user", "content": [
                             {"type": "tool_result", "tool_use_id": use["id"], "content": "fine"}
                             for use in uses]}], "tools": [tool], "max_tokens": 4})

    def check_responses(self, text, expected):
        tool = {"type": "function", "name": "weather", "description": "The weather.",
                "parameters": PARAMETERS}
        body = {"input": [QUESTION], "tools": [tool], "text": {"format": saying(text)},
                "max_output_tokens": 1500}
        output = self.post("/v1/responses", body)["output"]
        calls = [item for item in output if item["type"] == "function_call"]
        self.assertEqual([json.loads(call["arguments"]) for call in calls], expected)
        done = [event["item"] for event in self.post("/v1/responses", {**body, "stream": True})
                if event["type"] == "response.output_item.done"]
        self.assertEqual([json.loads(item["arguments"]) for item in done
                          if item["type"] == "function_call"], expected)
        self.post("/v1/responses", {
            "input": [QUESTION, *output, *({"type": "function_call_output", "output": "fine",
                                            "call_id": call["call_id"]} for call in calls)],
            "tools": [tool], "max_output_tokens": 4})

    def check_forced(self):
        """Forced calls: by name, one of several, complete and streamed."""
        named = {"type": "function", "function": {"name": "forecast"}}
        for tools, choice in ([FORCED, TOOL], named), ([FORCED], "required"):
            body = {"messages": [QUESTION], "tools": tools, "tool_choice": choice,
                    "max_tokens": 1500}
            answer = self.post("/v1/chat/completions", body)["choices"][0]
            self.assertEqual(answer["finish_reason"], "tool_calls", answer)
            self.assertIsNone(answer["message"]["content"], answer)
            self.assertEqual([(call["function"]["name"], json.loads(call["function"]["arguments"]))
                              for call in answer["message"]["tool_calls"]], [("forecast", FIXED)])
            pieces = [piece["function"]["arguments"]
                      for chunk in self.post("/v1/chat/completions", {**body, "stream": True})
                      for piece in chunk["choices"][0]["delta"].get("tool_calls", [])]
            self.assertEqual(json.loads("".join(pieces)), FIXED)
        other = json.loads(json.dumps(FORCED).replace("forecast", "past"))
        answer = self.post("/v1/chat/completions", {
            "messages": [QUESTION], "tools": [FORCED, other], "tool_choice": "required",
            "max_tokens": 1500})["choices"][0]
        call = answer["message"]["tool_calls"][0]["function"]
        self.assertIn(call["name"], ("forecast", "past"))
        self.assertEqual(json.loads(call["arguments"]), FIXED)
        # Calls that a family's format cannot express are requested as JSON: a pattern, a name with
        # other characters.
        odd = json.loads(json.dumps(FORCED).replace("forecast", "a-b.c"))
        odd["function"]["parameters"]["properties"]["city"] = {"pattern": "^Neu-Ulm$",
                                                               "type": "string"}
        call = self.post("/v1/chat/completions", {
            "messages": [QUESTION], "tools": [odd], "tool_choice": "required",
            "max_tokens": 1500})["choices"][0]["message"]["tool_calls"][0]["function"]
        self.assertEqual((call["name"], json.loads(call["arguments"])), ("a-b.c", FIXED))

    def check_family(self, name, begin, calls, between, end):
        many = name not in ONE_CALL
        one = begin + calls[0] + end
        self.check_forced()
        message = self.check_chat(one, CITIES[:1])
        self.check_second_turn(message)
        self.check_messages(one, CITIES[:1])
        two = begin + between.join(calls) + end
        expected = CITIES if many else CITIES[:1]
        message = self.check_chat(two, expected)
        self.check_second_turn(message)
        self.check_responses(two, expected)
        # Without offered functions there are no calls.
        answer = self.chat([QUESTION], one, tools=[])["choices"][0]
        self.assertNotIn("tool_calls", answer["message"])
        self.assertEqual(answer["finish_reason"], "stop")

    def older(self, **more):
        """The answer to a request with `functions`; the streamed one must be equal."""
        body = {"messages": [QUESTION], "max_tokens": 1500,
                "functions": [FORCED["function"], TOOL["function"]], **more}
        whole = self.post("/v1/chat/completions", body)
        choice = whole["choices"][0]
        call, said, reason = {}, "", None
        for chunk in self.post("/v1/chat/completions", {**body, "stream": True}):
            delta = chunk["choices"][0]["delta"]
            reason = chunk["choices"][0]["finish_reason"] or reason
            said += delta.get("content") or ""
            self.assertNotIn("tool_calls", delta)
            for name, piece in delta.get("function_call", {}).items():
                call[name] = call.get(name, "") + piece
        self.assertEqual(reason, choice["finish_reason"])
        self.assertEqual(said, choice["message"]["content"] or "")
        given = choice["message"].get("function_call", {})
        self.assertEqual(call.get("name"), given.get("name"))
        # Streamed arguments keep the model's white space.
        self.assertEqual(*(json.loads(each.get("arguments", "{}")) for each in (call, given)))
        self.assertNotIn("tool_calls", choice["message"])
        return choice, whole["usage"]["prompt_tokens"]

    def test_older_form(self):
        """`functions` and `function_call` are the older form of tools and calls."""
        begin, calls, between, end = FAMILIES["qwen"]
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "model.gguf")
            template = (ROOT / "tests/data/chat/qwen.jinja").read_text()
            gguf_template.with_template(serving.model(), file, template)
            self.server = serving.Server(4096, of=file)
            self.addCleanup(self.server.close)
        one, two = (begin + between.join(calls[:n]) + end for n in (1, 2))
        # The prompt is the same as with tools.
        tools = self.post("/v1/chat/completions", {
            "messages": [QUESTION], "max_tokens": 4, "tools": [FORCED, TOOL]})
        for text in (one, two):  # and returns at most one call
            choice, prompt = self.older(response_format=saying(text))
            self.assertEqual(prompt, tools["usage"]["prompt_tokens"])
            self.assertEqual(choice["finish_reason"], "function_call")
            message = choice["message"]
            self.assertIsNone(message["content"])
            self.assertEqual(message["function_call"]["name"], "weather")
            self.assertEqual(json.loads(message["function_call"]["arguments"]), CITIES[0])
        result = {"role": "function", "name": "weather", "content": "21.5 degrees"}
        choice, _ = self.older(messages=[QUESTION, message, result],
                               response_format=saying("It is fine."))
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]),
                         ("It is fine.", "stop"))
        choice, _ = self.older(function_call={"name": "forecast"})
        self.assertEqual(choice["finish_reason"], "function_call")
        self.assertEqual(json.loads(choice["message"]["function_call"]["arguments"]), FIXED)
        choice, prompt = self.older(function_call="none", response_format=saying(one))
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), (one, "stop"))
        self.assertLess(prompt, tools["usage"]["prompt_tokens"])
        for name, more in (("functions", {"tools": [TOOL]}), ("functions[0]", {"functions": [{}]}),
                           ("functions", {"functions": "weather"}),
                           ("function_call", {"function_call": {"name": "past"}}),
                           ("function_call", {"function_call": "required"})):
            status, _, data = self.server.call("POST", "/v1/chat/completions", {
                "model": "gpt-test", "messages": [QUESTION], "max_tokens": 4,
                "functions": [TOOL["function"]], **more})
            self.assertEqual(status, 400, data)
            self.assertEqual(json.loads(data)["error"]["param"], name, data)

    def test_families(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, (begin, calls, between, end) in serving.some(FAMILIES.items(), 5):
                with self.subTest(name):
                    file = os.path.join(folder, "model.gguf")
                    template = (ROOT / f"tests/data/chat/{name}.jinja").read_text()
                    if name in THINKERS:
                        template = template.replace("<think>", "")
                    gguf_template.with_template(serving.model(), file, template)
                    self.server = serving.Server(4096, of=file)
                    try:
                        self.check_family(name, begin, calls, between, end)
                    finally:
                        self.server.close()


if __name__ == "__main__":
    serving.main()
