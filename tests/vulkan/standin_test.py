#!/usr/bin/env python3
"""Whole jobs on the stand-ins of CUDA and HIP (tests/gpu/standin): answers, ranks, and faults.

    standin_test.py PROGRAM FOLDER [UNITTEST ARGUMENT...]
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "support")]
from nightly import nightly_only  # noqa: E402
from vulkan_device import MODEL, PATIENCE  # noqa: E402

# Compiled kernels and tuned shapes stay out of the user's folder.
CACHE = tempfile.TemporaryDirectory()
os.environ["XDG_CACHE_HOME"] = CACHE.name
ASK = ("run", MODEL, "--raw", "-p", "What is 47 + 38?", "-n", "4", "--temp", "0", "--json",
       "--exact")


def run(*words, status=0, folder=None, **env):
    paths = [str(folder or STANDINS), os.environ.get("LD_LIBRARY_PATH", "")]
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths)),
                               "VK_DRIVER_FILES": "/nowhere", "VK_ICD_FILENAMES": "/nowhere",
                               **env})
    if done.returncode != status:
        raise AssertionError(f"{' '.join(words)}: status {done.returncode}\n{done.stderr}")
    return done


class Jobs(unittest.TestCase):
    def answer(self, *words):
        found = json.loads(run(*ASK, *words).stdout)
        return found["text"], [rank["device"] for rank in found["ranks"]]

    def test_answers_are_those_of_the_cpu(self):
        want, _ = self.answer("--device", "cpu")
        for words, devices in ((("--device", "cuda"), ["cuda:0"]),
                               (("--device", "hip:0"), ["hip:0"]),
                               (("--tp", "2", "--device", "cuda:0"), ["cuda:0", "cuda:0"])):
            self.assertEqual(self.answer(*words), (want, devices))


@nightly_only
class Training(unittest.TestCase):
    WORDS = ("train", MODEL, "--data", "synthetic:random-tokens:40:16", "--seq-len", "48",
             "--no-output", "--dtype", "f32", "--lr", "1e-3", "--steps", "2", "--json")

    def losses(self, device):
        lines = run(*self.WORDS, "--device", device).stdout.splitlines()
        return [step["loss"] for step in map(json.loads, lines) if "loss" in step]

    def test_losses_are_those_of_the_cpu(self):
        want = self.losses("cpu")
        self.assertEqual(len(want), 2)
        for device in ("cuda", "hip"):
            for got, of_cpu in zip(self.losses(device), want):
                self.assertAlmostEqual(got, of_cpu, delta=1e-4 * of_cpu)


class Lists(unittest.TestCase):
    def test_a_card_is_listed_with_what_lacks(self):
        cards = json.loads(run("inspect", "--devices", "--json").stdout)["gpus"]
        self.assertEqual([card["device"] for card in cards], ["cuda:0", "hip:0"])
        self.assertEqual([card["subgroup"] for card in cards], [32, 64])
        for card in cards:
            self.assertRegex(card["missing"][0], "^vulkan: ")


class Faults(unittest.TestCase):
    def test_each_is_named(self):
        for device, env, said in (
                ("cuda", {"WEFT_STANDIN_LOST": "30"}, "the device is lost"),
                ("cuda", {"WEFT_STANDIN_MIB": "2"}, "MiB"),
                ("cuda", {"WEFT_STANDIN_ARCH": "sm_61"}, "compute capability is 6.1"),
                ("hip", {"WEFT_STANDIN_ARCH": "gfx1201"}, "'gfx1201' needs ROCm 6.3 or later"),
                ("cuda", {"WEFT_STANDIN_DEVICES": "0"}, "this machine has no CUDA device")):
            failed = subprocess.run([PROGRAM, *ASK, "--device", device], capture_output=True,
                                    text=True, timeout=PATIENCE,
                                    env={**os.environ, "LD_LIBRARY_PATH": STANDINS, **env})
            self.assertNotEqual(failed.returncode, 0)
            self.assertIn(said, failed.stderr)

    def test_a_missing_library_is_a_package(self):
        with tempfile.TemporaryDirectory() as empty:
            (pathlib.Path(empty) / "libcuda.so.1").write_bytes(b"")
            said = run(*ASK, "--device", "cuda", status=1, folder=empty).stderr
            self.assertIn("libcuda1 (Debian)", said)
            shutil.copy(pathlib.Path(STANDINS) / "libcuda.so.1", empty)
            for name in ("libnvrtc.so.13", "libnvrtc.so.12"):
                (pathlib.Path(empty) / name).write_bytes(b"")
            said = run(*ASK, "--device", "cuda", status=1, folder=empty).stderr
            self.assertIn("libnvrtc12 (Debian)", said)


if __name__ == "__main__":
    PROGRAM, STANDINS = (str(pathlib.Path(sys.argv.pop(1)).resolve()) for _ in range(2))
    unittest.main()
