#!/usr/bin/env python3
"""Predictions of `weft plan` for this machine against results of `weft bench` and `weft train`.

    bench/plan.py build/weft                     all 100 combinations: an idle machine, 25 minutes
    bench/plan.py build/weft --only training     those of one kind (--kinds lists the kinds)
    bench/plan.py build/weft --resume FILE       continues an interrupted run with FILE

A place is a set of ranks, on this machine or on two hosts (network namespaces with a core and one
or two ranks each, as root), and their transport. `weft plan --measure` measures each place. Then
each of its combinations of model, types, layout and load is predicted from that file and run.
Nothing is fitted to the results. A fixed seed draws the combinations. Prints one line per
combination, the worst ten, and the median error by kind.
"""
import argparse
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time

import plan_hosts

DENSE = ["smollm2-135m:{}", "qwen3-0.6b:{}", "llama-3.2-1b:{}:layers=4"]
EXPERT_LAYERS = 2
EXPERTS = [f"qwen3-30b-a3b:{{}}:layers={EXPERT_LAYERS}"]
TYPES = ["q4_0", "q8_0"]
KV_TYPES = ["q8_0", "f32", "bf16"]
# Sequences, depth, prompt (0: times tokens instead of a prompt).
TOKENS = [(1, 0, 0), (1, 512, 0), (1, 2048, 0), (2, 256, 0), (4, 0, 0), (8, 256, 0)]
PROMPTS = [(1, 0, 64), (1, 0, 256), (1, 0, 512)]
# Tokens of a token test; half of a step's context precedes it.
STEPS = 16
TRAINED = ["smollm2-135m:bf16:layers=4", "smollm2-135m:bf16:layers=8", "qwen3-0.6b:bf16:layers=2"]
TRAIN_TYPES = ["bf16", "f32"]
BATCHES = [(128, 1, 1), (128, 2, 2), (256, 1, 1), (256, 2, 1), (512, 1, 2)]  # length, micro, accum
DELAY_US = 200
# Name, ranks, transport (None: two hosts), delay; number of tests of tokens, prompts, experts, KV
# types, updates.
PLACES = [("one", 1, "auto", 0, (6, 3, 4, 4, 6)),
          ("two by shm", 2, "shm", 0, (5, 3, 4, 3, 7)),
          ("two by tcp", 2, "tcp", 0, (4, 2, 1, 1, 3)),
          ("three by shm", 3, "shm", 0, (4, 2, 1, 1, 0)),
          ("four by shm", 4, "shm", 0, (5, 2, 2, 1, 4)),
          ("two hosts", 2, None, 0, (3, 1, 1, 1, 3)),
          ("two hosts, delayed", 2, None, DELAY_US, (4, 1, 1, 1, 2)),
          ("two hosts of two", 4, None, 0, (2, 1, 0, 0, 1))]
LIMIT_S = 300


