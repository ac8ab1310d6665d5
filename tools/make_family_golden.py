#!/usr/bin/env python3
"""Writes tests/data/families/CASE.safetensors: a tiny Hugging Face folder and its logits.

As tools/make_hf_golden.py, but with one file per case: config.json and the names, dtypes and shapes
of the tensors are in the file's metadata, and values come from the formula of
tests/support/tiny_model.h. Shapes can be sharded over four ranks.

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.24.0, safetensors 0.8.0, numpy 2.4.6:
    python3 tools/make_family_golden.py tests/data/families [CASE...]
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
from make_hf_golden import LEFT_OUT

ROWS = 20
SIZES = dict(hidden_size=96, intermediate_size=160, num_hidden_layers=4, num_attention_heads=6,
             num_key_value_heads=2, head_dim=16, vocab_size=83, max_position_embeddings=256,
             rms_norm_eps=1e-5, attn_implementation="eager", bos_token_id=1, eos_token_id=2,
             pad_token_id=0)
WINDOWS = {"sliding_window": 6}
NO_RMS = {"rms_norm_eps": LEFT_OUT}
# transformers clamps steps to at least time_step_min in prompts, but not in single tokens;
# published models and llama.cpp do not clamp.
NEMOTRON = {"rms_norm_eps": LEFT_OUT, "layer_norm_epsilon": 1e-5, "num_hidden_layers": LEFT_OUT,
            "mamba_num_heads": 12, "mamba_head_dim": 16, "n_groups": 4, "ssm_state_size": 20,
            "conv_kernel": 4, "chunk_size": 8, "time_step_min": 1e-9}
NEMOTRON_EXPERTS = NEMOTRON | {
    "layers_block_type": ["linear_attention", "moe", "full_attention", "moe", "linear_attention",
                          "mlp"],
    "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
    "moe_shared_expert_intermediate_size": 160, "routed_scaling_factor": 2.5}
GRANITE = {"head_dim": LEFT_OUT, "attention_multiplier": 0.2, "embedding_multiplier": 3.0,
           "residual_multiplier": 0.4, "logits_scaling": 2.0, "shared_intermediate_size": 160}
GRANITE_HYBRID = GRANITE | {
    "mamba_n_heads": 12, "mamba_n_groups": 1, "mamba_d_state": 20, "mamba_d_head": 16,
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 8, "position_embedding_type": "nope",
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"]}
FALCON = {"mamba_d_ssm": 128, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 20,
          "mamba_d_conv": 4, "mamba_chunk_size": 8, "embedding_multiplier": 3.3,
          "lm_head_multiplier": 0.4, "key_multiplier": 0.7, "attention_in_multiplier": 1.3,
          "attention_out_multiplier": 0.9, "ssm_in_multiplier": 1.2, "ssm_out_multiplier": 0.6,
          "ssm_multipliers": [0.5, 0.8, 1.4, 0.9, 1.1], "mlp_multipliers": [0.7, 1.5]}

# Models of LayerNorms, without KV heads; the old ones have other names for their sizes.
OLD = {"rms_norm_eps": LEFT_OUT, "head_dim": LEFT_OUT, "num_key_value_heads": LEFT_OUT}
GPT = OLD | {"intermediate_size": LEFT_OUT, "max_position_embeddings": LEFT_OUT,
             "n_positions": 256, "n_inner": 160}

JAMBA = {"head_dim": LEFT_OUT, "attn_layer_period": 2, "attn_layer_offset": 1,
         "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 8,
         "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 20, "use_mamba_kernels": False}
MAMBA = {"rms_norm_eps": LEFT_OUT, "num_attention_heads": LEFT_OUT, "head_dim": LEFT_OUT,
         "num_key_value_heads": LEFT_OUT, "max_position_embeddings": LEFT_OUT,
         "intermediate_size": 192, "state_size": 8, "time_step_rank": 20,
         "layer_norm_epsilon": 1e-5}

OLMO_HYBRID = {"head_dim": LEFT_OUT, "linear_key_head_dim": 12, "linear_value_head_dim": 16}

HY4 = {"num_hidden_layers": 4, "num_key_value_heads": LEFT_OUT, "head_dim": LEFT_OUT,
       "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
       "v_head_dim": 16, "moe_intermediate_size": 96, "n_routed_experts": 6,
       "num_experts_per_tok": 2, "index_head_dim": 16, "index_n_heads": 12, "hc_mult": 3,
       "hc_eps": 1e-3, "hc_magnitude": 1.5, "swiglu_limit": 0.4,
       "indexer_types": ["full", "full", "shared", "full"]}

GLM5_NEXT = {"num_hidden_layers": 5, "num_key_value_heads": 6, "head_dim": LEFT_OUT,
             "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 0,
             "v_head_dim": 24, "moe_intermediate_size": 96, "n_routed_experts": 6,
             "num_experts_per_tok": 2, "index_head_dim": 16, "index_n_heads": 4, "index_kpool": 4,
             "hc_mult": 3, "hc_eps": 1e-3, "hc_sinkhorn_iters": 3, "swiglu_limit": 0.4,
             "linear_head_dim": 12, "linear_num_heads": 6,
             "layer_types": ["linear_attention", "indexed_attention", "indexed_attention",
                             "linear_attention", "indexed_attention"],
             "indexer_types": ["full", "full", "shared", "full", "full"],
             "mlp_layer_types": ["dense", "sparse", "sparse", "dense", "sparse"]}

# name: model_type, keys of config.json added to SIZES
CASES = {
    "exaone4": ("exaone4", WINDOWS | {"head_dim": LEFT_OUT, "sliding_window_pattern": 4}),
    "exaone4Whole": ("exaone4", {"head_dim": LEFT_OUT, "sliding_window": None,
                                 "layer_types": ["full_attention"] * 4,
                                 "tie_word_embeddings": True}),
    "exaoneMoe": ("exaone_moe", WINDOWS | {
        "sliding_window_pattern": 2, "num_experts": 6, "num_experts_per_tok": 2,
        "num_shared_experts": 1, "moe_intermediate_size": 96, "first_k_dense_replace": 1}),
    "glm4": ("glm4", {"attention_bias": True}),
    "glm": ("glm", {}),
    "glm4v": ("glm4v", {"head_dim": LEFT_OUT, "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
        "mrope_section": [1, 1, 2]}}),
    "glm4vMoe": ("glm4v_moe", {
        "head_dim": LEFT_OUT, "n_routed_experts": 6, "num_experts_per_tok": 2,
        "moe_intermediate_size": 96, "routed_scaling_factor": 1.5, "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
            "mrope_section": [1, 1, 2]}}),
    "arcee": ("arcee", {"tie_word_embeddings": True}),
    "apertus": ("apertus", {"head_dim": LEFT_OUT, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}),
    "nemotron": ("nemotron", NO_RMS | {"head_dim": LEFT_OUT, "norm_eps": 1e-5}),
    "stablelm": ("stablelm", NO_RMS | {"head_dim": LEFT_OUT, "layer_norm_eps": 1e-5,
                                       "use_qkv_bias": True, "partial_rotary_factor": 0.25}),
    "stablelmWide": ("stablelm", NO_RMS | {
        "head_dim": LEFT_OUT, "layer_norm_eps": 1e-5, "qk_layernorm": True,
        "use_parallel_residual": True, "partial_rotary_factor": 0.5}),
    "starcoder2": ("starcoder2", NO_RMS | WINDOWS | {
        "head_dim": LEFT_OUT, "norm_epsilon": 1e-5, "tie_word_embeddings": True}),
    "phimoe": ("phimoe", {
        "head_dim": LEFT_OUT, "num_local_experts": 16, "num_experts_per_tok": 2,
        "attention_bias": True, "lm_head_bias": True, "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 10000.0, "short_mscale": 1.2,
            "long_mscale": 1.2, "original_max_position_embeddings": 64,
            "short_factor": [1 + i / 16 for i in range(8)],
            "long_factor": [2 + i / 4 for i in range(8)]}}),
    "olmoHybrid": ("olmo_hybrid", OLMO_HYBRID | {
        "num_key_value_heads": 6,
        "rope_parameters": {"rope_type": "default", "rope_theta": None}}),
    "olmoHybridRope": ("olmo_hybrid", OLMO_HYBRID | {
        "linear_allow_neg_eigval": False, "linear_num_key_heads": 3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    "gpt2": ("gpt2", GPT),
    "gptNeo": ("gpt_neo", OLD | {
        "num_attention_heads": LEFT_OUT, "num_heads": 6, "num_hidden_layers": LEFT_OUT,
        "num_layers": 4, "attention_types": [[["global", "local"], 2]], "window_size": 6}),
    "gptBigcode": ("gpt_bigcode", GPT),
    "opt": ("opt", OLD | {"intermediate_size": LEFT_OUT, "ffn_dim": 160,
                          "word_embed_proj_dim": 96}),
    "optBehind": ("opt", OLD | {"intermediate_size": LEFT_OUT, "ffn_dim": 160,
                                "word_embed_proj_dim": 64, "do_layer_norm_before": False}),
    "openaiGpt": ("openai-gpt", OLD | {
        "intermediate_size": LEFT_OUT, "max_position_embeddings": LEFT_OUT, "n_positions": 64}),
    "biogpt": ("biogpt", OLD),
    "xglm": ("xglm", OLD | {
        "intermediate_size": LEFT_OUT, "ffn_dim": 160, "num_attention_heads": LEFT_OUT,
        "attention_heads": 6, "num_hidden_layers": LEFT_OUT, "num_layers": 4,
        "hidden_size": LEFT_OUT, "d_model": 96}),
    "gptj": ("gptj", GPT | {"rotary_dim": 8}),
    "codegen": ("codegen", GPT | {"rotary_dim": 8, "num_attention_heads": 4}),
    "gptNeox": ("gpt_neox", OLD | {"hidden_act": "gelu"}),
    "gptNeoxSerial": ("gpt_neox", OLD | {
        "use_parallel_residual": False, "hidden_act": "gelu_fast", "tie_word_embeddings": True}),
    "gptNeoxJapanese": ("gpt_neox_japanese", OLD | {
        "intermediate_size": LEFT_OUT, "intermediate_multiple_size": 2, "rotary_pct": 0.5}),
    "persimmon": ("persimmon", OLD),
    "dbrx": ("dbrx", OLD | {
        "hidden_size": LEFT_OUT, "d_model": 96, "num_hidden_layers": LEFT_OUT, "n_layers": 4,
        "num_attention_heads": LEFT_OUT, "n_heads": 6, "intermediate_size": LEFT_OUT,
        "max_position_embeddings": LEFT_OUT, "max_seq_len": 64,
        "attn_config": {"clip_qkv": 0.1, "kv_n_heads": 2, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 6, "moe_top_k": 2}}),
    "falcon": ("falcon", OLD | {"intermediate_size": LEFT_OUT, "ffn_hidden_size": 160}),
    "falconWide": ("falcon", OLD | {
        "intermediate_size": LEFT_OUT, "ffn_hidden_size": 160, "num_kv_heads": 2, "bias": True,
        "new_decoder_architecture": True}),
    "falconAlibi": ("falcon", OLD | {
        "intermediate_size": LEFT_OUT, "ffn_hidden_size": 160, "alibi": True, "bias": True,
        "multi_query": False, "parallel_attn": False}),
    "bloom": ("bloom", OLD | {"intermediate_size": LEFT_OUT, "max_position_embeddings": LEFT_OUT}),
    "mpt": ("mpt", OLD | {
        "hidden_size": LEFT_OUT, "d_model": 96, "num_hidden_layers": LEFT_OUT, "n_layers": 4,
        "num_attention_heads": LEFT_OUT, "n_heads": 6, "intermediate_size": LEFT_OUT,
        "max_position_embeddings": LEFT_OUT, "max_seq_len": 64, "attn_config": {
            "clip_qkv": 0.4, "softmax_scale": 0.3}}),
    "gemma3n": ("gemma3n_text", WINDOWS | {
        "num_hidden_layers": 6, "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 2,
        "num_kv_shared_layers": 2, "vocab_size_per_layer_input": 83, "laurel_rank": 12,
        "hidden_size_per_layer_input": 16, "altup_num_inputs": 3,
        "activation_sparsity_pattern": [0.7, 0.0, 0.5, 0.6, 0.0, 0.0]}),
    "glm5Next": ("glm5_next", GLM5_NEXT | {"index_topk": 64}),
    "glm5NextTop": ("glm5_next", GLM5_NEXT | {"index_topk": 8}),
    "hyV4": ("hy_v4", HY4 | {"index_topk": 64}),
    "hyV4Top": ("hy_v4", HY4 | {"index_topk": 6}),
    "longcatFlash": ("longcat_flash", {
        "num_hidden_layers": LEFT_OUT, "num_layers": 2, "num_key_value_heads": LEFT_OUT,
        "head_dim": 8, "intermediate_size": LEFT_OUT, "ffn_hidden_size": 160,
        "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
        "v_head_dim": 16, "expert_ffn_hidden_size": 96, "n_routed_experts": 6,
        "zero_expert_num": 3, "moe_topk": 3, "routed_scaling_factor": 2.0}),
    "phi": ("phi", NO_RMS | {"head_dim": LEFT_OUT}),
    "phiNormed": ("phi", NO_RMS | {"head_dim": LEFT_OUT, "qk_layernorm": True}),
    "jais2": ("jais2", NO_RMS),
    "modernBertDecoder": ("modernbert-decoder", OLD | {
        "norm_eps": 1e-5, "global_attn_every_n_layers": 2, "local_attention": 12}),
    "llamaGelu": ("llama", {"hidden_act": "gelu"}),
    "gemma3Caps": ("gemma3_text", WINDOWS | {
        "query_pre_attn_scalar": 24, "attn_logit_softcapping": 0.5,
        "final_logit_softcapping": 2.0}),
    "olmo": ("olmo", NO_RMS | {"head_dim": LEFT_OUT}),
    "olmoClamped": ("olmo", NO_RMS | {"head_dim": LEFT_OUT, "clip_qkv": 0.4}),
    "exaone": ("exaone", {}),
    "hyperclovax": ("hyperclovax", {
        "attention_multiplier": 0.2, "embedding_multiplier": 3.0, "residual_multiplier": 0.4,
        "logits_scaling": 0.5}),
    "graniteWindows": ("granite_swa", GRANITE | WINDOWS | {
        "shared_intermediate_size": LEFT_OUT,
        "layer_types": ["full_attention", "sliding_attention"] * 2,
        "layer_rope_theta": [500000.0, 10000.0, 0.0, 10000.0]}),
    "graniteMoeShared": ("granitemoeshared", GRANITE | {
        "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 96}),
    "graniteMoeWindows": ("granitemoe_swa", GRANITE | WINDOWS | {
        "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 96,
        "layer_types": ["full_attention", "sliding_attention"] * 2}),
    "smollm3Windows": ("smollm3", {
        "head_dim": LEFT_OUT, "use_sliding_window": True, "sliding_window": 6,
        "no_rope_layers": [1, 0, 1, 0], "tie_word_embeddings": False,
        "layer_types": ["sliding_attention", "full_attention"] * 2}),
    "vaultgemma": ("vaultgemma", WINDOWS | {"query_pre_attn_scalar": 24}),
    "flexOlmo": ("flex_olmo", {"head_dim": LEFT_OUT, "num_experts": 6, "num_experts_per_tok": 2,
                               "intermediate_size": 96}),
    "mellum": ("mellum", WINDOWS | {
        "num_local_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
        "layer_types": ["full_attention", "sliding_attention"] * 2,
        "mlp_layer_types": ["dense"] + ["sparse"] * 3}),
    "bamba": ("bamba", {
        "head_dim": LEFT_OUT, "attn_layer_indices": [1], "mamba_n_heads": 12, "mamba_n_groups": 1,
        "mamba_d_state": 20, "mamba_d_head": 16, "mamba_d_conv": 4, "mamba_expand": 2,
        "mamba_chunk_size": 8}),
    "nanochat": ("nanochat", {"head_dim": LEFT_OUT, "final_logit_softcapping": 3.0}),
    "minicpm3": ("minicpm3", {
        "head_dim": LEFT_OUT, "num_key_value_heads": 6, "kv_lora_rank": 32, "q_lora_rank": 40,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "dim_model_base": 40,
        "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 10000.0,
            "original_max_position_embeddings": 64, "short_factor": [1.0, 1.1, 1.3, 1.6],
            "long_factor": [1.0, 1.5, 2.0, 3.0]}}),
    "axk1": ("axk1", {
        "head_dim": LEFT_OUT, "num_key_value_heads": 6, "kv_lora_rank": 32, "q_lora_rank": 40,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 96, "n_group": 4, "topk_group": 2,
        "mlp_layer_types": ["dense"] + ["sparse"] * 3}),
    "deepseekV3Halves": ("deepseek_v3", {
        "head_dim": LEFT_OUT, "num_key_value_heads": 6, "kv_lora_rank": 32, "q_lora_rank": 40,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 96, "n_group": 4, "topk_group": 2,
        "first_k_dense_replace": 1, "rope_interleave": False, "attention_bias": True}),
    "jamba": ("jamba", JAMBA | {"num_experts": 6, "num_experts_per_tok": 2}),
    "jambaDense": ("jamba", JAMBA | {"num_experts": 1, "num_experts_per_tok": 1}),
    "mamba": ("mamba", MAMBA),
    "falconMamba": ("falcon_mamba", MAMBA | {"mixer_rms_eps": 1e-4}),
    "mamba2": ("mamba2", MAMBA | {
        "num_heads": 12, "head_dim": 16, "n_groups": 2, "chunk_size": 8,
        "intermediate_size": LEFT_OUT, "tie_word_embeddings": False}),
    "ernie": ("ernie4_5", {}),
    "ernieMoe": ("ernie4_5_moe", {
        "head_dim": LEFT_OUT, "moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 2,
        "moe_intermediate_size": 96, "moe_layer_start_index": 1, "tie_word_embeddings": True}),
    "ernieMoeBiases": ("ernie4_5_moe", {
        "head_dim": LEFT_OUT, "moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 2,
        "moe_intermediate_size": 96, "moe_layer_start_index": 1, "use_bias": True}),
    "qwen2moePlain": ("qwen2_moe", {
        "head_dim": LEFT_OUT, "num_experts": 6, "num_experts_per_tok": 2,
        "moe_intermediate_size": 96, "shared_expert_intermediate_size": 96,
        "decoder_sparse_step": 2, "qkv_bias": False}),
    "olmoe": ("olmoe", {"head_dim": LEFT_OUT, "num_experts": 6, "num_experts_per_tok": 2}),
    "olmoeClamped": ("olmoe", {"head_dim": LEFT_OUT, "num_experts": 6, "num_experts_per_tok": 2,
                               "clip_qkv": 0.8}),
    "graniteMoe": ("granitemoe", {
        "head_dim": LEFT_OUT, "attention_multiplier": 0.2, "embedding_multiplier": 3.0,
        "residual_multiplier": 0.4, "logits_scaling": 2.0, "num_local_experts": 6,
        "num_experts_per_tok": 2}),
    "hunyuan": ("hunyuan_v1_dense", {
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0,
                            "rope_theta": 10000.0}}),
    "hunyuanMoe": ("hunyuan_v1_moe", {
        "num_experts": 6, "moe_topk": 2, "rope_parameters": {
            "rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0, "rope_theta": 10000.0}}),
    "cohere2": ("cohere2", WINDOWS | {
        "head_dim": LEFT_OUT, "rms_norm_eps": LEFT_OUT, "layer_norm_eps": 1e-5,
        "logit_scale": 0.25}),
    "cohere2Moe": ("cohere2_moe", WINDOWS | {
        "rms_norm_eps": LEFT_OUT, "layer_norm_eps": 1e-5, "logit_scale": 0.5, "num_experts": 6,
        "num_experts_per_tok": 2, "num_shared_experts": 1, "expert_selection_fn": "sigmoid",
        "first_k_dense_replace": 1, "prefix_dense_intermediate_size": 224,
        "sliding_window_pattern": 3, "tie_word_embeddings": False}),
    "trinity": ("afmoe", WINDOWS | {
        "mup_enabled": True, "num_dense_layers": 1, "num_experts": 6, "num_experts_per_tok": 2,
        "num_shared_experts": 1, "moe_intermediate_size": 96, "route_scale": 1.5}),
    "laguna": ("laguna", WINDOWS | {
        "layer_types": ["full_attention"] + ["sliding_attention"] * 3, "num_attention_heads": 4,
        "num_attention_heads_per_layer": [4, 6, 6, 6], "num_experts": 6, "num_experts_per_tok": 2,
        "moe_intermediate_size": 96, "shared_expert_intermediate_size": 160,
        "moe_routed_scaling_factor": 2.5, "rope_parameters": {
            "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 4.0,
                               "original_max_position_embeddings": 64, "beta_fast": 64.0,
                               "beta_slow": 1.0, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}),
    "lagunaWhole": ("laguna", {
        "num_experts": 6, "num_experts_per_tok": 2, "gating": "per-element",
        "moe_intermediate_size": 96, "shared_expert_intermediate_size": 96,
        "mlp_layer_types": ["dense", "dense", "sparse", "sparse"]}),
    "mimo2": ("mimo_v2_flash", WINDOWS | {
        "head_dim": 24, "v_head_dim": 16, "num_key_value_heads": 1, "n_routed_experts": 8,
        "num_experts_per_tok": 3, "moe_intermediate_size": 96, "attention_value_scale": 0.7,
        "n_group": 1, "topk_group": 1}),
    "step35": ("step3p7", WINDOWS | {
        "num_attention_heads": 4, "num_sliding_attention_heads": 6, "num_key_value_heads": 2,
        "layer_types": ["full_attention"] + ["sliding_attention"] * 3, "n_routed_experts": 6,
        "num_experts_per_tok": 2, "moe_intermediate_size": 96, "share_expert_dim": 160,
        "mlp_layer_types": ["dense"] + ["sparse"] * 3, "moe_router_scaling_factor": 1.5,
        "swiglu_limits": [0.0, 0.0, 0.02, 0.05], "swiglu_limits_shared": [0.02, 0.0, 0.05, 0.02],
        "rope_parameters": {
            "full_attention": {"rope_type": "llama3", "rope_theta": 50000.0, "factor": 2.0,
                               "original_max_position_embeddings": 64, "low_freq_factor": 1.0,
                               "high_freq_factor": 32.0, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}),
    "nemotronH": ("nemotron_h", NEMOTRON | {"layers_block_type": [
        "linear_attention", "mlp", "linear_attention", "full_attention", "mlp",
        "linear_attention"]}),
    "nemotronHMoe": ("nemotron_h", NEMOTRON_EXPERTS),
    "nemotronHLatent": ("nemotron_h", NEMOTRON_EXPERTS | {"moe_latent_size": 48}),
    "graniteHybrid": ("granitemoehybrid", GRANITE_HYBRID | {
        "num_local_experts": 0, "num_experts_per_tok": 0, "tie_word_embeddings": True}),
    "graniteHybridMoe": ("granitemoehybrid", GRANITE_HYBRID | {
        "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 96}),
    "graniteMicro": ("granitemoehybrid", GRANITE | {
        "num_local_experts": 0, "num_experts_per_tok": 0, "position_embedding_type": "rope",
        "layer_types": ["full_attention"] * 4, "mamba_n_heads": 8}),
    "falconH1": ("falcon_h1", FALCON | {"mamba_n_groups": 2}),
    "falconH1Biases": ("falcon_h1", FALCON | {
        "mamba_n_groups": 1, "attention_bias": True, "mlp_bias": True, "projectors_bias": True,
        "mamba_proj_bias": True}),
    "falconH1Normed": ("falcon_h1", FALCON | {
        "mamba_n_groups": 4, "mamba_rms_norm": True, "mamba_norm_before_gate": False,
        "mamba_d_state": 24, "ssm_multipliers": [1.5, 1.8, 1.4, 1.9, 1.1]}),
    "llama4": ("llama4", {
        "intermediate_size": 96, "intermediate_size_mlp": 160, "num_local_experts": 6,
        "num_experts_per_tok": 2, "interleave_moe_layer_step": 2, "attention_chunk_size": 6,
        "floor_scale": 5, "attn_scale": 0.3, "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}),
    "llama4Dense": ("llama4_text", {
        "intermediate_size_mlp": 160, "num_local_experts": 0, "moe_layers": [],
        "no_rope_layers": [1] * 4, "attention_chunk_size": None, "use_qk_norm": False,
        "tie_word_embeddings": True}),
    "gemma4Small": ("gemma4_text", WINDOWS | {
        "num_hidden_layers": 7, "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 2
        + ["sliding_attention"], "hidden_size_per_layer_input": 32, "num_kv_shared_layers": 3,
        "vocab_size_per_layer_input": 83, "global_head_dim": 32, "num_key_value_heads": 2,
        "final_logit_softcapping": 3.0}),
    "gemma4Wide": ("gemma4_text", WINDOWS | {
        "layer_types": ["sliding_attention", "full_attention"] * 2, "num_key_value_heads": 1,
        "hidden_size_per_layer_input": 24, "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
        "vocab_size_per_layer_input": 83, "global_head_dim": 32}),
    "deepseekV4": ("deepseek_v4", {
        "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 32, "qk_rope_head_dim": 8,
        "intermediate_size": LEFT_OUT, "q_lora_rank": 40, "o_groups": 4, "o_lora_rank": 32,
        "sliding_window": 6, "num_hidden_layers": 5,
        "layer_types": ["sliding_attention", "compressed_sparse_attention",
                        "heavily_compressed_attention", "compressed_sparse_attention",
                        "heavily_compressed_attention"],
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
        "num_hash_layers": 2, "index_topk": 2, "index_n_heads": 5, "index_head_dim": 16,
        "swiglu_limit": 0.05, "hc_mult": 3, "hc_sinkhorn_iters": 5, "hc_eps": 1e-4,
        "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
        "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                            "original_max_position_embeddings": 64}}),
    "museGlimmer": ("muse_glimmer", WINDOWS | {
        "num_hidden_layers": 5, "pad_token_id": None, "final_logit_softcapping": 3.0,
        "output_multiplier": 0.7, "qk_scale_factor": 1.9}),
    "gemma1": ("gemma", {}),
    "commandR": ("cohere", {"head_dim": LEFT_OUT, "rms_norm_eps": LEFT_OUT, "logit_scale": 0.3}),
    "commandRPlus": ("cohere", {"head_dim": LEFT_OUT, "rms_norm_eps": LEFT_OUT,
                                "logit_scale": 0.3, "use_qk_norm": True,
                                "tie_word_embeddings": False}),
    "internlm2": ("llama", {"head_dim": LEFT_OUT}),
    "minicpm": ("granite", {"head_dim": LEFT_OUT, "embedding_multiplier": 3.0,
                            "residual_multiplier": 1.4 / 4 ** 0.5, "logits_scaling": 96 / 40,
                            "attention_multiplier": 0.25, "tie_word_embeddings": True}),
    "deci": ("llama", {"head_dim": LEFT_OUT, "intermediate_size": 256}),
    # Ling-2: transformers has its block in Sarvam; its original keys are restored below.
    "ling2": ("sarvam_moe", {
        "num_experts": 8, "num_experts_per_tok": 3, "num_shared_experts": 1,
        "moe_intermediate_size": 96, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2,
        "partial_rotary_factor": 0.5}),
}


def ling2(config):
    """config.json in the form of inclusionAI's models."""
    own = {"architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe",
           "score_function": "sigmoid", "use_qk_norm": True, "use_bias": False,
           "use_qkv_bias": False, "norm_head": False, "moe_router_enable_expert_bias": True,
           "partial_rotary_factor": 0.5, "rope_scaling": None, "num_experts": 8,
           "num_shared_experts": 1, "moe_shared_expert_intermediate_size": 96,
           "rope_theta": config["rope_parameters"]["rope_theta"]}
    dropped = ("rope_parameters", "n_routed_experts", "n_shared_experts", "use_qk_norm",
               "attention_bias", "num_mtp_layers")
    return {k: v for k, v in config.items() if k not in dropped} | own


