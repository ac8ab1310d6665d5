#!/usr/bin/env python3
"""Writes logits, losses and gradients of tiny models, by PyTorch.

tests/data/gradients.safetensors       logits, and gradients of L = sum(dlogits * logits)
tests/data/loss_gradients.safetensors  losses of rows, and gradients of their sum, as in weft train:
                                       heads of 8 columns, longer sequences, Granite as well

The models are those of transformers (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM,
MixtralForCausalLM, Qwen3MoeForCausalLM, Gemma2ForCausalLM (the first file has no cap of its final
logits), Gemma3ForCausalLM, GraniteForCausalLM), in float64 (norms, RoPE and routers compute in
float32 nevertheless). Weights, tokens and dL/dlogits come from the formula of
tests/support/tiny_model.h; there is no other randomness.
For models with experts, "balance" has the gradients of the load-balance loss over all rows.

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.24.0, safetensors 0.8.0, numpy 2.4.6:
    python3 tools/make_gradient_golden.py tests/data
"""

import sys

import numpy as np
import torch
import transformers

import golden

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 2, 18, 24, 6, 3, 4, 50
ROPE_BASE, EPS = 100.0, 1e-5
SEQUENCES, LOSS_SEQUENCES = [5, 1, 4], [11, 1, 7]
LOSS_HEAD_DIM = 8
EXPERTS, USED, EXPERT_FFN = 5, 2, 10


# Two layers: the first has a window, which is shorter than the longest sequence.
GEMMA = dict(sliding_window=3, query_pre_attn_scalar=9, head_dim=HEAD_DIM,
             layer_types=["sliding_attention", "full_attention"],
             hidden_activation="gelu_pytorch_tanh", pad_token_id=None)  # gives every row a gradient


def to_pairs(w, heads):
    """Halves, as in HF -> adjacent pairs, as Q and K in llama's GGUF files."""
    return w.reshape(heads, 2, HEAD_DIM // 2, -1).swapaxes(1, 2).reshape(w.shape)


def make(architecture, tied, final_cap=None):
    config_class, model_class = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
        "mixtral": (transformers.MixtralConfig, transformers.MixtralForCausalLM),
        "qwen3moe": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM),
        "gemma2": (transformers.Gemma2Config, transformers.Gemma2ForCausalLM),
        "gemma3": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
        "granite": (transformers.GraniteConfig, transformers.GraniteForCausalLM),
    }[architecture]
    more = {"mixtral": dict(intermediate_size=EXPERT_FFN, num_local_experts=EXPERTS),
            "qwen3moe": dict(moe_intermediate_size=EXPERT_FFN, num_experts=EXPERTS,
                             norm_topk_prob=True)}.get(architecture, {})
    if more:
        more |= dict(num_experts_per_tok=USED, experts_implementation="eager")
    rope = {"rope_type": "default", "rope_theta": ROPE_BASE}
    gemma = {"gemma2": GEMMA | dict(attn_logit_softcapping=0.7,
                                    final_logit_softcapping=final_cap),
             "gemma3": GEMMA | dict(rope_parameters={kind: rope for kind in GEMMA["layer_types"]}),
             "granite": dict(embedding_multiplier=3.0, residual_multiplier=0.4,
                             attention_multiplier=0.2, logits_scaling=4.0)
             }.get(architecture, {}) | dict(head_dim=HEAD_DIM)
    config = config_class(**dict(
        hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM,
        vocab_size=VOCAB, rms_norm_eps=EPS, tie_word_embeddings=tied,
        max_position_embeddings=64, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE}) | more | gemma)
    return model_class(config).double()


NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
    "model.norm.weight": "output_norm.weight", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate": "ffn_gate_inp", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def gguf_names(name, architecture):
    """One name, or two if HF stores gate and up of all experts in one tensor."""
    if name in NAMES:
        return [NAMES[name]]
    _, _, layer, rest = name.split(".", 3)
    block = f"blk.{layer}."
    if rest == "mlp.experts.gate_up_proj":
        return [block + "ffn_gate_exps.weight", block + "ffn_up_exps.weight"]
    if rest == "mlp.experts.down_proj":
        return [block + "ffn_down_exps.weight"]
    stem, kind = rest.rsplit(".", 1)
    if stem == "post_attention_layernorm" and architecture.startswith("gemma"):
        return [f"{block}post_attention_norm.{kind}"]
    return [f"{block}{NAMES[stem]}.{kind}"]


def parts_of(names, value):
    return zip(names, value.chunk(2, dim=1) if len(names) == 2 else [value])


