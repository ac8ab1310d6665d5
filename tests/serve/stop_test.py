#!/usr/bin/env python3
"""Stop strings end the visible answer. They do not match in reasoning or tool calls, in any API,
streamed or complete. A grammar makes a small model write each family's format."""
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

QUESTION = {"role": "user", "content": "Which?"}
PARAMETERS = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.",
                                         "parameters": PARAMETERS}}
# template: (reasoning, answer) in the family's format
THINKING = {
    "qwen": "<think>{}</think>{}",
    "granite": "<think>{}</think>{}",
    "kimi": "<think>{}</think>{}",
    "mistral": "[THINK]{}[/THINK]{}",
    "gemma4": "<|channel>thought\n{}<channel|>{}",
    "harmony": "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final"
               "<|message|>{}",
}


def saying(text):
    """A response format that makes the model write exactly `text`."""
    words = "".join(c if " " <= c <= "~" and c not in '"\\' else f"\\u{ord(c):04X}" for c in text)
    return {"type": "grammar", "grammar": f'root ::= "{words}"'}


def events(data):
    lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


class Stops(unittest.TestCase):
    def serve(self, template, change=lambda text: text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = os.path.join(folder.name, "model.gguf")
        text = (ROOT / f"tests/data/chat/{template}.jinja").read_text()
        gguf_template.with_template(serving.model(), file, change(text))
        self.server = serving.Server(4096, of=file)
        self.addCleanup(self.server.close)

    def post(self, path, body):
        status, _, data = self.server.call("POST", path, body)
        self.assertEqual(status, 200, data)
        return data

    # Each returns: reasoning, answer, stop reason.

    def chat(self, stop, text=None, **more):
        body = {"messages": [QUESTION], "max_tokens": 300, "temperature": 0, **more}
        if stop:
            body["stop"] = stop
        if text is not None:
            body["response_format"] = saying(text)
        whole = json.loads(self.post("/v1/chat/completions", body))["choices"][0]
        message = whole["message"]
        thought = pieces = ""
        reason = None
        for chunk in events(self.post("/v1/chat/completions", {**body, "stream": True})):
            choice = chunk["choices"][0]
            thought += choice["delta"].get("reasoning_content") or ""
            pieces += choice["delta"].get("content") or ""
            reason = choice["finish_reason"] or reason
        said = (message.get("reasoning_content") or "", message["content"] or "",
                whole["finish_reason"])
        self.assertEqual((thought, pieces, reason), said, "streamed")
        return said

    def messages(self, stop, text=None, most=300):
        body = {"messages": [QUESTION], "max_tokens": most, "temperature": 0,
                "ignore_eos": text is None}
        if stop:
            body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
        if text is not None:
            body["output_config"] = {"format": saying(text)}
        answer = json.loads(self.post("/v1/messages", body))
        said = ["", ""]
        for block in answer["content"]:
            said[block["type"] == "text"] += block.get("text", block.get("thinking"))
        pieces, reason = ["", ""], None
        for event in events(self.post("/v1/messages", {**body, "stream": True})):
            delta = event.get("delta", {})
            pieces[0] += delta.get("thinking", "")
            pieces[1] += delta.get("text", "")
            reason = delta.get("stop_sequence", reason)
        self.assertEqual((*pieces, reason), (*said, answer["stop_sequence"]), "streamed")
        return (*said, answer["stop_sequence"])

    def responses(self, stop, text=None, most=300):
        body = {"input": "Which?", "max_output_tokens": most, "temperature": 0,
                "ignore_eos": text is None}
        if stop:
            body["stop"] = stop
        if text is not None:
            body["text"] = {"format": saying(text)}
        answer = json.loads(self.post("/v1/responses", body))
        said = ["", ""]
        for item in answer["output"]:
            said[item["type"] == "message"] += "".join(part["text"] for part in item["content"])
        return (*said, answer["status"])

    def ollama(self, stop, most=300, path="/api/chat"):
        body = {"model": "gpt-test", "options": {"temperature": 0, "num_predict": most,
                                                   "ignore_eos": True}}
        if stop:
            body["options"]["stop"] = stop
        body |= {"messages": [QUESTION]} if path == "/api/chat" else {"prompt": "Which?"}
        answer = json.loads(self.post(path, {**body, "stream": False}))
        part = answer.get("message") or {"content": answer.get("response"),
                                         "thinking": answer.get("thinking")}
        return part.get("thinking") or "", part["content"], answer["done_reason"]

    def test_reasoning_is_not_searched(self):
        for name, form in THINKING.items():
            with self.subTest(name):
                self.serve(name)
                text = form.format("one END two\n\nthree", "four END five END six")
                for stop in ("END", ["never said", "END"], ["END five", "END", "END f"]):
                    thought, said, reason = self.chat(stop, text)
                    self.assertEqual((thought.strip(), said, reason),
                                     ("one END two\n\nthree", "four ", "stop"), stop)
                # Occurs only in the reasoning, or half in the reasoning and half in the answer.
                ends = [form.format("x", "|").split("x")[1].split("|")[0]]
                for stop in ("two", "\n\n", "threefour", "e" + ends[0], ends[0], ends[0] + "four"):
                    thought, said, _ = self.chat(stop, text)
                    self.assertEqual((thought.strip(), said), ("one END two\n\nthree",
                                                               "four END five END six"), stop)
                thought, said, stop = self.messages("END", text)
                self.assertEqual((thought.strip(), said, stop),
                                 ("one END two\n\nthree", "four ", "END"))
                thought, said, _ = self.responses("END", text)
                self.assertEqual((thought.strip(), said), ("one END two\n\nthree", "four "))

    def test_a_partial_stop_string_is_kept(self):
        self.serve("qwen")
        text = "<think>a</think>b EN <EN E"
        self.assertEqual(self.chat("END", text)[1], "b EN <EN E")
        self.assertEqual(self.chat("<EN E", text)[1], "b EN ")
        self.assertEqual(self.chat("b", text)[1:], ("", "stop"))
        usage = json.loads(self.post("/v1/chat/completions", {
            "messages": [QUESTION], "response_format": saying(text + "x" * 2000), "stop": "b EN",
            "max_tokens": 2500}))["usage"]
        # The search runs on another thread than the model, which is ahead on a busy machine.
        self.assertLess(usage["completion_tokens"], 1000,
                        "the model went on behind the stop string")

    def test_tool_calls_are_not_searched(self):
        self.serve("qwen")
        call = '<tool_call>\n{"name": "weather", "arguments": {"city": "END"}}\n</tool_call>'
        for stop in ("END", "tool_call", "}}", "<"):
            body = {"messages": [QUESTION], "tools": [TOOL], "max_tokens": 300, "stop": stop,
                    "response_format": saying("So " + call)}
            choice = json.loads(self.post("/v1/chat/completions", body))["choices"][0]
            self.assertEqual(choice["finish_reason"], "tool_calls", choice)
            self.assertEqual(choice["message"]["content"].strip(), "So")
            function = choice["message"]["tool_calls"][0]["function"]
            self.assertEqual(json.loads(function["arguments"]), {"city": "END"})
        fixed = json.loads(json.dumps(TOOL))
        fixed["function"]["parameters"]["properties"]["city"]["enum"] = ["a END b"]
        choice = json.loads(self.post("/v1/chat/completions", {
            "messages": [QUESTION], "tools": [fixed], "tool_choice": "required", "stop": "END",
            "max_tokens": 300}))["choices"][0]
        self.assertEqual(json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]),
                         {"city": "a END b"})

    def test_reasoning_that_does_not_end(self):
        """The template opens reasoning that a small model never closes."""
        self.serve("qwen", lambda text: text + "<think>\n")
        thought, said, reason = self.chat(None, max_tokens=30, ignore_eos=True)
        self.assertEqual((said, reason), ("", "length"))
        word = thought.strip()[2:6]
        self.assertTrue(word)
        for stop in (word, [word, "never"], thought.strip()):
            self.assertEqual(self.chat(stop, max_tokens=30, ignore_eos=True),
                             (thought, "", "length"))
            self.assertEqual(self.messages(stop, most=30)[:2], (thought, ""))
            self.assertEqual(self.responses(stop, most=30)[:2], (thought, ""))
            for path in ("/api/chat", "/api/generate"):
                self.assertEqual(self.ollama(stop, 30, path), (thought, "", "length"))


if __name__ == "__main__":
    serving.main()
