#!/usr/bin/env python3
"""Weft against llama.cpp on the same cores: tokens per second, and the gain of a second rank.

    bench/inference.py PEERS [--rounds 5] [--models smollm2,1b] [--long] [--json FILE]

PEERS is a folder with llama.cpp's programs llama-bench and ggml-rpc-server (directly, or in
llama/build/bin/). The models are SmolLM2-135M-Instruct Q4_1 (from the cache of ./quickstart, or
from PEERS) and the shape of Llama-3.2-1B in Q4_0 with random weights, which
build/bench/model_files_bench writes into the cache once.

The speed of a machine changes over time, so each round runs every configuration once, in turn.
Ratios are taken within a round; the table shows the median over rounds with the least and
greatest. Run nothing else meanwhile. Needs the release build: ./test builds it. WEFT_CPU selects
Weft's kernels (avx2, avx512, amx), and the instructions of the limits.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMOL = "SmolLM2-135M-Instruct.Q4_1.gguf"
LARGE = "synthetic-llama-3.2-1b-q4_0.gguf"
MIB = 1 << 20
WIDE = 1.8  # memory that lets each of two threads read at almost full speed
# Weights that a prompt token is multiplied by: all but the embedding, which also is the output
# matrix, and serves the last token only.
MULTIPLIED = {"smollm2": 106.2e6, "1b": 973.1e6}
LOAD_ROUNDS = 5  # the first run may read from the disk; the medians are of runs with cached files

# Target ratios: (title, numerator, denominator, {model: (prefill, decode)}).
RATIOS = (
    ("weft / llama.cpp, 2 threads", "weft 2t", "llama 2t",
     {"smollm2": (1.2, 1.4), "1b": (1.2, 1.4)}),
    ("weft / llama.cpp, 1 thread", "weft 1t", "llama 1t", {}),
    ("TP=2 shm / one rank", "weft tp2 shm", "weft 1t", {"smollm2": (0, 1.6), "1b": (0, 1.85)}),
    ("TP=2 tcp / one rank", "weft tp2 tcp", "weft 1t", {"smollm2": (0, 1.4), "1b": (0, 1.7)}),
    ("TP=2 shm / llama.cpp RPC", "weft tp2 shm", "llama rpc",
     {"smollm2": (0, 2), "1b": (0, 2)}),
    ("TP=2 tcp / llama.cpp RPC", "weft tp2 tcp", "llama rpc",
     {"smollm2": (0, 2), "1b": (0, 2)}),
)


def cache_folder():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(home) / "weft"


def find_models(peers, wanted):
    models = {}
    if "smollm2" in wanted:
        places = [cache_folder() / SMOL, peers / SMOL]
        found = [path for path in places if path.exists()]
        if not found:
            sys.exit(f"{SMOL} is in none of {places}: run ./quickstart once")
        models["smollm2"] = found[0]
    if "1b" in wanted:
        path = cache_folder() / LARGE
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            maker = ROOT / "build/bench/model_files_bench"
            subprocess.run([maker, "synthetic:llama-3.2-1b:q4_0", part], check=True,
                           stdout=subprocess.DEVNULL)
            part.rename(path)
        models["1b"] = path
    return models


class Bench:
    def __init__(self, options):
        self.options = options
        peers = pathlib.Path(options.peers).resolve()
        folders = [peers, peers / "llama/build/bin", peers / "build/bin"]
        self.llama = next((f for f in folders if (f / "llama-bench").exists()), None)
        if self.llama is None:
            sys.exit(f"no llama-bench in {', '.join(map(str, folders))}")
        self.weft = pathlib.Path(options.weft)
        self.models = find_models(peers, options.models.split(","))
        self.sizes = ["-p", str(options.prompt), "-n", str(options.generate), "-r", "1"]

    def pin(self):
        os.sched_setaffinity(0, {int(core) for core in self.options.cores.split(",")})

    def call(self, command):
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, preexec_fn=self.pin, timeout=600)
        if done.returncode != 0:
            words = " ".join(map(str, command))
            sys.exit(f"{words}: exit {done.returncode}\n{done.stderr[-2000:]}")
        return json.loads(done.stdout)

    def speeds(self, command):
        """(prefill, decode) in tokens per second, from llama-bench's fields."""
        prefill = decode = 0.0
        for row in self.call(command):
            if row["n_prompt"] > 0 and row["n_gen"] == 0:
                prefill = row["avg_ts"]
            elif row["n_gen"] > 0 and row["n_prompt"] == 0:
                decode = row["avg_ts"]
        return prefill, decode

    def llama_bench(self, model, *more):
        return self.speeds([self.llama / "llama-bench", "-m", model, *self.sizes, "-o", "json",
                            *more])

    def weft_bench(self, model, *more):
        return self.speeds([self.weft, "bench", model, *self.sizes, "-o", "json", *more])

    def llama_rpc(self, model):
        """llama.cpp over two RPC servers with one thread each, on the same cores."""
        ports = [free_port(), free_port()]
        servers = [subprocess.Popen([self.llama / "ggml-rpc-server", "-t", "1", "-p", str(port)],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                    preexec_fn=self.pin) for port in ports]
        try:
            for port in ports:
                wait_for(port)
            addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
            return self.llama_bench(model, "--rpc", addresses, "-ngl", "99", "-t", "1")
        finally:
            for server in servers:
                server.kill()
                server.wait()

    def configurations(self, model):
        two = ["--local", "2", "--tp", "2", "-t", "1"]
        return {
            "llama 2t": lambda: self.llama_bench(model, "-t", "2"),
            "weft 2t": lambda: self.weft_bench(model, "-t", "2"),
            "llama 1t": lambda: self.llama_bench(model, "-t", "1"),
            "weft 1t": lambda: self.weft_bench(model, "-t", "1"),
            "weft tp2 shm": lambda: self.weft_bench(model, *two, "--transport", "shm"),
            "weft tp2 tcp": lambda: self.weft_bench(model, *two, "--transport", "tcp"),
            "llama rpc": lambda: self.llama_rpc(model),
        }

    def rounds(self, name):
        samples = []
        for number in range(self.options.rounds):
            taken = {}
            limits = [self.read_limits()]
            for label, run in self.configurations(self.models[name]).items():
                progress(f"{name}: round {number + 1} of {self.options.rounds}: {label}")
                taken[label] = run()
                limits.append(self.read_limits())
            taken["read limits"] = dict(zip(taken, zip(limits, limits[1:])))
            samples.append(taken)
        progress("")
        return samples

    def read_limits(self):
        """GB/s that one and two threads read from memory now; a token reads all weights once."""
        return [self.limits(threads)["read_gb_s"] for threads in (1, 2)]

    def limits(self, threads):
        return self.call([self.weft.parent / "bench/matmul_bench", str(threads), "limits"])

    def one_run(self, model, *more):
        return self.call([self.weft, "run", model, "--greedy", "--raw", "-p", "Once upon a time",
                          "-n", "64", "--ignore-eos", "--json", "-t", "1", "--local", "2", *more])


