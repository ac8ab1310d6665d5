#!/usr/bin/env python3
"""Weft against PyTorch in training: tokens per second and the larger rank's memory.

    bench/train.py TRAIN_TORCH [--python PYTHON] [--cases smol:1:bf16,smol:2:bf16:3,tiny:1:f32]

TRAIN_TORCH is a script that takes --size tiny|smol --mode plain|ddp|deepspeed --precision --micro
--seq --steps --warmup --compile --lora --model, and prints a JSON object with tokens_per_s,
quiet_steps and per_rank (peak_mib of each); PYTHON has torch (and deepspeed for ZeRO, peft for
LoRA). A case is SHAPE:RANKS:DTYPE[:ZERO]; the ranks divide the machine's cores evenly. Shapes: tiny
(4 layers, 3.4 M), smol (SmolLM2-135M), lora (adapters of rank 16 for four layers of Llama 3.2 1B:
Q4_K in Weft, BF16 in PyTorch). Random tokens, sequence 512, micro-batch 4 on each rank (lora: 1).
Each round runs both programs in turn; --compile also runs PyTorch compiled, and the better result
counts. Run nothing else meanwhile.
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
# glibc keeps freed memory, which spares PyTorch page faults in every step.
KEEP = {"MALLOC_TOP_PAD_": "268435456", "MALLOC_MMAP_THRESHOLD_": "4294967296",
        "MALLOC_TRIM_THRESHOLD_": "17179869184"}
TINY = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1024,
        "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6, "max_position_embeddings": 1024, "hidden_act": "silu",
        "tie_word_embeddings": False}
LORA_LAYERS = 4
LORA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256,
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": LORA_LAYERS,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
        "rope_theta": 500000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
        "hidden_act": "silu", "tie_word_embeddings": True}
# Random weights for PyTorch's LoRA, which needs a folder.
MAKE = """
import sys, torch, transformers
config = transformers.LlamaConfig.from_pretrained(sys.argv[1])
model = transformers.LlamaForCausalLM._from_config(config, dtype=torch.bfloat16)
model.save_pretrained(sys.argv[1])
"""


def one_token_a_byte(folder):
    """A tokenizer for a model that reads random tokens: bytes, as in byte-level BPE."""
    shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    hidden = [b for b in range(256) if b not in shown]
    letters = [chr(b) for b in shown] + [chr(256 + i) for i in range(len(hidden))]
    letters += [f"<{i}>" for i in range(256, TINY["vocab_size"])]
    vocabulary = {letter: i for i, letter in enumerate(letters)}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))


def weft(shape, ranks, dtype, zero, options, folder):
    vocabulary, micro, model = 49152, 4, ["synthetic:smollm2-135m"]
    if shape == "tiny":
        (folder / "config.json").write_text(json.dumps(TINY))
        one_token_a_byte(folder)
        model = [folder, "--from-scratch"]
    if shape == "lora":
        micro, model = 1, [f"synthetic:llama-3.2-1b:q4_k:layers={LORA_LAYERS}", "--lora", "16"]
    words = [ROOT / "build/weft", "train", *model, "--data",
             "synthetic:random-tokens:513:4096", "--seq-len", "512", "--micro-batch", str(micro),
             "--steps", str(options.steps), "--dtype", dtype, "--zero", str(zero),
             "--recompute", options.recompute, "--local", str(ranks), "--json", "--no-output",
             "-t", str(max(1, os.cpu_count() // ranks))]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=1800)
    if done.returncode != 0:
        sys.exit(f"weft: exit {done.returncode}\n{done.stderr[-2000:]}")
    last = json.loads(done.stdout.splitlines()[-1])
    return last["tokens_per_s"], max(last["peak_rss_bytes"]) / 2**20


def torch(shape, ranks, dtype, zero, options, folder, compiled):
    script = pathlib.Path(options.script).resolve()
    python = pathlib.Path(options.python)
    words = ["--precision", dtype, "--steps", str(options.steps), "--warmup", "2"]
    words += ["--compile"] if compiled else []
    if shape == "lora":
        (folder / "config.json").write_text(json.dumps(LORA))
        subprocess.run([str(python), "-c", MAKE, str(folder)], check=True, capture_output=True)
        words += ["--model", folder, "--lora", "16", "--micro", "1"]
    else:
        words += ["--size", shape]
    launch = [python]
    environment = {**os.environ, **KEEP, "PYTHONWARNINGS": "ignore", "GLOO_SOCKET_IFNAME": "lo",
                   "DS_ACCELERATOR": "cpu"}
    if ranks > 1:
        launch = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        environment["OMP_NUM_THREADS"] = str(max(1, os.cpu_count() // ranks))
        words += ["--mode", "deepspeed" if zero else "ddp"]
    if ranks > 1 and zero:
        config = folder / "ds.json"
        config.write_text(json.dumps({
            "train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto",
            "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
            "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": zero}}))
        words += ["--ds-config", config, "--stage", str(zero)]
    done = subprocess.run([str(w) for w in launch + [script] + words], capture_output=True,
                          text=True, timeout=1800, env=environment)
    rows = [line for line in done.stdout.splitlines() if '"tokens_per_s"' in line]
    if not rows:
        print(done.stderr[-1000:], file=sys.stderr)
        return None
    row = json.loads(rows[-1])
    if row.get("quiet_steps", 3) < 3:
        print(f"torch: only {row['quiet_steps']} quiet steps", file=sys.stderr)
    return row["tokens_per_s"], max(rank["peak_mib"] for rank in row["per_rank"])


def measure(case, options):
    shape, ranks, dtype, zero = (case.split(":") + ["0"])[:4]
    ours, theirs = [], []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            words = (shape, int(ranks), dtype, int(zero), options, pathlib.Path(folder))
            ours.append(weft(*words))
            runs = [torch(*words, compiled=False)]
            if options.compile:
                runs.append(torch(*words, compiled=True))
            runs = [run for run in runs if run is not None]
            theirs.append(max(runs) if runs else None)
    speed, memory = (statistics.median(column) for column in zip(*ours))
    head = f"| {shape} | {ranks} | {dtype} | {zero} | {speed:.0f} |"
    if None in theirs:
        return f"{head} failed | | {memory:.0f} | | |"
    peer, peer_memory = (statistics.median(column) for column in zip(*theirs))
    return (f"{head} {peer:.0f} | {speed / peer:.2f} | {memory:.0f} | {peer_memory:.0f} | "
            f"{memory / peer_memory:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("script")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cases",
                        default="smol:1:bf16,smol:1:f32,smol:2:bf16:0,smol:2:bf16:3,tiny:1:bf16")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--recompute", default="selective")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    print("| shape | ranks | numbers | ZeRO | weft tok/s | torch tok/s | ratio | weft MiB | "
          "torch MiB | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case in options.cases.split(","):
        print(measure(case, options), flush=True)


if __name__ == "__main__":
    main()
