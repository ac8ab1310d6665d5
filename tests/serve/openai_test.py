#!/usr/bin/env python3
"""Chat completions, completions and models, called with OpenAI's package."""
import concurrent.futures
import math
import os
import tempfile
import unittest

import gguf_template
import serving

serving.few_layers = True

openai = serving.package("openai")
COLOURS = [{"role": "user", "content": "Name three colours."}]
SEVEN = [{"role": "user", "content": "Count from one to twenty in words."}]


class OpenAiCase(serving.ServedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0,
                                   timeout=serving.PATIENCE)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        super().tearDownClass()

    def chat(self, **more):
        more = {"messages": COLOURS, "temperature": 0, "max_tokens": 12, **more}
        return self.client.chat.completions.create(model=self.model, **more)

    def complete(self, prompt, **more):
        more = {"temperature": 0, "max_tokens": 8, **more}
        return self.client.completions.create(model=self.model, prompt=prompt, **more)

    def refused(self, error, call, *words, **more):
        """Returns the body of the error that `call` must raise."""
        with self.assertRaises(error) as caught:
            call(*words, **more)
        body = caught.exception.body
        self.assertEqual(set(body), {"message", "type", "param", "code"})
        return body


def joined(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


class Models(OpenAiCase):
    def test_list_and_one(self):
        models = self.client.models.list().data
        self.assertEqual(len(models), 1)
        self.assertEqual(models[0].object, "model")
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)
        self.assertEqual(self.client.models.retrieve("gpt-test").id, self.model)

    def test_unknown(self):
        for call in (lambda: self.client.models.retrieve("other"),
                     lambda: self.client.completions.create(model="other", prompt="a"),
                     lambda: self.client.chat.completions.create(model="other", messages=COLOURS)):
            body = self.refused(openai.NotFoundError, call)
            self.assertEqual(body["code"], "model_not_found")
            self.assertEqual(body["param"], "model")
            self.assertIn("other", body["message"])

    def test_unknown_path(self):
        self.refused(openai.NotFoundError, self.client.moderations.create, input="x")

    def test_methods(self):
        get, post = "GET, HEAD", "POST"
        for path, allowed in (("/v1/chat/completions", post), ("/v1/completions", post),
                              ("/v1/embeddings", post), ("/v1/responses", post),
                              ("/v1/responses/a", "GET, HEAD, DELETE"), ("/v1/messages", post),
                              ("/v1/responses/a/input_items", get), ("/tokenize", post),
                              ("/v1/models", get), ("/models", get), ("/v1/models/a", get),
                              ("/props", get), ("/metrics", get), ("/health", get), ("/", get),
                              ("/live", get), ("/ready", get), ("/v1/health", get),
                              ("/healthz", get), ("/api/status", get), ("/openapi.json", get)):
            for method in ("GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "BREW"):
                status, headers, body = self.server.call(
                    method, path, "{" if method == "POST" else None)
                if method in allowed.split(", "):
                    self.assertNotEqual(status, 405, (method, path))
                    self.assertNotIn(b"unknown_url", body, (method, path))
                    continue
                self.assertEqual((status, headers["Allow"]), (405, allowed), (method, path))
                if method != "HEAD" and not path.startswith("/v1/messages"):
                    self.assertIn(b'"method_not_supported"', body)
        for body in ("x", "x" * 100_000):
            status, headers, _ = self.server.call("PUT", "/v1/chat/completions", body)
            self.assertEqual((status, headers["Allow"]), (405, post))


class Chat(OpenAiCase):
    def test_complete_answer(self):
        answer = self.chat(max_tokens=24)
        choice = answer.choices[0]
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.model, self.model)
        self.assertEqual(choice.message.role, "assistant")
        self.assertIn(choice.finish_reason, ("stop", "length"))
        self.assertIsNone(choice.logprobs)
        usage = answer.usage
        self.assertGreater(usage.prompt_tokens, 5)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertLessEqual(usage.completion_tokens, 24)

    def test_as_weft_run(self):
        words = serving.weft("run", serving.model(), "--greedy", "-t", "1", "-p",
                             COLOURS[0]["content"], "-n", "24", "--json")
        said = serving.json.loads(words)["text"]
        self.assertEqual(self.chat(max_tokens=24).choices[0].message.content, said)

    def test_stream_is_the_same(self):
        whole = self.chat(messages=SEVEN, max_tokens=30)
        chunks = list(self.chat(messages=SEVEN, max_tokens=30, stream=True,
                                stream_options={"include_usage": True}))
        self.assertEqual(joined(chunks), whole.choices[0].message.content)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(chunks[-1].usage.prompt_tokens, whole.usage.prompt_tokens)
        self.assertTrue(all(c.usage is None for c in chunks[:-1]))
        ends = [c.choices[0].finish_reason for c in chunks if c.choices]
        self.assertEqual(ends[-1], whole.choices[0].finish_reason)
        self.assertTrue(all(end is None for end in ends[:-1]))
        self.assertEqual(len({c.id for c in chunks}), 1)

    def test_stream_helper(self):
        with self.client.chat.completions.stream(model=self.model, messages=COLOURS, temperature=0,
                                                 max_tokens=40, stop=[" "]) as stream:
            deltas = [event.delta for event in stream if event.type == "content.delta"]
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.content,
                         self.chat(stop=[" "]).choices[0].message.content)
        self.assertEqual(final.choices[0].message.content, "".join(deltas))

    def test_no_usage_unless_asked(self):
        chunks = list(self.chat(stream=True))
        self.assertTrue(all(c.usage is None and len(c.choices) == 1 for c in chunks))

    def test_several_choices(self):
        answer = self.chat(n=3, temperature=1, seed=7)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2])
        self.assertGreater(len({c.message.content for c in answer.choices}), 1)
        again = self.chat(n=3, temperature=1, seed=7)
        self.assertEqual([c.message.content for c in answer.choices],
                         [c.message.content for c in again.choices])
        single = self.chat()
        self.assertEqual(answer.usage.prompt_tokens, single.usage.prompt_tokens)
        self.assertGreater(answer.usage.completion_tokens, single.usage.completion_tokens)
        texts = ["", "", ""]
        for chunk in self.chat(n=3, temperature=1, seed=7, stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        self.assertEqual(texts, [c.message.content for c in answer.choices])

    def test_seed(self):
        texts = {self.chat(temperature=1.5, seed=s).choices[0].message.content
                 for s in (3, 3, 3)}
        self.assertEqual(len(texts), 1)
        many = {self.chat(temperature=1.5).choices[0].message.content for _ in range(4)}
        self.assertGreater(len(many), 1)

    def test_stop(self):
        whole = self.chat(max_tokens=24).choices[0].message.content
        stop = whole[6:9]
        for given in (stop, [stop, "never said"]):
            answer = self.chat(max_tokens=24, stop=given)
            self.assertEqual(answer.choices[0].message.content, whole[:whole.index(stop)])
            self.assertEqual(answer.choices[0].finish_reason, "stop")
            self.assertEqual(joined(self.chat(max_tokens=24, stop=given, stream=True)),
                             whole[:whole.index(stop)])

    def test_lengths(self):
        for name in ("max_tokens", "max_completion_tokens"):
            answer = self.chat(messages=SEVEN, **{"max_tokens": openai.omit, name: 5})
            self.assertEqual(answer.usage.completion_tokens, 5)
            self.assertEqual(answer.choices[0].finish_reason, "length")

    def test_logprobs(self):
        answer = self.chat(logprobs=True, top_logprobs=3, max_tokens=6)
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), answer.usage.completion_tokens)
        for token in content:
            self.assertEqual(len(token.top_logprobs), 3)
            # Greedy: each token is the most likely one.
            self.assertEqual(token.token, token.top_logprobs[0].token)
            self.assertEqual(token.logprob, token.top_logprobs[0].logprob)
            self.assertLess(sum(math.exp(t.logprob) for t in token.top_logprobs), 1 + 1e-4)
            self.assertGreaterEqual(token.top_logprobs[0].logprob, token.top_logprobs[1].logprob)
        said = b"".join(bytes(t.bytes) for t in content)
        self.assertTrue(said.decode().startswith(answer.choices[0].message.content))
        streamed = [t for c in self.chat(logprobs=True, top_logprobs=3, max_tokens=6, stream=True)
                    if c.choices and c.choices[0].logprobs
                    for t in c.choices[0].logprobs.content]
        self.assertEqual([t.token for t in streamed], [t.token for t in content])

    def bias_of(self, text, strength):
        _, body = self.server.json("POST", "/tokenize",
                                   {"prompt": text, "add_special_tokens": False})
        return {str(token): strength for token in body["tokens"]}

    def test_logit_bias(self):
        answer = self.chat(logit_bias=self.bias_of(" red", 100), max_tokens=4)
        self.assertEqual(answer.choices[0].message.content, " red red red red")
        first = self.chat(logprobs=True, max_tokens=1).choices[0].logprobs.content[0].token
        other = self.chat(logprobs=True, max_tokens=1, logit_bias=self.bias_of(first, -100))
        self.assertNotEqual(other.choices[0].logprobs.content[0].token, first)
        body = self.refused(openai.BadRequestError, self.chat, logit_bias={"x": 1})
        self.assertEqual(body["param"], "logit_bias")
        self.refused(openai.BadRequestError, self.chat, logit_bias={"1": 101})

    def test_roles_and_parts(self):
        plain = self.chat(messages=[{"role": "system", "content": "Be terse."}, *COLOURS])
        same = self.chat(messages=[
            {"role": "developer", "content": [{"type": "text", "text": "Be terse."}]},
            {"role": "user", "content": [{"type": "text", "text": "Name three colours."}]}])
        self.assertEqual(plain.choices[0].message.content, same.choices[0].message.content)
        self.assertEqual(plain.usage.prompt_tokens, same.usage.prompt_tokens)
        body = self.refused(openai.BadRequestError, self.chat, messages=[
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])
        self.assertEqual(body["param"], "messages[0].content")

    def test_refusals_in_the_history(self):
        def tokens(said):
            return self.chat(messages=[*COLOURS, {"role": "assistant", **said}, *COLOURS],
                             max_tokens=1).usage.prompt_tokens
        plain = tokens({"content": "I can't do that."})
        refusal = {"type": "refusal", "refusal": "I can't do that."}
        for said in ({"content": [refusal]}, {"content": None, "refusal": "I can't do that."},
                     {"refusal": "I can't do that."},
                     {"content": "I can't do that.", "refusal": None}):
            self.assertEqual(tokens(said), plain, said)
        self.assertLess(tokens({"content": None, "refusal": None}), plain)
        for wrong in ({"role": "user", "content": [refusal]},
                      {"role": "assistant", "content": [{"type": "refusal"}]},
                      {"role": "assistant", "content": None, "refusal": 3}):
            body = self.refused(openai.BadRequestError, self.chat, messages=[wrong])
            self.assertTrue(body["param"].startswith("messages[0]."), body)

    def test_allowed_functions(self):
        tools = [{"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "required": ["at"], "additionalProperties": False,
            "properties": {"at": {"enum": ["here"]}}}}} for name in ("look", "listen", "wait")]

        def allow(mode, *names):
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [
                {"type": "function", "function": {"name": name}} for name in names]}}
        for names in (("look",), ("listen",), ("wait",), ("wait", "listen")):
            answer = self.chat(tools=tools, tool_choice=allow("required", *names), max_tokens=60)
            self.assertIn(answer.choices[0].message.tool_calls[0].function.name, names)
        only = self.chat(tools=tools[1:2], max_tokens=1).usage.prompt_tokens
        auto = self.chat(tools=tools, tool_choice=allow("auto", "listen"), max_tokens=1)
        self.assertEqual(auto.usage.prompt_tokens, only)
        more = self.chat(tools=tools, tool_choice="auto", max_tokens=1)
        self.assertGreater(more.usage.prompt_tokens, only)
        for choice, says in ((allow("auto", "wait", "smell"), "smell"),
                             (allow("never", "wait"), "'auto', 'required'"),
                             (allow("auto"), "1 to"), ({"type": "allowed_tools"}, "mode"),
                             ({"type": "allowed_tools", "allowed_tools": 3}, "mode")):
            body = self.refused(openai.BadRequestError, self.chat, tools=tools, tool_choice=choice)
            self.assertTrue(body["param"].startswith("tool_choice.allowed_tools."), body)
            self.assertIn(says, body["message"])

    def test_a_forced_function(self):
        tool = {"type": "function", "function": {"name": "weather", "parameters": {
            "type": "object", "required": ["town"], "additionalProperties": False,
            "properties": {"town": {"enum": ["Ulm", "Bonn"]}}}}}
        for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
            more = {"tools": [tool], "tool_choice": choice, "max_tokens": 60}
            answer = self.chat(**more).choices[0]
            self.assertEqual(answer.finish_reason, "tool_calls")
            call = answer.message.tool_calls[0].function
            self.assertEqual(call.name, "weather")
            self.assertIn(serving.json.loads(call.arguments)["town"], ("Ulm", "Bonn"))
            streamed = [c.choices[0].delta.tool_calls for c in self.chat(stream=True, **more)]
            streamed = [calls[0] for calls in streamed if calls]
            text = "".join(piece.function.arguments for piece in streamed)
            self.assertEqual(serving.json.loads(text), serving.json.loads(call.arguments))
            self.assertEqual(streamed[0].function.name, "weather")
            self.assertGreater(len(streamed), 2, "the arguments come piece by piece")
            self.assertTrue(all(piece.index == 0 for piece in streamed))
            self.assertTrue(all(piece.id is None and piece.function.name is None
                                for piece in streamed[1:]))

    def test_extras(self):
        answer = self.chat(extra_body={"top_k": 1, "min_p": 0.1, "repetition_penalty": 1.1,
                                       "ignore_eos": True}, temperature=1, max_tokens=40)
        self.assertEqual(answer.usage.completion_tokens, 40)

    def test_cached_tokens(self):
        # Only whole pages of 64 positions are cached.
        long = [{"role": "user", "content": "Say yes. " * 60}]
        self.chat(messages=long, max_tokens=1)
        answer = self.chat(messages=long, max_tokens=1)
        self.assertGreaterEqual(answer.usage.prompt_tokens_details.cached_tokens, 64)