def deepseek_v4(config):
    """config.json in DeepSeek's form, with windows of 8 instead of 128."""
    yarn = dict(config["rope_parameters"]["compress"])
    yarn = {"type": yarn.pop("rope_type")} | yarn
    for key in ("attention_factor", "partial_rotary_factor", "rope_theta"):
        yarn.pop(key)
    strides = {"sliding_attention": 0} | config["compress_rates"]
    own = {"compress_ratios": [strides[t] for t in config["layer_types"]] + [0],
           "num_hash_layers": config["mlp_layer_types"].count("hash_moe"), "rope_scaling": yarn,
           "topk_method": "noaux_tc"}
    dropped = ("rope_parameters", "layer_types", "mlp_layer_types", "compress_rates",
               "partial_rotary_factor")
    return {k: v for k, v in config.items() if k not in dropped} | own


def internlm2(config):
    """config.json of InternLM 2."""
    kept = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "vocab_size", "max_position_embeddings", "rms_norm_eps",
            "hidden_act", "tie_word_embeddings")
    own = {"architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "bias": False,
           "rope_theta": config["rope_parameters"]["rope_theta"], "rope_scaling": None}
    return {k: config[k] for k in kept} | own


def minicpm(config):
    """config.json of MiniCPM, which names the factors differently."""
    own = {"architectures": ["MiniCPMForCausalLM"], "model_type": "minicpm", "scale_emb": 3.0,
           "scale_depth": 1.4, "dim_model_base": 40}
    dropped = ("embedding_multiplier", "residual_multiplier", "logits_scaling",
               "attention_multiplier")
    return {k: v for k, v in config.items() if k not in dropped} | own