def layouts(ranks):
    """Pairs of tensor ranks and stages."""
    return [(tp, ranks // tp) for tp in range(1, ranks + 1) if ranks % tp == 0]


def inference(draw, place, what):
    name, ranks = place[0], place[1]
    models = EXPERTS if what == "experts" else DENSE
    tp, pp = draw.choice(layouts(ranks))
    if what == "experts" and pp > EXPERT_LAYERS:
        tp, pp = ranks, 1
    load = draw.choice(PROMPTS if what == "prompts" else TOKENS)
    if what == "experts":
        load = draw.choice([TOKENS[0], TOKENS[4], TOKENS[5], PROMPTS[1]])
    if what == "kv":
        load = draw.choice([TOKENS[2], TOKENS[5], PROMPTS[2]])
    ep = draw.choice([1, tp]) if what == "experts" else 1
    return {"place": name, "model": "synthetic:" + draw.choice(models).format(draw.choice(TYPES)),
            "tp": tp, "pp": pp, "ep": ep, "kv": draw.choice(KV_TYPES) if what == "kv" else "f16",
            "seqs": load[0], "depth": load[1], "prompt": load[2]}


def training(draw, place):
    name, ranks = place[0], place[1]
    tp, pp = draw.choice([(1, 1)] + [cut for cut in layouts(ranks) if ranks > 1])
    dp = ranks // (tp * pp)
    length, micro, accum = draw.choice(BATCHES)
    return {"place": name, "model": "synthetic:" + draw.choice(TRAINED), "tp": tp, "pp": pp,
            "dp": dp, "dtype": draw.choice(TRAIN_TYPES),
            "zero": draw.choice([0, 1] if pp > 1 else [0, 1, 2, 3]) if dp > 1 else 0,
            "recompute": draw.choice(["none", "none", "selective", "full"]),
            "length": length, "micro": micro, "accum": accum * pp}


def combinations():
    draw, all_of_them = random.Random(11), []
    for place in PLACES:
        for what, count in zip(("tokens", "prompts", "experts", "kv", "training"), place[4]):
            found = []
            while len(found) < count:
                is_training = what == "training"
                c = training(draw, place) if is_training else inference(draw, place, what)
                if c not in found and c not in all_of_them:
                    found.append(c)
            all_of_them += found
    return all_of_them


def kinds(c):
    """The kinds of a combination, which counts in each of them."""
    place = next(p for p in PLACES if p[0] == c["place"])
    found = {"training"} if "length" in c else {"prompts" if c["prompt"] else "tokens"}
    found.add("one rank" if place[1] == 1 else f"{place[1]} ranks")
    if place[1] > 1:
        found.add("shm" if place[2] == "shm" else "tcp")
    if place[2] is None:
        found |= {"two hosts"} | ({"delayed wire"} if place[3] else set())
    if c["tp"] > 1 and c["pp"] > 1:
        found.add("tensor ranks x stages")
    elif c["tp"] > 1 or c["pp"] > 1:
        found.add("tensor ranks" if c["tp"] > 1 else "stages")
    if "length" in c:
        found |= {f"training in {c['dtype']}"} | ({"replicas"} if c["dp"] > 1 else set())
        return found
    found.add("experts" if "a3b" in c["model"] else "dense")
    found |= {"several sequences"} if c["seqs"] > 1 else set()
    found |= {"far on"} if c["depth"] >= 512 else set()
    found |= {"other KV types"} if c["kv"] != "f16" else set()
    found.add(next(t for t in TYPES if f":{t}" in c["model"]))
    return found


def label(c):
    words = [c["place"], c["model"].removeprefix("synthetic:"), f"tp{c['tp']} pp{c['pp']}"]
    if "length" in c:
        words += [f"dp{c['dp']} zero{c['zero']}", c["dtype"], f"recompute {c['recompute']}",
                  f"{c['accum']} x {c['micro']} x {c['length']}"]
        return ", ".join(words)
    words += [f"ep{c['ep']}"] if c["ep"] > 1 else []
    words += [f"kv {c['kv']}"] if c["kv"] != "f16" else []
    words.append(f"prompt of {c['prompt']}" if c["prompt"] else
                 f"{c['seqs']} x tokens at {c['depth']}")
    return ", ".join(words)


class Sweep:
    def __init__(self, weft, folder):
        self.weft, self.folder = pathlib.Path(weft).resolve(), pathlib.Path(folder)

    def enter(self, place):
        _, ranks, transport, delay, _ = place
        if transport is None:
            return plan_hosts.TwoHosts(self.weft, self.folder, ranks, delay)
        return plan_hosts.Local(ranks, transport)

    def call(self, words):
        done = plan_hosts.run(words, timeout=LIMIT_S)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}: "
                               f"{done.stderr.strip()[-1000:]}")
        return done.stdout

    def measure(self, place, here, todo):
        """The machine file of a place, measured for the needs of its combinations."""
        file = self.folder / (place[0].replace(" ", "_").replace(",", "") + ".json")
        trained = sorted({c["dtype"] for c in todo if "length" in c})
        inferred = [c for c in todo if "length" not in c]
        kv = sorted({c["kv"] for c in inferred} - {"f16"})
        experts = any("a3b" in c["model"] for c in inferred)
        self.call(here.command([
            self.weft, "plan", "--measure", *here.where(), "--types", ",".join(TYPES),
            "--kv-types", ",".join(kv or ["f16"]), "--train-types", ",".join(trained or ["none"]),
            *([] if experts else ["--measure-experts-with", "none"]), "-o", file]))
        return here.machines(file)

    def bench(self, c, here, machines):
        load = ["-p", c["prompt"], "-n", 0] if c["prompt"] else ["-p", 0, "-n", STEPS, "-d",
                                                                 c["depth"]]
        row = json.loads(self.call(here.command([
            self.weft, "bench", c["model"], *here.where(), "--tp", c["tp"], "--pp", c["pp"],
            "--ep", c["ep"], "--kv-dtype", c["kv"], "--seqs", c["seqs"], *load, "-r", 5,
            "--machines", machines, "--json"])))[0]
        return statistics.median(row["samples_ts"]), row["predicted_ts"]

    def train(self, c, here, machines):
        cut = ["--tp", c["tp"], "--pp", c["pp"], "--dp", c["dp"], "--zero", c["zero"],
               "--micro-batch", c["micro"], "--grad-accum", c["accum"], "--seq-len", c["length"],
               "--dtype", c["dtype"], "--recompute", c["recompute"]]
        where = [w for w in here.where()]
        done = self.call(here.command([
            self.weft, "train", c["model"], *where, *cut, "--data",
            f"synthetic:random-tokens:{c['length'] + 1}", "--steps", 5, "--no-output", "--json"]))
        speeds = [json.loads(line) for line in done.splitlines()]
        was = statistics.median(s["tokens_per_s"] for s in speeds[1:] if "step" in s)
        said = json.loads(self.call([
            str(self.weft), "plan", c["model"], "--train", "--machines", machines,
            *map(str, cut), "--virtual-stages", "1", "--sequence-parallel", "off", "--json"]))
        return was, said["layouts"][0]["tokens_per_s"]

    def one(self, c, here, machines):
        begin = time.monotonic()
        was, said = (self.train if "length" in c else self.bench)(c, here, machines)
        return {"combination": c, "measured": was, "predicted": said, "error": said / was - 1,
                "took_s": time.monotonic() - begin}


