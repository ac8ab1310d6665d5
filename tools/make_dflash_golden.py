#!/usr/bin/env python3
"""Writes tests/data/dflash_heads/CASE.safetensors: a tiny model, the folder of a DFlash head for it,
and the logits of the head.

transformers has no such heads, so this is an independent reference in float64, after Chen et al.
2026 (DFlash) and the heads of z-lab, vLLM, SGLang and speculators. Each layer attends to keys and
values of the text, which it computes from the normed product of fc and the model's residual streams
behind some layers, and to those of the block: the text's last token and mask tokens. A layer
without a window sees the whole block, a layer with one only earlier rows. The model is
transformers'.

Values come from the formula of tests/support/tiny_model.h. "logits": those of the mask tokens of a
block, over the head's vocabulary, after the first n tokens of the text, for each n in ANCHORS.

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.24.0, safetensors 0.8.0, numpy 2.4.6:
    python3 tools/make_dflash_golden.py tests/data/dflash_heads [CASE...]
"""

import json
import pathlib
import sys

import numpy as np
import safetensors.numpy
import torch

import golden
from make_draft_head_golden import ROWS, SIZES, kept, loaded_with
from make_eagle_golden import Head, numbers
from make_family_golden import empty

ANCHORS = (1, 9, 11, ROWS)
HEAD = {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_act": "silu",
        "hidden_size": 96, "intermediate_size": 128, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 24, "num_hidden_layers": 3, "rms_norm_eps": 1e-5,
        "vocab_size": 83, "max_position_embeddings": 64, "num_target_layers": 8, "block_size": 6,
        "layer_types": ["full_attention"] * 3, "attention_bias": False, "rope_theta": 1e6,
        "dflash_config": {"mask_token_id": 81, "target_layer_ids": [1, 3, 5]}}
WINDOWS = HEAD | {
    "num_hidden_layers": 2, "num_key_value_heads": 1, "sliding_window": 5,
    "use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"],
    "dflash_config": {"mask_token_id": 7, "target_layer_ids": [0, 2, 4, 7], "block_size": 8,
                      "input_embedding_scale": 1.5}}
CAUSAL = HEAD | {"num_hidden_layers": 1, "layer_types": ["full_attention"], "is_causal": True}
# The layers' keys inside, as speculators writes them; a vocabulary and a width of its own.
NESTED = {
    "architectures": ["DFlashSpeculator"], "speculators_model_type": "dflash",
    "draft_vocab_size": 40, "block_size": 4, "mask_token_id": 3, "target_hidden_size": 96,
    "aux_hidden_state_layer_ids": [1, 6], "sliding_window_non_causal": True,
    "transformer_layer_config": {
        k: HEAD[k] for k in ("model_type", "num_attention_heads", "num_key_value_heads", "head_dim",
                             "rms_norm_eps", "vocab_size", "max_position_embeddings",
                             "intermediate_size")} | {
        "hidden_size": 64, "num_hidden_layers": 2, "attention_bias": True, "sliding_window": 3,
        "layer_types": ["full_attention", "sliding_attention"], "rope_theta": 5e5}}
# name: model_type and sizes of the model, config.json of the head
CASES = {"qwen3": ("qwen3", {"tie_word_embeddings": True}, HEAD),
         "windows": ("llama", {}, WINDOWS),
         "causal": ("qwen3", {}, CAUSAL),
         "nested": ("qwen3", {}, NESTED)}


