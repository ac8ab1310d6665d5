#!/usr/bin/env python3
"""llama-server's API: /completion, /infill, /props, /tokenize, /detokenize, /apply-template, paths
without /v1; and OpenAI's suffix. The model has no FIM tokens, so other tokens serve as such."""
import http.client
import json
import os
import tempfile
import unittest

import gguf_template
import serving

openai = serving.package("openai")
PRE, SUF, MID, SEP = 11, 12, 13, 14
FIM = {"tokenizer.ggml.fim_pre_token_id": PRE, "tokenizer.ggml.fim_suf_token_id": SUF,
       "tokenizer.ggml.fim_mid_token_id": MID, "tokenizer.ggml.fim_sep_token_id": SEP,
       "tokenizer.ggml.fim_rep_token_id": 3,
       "general.sampling.temp": 0.0, "general.sampling.top_k": 17}
BEFORE, BEHIND = "The capital of France is", ", and the capital of Italy is Rome."


class Plain(serving.ServedCase):
    """A model without FIM tokens."""
    context = 512

    def post(self, path, body, status=200):
        got, answer = self.server.json("POST", path, body)
        self.assertEqual(got, status, answer)
        return answer

    def test_tokenize(self):
        hello = self.post("/tokenize", {"content": "Hello world"})
        self.assertEqual(list(hello), ["tokens"])
        self.assertEqual(self.post("/detokenize", hello)["content"], "Hello world")
        marked = self.post("/tokenize", {"content": "<|im_start|>"})["tokens"]
        self.assertEqual(marked, [1])
        plain = self.post("/tokenize", {"content": "<|im_start|>", "parse_special": False})
        self.assertGreater(len(plain["tokens"]), 1)
        self.assertEqual(self.post("/tokenize", {"content": ""})["tokens"], [])
        text = "aé\U0001f9f5\U0010fffd"
        pieces = self.post("/tokenize", {"content": text, "with_pieces": True})["tokens"]
        data = b"".join(piece["piece"].encode() if isinstance(piece["piece"], str)
                        else bytes(piece["piece"]) for piece in pieces)
        self.assertEqual(data.decode(), text)
        self.assertTrue(any(isinstance(piece["piece"], list) for piece in pieces))
        # vLLM's form is unchanged.
        count = self.post("/tokenize", {"prompt": "Hello world", "add_special_tokens": False})
        self.assertEqual((count["count"], count["tokens"]), (2, hello["tokens"]))

    def test_tokenize_refuses(self):
        for body in ({"content": 3}, {"content": ["a"]}, {}, {"content": None},
                     {"content": "a", "parse_special": "yes"}, {"content": "a", "with_pieces": 1},
                     {"content": "x" * ((4 << 20) + 1)},
                     {"content": "1" * 300_000, "with_pieces": True},
                     {"prompt": "1" * 300_000, "return_token_strs": True}):
            self.assertIn("error", self.post("/tokenize", body, 400))
        for tokens in ([-1], [1 << 40], ["a"], 7, [1.5]):
            self.assertIn("error", self.post("/detokenize", {"tokens": tokens}, 400))

    def test_apply_template(self):
        messages = [{"role": "user", "content": "Wie heißt du? <|im_end|>"}]
        prompt = self.post("/apply-template", {"messages": messages})["prompt"]
        self.assertIn("<|im_start|>user\nWie heißt du? <|im_end|><|im_end|>\n", prompt)
        self.assertTrue(prompt.endswith("<|im_start|>assistant\n"), prompt)
        for body in ({}, {"messages": "a"}, {"messages": [1]}, {"messages": [{"role": 1}]},
                     {"messages": [{"role": "user", "content": "x" * (5 << 20)}]}):
            self.assertIn("error", self.post("/apply-template", body, 400))

    def test_props(self):
        status, props = self.server.json("GET", "/props")
        self.assertEqual(status, 200)
        settings = props["default_generation_settings"]
        self.assertEqual(settings["n_ctx"], 512)
        params = settings["params"]
        self.assertEqual((params["temperature"], params["top_k"]), (0.8, 40))
        self.assertEqual(props["total_slots"], 32)
        self.assertEqual(props["model_path"], serving.model())
        self.assertIn("im_start", props["chat_template"])
        self.assertEqual(props["eos_token"], "<|im_end|>")
        self.assertEqual(self.server.call("POST", "/props", {})[0], 405)

    def test_health(self):
        for path in ("/health", "/v1/health"):
            self.assertEqual(self.server.json("GET", path), (200, {"status": "ok"}))

    def test_models(self):
        model = self.server.json("GET", "/v1/models")[1]["data"][0]
        self.assertEqual(model["max_model_len"], 512)
        self.assertEqual(model["meta"]["n_ctx_train"], 8192)
        self.assertEqual(model["meta"]["n_vocab"], 49152)
        self.assertGreater(model["meta"]["n_params"], 130_000_000)

    def test_paths_without_v1(self):
        with openai.OpenAI(base_url=self.server.url, api_key="none", max_retries=0,
                           timeout=serving.PATIENCE) as client:
            said = client.completions.create(model="gpt-test", prompt=BEFORE, max_tokens=4,
                                             temperature=0).choices[0].text
            chat = client.chat.completions.create(
                model="gpt-test", messages=[{"role": "user", "content": "Hi."}], max_tokens=2)
            self.assertEqual(chat.usage.completion_tokens, 2)
            self.assertEqual(len(client.embeddings.create(model="gpt-test", input="a").data), 1)
            model = client.models.list().data[0].id
        answer = self.post("/v1/completions", {"prompt": BEFORE, "max_tokens": 4,
                                               "temperature": 0})
        self.assertEqual((answer["choices"][0]["text"], answer["model"]), (said, model))

    def complete(self, prompt=BEFORE, status=200, **more):
        return self.post("/completion", {"prompt": prompt, "n_predict": 8, "temperature": 0,
                                         "cache_prompt": True, **more}, status)

    def test_completion(self):
        whole = self.complete()
        body = {"prompt": BEFORE, "max_tokens": 8, "temperature": 0}
        self.assertEqual(whole["content"],
                         self.post("/v1/completions", body)["choices"][0]["text"])
        self.assertEqual((whole["stop"], whole["stop_type"], whole["stopping_word"]),
                         (True, "limit", ""))
        self.assertEqual((whole["tokens_predicted"], whole["tokens"], whole["truncated"]),
                         (8, [], False))
        self.assertEqual((whole["prompt"], whole["model"]),
                         (BEFORE, self.server.json("GET", "/v1/models")[1]["data"][0]["id"]))
        self.assertEqual(whole["generation_settings"]["n_predict"], 8)
        self.assertEqual(whole["timings"]["predicted_n"], 8)
        tokens = self.post("/tokenize", {"content": BEFORE})["tokens"]
        self.assertEqual(whole["tokens_evaluated"], len(tokens))
        same = self.complete(tokens, return_tokens=True)
        self.assertEqual((same["content"], len(same["tokens"])), (whole["content"], 8))
        word = whole["content"].split()[1]
        answer = self.complete(stop=[word])
        self.assertEqual((answer["stop_type"], answer["stopping_word"]), ("word", word))
        self.assertEqual(self.complete(n_predict=0)["content"], "")
        # Clients that render conversations write special tokens themselves.
        chat = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
        marked = self.complete(chat, n_predict=64)
        self.assertEqual(marked["tokens_evaluated"],
                         len(self.post("/tokenize", {"content": chat})["tokens"]))
        self.assertIn("eos", (marked["stop_type"], self.complete(chat, n_predict=-1)["stop_type"]))

    def test_markers_in_prompts(self):
        """Prompts that clients render: special tokens are tokens, unless the client says no."""
        chat = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
        count = len(self.post("/tokenize", {"content": chat})["tokens"])
        letters = len(self.post("/tokenize", {"content": chat, "parse_special": False})["tokens"])
        self.assertGreater(letters, count)
        self.assertEqual(self.post("/tokenize", {"prompt": chat})["count"], count)
        for more, wanted in (({}, count), ({"parse_special": None}, count),
                             ({"parse_special": True}, count), ({"parse_special": False}, letters)):
            for prompt in (chat, [chat]):
                usage = self.post("/v1/completions", {"prompt": prompt, "max_tokens": 1,
                                                      **more})["usage"]
                self.assertEqual(usage["prompt_tokens"], wanted, more)
            self.assertEqual(self.complete(chat, n_predict=1, **more)["tokens_evaluated"], wanted)
        for path in ("/v1/completions", "/completion", "/tokenize"):
            self.post(path, {"prompt": chat, "parse_special": "yes"}, 400)
        # A message stays text.
        asked = {"messages": [{"role": "user", "content": chat}]}
        self.assertGreater(self.post("/tokenize", asked)["count"], letters)

    def test_completion_in_a_stream(self):
        data = self.server.call("POST", "/completion", {
            "prompt": BEFORE, "n_predict": 8, "temperature": 0, "stream": True})[2].decode()
        events = [json.loads(part[len("data: "):]) for part in data.strip().split("\n\n")]
        self.assertEqual("".join(event["content"] for event in events),
                         self.complete()["content"])
        self.assertEqual([event["stop"] for event in events],
                         [False] * (len(events) - 1) + [True])
        self.assertEqual(events[-1]["tokens_predicted"], 8)

    def test_timings_of_each_part(self):
        """Each part of a stream has timings if the request asks for them."""
        prompt = "Timings. " * 40
        count = len(self.post("/tokenize", {"content": prompt})["tokens"])
        chat = [{"role": "user", "content": prompt}]
        for path, body in (("/completion", {"prompt": prompt, "n_predict": 4}),
                           ("/v1/completions", {"prompt": prompt, "max_tokens": 4}),
                           ("/v1/chat/completions", {"messages": chat, "max_tokens": 4})):
            for asks in (True, False):
                data = self.server.call("POST", path, {
                    **body, "temperature": 0, "stream": True, "ignore_eos": True,
                    "timings_per_token": asks})[2].decode()
                parts = [json.loads(part[len("data: "):]) for part in data.strip().split("\n\n")
                         if part != "data: [DONE]"]
                timings = [part.get("timings") for part in parts]
                if not asks:
                    self.assertEqual([each for each in timings[:-1] if each], [])
                    continue
                said = [each["predicted_n"] for each in timings]
                self.assertEqual((said, said[-1]), (sorted(said), 4))
                for each in timings:
                    self.assertGreaterEqual(each["prompt_n"] + each["cache_n"], count)
                    self.assertGreater(each["prompt_ms"], 0)
            whole = self.post(path, {**body, "timings_per_token": True, "ignore_eos": True})
            self.assertEqual(whole["timings"]["predicted_n"], 4)

    def test_progress_of_the_prompt(self):
        """Parts of a stream that say nothing have it, as in llama-server, if the request asks."""
        prompt = "Progress. " * 200
        chat = [{"role": "user", "content": prompt}]
        for path, body in (("/completion", {"prompt": prompt, "n_predict": 2}),
                           ("/v1/completions", {"prompt": prompt, "max_tokens": 2}),
                           ("/v1/chat/completions", {"messages": chat, "max_tokens": 2})):
            for asks in (True, False):
                data = self.server.call("POST", path, {
                    **body, "stream": True, "ignore_eos": True, "cache_prompt": False,
                    "return_progress": asks})[2].decode()
                parts = [json.loads(part[len("data: "):]) for part in data.strip().split("\n\n")
                         if part != "data: [DONE]"]
                shown = [part["prompt_progress"] for part in parts if "prompt_progress" in part]
                if not asks:
                    self.assertEqual(shown, [])
                    continue
                done = [each["processed"] for each in shown]
                self.assertEqual((done, done[-1]), (sorted(done), shown[0]["total"]))
                self.assertGreater(shown[0]["total"], 400)
                self.assertEqual(set(shown[0]),
                                 {"total", "cache", "processed", "time_ms", "left_ms"})
                for each in shown:
                    self.assertEqual(each["left_ms"] > 0, each["processed"] < each["total"], each)
                silent = [part for part in parts if "prompt_progress" in part]
                said = [part.get("content") or (part.get("choices") or [{}])[0].get("text") or
                        (part.get("choices") or [{}])[0].get("delta", {}).get("content")
                        for part in silent]
                self.assertEqual([each for each in said if each], [])

    def test_completion_with_a_format(self):
        schema = {"type": "object", "required": ["town"], "additionalProperties": False,
                  "properties": {"town": {"enum": ["Ulm", "Bonn"]}}}
        said = self.complete(json_schema=schema, n_predict=40)["content"]
        self.assertIn(json.loads(said)["town"], ("Ulm", "Bonn"))
        self.assertEqual(self.complete(grammar='root ::= "abc"')["content"], "abc")
        self.assertEqual(self.complete(grammar="")["content"], self.complete()["content"])

    def test_members_without_effect_are_named(self):
        body = {"prompt": BEFORE, "n_predict": 1, "banned_strings": ["x"], "tempratur": 1}
        for _ in range(2):
            headers = self.server.call("POST", "/completion", body)[1]
            self.assertEqual(headers["X-Weft-Left-Out"], "banned_strings,tempratur")
        headers = self.server.call("POST", "/completion", {"prompt": BEFORE, "n_predict": 1})[1]
        self.assertNotIn("X-Weft-Left-Out", headers)

    def test_completion_refuses(self):
        for prompt in (None, 3, [], {}, ["a", "b"], [1, "a"], [-1], [1 << 40], [49152],
                       "a" * 10 ** 6, [5] * 600):
            answer = self.complete(prompt, 400)
            self.assertIn("message", answer["error"], prompt)
        for wrong in ({"n_predict": -2}, {"n_predict": "a"}, {"stream": 1}, {"temperature": -1},
                      {"grammar": "root ::= ("}, {"json_schema": 5}, {"return_tokens": 1}):
            self.assertIn("message", self.complete(status=400, **wrong)["error"], wrong)

    def test_a_salt_divides_the_cache(self):
        prompt = "Salt and pepper. " * 30
        cached = [self.complete(prompt, n_predict=1, **more)["tokens_cached"] for more in (
            {}, {"cache_salt": "a"}, {"cache_salt": "b"}, {"cache_salt": "a"}, {})]
        self.assertEqual([n >= 64 for n in cached], [False, False, False, True, True])
        self.assertEqual(cached[1:3], [0, 0])

    def test_no_fim_tokens(self):
        body = {"input_prefix": BEFORE, "input_suffix": BEHIND, "n_predict": 4}
        answer = self.post("/infill", body, 400)
        self.assertIn("This model does not support infill", answer["error"]["message"])
        self.assertIn("prefix, suffix, middle", answer["error"]["message"])
        answer = self.post("/v1/completions", {"prompt": BEFORE, "suffix": BEHIND}, 400)
        self.assertEqual((answer["error"]["param"], answer["error"]["code"]),
                         ("suffix", "unsupported_value"))
        self.post("/v1/completions", {"prompt": BEFORE, "suffix": "", "max_tokens": 1})
        self.post("/v1/completions", {"prompt": BEFORE, "suffix": None, "max_tokens": 1})


