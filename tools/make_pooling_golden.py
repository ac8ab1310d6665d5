#!/usr/bin/env python3
"""Writes tests/data/pooling_golden.safetensors: vectors of sentence-transformers' folders.

The model is the case "llama" of tests/data/hf_golden.safetensors, whose weights come from the
formula of tests/support/tiny_model.h. Each case adds modules.json and its modules; their texts are in
the metadata ("CASE/files"), and tensors of Dense modules come from the formula under the names
"FOLDER/TENSOR" ("CASE/tensors"). sentence-transformers loads the written folder and encodes one text,
of which each word is a token ("CASE/vector"; "tokens": its ids without a prompt).

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.24.0, sentence-transformers 6.2.0, safetensors
0.8.0, numpy 2.4.6:
    python3 tools/make_pooling_golden.py tests/data/pooling_golden.safetensors
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import safetensors
import safetensors.numpy
import safetensors.torch
import sentence_transformers
import tokenizers
import torch
import transformers

import golden

ROOT = pathlib.Path(__file__).resolve().parent.parent
HIDDEN, WORDS, ROWS = 48, 83, 11
OLD = "sentence_transformers.models."
NEW = "sentence_transformers.base.modules."
IDENTITY, ACTIVATION = "torch.nn.modules.linear.", "torch.nn.modules.activation."


def old_pooling(*modes, **more):
    keys = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens",
            "weightedmean_tokens", "lasttoken")
    return {"word_embedding_dimension": HIDDEN, **more,
            **{f"pooling_mode_{key}": key in modes for key in keys}}


def new_pooling(mode, **more):
    return {"embedding_dimension": HIDDEN, "pooling_mode": mode, "include_prompt": True} | more


def dense(columns, rows, activation, bias=True):
    return {"in_features": columns, "out_features": rows, "bias": bias,
            "activation_function": activation}


LAYER_NORM = {"dimension": HIDDEN}
PROMPT = {"config_sentence_transformers.json": {
    "prompts": {"query": "w3 w14 w15 ", "document": ""}, "default_prompt_name": "query"}}

# name: the config of the pooling, the modules behind it (None: Normalize), other files
CASES = {
    "cls": (old_pooling("cls_token"), [], {}),
    "mean": (old_pooling("mean_tokens"), [None], {}),
    "max": (old_pooling("max_tokens"), [None], {}),
    "meanSqrt": (old_pooling("mean_sqrt_len_tokens"), [], {}),
    "weighted": (old_pooling("weightedmean_tokens"), [None], {}),
    "last": (old_pooling("lasttoken"), [None], {}),
    "none": (old_pooling(), [], {}),
    "joined": (old_pooling("mean_tokens", "cls_token", "lasttoken"), [None], {}),
    "newMax": (new_pooling("max"), [], {}),
    "newWeighted": (new_pooling(["weightedmean"]), [], {}),
    "newJoined": (new_pooling(["mean_sqrt_len_tokens", "cls"]), [], {}),
    "dense": (old_pooling("mean_tokens"), [dense(HIDDEN, 20, ACTIVATION + "Tanh"), None], {}),
    "denseTwo": (new_pooling(["lasttoken", "max"]), [
        dense(2 * HIDDEN, 64, IDENTITY + "Identity", bias=False), None,
        dense(64, 32, ACTIVATION + "GELU")], {}),
    "denseOthers": (old_pooling("cls_token"), [
        dense(HIDDEN, 40, ACTIVATION + "ReLU"), dense(40, 40, ACTIVATION + "SiLU"),
        dense(40, 24, ACTIVATION + "Sigmoid")], {}),
    "layerNorm": (new_pooling("mean"), [LAYER_NORM, None], {}),
    "prompt": (old_pooling("mean_tokens", include_prompt=True), [None], PROMPT),
    "promptLeftOut": (new_pooling(["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean",
                                   "lasttoken"], include_prompt=False), [], PROMPT),
    "noPrompt": (old_pooling("mean_tokens", include_prompt=True), [None], {
        "config_sentence_transformers.json": {
            "prompts": {"query": "w3 w14 w15 "}, "default_prompt_name": None}}),
}


def files_of(case):
    pooling, steps, more = CASES[case]
    prefix = NEW if "embedding_dimension" in pooling else OLD
    first = "sentence_transformers.sentence_transformer.modules." if prefix == NEW else OLD
    files = {"1_Pooling/config.json": pooling, **more}
    modules = [("", prefix + ("transformer." if prefix == NEW else "") + "Transformer"),
               ("1_Pooling", first + ("pooling." if prefix == NEW else "") + "Pooling")]
    tensors = {}
    for i, step in enumerate(steps, 2):
        name = "Normalize" if step is None else "LayerNorm" if step is LAYER_NORM else "Dense"
        folder = f"{i}_{name}"
        new = NEW if name != "LayerNorm" else "sentence_transformers.sentence_transformer.modules."
        module = {"LayerNorm": "layer_norm"}.get(name, name.lower())
        modules.append((folder, (f"{new}{module}." if prefix == NEW else prefix) + name))
        if step is None:
            continue
        files[f"{folder}/config.json"] = step
        if step is LAYER_NORM:
            tensors |= {f"{folder}/norm.{part}": [HIDDEN] for part in ("weight", "bias")}
            continue
        tensors[f"{folder}/linear.weight"] = [step["out_features"], step["in_features"]]
        if step["bias"]:
            tensors[f"{folder}/linear.bias"] = [step["out_features"]]
    files["modules.json"] = [{"idx": i, "name": str(i), "path": path, "type": kind}
                             for i, (path, kind) in enumerate(modules)]
    return {name: json.dumps(value) for name, value in files.items()}, tensors


def write_model(folder):
    with safetensors.safe_open(ROOT / "tests/data/hf_golden.safetensors", "np") as opened:
        meta = opened.metadata()
    (folder / "config.json").write_text(meta["llama/config"])
    base = float(meta["llama/norm_base"])
    values = {name: golden.hf_tensor(name, shape, base)
              for name, (_, shape) in json.loads(meta["llama/tensors"]).items()}
    safetensors.torch.save_file(values, folder / "model.safetensors", metadata={"format": "pt"})
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(
        {f"w{i}": i for i in range(WORDS)}, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0").save_pretrained(folder)


def run(case, tokens):
    files, tensors = files_of(case)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder)
        for path, text in files.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text)
        for module in {path.split("/")[0] for path in tensors}:
            own = {path.split("/")[1]: golden.hf_tensor(path, shape, 0.0)
                   for path, shape in tensors.items() if path.startswith(module + "/")}
            safetensors.torch.save_file(own, folder / module / "model.safetensors")
        model = sentence_transformers.SentenceTransformer(
            str(folder), device="cpu", model_kwargs={"attn_implementation": "eager",
                                                     "dtype": torch.float32})
        vector = model.encode(" ".join(f"w{t}" for t in tokens), convert_to_numpy=True)
    return {"files": json.dumps(files), "tensors": json.dumps(tensors)}, vector


def main():
    tokens = golden.tokens(ROWS, WORDS, "pooling")
    arrays = {"tokens": tokens.astype(np.float32)}
    metadata = golden.versions() | {"sentence-transformers": sentence_transformers.__version__}
    for case in CASES:
        print(case, file=sys.stderr)
        meta, arrays[f"{case}/vector"] = run(case, tokens)
        metadata |= {f"{case}/{key}": value for key, value in meta.items()}
    arrays = {name: np.ascontiguousarray(a, dtype=np.float32) for name, a in arrays.items()}
    safetensors.numpy.save_file(arrays, sys.argv[1], metadata=metadata)


if __name__ == "__main__":
    main()
