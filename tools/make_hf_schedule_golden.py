#!/usr/bin/env python3
"""Makes tests/data/hf_schedules.json: learning rates from transformers' own schedulers.

    python3 tools/make_hf_schedule_golden.py tests/data/hf_schedules.json

Made with transformers 5.24.0 and torch 2.13.0 (CPU). No random numbers. Each case: Weft's options,
and the rate of each update and of the one after the last. (Beyond it, Weft's rate stays, and
transformers' cosine rises again.)
"""
import json
import math
import sys

import torch
from transformers import optimization as hf

STEPS = 40
RATE = 3e-4
CASES = [
    {"schedule": "constant"},
    {"schedule": "constant", "warmup_steps": 7},
    {"schedule": "linear"},
    {"schedule": "linear", "warmup_ratio": 0.07},
    {"schedule": "linear", "warmup_steps": 5, "min_lr": 2e-5},
    {"schedule": "cosine", "warmup_ratio": 0.1},
    {"schedule": "cosine", "warmup_steps": 3, "min_lr": 1e-5},
    {"schedule": "cosine", "min_lr_rate": 0.1},
    {"schedule": "warmup_stable_decay", "decay_steps": 4},
    {"schedule": "warmup_stable_decay", "warmup_steps": 6, "min_lr_rate": 0.1, "decay_steps": 9},
    {"schedule": "warmup_stable_decay", "warmup_ratio": 0.03, "decay_steps": 11,
     "decay_type": "cosine"},
    {"schedule": "warmup_stable_decay", "warmup_steps": 2, "min_lr": 3e-6, "decay_steps": 38,
     "decay_type": "1-sqrt"},
]


def scheduler_of(case, optimizer):
    warmup = case.get("warmup_steps", 0) or math.ceil(STEPS * case.get("warmup_ratio", 0))
    least = case.get("min_lr", RATE * case.get("min_lr_rate", 0))
    if case["schedule"] == "constant":
        return hf.get_constant_schedule_with_warmup(optimizer, warmup)
    if case["schedule"] == "linear" and least > 0:
        return hf.get_polynomial_decay_schedule_with_warmup(optimizer, warmup, STEPS, lr_end=least,
                                                            power=1.0)
    if case["schedule"] == "linear":
        return hf.get_linear_schedule_with_warmup(optimizer, warmup, STEPS)
    if case["schedule"] == "cosine" and least > 0:
        return hf.get_cosine_with_min_lr_schedule_with_warmup(optimizer, warmup, STEPS,
                                                              min_lr=least)
    if case["schedule"] == "cosine":
        return hf.get_cosine_schedule_with_warmup(optimizer, warmup, STEPS)
    return hf.get_wsd_schedule(optimizer, warmup, case["decay_steps"], num_training_steps=STEPS,
                               decay_type=case.get("decay_type", "linear"),
                               min_lr_ratio=least / RATE)


def main():
    cases = []
    for case in CASES:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
        scheduler = scheduler_of(case, optimizer)
        rates = []
        for _ in range(STEPS + 1):
            rates.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            scheduler.step()
        cases.append({"weft": case, "rates": rates})
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"rate": RATE, "steps": STEPS, "cases": cases}, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
