#!/usr/bin/env python3
"""Tools over two turns with the packages of OpenAI and Anthropic, for every chat template of
tests/data/chat on a small model: a forced call, its result, and an answer."""
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

openai = serving.package("openai")
anthropic = serving.package("anthropic")

PARAMETERS = {"type": "object", "required": ["city"], "additionalProperties": False,
              "properties": {"city": {"enum": ["Ulm", "Bonn"], "description": "Its name."}}}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.",
                                         "parameters": PARAMETERS}}
QUESTION = {"role": "user", "content": "The weather in Ulm?"}
MAX = 200


def call(number, city, **more):
    return {"id": f"call_AbCdEf{number}", "type": "function",
            "function": {"name": "weather", "arguments": json.dumps({"city": city})}, **more}


class Templates(unittest.TestCase):
    """One server per template."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def each(self, check):
        # raw_rules shows no messages, so the server refuses conversations.
        templates = sorted(path for path in (ROOT / "tests/data/chat").glob("*.jinja")
                           if path.stem != "raw_rules")
        self.assertGreater(len(templates), 20)
        for turn, template in enumerate(templates):
            if not serving.in_turn(turn, 8):
                continue
            with self.subTest(template.stem):
                file = os.path.join(self.folder.name, "model.gguf")
                gguf_template.with_template(serving.model(), file, template.read_text())
                os.environ["WEFT_MODEL"], before = file, os.environ["WEFT_MODEL"]
                try:
                    server = serving.Server(4096)
                finally:
                    os.environ["WEFT_MODEL"] = before
                try:
                    check(server)
                finally:
                    server.close()

    def check_openai(self, server):
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0,
                           timeout=serving.PATIENCE) as client:
            def ask(messages, **more):
                return client.chat.completions.create(
                    model="gpt-test", messages=messages, tools=[TOOL], temperature=0,
                    **{"max_tokens": 8, **more})
            first = ask([QUESTION], tool_choice="required", max_tokens=MAX)
            message = first.choices[0].message
            self.assertEqual(first.choices[0].finish_reason, "tool_calls")
            made = message.tool_calls[0]
            result = {"role": "tool", "tool_call_id": made.id, "content": "21.5 degrees"}
            # As users of the package do: the message object itself, with content None.
            second = ask([QUESTION, message, result])
            # The first prompt also contains the start of its call.
            asked = ask([QUESTION]).usage
            self.assertGreater(second.usage.prompt_tokens, asked.prompt_tokens)
            answered = [QUESTION, message, result,
                        {"role": "assistant", "content": "21.5 degrees."},
                        {"role": "user", "content": "Thanks."}]
            ask(answered)

            pieces, name, made_id = [], None, None
            for chunk in ask([QUESTION], tool_choice="required", max_tokens=MAX, stream=True):
                for piece in chunk.choices[0].delta.tool_calls or []:
                    name, made_id = piece.function.name or name, piece.id or made_id
                    pieces.append(piece.function.arguments)
            streamed = {"role": "assistant", "content": None, "tool_calls": [
                {"id": made_id, "type": "function",
                 "function": {"name": name, "arguments": "".join(pieces)}}]}
            answer = list(ask([QUESTION, streamed, {**result, "tool_call_id": made_id}],
                              stream=True))
            self.assertIn(answer[-1].choices[0].finish_reason, ("stop", "length", "tool_calls"))

            two = {"role": "assistant", "content": None,
                   "tool_calls": [call(1, "Ulm"), call(2, "Bonn")]}
            results = [{"role": "tool", "tool_call_id": c["id"], "content": "sunny"}
                       for c in two["tool_calls"]]
            ask([QUESTION, two, *results])

    def check_cut_off(self, server):
        """A forced call that is cut off is an unfinished call: nothing is added to it, and no
        marker of the template becomes content."""
        tool = {"type": "function", "function": {"name": "pay-now", "parameters": {
            "type": "object", "required": ["amount"], "additionalProperties": False,
            "properties": {"amount": {"type": "integer", "minimum": 10 ** 9}}}}}
        for most in (1, 3, 5):
            body = {"messages": [QUESTION], "tools": [tool, TOOL], "temperature": 0,
                    "tool_choice": {"type": "function", "function": {"name": "pay-now"}},
                    "max_tokens": most}
            status, answer = server.json("POST", "/v1/chat/completions", body)
            self.assertEqual(status, 200, answer)
            choice = answer["choices"][0]
            self.assertEqual(choice["finish_reason"], "length")
            self.assertIsNone(choice["message"]["content"])
            made = choice["message"]["tool_calls"][0]["function"]
            self.assertEqual(made["name"], "pay-now")
            self.assertRegex(made["arguments"], r'^(\{ ?("[amount]*("(: ?(\d*))?)?)?)?$')
            with openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                               timeout=serving.PATIENCE) as client:
                chunks = list(client.chat.completions.create(model="gpt-test", stream=True, **body))
            pieces = [p.function for c in chunks for p in c.choices[0].delta.tool_calls or []]
            self.assertEqual("".join(p.arguments or "" for p in pieces), made["arguments"])
            self.assertEqual([p.name for p in pieces if p.name], ["pay-now"])
            self.assertEqual(chunks[-1].choices[0].finish_reason, "length")
            self.assertFalse(any(c.choices[0].delta.content for c in chunks))
            given = {"input": "Pay.", "tools": [{"type": "function", **tool["function"]}],
                     "tool_choice": "required", "max_output_tokens": most, "temperature": 0}
            status, answer = server.json("POST", "/v1/responses", given)
            self.assertEqual((status, answer["status"]), (200, "incomplete"), answer)
            self.assertEqual(answer["output"][-1]["type"], "function_call")
            self.assertEqual(answer["output"][-1]["status"], "incomplete")
            status, answer = server.json("POST", "/v1/messages", {
                "messages": [QUESTION], "tool_choice": {"type": "any"}, "max_tokens": most,
                "tools": [{"name": "pay-now", "input_schema": tool["function"]["parameters"]}]})
            self.assertEqual((status, answer["stop_reason"]), (200, "max_tokens"), answer)
            self.assertEqual([b["type"] for b in answer["content"]], ["tool_use"])

    def check_form_or_call(self, server):
        """A response format applies to the answer's text; functions can still be called."""
        schema = {"type": "object", "required": ["sum"], "additionalProperties": False,
                  "properties": {"sum": {"enum": [1, 2]}}}
        body = {"messages": [QUESTION], "tools": [TOOL], "max_tokens": MAX, "temperature": 0,
                "response_format": {"type": "json_schema", "json_schema": {
                    "name": "sum", "schema": schema}}}
        kinds = set()
        for seed in range(8):
            status, answer = server.json("POST", "/v1/chat/completions",
                                         {**body, "temperature": 2, "seed": seed, "top_k": 0,
                                          "top_p": 1, "min_p": 0})
            self.assertEqual(status, 200, answer)
            message, finish = answer["choices"][0]["message"], answer["choices"][0]["finish_reason"]
            kinds.add(finish)
            if finish == "tool_calls":
                arguments = json.loads(message["tool_calls"][0]["function"]["arguments"])
                self.assertLessEqual(set(arguments), {"city"})
                self.assertIsNone(message["content"])
            elif message["content"]:  # a model may end while it reasons
                self.assertIn(json.loads(message["content"])["sum"], (1, 2))
        self.assertLessEqual(kinds, {"tool_calls", "stop"})
        self.kinds |= kinds

    def check_no_parameters(self, server):
        for function, arguments in (({"name": "now"}, r"^\{\}$"),
                                    ({"name": "now", "parameters": {}}, r"^\{\}$"),
                                    ({"name": "now", "description": None, "parameters": {
                                        "type": "object", "properties": {}}}, r"^\{\}$"),
                                    ({"name": "now", "parameters": {"properties": {
                                        "zone": {"enum": ["utc"]}}}}, r"^\{.*\}$")):
            status, answer = server.json("POST", "/v1/chat/completions", {
                "messages": [QUESTION], "tools": [{"type": "function", "function": function}],
                "tool_choice": "required", "max_tokens": MAX})
            self.assertEqual(status, 200, answer)
            made = answer["choices"][0]["message"]["tool_calls"][0]["function"]
            self.assertRegex(made["arguments"], arguments)

    def check_contents(self, server):
        def tokens(message):
            messages = [QUESTION, message, {"role": "tool", "tool_call_id": "call_AbCdEf1",
                                            "content": "sunny"}]
            status, answer = server.json("POST", "/tokenize",
                                         {"messages": messages, "tools": [TOOL]})
            self.assertEqual(status, 200, answer)
            return answer["tokens"]
        calls = {"role": "assistant", "tool_calls": [call(1, "Ulm")]}
        expected = tokens({**calls, "content": ""})
        self.assertEqual(tokens({**calls, "content": None}), expected)
        self.assertEqual(tokens(calls), expected)
        nulls = {"name": None, "refusal": None, "function_call": None, "audio": None}
        self.assertEqual(tokens({**calls, "content": None, **nulls}), expected)
        self.assertEqual(tokens({**calls, "content": []}), expected)

    def check_anthropic(self, server):
        tool = {"name": "weather", "description": "The weather.", "input_schema": PARAMETERS}
        with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0,
                                 timeout=serving.PATIENCE) as client:
            def ask(messages, **more):
                return client.messages.create(model="gpt-test", messages=messages, tools=[tool],
                                              **{"max_tokens": 8, **more})
            first = ask([QUESTION], tool_choice={"type": "any"}, max_tokens=MAX)
            self.assertEqual(first.stop_reason, "tool_use")
            use = first.content[-1]

            def results(*ids):
                return {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": i, "content": "sunny"} for i in ids]}
            second = ask([QUESTION, {"role": "assistant", "content": first.content},
                          results(use.id)])
            self.assertEqual(second.role, "assistant")
            with client.messages.stream(model="gpt-test", messages=[QUESTION], tools=[tool],
                                        tool_choice={"type": "any"}, max_tokens=MAX) as stream:
                final = stream.get_final_message()
            ask([QUESTION, {"role": "assistant", "content": final.content},
                 results(final.content[-1].id)])
            uses = [{"type": "tool_use", "id": f"toolu_{n}", "name": "weather",
                     "input": {"city": city}} for n, city in enumerate(("Ulm", "Bonn"))]
            ask([QUESTION, {"role": "assistant", "content": uses},
                 results(*(u["id"] for u in uses))])

    def check_responses(self, server):
        tool = {"type": "function", "name": "weather", "description": "The weather.",
                "parameters": PARAMETERS}
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0,
                           timeout=serving.PATIENCE) as client:
            def ask(items, **more):
                return client.responses.create(model="gpt-test", input=items, tools=[tool],
                                               **{"max_output_tokens": 8, **more})
            first = ask([QUESTION], tool_choice="required", max_output_tokens=MAX)
            made = first.output[-1]
            self.assertEqual(made.type, "function_call")
            ask([QUESTION, *first.output,
                 {"type": "function_call_output", "call_id": made.call_id, "output": "sunny"}])
            two = [{"type": "function_call", "call_id": f"call_{n}", "name": "weather",
                    "arguments": json.dumps({"city": city})}
                   for n, city in enumerate(("Ulm", "Bonn"))]
            ask([QUESTION, *two, *({"type": "function_call_output", "call_id": c["call_id"],
                                    "output": "sunny"} for c in two)])

    def test_second_turns(self):
        def check(server):
            for one in (self.check_openai, self.check_contents, self.check_anthropic,
                        self.check_responses, self.check_cut_off, self.check_no_parameters,
                        self.check_form_or_call):
                with self.subTest(one.__name__):
                    one(server)
        self.kinds = set()
        self.each(check)
        self.assertEqual(self.kinds, {"tool_calls", "stop"})


