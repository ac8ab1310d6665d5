#!/usr/bin/env python3
"""Messages API, called with Anthropic's package."""
import os
import tempfile
import unittest

import gguf_template
import serving

serving.few_layers = True

anthropic = serving.package("anthropic")
COLOURS = [{"role": "user", "content": "Name three colours."}]
WEATHER = {"name": "weather", "description": "The weather of a town.",
           "input_schema": {"type": "object", "required": ["town"], "additionalProperties": False,
                            "properties": {"town": {"enum": ["Ulm", "Bonn"]}}}}


class AnthropicCase(serving.ServedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = anthropic.Anthropic(base_url=cls.server.url, api_key="none", max_retries=0,
                                         timeout=serving.PATIENCE)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        super().tearDownClass()

    def ask(self, **more):
        more = {"messages": COLOURS, "max_tokens": 16, "extra_body": {"temperature": 0}, **more}
        return self.client.messages.create(model="gpt-test", **more)

    def chat(self, messages, **more):
        _, body = self.server.json("POST", "/v1/chat/completions",
                                   {"messages": messages, "temperature": 0, "max_tokens": 16,
                                    **more})
        return body["choices"][0]["message"]["content"], body["usage"]["prompt_tokens"]


class Models(AnthropicCase):
    def test_list_and_one(self):
        page = self.client.models.list()
        self.assertEqual((len(page.data), page.has_more), (1, False))
        model = page.data[0]
        self.assertEqual((page.first_id, page.last_id), (model.id, model.id))
        self.assertEqual((model.type, model.display_name), ("model", model.id))
        created = self.server.json("GET", "/v1/models")[1]["data"][0]["created"]
        self.assertEqual(model.created_at.timestamp(), created)
        self.assertEqual([each.id for each in self.client.models.list(limit=1)], [model.id])
        self.assertEqual(self.client.models.retrieve(model.id), model)


class Ids(AnthropicCase):
    def test_requests_have_ids(self):
        self.assertRegex(self.ask(max_tokens=1)._request_id, "^req_")
        count = self.client.messages.count_tokens(model="gpt-test", messages=COLOURS)
        self.assertRegex(count._request_id, "^req_")
        with self.client.messages.stream(model="gpt-test", messages=COLOURS,
                                         max_tokens=1) as stream:
            self.assertRegex(stream.request_id, "^req_")
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.ask(max_tokens=-1)
        self.assertRegex(caught.exception.request_id, "^req_")
        for method, path, body in (("POST", "/v1/messages", "{"), ("GET", "/v1/messages", None),
                                   ("POST", "/v1/messages/count_tokens", "x" * (33 << 20))):
            status, headers, _ = self.server.call(method, path, body, {"X-Request-Id": "mine"})
            self.assertGreaterEqual(status, 400)
            self.assertEqual((headers["request-id"], headers["X-Request-Id"]), ("mine", "mine"))
        self.assertIsNone(self.server.call("GET", "/v1/models")[1]["request-id"])


class Messages(AnthropicCase):
    def test_complete_answer(self):
        answer = self.ask()
        said, prompt_tokens = self.chat(COLOURS)
        self.assertEqual([block.type for block in answer.content], ["text"])
        self.assertEqual(answer.content[0].text, said)
        self.assertEqual(answer.role, "assistant")
        self.assertEqual(answer.type, "message")
        usage = answer.usage
        self.assertEqual(usage.input_tokens + usage.cache_read_input_tokens, prompt_tokens)
        self.assertLessEqual(usage.output_tokens, 16)

    def test_stream(self):
        whole = self.ask()
        with self.client.messages.stream(model="gpt-test", messages=COLOURS, max_tokens=16,
                                         extra_body={"temperature": 0}) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertEqual(final.stop_reason, whole.stop_reason)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_events(self):
        types = [event.type for event in self.ask(stream=True)]
        self.assertEqual(types[0], "message_start")
        self.assertEqual(types[-2:], ["message_delta", "message_stop"])
        self.assertEqual(types.count("content_block_start"), 1)
        self.assertEqual(types.count("content_block_stop"), 1)
        self.assertGreater(types.count("content_block_delta"), 3)

    def test_stop_reasons(self):
        whole = self.ask(max_tokens=24).content[0].text
        stop = whole[6:9]
        answer = self.ask(max_tokens=24, stop_sequences=["never said", stop])
        self.assertEqual(answer.stop_reason, "stop_sequence")
        self.assertEqual(answer.stop_sequence, stop)
        self.assertEqual(answer.content[0].text, whole[:whole.index(stop)])
        self.assertEqual(self.ask(max_tokens=3).stop_reason, "max_tokens")
        self.assertIsNone(self.ask(max_tokens=3).stop_sequence)

    def test_system_and_blocks(self):
        said, prompt_tokens = self.chat([{"role": "system", "content": "Be terse."}, *COLOURS])
        blocks = [{"role": "user", "content": [{"type": "text", "text": "Name three colours."}]}]
        for system in ("Be terse.", [{"type": "text", "text": "Be terse."}]):
            answer = self.ask(system=system, messages=blocks)
            self.assertEqual(answer.content[0].text, said)
        count = self.client.messages.count_tokens(model="gpt-test", system="Be terse.",
                                                  messages=blocks)
        self.assertEqual(count.input_tokens, prompt_tokens)

    def test_a_prefilled_answer(self):
        whole = self.ask(max_tokens=24).content[0].text
        begun = whole[:whole.index(" ", 4)]
        answer = self.ask(messages=[*COLOURS, {"role": "assistant", "content": begun}])
        self.assertTrue(answer.content[0].text)
        self.assertTrue((begun + answer.content[0].text).startswith(whole[:len(begun) + 1]))

    def test_a_prefilled_answer_is_not_reasoning(self):
        """If the template opens reasoning, it is closed before the prefilled answer."""
        template = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
                    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n"
                    "{% endif %}")
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "model.gguf")
            gguf_template.with_template(serving.model(), file, template)
            server = serving.Server(2048, of=file)
            try:
                def count(messages):
                    return server.json("POST", "/v1/messages/count_tokens", {
                        "model": "gpt-test", "messages": messages})[1]["input_tokens"]

                def length(text):
                    return len(server.json("POST", "/tokenize", {
                        "content": text, "add_special": False})[1]["tokens"])
                begun = [*COLOURS, {"role": "assistant", "content": "Red"}]
                self.assertEqual(count(begun) - count(COLOURS),
                                 length("<think>\n\n</think>\n\nRed") - length("<think>\n"))
            finally:
                server.close()

    def test_tools(self):
        call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"town": "Ulm"}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1",
                  "content": [{"type": "text", "text": "Rain."}]}
        answer = self.ask(tools=[WEATHER], tool_choice={"type": "auto"}, messages=[
            {"role": "user", "content": "How is the weather in Ulm?"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Ask.",
                                               "signature": ""},
                                              {"type": "text", "text": "I look."}, call]},
            {"role": "user", "content": [result, {"type": "text", "text": "So?"}]}])
        self.assertEqual(answer.content[0].type, "text")

    def test_a_forced_tool(self):
        for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
            more = {"tools": [WEATHER], "tool_choice": choice, "max_tokens": 60,
                    "messages": [{"role": "user", "content": "How is the weather in Ulm?"}]}
            answer = self.ask(**more)
            self.assertEqual(answer.stop_reason, "tool_use")
            self.assertEqual([block.type for block in answer.content], ["tool_use"])
            self.assertIn(answer.content[0].input["town"], ("Ulm", "Bonn"))
            with self.client.messages.stream(model="gpt-test", extra_body={"temperature": 0},
                                             **more) as stream:
                final = stream.get_final_message()
            self.assertEqual(final.content[0].input, answer.content[0].input)
            self.assertEqual(final.stop_reason, "tool_use")

    def test_models(self):
        self.assertEqual(len(self.client.models.list().data), 1)


