#!/usr/bin/env python3
"""What `weft plan` predicts for this machine against what `weft bench` measures on it.

    bench/plan.py build/weft                  all 100 combinations: an idle machine, half an hour
    bench/plan.py build/weft --count 10       the first ten of the same order

One machine file for each number of ranks (`weft plan --measure`), made before all else; then each
combination of model, type, ranks, sequences, depth or prompt is run and predicted by that file.
Nothing is fitted on what it is compared with. Prints a line each, the median and the worst error.
"""
import argparse
import itertools
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

MODELS = ["synthetic:smollm2-135m", "synthetic:qwen3-0.6b", "synthetic:llama-3.2-1b:{}:layers=4"]
TYPES = ["q4_0", "q8_0"]
RANKS = [1, 2]
# Sequences, depth, prompt (0: tokens are timed, not a prompt).
LOADS = [(1, 0, 0), (1, 512, 0), (1, 2048, 0), (2, 256, 0), (4, 0, 0), (8, 256, 0),
         (1, 0, 64), (1, 0, 256), (1, 0, 512)]
TOKENS = 16


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def combinations(count):
    every = list(itertools.product(MODELS, TYPES, RANKS, LOADS))
    random.Random(1).shuffle(every)
    return every[:count]


def spec(model, dtype):
    return model.format(dtype) if "{}" in model else f"{model}:{dtype}"


def measured(weft, model, ranks, threads, load):
    seqs, depth, prompt = load
    command = [weft, "bench", model, "--local", str(ranks), "--tp", str(ranks), "-t", str(threads),
               "-r", "3", "--seqs", str(seqs), "--json"]
    if prompt > 0:
        command += ["-p", str(prompt), "-n", "0"]
    else:
        command += ["-p", "0", "-n", str(TOKENS), "-d", str(depth)]
    return json.loads(run(command))[0]["avg_ts"]


def predicted(weft, model, machine, ranks, load):
    seqs, depth, prompt = load
    context = prompt if prompt > 0 else depth + TOKENS // 2
    command = [weft, "plan", model, "--machines", machine, "--context", str(context), "--batch",
               str(seqs), "--json"]
    layouts = json.loads(run(command))["layouts"]
    row = next(r for r in layouts if r["tp"] == ranks and r["pp"] == 1 and r["ep"] == 1)
    return row["prompt_tok_s"] if prompt > 0 else row["tok_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("weft")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    args = parser.parse_args()
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for ranks in RANKS:
            files[ranks] = str(pathlib.Path(folder) / f"ranks{ranks}.json")
            run([args.weft, "plan", "--measure", "--local", str(ranks), "-t", str(args.threads),
                 "--types", ",".join(TYPES), "-o", files[ranks]])
        print("| model | ranks | sequences | depth | prompt | measured tok/s | predicted | error |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        for model, dtype, ranks, load in combinations(args.count):
            name = spec(model, dtype)
            was = measured(args.weft, name, ranks, args.threads, load)
            said = predicted(args.weft, name, files[ranks], ranks, load)
            errors.append(said / was - 1)
            seqs, depth, prompt = load
            print(f"| {name.removeprefix('synthetic:')} | {ranks} | {seqs} | {depth} | {prompt} | "
                  f"{was:.1f} | {said:.1f} | {errors[-1] * 100:+.0f} % |", flush=True)
    sizes = [abs(e) for e in errors]
    print(f"\n{len(sizes)} combinations: median error {statistics.median(sizes) * 100:.0f} %, "
          f"worst {max(sizes) * 100:.0f} %")


if __name__ == "__main__":
    main()
