#!/usr/bin/env python3
"""Writes tests/data/lora_golden.safetensors: adapters of the package PEFT and their logits.

Neither models nor adapters are stored: "CASE/config", "CASE/tensors" and "CASE/norm_base" describe
the model's folder, the same keys of "CASE.adapter" the adapter's, both as transformers and PEFT
save them, and values come from the formula of tests/support/tiny_model.h. PEFT loads the written
adapter beside the written model and runs it in float64 ("CASE/tokens", "CASE/logits").

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.24.0, peft 0.21.2, safetensors 0.8.0,
numpy 2.4.6:
    python3 tools/make_lora_golden.py tests/data/lora_golden.safetensors
It also writes lora_golden.bin: the adapter of the case "layers", saved by torch.save.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import peft
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
import transformers

import golden

ROWS = 8
SIZES = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, vocab_size=83, max_position_embeddings=64,
             rms_norm_eps=1e-5, attn_implementation="eager", bos_token_id=1, eos_token_id=2,
             pad_token_id=0)
MOE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, decoder_sparse_step=1,
           norm_topk_prob=True)
TIED = dict(tie_word_embeddings=True)
HEADS = dict(num_key_value_heads=4, intermediate_size=128)  # as BLOOM and GPT-2 have them
GPT_OSS = dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=4)
LATENT = dict(q_lora_rank=16, kv_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=8,
              v_head_dim=10, num_key_value_heads=4, n_routed_experts=4, num_experts_per_tok=2,
              moe_intermediate_size=32, n_group=1, topk_group=1, first_k_dense_replace=1,
              n_shared_experts=1)
GLM = dict(n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=32,
           first_k_dense_replace=1, n_group=1, topk_group=1, num_nextn_predict_layers=1)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12,
             linear_value_head_dim=8, linear_conv_kernel_dim=4,
             layer_types=["linear_attention", "full_attention"])
DELTA_QWEN = DELTA | dict(rope_parameters={
    "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})
DELTA_EXPERTS = DELTA_QWEN | MOE | dict(shared_expert_intermediate_size=48)
FALCON = dict(mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_d_state=12, mamba_d_conv=4,
              mamba_chunk_size=8, embedding_multiplier=3.3, lm_head_multiplier=0.4,
              key_multiplier=0.7, attention_in_multiplier=1.3, attention_out_multiplier=0.9,
              ssm_in_multiplier=1.2, ssm_out_multiplier=0.6, mlp_multipliers=[0.7, 1.5],
              ssm_multipliers=[0.5, 0.8, 1.4, 0.9, 1.1])
PICTURES = dict(whole=dict(
    text_config=SIZES | dict(model_type="ministral3", tie_word_embeddings=False),
    vision_config=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                       num_attention_heads=2, head_dim=16, patch_size=4, image_size=16),
    tie_word_embeddings=False))
# Tensors of layers that predict tokens beyond the next, which transformers leaves out: their names,
# and the names of tensors of the same shapes.
DRAFTS = {
    "glm4_moe": ("model.layers.2.", "model.layers.1.", "model.layers.2."),
    "qwen3_5_text": ("mtp.layers.0.", "model.layers.1.", "mtp."),
}
DRAFT_NORMS = {"glm4_moe": ["enorm", "hnorm", "shared_head.norm"],
               "qwen3_5_text": ["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"]}
QV = ["q_proj", "v_proj"]
ALL = QV + ["k_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {  # model_type, the model's sizes, LoraConfig
    "expression": ("llama", {}, dict(target_modules=r".*layers\.1\..*(q|v)_proj")),
    "allLinear": ("qwen2", {}, dict(target_modules="all-linear")),
    "excluded": ("llama", {}, dict(target_modules=ALL, exclude_modules=[
        "k_proj", "layers.0.mlp.up_proj"])),
    "layers": ("llama", {}, dict(target_modules=QV, layers_to_transform=[1],
                                 layers_pattern="layers")),
    "ranks": ("llama", {}, dict(target_modules=ALL, use_rslora=True, rank_pattern={
        "q_proj": 2, "layers.1.self_attn.v_proj": 7, r".*\.1\..*(up|down)_proj": 3})),
    "alphas": ("llama", {}, dict(target_modules=ALL, rank_pattern={"v_proj": 2}, alpha_pattern={
        "v_proj": 3, "model.layers.1.mlp.down_proj": 5.5, "q_proj": 6, "self_attn.*": 2})),
    "fused": ("phi3", {}, dict(target_modules=["qkv_proj", "gate_up_proj"],
                               rank_pattern={"qkv_proj": 6})),
    "attentionOfMoe": ("qwen3_moe", MOE, dict(target_modules=QV)),
    "ofGptOss": ("gpt_oss", GPT_OSS, dict(target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])),
    "latent": ("deepseek_v3", LATENT, dict(target_modules=[
        "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"])),
    "besideDrafts": ("glm4_moe", GLM, dict(target_modules=QV)),
    "otherNames": ("phi3", {}, dict(target_modules=ALL)),
    # PEFT takes these names in target_modules for experts.
    "parameters": ("glm4_moe", GLM, dict(target_modules=QV, target_parameters=[
        f"{module}.{part}_proj.weight" for part in ("gate", "up", "down")
        for module in ("layers.0.mlp", "shared_experts")])),
    "router": ("qwen3_moe", MOE, dict(target_modules=QV, target_parameters=["mlp.gate.weight"])),
    # Not of training.
    "appliedDora": ("llama", {}, dict(target_modules=ALL, use_dora=True,
                                      rank_pattern={"v_proj": 2})),
    "appliedDoraOfBiases": ("qwen2", {}, dict(target_modules=QV, use_dora=True, bias="lora_only")),
    "appliedDoraOfGptOss": ("gpt_oss", GPT_OSS, dict(
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], use_dora=True)),
    "appliedDoraOfOutput": ("llama", {}, dict(target_modules=["q_proj", "lm_head"],
                                              use_dora=True)),
    "appliedExperts": ("qwen3_moe", MOE, dict(target_modules=QV, target_parameters=[
        "mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
        rank_pattern={r".*\.gate_up_proj": 8}, alpha_pattern={r".*\.gate_up_proj": 6})),
    "appliedExpertsOfMixtral": ("mixtral", dict(num_local_experts=4, num_experts_per_tok=2), dict(
        target_modules=QV, target_parameters=["experts.gate_up_proj", "experts.down_proj"])),
    "appliedExpertsOfGptOss": ("gpt_oss", GPT_OSS, dict(
        target_modules=QV, target_parameters=["experts.gate_up_proj", "experts.down_proj"])),
    "appliedEnds": ("llama", {}, dict(target_modules=["q_proj", "embed_tokens", "lm_head"])),
    "appliedTiedEmbedding": ("llama", TIED, dict(target_modules=["v_proj", "embed_tokens"])),
    "appliedTiedOutput": ("llama", TIED, dict(target_modules=["v_proj", "lm_head"])),
    "appliedWholeModules": ("llama", {}, dict(target_modules=QV, modules_to_save=[
        "embed_tokens", "lm_head", "input_layernorm", "norm"])),
    "appliedWholeTied": ("llama", TIED, dict(target_modules=QV, modules_to_save=["embed_tokens"])),
    "appliedTokens": ("llama", {}, dict(target_modules=QV, trainable_token_indices={
        "embed_tokens": [int(token) for token in golden.tokens(ROWS, 83)[1:4]]})),
    "appliedTokensTied": ("llama", TIED, dict(target_modules=QV, trainable_token_indices=[
        int(token) for token in golden.tokens(ROWS, 83)[2:5]])),
    "appliedWholeWithBias": ("qwen2", {}, dict(target_modules=["q_proj"],
                                               modules_to_save=["k_proj", "v_proj"])),
    "appliedBiases": ("qwen2", {}, dict(target_modules=QV, bias="all")),
    "appliedPictures": ("mistral3", PICTURES, dict(target_modules="all-linear")),
    "appliedDeltas": ("qwen3_5_text", DELTA_QWEN | dict(mtp_num_hidden_layers=1), dict(
        target_modules="all-linear")),
    "appliedDeltasDora": ("qwen3_5_text", DELTA_QWEN, dict(target_modules=[
        "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"], use_dora=True)),
    "appliedDeltasTogether": ("qwen3_next", DELTA_EXPERTS, dict(target_modules="all-linear")),
    "appliedDeltasOfOlmo": ("olmo_hybrid", DELTA, dict(
        target_modules="all-linear", rank_pattern={"k_proj": 2})),
    # Folders that Weft cannot make from its own tensors, of tied models.
    "appliedDeltasTied": ("qwen3_5_text", DELTA_QWEN | TIED, dict(
        target_modules=["q_proj", "embed_tokens"])),
    "appliedDeltasWhole": ("qwen3_5_text", DELTA_QWEN | TIED, dict(
        target_modules=QV, modules_to_save=["embed_tokens"])),
    "appliedDeltasTokens": ("qwen3_5_text", DELTA_QWEN | TIED, dict(
        target_modules=QV, trainable_token_indices=[
            int(token) for token in golden.tokens(ROWS, 83)[2:5]])),
    "appliedBloomTied": ("bloom", TIED | HEADS, dict(
        target_modules=["query_key_value", "lm_head"])),
    "appliedGpt2": ("gpt2", TIED | HEADS, dict(
        target_modules=["c_attn", "c_proj", "wte"], fan_in_fan_out=True)),
    "appliedFalconH1": ("falcon_h1", FALCON, dict(target_modules=ALL + ["in_proj"])),
    # Of 'weft merge' only: latents' keys and values, norms of heads.
    "mergedLatents": ("deepseek_v3", LATENT, dict(target_modules=["kv_b_proj", "q_a_proj"])),
    "mergedNorms": ("gemma3_text", dict(query_pre_attn_scalar=8, sliding_window=4, **TIED),
                    dict(target_modules=QV, modules_to_save=["input_layernorm", "q_norm"])),
}


def fill(path, norm_base):
    """Gives the tensors of a file the formula's values; returns their dtypes and shapes."""
    shapes = {}
    with safetensors.safe_open(path, "pt") as opened:
        for name in opened.keys():
            shapes[name] = list(opened.get_slice(name).get_shape())
    values = {name: golden.hf_tensor(name, shape, norm_base) for name, shape in shapes.items()}
    safetensors.torch.save_file(values, path, metadata={"format": "pt"})
    return json.dumps({name: ["F32", shape] for name, shape in shapes.items()})