class Refused(AnthropicCase):
    def refused(self, error, kind, says, **more):
        with self.assertRaises(error) as caught:
            self.ask(**more)
        body = caught.exception.body
        self.assertEqual(body["type"], "error")
        self.assertEqual(body["error"]["type"], kind)
        self.assertIn(says, body["error"]["message"])

    def test_values(self):
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                             "data": ""}}
        for says, more in (("max_tokens", {"max_tokens": 0}),
                           ("max_tokens", {"max_tokens": anthropic.omit}),
                           ("messages", {"messages": []}),
                           ("messages.0.role", {"messages": [{"role": "king", "content": "a"}]}),
                           ("messages.1.content", {"messages": [*COLOURS, {"role": "user"}]}),
                           ("image", {"messages": [{"role": "user", "content": [image]}]}),
                           ("tool_use", {"messages": [{"role": "user", "content": [
                               {"type": "tool_use", "id": "a", "name": "b", "input": {}}]}]}),
                           ("tools.0.name", {"tools": [{"input_schema": {}}]}),
                           ("'plugin_1'", {"tools": [{"type": "plugin_1", "name": "bash",
                                                      "input_schema": {}}]}),
                           ("tool_choice", {"tool_choice": {"type": "any"}}),
                           ("tool_choice", {"tool_choice": {"type": "tool", "name": "x"}}),
                           ("temperature", {"extra_body": {"temperature": -1}}),
                           ("1024 bytes", {"stop_sequences": ["a" * 1025]}),
                           ("3031 tokens > 2047 maximum",
                            {"messages": [{"role": "user", "content": "word " * 3000}]})):
            with self.subTest(says=says, more=str(more)[:100]):
                self.refused(anthropic.BadRequestError, "invalid_request_error", says, **more)

    def test_others(self):
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.client.messages.create(model="other", messages=COLOURS, max_tokens=1)
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")
        for body in (b"{", b"[]", b"\xff", b'{"messages":[1]}', b'{"messages":{},"max_tokens":1}',
                     b'{"messages":[{"role":"user","content":[1]}],"max_tokens":1}'):
            for path in ("/v1/messages", "/v1/messages/count_tokens"):
                status, answer = self.server.json("POST", path, body)
                self.assertEqual(status, 400)
                self.assertEqual(answer["type"], "error")


