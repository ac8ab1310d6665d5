#!/usr/bin/env python3
"""Losses, derivatives and advantages of TRL's GRPOTrainer, for tests/train/grpo_test.cc.

    python3 -m venv venv
    venv/bin/pip install torch==2.13.0 transformers==5.24 trl==1.16
    venv/bin/python tools/make_grpo_golden.py tests/data/grpo_losses.json

GRPOTrainer._compute_loss gets log-probabilities in place of a model's, in float64. The numbers come
from a fixed seed. Each case has the options, the log-probabilities of each completion (new, old,
reference), the advantages, the loss, and its derivative by each new log-probability.
"""
import collections
import itertools
import json
import sys
import types

import torch
import transformers
import trl

LENGTHS, MOST = (5, 1, 7, 3), 9


def trainer_of(options, new):
    trainer = object.__new__(trl.GRPOTrainer)
    same = types.SimpleNamespace(num_processes=1, gather=lambda x: x, sync_gradients=True,
                                 reduce=lambda x, reduction: x, device="cpu")
    values = dict(
        accelerator=same, model=types.SimpleNamespace(training=True), top_entropy_quantile=1.0,
        off_policy_mask_threshold=None, importance_sampling_level=options["importance_level"],
        beta=options["beta"], loss_type=options["loss_type"], epsilon_low=options["epsilon"],
        epsilon_high=options["epsilon_high"], use_vllm=False, aux_loss_enabled=False,
        _entropy_bonus_enabled=False, current_gradient_accumulation_steps=1,
        max_completion_length=MOST, _metrics=collections.defaultdict(
            lambda: collections.defaultdict(list)),
        args=types.SimpleNamespace(delta=None, use_bias_correction_kl=True,
                                   steps_per_generation=1))
    for name, value in values.items():
        object.__setattr__(trainer, name, value)
    trainer._get_per_token_logps_and_entropies = \
        lambda *_, **__: (new, torch.zeros_like(new), None)
    return trainer


def case(options, generator):
    rows, cols = len(LENGTHS), max(LENGTHS)
    mask = torch.tensor([[1.0 if t < n else 0.0 for t in range(cols)] for n in LENGTHS],
                        dtype=torch.float64)

    def numbers(scale):
        return torch.randn((rows, cols), generator=generator, dtype=torch.float64) * scale
    # (Float32, as Weft gets them.)
    new = (-numbers(1.0).abs()).float().double().requires_grad_()
    old = (new.detach() + numbers(options["change"])).float().double()
    ref = (new.detach() + numbers(0.5)).float().double()
    advantages = torch.randn(rows, generator=generator, dtype=torch.float64)
    inputs = dict(prompt_ids=torch.zeros((rows, 1), dtype=torch.long), prompt_mask=mask[:, :1],
                  completion_ids=torch.zeros((rows, cols), dtype=torch.long), completion_mask=mask,
                  advantages=advantages, ref_per_token_logps=ref,
                  num_items_in_batch=mask.sum())
    if options["change"] > 0:
        inputs["old_per_token_logps"] = old
    trainer = trainer_of(options, new)
    loss = trainer._compute_loss(None, inputs)
    loss.backward()

    def lists(values):
        return [values[i, :n].tolist() for i, n in enumerate(LENGTHS)]
    metrics = trainer._metrics["train"]
    made = dict(options, new=lists(new.detach()), ref=lists(ref), advantages=advantages.tolist(),
                old=lists(old) if options["change"] > 0 else [], loss=loss.item(),
                slopes=lists(new.grad), kl=metrics["kl"][0] if options["beta"] else 0)
    return made


def advantages(generator):
    """As in GRPOTrainer._generate_and_score_completions."""
    rewards = torch.randn(12, generator=generator, dtype=torch.float64)
    rewards[4:8] = 0.3
    groups = rewards.view(-1, 4)
    mean = groups.mean(dim=1).repeat_interleave(4)
    made = dict(rewards=rewards.tolist(), size=4)
    for scale, std in (("group", groups.std(dim=1).repeat_interleave(4)),
                       ("batch", rewards.std().expand_as(rewards)), ("none", None)):
        value = rewards - mean
        made[scale] = (value if std is None else value / (std + 1e-4)).tolist()
    return made


def main():
    generator = torch.Generator().manual_seed(1)
    cases = []
    for kind, level, beta, change in itertools.product(
            ("grpo", "bnpo", "dr_grpo", "dapo"), ("token", "sequence"), (0.0, 0.3), (0.0, 0.4)):
        cases.append(case(dict(loss_type=kind, importance_level=level, beta=beta, epsilon=0.2,
                               epsilon_high=0.28, change=change), generator))
    golden = dict(made_by=f"tools/make_grpo_golden.py with trl {trl.__version__}, transformers "
                          f"{transformers.__version__}, torch {torch.__version__}",
                  most=MOST, cases=cases, advantages=advantages(generator))
    with open(sys.argv[1], "w") as file:
        json.dump(golden, file, indent=None, separators=(",", ":"))
        file.write("\n")


main()
