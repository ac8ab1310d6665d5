#!/usr/bin/env python3
"""Writes tests/data/model_logits.safetensors and tests/data/logits: logits of tiny models.

The models are those of transformers in float64 (norms and RoPE compute in float32 nevertheless).
Weights and tokens come from the formula of tests/support/tiny_model.h; there is no other
randomness. RoPE factors that a GGUF file holds as tensors are written too.

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.23.0, safetensors 0.8.0, numpy 2.4.6:
    python3 tools/make_model_golden.py tests/data/model_logits.safetensors
A case of LATER has its own file, made with transformers 5.24.0:
    python3 tools/make_model_golden.py tests/data/logits/CASE.safetensors
"""

import copy
import pathlib
import sys

import numpy as np
import torch
import transformers

import golden

HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 144, 96, 9, 3, 16, 267
EPS, ROWS = 1e-5, 24

PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}

YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
        "original_max_position_embeddings": 64}
SHORT = [1.0 + 0.125 * i for i in range(HEAD_DIM // 4)]  # half of each head is rotated
LONG = [2.0 + 0.5 * i for i in range(HEAD_DIM // 4)]


def longrope(original):
    return {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": SHORT,
            "long_factor": LONG, "original_max_position_embeddings": original,
            "partial_rotary_factor": 0.5}


def phi3(original):
    return {"sliding_window": None, "original_max_position_embeddings": original}


MROPE = PLAIN | {"mrope_section": [2, 3, 3]}
VISION = {"Qwen2VL": dict(depth=1, embed_dim=32, hidden_size=HIDDEN, num_heads=2),
          "Qwen3VL": dict(depth=1, hidden_size=32, intermediate_size=48, num_heads=2,
                          out_hidden_size=HIDDEN, num_position_embeddings=16,
                          deepstack_visual_indexes=[0])}
WINDOW = {"sliding_window": 7}
GRANITE = {"embedding_multiplier": 12.0, "attention_multiplier": 0.2, "residual_multiplier": 0.22,
           "logits_scaling": 3.0}
GEMMA2 = {"sliding_window": 6, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0,
          "query_pre_attn_scalar": HEAD_DIM}
GEMMA3 = {"sliding_window": 6, "query_pre_attn_scalar": HEAD_DIM}
GEMMA3_ROPE = {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
               "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}}
GEMMA4 = {"sliding_window": 6, "hidden_size_per_layer_input": 0, "attention_k_eq_v": True,
          "global_head_dim": 2 * HEAD_DIM, "num_global_key_value_heads": 1,
          "final_logit_softcapping": 2.0,
          "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
GEMMA4_ROPE = {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
               "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
                                  "partial_rotary_factor": 0.25}}
OLMO3_ROPE = {"sliding_attention": PLAIN, "full_attention": YARN}
OLMO3 = {"sliding_window": 7,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}

TEMPERED = YARN | {"original_max_position_embeddings": 6, "llama_4_scaling_beta": 0.7}

# name: architecture, model class of transformers, layers, tied, RoPE, other settings
CASES = {
    "llama": ("llama", "Llama", 3, False, PLAIN, {}),
    "llamaTied": ("llama", "Llama", 3, True, PLAIN, {}),
    "llamaLinear": ("llama", "Llama", 3, False, LINEAR, {}),
    "llama3Rope": ("llama", "Llama", 3, False, LLAMA3, {}),
    "mistral": ("llama", "Mistral", 3, False, PLAIN, WINDOW),
    "qwen2": ("qwen2", "Qwen2", 3, False, PLAIN, {}),
    "qwen2Yarn": ("qwen2", "Qwen2", 3, False, YARN, {}),
    "qwen3Tied": ("qwen3", "Qwen3", 3, True, PLAIN, {}),
    "granite": ("granite", "Granite", 3, False, PLAIN, GRANITE),
    "olmo2": ("olmo2", "Olmo2", 3, False, PLAIN, {}),
    "olmo3": ("olmo2", "Olmo3", 3, False, OLMO3_ROPE, OLMO3),
    "smollm3": ("smollm3", "SmolLM3", 4, True, PLAIN, {}),
    "phi3Short": ("phi3", "Phi3", 3, False, longrope(64), phi3(64)),
    "phi3Long": ("phi3", "Phi3", 3, False, longrope(16), phi3(16) | WINDOW),
    "gemma2": ("gemma2", "Gemma2", 3, True, PLAIN, GEMMA2),
    "gemma3": ("gemma3", "Gemma3", 6, True, GEMMA3_ROPE, GEMMA3),
    "gemma4": ("gemma4", "Gemma4", 3, True, GEMMA4_ROPE, GEMMA4),
}
# Cases with a separate file each.
LATER = {
    "ministral3": ("llama", "Ministral3", 3, False, TEMPERED, {}),
    "ministral": ("llama", "Ministral", 3, False, PLAIN, WINDOW | {
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
    "seedOss": ("seed_oss", "SeedOss", 3, False, PLAIN, {}),
    "qwen2vl": ("qwen2vl", "Qwen2VL", 3, True, MROPE, {"head_dim": None}),
    "qwen3vl": ("qwen3vl", "Qwen3VL", 3, False, MROPE | {"rope_theta": 5000000.0}, {}),
}


NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
    "model.norm.weight": "output_norm.weight", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


# In most models, the norm after attention precedes the MLP.
POST_NORMS = ("gemma2", "gemma3", "gemma4", "olmo2", "seed_oss")


def gguf_name(name, architecture):
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    stem, kind = rest.rsplit(".", 1)
    if stem == "post_attention_layernorm" and architecture in POST_NORMS:
        return f"blk.{layer}.post_attention_norm.{kind}"
    return f"blk.{layer}.{NAMES[stem]}.{kind}"


def make(family, layers, tied, rope, more):
    name = family + "Text" if family in ("Gemma3", "Gemma4") else family
    sizes = dict(
        hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=layers,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM,
        vocab_size=VOCAB, rms_norm_eps=EPS, tie_word_embeddings=tied,
        max_position_embeddings=512, attn_implementation="eager",
        pad_token_id=0, rope_parameters=copy.deepcopy(rope)) | copy.deepcopy(more)
    sizes = {key: value for key, value in sizes.items() if key != "head_dim" or value is not None}
    of_family = getattr(transformers, name + "Config")
    if family not in VISION:
        return getattr(transformers, family + "ForCausalLM")(of_family(**sizes)).double().eval()
    config = of_family(text_config=sizes, vision_config=VISION[family], tie_word_embeddings=tied,
                       attn_implementation="eager")
    return getattr(transformers, family + "ForConditionalGeneration")(config).double().eval()


def run(architecture, family, layers, tied, rope, more):
    model = make(family, layers, tied, rope, more)
    for name, parameter in model.named_parameters():
        if ".visual." in name:
            continue
        target = gguf_name(name.replace("language_model.", ""), architecture)
        value = golden.tensor(target, tuple(parameter.shape))
        heads = {"attn_q.weight": HEADS, "attn_k.weight": KV_HEADS}.get(target.split(".", 2)[-1])
        if heads and architecture in ("llama", "granite", "smollm3"):
            value = golden.to_halves(value, heads, HEAD_DIM)
        if "norm" in target and architecture in ("gemma2", "gemma3"):
            value = value - 1  # these norms add 1
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(value))
    if architecture == "gemma4":
        for i, layer in enumerate(model.model.layers):
            scale = golden.tensor(f"blk.{i}.layer_output_scale.weight", (1,))
            layer.layer_scalar.copy_(torch.from_numpy(scale))
    tokens = golden.tokens(ROWS, VOCAB)
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None]).logits[0]
    result = {"logits": logits.numpy(), "tokens": tokens}
    if rope.get("rope_type") == "longrope":
        result |= {"rope_short": np.array(SHORT), "rope_long": np.array(LONG)}
    if rope.get("rope_type") == "llama3":
        plain = rope["rope_theta"] ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        result["rope_factors"] = plain / model.model.rotary_emb.inv_freq.double().numpy()
    return result


def main():
    tensors, asked = {}, pathlib.Path(sys.argv[1]).stem
    for name, case in ({asked: LATER[asked]} if asked in LATER else CASES).items():
        tensors |= {f"{name}/{key}": value for key, value in run(*case).items()}
    golden.save(tensors, sys.argv[1])


main()
