#!/usr/bin/env python3
"""Writes tests/data/optimizer_curves.json: twenty steps of a small Llama with each optimizer.

The model is transformers' LlamaForCausalLM in float32, with the weights and tokens of
tests/support/train_golden.h (splitmix64 of a seed, a tensor's number and an element's number). The
optimizers are torch.optim's Adam, AdamW and SGD, transformers' Adafactor, and, for 8-bit Adam, the
class below: block-wise dynamic quantization (Dettmers et al. 2022) in numpy. Lion is the class below
(Chen et al. 2023, algorithm 2). Schedule-free AdamW is the package of its authors; `averages` are
the losses of the averaged weights after each step. Muon is torch.optim.Muon for the matrices of the
layers, beside AdamW, with torch's Newton-Schulz iteration in the model's type instead of bfloat16.
Gradients are clipped to a norm of 1; one-dimensional tensors have no weight decay.

Made with Python 3.11, torch 2.13.0+cpu, transformers 5.24.0, numpy 2.4.6, schedulefree 1.4.1:
    python3 tools/make_optimizer_golden.py tests/data/optimizer_curves.json
"""

import inspect
import json
import sys

import numpy as np
import schedulefree
import torch
import torch.optim._muon as torch_muon
import transformers
from transformers.optimization import Adafactor

VOCAB, HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 1024, 256, 768, 4, 4, 2, 64
SEQUENCES, LENGTH, STEPS = 8, 64, 20


def bits(seed, k, n):
    with np.errstate(over="ignore"):
        z = np.uint64(seed << 56 | k << 40) + np.arange(n, dtype=np.uint64)
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def make_model():
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM,
        rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=2048,
        tie_word_embeddings=True, attention_bias=False, mlp_bias=False)
    model = transformers.LlamaForCausalLM(config).float()
    named = dict(model.named_parameters())
    with torch.no_grad():
        for k, name in enumerate(sorted(named)):
            p = named[name]
            u = (bits(1, k, p.numel()) >> np.uint64(40)).astype(np.float32) / 2**24
            value = (u - np.float32(0.5)) / 4 + np.float32(1 if p.dim() == 1 else 0)
            p.copy_(torch.from_numpy(value.astype(np.float32).reshape(p.shape)))
    model.train()
    return model


# ---- 8-bit Adam ------------------------------------------------------------------------------------

BLOCK = 256           # elements that share a scale
LEAST_ELEMENTS = 4096  # smaller tensors keep float32


def dynamic_codes(signed):
    """The values of 256 codes, ascending: e zero bits, then a fraction of 10^-e in the other bits.

    Each decade [10^-(e+1), 10^-e] has the midpoints of 2^(remaining bits) even steps. In addition
    there are 0 and 1; signed codes have -1 in place of the negative value nearest to 0.
    """
    positive = []
    for e in range(7):
        steps = 2 ** (6 - e) if signed else 2 ** (7 - e)
        edges = np.linspace(0.1, 1, steps + 1)
        positive += list(10.0 ** -e * (edges[:-1] + edges[1:]) / 2)
    values = positive + [0.0, 1.0]
    if signed:
        values += [-v for v in positive if v != min(positive)] + [-1.0]
    codes = np.sort(np.array(values)).astype(np.float32)
    assert len(codes) == 256
    return codes