# By layer: whether it has attention, and the columns of its MLP as a factor (0: no MLP).
DECI_LAYERS = [(True, 2.5), (False, 5.0), (True, 0), (True, 4.0)]


def deci(config):
    """config.json of Llama-Nemotron; a factor m means 2 m hidden / 3 columns, rounded up."""
    half = {"no_op": False, "replace_with_linear": False, "sparsify": None}
    blocks = [{"attention": half | ({"n_heads_in_group": 3, "window_length": None} if attends else
                                    {"n_heads_in_group": None, "no_op": True}),
               "ffn": half | ({"ffn_mult": factor} if factor else
                              {"ffn_mult": None, "no_op": True})}
              for attends, factor in DECI_LAYERS]
    own = {"architectures": ["DeciLMForCausalLM"], "model_type": "nemotron-nas",
           "block_configs": blocks, "intermediate_size": None, "num_key_value_heads": None}
    return config | own


class Nothing(torch.nn.Module):
    """Replaces a half of a layer that a model lacks."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, x=None, **others):
        zeros = torch.zeros_like(others["hidden_states"] if x is None else x)
        return (zeros, None) if self.attention else zeros


def without_halves(model):
    """A llama with the layers of DECI_LAYERS."""
    for layer, (attends, factor) in zip(model.model.layers, DECI_LAYERS):
        if not attends:
            layer.self_attn = Nothing(True)
            layer.input_layernorm = torch.nn.Identity()
        if not factor:
            layer.mlp = Nothing(False)
            layer.post_attention_layernorm = torch.nn.Identity()
            continue
        own = type(model.config)(**model.config.to_dict())
        own.intermediate_size = -(-int(2 * factor * own.hidden_size / 3) // 256) * 256
        layer.mlp = type(layer.mlp)(own)


def of_internlm2(name):
    """InternLM 2's name for a tensor of llama; fused tensors share one name."""
    for old, new in {"self_attn.q_proj": "attention.wqkv", "self_attn.k_proj": "attention.wqkv",
                     "self_attn.v_proj": "attention.wqkv", "self_attn.o_proj": "attention.wo",
                     "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
                     "mlp.down_proj": "feed_forward.w2", "input_layernorm": "attention_norm",
                     "post_attention_layernorm": "ffn_norm", "embed_tokens": "tok_embeddings",
                     "lm_head": "output"}.items():
        name = name.replace(old, new)
    return name


