#!/usr/bin/env python3
"""Writes logits of tiny models with experts or latent attention: tests/data/moe_logits.safetensors.

Computed by transformers in float64 (norms, RoPE and gates compute in float32 nevertheless). Weights
and tokens come from the formula of tests/support/tiny_model.h, under the tensor names of GGUF
files; there is no other randomness.

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.23.0, safetensors 0.8.0, numpy 2.4.6:
    python3 tools/make_moe_golden.py tests/data/moe_logits.safetensors
A case of LATER has its own file, made with transformers 5.24.0:
    python3 tools/make_moe_golden.py tests/data/logits/CASE.safetensors
"""

import pathlib
import sys

import numpy as np
import torch
import transformers

import golden

VOCAB, ROWS = 267, 16
COMMON = dict(hidden_size=144, intermediate_size=96, num_hidden_layers=3, num_attention_heads=9,
              num_key_value_heads=3, head_dim=16, vocab_size=VOCAB, rms_norm_eps=1e-5,
              tie_word_embeddings=False, max_position_embeddings=512, attn_implementation="eager",
              experts_implementation="eager",
              rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
VISION = dict(depth=1, hidden_size=32, intermediate_size=48, num_heads=2, out_hidden_size=144,
              num_position_embeddings=16, deepstack_visual_indexes=[0])
EXPERTS = dict(num_experts=10, num_experts_per_tok=3, moe_intermediate_size=96)

LATENT = dict(num_key_value_heads=9, rms_norm_eps=1e-6, kv_lora_rank=64, qk_rope_head_dim=16,
              qk_nope_head_dim=32, v_head_dim=24, n_routed_experts=12, num_experts_per_tok=3,
              moe_intermediate_size=96, first_k_dense_replace=1)
SIGMOID = dict(**LATENT, q_lora_rank=48, n_shared_experts=1, norm_topk_prob=True,
               routed_scaling_factor=2.5)
INDEXER = dict(index_topk=16, index_head_dim=32, index_n_heads=2)
# Far fewer positions than rows.
TOP = dict(index_topk=5, index_head_dim=32, index_n_heads=11)
EXPERTS_OF_GEMMA4 = dict(num_experts=10, top_k_experts=3, moe_intermediate_size=96)
HALF = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}


def yarn(mscale, **more):
    return {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "mscale": mscale,
            "mscale_all_dim": mscale, "original_max_position_embeddings": 64, "beta_fast": 32.0,
            "beta_slow": 1.0} | more