class Threads(AnthropicCase):
    """The server keeps no threads, so Anthropic's package sends whole conversations."""

    def test_a_later_turn_has_the_whole_conversation(self):
        thread = self.client.beta.messages.thread(
            model="gpt-test", max_tokens=8, extra_body={"temperature": 0},
            unsupported_request_behavior="continue_unthreaded")
        thread.send(COLOURS[0])
        usage = thread.send({"role": "user", "content": "And then?"}).usage
        whole = self.client.messages.count_tokens(model="gpt-test", messages=thread.messages[:-1])
        self.assertEqual(usage.input_tokens + usage.cache_read_input_tokens, whole.input_tokens)

    def test_the_error_has_the_code_of_the_api(self):
        for how in ({"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}):
            for path in ("/v1/messages", "/v1/messages/count_tokens"):
                status, answer = self.server.json(
                    "POST", path, {"messages": COLOURS, "max_tokens": 1, "thread": how})
                self.assertEqual(status, 400, answer)
                self.assertEqual(answer["error"]["details"],
                                 {"error_code": "thread_unsupported_request"})


class Agents(AnthropicCase):
    """Requests in the form of Claude Code 2.1."""

    def test_a_forced_shell(self):
        tools = [{"type": "bash_20250124", "name": "bash"},
                 {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]
        answer = self.ask(tools=tools, tool_choice={"type": "tool", "name": "bash"},
                          max_tokens=60)
        self.assertEqual((answer.content[0].type, answer.content[0].name), ("tool_use", "bash"))
        for name in ("web_search", "none"):
            with self.assertRaises(anthropic.BadRequestError):
                self.ask(tools=tools, tool_choice={"type": "tool", "name": name})

    def test_deferred_tools(self):
        late = {**WEATHER, "name": "late", "defer_loading": True}
        turns = [*COLOURS,
                 {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1",
                                                    "name": "weather", "input": {"town": "Ulm"}}]},
                 {"role": "user", "content": [
                     {"type": "tool_result", "tool_use_id": "toolu_1",
                      "cache_control": {"type": "ephemeral"},
                      "content": [{"type": "tool_reference", "tool_name": "late"}]}]}]
        force = {"tools": [WEATHER, late], "tool_choice": {"type": "tool", "name": "late"}}
        with self.assertRaises(anthropic.BadRequestError):
            self.ask(**force)
        answer = self.ask(messages=turns, max_tokens=60, **force)
        self.assertEqual(answer.content[0].name, "late")

    def test_calls_of_servers(self):
        turns = [*COLOURS, {"role": "assistant", "content": [
            {"type": "text", "text": "I search."},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
             "input": {"query": "colours"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
                {"type": "web_search_result", "title": "Red", "url": "https://a.b",
                 "encrypted_content": "EqgfCioIARgB"}]},
            {"type": "text", "text": "Red."}]}, {"role": "user", "content": "And?"}]
        self.assertTrue(self.ask(messages=turns).content)
        count = self.client.messages.count_tokens(model="gpt-test", messages=turns)
        plain = [*COLOURS, {"role": "assistant", "content": "I search."},
                 {"role": "user", "content": "And?"}]
        self.assertGreater(count.input_tokens, self.client.messages.count_tokens(
            model="gpt-test", messages=plain).input_tokens)

    def test_documents(self):
        def ask(source):
            return self.ask(messages=[{"role": "user", "content": [
                {"type": "document", "title": "Notes", "source": source},
                {"type": "text", "text": "What is it?"}]}])
        text = ask({"type": "text", "media_type": "text/plain", "data": "It is red."})
        count = self.client.messages.count_tokens(model="gpt-test", messages=[
            {"role": "user", "content": "Notes\n\nIt is red.\n\nWhat is it?"}])
        self.assertEqual(text.usage.input_tokens + text.usage.cache_read_input_tokens,
                         count.input_tokens)
        with self.assertRaises(anthropic.BadRequestError) as caught:
            ask({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="})
        self.assertIn("PDF", str(caught.exception))


if __name__ == "__main__":
    serving.main()