def internlm2_values(shapes):
    """Tensors by InternLM 2's names, and llama's; wqkv has q, k and v by KV head."""
    heads, kv, dim = SIZES["num_attention_heads"], SIZES["num_key_value_heads"], 16
    own_shapes = {}
    for name, shape in shapes.items():
        fused = of_internlm2(name)
        whole = [(heads + 2 * kv) * dim, shape[-1]]
        own_shapes[fused] = whole if "wqkv" in fused else shape
    own = {name: value(name, shape) for name, shape in own_shapes.items()}
    out = {}
    for name in shapes:
        tensor_ = own[of_internlm2(name)]
        if "wqkv" in of_internlm2(name):
            by_head = tensor_.reshape(kv, heads // kv + 2, dim, -1)
            part = {"q": by_head[:, :-2], "k": by_head[:, -2], "v": by_head[:, -1]}
            tensor_ = part[name.split("_proj")[0][-1]].reshape(-1, tensor_.shape[-1])
        out[name] = tensor_.contiguous()
    return own_shapes, out


def hy4_values(shapes):
    """Tensors by the names of published folders, and those of transformers 5.24.

    The rotated rows of a head come last. They are pairs in published folders; transformers rotates
    halves."""
    heads = {"q_b_proj.": 24, "kv_a_proj_with_mqa.": 40, "indexer.wq_b.": 16, "indexer.wk.": 16,
             "indexer.k_norm.": 16}
    own_shapes, out = {}, {}
    for name, shape in shapes.items():
        own = name.replace("mlp.linear_gate", "mlp.gate_proj")
        own = own.replace("shared_experts.linear_gate", "shared_experts.gate_proj")
        own = own.replace(".hc_pre.hc_head.", ".hc_head.")
        for part in ("attn", "mlp"):
            own = own.replace(f".hc_pre.hc_{part}_layer.", f".hc_{part}_layer.hc_pre.")
        own_shapes[own] = shape
        out[name] = value(own, shape)
        size = next((size for part, size in heads.items() if part in name), None)
        if size is not None:
            rows = out[name].reshape(-1, size, *shape[1:]).clone()
            rows[:, -8:] = torch.cat((rows[:, -8::2], rows[:, -7::2]), 1)
            out[name] = rows.reshape(shape)
    return own_shapes, out


# transformers lacks these models: it runs other models with their names and factors, or without
# parts of some layers.
REWRITTEN = {"ling2": ling2, "deepseekV4": deepseek_v4, "internlm2": internlm2,
             "minicpm": minicpm, "deci": deci}
# Names of published tensors that transformers 5.24 saves under other names.
PUBLISHED = {"deepseek_v4": [
    ("model.embed_tokens.", "embed."), ("model.hc_head.hc_", "hc_head_"),
    (".attn.norm.", ".attn.kv_norm."), ("model.", "")]}
SQUINT = {"patch_size": 14, "projector_input_dim": 16, "projector_output_dim": 16,
          "vision_output_dim": 16, "intermediate_size": 128, "pixel_shuffle_ratio": 0.5}
DOUBLES = ("olmo_hybrid", "nemotron_h", "granitemoehybrid", "falcon_h1", "deepseek_v4", "bamba",
           "gptj", "codegen", "olmo", "jamba", "mamba", "falcon_mamba", "mamba2", "mpt",
           "gemma3n_text", "dbrx", "hy_v4", "glm5_next")
# (transformers 5.24 adds Falcon's ALiBi twice with "eager".)
ATTENTION = {"falconAlibi": "sdpa"}
# Layers whose keys and values published files have, although the layers read those of others.
UNREAD = {"gemma3n": (4, 5)}
EYES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28}