def progress(text):
    if sys.stderr.isatty():
        print(f"\r{text:70}", end="\r", file=sys.stderr, flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"no RPC server came up on port {port}")


def spread(values):
    return f"{statistics.median(values):8.2f}  ({min(values):.2f} .. {max(values):.2f})"


def print_speeds(name, samples):
    print(f"\n{name}: tokens a second, median (least .. greatest) of {len(samples)} rounds")
    print(f"{'':16}{'prefill':>32}{'decode':>32}")
    for label in samples[0]:
        if label == "read limits":
            continue
        print(f"{label:16}" + "".join(
            f"{spread([taken[label][kind] for taken in samples]):>32}" for kind in (0, 1)))


def print_ratios(name, samples):
    print(f"\n{name}: ratios within a round")
    for title, top, bottom, targets in RATIOS:
        for kind, word in enumerate(("prefill", "decode")):
            values = [taken[top][kind] / taken[bottom][kind] for taken in samples]
            target = targets.get(name, (0, 0))[kind]
            verdict = ""
            if target:
                met = statistics.median(values) >= target
                verdict = f"wanted {target:.2f}: {'met' if met else 'NOT MET'}"
            print(f"{title:30} {word:8}{spread(values):>30}  {verdict}")


def wide(taken, *labels):
    """Whether two threads read much more than one, before and after each of these runs."""
    return all(two >= WIDE * one for label in labels for one, two in taken["read limits"][label])


def print_roof(samples, weight_bytes):
    """Decoding reads all weights once per token, so the memory's read speed bounds it. Prints
    this bound, and the ratio of two ranks to one in rounds where two threads read more."""
    limits = [pair for taken in samples for both in taken["read limits"].values() for pair in both]
    if min(one for one, _ in limits) == 0:
        return
    print(f"memory read, GB/s: one thread {spread([one for one, _ in limits])}, "
          f"two threads {spread([two for _, two in limits])}")
    for label, threads in (("weft 1t", 0), ("weft 2t", 1), ("weft tp2 shm", 1), ("llama 2t", 1)):
        shares = [taken[label][1] * weight_bytes / 1e7 /
                  statistics.mean(pair[threads] for pair in taken["read limits"][label])
                  for taken in samples]
        print(f"{label:16} decode reads {statistics.median(shares):.0f} % of that")
    for label in ("weft tp2 shm", "weft tp2 tcp"):
        ratios = [taken[label][1] / taken["weft 1t"][1] for taken in samples
                  if wide(taken, label, "weft 1t")]
        print(f"{label} / one rank, decode, in the {len(ratios)} of {len(samples)} rounds where "
              f"two threads read {WIDE} times as much as one: "
              + (spread(ratios) if ratios else "none to tell from"))


