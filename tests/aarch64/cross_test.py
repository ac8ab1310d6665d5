#!/usr/bin/env python3
"""Weft on aarch64: compiled with Debian's cross compiler, run under qemu-user.

    cross_test.py BUILD_FOLDER kernels              the kernels' tests
    cross_test.py BUILD_FOLDER abacus WEFT MODEL    compare steps.cc with WEFT's own steps

Exit status 77: a program or library that it needs is missing, so it skips.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

COMPILER = "aarch64-linux-gnu-g++"
EMULATORS = ("qemu-aarch64", "qemu-aarch64-static")
GTEST = pathlib.Path("/usr/src/googletest/googletest")
# Loops of minutes under an emulator, which prove nothing about an instruction set.
LEFT_OUT = "Gemm.BlocksThatDoNotFitTheCache"
# The kernels that each processor uses: one with all features of the emulator, and an Armv8.2 with
# dot products but without matrix products.
PROCESSORS = {"max": "i8mm", "neoverse-n1": "neon"}
QUESTION, ANSWER = "<|user|>What is 47 + 38?<|assistant|>", "85"
STEPS = 6
# The model as it is (BF16), and in types whose products are of integers.
TYPES = (None, "Q8_0", "Q4_0", "Q5_1", "Q4_K", "Q6_K")


def skip(missing, package):
    print(f"skipped: no {missing} here; Debian's package {package} has it")
    sys.exit(77)


def find_emulator():
    emulator = next(filter(None, map(shutil.which, EMULATORS)), None)
    if not shutil.which(COMPILER):
        skip(COMPILER, "g++-aarch64-linux-gnu")
    if not emulator:
        skip(EMULATORS[0], "qemu-user-static")
    if not GTEST.exists():
        skip(GTEST, "googletest")
    return emulator


def compiled(build, target):
    if not (build / "build.ninja").exists():
        command = ["cmake", "-G", "Ninja", "-S", pathlib.Path(__file__).parent, "-B", build,
                   "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
                   f"-DCMAKE_CXX_COMPILER={COMPILER}", f"-DWEFT_GTEST={GTEST}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", build, "--target", target], check=True)
    return build / target


def test_kernels(emulator, build):
    """Tests run over every level up to WEFT_CPU's. On a CPU without i8mm, a program that wrongly
    uses an i8mm instruction ends at that instruction."""
    tests = compiled(build, "aarch64_tests")
    for processor, level in (("max", "i8mm"), ("neoverse-n1", "neon"), ("max", "reference")):
        print(f"== {processor}, WEFT_CPU={level}", flush=True)
        subprocess.run([emulator, "-cpu", processor, tests, f"--gtest_filter=-{LEFT_OUT}",
                        "--gtest_brief=1"], check=True, env=os.environ | {"WEFT_CPU": level})


def said(*words, level=None):
    environment = os.environ | ({"WEFT_CPU": level} if level else {})
    return subprocess.run(words, check=True, env=environment, text=True,
                          stdout=subprocess.PIPE).stdout


def rows_of_npy(path):
    """The bytes of the file's float32 values, and the number of values per row."""
    data = path.read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", path
    begin = 10 + struct.unpack("<H", data[8:10])[0]
    header = data[10:begin].decode()
    assert "'<f4'" in header and "False" in header, header
    columns = int(header.split("(")[1].split(")")[0].split(",")[1])
    return data[begin:], columns


def furthest(ours, theirs):
    """The largest difference, and the largest magnitude of the expected values."""
    pairs = list(zip(struct.iter_unpack("<f", ours), struct.iter_unpack("<f", theirs)))
    return max(abs(a - b) for (a,), (b,) in pairs), max(abs(b) for _, (b,) in pairs)


def test_model(emulator, steps, weft, model, folder):
    """Kernels with eight lanes of NEON or i8mm give the same bits as AVX2's, and both machines'
    reference kernels do, too (kernels/vector/set.h). So the test compares all logits bit by bit,
    without a tolerance."""
    prompt = json.loads(said(weft, "tokenize", model, "--text", QUESTION, "--json"))["tokens"]
    logits, npy = folder / "logits", folder / "logits.npy"
    # Without a level: the kernels that the processor uses by default.
    runs = [(processor, None, "avx2") for processor in PROCESSORS]
    runs += [("max", "neon", "avx2"), ("neoverse-n1", "i8mm", "avx2")]
    runs.append(("max", "reference", "reference"))
    for processor, level, other in runs:
        best = PROCESSORS[processor]
        takes = best if level in (None, "i8mm") else level
        name = f"{pathlib.Path(model).name}, {processor}, WEFT_CPU={level}"
        lines = said(emulator, "-cpu", processor, steps, model, str(STEPS), logits,
                     *map(str, prompt), level=level).split()
        assert lines[0] == takes, f"{name}: ran {lines[0]}, not {takes}"
        answer = [int(token) for token in lines[1:]]
        assert len(answer) == STEPS, lines
        # The last token was chosen, and not run.
        tokens = ",".join(map(str, prompt + answer[:-1]))
        said(weft, "logits", model, "--tokens", tokens, "--all", "--npy", npy, "-t", "1",
             level=other)
        theirs, columns = rows_of_npy(npy)
        ours = logits.read_bytes()
        assert len(ours) == len(theirs) == 4 * columns * (len(prompt) + STEPS - 1), name
        if ours != theirs:
            apart, of = furthest(ours, theirs)
            sys.exit(f"{name}: logits are not those of {other} on this machine: the furthest by "
                     f"{apart}, of {of}")
        for step, token in enumerate(answer):
            row = struct.unpack_from(f"<{columns}f", theirs,
                                     4 * columns * (len(prompt) - 1 + step))
            assert token == row.index(max(row)), f"{name}: token {step} is {token}"
        print(f"{name}: {len(ours) // 4} logits with the bits of {other}, tokens {answer}",
              flush=True)
    return prompt, answer


def test_abacus(emulator, build, weft, model):
    steps = compiled(build, "aarch64_steps")
    if "avx2" not in json.loads(said(weft, "--version", "--json"))["cpu_features"]:
        print("skipped: this processor has no AVX2, whose bits NEON's are compared with")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for dtype in TYPES:
            copy = model
            if dtype:
                copy = str(folder / f"{dtype}.gguf")
                said(weft, "quantize", model, copy, dtype)
            prompt, answer = test_model(emulator, steps, weft, copy, folder)
            if dtype is None:
                check_answer(weft, model, answer)


def check_answer(weft, model, answer):
    """`weft run` with its default kernels gives the same answer, and it is right."""
    run = json.loads(said(weft, "run", model, "-p", "What is 47 + 38?", "-n", str(STEPS),
                          "--temp", "0", "-t", "1", "--json"))
    assert run["text"] == ANSWER, run
    assert answer[:len(run["tokens"])] == run["tokens"], (answer, run["tokens"])


def main():
    build, what, *more = sys.argv[1:]
    emulator = find_emulator()
    build = pathlib.Path(build)
    if what == "kernels":
        test_kernels(emulator, build)
    else:
        test_abacus(emulator, build, *more)


if __name__ == "__main__":
    main()
