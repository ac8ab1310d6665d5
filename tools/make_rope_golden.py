#!/usr/bin/env python3
"""Writes tests/data/rope_golden.safetensors: logits of tiny models with many RoPE kinds and soft caps.

A case is a config.json for a family of models: the family's base config, with some keys set or
dropped. It is written as text, in the forms that publishers use (old and new spellings, null,
missing keys), and loaded by transformers in float64 (RoPE and norms compute in float32
nevertheless). Weights and tokens come from the formula of tests/support/tiny_model.h; there is no
other randomness.

Metadata: FAMILY/base, FAMILY/tensors, FAMILY/norm_base; CASE/case (family, tokens, set, drop).
Tensors: CASE/logits, for the rows in the middle and at the end.

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.24.0, safetensors 0.8.0, numpy 2.4.6:
    python3 tools/make_rope_golden.py tests/data/rope_golden.safetensors
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
import transformers

import golden

LONG, SHORT, VOCAB = 40, 12, 24  # tokens of a case; rows of the vocabulary
DROP = object()                  # a key that the config must not have
SIZES = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, head_dim=16, vocab_size=VOCAB, max_position_embeddings=128,
             rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
             pad_token_id=0)
BOTH = dict(layer_types=["sliding_attention", "full_attention"], sliding_window=24)
GELU = dict(hidden_activation="gelu_pytorch_tanh")
LATENT = dict(head_dim=DROP, num_key_value_heads=2, kv_lora_rank=16, qk_rope_head_dim=8,
              qk_nope_head_dim=8, v_head_dim=8, q_lora_rank=None, n_routed_experts=2,
              num_experts_per_tok=1, n_shared_experts=1, moe_intermediate_size=32,
              first_k_dense_replace=1, n_group=1, topk_group=1)
FAMILIES = {
    "llama": {},
    "mistral": dict(sliding_window=None),
    "granite": dict(attention_multiplier=0.25, embedding_multiplier=2.0, residual_multiplier=0.5,
                    logits_scaling=2.0),
    "smollm3": {},
    "qwen2": {},
    "qwen3": {},
    "olmo2": {},
    "olmo3": BOTH,
    "phi3": dict(original_max_position_embeddings=16),
    "gemma2": dict(**GELU, sliding_window=24, query_pre_attn_scalar=16, attn_logit_softcapping=2.0,
                   final_logit_softcapping=1.5),
    "gemma3_text": dict(**GELU, **BOTH, query_pre_attn_scalar=16),
    "gemma4_text": dict(**GELU, **BOTH, hidden_size_per_layer_input=0, global_head_dim=32),
    "deepseek_v2": dict(**LATENT, topk_method="greedy"),
    "deepseek_v3": LATENT,
    "mixtral": dict(num_local_experts=2, num_experts_per_tok=1, sliding_window=None),
    "qwen2_moe": dict(num_experts=2, num_experts_per_tok=1, moe_intermediate_size=32,
                      shared_expert_intermediate_size=32),
    "qwen3_moe": dict(num_experts=2, num_experts_per_tok=1, moe_intermediate_size=32,
                      norm_topk_prob=True),
    "gpt_oss": dict(num_local_experts=2, num_experts_per_tok=1, sliding_window=24),
    "glm4_moe": dict(n_routed_experts=2, num_experts_per_tok=1, n_shared_experts=1,
                     moe_intermediate_size=32, first_k_dense_replace=1, n_group=1, topk_group=1,
                     attention_bias=True, use_qk_norm=True),
    "minimax_m2": dict(num_local_experts=2, num_experts_per_tok=1, rotary_dim=8),
}
BY_LAYER_TYPE = ("olmo3", "gemma3_text", "gemma4_text")


def kind(rope_type, **more):
    rope = {"rope_type": rope_type, "rope_theta": 10000.0} | more
    return {key: value for key, value in rope.items() if value is not DROP}


def linear(**more):
    return kind("linear", **{"factor": 4.0} | more)


def yarn(**more):  # a ramp over pairs 1 to 5 of 8
    return kind("yarn", **{"rope_theta": 100.0, "factor": 8.0, "beta_fast": 4.0,
                           "original_max_position_embeddings": 64} | more)


def longrope(family, **more):
    pairs = 4 if family in ("glm4_moe", "minimax_m2", "deepseek_v2", "deepseek_v3") else 8
    return kind("longrope", **{
        "factor": 8.0, "original_max_position_embeddings": 16,
        "short_factor": [1 + i / 8 for i in range(pairs)],
        "long_factor": [2 + i / 2 for i in range(pairs)]} | more)


def llama3(**more):
    return kind("llama3", **{"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 16} | more)


def params(rope):
    return {"rope_parameters": rope}


def old(rope, **more):
    """The spelling of older versions' config.json."""
    rope = dict(rope)
    theta, rope_type = rope.pop("rope_theta"), rope.pop("rope_type")
    return {"rope_theta": theta, "rope_scaling": {"type": rope_type} | rope} | more