def empty(model_type, sizes):
    """A model of this type, and the class that loads it again."""
    if model_type == "step3p7":
        config = transformers.Step3p7Config(text_config=sizes, vision_config=EYES)
        loader = transformers.Step3p7ForConditionalGeneration
        return loader(config), loader
    if model_type in ("glm4v", "glm4v_moe"):
        name = "Glm4vMoe" if model_type == "glm4v_moe" else "Glm4v"
        config = getattr(transformers, name + "Config")(text_config=sizes, vision_config={
            "depth": 1, "hidden_size": 32, "num_heads": 2, "image_size": 28,
            "out_hidden_size": 96, "intermediate_size": 64})
        loader = getattr(transformers, name + "ForConditionalGeneration")
        return loader(config), loader
    if model_type == "glm5_next":
        config = transformers.Glm5NextConfig(text_config=sizes, vision_config={
            "depth": 1, "hidden_size": 32, "num_heads": 2, "image_size": 28,
            "out_hidden_size": 96, "intermediate_size": 64, "projection_intermediate_size": 64})
        loader = transformers.Glm5NextForConditionalGeneration
        return loader(config), loader
    if model_type == "llama4":
        config = transformers.Llama4Config(text_config=sizes, vision_config=EYES | SQUINT)
        loader = transformers.Llama4ForConditionalGeneration
        return loader(config), loader
    if model_type == "muse_glimmer":
        config = transformers.MuseGlimmerConfig(text_config=sizes, vision_config=EYES | {
            "intermediate_size": 64, "pos_emb_height": 2, "pos_emb_width": 2},
            out_hidden_size=128, projector_hidden_size=32)
        loader = transformers.MuseGlimmerForConditionalGeneration
        return loader(config), loader
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    return transformers.AutoModelForCausalLM.from_config(config), transformers.AutoModelForCausalLM


