#!/usr/bin/env python3
"""Weft against llama.cpp on models with experts or latent attention, cut to a few layers.

    bench/experts.py PEERS [--models qwen3-30b-a3b:q4_0:4,deepseek-r1:q4_0:4] [--threads 2]

A model is NAME:DTYPE:LAYERS, with a shape that `synthetic:` knows;
build/bench/model_files_bench writes it once, with random weights, into Weft's cache folder. PEERS
is a folder with llama-bench (directly, or in llama/build/bin/). Each round runs both programs in
turn; ratios are taken within a round. Run nothing else meanwhile.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def model_file(words):
    name, dtype, layers = words.split(":")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = pathlib.Path(home) / "weft" / f"synthetic-{name}-{dtype}-{layers}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        maker = ROOT / "build/bench/model_files_bench"
        subprocess.run([maker, f"synthetic:{name}:{dtype}:layers={layers}", part], check=True,
                       stdout=subprocess.DEVNULL)
        part.rename(path)
    return path


def speeds(command):
    """(prefill, decode) in tokens a second, from llama-bench's fields."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=1200)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr[-2000:]}")
    rows = json.loads(done.stdout)
    return tuple(next(row["avg_ts"] for row in rows if bool(row["n_gen"]) == decode)
                 for decode in (False, True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peers")
    parser.add_argument("--models", default="qwen3-30b-a3b:q4_0:4,deepseek-r1:q4_0:4")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", default="512")
    parser.add_argument("--generate", default="64")
    options = parser.parse_args()
    peers = pathlib.Path(options.peers).resolve()
    llama = next((f / "llama-bench" for f in (peers, peers / "llama/build/bin")
                  if (f / "llama-bench").exists()), None)
    if llama is None:
        sys.exit(f"no llama-bench in {peers}")
    sizes = ["-t", options.threads, "-p", options.prompt, "-n", options.generate, "-r", "1",
             "-o", "json"]
    for words in options.models.split(","):
        path = model_file(words)
        rounds = [(speeds([ROOT / "build/weft", "bench", path, *sizes]),
                   speeds([llama, "-m", path, *sizes])) for _ in range(options.rounds)]
        for kind, name in enumerate(("prefill", "decode")):
            weft = statistics.median(w[kind] for w, _ in rounds)
            peer = statistics.median(p[kind] for _, p in rounds)
            ratios = [w[kind] / p[kind] for w, p in rounds]
            print(f"{words} {name}: weft {weft:.2f} tok/s, llama.cpp {peer:.2f}, ratio "
                  f"{statistics.median(ratios):.2f} ({min(ratios):.2f} .. {max(ratios):.2f})")


main()