class Completions(OpenAiCase):
    def test_as_weft_run(self):
        words = serving.weft("run", serving.model(), "--greedy", "-t", "1", "--raw", "-p",
                             "The capital of France is", "-n", "16", "--json")
        answer = self.complete("The capital of France is", max_tokens=16)
        self.assertEqual(answer.object, "text_completion")
        self.assertEqual(answer.choices[0].text, serving.json.loads(words)["text"])

    def test_prompts(self):
        _, tokens = self.server.json("POST", "/tokenize", {"prompt": "One, two,"})
        ids = tokens["tokens"]
        one, other = (self.complete(p).choices[0].text for p in ("One, two,", "Red, green,"))
        self.assertEqual(self.complete(ids).choices[0].text, one)
        for prompts in (["One, two,", "Red, green,"], [ids, ids]):
            answer = self.complete(prompts)
            expected = [one, other] if isinstance(prompts[0], str) else [one, one]
            self.assertEqual([c.text for c in answer.choices], expected)
            self.assertEqual([c.index for c in answer.choices], [0, 1])
        two = self.complete(["One, two,", "Red, green,"], n=2, temperature=1, seed=1)
        self.assertEqual([c.index for c in two.choices], [0, 1, 2, 3])

    def test_echo(self):
        plain = self.complete("One, two,").choices[0].text
        _, tokens = self.server.json("POST", "/tokenize", {"prompt": "One, two,"})
        self.assertEqual(self.complete("One, two,", echo=True).choices[0].text,
                         "One, two," + plain)
        self.assertEqual(self.complete(tokens["tokens"], echo=True).choices[0].text,
                         "One, two," + plain)

    def test_penalties(self):
        server = serving.Server(256, of=serving.whole_model())
        self.addCleanup(server.close)

        def reds(**more):
            status, answer = server.json("POST", "/v1/completions", {
                "prompt": "red red red red red red", "temperature": 0, "max_tokens": 8, **more})
            self.assertEqual(status, 200, answer)
            return answer["choices"][0]["text"].count("red")
        plain = reds()
        for name in ("presence_penalty", "frequency_penalty"):
            self.assertLess(reds(**{name: 2}), plain)
            self.refused(openai.BadRequestError, self.complete, "red", **{name: 2.1})

    def test_default_length(self):
        answer = self.complete("One, two, three,", max_tokens=openai.omit,
                               extra_body={"ignore_eos": True})
        self.assertEqual(answer.usage.completion_tokens, 16)

    def test_stream_and_logprobs(self):
        whole = self.complete("One, two,", logprobs=2)
        chances = whole.choices[0].logprobs
        self.assertEqual("".join(chances.tokens), whole.choices[0].text)
        self.assertEqual(chances.text_offset[0], 0)
        self.assertTrue(all(len(best) == 2 for best in chances.top_logprobs))
        text, tokens, offsets = "", [], []
        for chunk in self.complete("One, two,", logprobs=2, stream=True):
            text += chunk.choices[0].text
            if chunk.choices[0].logprobs:
                tokens += chunk.choices[0].logprobs.tokens
                offsets += chunk.choices[0].logprobs.text_offset
        self.assertEqual(text, whole.choices[0].text)
        self.assertEqual(tokens, chances.tokens)
        self.assertEqual(offsets, chances.text_offset)

    def test_refused(self):
        for more, param in (({"suffix": "end"}, "suffix"), ({"best_of": 3}, "best_of"),
                            ({"n": 65}, "n"), ({"max_tokens": -2}, "max_tokens"),
                            ({"logprobs": 21}, "logprobs")):
            body = self.refused(openai.BadRequestError, self.complete, "One", **more)
            self.assertEqual(body["param"], param, more)
        for prompt in ([], "", [[]], [1, "a"], [-1], [10 ** 12], {"a": 1}, 5, None, [[1], "a"]):
            status, _ = self.server.json("POST", "/v1/completions",
                                         {"prompt": prompt, "max_tokens": 1})
            self.assertEqual(status, 200 if prompt == [[1], "a"] else 400, prompt)


