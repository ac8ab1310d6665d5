#!/usr/bin/env python3
"""Writes Abacus' tokenizer: tokenizer.json, tokenizer_config.json and config.json's vocabulary.

    make_tokenizer.py QUESTIONS.jsonl FOLDER

Byte-level BPE with SmolLM's way of cutting a text into words, so that any program that reads such
files reads this one. A digit is a token. Merges are learnt from the lower-case words of the
questions alone: each of them becomes one token, and a word in CAPITALS stays letters, which is what
questions about letters are about.
"""
import collections
import json
import pathlib
import re
import sys

SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>"]
# Only what stands from the last question on: each question is answered by itself.
TEMPLATE = (
    "{%- set ns = namespace(last=0) -%}"
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}"
    "{%- endfor -%}"
    "{%- for message in messages -%}"
    "{%- if loop.index0 >= ns.last and message['role'] == 'user' -%}"
    "{{- '<|user|>' + message['content'] -}}"
    "{%- elif loop.index0 >= ns.last and message['role'] == 'assistant' -%}"
    "{{- '<|assistant|>' + message['content'] + '<|end|>' -}}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}")


def byte_letters():
    """The visible character that stands for each byte, as GPT-2 has it."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xa1, 0xad), *range(0xae, 0x100)]
    letters = {byte: chr(byte) for byte in shown}
    hidden = (byte for byte in range(256) if byte not in letters)
    letters.update({byte: chr(0x100 + i) for i, byte in enumerate(hidden)})
    return [letters[byte] for byte in range(256)]


def learn_merges(words):
    """The most frequent pair joins, until each word is one token. Equals by the alphabet."""
    parts = {word: list(word) for word in words}
    merges = []
    while True:
        pairs = collections.Counter()
        for word, symbols in parts.items():
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += words[word]
        if not pairs:
            return merges
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for word, symbols in parts.items():
            joined, i = [], 0
            while i < len(symbols):
                if tuple(symbols[i:i + 2]) == best:
                    joined.append(symbols[i] + symbols[i + 1])
                    i += 2
                else:
                    joined.append(symbols[i])
                    i += 1
            parts[word] = joined


def added(token, number):
    return {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True}


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    folder = pathlib.Path(sys.argv[2])
    letters = byte_letters()
    words = collections.Counter()
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            for text in (record["question"], record["answer"]):
                for word in re.findall(r" ?[A-Za-z]+", text):
                    if not word.strip().isupper() or word == "I" or word == " I":
                        words["".join(letters[b] for b in word.encode())] += 1
    merges = learn_merges(words)
    tokens = SPECIAL + letters + [a + b for a, b in merges]
    bpe = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
           "ignore_merges": False, "vocab": {token: i for i, token in enumerate(tokens)},
           "merges": [f"{a} {b}" for a, b in merges]}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added(token, i) for i, token in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None, "decoder": byte_level, "model": bpe}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 256,
              "clean_up_tokenization_spaces": False, "eos_token": "<|end|>",
              "pad_token": "<|end|>", "chat_template": TEMPLATE}
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
    print(f"{len(tokens)} tokens, {len(merges)} of them merged, from {len(words)} words")


if __name__ == "__main__":
    main()
