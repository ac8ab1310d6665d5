#!/usr/bin/env python3
"""Whole jobs on the stand-ins of CUDA and HIP (tests/gpu/standin): answers, ranks, and faults.

    standin_test.py PROGRAM FOLDER [UNITTEST ARGUMENT...]
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "support")]
from nightly import nightly, nightly_only  # noqa: E402
from processes import children  # noqa: E402
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


class Peers(unittest.TestCase):
    """Sums of two ranks through the memory of two GPUs (--gpu-allreduce peer)."""
    CARDS = {"WEFT_STANDIN_DEVICES": "2", "WEFT_LOG": "debug"}
    BY_PEERS = "all-reduces go through GPU memory: "
    BY_HOST = "all-reduces go through host memory: tensor rank "

    def logits(self, api, how, *words, **env):
        """Returns the logits of steps of many rows and of few, and the messages."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "logits.npy")
            tokens = ",".join(str(3 + 5 * i % 90) for i in range(12))
            said = run("logits", MODEL, "--tokens", tokens, "--all", "--npy", path, "--exact",
                       "--device", api, "--gpu-allreduce", how, "--tp", "2", *words,
                       **{**self.CARDS, **env}).stderr
            return pathlib.Path(path).read_bytes(), said

    def test_sums_have_the_bits_of_host_memory(self):
        for api in ("cuda", "hip") if nightly() else ("cuda",):
            for words in ((), ("--prefill-chunk", "1")):
                want, said = self.logits(api, "split", *words)
                self.assertIn("its --gpu-allreduce asks for host memory", said)
                got, said = self.logits(api, "peer", *words)
                self.assertEqual(said.count(self.BY_PEERS), 2, said)
                self.assertTrue(got == want, f"{api} {words}")

    def test_auto_measures_both_ways(self):
        _, said = self.logits("cuda", "auto")
        self.assertRegex(said, r" in \d+ us \(through host memory \d+\)")

    def test_a_driver_that_shares_no_memory_is_named(self):
        want, _ = self.logits("cuda", "split", "--prefill-chunk", "1")
        for env, why in (({"WEFT_STANDIN_IPC": "0"}, "GetSharedHandle failed"),
                         ({"WEFT_STANDIN_PEERS": "0"}, "gives it no access to the memory")):
            got, said = self.logits("cuda", "peer", "--prefill-chunk", "1", **env)
            self.assertRegex(said, f"warning: .*{self.BY_HOST}0: .*{why}")
            self.assertTrue(got == want)

    def test_a_rank_that_is_killed_is_named(self):
        env = {**os.environ, "LD_LIBRARY_PATH": STANDINS, **self.CARDS}
        with subprocess.Popen([PROGRAM, *ASK[:5], "-n", "400", "--ignore-eos", "--temp", "0",
                               "--device", "cuda", "--tp", "2", "--gpu-allreduce", "peer"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=env) as job:
            job.stdout.read(4)
            os.kill(children(job.pid)[0], signal.SIGKILL)
            _, said = job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, 3, said)
        self.assertIn(self.BY_PEERS, said)
        self.assertRegex(said, "error: rank 1 ")


class Faults(unittest.TestCase):
    def test_each_is_named(self):
        for device, env, said in (
                ("cuda", {"WEFT_STANDIN_LOST": "30"}, "the device is lost"),
                ("cuda", {"WEFT_STANDIN_MIB": "2"}, "MiB"),
                ("cuda", {"WEFT_STANDIN_ARCH": "sm_61"}, "compute capability is 6.1"),
                ("cuda", {"WEFT_STANDIN_ARCH": "sm_120", "WEFT_STANDIN_NEWEST": "90"},
                 "does not compile for sm_120; version 12.8 does"),
                ("cuda", {"WEFT_STANDIN_INIT": "803"}, "restart the machine"),
                ("cuda", {"WEFT_STANDIN_INIT": "802"}, "nvidia-fabricmanager"),
                ("cuda", {"WEFT_STANDIN_INIT": "7"}, "the driver does not start: result 7."),
                ("cuda", {"CUDA_VISIBLE_DEVICES": ""}, "Does CUDA_VISIBLE_DEVICES= hide it?"),
                ("hip", {"WEFT_STANDIN_ARCH": "gfx1201"}, "'gfx1201' needs ROCm 6.3 or later"),
                ("hip", {"WEFT_STANDIN_ARCH": "gfx950"}, "'gfx950' needs ROCm 7.0 or later"),
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
