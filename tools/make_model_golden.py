#!/usr/bin/env python3
"""Writes tests/data/model_logits.safetensors: logits of tiny models, by transformers.

The models are LlamaForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM in float64 (their norms and
RoPE compute in float32 even so). Weights and tokens come from the formula of
tests/support/tiny_model.h; there is no other randomness. For a case with Llama 3's RoPE scaling the
factors that a GGUF file holds for it are written, too.

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.23.0, safetensors 0.8.0, numpy 2.4.6:
    python3 tools/make_model_golden.py tests/data/model_logits.safetensors
"""

import math
import sys

import numpy as np
import safetensors
import safetensors.numpy
import torch
import transformers

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 3, 144, 96, 9, 3, 16, 267
EPS, ROWS = 1e-5, 24

PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}

# name: architecture, tied, RoPE
CASES = {
    "llama": ("llama", False, PLAIN),
    "llamaTied": ("llama", True, PLAIN),
    "llamaLinear": ("llama", False, LINEAR),
    "llama3Rope": ("llama", False, LLAMA3),
    "qwen2": ("qwen2", False, PLAIN),
    "qwen3Tied": ("qwen3", True, PLAIN),
}


def formula(name, count):
    """Uniform in [-1, 1), by a hash of the stream's name and the element's index."""
    mask = np.uint64(0xFFFFFFFF)
    seed = 2166136261
    for byte in name.encode():
        seed = ((seed ^ byte) * 16777619) & 0xFFFFFFFF
    h = (np.arange(count, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(seed)) & mask
    h = ((h ^ (h >> np.uint64(15))) * np.uint64(2246822519)) & mask
    h = ((h ^ (h >> np.uint64(13))) * np.uint64(3266489917)) & mask
    return ((h ^ (h >> np.uint64(16))) >> np.uint64(8)).astype(np.float64) / 8388608.0 - 1.0


def tensor(name, shape):
    norm = "norm" in name
    vector = norm or name.endswith(".bias")
    scale = 0.25 if vector else math.sqrt(3.0 / shape[-1])
    values = (1.0 if norm else 0.0) + formula(name, math.prod(shape)) * scale
    return values.astype(np.float32).reshape(shape)


def to_halves(w, heads):
    """Neighbouring pairs, as GGUF files of llama have Q and K -> halves, as HF has them."""
    return w.reshape(heads, HEAD_DIM // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
    "model.norm.weight": "output_norm.weight", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    stem, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[stem]}.{kind}"


def make(architecture, tied, rope):
    config_class, model_class = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    }[architecture]
    config = config_class(
        hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM,
        vocab_size=VOCAB, rms_norm_eps=EPS, tie_word_embeddings=tied,
        max_position_embeddings=512, attn_implementation="eager", rope_parameters=dict(rope))
    return model_class(config).double().eval()


def run(architecture, tied, rope):
    model = make(architecture, tied, rope)
    for name, parameter in model.named_parameters():
        target = gguf_name(name)
        value = tensor(target, tuple(parameter.shape))
        heads = {"attn_q.weight": HEADS, "attn_k.weight": KV_HEADS}.get(target.split(".", 2)[-1])
        if heads and architecture == "llama":
            value = to_halves(value, heads)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(value))
    tokens = np.floor((formula("tokens", ROWS) * 0.5 + 0.5) * VOCAB).astype(np.int64)
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None]).logits[0]
    result = {"logits": logits.numpy(), "tokens": tokens}
    if rope["rope_type"] == "llama3":
        plain = rope["rope_theta"] ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        result["rope_factors"] = plain / model.model.rotary_emb.inv_freq.double().numpy()
    return result


def main():
    tensors = {}
    for name, case in CASES.items():
        tensors |= {f"{name}/{key}": value for key, value in run(*case).items()}
    tensors = {k: np.ascontiguousarray(v, dtype=np.float32) for k, v in tensors.items()}
    made_with = {"torch": torch.__version__, "transformers": transformers.__version__,
                 "safetensors": safetensors.__version__, "numpy": np.__version__,
                 "seed": "none: tests/support/tiny_model.h's formula"}
    safetensors.numpy.save_file(tensors, sys.argv[1], metadata=made_with)


main()