def head_shapes(config, inner, streams):
    hidden, dim, ffn = inner["hidden_size"], inner["head_dim"], inner["intermediate_size"]
    heads, kv = inner["num_attention_heads"], inner["num_key_value_heads"]
    shapes = {"fc.weight": [hidden, streams], "norm.weight": [hidden],
              "hidden_norm.weight": [hidden]}
    for i in range(inner["num_hidden_layers"]):
        layer = f"layers.{i}."
        for name, n in {"q": heads * dim, "k": kv * dim, "v": kv * dim, "o": hidden}.items():
            columns = heads * dim if name == "o" else hidden
            shapes[f"{layer}self_attn.{name}_proj.weight"] = [n, columns]
            if inner.get("attention_bias"):
                shapes[f"{layer}self_attn.{name}_proj.bias"] = [n]
        shapes |= {f"{layer}self_attn.{n}_norm.weight": [dim] for n in "qk"}
        shapes |= {f"{layer}{n}.weight": [hidden]
                   for n in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {f"{layer}mlp.{p}_proj.weight": [ffn, hidden] for p in ("gate", "up")}
        shapes[f"{layer}mlp.down_proj.weight"] = [hidden, ffn]
    if "draft_vocab_size" in config:
        shapes["lm_head.weight"] = [config["draft_vocab_size"], hidden]
        shapes["embed_tokens.weight"] = [inner["vocab_size"], hidden]
    return shapes


class BlockHead(Head):
    def sees(self, index, queries, keys):
        """Whether the rows at positions `queries` see those at `keys`."""
        slides = self.inner["layer_types"][index] == "sliding_attention"
        causal = self.config.get("is_causal", slides)
        if slides and self.config.get("sliding_window_non_causal"):
            causal = False
        back = queries[:, None] - keys[None]
        seen = back >= 0 if causal else torch.ones_like(back, dtype=torch.bool)
        return seen & (back.abs() < self.inner["sliding_window"]) if slides else seen

    def heads(self, x, name, norm, positions):
        dim = self.inner["head_dim"]
        y = self.linear(x, f"self_attn.{name}_proj").reshape(x.shape[0], -1, dim).transpose(0, 1)
        if not norm:
            return y
        y = self.norm(y, f"{self.layer}self_attn.{name}_norm")
        angles = positions.double()[:, None] * self.rotary.inv_freq.double()[None]
        cos, sin = (f(torch.cat([angles, angles], -1)) for f in (torch.cos, torch.sin))
        return y * cos + torch.cat([-y[..., dim // 2:], y[..., :dim // 2]], -1) * sin

    def draft(self, streams, block):
        """The logits of the mask tokens of a block, whose first token follows the streams' rows."""
        context = self.norm(streams @ self.values["fc.weight"].double().T, "hidden_norm")
        places = torch.arange(len(context) + len(block))
        own = places[len(context):]
        x = self.table[block] * self.config.get("dflash_config", {}).get("input_embedding_scale", 1)
        for i in range(self.inner["num_hidden_layers"]):
            self.layer = f"layers.{i}."
            h = self.norm(x, self.layer + "input_layernorm")
            both = torch.cat([context, h])
            q, k = self.heads(h, "q", True, own), self.heads(both, "k", True, places)
            v = self.heads(both, "v", False, places)
            k, v = (a.repeat_interleave(q.shape[0] // k.shape[0], 0) for a in (k, v))
            scores = q @ k.transpose(1, 2) / self.inner["head_dim"] ** 0.5
            scores = scores.masked_fill(~self.sees(i, own, places), -torch.inf)
            a = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(block), -1)
            x = x + self.linear(a, "self_attn.o_proj")
            h = self.norm(x, self.layer + "post_attention_layernorm")
            gate = torch.nn.functional.silu(self.linear(h, "mlp.gate_proj"))
            x = x + self.linear(gate * self.linear(h, "mlp.up_proj"), "mlp.down_proj")
        return self.norm(x, "norm")[1:] @ self.output.T


def run(case):
    model_type, more, config = CASES[case]
    sizes = SIZES | {"num_hidden_layers": 8} | more
    shapes, model = loaded_with(model_type, sizes, {}, 1.0)
    nested = "transformer_layer_config" in config
    inner = config["transformer_layer_config"] if nested else config
    block = config | config.get("dflash_config", {})
    reads = block.get("aux_hidden_state_layer_ids") or [i + 1 for i in block["target_layer_ids"]]
    of_head = head_shapes(config, inner, len(reads) * sizes["hidden_size"])
    values = {n: golden.hf_tensor(n, s, 1.0) for n, s in of_head.items()}
    table = {n: ["F32", s] for n, s in of_head.items()}
    vocab = inner["vocab_size"]
    drafts = config.get("draft_vocab_size", vocab)
    if drafts < vocab:
        table["d2t"] = ["I64", [drafts], vocab - drafts + 1]
        values["d2t"] = torch.from_numpy(numbers("d2t", drafts, vocab - drafts + 1))
    head = BlockHead(config, inner, "", values, model.get_decoder().embed_tokens.weight.detach())
    head.output = values.get("lm_head.weight", model.get_output_embeddings().weight.detach()).double()

    tokens = golden.tokens(ROWS, vocab)
    ids = torch.from_numpy(tokens)
    # The last layer's output, before the final norm.
    states, behind = {}, []
    hooks = [layer.register_forward_hook(lambda _, __, out: behind.append(
        out[0] if isinstance(out, tuple) else out)) for layer in model.get_decoder().layers]
    with torch.no_grad():
        out = model(ids[None], output_hidden_states=True)
        states = [out.hidden_states[0]] + behind
        streams = torch.cat([states[r].reshape(ROWS, -1) for r in reads], -1)
        masks = torch.full((block["block_size"] - 1,), block["mask_token_id"])
        logits = torch.cat([head.draft(streams[:n - 1], torch.cat([ids[n - 1:n], masks]))
                            for n in ANCHORS])
    for hook in hooks:
        hook.remove()
    meta = {f"{case}Model/config": json.dumps(kept(empty(model_type, sizes)[0].config)),
            f"{case}Model/norm_base": "1.0", f"{case}/norm_base": "1.0",
            f"{case}Model/tensors": json.dumps({n: ["F32", s] for n, s in shapes.items()}),
            f"{case}/config": json.dumps(config), f"{case}/tensors": json.dumps(table)}
    arrays = {"tokens": tokens.astype(np.float32), "anchors": np.array(ANCHORS, np.float32),
              "logits": logits.numpy()}
    return meta, {k: np.ascontiguousarray(a.astype(np.float32)) for k, a in arrays.items()}


def main():
    for case in sys.argv[2:] or CASES:
        meta, arrays = run(case)
        safetensors.numpy.save_file({f"{case}/{key}": a for key, a in arrays.items()},
                                    pathlib.Path(sys.argv[1]) / f"{case}.safetensors",
                                    metadata=golden.versions() | meta)
        print(case, np.abs(arrays["logits"]).max(), file=sys.stderr)


if __name__ == "__main__":
    main()
