#!/usr/bin/env python3
"""Writes tests/data/hf_golden.safetensors and tests/data/hf: tiny Hugging Face folders, their logits.

A folder's files are not stored but regenerated: config.json and the names, dtypes and shapes of its
tensors are in the file's metadata as transformers saves them ("CASE/config", "CASE/tensors"), and
values come from the formula of tests/support/tiny_model.h. transformers loads the written folder
and runs it in float64 ("CASE/tokens", "CASE/logits").

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.23.0, safetensors 0.8.0, numpy 2.4.6:
    python3 tools/make_hf_golden.py tests/data/hf_golden.safetensors
A case of LATER has its own file, made with transformers 5.24.0:
    python3 tools/make_hf_golden.py tests/data/hf/CASE.safetensors
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

ROWS = 12
SIZES = dict(hidden_size=48, intermediate_size=64, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, head_dim=16, vocab_size=83, max_position_embeddings=256,
             rms_norm_eps=1e-5, attn_implementation="eager", bos_token_id=1, eos_token_id=2,
             pad_token_id=0)
LEFT_OUT = object()  # a key of SIZES that a config must not have
LATENT = dict(head_dim=LEFT_OUT, num_key_value_heads=6, kv_lora_rank=24, qk_rope_head_dim=8,
              qk_nope_head_dim=12, v_head_dim=10, n_routed_experts=4, num_experts_per_tok=2,
              n_shared_experts=1, moe_intermediate_size=32, first_k_dense_replace=1)
GEMMA4 = dict(hidden_size_per_layer_input=0, attention_k_eq_v=True, global_head_dim=32,
              num_global_key_value_heads=1, final_logit_softcapping=3.0, sliding_window=5,
              intermediate_size=192)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}

# name: model_type, dtype of the file, keys of config.json added to SIZES
CASES = {
    "llama": ("llama", "F32", {}),
    "llamaBf16Tied": ("llama", "BF16", {"tie_word_embeddings": True}),
    "llama3Rope": ("llama", "F16", {"rope_parameters": LLAMA3}),
    "mistral": ("mistral", "F32", {"sliding_window": None}),
    "qwen2": ("qwen2", "BF16", {"head_dim": LEFT_OUT, "hidden_size": 96}),
    "qwen3": ("qwen3", "F32", {"tie_word_embeddings": True}),
    "granite": ("granite", "F32", {"head_dim": LEFT_OUT, "hidden_size": 96,
                                   "attention_multiplier": 0.2, "embedding_multiplier": 3.0,
                                   "residual_multiplier": 0.4, "logits_scaling": 2.0}),
    "smollm3": ("smollm3", "F32", {"head_dim": LEFT_OUT, "hidden_size": 96,
                                   "num_hidden_layers": 4}),
    "olmo2": ("olmo2", "F32", {"head_dim": LEFT_OUT, "hidden_size": 96}),
    "olmo3": ("olmo3", "F32", {
        "head_dim": LEFT_OUT, "hidden_size": 96, "intermediate_size": 192, "sliding_window": 5,
        "num_hidden_layers": 4,
        "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
                            "full_attention": {
                                "rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0,
                                "beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": 1.2079,
                                "original_max_position_embeddings": 32}}}),
    "phi3": ("phi3", "F32", {"head_dim": LEFT_OUT, "hidden_size": 96,
                             "original_max_position_embeddings": 256}),
    "phi3LongRope": ("phi3", "F32", {
        "head_dim": LEFT_OUT, "hidden_size": 96, "original_max_position_embeddings": 64,
        "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0,
                            "long_factor": [1 + i / 4 for i in range(8)],
                            "short_factor": [1 + i / 16 for i in range(8)]}}),
    "gemma2": ("gemma2", "F32", {"sliding_window": 6, "query_pre_attn_scalar": 24,
                                 "hidden_activation": "gelu_pytorch_tanh"}),
    "gemma3": ("gemma3_text", "BF16", {"sliding_window": 5, "query_pre_attn_scalar": 24,
                                       "num_hidden_layers": 7}),
    "gemma4": ("gemma4_text", "BF16", GEMMA4 | {"num_hidden_layers": 7}),
    "gemma4Moe": ("gemma4_text", "F32", GEMMA4 | {
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "enable_moe_block": True, "num_experts": 6, "top_k_experts": 3,
        "moe_intermediate_size": 32}),
    "mixtral": ("mixtral", "F32", {"num_local_experts": 4, "num_experts_per_tok": 2,
                                   "sliding_window": None}),
    "qwen2moe": ("qwen2_moe", "F32", {"head_dim": LEFT_OUT, "hidden_size": 96, "num_experts": 4,
                                      "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                                      "shared_expert_intermediate_size": 48}),
    "qwen3moe": ("qwen3_moe", "F32", {"num_experts": 6, "num_experts_per_tok": 3,
                                      "moe_intermediate_size": 32, "norm_topk_prob": True}),
    "deepseekV2": ("deepseek_v2", "F32", LATENT | {
        "q_lora_rank": None, "n_group": 1, "topk_group": 1, "topk_method": "greedy",
        "norm_topk_prob": False, "routed_scaling_factor": 1.0}),
    "deepseekV3": ("deepseek_v3", "F32", LATENT | {
        "q_lora_rank": 20, "n_group": 2, "topk_group": 1, "routed_scaling_factor": 2.5,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                            "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                            "mscale_all_dim": 1.0, "original_max_position_embeddings": 64}}),
    "gptOss": ("gpt_oss", "F32", {"num_local_experts": 4, "num_experts_per_tok": 2,
                                  "sliding_window": 5}),
    "glm4moe": ("glm4_moe", "F32", {
        "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
        "moe_intermediate_size": 32, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
        "attention_bias": True, "use_qk_norm": True}),
    "minimaxM2": ("minimax_m2", "F32", {"num_local_experts": 4, "num_experts_per_tok": 2,
                                        "rotary_dim": 8}),
}

TEMPERED = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.7,
            "original_max_position_embeddings": 5}
MROPE = {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": [2, 3, 3]}
QWEN3_VISION = dict(depth=1, hidden_size=32, intermediate_size=48, num_heads=2,
                    num_position_embeddings=16, deepstack_visual_indexes=[0])
VISION = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2)
PIXTRAL = VISION | dict(head_dim=16, patch_size=4, image_size=16)


def with_images(model_type, text, vision=VISION, **more):
    """The config of a model with image input: `text` is added to SIZES for its text part."""
    return {"whole": dict(text_config=SIZES | {"model_type": model_type} | text,
                          vision_config=vision, **more)}


DELTA = {"num_hidden_layers": 4, "linear_num_key_heads": 3, "linear_num_value_heads": 6,
         "linear_key_head_dim": 20, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
         "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                             "partial_rotary_factor": 0.25}}
DELTA_EXPERTS = DELTA | {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
                         "shared_expert_intermediate_size": 48}

LFM2 = {"rms_norm_eps": LEFT_OUT, "norm_eps": 1e-5, "num_hidden_layers": 4, "layer_types": [
    "conv", "full_attention", "conv", "conv"]}

KIMI_LINEAR = LATENT | {
    "num_hidden_layers": 4, "n_routed_experts": LEFT_OUT, "num_experts": 4,
    "first_k_dense_replace": LEFT_OUT, "mlp_layer_types": ["dense"] + ["sparse"] * 3,
    "layer_types": ["linear_attention", "full_attention"] + ["linear_attention"] * 2,
    "linear_num_heads": 6, "linear_head_dim": 12, "linear_conv_kernel_dim": 4}

LING3 = KIMI_LINEAR | {
    "head_dim": 8, "linear_num_heads": LEFT_OUT, "linear_head_dim": LEFT_OUT,
    "linear_conv_kernel_dim": LEFT_OUT, "num_expert_group": 2, "topk_group": 1,
    "first_k_dense_replace": 1, "mlp_layer_types": LEFT_OUT}

# Cases with a separate file each.
LATER = {
    "deepseekV32": ("deepseek_v32", "F32", LATENT | {
        "rms_norm_eps": 1e-6, "q_lora_rank": 20, "n_group": 2, "topk_group": 1,
        "routed_scaling_factor": 2.5, "index_topk": 12, "index_head_dim": 16, "index_n_heads": 2}),
    "glmDsa": ("glm_moe_dsa", "F32", LATENT | {
        "rms_norm_eps": 1e-6, "q_lora_rank": 20, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 2, "index_topk": 12, "index_head_dim": 16, "index_n_heads": 2,
        "indexer_types": ["full", "full", "shared"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}}),
    # An indexer that chooses fewer positions than there are rows.
    "deepseekV32Top": ("deepseek_v32", "F32", LATENT | {
        "rms_norm_eps": 1e-6, "q_lora_rank": 20, "n_group": 2, "topk_group": 1,
        "routed_scaling_factor": 2.5, "index_topk": 4, "index_head_dim": 20, "index_n_heads": 9}),
    "glmDsaTop": ("glm_moe_dsa", "F32", LATENT | {
        "rms_norm_eps": 1e-6, "q_lora_rank": 20, "n_group": 1, "topk_group": 1,
        "num_hidden_layers": 4, "index_topk": 4, "index_head_dim": 20, "index_n_heads": 9,
        "indexer_types": ["full", "shared", "full", "shared"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}}),
    # Three blocks of four cover all rows.
    "minimaxM3": ("minimax_m3_vl", "F32", with_images("minimax_m3_vl_text", {
        "intermediate_size": 32, "dense_intermediate_size": 64, "shared_intermediate_size": 32,
        "num_local_experts": 4, "num_experts_per_tok": 2, "routed_scaling_factor": 2.0,
        "rotary_dim": 8, "mlp_layer_types": ["dense", "sparse", "sparse"],
        "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
        "index_n_heads": 2, "index_head_dim": 16, "index_block_size": 4, "index_topk_blocks": 3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                            "partial_rotary_factor": 0.5}},
        dict(VISION, patch_size=4, image_size=16), projector_hidden_size=32)),
    # Two blocks of three cover some rows; a layer in between attends to all.
    "minimaxM3Top": ("minimax_m3_vl", "F32", with_images("minimax_m3_vl_text", {
        "intermediate_size": 32, "dense_intermediate_size": 64, "shared_intermediate_size": 32,
        "num_local_experts": 4, "num_experts_per_tok": 2, "routed_scaling_factor": 2.0,
        "rotary_dim": 8, "mlp_layer_types": ["dense", "sparse", "sparse"],
        "layer_types": ["minimax_m3_sparse", "full_attention", "minimax_m3_sparse"],
        "index_n_heads": 2, "index_head_dim": 12, "index_block_size": 3, "index_topk_blocks": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                            "partial_rotary_factor": 0.5}},
        dict(VISION, patch_size=4, image_size=16), projector_hidden_size=32)),
    "ministral3": ("mistral3", "F32", with_images("ministral3", {
        "tie_word_embeddings": False, "rope_parameters": TEMPERED},
        PIXTRAL, tie_word_embeddings=False)),
    "mistral4": ("mistral3", "F32", with_images("mistral4", LATENT | {
        "rms_norm_eps": 1e-6, "q_lora_rank": 20, "n_group": 1, "topk_group": 1,
        "norm_topk_prob": True, "routed_scaling_factor": 1.5, "rope_parameters": TEMPERED},
        PIXTRAL, tie_word_embeddings=False)),
    # Some layers lack RoPE, and some read the latents of another layer.
    "mistralLarge4": ("mistral_large4", "F32", with_images("mistral_large4_text", {
        k: v for k, v in LATENT.items() if k != "q_lora_rank"} | {
        "rms_norm_eps": 1e-6, "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.5,
        "intermediate_size": 192, "moe_intermediate_size": 192,
        "num_hidden_layers": 6, "index_topk": 4, "index_head_dim": 20, "index_n_heads": 9,
        "indexer_types": ["full", "shared", "full", "full", "shared", "full"],
        "no_rope_layers": [1, 1, 0, 1, 0, 1], "kv_source_layers": [0, 1, 2, 1, 2, 1],
        "final_logit_softcapping": 4.0, "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "original_max_position_embeddings": 16, "attention_factor": 1.0}},
        PIXTRAL, tie_word_embeddings=False)),
    "ministral": ("ministral", "F32", {"sliding_window": 5, "layer_types": [
        "full_attention", "sliding_attention", "sliding_attention"]}),
    # transformers clears the padding token's row after reading it.
    "youtu": ("youtu", "F32", {key: LATENT[key] for key in LATENT if "expert" not in key} | {
        "rms_norm_eps": 1e-6, "q_lora_rank": 20, "tie_word_embeddings": True,
        "pad_token_id": None}),
    "solarOpen": ("solar_open", "F32", {
        "intermediate_size": LEFT_OUT, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "moe_intermediate_size": 32, "routed_scaling_factor": 1.5,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0,
                            "original_max_position_embeddings": 128}}),
    "dots1": ("dots1", "F32", {
        "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 2,
        "moe_intermediate_size": 32, "first_k_dense_replace": 1, "norm_topk_prob": True,
        "routed_scaling_factor": 2.5, "sliding_window": 5, "max_window_layers": 1}),
    "seedOss": ("seed_oss", "F32", {"attention_out_bias": True, "mlp_bias": True}),
    "qwen2vl": ("qwen2_vl", "F32", with_images("qwen2_vl_text", {
        "head_dim": LEFT_OUT, "hidden_size": 96, "rope_parameters": MROPE},
        dict(depth=1, embed_dim=32, hidden_size=96, num_heads=2))),
    "qwen25vl": ("qwen2_5_vl", "BF16", with_images("qwen2_5_vl_text", {
        "head_dim": LEFT_OUT, "hidden_size": 96, "rope_parameters": MROPE},
        dict(depth=1, hidden_size=32, intermediate_size=48, num_heads=2, out_hidden_size=96),
        tie_word_embeddings=True)),
    "qwen3vl": ("qwen3_vl", "F32", with_images("qwen3_vl_text", {"rope_parameters": MROPE},
                                               dict(QWEN3_VISION, out_hidden_size=48))),
    "qwen3vlmoe": ("qwen3_vl_moe", "F32", with_images("qwen3_vl_moe_text", {
        "rope_parameters": MROPE, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32}, dict(QWEN3_VISION, out_hidden_size=48))),
    "gemma4Unified": ("gemma4_unified", "F32", with_images("gemma4_unified_text", GEMMA4 | {
        "hidden_size_per_layer_input": LEFT_OUT, "num_hidden_layers": 6},
        dict(patch_size=2, mm_embed_dim=24, mm_posemb_size=8, output_proj_dims=24),
        audio_config=dict(audio_embed_dim=16))),
    "glm47flash": ("glm4_moe_lite", "F32", LATENT | {
        "q_lora_rank": 20, "rms_norm_eps": 1e-6, "n_group": 1, "topk_group": 1,
        "routed_scaling_factor": 1.8, "norm_topk_prob": True, "first_k_dense_replace": LEFT_OUT,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}}),
    "kimiK25": ("kimi_k25", "F32", with_images("deepseek_v3", LATENT | {
        "q_lora_rank": 20, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.8,
        "norm_topk_prob": True, "tie_word_embeddings": False},
        dict(VISION, patch_size=4, pos_emb_height=4, pos_emb_width=4), projection_hidden_size=32,
        tie_word_embeddings=False)),
    "qwen3next": ("qwen3_next", "F32", DELTA_EXPERTS | {"mlp_only_layers": [1]}),
    "qwen35": ("qwen3_5_text", "F32", DELTA | {"attention_bias": True}),
    "qwen35moe": ("qwen3_5_moe_text", "F32", DELTA_EXPERTS | {
        "layer_types": ["linear_attention", "full_attention", "linear_attention",
                        "linear_attention"]}),
    # transformers clears the padding token's row after reading it.
    "lfm2": ("lfm2", "BF16", LFM2 | {"intermediate_size": 150, "block_multiple_of": 32,
                                     "pad_token_id": None}),
    "lfm2moe": ("lfm2_moe", "F32", LFM2 | {
        "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
        "num_dense_layers": 1, "routed_scaling_factor": 1.5, "tie_word_embeddings": False}),
    "kimiLinear": ("kimi_linear", "F32", KIMI_LINEAR),
    "ling3": ("bailing_hybrid", "F32", LING3),
    "hyV3": ("hy_v3", "BF16", {"num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 2,
                               "moe_intermediate_size": 32, "router_scaling_factor": 2.5}),
}
# Names that transformers saves differently from published folders.
RENAMED = {"kimiLinear": {"layers.0.block_sparse_moe.": "layers.0.mlp."},
           "kimiK25": {"language_model.model.blocks.": "language_model.model.layers."}}
# Tensors that published folders transpose: [experts, in, out].
TURNED = {"qwen3vlmoe": (".experts.gate_up_proj", ".experts.down_proj")}
TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def rounded_logits(loaded, tokens):
    """Rounds the input of each matrix to BF16, as fast kernels for BF16 weights do."""
    def round_input(_, inputs):
        return (inputs[0].to(torch.bfloat16).to(inputs[0].dtype),)
    hooks = [m.register_forward_pre_hook(round_input) for m in loaded.modules()
             if isinstance(m, torch.nn.Linear)]
    with torch.no_grad():
        logits = loaded(torch.from_numpy(tokens)[None]).logits[0]
    for hook in hooks:
        hook.remove()
    return logits.numpy().astype(np.float32)


def given(sizes):
    """`sizes` without the keys marked LEFT_OUT, also in nested configs."""
    return {k: given(v) if isinstance(v, dict) else v
            for k, v in sizes.items() if v is not LEFT_OUT}


def run(case):
    model_type, dtype, more = (CASES | LATER)[case]
    whole = more.get("whole")
    config = transformers.AutoConfig.for_model(model_type, **given(whole or SIZES | more))
    auto = transformers.AutoModelForImageTextToText if whole else transformers.AutoModelForCausalLM
    model = auto.from_config(config, attn_implementation="eager")
    with tempfile.TemporaryDirectory() as folder:
        model.to(TYPES[dtype]).save_pretrained(folder)
        file = pathlib.Path(folder) / "model.safetensors"
        shapes = {}
        with safetensors.safe_open(file, "pt") as opened:
            for name in opened.keys():
                shapes[name] = list(opened.get_slice(name).get_shape())
        centered = ("gemma2", "gemma3", "qwen3_next", "qwen3_5", "minimax_m3")
        norm_base = 0.0 if model_type.startswith(centered) else 1.0
        for made, published in RENAMED.get(case, {}).items():
            shapes = {n.replace(made, published): s for n, s in shapes.items()}
        turned = [n for n in shapes if n.endswith(TURNED.get(case, ()))]
        shapes |= {n: [shapes[n][0], shapes[n][2], shapes[n][1]] for n in turned}
        values = {n: golden.hf_tensor(n, s, norm_base).to(TYPES[dtype]) for n, s in shapes.items()}
        safetensors.torch.save_file(values, file, metadata={"format": "pt"})
        loaded, info = auto.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager",
            experts_implementation="eager", output_loading_info=True)
        assert not info["missing_keys"], info["missing_keys"]
        loaded.eval()
        text = (pathlib.Path(folder) / "config.json").read_text()
    tokens = golden.tokens(ROWS, SIZES["vocab_size"])
    with torch.no_grad():
        logits = loaded(torch.from_numpy(tokens)[None]).logits[0]
    arrays = {"tokens": tokens.astype(np.float32), "logits": logits.numpy().astype(np.float32)}
    if dtype == "BF16":
        arrays["logits_rounded"] = rounded_logits(loaded, tokens)
    kept = json.loads(text)
    meta = {"config": json.dumps(kept), "tensors": json.dumps({n: [dtype, s] for n, s in shapes.items()}),
            "norm_base": str(norm_base)}
    return meta, arrays


def main():
    tensors, metadata = {}, golden.versions()
    name = pathlib.Path(sys.argv[1]).stem
    for case in [name] if name in LATER else CASES:
        print(case, file=sys.stderr)
        meta, arrays = run(case)
        metadata |= {f"{case}/{key}": value for key, value in meta.items()}
        tensors |= {f"{case}/{key}": np.ascontiguousarray(a) for key, a in arrays.items()}
        print(case, np.abs(arrays["logits"]).max(), file=sys.stderr)
    safetensors.numpy.save_file(tensors, sys.argv[1], metadata=metadata)


if __name__ == "__main__":
    main()