def typed(full, sliding=None):
    return params({"full_attention": full, "sliding_attention": sliding or kind("default")})


def flat_cases(f):
    """Every RoPE kind with its required keys, for each family whose layers share one RoPE."""
    yield "missing", {}
    yield "theta", {"rope_theta": 500.0, "rope_scaling": None}
    yield "linear", params(linear())
    yield "dynamic", params(kind("dynamic", factor=4.0))
    yield "yarn", params(yarn())
    yield "yarnFactor", params(yarn(attention_factor=1.3))
    yield "longrope", params(longrope(f))
    yield "longropeFactor", params(longrope(f, attention_factor=1.3)), SHORT
    yield "longropeOuter", params(longrope(f, factor=DROP)) | {
        "original_max_position_embeddings": 32}
    yield "llama3", params(llama3())
    yield "proportional", params(kind("proportional", partial_rotary_factor=0.5))


def optional_cases(f):
    """Each optional key of each kind."""
    for name, more in {
            "Null": {"attention_factor": None, "mscale": None, "mscale_all_dim": None},
            "Mscale": {"mscale": 0.7}, "MscaleAll": {"mscale_all_dim": 1.0},
            "MscaleAllNull": {"mscale": None, "mscale_all_dim": 1.0},
            "MscaleAllZero": {"mscale": 0.7, "mscale_all_dim": 0},
            "MscaleSame": {"mscale": 1.0, "mscale_all_dim": 1.0},
            "MscaleBoth": {"mscale": 1.0, "mscale_all_dim": 0.5},
            "MscaleFactor": {"attention_factor": 1.3, "mscale": 1.0, "mscale_all_dim": 0.5},
            "Fast": {"beta_fast": 2.0}, "FastNull": {"beta_fast": None},
            "FastMissing": {"beta_fast": DROP}, "Slow": {"beta_slow": 0.5},
            "SlowNull": {"beta_slow": None}, "Whole": {"truncate": False},
            "WholeNull": {"truncate": None}, "Cut": {"truncate": True},
            "One": {"factor": 1.0}, "Half": {"factor": 0.5},
            "NoOriginal": {"original_max_position_embeddings": DROP},
            "Steep": {"beta_slow": 40.0, "beta_fast": 80.0}}.items():
        yield "yarn" + name, params(yarn(**more))
    yield "yarnRatio", params(yarn(factor=None))
    yield "yarnOuter", params(yarn()) | {"original_max_position_embeddings": 32}
    for name, more in {"Null": {"attention_factor": None}, "FactorNull": {"factor": None},
                       "One": {"factor": 1.0}, "Four": {"factor": 4.0},
                       "NoOriginal": {"original_max_position_embeddings": DROP}}.items():
        yield "longrope" + name, params(longrope(f, **more))
    yield "longropeShort", params(longrope(f)), SHORT
    yield "llama3NoOriginal", params(llama3(original_max_position_embeddings=DROP))
    yield "llama3Wide", params(llama3(low_freq_factor=0.5, high_freq_factor=8.0))
    yield "proportionalFactor", params(kind("proportional", partial_rotary_factor=0.5, factor=2.0))
    yield "proportionalWhole", params(kind("proportional"))
    yield "linearBelowOne", params(linear(factor=0.5))


