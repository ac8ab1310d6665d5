#!/usr/bin/env python3
"""Whole jobs in which a rank's GPU is lost, or stops answering, while the rank decodes or trains
(lost_gpu.cc).

    lost_gpu_test.py PROGRAM LIBRARY [UNITTEST ARGUMENT...]

Exit status 77: no Vulkan device can be used.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(ROOT / "tests/support")]
from processes import children  # noqa: E402
from limits import limit  # noqa: E402
from nightly import nightly  # noqa: E402
from vulkan_device import MODEL, PATIENCE, SKIPPED, true_loader, usable  # noqa: E402

TIMEOUT_MS = 3000
TOKENS = 96


class Job:
    """A command on ranks whose GPUs can be taken away; the end of the `with` block kills it."""
    ANSWER = ("run", MODEL, "--raw", "-p", "1 + 1 = 2, 2 + 2 = 4, ", "-n", str(TOKENS), "--temp",
              "0", "--ignore-eos", "--timeout-ms", str(TIMEOUT_MS))

    def __init__(self, *words, command=ANSWER):
        self.folder = tempfile.TemporaryDirectory()
        here = pathlib.Path(self.folder.name)
        os.symlink(LIBRARY, here / "libvulkan.so.1")
        paths = [str(here), os.environ.get("LD_LIBRARY_PATH", "")]
        env = {**os.environ, "WEFT_TEST_VULKAN": LOADER, "WEFT_TEST_GPUS": str(here),
               "LD_LIBRARY_PATH": ":".join(filter(None, paths))}
        self.process = subprocess.Popen(
            [PROGRAM, *command, "--device", DEVICE, *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        self.said = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.folder.cleanup()

    def decodes(self):
        """Waits for part of the answer: enough bytes that a step has completed."""
        self.said += os.read(self.process.stdout.fileno(), 1)
        while len(self.said) < 8:
            more = os.read(self.process.stdout.fileno(), 1)
            if not more:
                raise AssertionError(self.process.communicate()[1].decode())
            self.said += more

    def pid(self, rank):
        if rank == 0:
            return self.process.pid
        return children(self.process.pid)[rank - 1]

    def strike(self, what, rank):
        (pathlib.Path(self.folder.name) / f"{what}.{self.pid(rank)}").touch()
        return time.monotonic()

    def end(self):
        """Returns exit status, answer and messages."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, (self.said + out).decode(), err.decode()


class LostGpu(unittest.TestCase):
    layout = ("--local", "3", "--tp", "3")

    def whole(self, *words):
        with Job(*words) as job:
            status, text, err = job.end()
        self.assertEqual(status, 0, err)
        return text

    def struck(self, what, rank, *words):
        with Job(*words) as job:
            job.decodes()
            begin = job.strike(what, rank)
            return (*job.end(), time.monotonic() - begin)

    def test_it_is_named_and_the_job_ends(self):
        for rank, words in ((1, self.layout), (0, self.layout),
                            (1, ("--local", "2", "--pp", "2", "--transport", "tcp"))
                            )[0 if nightly() else 2:]:
            status, _, err, seconds = self.struck("lost", rank, *words)
            self.assertEqual(status, 3, err)
            self.assertIn("the device is lost", err)
            self.assertIn(DEVICE, err)
            self.assertIn(f"rank {rank} (host ", err)
            self.assertLessEqual(seconds, limit(TIMEOUT_MS / 1000 + 1))

    def test_one_rank_alone(self):
        status, _, err, seconds = self.struck("lost", 0)
        self.assertEqual(status, 3, err)
        self.assertIn("the device is lost", err)
        self.assertIn("dmesg", err)
        self.assertLessEqual(seconds, limit(TIMEOUT_MS / 1000 + 1))

    def test_another_process_takes_its_place(self):
        want = self.whole(*self.layout)
        status, text, err, _ = self.struck("lost", 1, *self.layout, "--restart-timeout-ms", "60000")
        self.assertEqual(status, 0, err)
        self.assertEqual(text, want)
        self.assertIn("epoch 2 with 3 ranks", err)

    def test_the_others_go_on(self):
        want = self.whole(*self.layout)
        status, text, err, _ = self.struck("lost", 2, *self.layout, "--elastic")
        self.assertEqual(status, 0, err)
        self.assertEqual(text, want)
        self.assertIn("epoch 2 with 2 ranks", err)

    def test_one_that_does_not_answer_is_named(self):
        status, _, err, seconds = self.struck("hangs", 1, *self.layout)
        self.assertEqual(status, 3, err)
        self.assertIn("rank 1", err)
        self.assertLessEqual(seconds, limit(3 * TIMEOUT_MS / 1000 + 1))


class InTraining(unittest.TestCase):
    TRAIN = ("train", MODEL, "--data", "synthetic:random-tokens:49:64", "--seq-len", "48",
             "--dtype", "f32", "--lr", "1e-3", "--steps", "12", "--local", "2", "--json")

    def losses(self, text):
        lines = [json.loads(line) for line in text.splitlines()]
        return {line["step"]: line["loss"] for line in lines if "loss" in line}

    def struck(self, rank):
        with tempfile.TemporaryDirectory() as out:
            with Job("--save-every", "2", "--output-dir", out, command=self.TRAIN) as job:
                while b'"step":4,' not in job.said:
                    job.said += job.process.stdout.readline()
                job.strike("lost", rank)
                return job.end()

    def test_another_process_takes_its_place(self):
        with Job("--no-output", command=self.TRAIN) as job:
            status, want, err = job.end()
        self.assertEqual(status, 0, err)
        status, text, err = self.struck(1)
        self.assertEqual(status, 0, err)
        self.assertEqual(self.losses(text), self.losses(want))
        self.assertIn("rank 1 (host ", err)
        self.assertIn("the device is lost", err)
        self.assertEqual(json.loads(text.splitlines()[-1])["restarts"], 1)

    def test_rank_0_ends_the_job(self):
        status, _, err = self.struck(0)
        self.assertEqual(status, 3, err)
        self.assertIn("the device is lost", err)
        self.assertIn("--resume auto", err)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    LIBRARY = os.path.abspath(sys.argv.pop(1))
    LOADER = true_loader()
    DEVICE, why_not = usable(PROGRAM) if LOADER else (None, "no libvulkan.so.1")
    if DEVICE is None:
        print(f"skipped: no Vulkan device to test with: {why_not}", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main()
