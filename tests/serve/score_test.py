#!/usr/bin/env python3
"""Log-probabilities of prompts for lm-evaluation-harness: its requests, compared with the logits of
`weft logits`. The nightly run also runs lm_eval itself."""
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
os.environ["WEFT_MODEL"] = str(ROOT / "models/abacus/model.gguf")

import gguf_template  # noqa: E402
import serving  # noqa: E402

LM_EVAL = "lm_eval[api]==0.4.13"
SUMS = [(47, 38), (12, 9), (90, 45), (33, 33)]


def logits(tokens, folder):
    """One row of logits after each token."""
    path = os.path.join(folder, "logits.npy")
    serving.weft("logits", serving.model(), "-t", "1", "--tokens", ",".join(map(str, tokens)),
                 "--all", "--npy", path)
    data = pathlib.Path(path).read_bytes()
    begin = 10 + struct.unpack_from("<H", data, 8)[0]
    flat = struct.unpack(f"<{(len(data) - begin) // 4}f", data[begin:])
    columns = len(flat) // len(tokens)
    return [flat[i:i + columns] for i in range(0, len(flat), columns)]


def log_softmax(row):
    most = max(row)
    total = math.log(sum(math.exp(x - most) for x in row)) + most
    return [x - total for x in row]


def cached_tokens(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


class Scores(serving.ServedCase):
    context = 256

    def complete(self, status=200, **body):
        got, answer = self.server.json("POST", "/v1/completions", {
            "model": "gpt-test", "temperature": 0, **body})
        self.assertEqual(got, status, answer)
        return answer

    def tokens_of(self, text):
        return self.server.json("POST", "/tokenize", {"prompt": text})[1]["tokens"]

    def check(self, tokens, scores, best):
        """Prompt scores match the logits; `best`: the most likely tokens."""
        with tempfile.TemporaryDirectory() as folder:
            rows = [log_softmax(row) for row in logits(tokens, folder)]
        self.assertIsNone(scores["token_logprobs"][0])
        self.assertIsNone(scores["top_logprobs"][0])
        for i in range(1, len(tokens)):
            expected = rows[i - 1][tokens[i]]
            self.assertLess(abs(scores["token_logprobs"][i] - expected), 2e-3, (i, expected))
            top = list(scores["top_logprobs"][i].values())
            self.assertLess(abs(max(top) - max(rows[i - 1])), 2e-3)
            self.assertLessEqual(len(top), best)
            # lm_eval's test of whether the model would have generated it.
            greedy = max(range(len(rows[i - 1])), key=rows[i - 1].__getitem__) == tokens[i]
            self.assertEqual(scores["token_logprobs"][i] == max(top), greedy, i)

    def test_the_requests_of_lm_eval(self):
        """loglikelihood of lm_eval 0.4.13, with and without tokenized_requests, alone and in a
        batch: the prompt, one more token, and the most likely tokens."""
        texts = [f"What is {a} + {b}? {a + b}" for a, b in SUMS]
        ids = [self.tokens_of(text) for text in texts]
        for prompt in (ids, ids[:1], texts, texts[0]):
            status, answer = self.server.json("POST", "/v1/completions", {
                "model": "gpt-test", "prompt": prompt, "temperature": 0, "max_tokens": 1,
                "logprobs": 1, "seed": 1234, "echo": True}, {"Authorization": "Bearer "})
            self.assertEqual(status, 200, answer)
            count = 1 if isinstance(prompt, str) else len(prompt)
            self.assertEqual([each["index"] for each in answer["choices"]], list(range(count)))
            for tokens, choice in zip(ids, answer["choices"]):
                scores = choice["logprobs"]
                self.assertEqual(len(scores["token_logprobs"]), len(tokens) + 1, "one was said")
                self.check(tokens, scores, 1)
            self.assertEqual(answer["usage"]["completion_tokens"], count)

    def test_a_text_after_the_prefix_token(self):
        """loglikelihood_rolling: lm_eval puts the begin token (or the end token) before a text."""
        info = self.server.json("GET", "/tokenizer_info")[1]
        prefix = info["bos_token"] or info["eos_token"]
        token = self.tokens_of(prefix)
        self.assertEqual(len(token), 1)
        tokens = self.tokens_of("What is 47 + 38?")
        body = {"max_tokens": 1, "logprobs": 1, "echo": True}
        by_ids = self.complete(prompt=[token + tokens], **body)["choices"][0]["logprobs"]
        self.check(token + tokens, by_ids, 1)
        by_text = self.complete(prompt=prefix + "What is 47 + 38?", **body)["choices"][0]
        self.assertEqual(by_text["logprobs"], by_ids)
        self.assertTrue(by_text["text"].startswith(prefix + "What is 47 + 38?"))
        as_text = self.complete(prompt=prefix + "1", parse_special=False, **body)["usage"]
        self.assertGreater(as_text["prompt_tokens"], len(self.tokens_of("1")) + 1)

    def test_offsets_are_those_of_the_text(self):
        """lm_eval's `gguf` client finds the first token after the context by its offset. A begin
        token added by the server is not part of the text; one given as an id is."""
        def check(choice):
            scores, text = choice["logprobs"], choice["text"]
            self.assertEqual(scores["text_offset"][0], 0)
            for offset, token in list(zip(scores["text_offset"], scores["tokens"]))[1:-1]:
                self.assertTrue(text[offset:].startswith(token), (offset, token, text))

        body = {"max_tokens": 1, "logprobs": 10, "echo": True}
        sum_ids = self.tokens_of("What is 47 + 38?")
        end = self.tokens_of(self.server.json("GET", "/tokenizer_info")[1]["eos_token"])
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "begins.gguf")
            gguf_template.with_keys(serving.model(), file, {
                "tokenizer.ggml.add_bos_token": True,
                "tokenizer.ggml.bos_token_id": end[0]})
            other = serving.Server(self.context, of=file)
            try:
                for server, added in ((self.server, 0), (other, 1)):
                    info = server.json("GET", "/tokenizer_info")[1]
                    prefix = info["bos_token"] or info["eos_token"]
                    for prompt, tokens in (("What is 47 + 38?", len(sum_ids) + added),
                                           (prefix + "What", len(self.tokens_of("What")) + 1),
                                           (end + sum_ids, len(sum_ids) + 1), ("", added)):
                        status, answer = server.json("POST", "/v1/completions",
                                                     {"prompt": prompt, **body})
                        if tokens == 0:
                            self.assertEqual(status, 400, answer)
                            continue
                        self.assertEqual(answer["usage"]["prompt_tokens"], tokens, (prompt, added))
                        self.assertEqual(len(answer["choices"][0]["logprobs"]["tokens"]),
                                         tokens + 1)
                        check(answer["choices"][0])
            finally:
                other.close()

    def test_without_an_answer(self):
        tokens = self.tokens_of("What is 47 + 38?")
        for prompt, text in ((tokens, "What is 47 + 38?"), ("What is 47 + 38?",) * 2):
            answer = self.complete(prompt=prompt, max_tokens=0, logprobs=3, echo=True)
            choice = answer["choices"][0]
            self.assertEqual((choice["text"], choice["finish_reason"]), (text, "length"))
            self.assertEqual("".join(choice["logprobs"]["tokens"]), text)
            self.assertEqual(answer["usage"]["completion_tokens"], 0)
            self.check(tokens, choice["logprobs"], 3)
            plain = self.complete(prompt=prompt, max_tokens=0)["choices"][0]
            self.assertEqual((plain["text"], plain["logprobs"]), ("", None))

    def test_streamed_as_whole(self):
        body = {"prompt": "What is 47 + 38?", "max_tokens": 6, "logprobs": 2, "echo": True}
        whole = self.complete(**body)["choices"][0]
        data = self.server.call("POST", "/v1/completions", {
            "model": "gpt-test", "temperature": 0, **body, "stream": True})[2].decode()
        text, chances, offsets = "", [], []
        for line in data.split("\n"):
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line[6:])["choices"]:
                text += choice["text"]
                chances += (choice["logprobs"] or {}).get("token_logprobs", [])
                offsets += (choice["logprobs"] or {}).get("text_offset", [])
        self.assertEqual(text, whole["text"])
        self.assertEqual(chances, whole["logprobs"]["token_logprobs"])
        self.assertEqual(offsets, whole["logprobs"]["text_offset"])

    def test_the_same_in_batches_and_from_the_cache(self):
        """Scores do not depend on other requests in the steps or on the prefix cache."""
        text = "What is 47 + 38? 85"
        alone = self.complete(prompt=text, max_tokens=1, logprobs=1, echo=True)["choices"]
        again = self.complete(prompt=text, max_tokens=1, logprobs=1, echo=True)["choices"]
        self.assertEqual(alone, again)
        found = []

        def ask(number):
            if number % 2:
                found.append(self.complete(prompt=text, max_tokens=1, logprobs=1,
                                           echo=True)["choices"])
            else:
                self.complete(prompt=f"What is {number} + 3?", max_tokens=60, ignore_eos=True)

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(48)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(serving.PATIENCE)
        self.assertEqual(len(found), 24)
        self.assertTrue(all(each == alone for each in found))

    def test_answers_to_one_question_share_its_scores(self):
        """One context with four continuations, in one request and in four: the context is computed
        once, and the scores equal those of separate prompts."""
        context = self.tokens_of("What is 47 + 38? 85 " * 6)
        for how, together in enumerate((True, False)):
            own = self.tokens_of(str(how)) + context
            prompts = [own + self.tokens_of(f"What is {a} + {b}?") for a, b in SUMS]
            body = {"max_tokens": 1, "logprobs": 1, "echo": True, "seed": 1234}
            apart = [self.complete(prompt=[each], cache_prompt=False, **body) for each in prompts]
            self.assertEqual(sum(map(cached_tokens, apart)), 0)
            shared = ([self.complete(prompt=prompts, **body)] if together else
                      [self.complete(prompt=[each], **body) for each in prompts])
            # Together: at least one page of 64 tokens each, 32 of which the second prompt may
            # already have started. So many rows of a step have logits.
            least = 3 * 64 - 32 if together else 3 * (len(own) - 1)
            self.assertGreaterEqual(sum(map(cached_tokens, shared)), least)
            scores = [choice["logprobs"] for answer in shared for choice in answer["choices"]]
            self.assertEqual(scores, [each["choices"][0]["logprobs"] for each in apart])
            more = self.complete(prompt=prompts, **{**body, "logprobs": 5})
            for choice, few in zip(more["choices"], scores):
                self.assertEqual(choice["logprobs"]["token_logprobs"], few["token_logprobs"])
                self.assertEqual({len(top) for top in choice["logprobs"]["top_logprobs"][1:]}, {5})

    def test_prompt_logprobs_of_vllm(self):
        tokens = self.tokens_of("What is 47 + 38?")
        answer = self.complete(prompt=tokens, max_tokens=1, prompt_logprobs=2)
        scores = answer["choices"][0]["prompt_logprobs"]
        self.assertEqual(len(scores), len(tokens))
        self.assertIsNone(scores[0])
        echoed = self.complete(prompt=tokens, max_tokens=1, logprobs=2,
                               echo=True)["choices"][0]["logprobs"]
        for i in range(1, len(tokens)):
            own = scores[i][str(tokens[i])]
            self.assertEqual(own["logprob"], echoed["token_logprobs"][i])
            self.assertEqual(own["rank"] <= 2, len(scores[i]) == 2, scores[i])
            self.assertEqual(sorted(each["rank"] for each in scores[i].values())[:2], [1, 2])
        status, answer = self.server.json("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "7 x 8?"}], "max_tokens": 1,
            "prompt_logprobs": 0})
        self.assertEqual(status, 200)
        self.assertEqual(len(answer["prompt_logprobs"]), answer["usage"]["prompt_tokens"])
        for wrong in ({"prompt_logprobs": 21}, {"prompt_logprobs": -2}, {"prompt_logprobs": "a"},
                      {"prompt_logprobs": 1, "stream": True}):
            self.complete(400, prompt="a", **wrong)

    def test_tokenizer_info(self):
        status, info = self.server.json("GET", "/tokenizer_info")
        self.assertEqual(status, 200)
        for name in ("chat_template", "eos_token", "bos_token", "pad_token"):
            self.assertIn(name, info)
        self.assertIn("messages", info["chat_template"])
        ids = self.server.json("POST", "/tokenize", {"prompt": info["eos_token"],
                                                     "add_special_tokens": False})[1]["tokens"]
        self.assertEqual(len(ids), 1)
        text = self.server.json("POST", "/tokenize", {
            "prompt": info["eos_token"] + "a", "add_special_tokens": False,
            "parse_special": False})[1]["tokens"]
        self.assertGreater(len(text), 2, "a marker that is text has several tokens")

    def test_the_same_in_every_layout(self):
        """Pipeline stages, few slots, few pages, drafts: each prompt gets the same scores, when
        computed and when cached."""
        context = self.tokens_of("What is 47 + 38? 85 " * 6)
        prompts = [context + self.tokens_of(f"What is {a} + {b}?") for a, b in SUMS]
        prompts += [(context + context)[i:i + count]
                    for i, count in enumerate((1, 2, 31, 32, 33, 34, 65, 120))]
        body = {"prompt": prompts, "max_tokens": 3, "logprobs": 2, "echo": True, "temperature": 0}
        expected = self.complete(**body)["choices"]
        self.assertEqual([len(each["logprobs"]["token_logprobs"]) > len(prompt)
                          for each, prompt in zip(expected, prompts)], [True] * len(prompts))
        for words in (("--local", "2", "--pp", "2"), ("--max-seqs", "2"),
                      ("--kv-tokens", "384", "--max-seqs", "6"), ("--prompt-lookup",)):
            with self.subTest(words):
                server = serving.Server(self.context, *words)
                try:
                    for _ in range(2):
                        status, answer = server.json("POST", "/v1/completions", body)
                        self.assertEqual(status, 200, answer)
                        self.assertEqual(answer["choices"], expected)
                finally:
                    server.close()

    @unittest.skipUnless(serving.nightly(), "installs lm_eval (900 MB): --nightly")
    def test_lm_eval(self):
        """Runs lm_eval on two tasks; each score it reports must match the model's logits."""
        python = ROOT / "build/lm-eval/bin/python"
        if not python.exists():
            done = subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=False)
            done = done.returncode or subprocess.run(
                [python, "-m", "pip", "install", "--quiet", LM_EVAL], check=False,
                timeout=serving.PATIENCE).returncode
            if done != 0:
                self.skipTest(f"{LM_EVAL} can't be installed here")
        for words in (["num_concurrent=4"], ["tokenized_requests=False", "--batch_size", "8"]):
            with self.subTest(words), tempfile.TemporaryDirectory() as folder:
                samples = run_lm_eval(python, self.server.url, folder, *words)
                self.assertEqual({task: len(scores) for task, scores in samples.items()},
                                 {"sums": 16, "texts": 3})
                for context, text, score, greedy in samples["sums"]:
                    expected, likeliest = self.score(
                        self.tokens_of(context), self.tokens_of(context + text))
                    self.assertLess(abs(float(score) - expected), 1e-2, (context, text))
                    self.assertEqual(greedy, str(likeliest), (context, text))
                info = self.server.json("GET", "/tokenizer_info")[1]
                prefix = self.tokens_of(info["bos_token"] or info["eos_token"])
                for text, score in samples["texts"]:
                    expected, _ = self.score(prefix, prefix + self.tokens_of(text))
                    self.assertLess(abs(float(score) - expected), 1e-2, text)

    def score(self, context, tokens):
        """The log-probability of the continuation, and whether it is the most likely one."""
        with tempfile.TemporaryDirectory() as folder:
            rows = [log_softmax(row) for row in logits(tokens, folder)]
        at = range(len(context), len(tokens))
        return (sum(rows[i - 1][tokens[i]] for i in at),
                all(rows[i - 1][tokens[i]] == max(rows[i - 1]) for i in at))


TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {folder}/{name}.jsonl
test_split: test
"""
SUMS_TASK = """output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: label
"""
TEXTS_TASK = """output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - metric: bits_per_byte
"""


def run_lm_eval(python, url, folder, arguments, *words):
    """By task, for each request: its texts, and lm_eval's result."""
    sums = [{"question": f"What is {a} + {b}?", "choices": [str(a + b + d) for d in (0, 1, 10, 7)],
             "label": 0} for a, b in SUMS]
    texts = [{"text": text} for text in ("What is 47 + 38?", "85", "Name 3 primes: 2, 3, 5. " * 3)]
    for name, lines, task in (("sums", sums, SUMS_TASK), ("texts", texts, TEXTS_TASK)):
        pathlib.Path(folder, f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
        pathlib.Path(folder, f"{name}.yaml").write_text(
            TASK.format(name=name, folder=folder) + task)
    subprocess.run(
        [python, "-m", "lm_eval", "--model", "local-completions", "--tasks", "sums,texts",
         "--include_path", folder, "--log_samples", "--output_path", f"{folder}/out",
         "--model_args", f"model=gpt-test,base_url={url}/v1/completions,tokenizer_backend=remote,"
         f"max_length=255,{arguments}", *words],
        check=True, timeout=serving.PATIENCE, env={**os.environ, "HF_HUB_OFFLINE": "1",
                                                   "HF_HOME": folder})
    samples = {"sums": [], "texts": []}
    for path in pathlib.Path(folder, "out").rglob("samples_*.jsonl"):
        name = path.name.split("_")[1]
        for sample in map(json.loads, path.read_text().splitlines()):
            for asked, said in zip(sample["arguments"].values(), sample["filtered_resps"]):
                samples[name].append([*asked.values(), *([said] if name == "texts" else said)])
    return samples


if __name__ == "__main__":
    serving.main()
