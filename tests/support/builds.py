"""Builds of weft that differ: copies in which a word of --version is replaced."""

import json
import os
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
        if word == "version":  # "0.1.0" is also part of other texts
            new = b"9" + old[1:]
            assert program.count(b"\0" + old + b"\0") == 1, old
            program = program.replace(b"\0" + old + b"\0", b"\0" + new + b"\0")
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