def spelled_cases(f):
    """Old spellings, new spellings, and both."""
    yield "oldLinear", old(linear())
    yield "oldDynamic", old(kind("dynamic", factor=2.0))
    yield "oldYarn", old(yarn(attention_factor=1.3))
    yield "oldLongrope", old(longrope(f))
    yield "oldOverNew", old(linear()) | params(kind("default"))
    yield "oldEmpty", {"rope_theta": 500.0, "rope_scaling": {}} | params(linear())
    yield "oldBothTypes", {"rope_scaling": {"type": "linear", "rope_type": "default", "factor": 4}}
    yield "thetaInside", {"rope_theta": 500.0} | params(kind("default"))
    yield "thetaOutside", {"rope_theta": 500.0} | params({"rope_type": "default"})
    yield "paramsNull", params(None)


def phi3_cases(f):
    yield "missing", {}
    yield "half", params(kind("default", partial_rotary_factor=0.5))
    yield "halfOutside", {"partial_rotary_factor": 0.5, "rope_theta": 500.0}
    for name, more in {"": {}, "Factor": {"attention_factor": 1.3}, "Ratio": {"factor": DROP},
                       "FactorNull": {"attention_factor": None, "factor": None},
                       "Four": {"factor": 4.0}}.items():
        yield "longrope" + name, params(longrope(f, **more))
    yield "longropeShort", params(longrope(f, attention_factor=1.2)), SHORT
    yield "longropeInner", params(longrope(f, original_max_position_embeddings=32, factor=DROP))
    yield "longropeHalf", params(longrope("glm4_moe", partial_rotary_factor=0.5))
    yield "su", old(longrope(f) | {"rope_type": "su"})
    yield "yarn", old(longrope(f) | {"rope_type": "yarn"})
    yield "original", {"original_max_position_embeddings": DROP} | params(longrope(f, factor=DROP))


def typed_cases(f):
    """Cases of families with a RoPE per type of layer."""
    yield "missing", {}
    yield "paramsNull", params(None)
    yield "bases", typed(kind("default", rope_theta=500.0), kind("default", rope_theta=300.0))
    yield "linear", typed(linear())
    yield "dynamic", typed(kind("dynamic", factor=2.0))
    yield "llama3", typed(llama3())
    yield "proportional", typed(kind("proportional", partial_rotary_factor=0.5))
    if f == "gemma4_text":  # its layers without a window have other heads
        yield "capped", {"final_logit_softcapping": 1.5}
        yield "uncapped", {"final_logit_softcapping": None}
        return
    yield "yarn", typed(yarn())
    yield "yarnFactor", typed(yarn(attention_factor=1.3))
    yield "yarnMscaleAll", typed(yarn(mscale_all_dim=1.0))
    yield "longrope", typed(longrope(f))
    yield "longropeShort", typed(longrope(f, attention_factor=1.3)), SHORT
    yield "oneOnly", params({"full_attention": linear()})
    yield "oneNull", params({"full_attention": linear(), "sliding_attention": None})
    yield "fullNull", params({"full_attention": None, "sliding_attention": kind("default")})
    yield "old", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}


