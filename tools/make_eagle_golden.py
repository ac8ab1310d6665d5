#!/usr/bin/env python3
"""Writes tests/data/eagle_heads/CASE.safetensors: a tiny model, the folder of an EAGLE-3 head for
it, and the logits of the head.

transformers has no such heads, so this is an independent reference in float64, after Li et al. 2025
(EAGLE-3) and the heads of vLLM, SGLang and speculators. The state of a row is the product of fc and
the model's residual streams before three layers; the layer reads the normed embedding of the next
token beside the normed state. Further rows take the layer's own row as the state. The model is
transformers'.

Values come from the formula of tests/support/tiny_model.h. "logits": the head's, over its own
vocabulary, after each token but the last. "drafts": those of three further rows after these, each
with the most likely token of the previous row.

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.24.0, safetensors 0.8.0, numpy 2.4.6:
    python3 tools/make_eagle_golden.py tests/data/eagle_heads [CASE...]
"""

import json
import pathlib
import sys

import numpy as np
import safetensors.numpy
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import golden
from make_draft_head_golden import DRAFTS, ROWS, SIZES, kept, loaded_with
from make_family_golden import empty

HEAD = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": 96, "intermediate_size": 128, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 24, "num_hidden_layers": 1, "rms_norm_eps": 1e-5,
        "vocab_size": 83, "draft_vocab_size": 40, "max_position_embeddings": 64,
        "tie_word_embeddings": False}
# The layer's keys inside, as speculators writes them; a width of its own, with its own embedding.
NESTED = {
    "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
    "draft_vocab_size": 83, "norm_before_residual": True, "norm_output": True,
    "target_hidden_size": 96, "eagle_aux_hidden_state_layer_ids": [1, 3, 6],
    "transformer_layer_config": {
        k: v for k, v in HEAD.items() if k not in ("architectures", "draft_vocab_size")} | {
        "hidden_size": 64, "attention_bias": True, "rope_theta": 5e5, "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16}}}
# name: model_type and sizes of the model, config.json of the head, layers that it reads
CASES = {
    "llama": ("llama", {}, HEAD, [2, 4, 5]),
    "nested": ("qwen3", {"tie_word_embeddings": True}, NESTED, [1, 3, 6]),
    "outputs": ("gemma3_text", {"sliding_window": 6},
                HEAD | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 2, 4]}},
                [1, 3, 5]),
}


def head_shapes(config, inner, reads, target):
    hidden, heads = inner["hidden_size"], inner["num_attention_heads"]
    dim, kv = inner["head_dim"], inner["num_key_value_heads"]
    nested = "transformer_layer_config" in config
    layer = "layers.0." if nested else "midlayer."
    shapes = {"fc.weight": [hidden, len(reads) * target], "norm.weight": [hidden],
              "lm_head.weight": [config["draft_vocab_size"], hidden]}
    rows = {"q": heads * dim, "k": kv * dim, "v": kv * dim}
    shapes |= {f"{layer}self_attn.{p}_proj.weight": [n, 2 * hidden] for p, n in rows.items()}
    shapes[f"{layer}self_attn.o_proj.weight"] = [hidden, heads * dim]
    if inner.get("attention_bias"):
        shapes |= {f"{layer}self_attn.{p}_proj.bias": [n] for p, n in rows.items()}
        shapes[f"{layer}self_attn.o_proj.bias"] = [hidden]
    shapes |= {f"{layer}{n}.weight": [hidden]
               for n in ("input_layernorm", "hidden_norm", "post_attention_layernorm")}
    ffn = inner["intermediate_size"]
    shapes |= {f"{layer}mlp.{p}_proj.weight": [ffn, hidden] for p in ("gate", "up")}
    shapes[f"{layer}mlp.down_proj.weight"] = [hidden, ffn]
    if nested:
        shapes["embed_tokens.weight"] = [inner["vocab_size"], hidden]
    return layer, shapes


def numbers(name, count, below):
    """tests/support/hf_folder.h's MakeNumbers."""
    return np.floor((golden.formula(name, count) * 0.5 + 0.5) * below).astype(np.int64)


