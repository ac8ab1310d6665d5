#!/usr/bin/env python3
"""The kernels' tests for aarch64: compiled with Debian's cross compiler, run under qemu-user.

    cross_test.py BUILD_FOLDER      exit status 77: something that it needs is not here, and skips
"""
import os
import pathlib
import shutil
import subprocess
import sys

COMPILER = "aarch64-linux-gnu-g++"
EMULATORS = ("qemu-aarch64", "qemu-aarch64-static")
GTEST = pathlib.Path("/usr/src/googletest/googletest")
# Loops of minutes under an emulator, which prove nothing about an instruction set.
LEFT_OUT = "Gemm.BlocksThatDoNotFitTheCache"


def skip(missing, package):
    print(f"skipped: no {missing} here; Debian's package {package} has it")
    sys.exit(77)


def configure(build):
    if (build / "build.ninja").exists():
        return
    command = ["cmake", "-G", "Ninja", "-S", pathlib.Path(__file__).parent, "-B", build,
               "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
               f"-DCMAKE_CXX_COMPILER={COMPILER}", f"-DWEFT_GTEST={GTEST}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main():
    build = pathlib.Path(sys.argv[1])
    emulator = next(filter(None, map(shutil.which, EMULATORS)), None)
    if not shutil.which(COMPILER):
        skip(COMPILER, "g++-aarch64-linux-gnu")
    if not emulator:
        skip(EMULATORS[0], "qemu-user-static")
    if not GTEST.exists():
        skip(GTEST, "googletest")
    configure(build)
    subprocess.run(["cmake", "--build", build], check=True)
    tests = [emulator, "-cpu", "max", build / "aarch64_tests", f"--gtest_filter=-{LEFT_OUT}",
             "--gtest_brief=1"]
    for level in ("neon", "reference"):
        print(f"== WEFT_CPU={level}", flush=True)
        subprocess.run(tests, check=True, env=os.environ | {"WEFT_CPU": level})


if __name__ == "__main__":
    main()
