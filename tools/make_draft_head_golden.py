#!/usr/bin/env python3
"""Writes tests/data/draft_heads/CASE.safetensors: a tiny Hugging Face folder with a head for
multi-token prediction, and the logits of the head.

transformers ignores these heads, so this is an independent reference, after section 2.2 of the
DeepSeek-V3 report and the heads of vLLM, SGLang and llama.cpp. A row of the head takes the model's
normed output at position i and the embedding of token i + 1, each normed, through one matrix into
one more layer. The row, after a norm and the output matrix, predicts token i + 2. Further rows
take the head's own normed row instead. The model and the layer itself are transformers'.

Values come from the formula of tests/support/tiny_model.h, as in tools/make_family_golden.py.
"logits": the head's, after each token but the last. "drafts": those of three further rows after
these, each with the most likely token of the previous row.

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.24.0, safetensors 0.8.0, numpy 2.4.6:
    python3 tools/make_draft_head_golden.py tests/data/draft_heads [CASE...]
"""

import copy
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
from make_family_golden import empty, ling2, of_text
from make_hf_golden import DELTA, DELTA_EXPERTS, LATENT, LEFT_OUT

ROWS = 18
DRAFTS = 3
SIZES = dict(hidden_size=96, intermediate_size=160, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, head_dim=16, vocab_size=83, max_position_embeddings=256,
             rms_norm_eps=1e-5, attn_implementation="eager", bos_token_id=1, eos_token_id=2,
             pad_token_id=0)