# name: the family, config keys added to COMMON
CASES = {
    "mixtral": ("Mixtral", dict(num_local_experts=10, num_experts_per_tok=3)),
    "qwen3moe": ("Qwen3Moe", dict(**EXPERTS, norm_topk_prob=True)),
    "qwen2moe": ("Qwen2Moe", dict(**EXPERTS, shared_expert_intermediate_size=192,
                                  norm_topk_prob=False)),
    "deepseekV2": ("DeepseekV2", dict(**LATENT, q_lora_rank=None, n_shared_experts=2, n_group=4,
                                      topk_group=2, topk_method="group_limited_greedy",
                                      routed_scaling_factor=1.5, rope_parameters=yarn(0.707))),
    "deepseekV3": ("DeepseekV3", dict(**SIGMOID, n_group=4, topk_group=2,
                                      rope_parameters=yarn(1.0))),
    "kimiK2": ("DeepseekV3", dict(**SIGMOID, n_group=1, topk_group=1,
                                  rope_parameters=yarn(1.0, beta_fast=1.0))),
    "glm4moe": ("Glm4Moe", dict(
        n_routed_experts=10, num_experts_per_tok=3, moe_intermediate_size=96, n_shared_experts=1,
        n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5,
        first_k_dense_replace=1, use_qk_norm=True, attention_bias=True, rope_parameters=HALF)),
    "minimaxM2": ("MiniMaxM2", dict(num_local_experts=10, num_experts_per_tok=3,
                                    rope_parameters=HALF)),
    "gptOss": ("GptOss", dict(
        num_local_experts=10, num_experts_per_tok=3, sliding_window=6, rope_parameters={
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 32.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 64})),
    "gemma4Moe": ("Gemma4", dict(
        **EXPERTS_OF_GEMMA4, intermediate_size=160, tie_word_embeddings=True, sliding_window=6,
        attention_k_eq_v=True,
        hidden_size_per_layer_input=0, global_head_dim=32, num_global_key_value_heads=1,
        final_logit_softcapping=2.0, enable_moe_block=True,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"], rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
                               "partial_rotary_factor": 0.25}})),
}
# Cases with a separate file each.
LATER = {
    "deepseekV32": ("DeepseekV32", dict(**SIGMOID, **INDEXER, n_group=4, topk_group=2,
                                        rope_parameters=yarn(1.0))),
    "glmDsa": ("GlmMoeDsa", dict(SIGMOID, **INDEXER, n_group=1, topk_group=1,
                                 first_k_dense_replace=2)),
    "deepseekV32Top": ("DeepseekV32", dict(**SIGMOID, **TOP, n_group=4, topk_group=2,
                                           rope_parameters=yarn(1.0))),
    "glmDsaTop": ("GlmMoeDsa", dict(SIGMOID, **TOP, n_group=1, topk_group=1,
                                    first_k_dense_replace=2,
                                    indexer_types=["full", "shared", "full"])),
    # Two blocks of eight cover all rows.
    "minimaxM3": ("MiniMaxM3VL", dict(
        num_local_experts=10, num_experts_per_tok=3, intermediate_size=96,
        dense_intermediate_size=160, shared_intermediate_size=96, rotary_dim=8,
        routed_scaling_factor=1.5, mlp_layer_types=["dense", "sparse", "sparse"],
        layer_types=["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
        index_n_heads=3, index_head_dim=16, index_block_size=8, index_topk_blocks=2,
        rope_parameters=HALF)),
    # Two blocks of three cover some rows; a layer in between attends to all.
    "minimaxM3Top": ("MiniMaxM3VL", dict(
        num_local_experts=10, num_experts_per_tok=3, intermediate_size=96,
        dense_intermediate_size=160, shared_intermediate_size=96, rotary_dim=8,
        routed_scaling_factor=1.5, mlp_layer_types=["dense", "sparse", "sparse"],
        layer_types=["minimax_m3_sparse", "full_attention", "minimax_m3_sparse"],
        index_n_heads=3, index_head_dim=20, index_block_size=3, index_topk_blocks=2,
        rope_parameters=HALF)),
    "mistral4": ("Mistral4", dict(
        **LATENT, head_dim=48, q_lora_rank=48, n_shared_experts=1, n_group=1, topk_group=1,
        norm_topk_prob=False,
        rope_parameters=yarn(1.0, original_max_position_embeddings=6, llama_4_scaling_beta=0.7))),
    "youtu": ("Youtu", dict({key: LATENT[key] for key in LATENT if "expert" not in key},
                            q_lora_rank=48, tie_word_embeddings=True)),
    "solarOpen": ("SolarOpen", dict(n_routed_experts=10, num_experts_per_tok=3,
                                    moe_intermediate_size=96, n_shared_experts=1,
                                    norm_topk_prob=True, routed_scaling_factor=1.5)),
    "dots1": ("Dots1", dict(n_routed_experts=10, num_experts_per_tok=3, moe_intermediate_size=96,
                            n_shared_experts=2, norm_topk_prob=True, routed_scaling_factor=1.5,
                            first_k_dense_replace=1)),
    "qwen3vlmoe": ("Qwen3VLMoe", dict(**EXPERTS)),
    "hyV3": ("HYV3", dict(**EXPERTS, num_shared_experts=1, router_scaling_factor=2.5)),
}
# Cases whose files hold attn_k_b and attn_v_b; other latent attention uses attn_kv_b.
SPLIT = ("deepseekV3", "kimiK2", "mistral4", "youtu", "deepseekV32", "glmDsa", "deepseekV32Top",
         "glmDsaTop")

# Names in HF -> names in GGUF, after "model.layers.N." or alone.
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
    "model.norm.weight": "output_norm.weight", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_experts.gate_proj":
    "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp", "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b", "mlp.router": "ffn_gate_inp",
}


