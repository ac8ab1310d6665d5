#!/usr/bin/env python3
"""Folders written by Weft and loaded by transformers give the same logits and token ids.

    tests/model_files/hf_export_test.py build/tests/model_files_tests build/weft [PACKAGES]

HfExportTokenizer.ForTransformers of model_files_tests writes each family as a GGUF file and as a
folder; `weft logits` reads the first, transformers the second. Exit status 77: transformers is not
installed (the tests do not install it, because it needs PyTorch).
"""
import json
import os
import subprocess
import sys
import tempfile

TOKENS = [1, 260, 5, 17, 33, 200, 99, 7, 64, 12, 180, 3]
TEXT = "It's 12345 words,\n\n  and <|im_end|> more: DON'T   stop "
# Both compute in float32; sums of a few hundred terms differ in order.
MOST = 2e-5


def ids_of(program, gguf):
    out = subprocess.run([program, "tokenize", gguf, "--json", "--text", TEXT], check=True,
                         capture_output=True, text=True).stdout
    return json.loads(out)["tokens"]


def check(program, path, torch, transformers):
    out = subprocess.run([program, "logits", path + ".gguf", "--tokens", ",".join(map(str, TOKENS)),
                          "--all", "--json", "--reference"], check=True, capture_output=True,
                         text=True).stdout
    ours = torch.tensor(json.loads(out)["logits"])
    model, told = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, output_loading_info=True)
    wrong = {what: names for what, names in told.items() if names}
    assert not wrong, f"{path}: {wrong}"
    with torch.no_grad():
        theirs = model(torch.tensor([TOKENS])).logits[0]
    error = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    assert error <= MOST, f"{path}: logits differ by {error}"
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    expected = ids_of(program, path + ".gguf")
    got = tokenizer(TEXT)["input_ids"]
    assert got == expected, f"{path}: ids {got}, expected {expected}"
    return error


def main():
    tests, program = sys.argv[1:3]
    sys.path[1:1] = sys.argv[3:]
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"SKIPPED: no package transformers with PyTorch ({error})")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([tests, "--gtest_filter=HfExportTokenizer.ForTransformers"], check=True,
                       stdout=subprocess.DEVNULL, env=os.environ | {"WEFT_EXPORT_FOLDER": folder})
        names = sorted(name for name in os.listdir(folder) if os.path.isdir(f"{folder}/{name}"))
        assert len(names) == 18, names
        for name in names:
            error = check(program, f"{folder}/{name}", torch, transformers)
            print(f"{name}: logits within {error:.1e} of transformers {transformers.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