class Ids(Templates):
    """A template that requires ids of nine alphanumeric characters gets its own ids back."""

    def test_ids(self):
        template = (ROOT / "tests/data/chat/mistral.jinja").read_text()
        file = os.path.join(self.folder.name, "model.gguf")
        gguf_template.with_template(serving.model(), file, template)
        os.environ["WEFT_MODEL"], before = file, os.environ["WEFT_MODEL"]
        try:
            server = serving.Server(4096)
        finally:
            os.environ["WEFT_MODEL"] = before
        try:
            status, answer = server.json("POST", "/v1/chat/completions", {
                "messages": [QUESTION], "tools": [TOOL], "tool_choice": "required",
                "max_tokens": MAX})
            self.assertEqual(status, 200, answer)
            made = answer["choices"][0]["message"]["tool_calls"][0]["id"]
            self.assertRegex(made, r"^[A-Za-z0-9]{9}$")
            text = server.json("POST", "/tokenize", {
                "messages": [QUESTION, {"role": "assistant", "tool_calls": [
                    call(1, "Ulm", id=made)]}, {"role": "tool", "tool_call_id": made,
                                                "content": "sunny"}],
                "return_token_strs": True})[1]
            self.assertEqual("".join(text["token_strs"]).count(made), 2)
        finally:
            server.close()

    test_second_turns = None


class Limits(unittest.TestCase):
    """A forced call of functions whose schemas exceed a limit."""

    def test_limits(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = os.path.join(folder.name, "model.gguf")  # its template shows no functions
        gguf_template.with_template(serving.model(), file, "{{ messages[0].content }}", 1 << 20)
        server = serving.Server(1 << 20, of=file)
        self.addCleanup(server.close)
        for values, said in (([1] * 70_000, "more than 65536 values"),
                             (["x" * 30] * 10_000, "the limit is 262144")):
            schema = {"type": "object", "properties": {"x": {"enum": values}}}
            function = {"name": "count", "parameters": schema}
            body = {"messages": [QUESTION], "tools": [{"type": "function", "function": function}],
                    "tool_choice": "required", "max_tokens": MAX}
            status, answer = server.json("POST", "/v1/chat/completions", body)
            self.assertEqual(status, 400, answer)
            self.assertIn(said, answer["error"]["message"])


if __name__ == "__main__":
    serving.main()