def family_cases(f):
    if f in BY_LAYER_TYPE:
        yield from typed_cases(f)
    elif f == "phi3":
        yield from phi3_cases(f)
    else:
        yield from flat_cases(f)
    if f in ("llama", "deepseek_v3"):
        yield from optional_cases(f)
    if f in ("llama", "minimax_m2", "gpt_oss"):
        yield from spelled_cases(f)
    if f in ("glm4_moe", "minimax_m2"):
        yield "quarter", params(kind("default", partial_rotary_factor=0.25))
        yield "quarterOutside", {"rope_theta": 10000.0, "partial_rotary_factor": 0.25}
        yield "quarterLinear", params(linear(partial_rotary_factor=0.25))
    if f.startswith("gemma2"):
        for name, score, logit in (("None", None, None), ("Missing", DROP, DROP),
                                   ("Scores", 3.0, None), ("Logits", None, 2.5)):
            yield "caps" + name, {"attn_logit_softcapping": score, "final_logit_softcapping": logit}
    if f.startswith(("gemma2", "gemma3")):
        yield "scalar", {"query_pre_attn_scalar": 24}
        yield "scalarMissing", {"query_pre_attn_scalar": DROP}
    if f == "gemma3_text":
        yield "capped", {"final_logit_softcapping": 1.5}
        yield "local", {"rope_theta": 500.0, "rope_local_base_freq": 300.0,
                        "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    if f in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe"):
        yield "window", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    if f in ("qwen2", "qwen3", "qwen3_moe"):
        yield "windowNull", {"use_sliding_window": True, "sliding_window": None}
    if f in ("mistral", "mixtral"):
        yield "window", {"sliding_window": 8}
    if f in ("mixtral", "glm4_moe", "gpt_oss", "olmo2", "llama"):
        yield "eps", {"rms_norm_eps": DROP}


def write_family(family, base, folder):
    """Writes the folder's weights; returns the family's metadata."""
    sizes = {key: value for key, value in base.items() if key != "model_type"}
    config = transformers.AutoConfig.for_model(family, **sizes)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    file = folder / "model.safetensors"
    with safetensors.safe_open(file, "pt") as opened:
        shapes = {name: list(opened.get_slice(name).get_shape()) for name in opened.keys()}
    norm_base = 0.0 if family.startswith(("gemma2", "gemma3")) else 1.0
    values = {name: golden.hf_tensor(name, shape, norm_base) for name, shape in shapes.items()}
    safetensors.torch.save_file(values, file, metadata={"format": "pt"})
    return {"base": json.dumps(base), "norm_base": str(norm_base),
            "tensors": json.dumps({name: ["F32", shape] for name, shape in shapes.items()})}


def logits_of(folder, config, count):
    (folder / "config.json").write_text(json.dumps(config))
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager",
        output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"], info
    tokens = golden.tokens(count, VOCAB)
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(tokens)[None]).logits[0]
    return logits[[count // 2, count - 1]].numpy().astype(np.float32)


def main():
    transformers.logging.set_verbosity_error()
    tensors, metadata = {}, golden.versions()
    for family, more in FAMILIES.items():
        base = {"model_type": family} | SIZES | more
        base = {key: value for key, value in base.items() if value is not DROP}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            meta = write_family(family, base, folder)
            metadata |= {f"{family}/{key}": value for key, value in meta.items()}
            for case, change, *count in family_cases(family):
                count = count[0] if count else LONG
                config = {k: v for k, v in (base | change).items() if v is not DROP}
                logits = logits_of(folder, config, count)
                assert np.isfinite(logits).all(), (family, case)
                key = f"{family}_{case}"
                assert f"{key}/logits" not in tensors, key
                tensors[f"{key}/logits"] = logits
                metadata[f"{key}/case"] = json.dumps(
                    {"family": family, "tokens": count,
                     "set": {k: v for k, v in change.items() if v is not DROP},
                     "drop": [k for k, v in change.items() if v is DROP]},
                    separators=(",", ":"))
                print(key, np.abs(logits).max(), file=sys.stderr)
    safetensors.numpy.save_file(tensors, sys.argv[1], metadata=metadata)


main()
