#!/usr/bin/env python3
"""Weft against llama.cpp for every weight type: decode and a prompt of 512, on the same cores.

    bench/weight_types.py PEERS [--types q4_0,iq2_xs,...] [--rounds 2] [--layers 4] [--depth 0]

PEERS is a folder with llama.cpp's llama-bench (directly, or in llama/build/bin/). For each type,
build/bench/model_files_bench writes the first layers of the shape of Llama-3.2-1B with random
weights of that type into the cache. (The embedding, which is also the output matrix, has the same
type; for 4-bit types Q6_K.) In each round, both programs run that file in turn. Speed does not
depend on the weights' values. Ratios are taken within a round; the table shows medians.

    read   share of the memory's read bandwidth in decoding, which reads all weights once per token
    peak   share of the cores' int8 dot products (float types: float products) in prefill
    kept   with --depth N: decode speed after N tokens over decode speed after none
    due    the value of `kept` expected from the bytes of KV cache and weights

The limits are measured in the same round. Run nothing else meanwhile. Needs the release build:
./test builds it. For processors without AVX-512, set WEFT_CPU=avx2 and build llama.cpp with
-DGGML_NATIVE=OFF -DGGML_AVX512=OFF (AVX2, FMA, F16C and BMI2 on); their targets are for --prompt
128.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TYPES = ("q4_0,q4_1,q5_0,q5_1,q8_0,q2_k,q3_k,q4_k,q5_k,q6_k,iq1_s,iq1_m,iq2_xxs,iq2_xs,iq2_s,"
         "iq3_xxs,iq3_s,iq4_nl,iq4_xs,tq1_0,tq2_0,mxfp4,bf16,f16")
LAYER_WEIGHTS = 60_817_408  # of Llama-3.2-1B
KV_BYTES = 2 * 512 * 2  # per token and layer, f16
FLOATS = ("f32", "f16", "bf16")
# Target ratios (decode, prefill) on two threads; IQ types: (1.3, 1.5).
WANTED = {"q4_0": (1.7, 2), "q4_k": (1.7, 2), "q6_k": (1.7, 1.6), "q8_0": (1.7, 3),
          "bf16": (1.3, 1.5), "q2_k": (1.3, 1.5), "q3_k": (1.3, 1.5)}
WANTED_AVX2 = {"q4_0": (0, 1.5), "q4_k": (0, 1.5), "q8_0": (0, 1.5), "q6_k": (0, 1.3),
               "bf16": (0, 1.3)}


def wanted(name):
    if os.environ.get("WEFT_CPU") == "avx2":
        return WANTED_AVX2.get(name, (0, 0))
    return WANTED.get(name, (1.3, 1.5) if name.startswith("iq") else (0, 0))


class Bench:
    def __init__(self, options):
        self.options = options
        peers = pathlib.Path(options.peers).resolve()
        folders = [peers, peers / "llama/build/bin", peers / "build/bin"]
        folder = next((f for f in folders if (f / "llama-bench").exists()), None)
        if folder is None:
            sys.exit(f"no llama-bench in {', '.join(map(str, folders))}")
        self.llama = [folder / "llama-bench", "-m"]
        self.build = pathlib.Path(options.build)
        self.weft = [self.build / "weft", "bench"]

    def call(self, *command):
        words = [str(word) for word in command]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=600)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}\n{done.stderr[-400:]}")
        return done.stdout

    def model(self, name):
        home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
        path = home / f"weft/types-{name}-{self.options.layers}.gguf"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            spec = f"synthetic:llama-3.2-1b:{name}:layers={self.options.layers}"
            self.call(self.build / "bench/model_files_bench", spec, part)
            part.rename(path)
        return path

    def speeds(self, program, path):
        """{"decode", "prefill", "deep"} in tokens per second, from llama-bench's fields."""
        options = self.options
        depth = ["-d", f"0,{options.depth}"] if options.depth else []
        found = {"decode": 0.0, "prefill": 0.0, "deep": 0.0}
        for row in json.loads(self.call(*program, path, "-p", options.prompt, "-n",
                                        options.generate, "-r", 1, "-t", options.threads, "-o",
                                        "json", *depth)):
            deep = row["n_depth"] > 0
            if row["n_gen"] > 0:
                found["deep" if deep else "decode"] = row["avg_ts"]
            elif not deep:
                found["prefill"] = row["avg_ts"]
        return found

    def round(self, path):
        limits = self.call(self.build / "bench/matmul_bench", self.options.threads, "limits")
        return {"limits": json.loads(limits), "llama": self.speeds(self.llama, path),
                "weft": self.speeds(self.weft, path)}


def median(rounds, value):
    return statistics.median(value(taken) for taken in rounds)


def verdict(ratio, least):
    return f"{ratio:5.2f}{'' if least == 0 else ' ok' if ratio >= least else f' <{least}'}"


def print_row(name, rounds, options, size):
    peak = "float_gop_s" if name in FLOATS else "int8_gop_s"
    least = wanted(name)
    share = median(rounds, lambda r: r["weft"]["decode"] * size / 1e7 / r["limits"]["read_gb_s"])
    products = 2e-7 * LAYER_WEIGHTS * options.layers
    reached = median(rounds, lambda r: r["weft"]["prefill"] * products / r["limits"][peak])
    line = f"{name:8}"
    for kind, at_least in (("decode", least[0]), ("prefill", least[1])):
        for program in ("weft", "llama"):
            line += f"{median(rounds, lambda r: r[program][kind]):9.1f}"
        ratio = median(rounds, lambda r: r["weft"][kind] / r["llama"][kind])
        line += f"  {verdict(ratio, at_least):10}"
        line += f"{share if kind == 'decode' else reached:4.0f} %"
    if options.depth:
        due = size / (size + KV_BYTES * options.layers * (options.depth + options.generate / 2))
        for program in ("weft", "llama"):
            line += f"{median(rounds, lambda r: r[program]['deep'] / r[program]['decode']):7.2f}"
        line += f"{due:7.2f}"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers")
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=32)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--make", action="store_true", help="write the files and stop")
    options = parser.parse_args()
    bench = Bench(options)
    if options.make:
        for name in options.types.split(","):
            print(bench.model(name))
        return
    print(f"tokens a second, {options.threads} threads, {options.layers} layers")
    print(f"{'':8}{'decode':>9}{'llama':>9}{'  ratio':12}{'read':6}{'prefill':>9}{'llama':>9}"
          f"{'  ratio':12}{'peak':5}" + (f"{'kept':>7}{'llama':>7}{'due':>7}"
                                          if options.depth else ""))
    for name in options.types.split(","):
        path = bench.model(name)
        try:
            rounds = [bench.round(path) for _ in range(options.rounds)]
        except RuntimeError as error:  # such as a type that llama.cpp does not read
            print(f"{name:8} {error}", flush=True)
            continue
        print_row(name, rounds, options, path.stat().st_size)


if __name__ == "__main__":
    main()
