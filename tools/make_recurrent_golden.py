#!/usr/bin/env python3
"""Writes tests/data/logits/CASE.safetensors: logits of a tiny model with recurrent layers.

Computed by transformers in float64 (norms, RoPE, gates and the delta rule compute in float32
nevertheless). Weights and tokens come from the formula of tests/support/tiny_model.h, with the
names and the order of GGUF files; there is no other randomness.

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.24.0, safetensors 0.8.0, numpy 2.4.6:
    python3 tools/make_recurrent_golden.py tests/data/logits/CASE.safetensors
"""

import pathlib
import sys

import numpy as np
import torch
import transformers

import golden

VOCAB, ROWS = 267, 24
KEY_HEADS, HEADS, KEY_DIM, VALUE_DIM = 4, 8, 24, 16
COMMON = dict(hidden_size=144, intermediate_size=96, num_hidden_layers=4, num_attention_heads=9,
              num_key_value_heads=3, head_dim=16, vocab_size=VOCAB, rms_norm_eps=1e-5,
              tie_word_embeddings=False, max_position_embeddings=512, attn_implementation="eager",
              linear_conv_kernel_dim=4, linear_key_head_dim=KEY_DIM,
              linear_value_head_dim=VALUE_DIM, linear_num_key_heads=KEY_HEADS,
              linear_num_value_heads=HEADS,
              layer_types=["linear_attention"] * 3 + ["full_attention"],
              rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                               "partial_rotary_factor": 0.25})
EXPERTS = dict(num_experts=10, num_experts_per_tok=3, moe_intermediate_size=96,
               shared_expert_intermediate_size=192, experts_implementation="eager")

LFM2 = dict(conv_L_cache=3, norm_eps=1e-5, layer_types=["conv"] * 3 + ["full_attention"],
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0})

KIMI = dict(linear_num_heads=9, linear_head_dim=16, num_key_value_heads=9, kv_lora_rank=64,
            qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=24, num_experts=10,
            num_experts_per_token=3, num_shared_experts=1, moe_intermediate_size=96,
            mlp_layer_types=["dense"] + ["sparse"] * 3, routed_scaling_factor=2.446,
            pad_token_id=None, bos_token_id=1, eos_token_id=2, experts_implementation="eager")

LING = KIMI | dict(head_dim=16, n_group=2, topk_group=1, first_k_dense_replace=1,
                   linear_num_heads=9, rope_parameters={"rope_type": "default",
                                                        "rope_theta": 10000.0})

# name: the family, config keys added to COMMON
CASES = {
    "qwen3next": ("Qwen3Next", dict(num_experts=0)),
    "qwen3nextMoe": ("Qwen3Next", dict(**EXPERTS, norm_topk_prob=True)),
    "qwen35": ("Qwen3_5", {}),
    "qwen35moe": ("Qwen3_5Moe", EXPERTS),
    "lfm2": ("Lfm2", LFM2 | dict(tie_word_embeddings=True, block_auto_adjust_ff_dim=False)),
    "lfm2moe": ("Lfm2Moe", LFM2 | dict(
        num_experts=10, num_experts_per_tok=3, moe_intermediate_size=96, num_dense_layers=1,
        experts_implementation="eager")),
    "kimiLinear": ("KimiLinear", KIMI),
    "ling3": ("BailingHybrid", LING),
}

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
    "model.norm.weight": "output_norm.weight", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "linear_attn.norm": "ssm_norm", "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.out_proj": "ssm_out", "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta", "linear_attn.conv1d": "ssm_conv1d",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "model.embedding_norm.weight": "token_embd_norm.weight", "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm", "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm", "self_attn.out_proj": "attn_output",
    "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj", "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
    "feed_forward.gate": "ffn_gate_inp",
}
KIMI_NAMES = {
    "post_attention_layernorm": "ffn_norm", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.forget_gate.f_a_proj": "ssm_f_a",
    "self_attn.forget_gate.f_b_proj": "ssm_f_b", "self_attn.b_proj": "ssm_beta",
    "self_attn.g_a_proj": "ssm_g_a", "self_attn.g_b_proj": "ssm_g_b",
    "self_attn.forget_gate.f_proj": "ssm_f_a",
    "self_attn.o_norm": "ssm_norm", "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp", "mlp.shared_experts.down_proj": "ffn_down_shexp",
}


def grouped(value, axis, size):
    """Reorders value heads from the order of Qwen 3.5's GGUF files (one of each key head, then the
    next of each) to all value heads of a key head together."""
    each = HEADS // KEY_HEADS
    shape = value.shape
    split = shape[:axis] + (each, KEY_HEADS, size) + shape[axis + 1:]
    return value.reshape(split).swapaxes(axis, axis + 1).reshape(shape)


