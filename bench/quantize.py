#!/usr/bin/env python3
"""weft quantize beside llama-quantize: seconds for the same file, type and threads.

    bench/quantize.py PEERS [--model FILE] [--types Q4_0,Q6_K] [--imatrix FILE] [--threads N]
                      [--json FILE]

PEERS is a folder with llama.cpp's llama-quantize (directly, or in llama/build/bin/) and, unless
--model names another file, 1b-f16.gguf: the shape of Llama-3.2-1B in F16. For each type, both
programs write into a folder beside the model, in turn; Weft's time includes its final fsync, which
llama-quantize lacks. IQ1, IQ2 and most of IQ3 need an importance matrix (any values will do). Run
nothing else meanwhile.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WANTED = 1.5


def seconds(command):
    begin = time.monotonic()
    ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {ran.stderr[-2000:]}")
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--types", default="Q4_0,Q4_K_M,Q6_K,Q8_0")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--imatrix", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    model = arguments.model or arguments.peers / "1b-f16.gguf"
    programs = [arguments.peers / "llama-quantize",
                arguments.peers / "llama/build/bin/llama-quantize"]
    theirs = next((path for path in programs if path.exists()), None)
    if theirs is None or not model.exists():
        sys.exit(f"needs one of {[str(p) for p in programs]} and {model}")
    weft = ROOT / "build/weft"
    matrix = ["--imatrix", arguments.imatrix] if arguments.imatrix else []
    threads = str(arguments.threads)
    with open(model, "rb") as file:  # reads the file into the page cache
        while file.read(1 << 26):
            pass
    rows = []
    print(f"{model.name}, {threads} threads\n{'type':8} {'weft s':>8} {'llama s':>8} {'ratio':>6}")
    with tempfile.TemporaryDirectory(dir=model.parent) as folder:
        for kind in arguments.types.split(","):
            out = pathlib.Path(folder) / "out.gguf"
            ours = seconds([weft, "quantize", *matrix, model, out, kind, "-t", threads])
            out.unlink()
            peer = seconds([theirs, *matrix, model, out, kind, threads])
            out.unlink()
            rows.append({"type": kind, "weft_s": ours, "llama_s": peer, "ratio": peer / ours})
            mark = "" if peer / ours >= WANTED else f"  (wanted: {WANTED})"
            print(f"{kind:8} {ours:8.2f} {peer:8.2f} {peer / ours:6.2f}{mark}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


main()
