"""Builds of weft that differ: copies in which a word of --version is replaced."""

import json
import os
import re
import shutil
import subprocess


def build_of(weft):
    return json.loads(subprocess.run([weft, "--version", "--json"], capture_output=True, text=True,
                                     check=True, timeout=60).stdout)


def other_build(weft, path, *words):
    """A copy of `weft` at `path` with `words` of --version ("version", "commit", "protocol_hash")
    replaced by others of the same length."""
    build = build_of(weft)
    with open(weft, "rb") as file:
        program = file.read()
    for word in words:
        old = build[word].encode()
        if word == "version":
            # The linker may store it as the end of a longer text, such as "weft/0.1.0".
            at_end = rb"(?<![0-9.])" + re.escape(old) + rb"(?=\0)"
            program, count = re.subn(at_end, b"9" + old[1:], program)
            assert count, old
            continue
        assert len(old) >= 7 and old != b"unknown", build
        new = bytes(ord("1") if letter == ord("0") else ord("0") for letter in old[:7]) + old[7:]
        assert old in program and new not in program, old
        program = program.replace(old, new)
    with open(path, "wb") as file:
        file.write(program)
    shutil.copymode(weft, path)
    changed = build_of(path)
    for word in words:
        assert changed[word] != build[word], changed
    return os.fspath(path)
