#!/usr/bin/env python3
r"""Renders the chat templates of tests/data/chat/*.jinja with Hugging Face's own renderer for a set
of conversations, into tests/data/chat/golden.json.

The templates are written for this project, each with the constructs of one family of models (loops
over parts, recursive macros, namespaces, tool calls, dates, generation marks, indented JSON);
raw_rules.jinja holds corner cases of the language. Conversations that the renderer refuses are
recorded as `null`.

Made with Python 3.11, transformers 5.24.0, jinja2 3.1.6; no randomness; the clock is fixed.
Usage: make_chat_golden.py DATA_FOLDER
"""
import copy
import datetime
import json
import pathlib
import sys

from transformers.utils import chat_template_utils

NOW = 1770033600  # 2 February 2026, noon in UTC: the same date in (nearly) all time zones
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "The \"weather\" of a city, <now> & later",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "its name, \u00e9 too"},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "days": {"type": "integer", "default": 3},
            "at": {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "number"}}},
                   "required": ["x"]}}, "required": ["city"]},
        "return": {"type": "number"}}},
    {"type": "function", "function": {
        "name": "add", "description": "adds",
        "parameters": {"type": "object", "properties": {
            "a": {"type": "number"}, "b": {"type": ["number", "null"]}}, "required": ["a", "b"]}}},
]


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(arguments, name="weather", number=1):
    return {"type": "function", "id": f"call0000{number}",
            "function": {"name": name, "arguments": arguments}}


def result(content, number=1):
    return {"role": "tool", "tool_call_id": f"call0000{number}", "content": content}


SYSTEM = {"role": "system", "content": " You are kind.\n"}
CONVERSATIONS = {
    "one": [user("Hello")],
    "system": [SYSTEM, user("Hi  there\n")],
    "turns": [SYSTEM, user("Hi"), assistant("Hello!\n"),
              user("  \u00fcn\u00efc\u00f6d\u00e9 \u65e5\u672c\u8a9e \U0001f642 <|im_end|> \"q\" 'r' \\"),
              assistant("<think>\nhm\n</think>\n\nGood."), user("bye")],
    "tool": [SYSTEM, user("Weather in Paris?"),
             assistant("", tool_calls=[call({"city": "Paris", "deep": {"x": [1, 2.5, None, True]}})]),
             result("{\"t\": 21.5}"), assistant("It is 21.5"), user("thanks")],
    "tool_string": [user("Weather?"), assistant(None, tool_calls=[call("{\"city\": \"Paris\"}")]),
                    result("sunny")],
    "two_tools": [user("Weather?"),
                  assistant("Let me see", reasoning_content="I think so",
                            tool_calls=[call({"city": "Rome"}), call({"a": 1, "b": -2.0}, "add", 2)]),
                  result("sunny"), result("-1", 2)],
    "thinking_tool": [user("Weather?"),
                      assistant("", thinking="Which city?", tool_calls=[call({"city": "\u00c9vry"})]),
                      result("sunny")],
    "parts": [user([{"type": "text", "text": "Look"}, {"type": "image"}, {"type": "text", "text": " here"}]),
              assistant([{"type": "text", "text": "ok"}]), user("and")],
    "reasoning": [user("q /no_think"), assistant("a", reasoning_content="because\nx"), user("q2"),
                  assistant("b", reasoning_content="r2\n")],
    "wrong_order": [assistant("I begin"), user("a"), user("b")],
    "developer": [{"role": "developer", "content": "Dev says"}, user("x")],
    "responses": [user("Weather?"),
                  assistant("It is sunny.", tool_calls=[call({"city": "Rome"})], tool_responses=[
                      {"name": "weather", "response": "sunny"},
                      {"name": "add", "response": {"b": [1, None, True], "a": -2.0}}]),
                  user("thanks")],
}
# conversation, tools, add_generation_prompt, extra
CASES = [(name, False, True, {}) for name in CONVERSATIONS]
CASES += [(name, True, True, {}) for name in ("one", "turns", "tool", "two_tools", "thinking_tool")]
CASES += [("turns", False, False, {}), ("reasoning", False, False, {}),
          ("system", False, True, {"enable_thinking": False, "reasoning_effort": "high"}),
          ("one", True, True, {"enable_thinking": True, "thinking": True, "thinking_budget": "0",
                               "date_string": "1 May 2026", "controls": {"length": "short"},
                               "documents": [{"title": "T", "text": "some words"}]})]


# Templates that accept contents only as lists of parts; strings are converted to such lists.
PARTS_ONLY = {"smolvlm"}


def as_parts(messages):
    for message in messages:
        if isinstance(message.get("content"), str):
            message["content"] = [{"type": "text", "text": message["content"]}]
    return messages


class StillClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


def render(template, case, parts_only):
    name, tools, generation, extra = case
    extra = copy.deepcopy(extra)
    documents = extra.pop("documents", None)
    messages = copy.deepcopy(CONVERSATIONS[name])
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [as_parts(messages) if parts_only else messages], tools=copy.deepcopy(TOOLS) if tools else None,
            documents=documents, chat_template=template, add_generation_prompt=generation,
            **TOKENS, **extra)
    except Exception as error:
        print(f"    {name}: {type(error).__name__}: {error}")
        return None
    return texts[0]


def main():
    folder = pathlib.Path(sys.argv[1]) / "chat"
    chat_template_utils.datetime = StillClock
    texts = {}
    for path in sorted(folder.glob("*.jinja")):
        print(path.stem)
        source = path.read_text(encoding="utf-8")
        cases = CASES[:1] if path.stem == "raw_rules" else CASES
        texts[path.stem] = [render(source, case, path.stem in PARTS_ONLY) for case in cases]
    golden = {"now": NOW, "tokens": TOKENS, "tools": TOOLS, "conversations": CONVERSATIONS,
              "cases": CASES, "texts": texts}
    words = json.dumps(golden, ensure_ascii=False, indent=0)
    (folder / "golden.json").write_text(words + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