def in_groups(rest, value):
    """The same for any tensor of a layer."""
    keys = 2 * KEY_HEADS * KEY_DIM
    if rest in ("linear_attn.in_proj_qkv.weight", "linear_attn.conv1d.weight"):
        return np.concatenate([value[:keys], grouped(value[keys:], 0, VALUE_DIM)])
    if rest == "linear_attn.in_proj_z.weight":
        return grouped(value, 0, VALUE_DIM)
    if rest == "linear_attn.out_proj.weight":
        return grouped(value, 1, VALUE_DIM)
    return grouped(value, 0, 1)


def qkvz(block, shape):
    """Puts each key head's query, key, values and gates together, as in HF."""
    cols, each = shape[1], HEADS // KEY_HEADS * VALUE_DIM
    keys = KEY_HEADS * KEY_DIM
    qkv = golden.tensor(block + "attn_qkv.weight", (2 * keys + HEADS * VALUE_DIM, cols))
    z = golden.tensor(block + "attn_gate.weight", (HEADS * VALUE_DIM, cols))
    parts = [qkv[:keys].reshape(KEY_HEADS, KEY_DIM, cols),
             qkv[keys:2 * keys].reshape(KEY_HEADS, KEY_DIM, cols),
             qkv[2 * keys:].reshape(KEY_HEADS, each, cols), z.reshape(KEY_HEADS, each, cols)]
    return np.concatenate(parts, axis=1).reshape(shape)


def value_of(family, name, shape):
    """The value of HF's parameter or buffer `name`."""
    centered = family.startswith("Qwen")  # these norms add 1
    if name in NAMES:
        value = golden.tensor(NAMES[name], shape)
        return value - 1 if centered and "norm" in name else value
    _, _, layer, rest = name.split(".", 3)
    block = f"blk.{layer}."
    if rest == "linear_attn.in_proj_qkvz.weight":
        return qkvz(block, shape)
    if rest.endswith(("expert_bias", "e_score_correction_bias")):
        return golden.tensor(block + "exp_probs_b.bias", shape)
    if rest.endswith("experts.gate_up_proj"):
        half = (shape[0], shape[1] // 2, shape[2])
        return np.concatenate([golden.tensor(block + "ffn_gate_exps.weight", half),
                               golden.tensor(block + "ffn_up_exps.weight", half)], axis=1)
    if rest.endswith("experts.down_proj"):
        return golden.tensor(block + "ffn_down_exps.weight", shape)
    if rest == "self_attn.kv_b_proj.weight":  # by head: transposed keys, then values
        heads, nope, latent = 9, 32, shape[1]
        keys = golden.tensor(block + "attn_k_b.weight", (heads, latent, nope)).swapaxes(1, 2)
        values = golden.tensor(block + "attn_v_b.weight", (heads, shape[0] // heads - nope, latent))
        return np.concatenate([keys, values], axis=1).reshape(shape)
    if rest == "self_attn.conv1d.weight":
        part = (shape[0] // 3, *shape[1:])
        return np.concatenate([golden.tensor(f"{block}ssm_conv1d_{each}.weight", part) for each in "qkv"])
    if rest == "self_attn.g_proj.weight":
        name = "attn_gate.weight" if shape[0] == 9 else "ssm_g_a.weight"  # by head, or by column
        return golden.tensor(block + name, shape)
    if rest.endswith("A_log"):
        value = np.log(np.abs(golden.tensor(block + "ssm_a", shape)).astype(np.float64))
    elif rest.endswith("dt_bias"):
        value = golden.tensor(block + "ssm_dt.bias", shape)
    else:
        stem, kind = rest.rsplit(".", 1)
        kimi = family in ("KimiLinear", "BailingHybrid")
        names = NAMES | KIMI_NAMES if kimi else NAMES
        value = golden.tensor(f"{block}{names[stem]}.{kind}", shape)
    if centered and "norm" in rest and rest != "linear_attn.norm.weight":
        return value - 1
    moved = rest.startswith("linear_attn.") and rest != "linear_attn.norm.weight"
    return in_groups(rest, value) if moved and family != "Qwen3Next" else value


def run(family, more):
    text = "Text" if family.startswith("Qwen3_5") else ""
    common = COMMON
    if family in ("KimiLinear", "BailingHybrid"):
        common = {k: v for k, v in COMMON.items() if k not in ("head_dim", "rope_parameters")}
    config = getattr(transformers, family + text + "Config")(**{**common, **more})
    model = getattr(transformers, family + "ForCausalLM")(config).double().eval()
    with torch.no_grad():
        # Biases for the choice of experts.
        biases = [b for b in model.named_buffers() if b[0].endswith("_bias")]
        for name, parameter in [*model.named_parameters(), *biases]:
            value = value_of(family, name, tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(value)))
        tokens = golden.tokens(ROWS, VOCAB)
        logits = model(torch.from_numpy(tokens)[None]).logits[0]
    return {"logits": logits.numpy(), "tokens": tokens}


def main():
    name = pathlib.Path(sys.argv[1]).stem
    tensors = {f"{name}/{key}": value for key, value in run(*CASES[name]).items()}
    golden.save(tensors, sys.argv[1])


main()