class Company(OpenAiCase):
    def test_streams_do_not_change_each_other(self):
        def ask(i):
            messages = [{"role": "user", "content": f"Tell me a fact about the number {i}."}]
            return joined(self.chat(messages=messages, max_tokens=16, stream=True,
                                    temperature=i % 2, seed=i))
        alone = [ask(i) for i in range(8)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(ask, range(8)))
        self.assertEqual(together, alone)

    def test_a_disconnect_frees_pages(self):
        before = self.server.status()
        stream = self.chat(messages=SEVEN, max_tokens=1900, stream=True,
                           extra_body={"ignore_eos": True})
        next(iter(stream))
        # The status is updated at the end of a step; the text is sent during it.
        running = self.server.wait_for(lambda s: s["running"] == 1, 1)
        self.assertEqual(running["running"], 1)
        stream.close()
        after = self.server.wait_for(lambda s: s["running"] == 0, 4)
        self.assertEqual(after["running"], 0)
        self.assertEqual(after["requests"]["cancelled"], before["requests"]["cancelled"] + 1)
        pages = after["kv_pages"]
        self.assertEqual(pages["all"], pages["free"] + pages["idle"])

    def test_a_disconnect_from_a_complete_answer(self):
        before = self.server.status()["requests"]["cancelled"]
        with self.assertRaises(openai.APITimeoutError):
            self.client.with_options(timeout=0.5).chat.completions.create(
                model=self.model, messages=SEVEN, max_tokens=1900, n=2,
                extra_body={"ignore_eos": True})
        # A slow machine may start the request after the client has disconnected.
        after = self.server.wait_for(
            lambda s: s["running"] == 0 and s["requests"]["cancelled"] == before + 2, 4)
        self.assertEqual(after["running"], 0)
        self.assertEqual(after["requests"]["cancelled"], before + 2)