def batch():
    """Tokens of each sequence, the rows with logits, and the weights of these logits in L."""
    rows = sum(SEQUENCES)
    tokens = golden.tokens(rows, VOCAB)
    begins = np.cumsum([0] + SEQUENCES)
    output_rows = list(range(0, rows, 2)) + [0]
    count = len(output_rows) * VOCAB
    dlogits = torch.from_numpy(golden.formula("dlogits", count).reshape(len(output_rows), VOCAB))
    return [tokens[b:e] for b, e in zip(begins, begins[1:])], output_rows, dlogits


def gradients(parameters):
    result = {}
    for names, (parameter, heads) in parameters.items():
        for target, part in parts_of(names, parameter.grad):
            gradient = part.numpy()
            result[target] = to_pairs(gradient, heads) if heads else gradient.copy()
        parameter.grad = None
    return result


def filled(architecture, tied, final_cap=None):
    """A model with weights from the formula, and its parameters by GGUF names."""
    model = make(architecture, tied, final_cap)
    parameters = {}
    for name, parameter in model.named_parameters():
        names = tuple(gguf_names(name, architecture))
        heads = {"attn_q.weight": HEADS, "attn_k.weight": KV_HEADS}.get(names[0].split(".", 2)[-1])
        if architecture not in ("llama", "mixtral", "granite"):
            heads = None
        # These norms add 1.
        one = 1 if architecture.startswith("gemma") and "norm" in names[0] else 0
        parameters[names] = (parameter, heads)
        with torch.no_grad():
            for target, part in parts_of(names, parameter):
                value = golden.tensor(target, tuple(part.shape))
                part.copy_(torch.from_numpy(golden.to_halves(value, heads, HEAD_DIM) if heads else value - one))
    return model, parameters


def run(architecture, tied):
    model, parameters = filled(architecture, tied)
    experts = architecture in ("mixtral", "qwen3moe")
    sequences, output_rows, dlogits = batch()
    outputs = [model(torch.from_numpy(tokens)[None], output_router_logits=True)
               if experts else model(torch.from_numpy(tokens)[None]) for tokens in sequences]
    logits = torch.cat([output.logits[0] for output in outputs])[output_rows]
    (logits * dlogits).sum().backward(retain_graph=experts)
    key = architecture + ("Tied" if tied else "")
    result = {f"{key}/logits": logits.detach().numpy()}
    result |= {f"{key}/{name}": value for name, value in gradients(parameters).items()}
    if experts:
        module = sys.modules[type(model).__module__]
        layers = tuple(torch.cat(layer) for layer in zip(*(o.router_logits for o in outputs)))
        balance = module.load_balancing_loss_func(layers, EXPERTS, USED)
        for parameter, _ in parameters.values():
            parameter.grad = torch.zeros_like(parameter)
        balance.backward()
        result[f"{key}/balance"] = np.array([balance.item()])
        result |= {f"{key}/balance/{name}": value
                   for name, value in gradients(parameters).items()}
    return result


def run_loss(architecture, tied):
    """Losses and gradients; every third row has no target."""
    model, parameters = filled(architecture, tied, final_cap=3.0)
    rows = sum(LOSS_SEQUENCES)
    draw = lambda name: golden.tokens(rows, VOCAB, name)
    tokens, targets = (torch.from_numpy(draw(name)) for name in ("tokens", "targets"))
    logits = torch.cat([model(part[None]).logits[0] for part in tokens.split(LOSS_SEQUENCES)])
    output_rows = [row for row in range(rows) if row % 3 != 2]
    losses = torch.nn.functional.cross_entropy(logits[output_rows], targets[output_rows],
                                               reduction="none")
    losses.sum().backward()
    key = architecture + ("Tied" if tied else "")
    result = {f"{key}/losses": losses.detach().numpy()}
    return result | {f"{key}/{name}": value for name, value in gradients(parameters).items()}


def main():
    global HEAD_DIM
    folder = sys.argv[1]
    tensors = {}
    for architecture, tied in [("llama", False), ("llama", True), ("qwen2", True),
                               ("qwen3", False), ("mixtral", False), ("qwen3moe", False),
                               ("gemma2", True), ("gemma3", True)]:
        tensors |= run(architecture, tied)
    golden.save(tensors, f"{folder}/gradients.safetensors")
    HEAD_DIM = LOSS_HEAD_DIM
    tensors = {}
    for architecture, tied in [("llama", False), ("qwen2", True), ("qwen3", False),
                               ("mixtral", False), ("qwen3moe", False), ("gemma2", True),
                               ("gemma3", True), ("granite", True)]:
        tensors |= run_loss(architecture, tied)
    golden.save(tensors, f"{folder}/loss_gradients.safetensors")


main()
