#!/usr/bin/env python3
"""Rewards of completions by a reward model in transformers, for tests/train/grpo_test.py.

    python3 -m venv venv
    venv/bin/pip install torch==2.13.0 transformers==5.24
    venv/bin/python tools/make_reward_golden.py build/weft models/abacus tests/data/reward_scores.json

Weft writes models/abacus as a folder, and as one with the initial score head of --seed 0 (updates
with a rate of 0). The completions are greedy, by transformers; the rewards are the logits of
...ForSequenceClassification in float64, for the prompt and the completion in the chat template, or
as one text that the end token follows; once more with token 1 as the padding of config.json.
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers

SUMS = [(47, 38), (12, 9), (60, 25), (33, 33), (71, 18), (5, 90), (28, 14), (99, 1)]
MOST = 16


def main():
    weft, abacus, out = sys.argv[1:]
    pairs = [dict(prompt="a", chosen="b", rejected="c"), dict(question="a", answer="b")]
    with tempfile.TemporaryDirectory() as folder:
        def load(kind, record, *flags):
            with open(f"{folder}/data.jsonl", "w") as file:
                file.write(json.dumps(record) + "\n")
            where = f"{folder}/{kind.__name__}"
            subprocess.run([weft, "train", abacus + "/model.gguf", "--data", f"{folder}/data.jsonl",
                            "--seq-len", "64", "--steps", "1", "--lr", "0", "--dtype", "f32",
                            "--output-dir", where, "--save-format", "hf", "--save-type", "F32",
                            *flags], check=True)
            tokenizer = transformers.AutoTokenizer.from_pretrained(where + "/model")
            return kind.from_pretrained(where + "/model", dtype=torch.float64).eval(), tokenizer
        judge, _ = load(transformers.AutoModelForSequenceClassification, pairs[0], "--loss",
                        "reward")
        model, tokenizer = load(transformers.AutoModelForCausalLM, pairs[1])
        records = []
        for a, b in SUMS:
            question = f"What is {a} + {b}?"
            for prompt in ([dict(role="user", content=question)], question):
                chat = not isinstance(prompt, str)
                text = tokenizer.apply_chat_template(prompt, tokenize=False,
                                                     add_generation_prompt=True) if chat else prompt
                ids = tokenizer(text, return_tensors="pt")
                made = model.generate(**ids, do_sample=False, max_new_tokens=MOST)[0]
                completion = tokenizer.decode(made[ids["input_ids"].shape[1]:],
                                              skip_special_tokens=True)
                whole = tokenizer.apply_chat_template(
                    [*prompt, dict(role="assistant", content=completion)], tokenize=False) \
                    if chat else prompt + completion + tokenizer.eos_token
                record = dict(prompt=prompt, completion=completion)
                for name, padding in (("reward", tokenizer.pad_token_id), ("other_padding", 1)):
                    judge.config.pad_token_id = padding
                    with torch.no_grad():
                        logits = judge(**tokenizer(whole, return_tensors="pt")).logits
                    record[name] = float(logits[0, 0])
                records.append(record)
    with open(out, "w") as file:
        json.dump(dict(made_by=dict(transformers=transformers.__version__, torch=torch.__version__),
                       records=records), file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    main()