NEXTN = {"num_nextn_predict_layers": 1}
STATE = {"linear_num_key_heads": 4, "linear_num_value_heads": 8}
# name: model_type, keys of config.json added to SIZES
CASES = {
    "glm4moe": ("glm4_moe", NEXTN | {
        "n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 1,
        "moe_intermediate_size": 96, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
        "attention_bias": True, "use_qk_norm": True}),
    "deepseekV3": ("deepseek_v3", NEXTN | LATENT | {
        "n_routed_experts": 8, "moe_intermediate_size": 96,
        "q_lora_rank": 20, "n_group": 2, "topk_group": 1, "routed_scaling_factor": 2.5}),
    "qwen3next": ("qwen3_next", DELTA_EXPERTS | STATE | {"moe_intermediate_size": 96,
                                                 "shared_expert_intermediate_size": 160}),
    "qwen35": ("qwen3_5_text", DELTA | STATE | {"mtp_num_hidden_layers": 1}),
    "hyV3": ("hy_v3", NEXTN | {
        "num_experts": 6, "num_experts_per_tok": 2, "num_shared_experts": 1,
        "moe_intermediate_size": 96, "first_k_dense_replace": 1, "router_scaling_factor": 1.5}),
    "ling2": ("sarvam_moe", NEXTN | {
        "num_experts": 8, "num_experts_per_tok": 3, "num_shared_experts": 1,
        "moe_intermediate_size": 96, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2,
        "partial_rotary_factor": 0.5}),
    "exaoneMoe": ("exaone_moe", NEXTN | {
        "sliding_window": 6, "sliding_window_pattern": 2, "num_experts": 6,
        "num_experts_per_tok": 2, "num_shared_experts": 1, "moe_intermediate_size": 96,
        "first_k_dense_replace": 1}),
    "mimo2": ("mimo_v2_flash", NEXTN | {
        "sliding_window": 6, "head_dim": 24, "v_head_dim": 16, "num_key_value_heads": 1,
        "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 96,
        "attention_value_scale": 0.7, "n_group": 1, "topk_group": 1}),
    "step35": ("step3p7", NEXTN | {
        "sliding_window": 6, "num_attention_heads": 4, "num_sliding_attention_heads": 6,
        "num_key_value_heads": 2, "layer_types": ["full_attention"] + ["sliding_attention"] * 2,
        "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
        "share_expert_dim": 160, "mlp_layer_types": ["dense"] + ["sparse"] * 2,
        "moe_router_scaling_factor": 1.5, "swiglu_limits": [0.0, 0.02, 0.05],
        "swiglu_limits_shared": [0.02, 0.05, 0.02], "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 50000.0,
                               "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}),
}
# A head with its own embedding and output matrix.
CASES["glm4moeEnds"] = CASES["glm4moe"]
OWN_ENDS = ("glm4moeEnds",)
CENTERED = ("qwen3_next", "qwen3_5_text", "step3p7")  # a norm's factor is 1 + its weight
BESIDE = ("qwen3_next", "qwen3_5_text", "exaone_moe")  # families that store the head beside the layers, in "mtp."
FINAL = ("hy_v3", "sarvam_moe", "mimo_v2_flash")  # the last norm is "final_layernorm"
SLIDING = ("exaone_moe", "mimo_v2_flash", "step3p7")  # the head's layer has the model's window
DENSE = ("exaone_moe", "mimo_v2_flash", "step3p7")  # the head's layer has no experts
# Names of the head's tensors that differ from those of the model's layers.
RENAMED = {"mimo_v2_flash": ("post_attention_layernorm", "pre_mlp_layernorm")}
REWRITTEN = {"sarvam_moe": ling2}  # config.json in the form of published folders


def names_of(model_type, layers):
    """The prefix of the head's tensors, the prefix of its layer's, and its four modules."""
    if model_type in BESIDE:
        return "mtp.", "mtp.layers.0.", ("fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    layer = "model.mtp.layers.0." if model_type == "mimo_v2_flash" else f"model.layers.{layers}."
    last = "final_layernorm" if model_type in FINAL else "shared_head.norm"
    last = "transformer.shared_head.norm" if model_type == "step3p7" else last
    return layer, layer, ("eh_proj", "enorm", "hnorm", last)


def shapes_of(folder):
    with safetensors.safe_open(pathlib.Path(folder) / "model.safetensors", "pt") as opened:
        return {n: list(opened.get_slice(n).get_shape()) for n in opened.keys()}


def loaded_with(model_type, sizes, values, norm_base):
    """A model with these values, in float64."""
    with tempfile.TemporaryDirectory() as folder:
        model, loader = empty(model_type, sizes)
        model.to(torch.float32).save_pretrained(folder)
        shapes = shapes_of(folder)
        own = {n: values[n] if n in values else golden.hf_tensor(n, s, norm_base) for n, s in shapes.items()}
        file = pathlib.Path(folder) / "model.safetensors"
        safetensors.torch.save_file(own, file, metadata={"format": "pt"})
        return {n: s for n, s in shapes.items() if of_text(n)}, loader.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager",
            experts_implementation="eager").eval()


class Head:
    """The head's layer: the last layer of a model with one more layer."""

    def __init__(self, model, head, values, names):
        self.model, self.head, self.values, self.names = model, head, values, names
        self.eps = model.config.get_text_config().rms_norm_eps
        self.centered = head.own_base == 0.0
        self.output = names[2][3].replace(".norm", ".output")
        self.output = self.output if "transformer" in self.output else "shared_head.head"

    def norm(self, x, name):
        weight = self.values[name + ".weight"].double() + (1.0 if self.centered else 0.0)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * weight

    def run(self, states, tokens):
        """Rows of the head, normed, and their logits."""
        own, _, (both, enorm, hnorm, last) = self.names
        table = self.values.get(own + "embed_tokens.weight", self.model.get_decoder().embed_tokens.weight)
        output = self.values.get(own + self.output + ".weight", self.model.lm_head.weight)
        embedded = table.double()[tokens]
        joined = torch.cat([self.norm(embedded, own + enorm), self.norm(states, own + hnorm)], -1)
        x = joined @ self.values[own + both + ".weight"].double().T
        x = self.head.get_decoder()(inputs_embeds=x[None], use_cache=False).last_hidden_state[0]
        made = self.norm(x, own + last)
        return made, made @ output.double().T


def run(case):
    model_type, more = CASES[case]
    sizes = {k: v for k, v in (SIZES | more).items() if v is not LEFT_OUT}
    norm_base = 0.0 if model_type in CENTERED else 1.0
    kind = "sliding_attention" if model_type in SLIDING else "full_attention"
    config = empty(model_type, sizes)[0].config
    layers = config.get_text_config().num_hidden_layers
    shapes, model = loaded_with(model_type, sizes, {}, norm_base)

    larger = sizes | {"num_hidden_layers": layers + 1}
    for key in ("layer_types", "mlp_layer_types"):
        types = getattr(config.get_text_config(), key, None)
        if types:
            own = "dense" if model_type in DENSE else types[-1]
            larger[key] = types + [kind if key == "layer_types" else own]
    for key in ("swiglu_limits", "swiglu_limits_shared"):
        if key in sizes:
            larger[key] = sizes[key] + [0.0]
    own, layer, modules = names_of(model_type, layers)
    in_model = f"model.layers.{layers}."
    renamed = RENAMED.get(model_type, ("", ""))
    with tempfile.TemporaryDirectory() as folder:
        empty(model_type, larger)[0].to(torch.float32).save_pretrained(folder)
        of_head = {n.replace(in_model, layer).replace(*renamed): s
                   for n, s in shapes_of(folder).items() if n.startswith(in_model)}
    hidden = sizes["hidden_size"]
    of_head |= {f"{own}{modules[0]}.weight": [hidden, 2 * hidden]}
    of_head |= {f"{own}{m}.weight": [hidden] for m in modules[1:]}
    if case in OWN_ENDS:
        of_head |= {f"{own}{m}.weight": [sizes["vocab_size"], hidden]
                    for m in ("embed_tokens", "shared_head.head")}
    if model_type == "step3p7":
        of_head[f"{own}transformer.shared_head.output.weight"] = [sizes["vocab_size"], hidden]
    values = {n: golden.hf_tensor(n, s, norm_base) for n, s in of_head.items()}
    in_place = {n.replace(layer, in_model).replace(*renamed[::-1]) if n.startswith(layer) else n: v
                for n, v in values.items()}
    _, head = loaded_with(model_type, larger, in_place, norm_base)
    head.own_base = norm_base
    decoder = head.get_decoder()
    decoder.layers = torch.nn.ModuleList([decoder.layers[layers]])
    decoder.norm = torch.nn.Identity()
    decoder.config.num_hidden_layers = 1
    if getattr(decoder.config, "layer_types", None):
        decoder.config.layer_types = [kind]
    head = Head(model, head, values, (own, layer, modules))

    tokens = golden.tokens(ROWS, sizes["vocab_size"])
    ids = torch.from_numpy(tokens)
    with torch.no_grad():
        out = model(ids[None], output_hidden_states=True)
        states = model.get_decoder()(ids[None]).last_hidden_state[0][:-1]
        said = ids[1:]
        made, logits = head.run(states, said)
        first, drafts = logits, []
        for _ in range(DRAFTS):
            states = torch.cat([states, made[-1:]])
            said = torch.cat([said, logits[-1:].argmax(-1)])
            made, logits = head.run(states, said)
            drafts.append(logits[-1])
    written = REWRITTEN.get(model_type, lambda same: same)(kept(config))
    meta = {"config": json.dumps(written), "norm_base": str(norm_base),
            "tensors": json.dumps({n: ["F32", s] for n, s in (shapes | of_head).items()})}
    arrays = {"tokens": tokens.astype(np.float32), "model": out.logits[0].numpy(),
              "logits": first.numpy(), "drafts": torch.stack(drafts).numpy()}
    return meta, {k: np.ascontiguousarray(a.astype(np.float32)) for k, a in arrays.items()}


def kept(config):
    with tempfile.TemporaryDirectory() as folder:
        copy.deepcopy(config).save_pretrained(folder)
        return json.loads((pathlib.Path(folder) / "config.json").read_text())


def main():
    for case in sys.argv[2:] or CASES:
        meta, arrays = run(case)
        metadata = golden.versions() | {f"{case}/{key}": text for key, text in meta.items()}
        safetensors.numpy.save_file({f"{case}/{key}": a for key, a in arrays.items()},
                                    pathlib.Path(sys.argv[1]) / f"{case}.safetensors",
                                    metadata=metadata)
        print(case, np.abs(arrays["logits"]).max(), np.abs(arrays["drafts"]).max(),
              file=sys.stderr)


if __name__ == "__main__":
    main()
