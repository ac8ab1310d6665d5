#!/usr/bin/env python3
"""Weft against PyTorch in training: tokens a second and the larger rank's memory.

    bench/train.py TRAIN_TORCH [--python PYTHON] [--cases 1:bf16,1:f32,2:bf16:0,2:bf16:3]

TRAIN_TORCH is a script that takes --size smol --mode plain|ddp|deepspeed --precision --micro --seq
--steps --warmup and prints a JSON object with tokens_per_s and per_rank (peak_mib of each); PYTHON
has torch (and deepspeed for ZeRO). A case is RANKS:DTYPE[:ZERO]; the machine's cores are shared
out evenly. Random tokens, SmolLM2-135M's shape, sequence 512, micro-batch 4 on each rank. Each
round runs both, one after the other. Run nothing else meanwhile.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# glibc is told to keep freed memory, which spares PyTorch the page faults of every step.
KEEP = {"MALLOC_TOP_PAD_": "268435456", "MALLOC_MMAP_THRESHOLD_": "4294967296",
        "MALLOC_TRIM_THRESHOLD_": "17179869184"}


def weft(ranks, dtype, zero, options):
    words = [ROOT / "build/weft", "train", "synthetic:smollm2-135m", "--data",
             "synthetic:random-tokens:513:4096", "--seq-len", "512", "--micro-batch", "4",
             "--steps", str(options.steps), "--dtype", dtype, "--zero", str(zero),
             "--recompute", options.recompute, "--local", str(ranks), "--json",
             "-t", str(max(1, os.cpu_count() // ranks))]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=1800)
    if done.returncode != 0:
        sys.exit(f"weft: exit {done.returncode}\n{done.stderr[-2000:]}")
    last = json.loads(done.stdout.splitlines()[-1])
    return last["tokens_per_s"], max(last["peak_rss_bytes"]) / 2**20


def torch(ranks, dtype, zero, options):
    script = pathlib.Path(options.script).resolve()
    python = pathlib.Path(options.python)
    words = ["--size", "smol", "--precision", dtype, "--steps", str(options.steps), "--warmup", "2"]
    launch = [python]
    environment = {**os.environ, **KEEP, "PYTHONWARNINGS": "ignore", "GLOO_SOCKET_IFNAME": "lo",
                   "DS_ACCELERATOR": "cpu"}
    if ranks > 1:
        launch = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        environment["OMP_NUM_THREADS"] = str(max(1, os.cpu_count() // ranks))
        words += ["--mode", "deepspeed" if zero else "ddp"]
    with tempfile.TemporaryDirectory() as folder:
        if ranks > 1 and zero:
            config = pathlib.Path(folder) / "ds.json"
            config.write_text(json.dumps({
                "train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto",
                "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
                "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": zero}}))
            words += ["--ds-config", config, "--stage", str(zero)]
        done = subprocess.run([str(w) for w in launch + [script] + words], capture_output=True,
                              text=True, timeout=1800, env=environment)
    rows = [line for line in done.stdout.splitlines() if '"tokens_per_s"' in line]
    if not rows:
        return None
    row = json.loads(rows[-1])
    return row["tokens_per_s"], max(rank["peak_mib"] for rank in row["per_rank"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("script")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cases", default="1:bf16,1:f32,2:bf16:0,2:bf16:3")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--recompute", default="selective")
    options = parser.parse_args()
    print("| ranks | numbers | ZeRO | weft tok/s | torch tok/s | ratio | weft MiB | torch MiB |")
    print("|---|---|---|---|---|---|---|---|")
    for case in options.cases.split(","):
        ranks, dtype, zero = (case.split(":") + ["0"])[:3]
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours.append(weft(int(ranks), dtype, int(zero), options))
            theirs.append(torch(int(ranks), dtype, int(zero), options))
        speed, memory = (statistics.median(column) for column in zip(*ours))
        if None in theirs:
            print(f"| {ranks} | {dtype} | {zero} | {speed:.0f} | failed | | {memory:.0f} | |")
            continue
        peer, peer_memory = (statistics.median(column) for column in zip(*theirs))
        print(f"| {ranks} | {dtype} | {zero} | {speed:.0f} | {peer:.0f} | {speed / peer:.2f} | "
              f"{memory:.0f} | {peer_memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
