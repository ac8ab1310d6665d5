#!/usr/bin/env python3
"""The computed speeds in README.md equal those of `weft plan`.

Usage: figures_test.py WEFT ROOT
"""
import json
import pathlib
import re
import subprocess
import sys

ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \| ([\d.]+) s \| ([\d.]+) \| computed \|$",
                 re.MULTILINE)


def best(weft, machines, model):
    words = ["plan", model, "--machines", machines, "--context", "4096", "--json"]
    done = subprocess.run([weft, *words],
                          capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)["layouts"][0]


def main():
    weft, root = sys.argv[1:]
    rows = ROW.findall(pathlib.Path(root, "README.md").read_text())
    wrong = [] if len(rows) > 5 else [f"only {len(rows)} computed speeds were found"]
    for machines, model, *said in rows:
        layout = best(weft, machines, model)
        for name, figure in zip(("answer_s", "tok_s"), said):
            digits = len(figure.partition(".")[2])
            if f"{layout[name]:.{digits}f}" != figure:
                wrong.append(f"README.md: {model} on {machines}: {figure}; 'weft plan' says "
                             f"{name} {layout[name]:.2f}")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{len(rows)} computed speeds compared with 'weft plan': {len(wrong)} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