def add_drafts(path, model_type, sizes):
    """Adds a layer that predicts a token beyond the next to a model's file."""
    if not {"num_nextn_predict_layers", "mtp_num_hidden_layers"} & set(sizes):
        return
    tensors = safetensors.torch.load_file(path)
    layer, like, prefix = DRAFTS[model_type]
    tensors |= {name.replace(like, layer): tensors[name].clone() for name in list(tensors)
                if name.startswith(like)}
    hidden = SIZES["hidden_size"]
    tensors |= {f"{prefix}{norm}.weight": torch.zeros(hidden) for norm in DRAFT_NORMS[model_type]}
    both = "fc" if prefix == "mtp." else "eh_proj"
    tensors[f"{prefix}{both}.weight"] = torch.zeros(hidden, 2 * hidden)
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def run(case):
    model_type, sizes, lora = CASES[case]
    config = transformers.AutoConfig.for_model(model_type, **sizes.get("whole", SIZES | sizes))
    auto = (transformers.AutoModelForImageTextToText if "whole" in sizes
            else transformers.AutoModelForCausalLM)
    with tempfile.TemporaryDirectory() as folder:
        base, adapter = pathlib.Path(folder) / "base", pathlib.Path(folder) / "adapter"
        model = auto.from_config(config)
        model.to(torch.float32).save_pretrained(base)
        add_drafts(base / "model.safetensors", model_type, sizes)
        tensors = fill(base / "model.safetensors", 1.0)
        words = dict(r=4, lora_alpha=4, task_type="CAUSAL_LM") | lora
        # (A saved copy of a tied embedding would get the values of another name.)
        peft.get_peft_model(model, peft.LoraConfig(**words)).save_pretrained(
            adapter, save_embedding_layers=False if config.tie_word_embeddings else "auto")
        adapter_tensors = fill(adapter / "adapter_model.safetensors", 1.0)
        if case == "layers":
            torch.save(safetensors.torch.load_file(adapter / "adapter_model.safetensors"),
                       pathlib.Path(sys.argv[1]).with_suffix(".bin"))
        loaded = auto.from_pretrained(
            base, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager")
        tokens = golden.tokens(ROWS, SIZES["vocab_size"])
        with torch.no_grad():
            plain = loaded.eval()(torch.from_numpy(tokens)[None]).logits[0]
            adapted = peft.PeftModel.from_pretrained(loaded, adapter).to(torch.float64).eval()
            logits = adapted(torch.from_numpy(tokens)[None]).logits[0]
        print(case, ((logits - plain).norm() / logits.norm()).item(), file=sys.stderr)
        meta = {f"{case}/config": (base / "config.json").read_text(),
                f"{case}/tensors": tensors, f"{case}/norm_base": "1.0",
                f"{case}.adapter/config": (adapter / "adapter_config.json").read_text(),
                f"{case}.adapter/tensors": adapter_tensors, f"{case}.adapter/norm_base": "1.0"}
    return meta, {f"{case}/tokens": tokens.astype(np.float32),
                  f"{case}/logits": logits.numpy().astype(np.float32)}


def main():
    tensors, metadata = {}, golden.versions() | {"peft": peft.__version__}
    for case in CASES:
        meta, arrays = run(case)
        metadata |= meta
        tensors |= {key: np.ascontiguousarray(array) for key, array in arrays.items()}
    safetensors.numpy.save_file(tensors, sys.argv[1], metadata=metadata)


if __name__ == "__main__":
    main()
