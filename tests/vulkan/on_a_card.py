#!/usr/bin/env python3
"""Runs a test of whole jobs with two simulated cards as GPUs (other_gpus.cc): the host can map only
a small window of their memory, which has arbitrary contents at first.

    on_a_card.py LIBRARY SCRIPT PROGRAM [ARGUMENT...]
"""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from vulkan_device import SKIPPED, machine_env, true_loader  # noqa: E402

CARD = "discrete vram=4096 window=16"


def main():
    library, *words = sys.argv[1:]
    if true_loader() is None:
        print("skipped: no libvulkan.so.1", file=sys.stderr)
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        env = machine_env(folder, os.path.abspath(library), f"{CARD}; {CARD}")
        return subprocess.run([sys.executable, *words], env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
