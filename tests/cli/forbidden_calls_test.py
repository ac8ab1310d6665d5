#!/usr/bin/env python3
"""Commands in a container whose seccomp profile forbids a system call, and on a host whose memory
files must not be executable: each computes by other means, or ends with an error that names the
cause.

    forbidden_calls_test.py PROGRAM [UNITTEST ARGUMENT...]
"""
import ctypes
import errno
import json
import os
import pathlib
import platform
import struct
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(TESTS / "support"))
from limits import limit  # noqa: E402

MODEL = str(TESTS.parent / "models/abacus/model.gguf")
ASK = ("run", MODEL, "-p", "3 + 4 =", "-n", "4", "--greedy")
CLONE3 = 435
MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}[platform.machine()]
NO_EXEC = "/proc/sys/vm/memfd_noexec"


def forbid(number):
    """Makes the system answer EPERM to a system call of this process and its children."""
    rules = struct.pack("=" + "HBBI" * 4,
                        0x20, 0, 0, 0,  # load the call's number
                        0x15, 0, 1, number,  # another one: skip the next rule
                        0x06, 0, 0, 0x00050000 | errno.EPERM,
                        0x06, 0, 0, 0x7fff0000)
    held = ctypes.create_string_buffer(rules)
    program = ctypes.create_string_buffer(struct.pack("@HP", 4, ctypes.addressof(held)))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_seccomp, filter_mode = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(set_seccomp, filter_mode, program):
        os._exit(99)


def run(*words, forbidden=None):
    return subprocess.run(words, capture_output=True, text=True, timeout=limit(30),
                          stdin=subprocess.DEVNULL,
                          preexec_fn=None if forbidden is None else lambda: forbid(forbidden))


class ForbiddenCalls(unittest.TestCase):
    def test_threads(self):
        cause = "seccomp profile forbids clone3"
        done = run(PROGRAM, *ASK, "-t", "2", forbidden=CLONE3)
        self.assertIn("computes with 1 of 2 threads", done.stderr)
        self.assertIn(cause, done.stderr)
        done = run(PROGRAM, *ASK, "-t", "1", "--local", "2", forbidden=CLONE3)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(cause, done.stderr)
        done = run(PROGRAM, "submit", "--to", "ssh", "--hosts", "a", "--", "run", "m",
                   forbidden=CLONE3)  # another process
        self.assertIn(cause, done.stderr)

    def test_memory_files(self):
        two = ("-t", "1", "--local", "2", "--tp", "2")
        done = run(PROGRAM, *ASK, *two, forbidden=MEMFD_CREATE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("7", done.stdout)
        self.assertEqual(done.stderr.count("use TCP instead of shared memory"), 1, done.stderr)
        done = run(PROGRAM, *ASK, *two, "--transport", "shm", forbidden=MEMFD_CREATE)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("memfd_create: Operation not permitted", done.stderr)

    def test_input_of_a_command(self):
        with tempfile.TemporaryDirectory() as folder:
            data, line = os.path.join(folder, "data.jsonl"), os.path.join(folder, "line")
            pathlib.Path(data).write_text('{"text": "3 + 4 = 7"}\n')
            done = run(PROGRAM, "train", MODEL, "--data", data, "--no-output", "--steps", "1",
                       "--seq-len", "16", "-t", "1", "--on-step", f"cat >{line}",
                       forbidden=MEMFD_CREATE)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(pathlib.Path(line).read_text())["step"], 1)

    def test_memory_files_that_nobody_executes(self):
        """The setting counts for a namespace of processes; only root may make one here."""
        for level in ("1", "2"):
            done = run("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c",
                       f'echo {level} >{NO_EXEC} || exit 77; exec "$@"', "sh", PROGRAM, *ASK,
                       "-t", "1", "--local", "2", "--tp", "2", "--transport", "shm")
            if done.returncode == 77 or "unshare:" in done.stderr:
                self.skipTest(f"no namespace with {NO_EXEC}: {done.stderr}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("7", done.stdout)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
