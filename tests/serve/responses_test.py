#!/usr/bin/env python3
"""Responses, asked by OpenAI's own package."""
import unittest

import serving

openai = serving.package("openai")
COLOURS = "Name three colours."
WEATHER = {"type": "function", "name": "weather", "description": "The weather of a town.",
           "parameters": {"type": "object", "required": ["town"], "additionalProperties": False,
                          "properties": {"town": {"enum": ["Ulm", "Bonn"]}}},
           "strict": False}


class ResponsesCase(serving.ServedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0,
                                   timeout=serving.PATIENCE)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        super().tearDownClass()

    def ask(self, given=COLOURS, **more):
        more = {"temperature": 0, "max_output_tokens": 16, **more}
        return self.client.responses.create(model="gpt-test", input=given, **more)

    def chat(self, messages, **more):
        _, body = self.server.json("POST", "/v1/chat/completions",
                                   {"messages": messages, "temperature": 0, "max_tokens": 16,
                                    **more})
        return body["choices"][0]["message"]["content"], body["usage"]["prompt_tokens"]


class Responses(ResponsesCase):
    def test_whole(self):
        answer = self.ask(metadata={"a": "b"})
        said, prompt_tokens = self.chat([{"role": "user", "content": COLOURS}])
        self.assertEqual(answer.output_text, said)
        self.assertEqual([item.type for item in answer.output], ["message"])
        self.assertEqual(answer.object, "response")
        self.assertEqual(answer.usage.input_tokens, prompt_tokens)
        self.assertEqual(answer.usage.total_tokens,
                         prompt_tokens + answer.usage.output_tokens)
        self.assertEqual(answer.metadata, {"a": "b"})
        self.assertIsNone(answer.error)

    def test_status(self):
        cut = self.ask(max_output_tokens=3)
        self.assertEqual(cut.status, "incomplete")
        self.assertEqual(cut.incomplete_details.reason, "max_output_tokens")
        self.assertEqual(cut.usage.output_tokens, 3)
        whole = self.ask(max_output_tokens=60, extra_body={"stop": [" "]})
        self.assertEqual(whole.status, "completed")
        self.assertIsNone(whole.incomplete_details)

    def test_stream_helper(self):
        more = {"max_output_tokens": 60, "extra_body": {"stop": ["\n", "."]}}
        whole = self.ask(**more)
        with self.client.responses.stream(model="gpt-test", input=COLOURS, temperature=0,
                                          **more) as stream:
            deltas = [e.delta for e in stream if e.type == "response.output_text.delta"]
            final = stream.get_final_response()
        self.assertEqual(final.output_text, whole.output_text)
        self.assertEqual("".join(deltas), whole.output_text)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_events(self):
        events = list(self.ask(stream=True))
        types = [event.type for event in events]
        self.assertEqual(types[:4], ["response.created", "response.in_progress",
                                     "response.output_item.added", "response.content_part.added"])
        self.assertEqual(types[-4:], ["response.output_text.done", "response.content_part.done",
                                      "response.output_item.done", "response.incomplete"])
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        self.assertEqual(events[-4].text, text)
        self.assertEqual(events[-1].response.output[0].content[0].text, text)
        self.assertEqual(events[-1].response.id, events[0].response.id)

    def test_instructions_and_items(self):
        said, prompt_tokens = self.chat([{"role": "system", "content": "Be terse."},
                                         {"role": "user", "content": COLOURS}])
        for given in ([{"role": "user", "content": COLOURS}],
                      [{"type": "message", "role": "user",
                        "content": [{"type": "input_text", "text": COLOURS}]}]):
            answer = self.ask(given, instructions="Be terse.")
            self.assertEqual(answer.output_text, said)
            self.assertEqual(answer.usage.input_tokens, prompt_tokens)
        answer = self.ask([{"role": "developer", "content": "Be terse."},
                           {"role": "user", "content": COLOURS}])
        self.assertEqual(answer.output_text, said)

    def test_a_second_turn(self):
        first = self.ask()
        answer = self.ask([{"role": "user", "content": COLOURS}, *first.output,
                           {"role": "user", "content": "And two more?"}])
        said, _ = self.chat([{"role": "user", "content": COLOURS},
                             {"role": "assistant", "content": first.output_text},
                             {"role": "user", "content": "And two more?"}])
        self.assertEqual(answer.output_text, said)

    def test_tools(self):
        answer = self.ask([{"role": "user", "content": "How is the weather in Ulm?"},
                           {"type": "reasoning", "id": "rs_1", "summary": [],
                            "content": [{"type": "reasoning_text", "text": "Ask."}]},
                           {"type": "function_call", "call_id": "call_1", "name": "weather",
                            "arguments": '{"town": "Ulm"}'},
                           {"type": "function_call_output", "call_id": "call_1",
                            "output": "Rain."}], tools=[WEATHER], tool_choice="auto")
        self.assertEqual(answer.tools[0].name, "weather")
        self.assertTrue(answer.output)

    def test_a_function_that_must_be_called(self):
        for choice in ("required", {"type": "function", "name": "weather"}):
            more = {"tools": [WEATHER], "tool_choice": choice, "max_output_tokens": 60}
            answer = self.ask("How is the weather in Ulm?", **more)
            self.assertEqual([item.type for item in answer.output], ["function_call"])
            call = answer.output[0]
            self.assertEqual(call.name, "weather")
            self.assertIn(serving.json.loads(call.arguments)["town"], ("Ulm", "Bonn"))
            with self.client.responses.stream(model="gpt-test", temperature=0,
                                              input="How is the weather in Ulm?",
                                              **more) as stream:
                final = stream.get_final_response()
            self.assertEqual(final.output[0].arguments, call.arguments)

    def test_format(self):
        schema = {"type": "object", "required": ["town"], "additionalProperties": False,
                  "properties": {"town": {"enum": ["Ulm", "Bonn"]}}}
        answer = self.ask("A town, as JSON.", max_output_tokens=60, text={"format": {
            "type": "json_schema", "name": "town", "schema": schema, "strict": True}})
        self.assertIn(serving.json.loads(answer.output_text)["town"], ("Ulm", "Bonn"))

    def test_logprobs(self):
        answer = self.ask(top_logprobs=2, include=["message.output_text.logprobs"])
        chances = answer.output[0].content[0].logprobs
        self.assertEqual(len(chances), answer.usage.output_tokens)
        self.assertEqual(len(chances[0].top_logprobs), 2)

    def test_refused(self):
        for param, more in (("previous_response_id", {"previous_response_id": "resp_1"}),
                            ("conversation", {"conversation": "conv_1"}),
                            ("background", {"background": True}),
                            ("truncation", {"truncation": "auto"}),
                            ("input", {"given": []}),
                            ("input[0]", {"given": [1]}),
                            ("input[0].type", {"given": [{"type": "item_reference", "id": "a"}]}),
                            ("input[0].role", {"given": [{"role": "king", "content": "a"}]}),
                            ("input[0].content", {"given": [{"role": "user", "content": 1}]}),
                            ("input[0].output", {"given": [{"type": "function_call_output",
                                                            "call_id": "a"}]}),
                            ("tools[0].type", {"tools": [{"type": "web_search"}]}),
                            ("tools[0].name", {"tools": [{"type": "function"}]}),
                            ("tool_choice", {"tool_choice": "required"}),
                            ("max_output_tokens", {"max_output_tokens": 0}),
                            ("temperature", {"temperature": -1}),
                            ("text", {"text": 1}),
                            ("input", {"given": "word " * 3000})):
            with self.subTest(param=param):
                with self.assertRaises(openai.BadRequestError) as caught:
                    self.ask(**more)
                self.assertEqual(caught.exception.body["param"], param)
        for body in (b"{", b"[]", b"{}", b'{"input":{}}', b'{"input":"a","tools":[1]}',
                     b'{"input":"a","text":{"format":5}}',
                     b'{"input":"a","include":[1,{}],"max_output_tokens":1}',
                     b'{"input":"a","reasoning":{"effort":5}}', b'{"input":"a","metadata":[]}'):
            status, _ = self.server.json("POST", "/v1/responses", body)
            self.assertIn(status, (200,) if b"include" in body else (400,), body)

    def test_nothing_is_stored(self):
        self.assertFalse(self.ask(store=True).store)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve("resp_1")


if __name__ == "__main__":
    serving.main()
