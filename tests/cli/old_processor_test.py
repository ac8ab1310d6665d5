#!/usr/bin/env python3
"""weft runs on CPUs with fewer instructions than it was compiled for. An emulator runs weft as on
such a CPU and stops at the first instruction that the CPU lacks.

Usage: old_processor_test.py WEFT TINY_MODEL_PROGRAM
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

EMULATOR = "qemu-x86_64-static"
# The last one has all that the emulator supports: AVX2, and no AVX-512.
PROCESSORS = {"qemu64": "reference", "Nehalem": "reference", "Haswell": "avx2", "max": "avx2"}


def run(cpu, *words):
    done = subprocess.run([EMULATOR, "-cpu", cpu, *map(str, words)], capture_output=True,
                          text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{cpu}: {' '.join(map(str, words))}: status {done.returncode}\n{done.stderr}")
    return done.stdout


def main():
    weft, tiny_model = sys.argv[1:]
    if shutil.which(EMULATOR) is None:
        print(f"skipped: no {EMULATOR} (Debian: qemu-user-static)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder, "tiny.gguf")
        subprocess.run([tiny_model, model], check=True)
        texts = {}
        for cpu, kernels in PROCESSORS.items():
            said = run(cpu, weft, "--version")
            line = next(line for line in said.splitlines() if line.startswith("kernels"))
            assert line.split()[1] == kernels, f"{cpu}: {line}"
            texts[cpu] = run(cpu, weft, "run", model, "--greedy", "-p", "hello", "-n", 8,
                             "--ignore-eos", "-t", 1)
            assert texts[cpu], cpu
        assert texts["qemu64"] == texts["Nehalem"], texts
        assert texts["Haswell"] == texts["max"], texts
    print(f"{len(PROCESSORS)} processors")


main()