def of_text(name):
    return name.startswith(("model.", "backbone.", "lm_head.", "output.", "language_model.",
                            "multi_modal_projector.", "transformer.", "gpt_neox", "embed_out.",
                            "biogpt.", "decoder."))


# Unscaled scores make attention so sharp that float32 errors show, so these norms are smaller.
# (The names of all of DBRX's matrices of attention have the word.)
NORM_BASE = {"gemma4Small": 0.4, "gemma4Wide": 0.4, "gemma3n": 0.4, "dbrx": 0.0}


def published(model_type, name):
    for old, new in PUBLISHED.get(model_type, ()):
        name = name.replace(old, new)
    return name


def ids(name, shape, below):
    """Integers from 0 to below - 1."""
    share = golden.formula(name, int(np.prod(shape))) * 0.5 + 0.5
    return torch.from_numpy(np.floor(share * below).astype(np.int64)).reshape(shape)


def value(name, shape, case=""):
    return golden.hf_tensor(name, shape, NORM_BASE.get(case, 1.0))


def of_model(case, model):
    """As run(), for a model that no config of transformers describes."""
    shapes = {name: list(t.shape) for name, t in model.state_dict().items()}
    model.load_state_dict({n: value(n, s, case) for n, s in shapes.items()})
    with torch.no_grad():
        logits = model.double().eval()(torch.from_numpy(tokens_of())[None]).logits[0]
    config = json.loads(model.config.to_json_string(use_diff=False))
    meta = {"config": json.dumps(REWRITTEN[case](config)),
            "tensors": json.dumps({n: ["F32", s] for n, s in shapes.items()}), "norm_base": "1.0"}
    return meta, {"tokens": tokens_of().astype(np.float32),
                  "logits": logits.numpy().astype(np.float32)}