class Head:
    def __init__(self, config, inner, layer, values, table):
        self.config, self.inner, self.layer, self.values = config, inner, layer, values
        self.table = values.get("embed_tokens.weight", table).double()
        keys = ("hidden_size", "num_attention_heads", "head_dim", "rope_theta", "rope_scaling",
                "max_position_embeddings")
        self.rotary = LlamaRotaryEmbedding(LlamaConfig(**{k: inner[k] for k in keys if k in inner}))

    def linear(self, x, name):
        bias = self.values.get(self.layer + name + ".bias")
        y = x @ self.values[self.layer + name + ".weight"].double().T
        return y if bias is None else y + bias.double()

    def norm(self, x, name):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.inner["rms_norm_eps"])
        return x * scale * self.values[name + ".weight"].double()

    def attention(self, x):
        rows, dim = x.shape[0], self.inner["head_dim"]
        q, k, v = (self.linear(x, f"self_attn.{p}_proj").reshape(rows, -1, dim).transpose(0, 1)
                   for p in "qkv")
        angles = torch.arange(rows).double()[:, None] * self.rotary.inv_freq.double()[None]
        cos, sin = (f(torch.cat([angles, angles], -1)) for f in (torch.cos, torch.sin))

        def turn(a):
            return a * cos + torch.cat([-a[..., dim // 2:], a[..., :dim // 2]], -1) * sin
        group = q.shape[0] // k.shape[0]
        k, v = (a.repeat_interleave(group, 0) for a in (turn(k), v))
        scores = turn(q) @ k.transpose(1, 2) / dim ** 0.5
        scores = scores + torch.full((rows, rows), -torch.inf).triu(1)
        return self.linear((scores.softmax(-1) @ v).transpose(0, 1).reshape(rows, -1),
                           "self_attn.o_proj")

    def run(self, states, tokens):
        """Rows of the head, as a further row reads them, and their logits."""
        token = self.norm(self.table[tokens], self.layer + "input_layernorm")
        normed = self.norm(states, self.layer + "hidden_norm")
        x = normed if self.config.get("norm_before_residual") else states
        x = x + self.attention(torch.cat([token, normed], -1))
        h = self.norm(x, self.layer + "post_attention_layernorm")
        gate = torch.nn.functional.silu(self.linear(h, "mlp.gate_proj"))
        x = x + self.linear(gate * self.linear(h, "mlp.up_proj"), "mlp.down_proj")
        last = self.norm(x, "norm")
        logits = last @ self.values["lm_head.weight"].double().T
        return last if self.config.get("norm_output") else x, logits


def run(case):
    model_type, more, config, reads = CASES[case]
    sizes = SIZES | {"num_hidden_layers": 8} | more
    norm_base = 0.0 if model_type == "gemma3_text" else 1.0
    shapes, model = loaded_with(model_type, sizes, {}, norm_base)
    inner = config.get("transformer_layer_config", config)
    layer, of_head = head_shapes(config, inner, reads, sizes["hidden_size"])
    values = {n: golden.hf_tensor(n, s, 1.0) for n, s in of_head.items()}
    table = {n: ["F32", s] for n, s in of_head.items()}
    drafts, vocab = config["draft_vocab_size"], inner["vocab_size"]
    target = np.arange(drafts)
    if drafts < vocab:
        target = target + numbers("d2t", drafts, vocab - drafts + 1)
        table["d2t"] = ["I64", [drafts], vocab - drafts + 1]
    head = Head(config, inner, layer, values, model.get_decoder().embed_tokens.weight.detach())

    tokens = golden.tokens(ROWS, vocab)
    ids = torch.from_numpy(tokens)
    with torch.no_grad():
        out = model(ids[None], output_hidden_states=True)
        states = torch.cat([out.hidden_states[r][0] for r in reads], -1)[:-1]
        states = states @ values["fc.weight"].double().T
        said = ids[1:]
        made, logits = head.run(states, said)
        first, further = logits, []
        for _ in range(DRAFTS):
            states = torch.cat([states, made[-1:]])
            said = torch.cat([said, torch.from_numpy(target)[logits[-1:].argmax(-1)]])
            made, logits = head.run(states, said)
            further.append(logits[-1])
    meta = {f"{case}Model/config": json.dumps(kept(empty(model_type, sizes)[0].config)),
            f"{case}Model/norm_base": str(norm_base), f"{case}/norm_base": "1.0",
            f"{case}Model/tensors": json.dumps({n: ["F32", s] for n, s in shapes.items()}),
            f"{case}/config": json.dumps(config), f"{case}/tensors": json.dumps(table)}
    arrays = {"tokens": tokens.astype(np.float32), "model": out.logits[0].numpy(),
              "logits": first.numpy(), "drafts": torch.stack(further).numpy()}
    return meta, {k: np.ascontiguousarray(a.astype(np.float32)) for k, a in arrays.items()}


def main():
    for case in sys.argv[2:] or CASES:
        meta, arrays = run(case)
        safetensors.numpy.save_file({f"{case}/{key}": a for key, a in arrays.items()},
                                    pathlib.Path(sys.argv[1]) / f"{case}.safetensors",
                                    metadata=golden.versions() | meta)
        print(case, np.abs(arrays["logits"]).max(), np.abs(arrays["drafts"]).max(),
              file=sys.stderr)


if __name__ == "__main__":
    main()
