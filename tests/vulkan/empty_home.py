#!/usr/bin/env python3
"""Runs a test with an empty home, as on a machine that never ran it: all kernels are compiled, and
the test must leave them for the next start.

    empty_home.py PROGRAM [ARGUMENT...]
"""
import os
import pathlib
import subprocess
import sys
import tempfile


def main():
    with tempfile.TemporaryDirectory() as home:
        env = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        done = subprocess.run(sys.argv[1:], env={**env, "HOME": home}, capture_output=True,
                              text=True)
        print(done.stdout, done.stderr, sep="\n")
        if done.returncode == 0 and "[  PASSED  ] 0 tests" not in done.stdout:
            kept = list(pathlib.Path(home, ".cache/weft/vulkan").glob("*.cache"))
            print(f"compiled kernels: {[file.name for file in kept]}")
            return 0 if kept else 1
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
