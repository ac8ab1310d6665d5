#!/usr/bin/env python3
"""Tables and figures from the results of bench/fabric.sh.  Run: fabric_report.py FOLDER

The folder holds NAME.ROUND (JSON of one program) and NAME.ROUND.state (the distance of the two
cores before and after it). Always exits with 0.
"""
import collections
import glob
import json
import os
import statistics
import sys

NEAR_US = 0.15


def load(folder):
    """{(state, name, bytes): {"p50": [...], "p99": [...]}}, and {(state, name): [idle percents]}"""
    times = collections.defaultdict(lambda: collections.defaultdict(list))
    idle = collections.defaultdict(list)
    for path in glob.glob(folder + "/*.state"):
        name = os.path.basename(path).split(".")[0]
        near = [float(word) < NEAR_US for word in open(path).read().split()]
        state = {(True, True): "near", (False, False): "far"}.get(tuple(near))
        try:
            read = json.load(open(path.removesuffix(".state")))
        except ValueError:
            continue
        if name.startswith("idle"):
            idle[name] += [read["idle_percent"]] if "idle_percent" in read else []
            continue
        for row in read["rows"] if isinstance(read, dict) else read:
            for part in ("p50", "p99"):
                us = row.get(part + "_us", row.get(f"exchange_{part}_us"))
                if state and us is not None:
                    times[state, name, row["bytes"]][part].append(us)
    return times, idle


def size(b):
    return f"{b >> 20} MB" if b >= 1 << 20 else f"{b >> 10} KB" if b >= 1 << 10 else f"{b} B"


class Report:
    def __init__(self, times, idle):
        self.p50 = {key: statistics.median(v["p50"]) for key, v in times.items()}
        self.p99 = {key: statistics.median(v["p99"]) for key, v in times.items()}
        self.rounds = {key: len(v["p50"]) for key, v in times.items()}
        self.sizes = sorted({key[2] for key in times})
        self.idle = idle
        self.missed = 0

    def table(self, state, wire):
        names = [f"{n}_{wire}" for n in ("weft", "mpi", "raw", "weft4", "mpi4")]
        names = [n for n in names if any((state, n, b) in self.p50 for b in self.sizes)]
        if not names:
            return
        rounds = max(self.rounds.get((state, names[0], b), 0) for b in self.sizes)
        print(f"\n{state} cores, {rounds} rounds")
        print(f"{'bytes':>9}" + "".join(f"{n:>11}" for n in names))
        for b in self.sizes:
            row = [self.p50.get((state, n, b), float("nan")) for n in names]
            print(f"{b:>9}" + "".join(f"{us:>11.2f}" for us in row))

    def verdict(self, words, value, limit, unit=""):
        met = value <= limit
        self.missed += not met
        said = "met    " if met else "NOT MET"
        print(f"  {said}  {words}: {value:.2f}{unit}, limit {limit}{unit}")

    def ratio(self, state, name, peer, b, limit):
        if (state, name, b) not in self.p50 or (state, peer, b) not in self.p50:
            return
        ours, theirs = self.p50[state, name, b], self.p50[state, peer, b]
        self.verdict(f"{name} / {peer} at {size(b)} ({ours:.2f} / {theirs:.2f} us)",
                     ours / theirs, limit, "x")

    def figures(self, state):
        print(f"\nfigures, {state} cores (medians; a ratio of p50 unless said otherwise)")
        for b in self.sizes:
            shm = 0.9 if b <= 1024 else 0.6 if b < 8192 else 0.25 if b <= 65536 else 0.6
            self.ratio(state, "weft_shm", "mpi_shm", b, shm)
        for b in self.sizes:
            if 4096 <= b <= 65536:
                self.ratio(state, "weft_shm", "raw_shm", b, 2)
        for b in self.sizes:
            self.ratio(state, "weft_tcp", "mpi_tcp", b, 0.7)
        for b in self.sizes:
            if 4096 <= b <= 65536:
                self.ratio(state, "weft_tcp", "raw_tcp", b, 1.25)
        for b in self.sizes:
            key = (state, "weft_shm", b)
            if key in self.p99:
                ratio = self.p99[key] / self.p50[key]
                self.verdict(f"weft_shm p99 / p50 at {size(b)}", ratio, 2, "x")
        for wire in ("shm", "tcp"):
            for b in self.sizes:
                self.ratio(state, f"weft4_{wire}", f"mpi4_{wire}", b, 1)

    def idle_figures(self):
        for name, percents in sorted(self.idle.items()):
            if percents:
                self.verdict(f"four waiting ranks, {name.split('_')[1]}, of a core",
                             statistics.median(percents), 2, " %")


def main():
    report = Report(*load(sys.argv[1]))
    print("median us of one all_reduce of f32, 2 ranks (4: two a core; raw: an exchange, no sum)")
    states = [s for s in ("near", "far") if any(key[0] == s for key in report.p50)]
    for state in states:
        for wire in ("shm", "tcp"):
            report.table(state, wire)
    for state in states:
        report.figures(state)
    print("\nfigures, any cores")
    report.idle_figures()
    print(f"\n{report.missed} figures are not met")


if __name__ == "__main__":
    main()
