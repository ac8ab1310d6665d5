#!/usr/bin/env python3
"""Makes tests/data/schedules.json: learning rates from DeepSpeed's own classes.

    DS_ACCELERATOR=cpu python3 tools/make_schedule_golden.py tests/data/schedules.json

Made with deepspeed 0.19.8 and torch 2.13.0 (CPU). No random numbers. Each case: the class, its
arguments, and the rate of each update (the optimizer steps first, then the scheduler, as in
DeepSpeed's engine).
"""
import json
import sys

import torch
from deepspeed.runtime import lr_schedules

STEPS = 40
RATE = 3e-4
CASES = [
    ("WarmupLR", dict(warmup_min_lr=0.0, warmup_max_lr=1e-3, warmup_num_steps=10)),
    ("WarmupLR", dict(warmup_min_lr=1e-5, warmup_max_lr=1e-3, warmup_num_steps=10,
                      warmup_type="linear")),
    ("WarmupLR", dict(warmup_min_lr=1e-5, warmup_max_lr=2e-4, warmup_num_steps=1)),
    ("WarmupLR", dict(warmup_num_steps=7, warmup_max_lr=5e-4, warmup_type="log")),
    ("WarmupDecayLR", dict(total_num_steps=30, warmup_min_lr=1e-5, warmup_max_lr=1e-3,
                           warmup_num_steps=10)),
    ("WarmupDecayLR", dict(total_num_steps=30, warmup_max_lr=1e-3, warmup_num_steps=5,
                           warmup_type="linear")),
    ("WarmupDecayLR", dict(total_num_steps=4, warmup_max_lr=1e-3, warmup_num_steps=10)),
    ("WarmupCosineLR", dict(total_num_steps=30, warmup_num_steps=10)),
    ("WarmupCosineLR", dict(total_num_steps=30, warmup_num_steps=10, warmup_min_ratio=0.1,
                            cos_min_ratio=0.05, warmup_type="linear")),
    ("WarmupCosineLR", dict(total_num_steps=12, warmup_num_steps=1, cos_min_ratio=0.0)),
]


def main():
    cases = []
    for name, params in CASES:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
        scheduler = getattr(lr_schedules, name)(optimizer, **params)
        rates = []
        for _ in range(STEPS):
            rates.append(float(optimizer.param_groups[0]["lr"]))
            scheduler.step()
        cases.append({"type": name, "params": params, "rates": rates})
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"optimizer_lr": RATE, "cases": cases}, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