class Infill(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = os.path.join(cls.folder.name, "fim.gguf")
        gguf_template.with_keys(serving.model(), path, FIM)
        cls.server = serving.Server(512, of=path)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0,
                                   timeout=serving.PATIENCE)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.close()
        cls.folder.cleanup()

    def tokens(self, text):
        return self.server.json("POST", "/tokenize", {"content": text,
                                                      "parse_special": False})[1]["tokens"]

    def say(self, tokens, count=8):
        body = {"prompt": tokens, "max_tokens": count}
        return self.server.json("POST", "/v1/completions", body)[1]["choices"][0]["text"]

    def fill(self, status=200, **more):
        body = {"input_prefix": BEFORE, "input_suffix": BEHIND, "n_predict": 8, **more}
        got, answer = self.server.json("POST", "/infill", body)
        self.assertEqual(got, status, answer)
        return answer

    def events(self, **more):
        body = {"input_prefix": BEFORE, "input_suffix": BEHIND, "n_predict": 8, "stream": True,
                **more}
        data = self.server.call("POST", "/infill", body)[2].decode()
        return [json.loads(part[len("data: "):]) for part in data.strip().split("\n\n")]

    def test_order_of_tokens(self):
        wanted = self.say([PRE, *self.tokens(BEFORE), SUF, *self.tokens(BEHIND), MID])
        answer = self.fill()
        self.assertEqual(answer["content"], wanted)
        self.assertTrue(wanted)
        self.assertEqual((answer["stop"], answer["stop_type"]), (True, "limit"))
        self.assertEqual(answer["tokens_predicted"], 8)
        self.assertEqual(answer["tokens_evaluated"],
                         3 + len(self.tokens(BEFORE)) + len(self.tokens(BEHIND)))
        self.assertIn("<jupyter_start>" + BEFORE, answer["prompt"])
        self.assertEqual(answer["timings"]["predicted_n"], 8)
        self.assertGreater(answer["timings"]["predicted_ms"], 0)

    def test_openai_suffix(self):
        wanted = self.fill()["content"]
        asked = {"model": "gpt-test", "prompt": BEFORE, "suffix": BEHIND, "max_tokens": 8}
        self.assertEqual(self.client.completions.create(**asked).choices[0].text, wanted)
        echoed = self.client.completions.create(**asked, echo=True)
        self.assertEqual(echoed.choices[0].text, BEFORE + wanted)
        streamed = self.client.completions.create(**asked, stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in streamed), wanted)
        several = self.client.completions.create(**{**asked, "prompt": [BEFORE, "One and"]}, n=2,
                                                 temperature=1, seed=4)
        self.assertEqual(len(several.choices), 4)
        ids = self.client.completions.create(**{**asked, "prompt": self.tokens(BEFORE)})
        self.assertEqual(ids.choices[0].text, wanted)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(**{**asked, "suffix": "x" * 1_000_000})
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        for wrong in (3, ["a"], {}):
            with self.assertRaises(openai.BadRequestError):
                self.client.completions.create(**{**asked, "suffix": wrong})

    def test_stream(self):
        events = self.events()
        self.assertEqual("".join(event["content"] for event in events), self.fill()["content"])
        self.assertEqual([event["stop"] for event in events],
                         [False] * (len(events) - 1) + [True])
        self.assertEqual(events[-1]["stop_type"], "limit")

    def test_stop_texts(self):
        whole = self.fill()["content"]
        word = whole.split()[1]
        answer = self.fill(stop=[word])
        self.assertEqual((answer["stop_type"], answer["stopping_word"]), ("word", word))
        # FIM tokens are not text: the answer ends before them.
        bias = {str(SEP): 100}
        ended = self.fill(logit_bias=bias)
        self.assertEqual((ended["content"], ended["stop_type"], ended["stopping_word"]),
                         ("", "eos", ""))
        # llama-server's lists of ids, or of texts that stand for all of their tokens.
        self.assertEqual(self.fill(logit_bias=[[SEP, 100]])["stop_type"], "eos")
        self.assertEqual(self.fill(logit_bias=[], repeat_last_n=-1)["content"], whole)
        never = self.fill(logit_bias=[[id, False] for id in self.tokens(whole)])["content"]
        self.assertEqual(never, self.fill(logit_bias=[[whole, False]])["content"])
        self.assertNotEqual(never, whole)

    def test_further_options(self):
        begun = self.say([PRE, *self.tokens(BEFORE), SUF, *self.tokens(BEHIND), MID,
                          *self.tokens(" the")])
        self.assertEqual(self.fill(prompt=" the")["content"], begun)
        extra = self.fill(input_extra=[{"filename": "a.py", "text": "x = 1"}, {"text": "y"}])
        self.assertIn("<repo_name>myproject\n", extra["prompt"])
        self.assertIn("a.py\nx = 1\n", extra["prompt"])
        chosen = self.fill(response_fields=["content", "timings/prompt_n", "nothing/there"])
        self.assertEqual(list(chosen), ["content", "timings/prompt_n"])
        self.assertEqual(len(self.fill(return_tokens=True)["tokens"]), 8)
        self.assertEqual(self.fill(input_prefix="", input_suffix="")["tokens_evaluated"], 3)

    def test_long_files_are_cut(self):
        long = " ".join(str(i) for i in range(1000))
        answer = self.fill(input_prefix=long + BEFORE, input_suffix=BEHIND + long)
        self.assertIn(BEFORE + "<jupyter_text>" + BEHIND, answer["prompt"])
        self.assertLessEqual(answer["tokens_evaluated"], 512 - 8)
        self.assertGreater(answer["tokens_evaluated"], 512 - 16)
        self.assertEqual(answer["tokens_predicted"], 8)

    def test_files_make_room(self):
        files = [{"filename": f"{name}.py", "text": f"{name} = 1\n" * 60} for name in "abcdef"]
        answer = self.fill(input_extra=files)
        self.assertIn(BEFORE, answer["prompt"])
        self.assertIn(BEHIND, answer["prompt"])
        self.assertIn("f = 1", answer["prompt"])
        self.assertNotIn("a = 1", answer["prompt"], "the first ones go first")
        # The model may end the text, but not because the context is full.
        self.assertLessEqual(answer["tokens_evaluated"] + 8, 512)
        self.assertEqual(answer["stop_type"], "limit" if answer["tokens_predicted"] == 8 else "eos")
        answer = self.fill(input_extra=[{"text": "x " * 2000}])
        self.assertEqual(answer["prompt"], self.fill()["prompt"])

    # As llama.vscode and llama.vim do ahead of time.
    def test_a_prompt_is_prefilled_ahead(self):
        ahead = "x = 1\n" * 40
        for more in ({}, {"samplers": [], "t_max_predict_ms": 1, "response_fields": [""]}):
            answer = self.fill(input_prefix=ahead, n_predict=0, **more)
            self.assertEqual(answer.get("content", ""), "")
            self.assertEqual(answer.get("tokens_predicted", 0), 0)
        self.assertGreater(self.fill(input_prefix=ahead + "y = ")["tokens_cached"], 32)

    def test_hostile(self):
        for wrong in ({"input_prefix": 1}, {"input_suffix": ["a"]}, {"prompt": {}},
                      {"input_extra": "a"}, {"input_extra": [1]}, {"n_predict": -2},
                      {"input_extra": [{"text": 5}]}, {"n_predict": "many"}, {"n_predict": 1e40},
                      {"temperature": -1}, {"top_k": 1.5}, {"response_fields": [1]},
                      {"input_extra": [{}] * 1001}, {"input_prefix": "x" * ((4 << 20) + 1)},
                      {"stream": "yes"}):
            self.assertIn("error", self.fill(400, **wrong), list(wrong))
        for lacks in ("input_prefix", "input_suffix"):  # as llama-server
            error = self.fill(400, **{lacks: None})["error"]
            self.assertEqual((error["param"], error["code"]), (lacks, "missing"))
        for fine in ({"input_prefix": ""}, {"input_extra": None}, {"input_extra": []},
                     {"input_prefix": "\U0001f9f5 \0 ' \" \\ \ud7ff"}, {"n_predict": 10 ** 15,
                                                                        "stop": ["e"]},
                     {"input_prefix": "<jupyter_script><|im_end|>"}):
            self.assertTrue(self.fill(**fine)["stop"])
        self.assertEqual(self.server.call("POST", "/infill", "[1]")[0], 400)
        self.assertEqual(self.server.call("GET", "/infill")[0], 405)

    def test_a_client_disconnects(self):
        before = self.server.status()["requests"]["cancelled"]
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port,
                                                timeout=serving.PATIENCE)
        connection.request("POST", "/infill", json.dumps(
            {"input_prefix": BEFORE, "input_suffix": "", "stream": True, "ignore_eos": True,
             "logit_bias": {str(i): -100 for i in (PRE, SUF, MID, SEP, 3, 5)}}),
            {"Content-Type": "application/json"})
        connection.getresponse().readline()
        connection.close()
        status = self.server.wait_for(lambda s: s["requests"]["cancelled"] > before, 20)
        self.assertEqual(status["requests"]["cancelled"], before + 1)

    def test_props_say_what_the_file_asks_for(self):
        props = self.server.json("GET", "/props")[1]
        params = props["default_generation_settings"]["params"]
        self.assertEqual((params["temperature"], params["top_k"]), (0, 17))
        self.assertTrue(props["sampling"].startswith("greedy (by "), props["sampling"])


if __name__ == "__main__":
    serving.main()
