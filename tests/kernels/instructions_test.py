#!/usr/bin/env python3
"""The objects of an instruction set contain its instructions and no others. They define only
functions of the set's namespace, so the linker cannot use them for other code.

Usage: instructions_test.py SET=OBJECT,OBJECT... ...
Exit status 77: no objdump, so it skips.
"""
import re
import shutil
import subprocess
import sys

AVX512 = r"%zmm|%k[0-7]|%[xy]mm(?:1[6-9]|2\d|3[01])"
# Patterns that a set's code contains, and those that it does not contain.
INSTRUCTIONS = {
    "avx2": (["%ymm"], [AVX512, "vpdpbusd"]),
    "avxvnni": (["%ymm", r"\{vex\} vpdpbusd "], [AVX512, r"(?<!\{vex\} )vpdpbusd"]),
}


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def check_instructions(name, code):
    needed, foreign = INSTRUCTIONS[name]
    for pattern in needed:
        assert re.search(pattern, code), f"{name}: no {pattern}"
    for pattern in foreign:
        found = re.search(pattern, code)
        line = found and code[code.rfind("\n", 0, found.start()) + 1:found.end()]
        assert not found, f"{name}: {line}"


def check_names(name, symbols):
    """A mangled name has each namespace after its length."""
    functions = re.findall(r"^\S+ .{7} \.text\S*\s+\S+\s+(?:\.hidden )?(\S*)$", symbols, re.M)
    functions = [function for function in functions if not function.startswith(".text")]
    assert functions, f"{name}: no functions"
    for function in functions:
        assert f"{len(name)}{name}" in function, f"{name}: defines {function}"
    return len(functions)


def main():
    if shutil.which("objdump") is None:
        print("skipped: no objdump (Debian: binutils)")
        sys.exit(77)
    for word in sys.argv[1:]:
        name, objects = word.split("=")
        objects = objects.split(",")
        if name in INSTRUCTIONS:
            check_instructions(name, output("objdump", "-d", "--no-show-raw-insn", *objects))
        print(f"{name}: {check_names(name, output('objdump', '--syms', *objects))} functions")


main()