def tokens_of():
    return golden.tokens(ROWS, SIZES["vocab_size"])


def run(case):
    model_type, more = CASES[case]
    sizes = {k: v for k, v in (SIZES | more).items() if v is not LEFT_OUT}
    model, loader = empty(model_type, sizes)
    if case == "deci":
        without_halves(model)
        return of_model(case, model)
    with tempfile.TemporaryDirectory() as folder:
        model.to(torch.float32).save_pretrained(folder)
        file = pathlib.Path(folder) / "model.safetensors"
        shapes, tables = {}, {}
        with safetensors.safe_open(file, "pt") as opened:
            for name in opened.keys():
                tensor_slice, renamed = opened.get_slice(name), published(model_type, name)
                shapes[renamed] = list(tensor_slice.get_shape())
                if tensor_slice.get_dtype() == "I64":
                    tables[renamed] = more["n_routed_experts"]
        for layer in UNREAD.get(case, ()):
            for part in ("k_proj", "v_proj", "k_norm"):
                part = f"self_attn.{part}.weight"
                shapes[f"model.layers.{layer}.{part}"] = shapes[f"model.layers.0.{part}"]
        values = {n: ids(n, s, tables[n]) if n in tables else value(n, s, case)
                  for n, s in shapes.items()}
        if case == "internlm2":
            shapes, values = internlm2_values(shapes)
        if case == "hyV4":
            shapes, values = hy4_values(shapes)
        safetensors.torch.save_file(values, file, metadata={"format": "pt"})
        loaded = loader.from_pretrained(
            folder, dtype=torch.float64, attn_implementation=ATTENTION.get(case, "eager"),
            experts_implementation="eager").eval()
        text = (pathlib.Path(folder) / "config.json").read_text()
    tokens = tokens_of()
    plain, plain_to = torch.Tensor.float, torch.Tensor.to
    if model_type in DOUBLES:
        torch.Tensor.float = torch.Tensor.double  # scans and streams otherwise use float32
    if model_type == "glm5_next":
        loaded.double()
        torch.Tensor.to = lambda self, *args, **more: plain_to(
            self, *(torch.float64 if a is torch.float32 else a for a in args), **more)
    if model_type == "xglm":
        torch.set_default_dtype(torch.float64)  # for its lowest score
    with torch.no_grad():
        # (transformers 5.24 cannot run all of Llama 4: its text part lacks an output.)
        text_part = loaded.language_model if model_type == "llama4" else loaded
        logits = text_part(torch.from_numpy(tokens)[None]).logits[0]
    torch.Tensor.float, torch.Tensor.to = plain, plain_to
    torch.set_default_dtype(torch.float32)
    kept = REWRITTEN.get(case, lambda c: c)(json.loads(text))
    meta = {"config": json.dumps(kept),
            "tensors": json.dumps({n: ["I64", s, tables[n]] if n in tables else ["F32", s]
                                   for n, s in shapes.items()
                                   if of_text(n) or model_type in PUBLISHED}),
            "norm_base": str(NORM_BASE.get(case, 1.0))}
    return meta, {"tokens": tokens.astype(np.float32), "logits": logits.numpy().astype(np.float32)}


def main():
    for case in sys.argv[2:] or CASES:
        meta, arrays = run(case)
        metadata = golden.versions() | {f"{case}/{key}": text for key, text in meta.items()}
        tensors = {f"{case}/{key}": np.ascontiguousarray(a) for key, a in arrays.items()}
        safetensors.numpy.save_file(tensors, pathlib.Path(sys.argv[1]) / f"{case}.safetensors",
                                    metadata=metadata)
        print(case, np.abs(arrays["logits"]).max(), file=sys.stderr)


if __name__ == "__main__":
    main()