def print_peak(name, samples, bench):
    """A prompt's products take integers of 8 bits; prints their share of the rate at which the
    kernels' instructions can multiply."""
    for label, threads in (("weft 1t", 1), ("weft 2t", 2), ("llama 2t", 2)):
        limits = bench.limits(threads)
        if limits["int8_gop_s"] == 0:
            return
        speed = statistics.median(taken[label][0] for taken in samples)
        gops = speed * 2 * MULTIPLIED[name] / 1e9
        print(f"{label:16} prefill multiplies {gops:.0f} GOP/s, "
              f"{100 * gops / limits['int8_gop_s']:.0f} % of {limits['int8_gop_s']:.0f} "
              f"({limits['kernels']} products of bytes, {threads} threads)")


def print_limits(name, bench):
    """Memory, bytes read, load time, and the all-reduces of a decode step, from `weft run`."""
    model = bench.models[name]
    print(f"\n{name}: two ranks of one thread, from weft run --json")
    runs = {}
    layouts = {"tp2 shm": ["--tp", "2", "--transport", "shm"],
               "tp2 tcp": ["--tp", "2", "--transport", "tcp"],
               "pp2 shm": ["--pp", "2", "--transport", "shm"]}
    loads = {label: [] for label in layouts}
    for _ in range(LOAD_ROUNDS):
        for label, layout in layouts.items():
            runs[label] = bench.one_run(model, *layout)
            loads[label].append(runs[label]["load_s"])
    for label, run in runs.items():
        for rank in run["ranks"]:
            beyond = rank["rss_bytes"] - rank["weight_bytes"] - rank["kv_bytes"]
            print(f"{label} rank {rank['rank']}: rss {rank['rss_bytes'] / MIB:.0f} MiB, beyond "
                  f"weights and KV {beyond / MIB:.0f} MiB (at most 120); read "
                  f"{rank['read_bytes'] / MIB:.0f} MiB = "
                  f"{rank['read_bytes'] / max(1, rank['weight_bytes']):.3f} of its weights")
    for label, most in (("tp2 shm", 4), ("tp2 tcp", 10)):
        reduce = runs[label]["all_reduce"]
        print(f"{label}: {reduce['per_token']} all-reduces a token, p50 {reduce['p50_us']:.1f} us "
              f"(at most {most}), p99 {reduce['p99_us']:.1f} us")
    ratios = [tp / pp for tp, pp in zip(loads["tp2 shm"], loads["pp2 shm"])]
    print(f"load, s: TP=2 {spread(loads['tp2 shm'])}, PP=2 {spread(loads['pp2 shm'])}, ratio "
          f"{spread(ratios)} (at most 1.3)")


def print_long_prompt(name, bench):
    """A prompt of some 4,000 tokens in three layouts: memory must grow only by the KV cache."""
    print(f"\n{name}: a long prompt in chunks, from weft run --json")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write("The weaver set the loom by the window and counted the threads again. " * 285)
        text.flush()
        for label, ranks, layout in (("tp2", 2, ["--tp", "2"]), ("pp2", 2, ["--pp", "2"]),
                                     ("pp3", 3, ["--pp", "3"])):
            run = bench.call([bench.weft, "run", bench.models[name], "--greedy", "--raw", "-f",
                              text.name, "-n", "4", "--ignore-eos", "--ctx", "4608", "--json", "-t",
                              "1", "--local", str(ranks), *layout])
            beyond = [(r["rss_bytes"] - r["weight_bytes"] - r["kv_bytes"]) / MIB
                      for r in run["ranks"]]
            print(f"{label}: {run['prompt_tokens']} tokens at {run['prefill_tok_s']:.1f} tok/s; "
                  f"beyond weights and KV {', '.join(f'{b:.0f}' for b in beyond)} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", default="smollm2,1b")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--cores", default="0,1", help="the cores that everything is pinned to")
    parser.add_argument("--weft", default=str(ROOT / "build/weft"))
    parser.add_argument("--long", action="store_true", help="also run a prompt of 4,000 tokens")
    parser.add_argument("--json", help="also write all samples to this file")
    bench = Bench(parser.parse_args())
    everything = {}
    for name in bench.models:
        samples = bench.rounds(name)
        everything[name] = samples
        print_speeds(name, samples)
        print_ratios(name, samples)
        print_roof(samples, bench.models[name].stat().st_size)
        print_peak(name, samples, bench)
        print_limits(name, bench)
        if bench.options.long:
            print_long_prompt(name, bench)
    if bench.options.json:
        pathlib.Path(bench.options.json).write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
