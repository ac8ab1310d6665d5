#!/usr/bin/env python3
"""Writes tests/data/loss_scales.json: the scales of dynamic loss scalers after overflows.

Each case has the options of a scaler, a string with 'x' for a step that overflows and '.' for any
other step, and the scale after each step; "ends" is the step whose overflow ends the run
(DeepSpeed, at its least scale). random.Random(seed) draws the steps, with more overflows at high
scales. "deepspeed" cases come from deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler, "torch"
cases from torch.amp.GradScaler, whose gradient is infinite in steps that overflow.

Made with Python 3.11, torch 2.13.0+cpu, deepspeed 0.19.8:
    python3 tools/make_loss_scale_golden.py tests/data/loss_scales.json
"""

import json
import random
import sys

import torch
from deepspeed.runtime.fp16 import loss_scaler

STEPS = 60
loss_scaler.dist.get_rank = lambda: 1  # (it reports overflows on rank 0)


def draw(rng, scale, edge):
    return rng.random() < (0.6 if scale >= edge else 0.08)


def deepspeed_case(seed, power, window, hysteresis, consecutive, least, edge):
    rng = random.Random(seed)
    scaler = loss_scaler.DynamicLossScaler(
        init_scale=2**power, scale_window=window, min_scale=least, delayed_shift=hysteresis,
        consecutive_hysteresis=consecutive)
    steps, scales, ends = "", [], None
    for step in range(STEPS):
        overflow = draw(rng, scaler.cur_scale, edge)
        steps += "x" if overflow else "."
        try:
            scaler.update_scale(overflow)
        except Exception:
            ends = step
            break
        scales.append(scaler.cur_scale)
    return {"of": "deepspeed", "power": power, "window": window, "hysteresis": hysteresis,
            "consecutive": consecutive, "least": least, "steps": steps, "scales": scales,
            "ends": ends}


def torch_case(seed, power, window, edge):
    rng = random.Random(seed)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**power, growth_interval=window)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    steps, scales = "", []
    for _ in range(STEPS):
        overflow = draw(rng, scaler.get_scale(), edge)
        steps += "x" if overflow else "."
        scaler.scale(weight.sum())  # (the first loss initializes it)
        weight.grad = torch.full((1,), float("inf") if overflow else 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return {"of": "torch", "power": power, "window": window, "hysteresis": 1, "consecutive": False,
            "least": 0, "steps": steps, "scales": scales, "ends": None}


def main():
    cases = [
        deepspeed_case(1, 16, 4, 2, False, 1, 2**15),
        deepspeed_case(2, 16, 4, 2, True, 1, 2**15),
        deepspeed_case(3, 12, 1, 1, False, 1, 2**14),
        deepspeed_case(4, 10, 3, 3, False, 64, 2**8),
        deepspeed_case(5, 6, 5, 2, False, 3, 2**3),
        deepspeed_case(6, 6, 5, 2, True, 0.25, 2**-1),
        deepspeed_case(7, 8, 7, 1, False, 1, 2**7),
        torch_case(8, 16, 4, 2**15),
        torch_case(9, 16, 1, 2**14),
        torch_case(10, 3, 6, 2**2),
    ]
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
