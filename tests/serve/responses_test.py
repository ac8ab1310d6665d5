#!/usr/bin/env python3
"""Responses API, called with OpenAI's package."""
import os
import tempfile
import unittest

import serving
from wait import until

serving.few_layers = True

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
    def test_complete_answer(self):
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
        said = self.ask(max_output_tokens=30).output_text
        more = {"max_output_tokens": 60, "extra_body": {"stop": [said[len(said) // 2]]}}
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

    def test_a_forced_function(self):
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
            # A stream has the model's own white space.
            self.assertEqual(serving.json.loads(final.output[0].arguments),
                             serving.json.loads(call.arguments))

    def test_format(self):
        schema = {"type": "object", "required": ["town"], "additionalProperties": False,
                  "properties": {"town": {"enum": ["Ulm", "Bonn"]}}}
        answer = self.ask("A town, as JSON.", max_output_tokens=60, text={"format": {
            "type": "json_schema", "name": "town", "schema": schema, "strict": True}})
        self.assertIn(serving.json.loads(answer.output_text)["town"], ("Ulm", "Bonn"))

    def test_refusals_in_the_history(self):
        turns = [{"role": "user", "content": COLOURS}, {"role": "assistant", "content": "No."},
                 {"role": "user", "content": "Why?"}]
        plain = self.ask(turns).usage.input_tokens
        turns[1] = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                    "content": [{"type": "refusal", "refusal": "No."}]}
        self.assertEqual(self.ask(turns).usage.input_tokens, plain)

    def test_allowed_functions(self):
        tools = [WEATHER, {**WEATHER, "name": "climate"}]

        def allow(mode, *names):
            return {"type": "allowed_tools", "mode": mode,
                    "tools": [{"type": "function", "name": name} for name in names]}
        choice = allow("required", "climate")
        answer = self.ask(tools=tools, tool_choice=choice, max_output_tokens=60)
        self.assertEqual([item.name for item in answer.output], ["climate"])
        self.assertEqual(answer.tool_choice.mode, "required")
        self.assertEqual(len(answer.tools), 2)
        auto = self.ask(tools=tools, tool_choice=allow("auto", "weather"), max_output_tokens=1)
        only = self.ask(tools=tools[:1], max_output_tokens=1)
        self.assertEqual(auto.usage.input_tokens, only.usage.input_tokens)
        for wrong, says in ((allow("auto", "smell"), "smell"), (allow("any", "climate"), "mode"),
                            (allow("required"), "tools")):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.ask(tools=tools, tool_choice=wrong)
            self.assertIn(says, str(caught.exception))

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
                            ("input[0].type", {"given": [{"type": "mood"}]}),
                            ("input[0].id", {"given": [{"type": "item_reference", "id": "a"}]}),
                            ("input[0].role", {"given": [{"role": "king", "content": "a"}]}),
                            ("input[0].content", {"given": [{"role": "user", "content": 1}]}),
                            ("input[0].output", {"given": [{"type": "function_call_output",
                                                            "call_id": "a", "output": 1}]}),
                            ("tools[0].type", {"tools": [{"type": "functoin", "name": "f",
                                                          "parameters": {}}]}),
                            ("tool_choice", {"tools": [{"type": "web_search"}],
                                             "tool_choice": "required"}),
                            ("tools[0].name", {"tools": [{"type": "function"}]}),
                            ("tool_choice", {"tool_choice": "required"}),
                            ("max_output_tokens", {"max_output_tokens": 0}),
                            ("temperature", {"temperature": -1}),
                            ("text", {"text": 1}),
                            ("metadata", {"metadata": {"a": "x" * 3000}}),
                            ("metadata", {"metadata": {str(i): "x" for i in range(17)}}),
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


class Agents(ResponsesCase):
    """Requests in the form of Codex 0.163."""
    PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files.",
             "format": {"type": "grammar", "syntax": "regex", "definition": "(add|delete) [a-c]"}}
    TOOLS = [{**WEATHER, "strict": False},
             {"type": "namespace", "name": "agents", "description": "Sub-agents.", "tools": [
                 {"type": "function", "name": "close", "description": "Close.", "strict": False,
                  "parameters": {"type": "object", "required": ["target"],
                                 "properties": {"target": {"enum": ["x", "y"]}},
                                 "additionalProperties": False}}]},
             PATCH,
             {"type": "tool_search", "execution": "client", "description": "Finds tools.",
              "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}},
             {"type": "web_search", "external_web_access": False},
             {"type": "image_generation", "output_format": "png"}]

    def test_a_whole_request(self):
        body = {"model": "gpt-test", "stream": True, "store": False, "tool_choice": "auto",
                "parallel_tool_calls": True, "reasoning": {"summary": "auto"}, "tools": self.TOOLS,
                "include": ["reasoning.encrypted_content"], "prompt_cache_key": "01a2267c",
                "client_metadata": {"x-codex-window-id": "0"}, "text": {"verbosity": "low"},
                "max_output_tokens": 4, "input": [
                    {"type": "message", "id": f"msg_{i}", "role": role,
                     "content": [{"type": "input_text", "text": text}]}
                    for i, (role, text) in enumerate((("developer", "You are a coding agent."),
                                                      ("developer", "<skills />"),
                                                      ("user", "<environment />"),
                                                      ("user", "say hello")))]}
        status, headers, data = self.server.call("POST", "/v1/responses", body)
        self.assertEqual(status, 200, data)
        self.assertIn("text/event-stream", headers["Content-Type"])
        self.assertIn(b"event: response.incomplete", data)

    def test_forced_calls_have_the_clients_names(self):
        more = {"tools": self.TOOLS, "max_output_tokens": 60}
        choice = {"type": "function", "name": "close", "namespace": "agents"}
        call = self.ask(**more, tool_choice=choice).output[0]
        self.assertEqual((call.type, call.name, call.namespace), ("function_call", "close",
                                                                  "agents"))
        self.assertIn(serving.json.loads(call.arguments)["target"], ("x", "y"))
        more["tool_choice"] = {"type": "custom", "name": "apply_patch"}
        call = self.ask(**more).output[0]
        self.assertEqual((call.type, call.name), ("custom_tool_call", "apply_patch"))
        self.assertRegex(call.input, "^(add|delete) [a-c]$")
        events = list(self.ask(stream=True, **more))
        deltas = [e.delta for e in events if e.type == "response.custom_tool_call_input.delta"]
        done = [e.input for e in events if e.type == "response.custom_tool_call_input.done"]
        self.assertEqual(["".join(deltas)], done)
        self.assertEqual(events[-1].response.output[0].input, call.input)

    def test_calls_in_the_history(self):
        items = [{"role": "user", "content": "Patch a."},
                 {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch",
                  "input": "add a"},
                 {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
                 {"type": "web_search_call", "id": "ws_1", "status": "completed",
                  "action": {"type": "search", "query": "a"}}]
        calls = [{"role": "user", "content": "Patch a."},
                 {"role": "assistant", "content": "", "tool_calls": [
                     {"id": "c1", "type": "function", "function": {
                         "name": "apply_patch", "arguments": '{"input": "add a"}'}}]},
                 {"role": "tool", "tool_call_id": "c1", "name": "apply_patch", "content": "ok"}]
        self.assertEqual(self.ask(items).usage.input_tokens, self.chat(calls)[1])

    def test_a_reference_is_the_item(self):
        first = self.ask(max_output_tokens=4)
        for item in (first.output[0].id, next(iter(
                self.client.responses.input_items.list(first.id))).id):
            whole = self.ask([{"type": "item_reference", "id": item},
                              {"role": "user", "content": "Why?"}])
            self.assertTrue(whole.output_text)
            texts = [each.content[0].text
                     for each in self.client.responses.input_items.list(whole.id)]
            self.assertIn(texts[1], (COLOURS, first.output_text))

    def test_a_summary_replaces_a_conversation(self):
        turns = [{"role": "user", "content": COLOURS}, {"role": "assistant", "content": "Red."},
                 {"role": "user", "content": "Two more?"}]
        compacted = self.client.responses.compact(model="gpt-test", input=turns,
                                                  extra_body={"max_output_tokens": 8,
                                                              "temperature": 0})
        self.assertEqual(compacted.object, "response.compaction")
        self.assertEqual([item.type for item in compacted.output],
                         ["message", "message", "compaction"])
        self.assertEqual(compacted.output[0].content[0].text, COLOURS)
        summary = compacted.output[-1].encrypted_content
        self.assertTrue(summary.startswith("weft:"))
        answer = self.ask([*compacted.output, {"role": "user", "content": "Go on."}])
        self.assertTrue(answer.output_text)
        triggered = self.ask([*turns, {"type": "compaction_trigger"}], max_output_tokens=8)
        self.assertEqual([item.type for item in triggered.output], ["compaction"])
        self.assertEqual(triggered.output[0].encrypted_content, summary)
        events = list(self.ask([*turns, {"type": "compaction_trigger"}], max_output_tokens=8,
                               stream=True))
        self.assertEqual([e.item.encrypted_content for e in events
                          if e.type == "response.output_item.done"], [summary])


class Stored(ResponsesCase):
    """Stored responses: continued conversations, and access by key."""

    def test_continues(self):
        first = self.ask(instructions="Be terse.")
        self.assertTrue(first.store)
        second = self.ask("And two more?", previous_response_id=first.id)
        self.assertEqual(second.previous_response_id, first.id)
        turns = [{"role": "user", "content": COLOURS},
                 {"role": "assistant", "content": first.output_text},
                 {"role": "user", "content": "And two more?"}]
        said, prompt_tokens = self.chat(turns)  # instructions apply to a single request
        self.assertEqual((second.output_text, second.usage.input_tokens), (said, prompt_tokens))
        streamed = list(self.ask([{"role": "user", "content": "Why?"}], stream=True,
                                 previous_response_id=second.id))[-1].response
        turns += [{"role": "assistant", "content": second.output_text},
                  {"role": "user", "content": "Why?"}]
        self.assertEqual(streamed.output_text, self.chat(turns)[0])
        # Streamed responses are stored too, and an earlier response can be continued again.
        last = self.ask("Thanks.", previous_response_id=streamed.id)
        self.assertEqual(last.usage.input_tokens, self.chat(
            [*turns, {"role": "assistant", "content": streamed.output_text},
             {"role": "user", "content": "Thanks."}])[1])
        again = self.ask("And two more?", previous_response_id=first.id)
        self.assertEqual(again.output_text, second.output_text)

    def test_tools_continue(self):
        asked = self.ask("How is the weather in Ulm?", tools=[WEATHER], tool_choice="required",
                         max_output_tokens=60)
        call = asked.output[0]
        output = [{"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}]
        more = {"tools": [WEATHER], "tool_choice": "auto"}
        went_on = self.ask(output, previous_response_id=asked.id, **more)
        whole = self.ask([{"role": "user", "content": "How is the weather in Ulm?"}, call, *output],
                         **more)
        self.assertEqual(went_on.usage.input_tokens, whole.usage.input_tokens)
        self.assertEqual(went_on.output_text, whole.output_text)

    def test_retrieve_and_delete(self):
        answer = self.ask(metadata={"a": "ö"})
        self.assertEqual(self.client.responses.retrieve(answer.id), answer)
        with self.assertRaises(openai.BadRequestError) as refused:
            self.client.responses.retrieve(answer.id, stream=True)
        self.assertIn("cannot be streamed", str(refused.exception))
        self.client.responses.delete(answer.id)
        for act in (self.client.responses.retrieve, self.client.responses.delete):
            with self.assertRaises(openai.NotFoundError):
                act(answer.id)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.ask(previous_response_id=answer.id)
        self.assertEqual(caught.exception.code, "previous_response_not_found")

    def test_input_items(self):
        first = self.ask(instructions="Be brief.")
        items = list(self.client.responses.input_items.list(first.id))
        self.assertEqual([(item.type, item.role, item.content[0].text) for item in items],
                         [("message", "user", COLOURS)])
        more = [{"role": "user", "content": text} for text in ("And", "more?")]
        second = self.ask(more, previous_response_id=first.id)
        texts = [COLOURS, first.output_text, "And", "more?"]
        pages = self.client.responses.input_items.list
        self.assertEqual([item.content[0].text for item in pages(second.id)], texts[::-1])
        for limit in (1, 2, 3, 4):  # in pages
            listed = list(pages(second.id, limit=limit, order="asc"))
            self.assertEqual([item.content[0].text for item in listed], texts)
            self.assertEqual(len({item.id for item in listed}), 4)
        page = pages(second.id, limit=1)
        self.assertTrue(page.has_more)
        self.assertEqual(page.data[0].role, "user")
        for path in (first.id + "/input_items?limit=0", first.id + "/input_items?after=nothing"):
            self.assertEqual(self.server.call("GET", "/v1/responses/" + path)[0], 400, path)
        self.client.responses.delete(first.id)
        with self.assertRaises(openai.NotFoundError) as caught:
            pages(first.id)
        self.assertIn(f"Response with id '{first.id}' not found", str(caught.exception))
        self.assertEqual(len(pages(second.id).data), 4)
        status, answer = self.server.json("GET", f"/v1/responses/{second.id}/other")
        self.assertEqual((status, answer["error"]["code"]), (404, "unknown_url"))

    def test_not_stored(self):
        answer = self.ask(store=False)
        self.assertFalse(answer.store)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(answer.id)
        for wrong in (3, ["resp_1"], {}, True):
            status, _ = self.server.json("POST", "/v1/responses",
                                         {"input": "a", "previous_response_id": wrong})
            self.assertEqual(status, 400, wrong)
        for body in ({"input": "a", "previous_response_id": ""}, {"input": "a", "store": "no"},
                     {"input": "a", "previous_response_id": "x" * 100000}):
            self.assertEqual(self.server.json("POST", "/v1/responses", body)[0], 400)
        fine = {"input": "a", "previous_response_id": None, "store": None, "max_output_tokens": 1}
        self.assertEqual(self.server.json("POST", "/v1/responses", fine)[0], 200)
        for path in ("", "a/b", "%C3%A4", "resp_1?stream=true"):
            self.assertEqual(self.server.call("GET", "/v1/responses/" + path)[0], 404, path)
        self.assertEqual(self.server.call("DELETE", "/v1/models")[0], 405)

    def test_a_stream_that_is_cut_off_is_not_stored(self):
        with self.ask(stream=True, max_output_tokens=500, temperature=0,
                      extra_body={"ignore_eos": True}) as stream:
            begun = next(iter(stream)).response.id
        self.server.wait_for(lambda status: status["running"] == 0, 30)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(begun)


class ServedByEach(unittest.TestCase):
    """Tests that start their own servers."""

    def client_of(self, server, key="none"):
        client = openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0,
                               timeout=serving.PATIENCE)
        self.addCleanup(client.close)
        return client

    def serve(self, *words):
        server = serving.Server(512, *words)
        self.addCleanup(server.close)
        return server

    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def keys(self, *names):
        """Path of a key file, and the key of each name."""
        keys, path = {}, os.path.join(self.folder(), "keys")
        with open(path, "w", encoding="utf-8") as file:
            for name in names:
                made = serving.json.loads(serving.weft("key", "new", name, "--json"))
                file.write(made["line"] + "\n")
                keys[name] = made["key"]
        os.chmod(path, 0o600)
        return path, keys


class Log(ServedByEach):
    def test_tools_that_are_left_out_are_named_once(self):
        with tempfile.TemporaryFile("w+") as log:
            server = serving.Server(512, stderr=log)
            self.addCleanup(server.close)
            for _ in range(2):
                status, answer = server.json("POST", "/v1/responses", {
                    "input": "Hi.", "tools": Agents.TOOLS[3:], "max_output_tokens": 1})
                self.assertEqual(status, 200, answer)
                status, answer = server.json("POST", "/v1/messages", {
                    "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 1,
                    "tools": [{"type": "web_search_20250305", "name": "web_search"}]})
                self.assertEqual(status, 200, answer)
            # (Seeking would move the server's place in the file.)
            said = lambda: os.pread(log.fileno(), 1 << 20, 0).decode()  # noqa: E731
            kinds = [f"the type '{kind}'" for kind in
                     ("web_search", "tool_search", "image_generation")]
            until(lambda: all(kind in said() for kind in kinds), said)
            for kind in kinds:
                self.assertEqual(said().count(kind), 1, said())


class Bounds(ServedByEach):
    def test_older_responses_are_dropped(self):
        client = self.client_of(self.serve("--max-responses", "2"))
        ids = [client.responses.create(model="gpt-test", input="Hi.", max_output_tokens=1).id
               for _ in range(3)]
        with self.assertRaises(openai.NotFoundError):
            client.responses.retrieve(ids[0])
        for each in ids[1:]:
            self.assertEqual(client.responses.retrieve(each).id, each)

    def test_storing_is_off(self):
        client = self.client_of(self.serve("--max-responses", "0"))
        answer = client.responses.create(model="gpt-test", input="Hi.", max_output_tokens=1)
        self.assertFalse(answer.store)
        with self.assertRaises(openai.BadRequestError) as caught:
            client.responses.create(model="gpt-test", input="Hi.", previous_response_id=answer.id)
        self.assertEqual(caught.exception.code, "unsupported_value")
        self.assertIn("--max-responses", str(caught.exception))

    def test_each_key_has_its_own(self):
        path, keys = self.keys("alice", "bob")
        server = self.serve("--api-key-file", path, "--shared-prefix-cache")
        alice, bob = (self.client_of(server, keys[name]) for name in ("alice", "bob"))
        answer = alice.responses.create(model="gpt-test", input="Hi.", max_output_tokens=1)
        for act in (bob.responses.retrieve, bob.responses.delete, bob.responses.input_items.list):
            with self.assertRaises(openai.NotFoundError):
                act(answer.id)
        with self.assertRaises(openai.BadRequestError):
            bob.responses.create(model="gpt-test", input="Go on.", previous_response_id=answer.id)
        self.assertEqual(alice.responses.retrieve(answer.id).id, answer.id)
        for method in ("GET", "DELETE"):
            self.assertEqual(server.call(method, "/v1/responses/" + answer.id)[0], 401)
        alice.responses.delete(answer.id)


class Replicas(ServedByEach):
    """Two servers behind one address."""

    def ask(self, client, text="Hi.", **more):
        return client.responses.create(model="gpt-test", input=text, max_output_tokens=8,
                                       temperature=0, **more)

    @serving.nightly_only
    def test_each_in_its_memory(self):
        first, second = (self.client_of(self.serve()) for _ in range(2))
        answer = self.ask(first)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.ask(second, previous_response_id=answer.id)
        self.assertEqual(caught.exception.code, "previous_response_not_found")
        self.assertIn("--responses-dir", str(caught.exception))
        self.assertIn("'input'", str(caught.exception))

    def test_shared_folder(self):
        path, keys = self.keys("alice", "bob")
        words = ("--api-key-file", path, "--responses-dir", os.path.join(self.folder(), "shared"))
        first, second = self.serve(*words), self.serve(*words)
        one, two = (self.client_of(server, keys["alice"]) for server in (first, second))
        answer = self.ask(one)
        went_on = self.ask(two, "And then?", previous_response_id=answer.id)
        with self.ask(one, "Why?", previous_response_id=went_on.id, stream=True) as stream:
            streamed = list(stream)[-1].response
        self.assertEqual(two.responses.retrieve(streamed.id).output_text, streamed.output_text)
        texts = [item.content[0].text
                 for item in two.responses.input_items.list(streamed.id, order="asc")]
        self.assertEqual(texts, ["Hi.", answer.output_text, "And then?", went_on.output_text,
                                 "Why?"])
        # The same request on the server that stored the response gets the same answer.
        again = self.ask(one, "And then?", previous_response_id=answer.id)
        self.assertEqual((again.output_text, again.usage.input_tokens),
                         (went_on.output_text, went_on.usage.input_tokens))
        bob = self.client_of(second, keys["bob"])
        with self.assertRaises(openai.NotFoundError):
            bob.responses.retrieve(answer.id)
        with self.assertRaises(openai.BadRequestError):
            self.ask(bob, previous_response_id=answer.id)
        two.responses.delete(answer.id)
        with self.assertRaises(openai.NotFoundError):
            one.responses.retrieve(answer.id)
        unstored = self.ask(one, store=False)
        with self.assertRaises(openai.NotFoundError):
            two.responses.retrieve(unstored.id)

    @serving.nightly_only
    def test_a_restarted_server_finds_its_responses(self):
        words = ("--responses-dir", self.folder(), "--max-responses-age", "1h")
        server = serving.Server(512, *words)
        try:
            answer = self.ask(self.client_of(server))
        finally:
            server.close()
        client = self.client_of(self.serve(*words))
        self.assertEqual(client.responses.retrieve(answer.id).output_text, answer.output_text)
        client.responses.delete(answer.id)


if __name__ == "__main__":
    serving.main()