class Media(serving.ServedCase):
    """--media-as-text: an image does not end an agent's session at every turn."""
    context, words = 512, ("--media-as-text",)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}

    def test_a_note_replaces_an_image(self):
        note = "[an image, which this model cannot see]"
        asked = [{"role": "user", "content": [{"type": "text", "text": "What?"}, self.picture]}]
        status, answer = self.server.json("POST", "/apply-template", {"messages": asked})
        self.assertEqual(status, 200, answer)
        self.assertIn("What?" + note, answer["prompt"])
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                             "data": "aGk="}}
        for path, body in (
                ("/v1/chat/completions", {"messages": asked, "max_tokens": 1}),
                ("/v1/responses", {"max_output_tokens": 1, "input": [{
                    "role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}),
                ("/v1/messages", {"max_tokens": 1, "messages": [
                    {"role": "user", "content": [image]}]}),
                ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": [image]}]}),
                ("/api/chat", {"model": "gpt-test", "stream": False, "options": {"num_predict": 1},
                               "messages": [{"role": "user", "content": "What?",
                                             "images": ["aGk="]}]}),
                ("/api/generate", {"model": "gpt-test", "stream": False, "prompt": "What?",
                                   "images": ["aGk="], "options": {"num_predict": 1}})):
            status, answer = self.server.json("POST", path, body)
            self.assertEqual(status, 200, (path, answer))


class Refused(OpenAiCase):
    context = 128

    def test_images(self):
        """In a user's message; the result of a tool gets a note, as in the other APIs."""
        asked = {"role": "user", "content": [Media.picture]}
        body = self.refused(openai.BadRequestError, self.chat, messages=[asked])
        self.assertEqual(body["code"], "unsupported_content")
        call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        status, answer = self.server.json("POST", "/apply-template", {"messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": [Media.picture]}]})
        self.assertEqual(status, 200, answer)
        self.assertIn("[an image, which this model cannot see]", answer["prompt"])

    def test_context(self):
        long = [{"role": "user", "content": "word " * 300}]
        body = self.refused(openai.BadRequestError, self.chat, messages=long)
        self.assertEqual(body["code"], "context_length_exceeded")
        self.assertEqual(body["param"], "messages")
        self.assertIn("128", body["message"])
        self.assertRegex(body["message"], "3[0-9][0-9] tokens")
        body = self.refused(openai.BadRequestError, self.complete, "word " * 300)
        self.assertEqual(body["code"], "context_length_exceeded")
        self.assertEqual(body["param"], "prompt")

    def test_each_api_says_so_in_its_own_words(self):
        long = "word " * 300
        messages = [{"role": "user", "content": long}]
        for path, body, words in (
                ("/v1/chat/completions", {"messages": messages, "stream": True},
                 "This model's maximum context length is 128 tokens."),
                ("/v1/responses", {"input": long}, "Your input exceeds the context window"),
                ("/v1/messages", {"messages": messages, "max_tokens": 9, "stream": True},
                 "prompt is too long: 3"),
                ("/v1/messages", {"messages": [{"role": "user", "content": "1" * 100_000}],
                                  "max_tokens": 9}, "tokens > 12"),
                ("/completion", {"prompt": long}, "exceeds the available context size (128"),
                ("/api/chat", {"model": "gpt-test", "messages": messages},
                 "the prompt is longer than the context length")):
            status, answer = self.server.json("POST", path, body)
            self.assertEqual(status, 400, answer)
            error = answer["error"]
            self.assertIn(words, error if isinstance(error, str) else error["message"])
        for text in (long, "1" * 100_000):
            status, headers, data = self.server.call("POST", "/v1/responses", {
                "input": text, "stream": True})
            self.assertEqual((status, headers["Content-Type"].split(";")[0]),
                             (200, "text/event-stream"))
            last = serving.json.loads(data.decode().strip().split("\n")[-1][len("data: "):])
            self.assertEqual((last["type"], last["response"]["error"]["code"]),
                             ("response.failed", "context_length_exceeded"))

    def test_huge_lengths_end_with_the_context(self):
        text = "word " * 110
        answer = self.complete(text, max_tokens=2 ** 62, extra_body={"ignore_eos": True})
        self.assertEqual(answer.usage.total_tokens, 128)
        self.assertEqual(answer.choices[0].finish_reason, "length")

    def test_values(self):
        cases = ((("temperature", -0.1), ("temperature", 101), ("temperature", "hot"),
                  ("top_p", 1.5), ("top_p", -1), ("n", 0), ("n", 65), ("n", "2"),
                  ("max_tokens", 0), ("max_tokens", -2), ("max_tokens", 1.5),
                  ("max_completion_tokens", 0), ("stop", 5), ("stop", ["a"] * 17),
                  ("stop", [1]), ("seed", "x"), ("logprobs", 3), ("top_logprobs", 2),
                  ("top_logprobs", 21), ("stream", "yes"), ("stream_options", 1),
                  ("tools", "all"), ("tools", [{}]), ("tool_choice", "some"),
                  ("tool_choice", {"type": "function", "function": {"name": "x"}}),
                  ("tool_choice", {"type": "function", "function": {"name": 5}}),
                  ("tool_choice", {"type": "function", "function": {"name": ["a"]}}),
                  ("logit_bias", [5]), ("logit_bias", [["a", 1, 2]]),
                  ("logit_bias", [[-1, 1]]), ("logit_bias", [[[], 1]]), ("logit_bias", "x"),
                  ("logit_bias", {"1": "x"})))
        for name, value in cases:
            with self.subTest(name=name, value=value):
                body = self.refused(openai.BadRequestError, self.chat, extra_body={name: value})
                self.assertTrue(body["param"].startswith(name), body)
                self.assertEqual(body["type"], "invalid_request_error")

    def test_messages(self):
        good = {"role": "user", "content": "a"}
        for messages, param in (([], "messages"), ("hello", "messages"), (None, "messages"),
                                ({}, "messages"), ([1], "messages[0]"),
                                ([good, {"content": "a"}], "messages[1].role"),
                                ([{"role": "king", "content": "a"}], "messages[0].role"),
                                ([{"role": 1, "content": "a"}], "messages[0].role"),
                                ([{"role": "user", "content": 5}], "messages[0].content"),
                                ([{"role": "user", "content": [5]}], "messages[0].content"),
                                ([{"role": "user"}], "messages[0].content"),
                                ([{"role": "user", "content": [{"type": "text"}]}],
                                 "messages[0].content"),
                                ([{"role": "user", "content": [{"type": "text", "text": 1}]}],
                                 "messages[0].content")):
            with self.subTest(messages=messages):
                status, body = self.server.json("POST", "/v1/chat/completions",
                                                {"messages": messages, "max_tokens": 1})
                self.assertEqual(status, 400)
                self.assertEqual(body["error"]["param"], param)


class Template(unittest.TestCase):
    def test_what_the_template_rejects(self):
        """A template's error is a client error."""
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "m.gguf")
            for template in serving.some(("{{ raise_exception('no') }}",
                                          "{{ messages[0].content + 1 }}",
                                          "{{ nothing.of.that.kind }}"), 3):
                gguf_template.with_template(serving.model(), model, template)
                server = serving.Server(256, of=model)
                try:
                    status, answer = server.json("POST", "/v1/chat/completions",
                                                 {"messages": COLOURS, "max_tokens": 1})
                finally:
                    server.close()
                self.assertEqual(status, 400, answer)
                self.assertEqual(answer["error"]["code"], "invalid_value", answer)
                self.assertEqual(answer["error"]["param"], "messages")


if __name__ == "__main__":
    serving.main()
