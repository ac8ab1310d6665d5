#!/usr/bin/env python3
"""Predictions of `weft plan` for this machine against results of `weft bench` and `weft train`.

    bench/plan.py build/weft                 all cases; takes ten minutes of an idle machine
    bench/plan.py build/weft --only one      one place: one, shm or tcp

A place is a number of local ranks and their transport. `weft plan --measure` measures each place;
each case is then predicted from that file and run. Prints a line per case, and the median error.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

PLACES = {"one": (1, "auto"), "shm": (2, "shm"), "tcp": (2, "tcp")}
TYPES = "q4_0,q8_0"
EXPERTS = "qwen3-30b-a3b:q8_0:layers=2"
# Model, KV cache type, sequences, depth, prompt (0: times tokens).
INFERENCE = [("smollm2-135m:q8_0", "f16", 1, 0, 0), ("smollm2-135m:q4_0", "f16", 4, 0, 0),
             ("qwen3-0.6b:q4_0", "f16", 1, 2048, 0), ("qwen3-0.6b:q8_0", "q8_0", 8, 256, 0),
             ("llama-3.2-1b:q4_0:layers=4", "f32", 1, 2048, 0),
             ("llama-3.2-1b:q8_0:layers=4", "f16", 1, 0, 64), ("qwen3-0.6b:q4_0", "f16", 1, 0, 512),
             (EXPERTS, "f16", 1, 0, 0), (EXPERTS, "f16", 8, 256, 0), (EXPERTS, "f16", 1, 0, 256)]
# Model, dtype, ZeRO with two replicas, recomputation, length, micro-batch.
TRAINING = [("smollm2-135m:bf16:layers=4", "bf16", 0, "none", 128, 2),
            ("smollm2-135m:bf16:layers=8", "f32", 2, "none", 256, 1),
            ("qwen3-0.6b:bf16:layers=2", "bf16", 3, "full", 512, 1)]
TOKENS = 16
LIMIT_S = 600


def call(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def bench(weft, where, file, case, cut):
    model, kv, seqs, depth, prompt = case
    load = ["-p", prompt, "-n", 0] if prompt else ["-p", 0, "-n", TOKENS, "-d", depth]
    row = json.loads(call(weft, "bench", f"synthetic:{model}", *where, *cut, "--kv-dtype", kv,
                          "--seqs", seqs, *load, "-r", 5, "--machines", file, "--json"))[0]
    return statistics.median(row["samples_ts"]), row["predicted_ts"]


def train(weft, where, file, case, ranks):
    model, dtype, zero, recompute, length, micro = case
    cut = ["--dp", ranks, "--zero", zero if ranks > 1 else 0, "--micro-batch", micro,
           "--seq-len", length, "--dtype", dtype, "--recompute", recompute]
    lines = call(weft, "train", f"synthetic:{model}", *where, *cut, "--data",
                 f"synthetic:random-tokens:{length + 1}", "--steps", 5, "--no-output", "--json")
    steps = [row for row in map(json.loads, lines.splitlines()) if "step" in row]
    planned = json.loads(call(weft, "plan", f"synthetic:{model}", "--train", "--machines", file,
                              *cut, "--json"))
    return (statistics.median(step["tokens_per_s"] for step in steps[1:]),
            planned["layouts"][0]["tokens_per_s"])


def compare(weft, place, folder):
    ranks, transport = PLACES[place]
    where = ["--transport", transport, "-t", 1] + (["--local", ranks] if ranks > 1 else [])
    file = pathlib.Path(folder) / f"{place}.json"
    call(weft, "plan", "--measure", *where, "--types", TYPES, "-o", file)
    for case in INFERENCE:
        for tp in {1, ranks}:
            words = [f"tp{tp} pp{ranks // tp}", *map(str, case)]
            yield words, bench(weft, where, file, case, ["--tp", tp, "--pp", ranks // tp])
    for case in TRAINING:
        yield [f"dp{ranks}", *map(str, case)], train(weft, where, file, case, ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--only", choices=PLACES)
    parser.add_argument("--bound", type=float, help="fail if the median error is above this share")
    args = parser.parse_args()
    errors = []
    print("| case | measured tok/s | predicted | error |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for place in [args.only] if args.only else PLACES:
            for words, (measured, predicted) in compare(args.weft, place, folder):
                errors.append(predicted / measured - 1)
                print(f"| {place}, {', '.join(words)} | {measured:.1f} | {predicted:.1f} | "
                      f"{errors[-1] * 100:+.0f} % |", flush=True)
    median = statistics.median(map(abs, errors))
    print(f"\n{len(errors)} cases: median error {median * 100:.1f} %, "
          f"worst {max(map(abs, errors)) * 100:.0f} %")
    if args.bound is not None and not median <= args.bound:
        sys.exit(f"the median error is above {args.bound * 100:.0f} %")


if __name__ == "__main__":
    main()
