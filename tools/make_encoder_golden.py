#!/usr/bin/env python3
"""Writes tests/data/encoders/CASE.safetensors: a tiny encoder's folder, its hidden states and score;
and tests/data/rerank_encoders.safetensors: folders with tokenizers, and the scores of pairs.

As tools/make_family_golden.py: config.json and the names, dtypes and shapes of the tensors are in
the file's metadata, and values come from the formula of tests/support/tiny_model.h. "tokens" is one
text or pair; tokens from index SECOND on have type 1 if the model has two types. "hidden": the
states after the last layer; "score": the logit of a classifier with one label. transformers runs
the pair in float64, alone and in a batch with padding, which must agree.

The second file has the form of make_rerank_golden.py's: "CASE/logits" and "CASE/scores" (sigmoids)
of its pairs, with the ids of tokenizers; "CASE/vectors": the normed means of the hidden states of
the pairs' second texts alone.

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.24.0, safetensors 0.8.0, numpy 2.4.6:
    python3 tools/make_encoder_golden.py tests/data [CASE...]
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import safetensors
import safetensors.numpy
import safetensors.torch
import tokenizers
import torch
import transformers
from tokenizers import processors

import golden

ROWS, SECOND = 20, 12
SIZES = dict(hidden_size=96, intermediate_size=160, num_hidden_layers=3, num_attention_heads=6,
             vocab_size=83, max_position_embeddings=64, num_labels=1, pad_token_id=0)
MODERN = SIZES | {"num_hidden_layers": 5, "local_attention": 8, "global_attn_every_n_layers": 3,
                  "classifier_activation": "gelu", "bos_token_id": 1, "eos_token_id": 2,
                  "cls_token_id": 1, "sep_token_id": 2, "reference_compile": False}

EMBEDDING_GEMMA = dict(hidden_size=96, intermediate_size=160, num_hidden_layers=7, head_dim=16,
                       num_attention_heads=6, num_key_value_heads=2, vocab_size=83,
                       max_position_embeddings=64, pad_token_id=0, sliding_window=12,
                       query_pre_attn_scalar=16, use_bidirectional_attention=True)

# name: model_type, config, whether it has a classifier
CASES = {
    "bert": ("bert", SIZES, True),
    "roberta": ("xlm-roberta", SIZES | {"type_vocab_size": 1, "pad_token_id": 1}, True),
    "distilbert": ("distilbert", dict(dim=96, hidden_dim=160, n_layers=3, n_heads=6, vocab_size=83,
                                      max_position_embeddings=64, pad_token_id=0), False),
    "modernBert": ("modernbert", MODERN, True),
    "modernBertMean": ("modernbert", MODERN | {
        "classifier_pooling": "mean", "mlp_bias": True, "attention_bias": True,
        "norm_bias": True}, True),
    "embeddingGemma": ("gemma3_text", EMBEDDING_GEMMA, False),
}
PAIRS = [("what is a moon", "the moon is near"), ("what is a moon", "a cat sat on the mat"),
         ("no", "yes"), ("Why?", "because of the sun, the wind and the rain of a summer day")]
SMALL = dict(hidden_size=48, intermediate_size=128, num_hidden_layers=2, num_attention_heads=6,
             max_position_embeddings=128, num_labels=1)
# name: model_type, config, tokenizer of tests/data/tokenizer/files, its marks and its pair
PAIR_CASES = {
    "bertPairs": ("bert", SMALL, "bert", ("[CLS]", "[SEP]"),
                  "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"),
    "robertaPairs": ("xlm-roberta", SMALL | {"type_vocab_size": 1}, "unigram", ("<s>", "</s>"),
                     "<s> $A </s> </s> $B </s>"),
}


def run(case):
    model_type, sizes, scores = CASES[case]
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    config._attn_implementation = "eager"
    kind = transformers.AutoModelForSequenceClassification if scores else transformers.AutoModel
    model = kind.from_config(config)
    with tempfile.TemporaryDirectory() as folder:
        model.to(torch.float32).save_pretrained(folder)
        file = pathlib.Path(folder) / "model.safetensors"
        with safetensors.safe_open(file, "pt") as opened:
            shapes = {n: list(opened.get_slice(n).get_shape()) for n in opened.keys()}
        safetensors.torch.save_file({n: golden.hf_tensor(n, s, 1.0) for n, s in shapes.items()},
                                    file, metadata={"format": "pt"})
        loaded = kind.from_pretrained(folder, dtype=torch.float64,
                                      attn_implementation="eager").eval()
        text = (pathlib.Path(folder) / "config.json").read_text()
    low = 3  # above the ids of padding and special tokens
    tokens = low + golden.tokens(ROWS, sizes["vocab_size"] - low)
    typed = sizes.get("type_vocab_size", 2) > 1 and model_type == "bert"
    types = np.where(np.arange(ROWS) >= SECOND, 1, 0) if typed else np.zeros(ROWS, np.int64)
    base = loaded.base_model if scores else loaded

    def states(more):
        pads = np.full(more, sizes["pad_token_id"], np.int64)
        ids = torch.from_numpy(np.concatenate([tokens, pads]))[None]
        mask = torch.tensor([[1] * ROWS + [0] * more])
        kept = {"token_type_ids": torch.from_numpy(
            np.concatenate([types, 0 * pads]))[None]} if typed else {}
        with torch.no_grad():
            hidden = base(input_ids=ids, attention_mask=mask, **kept).last_hidden_state[0, :ROWS]
            score = loaded(input_ids=ids, attention_mask=mask, **kept).logits[0] if scores else None
        return hidden, score

    hidden, score = states(0)
    padded, padded_score = states(3)
    assert torch.allclose(hidden, padded, rtol=0, atol=1e-12)
    arrays = {"tokens": tokens.astype(np.float32), "second": np.float32([SECOND]),
              "hidden": hidden.numpy().astype(np.float32)}
    if scores:
        assert torch.allclose(score, padded_score, rtol=0, atol=1e-12)
        arrays["score"] = score.numpy().astype(np.float32)
    meta = {"config": json.dumps(json.loads(text)), "norm_base": "1.0",
            "tensors": json.dumps({n: ["F32", s] for n, s in shapes.items()})}
    return meta, arrays


def run_pairs(case, data):
    model_type, sizes, kind, (begin, end), pair = PAIR_CASES[case]
    made = tokenizers.Tokenizer.from_file(str(data / "tokenizer/files" / kind / "tokenizer.json"))
    made.add_special_tokens([begin, end, "<pad>"])
    marks = [(text, made.token_to_id(text)) for text in (begin, end)]
    made.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", pair=pair, special_tokens=marks)
    # Positions begin after this id, so it is low; transformers skips the token, so no text has it.
    pad = made.token_to_id("<pad>") if model_type == "bert" else made.token_to_id("<unk>")
    config = transformers.AutoConfig.for_model(
        model_type, **sizes, vocab_size=made.get_vocab_size(), pad_token_id=pad)
    loader = transformers.AutoModelForSequenceClassification
    logits, vectors = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        loader.from_config(config).to(torch.float32).save_pretrained(folder)
        file = folder / "model.safetensors"
        with safetensors.safe_open(file, "pt") as opened:
            shapes = {n: list(opened.get_slice(n).get_shape()) for n in opened.keys()}
        safetensors.torch.save_file({n: golden.hf_tensor(n, s, 1.0) for n, s in shapes.items()},
                                    file, metadata={"format": "pt"})
        model = loader.from_pretrained(folder, dtype=torch.float64,
                                       attn_implementation="eager").eval()
        config_text = (folder / "config.json").read_text()
    with torch.no_grad():
        for first, second in PAIRS:
            both, alone = made.encode(first, second), made.encode(second)
            assert pad not in both.ids + alone.ids
            more = {"token_type_ids": torch.tensor([both.type_ids])} if model_type == "bert" else {}
            logits.append(model(input_ids=torch.tensor([both.ids]), **more).logits[0, 0])
            states = model.base_model(input_ids=torch.tensor([alone.ids])).last_hidden_state[0]
            vectors.append(states.mean(0) / states.mean(0).norm())
    logits, vectors = torch.stack(logits), torch.stack(vectors)
    files = {"config.json": config_text, "tokenizer.json": made.to_str()}
    meta = {"files": json.dumps(files), "config": config_text, "norm_base": "1.0",
            "tensors": json.dumps({n: ["F32", s] for n, s in shapes.items()})}
    arrays = {"logits": logits, "scores": torch.sigmoid(logits), "vectors": vectors}
    return meta, {key: a.numpy().astype(np.float32) for key, a in arrays.items()}


def save_pairs(data):
    metadata, tensors = golden.versions() | {"pairs": json.dumps(PAIRS)}, {}
    for case in PAIR_CASES:
        meta, arrays = run_pairs(case, data)
        print(case, arrays["logits"], file=sys.stderr)
        metadata |= {f"{case}/{key}": text for key, text in meta.items()}
        tensors |= {f"{case}/{key}": np.ascontiguousarray(a) for key, a in arrays.items()}
    safetensors.numpy.save_file(tensors, data / "rerank_encoders.safetensors", metadata=metadata)


def main():
    data = pathlib.Path(sys.argv[1])
    if not sys.argv[2:]:
        save_pairs(data)
    for case in sys.argv[2:] or CASES:
        meta, arrays = run(case)
        metadata = golden.versions() | {f"{case}/{key}": text for key, text in meta.items()}
        tensors = {f"{case}/{key}": np.ascontiguousarray(a) for key, a in arrays.items()}
        safetensors.numpy.save_file(tensors, data / "encoders" / f"{case}.safetensors",
                                    metadata=metadata)
        print(case, np.abs(arrays["hidden"]).max(), arrays.get("score"), file=sys.stderr)


if __name__ == "__main__":
    main()