def report(rows):
    by_kind = {}
    for row in rows:
        for kind in kinds(row["combination"]):
            by_kind.setdefault(kind, []).append(abs(row["error"]))
    sizes = [abs(row["error"]) for row in rows]
    worst = sorted(rows, key=lambda row: -abs(row["error"]))[:10]
    return {"combinations": len(rows), "median": statistics.median(sizes), "worst": max(sizes),
            "within_10": sum(s <= 0.1 for s in sizes), "within_25": sum(s <= 0.25 for s in sizes),
            "kinds": {kind: {"combinations": len(its), "median": statistics.median(its),
                             "worst": max(its)} for kind, its in sorted(by_kind.items())},
            "worst_ten": [{"what": label(row["combination"]), "error": row["error"]}
                          for row in worst]}


def print_report(found):
    print(f"\n{found['combinations']} combinations: median error {found['median'] * 100:.1f} %, "
          f"worst {found['worst'] * 100:.0f} %; {found['within_10']} within 10 %, "
          f"{found['within_25']} within 25 %\n")
    print("| kind | combinations | median error | worst |\n|---|---|---|---|")
    for kind, its in found["kinds"].items():
        print(f"| {kind} | {its['combinations']} | {its['median'] * 100:.1f} % | "
              f"{its['worst'] * 100:.0f} % |")
    print("\nthe worst ten:")
    for row in found["worst_ten"]:
        print(f"  {row['error'] * 100:+.0f} %  {row['what']}")


def sweep(args, todo, rows, keep):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        its = Sweep(args.weft, args.files or folder)
        for place in PLACES:
            here_todo = [c for c in todo if c["place"] == place[0]]
            if not here_todo:
                continue
            why = plan_hosts.why_no_hosts() if place[2] is None else None
            if why:
                print(f"{place[0]}: left out: {why}", file=sys.stderr)
                continue
            try:
                with its.enter(place) as here:
                    failed += at_place(its, place, here, here_todo, args, rows, keep)
            except RuntimeError as error:
                failed += len(here_todo)
                print(f"{place[0]}: {error}", file=sys.stderr)
    return failed


def at_place(its, place, here, todo, args, rows, keep):
    begin, failed = time.monotonic(), 0
    machines = its.measure(place, here, todo)
    print(f"{place[0]}: measured in {time.monotonic() - begin:.0f} s", file=sys.stderr)
    for c in todo:
        try:
            row = its.one(c, here, machines)
        except (RuntimeError, KeyError, TypeError) as error:
            failed += 1
            print(f"{label(c)}: {error!r}", file=sys.stderr)
            continue
        rows.append(row)
        keep(row)
        if not args.json:
            print(f"| {label(c)} | {row['measured']:.1f} | {row['predicted']:.1f} | "
                  f"{row['error'] * 100:+.0f} % |", flush=True)
    return failed


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft", nargs="?", default=str(plan_hosts.ROOT / "build/weft"))
    parser.add_argument("--count", type=int, help="so many of them, every so many-th")
    parser.add_argument("--only", metavar="KIND", action="append", default=[],
                        help="those of this kind, or of this place (several: of all)")
    parser.add_argument("--kinds", action="store_true", help="list kinds and how many each has")
    parser.add_argument("--resume", metavar="FILE", help="rows are kept there, and not run again")
    parser.add_argument("--files", metavar="FOLDER", help="keep the machine files there")
    parser.add_argument("--bound", type=float, metavar="SHARE",
                        help="fail where the median error is above this, as 0.1")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main():
    args = parse()
    todo = combinations()
    if args.kinds:
        counts = {}
        for c in todo:
            for kind in kinds(c):
                counts[kind] = counts.get(kind, 0) + 1
        print("\n".join(f"{count:4} {kind}" for kind, count in sorted(counts.items())))
        return
    todo = [c for c in todo if all(k in kinds(c) | {c["place"]} for k in args.only)]
    if args.count:
        todo = todo[::max(1, len(todo) // args.count)][:args.count]
    rows, kept = [], pathlib.Path(args.resume) if args.resume else None
    if kept and kept.exists():
        known = [json.loads(line) for line in kept.read_text().splitlines()]
        rows = [row for row in known if row["combination"] in todo]
        todo = [c for c in todo if all(row["combination"] != c for row in rows)]

    def keep(row):
        if kept:
            with kept.open("a") as file:
                file.write(json.dumps(row) + "\n")

    if not args.json:
        print("| combination | measured tok/s | predicted | error |\n|---|---|---|---|", flush=True)
    failed = sweep(args, todo, rows, keep)
    if not rows:
        sys.exit("nothing was compared")
    found = report(rows)
    if args.json:
        print(json.dumps({**found, "rows": rows}, indent=1))
    else:
        print_report(found)
    if failed:
        sys.exit(f"{failed} combinations failed")
    if args.bound is not None and not found["median"] <= args.bound:
        sys.exit(f"the median error is {found['median'] * 100:.0f} %, above {args.bound * 100:.0f}")


if __name__ == "__main__":
    main()
