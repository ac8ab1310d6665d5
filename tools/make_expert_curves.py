#!/usr/bin/env python3
"""Writes tests/data/expert_losses.json: training curves of small models with experts, by PyTorch.

The models are those of transformers (MixtralForCausalLM, Qwen3MoeForCausalLM), in float64 (norms,
RoPE and routers compute in float32 nevertheless), with eager attention and experts. Weights and
tokens are noise from the formula of tests/support/train_golden.h (splitmix64); tensors are
numbered in the order of their names in a folder, where each expert is separate. Every step uses
the same batch.

The trained loss is the mean cross-entropy plus "aux" times the load-balance loss; "losses" exclude
the latter. AdamW with betas 0.9 and 0.95, eps 1e-8, decay of matrices 0.1, norms clipped to 1.

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.23.0, numpy 2.4.6:
    python3 tools/make_expert_curves.py tests/data/expert_losses.json
"""

import json
import sys

import numpy as np
import torch
import transformers

VOCAB, HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 512, 128, 96, 3, 4, 2, 32
EXPERTS, USED, SEQUENCES, LENGTH, STEPS = 8, 2, 4, 33, 10
RATE = 1e-3

# name: family, config keys besides the sizes, weight of the load-balance loss
CASES = {
    "mixtral": ("Mixtral", dict(intermediate_size=FFN, num_local_experts=EXPERTS), 0.02),
    "qwen3moe": ("Qwen3Moe", dict(moe_intermediate_size=FFN, num_experts=EXPERTS,
                                  norm_topk_prob=True), 0.1),
    "qwen3moe_as_scored": ("Qwen3Moe", dict(moe_intermediate_size=FFN, num_experts=EXPERTS,
                                            norm_topk_prob=False), 0.0),
}
MASK = 0xFFFFFFFFFFFFFFFF


def bits(seed, tensor, count):
    """Splitmix64 of a seed, a tensor's number and an element's number."""
    with np.errstate(over="ignore"):
        start = np.uint64(((seed << 56 | tensor << 40) + 0x9E3779B97F4A7C15) & MASK)
        z = np.arange(count, dtype=np.uint64) + start
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def noise(tensor, shape, add):
    values = (bits(1, tensor, int(np.prod(shape))) >> np.uint64(40)).astype(np.float32)
    return ((values / np.float32(16777216) - np.float32(0.5)) / 4 + np.float32(add)).reshape(shape)


def parts(name, parameter, mixtral):
    """(the name in a folder, the part of the parameter with that name)."""
    if ".experts." not in name:
        if mixtral:
            name = name.replace(".mlp.gate.", ".block_sparse_moe.gate.")
        return [(name, parameter)]
    at = name[:name.index("mlp.experts.")] + ("block_sparse_moe" if mixtral else "mlp") + ".experts."
    gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    if name.endswith("down_proj"):
        return [(f"{at}{e}.{down}.weight", parameter[e]) for e in range(EXPERTS)]
    return [(f"{at}{e}.{kind}.weight", parameter[e, begin:begin + FFN])
            for e in range(EXPERTS) for kind, begin in ((gate, 0), (up, FFN))]


def run(family, more, aux):
    config = getattr(transformers, family + "Config")(
        hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, vocab_size=VOCAB, rms_norm_eps=1e-5,
        num_experts_per_tok=USED, tie_word_embeddings=True, max_position_embeddings=512,
        attn_implementation="eager", experts_implementation="eager", sliding_window=None,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, router_aux_loss_coef=aux,
        output_router_logits=True, **more)
    model = getattr(transformers, family + "ForCausalLM")(config).double()
    module = sys.modules[type(model).__module__]
    in_folder = dict(part for name, parameter in model.named_parameters()
                     for part in parts(name, parameter, family == "Mixtral"))
    with torch.no_grad():
        for number, name in enumerate(sorted(in_folder)):
            shape = tuple(in_folder[name].shape)
            value = noise(number, shape, 0 if len(shape) > 1 else 1)
            in_folder[name].copy_(torch.from_numpy(value))
    tokens = np.stack([bits(3, k, LENGTH) % np.uint64(VOCAB) for k in range(SEQUENCES)])
    tokens = torch.from_numpy(tokens.astype(np.int64))
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": vectors, "weight_decay": 0.0}],
                                  lr=RATE, betas=(0.9, 0.95), eps=1e-8)
    curve = {"losses": [], "balance": [], "grad_norms": [], "aux": aux, "lr": RATE}
    for _ in range(STEPS):
        output = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1),
                                                 tokens[:, 1:].flatten())
        balance = module.load_balancing_loss_func(output.router_logits, EXPERTS, USED)
        optimizer.zero_grad()
        (loss + aux * balance).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        for key, value in (("losses", loss), ("balance", balance), ("grad_norms", norm)):
            curve[key].append(value.item())
    return curve


def main():
    made_with = {"torch": torch.__version__, "transformers": transformers.__version__,
                 "numpy": np.__version__}
    cases = {name: run(*case) for name, case in CASES.items()}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"made_with": made_with, "cases": cases}, file, indent=1)
        file.write("\n")


main()
