#!/usr/bin/env python3
"""Runs a test of whole jobs on a Vulkan device: tests start weft through a script that adds
--device to commands that compute, unless the test sets a device itself. Lavapipe suffices.

    on_vulkan.py [--reference | --spin] WEFT CACHE COMMAND [ARGUMENT...]

CACHE: a folder that keeps compiled kernels between runs. "{}" in an argument stands for the script;
gtest programs get its path as WEFT_TEST_PROGRAM. --reference: adds weft's --reference, for tests
that require the same bits of a row in steps of any size. --spin: adds --gpu-allreduce spin, and
sets WEFT_TEST_GPU_SUM for the tests. Exit status 77: no Vulkan device can be used.
"""
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from vulkan_device import SKIPPED, keep_kernels, usable  # noqa: E402

# Tests disable weft's own cache (support/run_weft.h); here kernels are cached as for users.
SCRIPT = """#!/bin/sh
export XDG_CACHE_HOME={cache}
case " $* " in
*" --device "* | *" --help "*) exec {weft} "$@" ;;
esac
case $1 in
run | serve | logits | perplexity) exec {weft} "$@" --device {device} {more} ;;
bench) [ "$2" = serve ] || exec {weft} "$@" --device {device} {more} ;;
esac
exec {weft} "$@"
"""
MORE = {"--reference": "--reference", "--spin": "--gpu-allreduce spin"}


def main():
    words = sys.argv[1:]
    how = words.pop(0) if words[0] in MORE else ""
    weft, cache, *command = words
    weft = os.path.abspath(weft)
    cache = pathlib.Path(cache).resolve()
    (cache / "mesa").mkdir(parents=True, exist_ok=True)
    keep_kernels(cache / "mesa")
    device, why = usable(weft)
    if device is None:
        print(f"skipped: no Vulkan device to test with: {why}", file=sys.stderr)
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "weft"
        script.write_text(SCRIPT.format(weft=shlex.quote(weft), device=device,
                                        more=MORE.get(how, ""), cache=shlex.quote(str(cache))))
        script.chmod(0o755)
        words = [word.replace("{}", str(script)) for word in command]
        env = {**os.environ, "WEFT_TEST_PROGRAM": str(script)}
        if how == "--spin":
            env["WEFT_TEST_GPU_SUM"] = "spin"
        return subprocess.run(words, env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