def quantize(x, codes):
    """Rounds x over its block's largest magnitude to the nearest code; ties go to the greater."""
    middles = ((codes[:-1].astype(np.float64) + codes[1:].astype(np.float64)) / 2).astype(np.float32)
    padded = np.zeros(-(-len(x) // BLOCK) * BLOCK, np.float32)
    padded[:len(x)] = x
    blocks = padded.reshape(-1, BLOCK)
    scales = np.abs(blocks).max(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = np.where(scales > 0, blocks / scales, np.float32(0))
    return np.searchsorted(middles, inside, side="right"), scales


def dequantize(quantized, codes, count):
    places, scales = quantized
    return (codes[places] * scales).reshape(-1)[:count]


class Adam8bit:
    """Moments are widened, updated, used in this form, and narrowed. Decay is decoupled."""

    def __init__(self, params, betas, eps):
        self.params, self.betas, self.eps, self.step_number = params, betas, eps, 0
        self.codes = dynamic_codes(True), dynamic_codes(False)
        self.state = {}

    def step(self, lr, decay):
        self.step_number += 1
        f = np.float32
        b1, b2 = (f(b) for b in self.betas)
        c1, c2 = (f(1 - b ** self.step_number) for b in self.betas)
        for i, p in enumerate(self.params):
            g = p.grad.numpy().reshape(-1)
            narrow = g.size >= LEAST_ELEMENTS and p.dim() > 1
            if i not in self.state:
                m, v = np.zeros_like(g), np.zeros_like(g)
            elif narrow:
                m, v = (dequantize(q, c, g.size) for q, c in zip(self.state[i], self.codes))
            else:
                m, v = self.state[i]
            m = b1 * m + (1 - b1) * g
            v = b2 * v + (1 - b2) * g * g
            change = f(lr) / c1 * m / (np.sqrt(v) / np.sqrt(c2) + f(self.eps))
            kept = f(1 - lr * (decay if p.dim() > 1 else 0.0))
            with torch.no_grad():
                x = p.numpy().reshape(-1)
                x[:] = x * kept - change
            self.state[i] = tuple(quantize(x, c) for x, c in zip((m, v), self.codes)) if narrow else (m, v)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (b1, b2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                way = torch.sign(b1 * m + (1 - b1) * p.grad)
                p.mul_(1 - lr * group["weight_decay"]).sub_(way, alpha=lr)
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


# torch's function orthogonalizes in bfloat16, whose rounding depends on the order of sums.
source = inspect.getsource(torch_muon._zeropower_via_newtonschulz)
assert source.count("grad.bfloat16()") == 1
exec(source.replace("grad.bfloat16()", "grad.clone()"), torch_muon.__dict__)


class MuonBesideAdamW:
    """Matrices of layers, and the others."""

    def __init__(self, model, lr, decay, betas, adjust_lr_fn):
        named = list(model.named_parameters())
        hidden = [p for name, p in named if ".layers." in name and p.dim() == 2]
        ends = [p for name, p in named if ".layers." not in name and p.dim() == 2]
        vectors = [p for _, p in named if p.dim() == 1]
        self.parts = [
            torch.optim.Muon(hidden, lr=lr, weight_decay=decay, adjust_lr_fn=adjust_lr_fn),
            torch.optim.AdamW([dict(params=ends, weight_decay=decay),
                               dict(params=vectors, weight_decay=0.0)], lr=lr, betas=betas)]

    def step(self):
        for part in self.parts:
            part.step()


# ---- The curves ------------------------------------------------------------------------------------

def grouped(model, decay):
    params = list(model.parameters())
    return [dict(params=[p for p in params if (p.dim() > 1) == decayed],
                 weight_decay=decay if decayed else 0.0) for decayed in (True, False)]


def curve(lr, make, dtype):
    torch.manual_seed(0)
    model = make_model().to(dtype)
    ids = torch.from_numpy(
        np.stack([bits(3, k, LENGTH) % np.uint64(VOCAB) for k in range(SEQUENCES)]).astype(np.int64))
    update = make(model)
    owner = getattr(update, "__self__", None)
    losses, norms, averages = [], [], []
    for _ in range(STEPS):
        model.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        losses.append(float(f"{loss.item():.9g}"))
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        norms.append(float(f"{norm.item():.9g}"))
        update()
        if isinstance(owner, schedulefree.AdamWScheduleFree):
            weights = [p.detach().clone() for p in model.parameters()]
            owner.eval()
            with torch.no_grad():
                averages.append(float(f"{model(input_ids=ids, labels=ids).loss.item():.9g}"))
                owner.train()
                for p, weight in zip(model.parameters(), weights):
                    p.copy_(weight)
    return losses + averages, norms


def case(kind, lr, decay, **more):
    def make(model):
        if kind == "adafactor":
            groups = grouped(model, decay)
            return Adafactor(groups, lr=lr, **more).step
        if kind == "adam8bit":
            optimizer = Adam8bit(list(model.parameters()), more["betas"], 1e-8)
            return lambda: optimizer.step(lr, decay)
        if kind == "muon":
            return MuonBesideAdamW(model, lr, decay, **more).step
        if kind == "lion":
            return Lion(grouped(model, decay), lr=lr, **more).step
        if kind == "schedule-free":
            optimizer = schedulefree.AdamWScheduleFree(grouped(model, decay), lr=lr,
                                                       foreach=False, **more)
            optimizer.train()
            return optimizer.step
        classes = dict(adam=torch.optim.Adam, adamw=torch.optim.AdamW, sgd=torch.optim.SGD)
        return classes[kind](grouped(model, decay), lr=lr, **more).step
    losses, norms = curve(lr, make, torch.float32)
    averages = losses[STEPS:]
    made = dict(optimizer=kind, weight_decay=decay, lr=lr, losses=losses[:STEPS], grad_norms=norms)
    made |= more | (dict(averages=averages) if averages else {})
    # The difference between two correct results: the same in float64.
    others = curve(lr, make, torch.float64) if kind != "adam8bit" else (losses, norms)
    made["spread"] = max(abs(a / b - 1) for x, y in zip((losses, norms), others)
                         for a, b in zip(x, y))
    print(kind, lr, more, losses[-1], made["spread"], flush=True)
    return made


def main():
    torch.set_num_threads(1)
    betas = (0.9, 0.95)
    cases = {
        "adamw": case("adamw", 1e-3, 0.1, betas=betas),
        "adam": case("adam", 1e-3, 0.1, betas=betas),
        "sgd": case("sgd", 0.02, 0.1),
        "sgd_momentum": case("sgd", 0.01, 0.1, momentum=0.9, dampening=0.1),
        "sgd_nesterov": case("sgd", 0.01, 0.0, momentum=0.9, nesterov=True),
        "adafactor": case("adafactor", 1e-3, 0.1, scale_parameter=False, relative_step=False),
        "adafactor_scaled": case("adafactor", 1e-3, 0.0, scale_parameter=True, relative_step=False),
        "adam8bit": case("adam8bit", 1e-3, 0.1, betas=betas),
        "lion": case("lion", 1e-4, 0.1, betas=(0.9, 0.99)),
        "schedule_free": case("schedule-free", 1e-3, 0.1, betas=betas),
        "muon": case("muon", 1e-3, 0.1, betas=betas, adjust_lr_fn="match_rms_adamw"),
        "muon_original": case("muon", 1e-3, 0.1, betas=betas, adjust_lr_fn="original"),
    }
    made_by = (f"make_optimizer_golden.py, torch {torch.__version__}, transformers "
               f"{transformers.__version__}, numpy {np.__version__}, float32")
    with open(sys.argv[1], "w") as out:
        json.dump({"made_by": made_by, "cases": cases}, out, indent=1)
        out.write("\n")


main()