# Names with another meaning in Gemma 4, and additional names.
GEMMA4 = {
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
    "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
    "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
    "router.proj.weight": "ffn_gate_inp.weight", "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight", "layer_scalar": "layer_output_scale.weight",
}


def kv_b(block, config):
    """A head's transposed key matrix above its value matrix."""
    heads, rank = config.num_attention_heads, config.kv_lora_rank
    keys = golden.tensor(block + "attn_k_b.weight", (heads, rank, config.qk_nope_head_dim))
    values = golden.tensor(block + "attn_v_b.weight", (heads, config.v_head_dim, rank))
    return np.concatenate([keys.swapaxes(1, 2), values], axis=1).reshape(-1, rank)


GPT_OSS = ("mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj",
           "mlp.experts.down_proj_bias")


def gpt_oss(block, rest, shape):
    """Transposes matrices and interleaves gate and up."""
    kind = "bias" if rest.endswith("_bias") else "weight"
    if rest.startswith("mlp.experts.down_proj"):
        turned = shape if kind == "bias" else (shape[0], shape[2], shape[1])
        value = golden.tensor(f"{block}ffn_down_exps.{kind}", turned)
        return value if kind == "bias" else value.swapaxes(1, 2)
    half = (shape[0], shape[-1] // 2) + (() if kind == "bias" else (shape[1],))
    both = [golden.tensor(f"{block}ffn_{part}_exps.{kind}", half) for part in ("gate", "up")]
    both = [part if kind == "bias" else part.swapaxes(1, 2) for part in both]
    return np.stack(both, axis=-1).reshape(shape)


def minimax_m3(block, rest, shape):
    """Values of a tensor that fuses gate and up, or of the indexer."""
    if rest.endswith("gate_up_proj.weight"):
        kind = "_shexp" if "shared" in rest else ""
        half = (shape[0] // 2, shape[1])
        return np.concatenate([golden.tensor(f"{block}ffn_{part}{kind}.weight", half)
                               for part in ("gate", "up")])
    return golden.tensor(block + rest.removeprefix("self_attn."), shape)


def value_of(case, family, name, shape, config):
    """The value of HF's parameter `name`. MiniMax M3 adds 1 to its norms."""
    if family == "MiniMaxM3VL" and "norm" in name:
        return value_of(case, "", name, shape, config) - 1
    if name in NAMES:
        return golden.tensor(NAMES[name], shape)
    _, _, layer, rest = name.split(".", 3)
    block = f"blk.{layer}."
    if family == "Gemma4" and rest in GEMMA4:
        return golden.tensor(block + GEMMA4[rest], shape)
    if family == "GptOss" and rest in GPT_OSS:
        return gpt_oss(block, rest, shape)
    if family in ("GptOss", "Glm4Moe", "SolarOpen") and rest == "post_attention_layernorm.weight":
        return golden.tensor(block + "post_attention_norm.weight", shape)
    if family == "MiniMaxM3VL" and ("indexer" in rest or rest.endswith("gate_up_proj.weight")):
        return minimax_m3(block, rest, shape)
    if family == "" and "indexer" in rest:
        return golden.tensor(block + rest.removeprefix("self_attn."), shape)
    if rest.startswith("self_attn.indexer."):
        names = {"wq_b": "attn_q_b", "wk": "attn_k", "weights_proj": "proj", "k_norm": "k_norm"}
        part, kind = rest.removeprefix("self_attn.indexer.").split(".")
        return golden.tensor(f"{block}indexer.{names[part]}.{kind}", shape)
    if rest == "self_attn.sinks":
        return golden.tensor(block + "attn_sinks.weight", shape)
    if rest == "mlp.experts.gate_up_proj":
        half = (shape[0], shape[1] // 2, shape[2])
        return np.concatenate([golden.tensor(block + "ffn_gate_exps.weight", half),
                               golden.tensor(block + "ffn_up_exps.weight", half)], axis=1)
    if rest == "mlp.experts.down_proj":
        return golden.tensor(block + "ffn_down_exps.weight", shape)
    if family == "HYV3" and rest.endswith("e_score_correction_bias"):
        return golden.tensor(block + "exp_probs_b", shape)
    if rest.endswith("e_score_correction_bias"):
        return golden.tensor(block + "exp_probs_b.bias", shape)
    stem, kind = rest.rsplit(".", 1)
    if stem == "self_attn.kv_b_proj" and case in SPLIT:
        return kv_b(block, config)
    value = golden.tensor(f"{block}{NAMES[stem]}.{kind}", shape)
    if family == "Mixtral" and stem in ("self_attn.q_proj", "self_attn.k_proj"):
        queries = stem == "self_attn.q_proj"
        heads = config.num_attention_heads if queries else config.num_key_value_heads
        value = golden.to_halves(value, heads, config.head_dim)
    return value


def make(family, sizes):
    """The model, and the config of its text part."""
    text = "Text" if family in ("Gemma4", "MiniMaxM3VL") else ""
    of_family = getattr(transformers, family + text + "Config")
    if "VL" not in family or text:
        config = of_family(**sizes)
        return getattr(transformers, family + "ForCausalLM")(config).double().eval(), config
    config = of_family(text_config=sizes, vision_config=VISION, tie_word_embeddings=False,
                       attn_implementation="eager", experts_implementation="eager")
    model = getattr(transformers, family + "ForConditionalGeneration")(config).double().eval()
    return model, config.text_config


def parameters_of(model):
    """Names of the text part, in the form of a text-only model."""
    for name, parameter in model.named_parameters():
        if ".visual." not in name:
            yield name.replace("language_model.", ""), parameter


def check_choices(least):
    """Rejects choices of indexers if a chosen and an unchosen score differ by less than `least`:
    sums in another order might choose otherwise."""
    topk = torch.Tensor.topk

    def checked(x, k, *args, **kwargs):
        if x.shape[-1] == ROWS and k < ROWS:
            best = x.sort(-1, descending=True).values
            gaps = (best[..., k - 1] - best[..., k])[..., k:]
            assert gaps.min() > least, gaps.min()
        # Scores of blocks. Rows that attend to at most k blocks need no gap.
        if x.dim() == 4 and k < x.shape[-1]:
            best = x.sort(-1, descending=True).values
            gaps = (best[..., k - 1] - best[..., k])[best[..., k] > -torch.inf]
            assert gaps.min() > least, gaps.min()
        return topk(x, k, *args, **kwargs)
    torch.Tensor.topk = checked


def run(case, family, more):
    model, config = make(family, {**COMMON, **more})
    parameters = list(parameters_of(model))
    parameters += [(n, b) for n, b in model.named_buffers()
                   if n.endswith(("correction_bias", "layer_scalar"))]
    with torch.no_grad():
        for name, parameter in parameters:
            value = value_of(case, family, name, tuple(parameter.shape), config)
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(value)))
        tokens = golden.tokens(ROWS, VOCAB)
        logits = model(torch.from_numpy(tokens)[None]).logits[0]
    return {"logits": logits.numpy(), "tokens": tokens}


def main():
    check_choices(2e-3)
    tensors, asked = {}, pathlib.Path(sys.argv[1]).stem
    for name, case in ({asked: LATER[asked]} if asked in LATER else CASES).items():
        tensors |= {f"{name}/{key}": value for key, value in run(name, *case).items()}
    golden.save(tensors, sys.argv[1])


main()
