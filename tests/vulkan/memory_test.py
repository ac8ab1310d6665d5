#!/usr/bin/env python3
"""A rank on a GPU uses memory for its weights, its KV cache, and at most 300 MiB more, from its
start to its end, driver and compiled kernels included. The test measures host memory: all of it
for a device that computes on the CPU, only the host's part for any other.

    memory_test.py PROGRAM [UNITTEST ARGUMENT...]

Exit status 77: no Vulkan device can be used.
"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "support")]
from processes import children  # noqa: E402
from vulkan_device import PATIENCE, SKIPPED, usable  # noqa: E402
from wait import watch  # noqa: E402

MIB = 1 << 20
BESIDE = 300 * MIB
CONTEXT, ANSWER = 2048, 24
# SmolLM2-135M: layers, KV heads, columns of a head; its size if the file is absent.
LAYERS, KV_HEADS, HEAD_DIM = 30, 3, 64
SYNTHETIC = "synthetic:smollm2-135m:Q4_1"
EMBEDDING = 49_152 * 576  # in Q8_0, the rest in Q4_1
SYNTHETIC_BYTES = EMBEDDING * 34 // 32 + (134_515_008 - EMBEDDING) * 5 // 8


def model():
    path = os.environ.get("WEFT_MODEL", "")
    if os.path.exists(path):
        return path, os.path.getsize(path)
    return SYNTHETIC, SYNTHETIC_BYTES


def memory_of(pid):
    """Proportional set size in bytes; 0: the process has ended."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


class Memory(unittest.TestCase):
    def peaks(self, *words):
        """The peak of each process, rank 0 first; and the sizes that the ranks report."""
        name, _ = model()
        command = [PROGRAM, "run", name, "--raw", "-p", "The capital of France is", "-n",
                   str(ANSWER), "--ignore-eos", "--temp", "0", "--ctx", str(CONTEXT), "--json",
                   "--device", DEVICE, *words]
        peaks = {}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as job:
            def look():
                for pid in [job.pid, *children(job.pid)]:
                    peaks[pid] = max(peaks.get(pid, 0), memory_of(pid))
            watch(job, look, PATIENCE, pause_s=0.05)
            out, err = job.communicate()
        self.assertEqual(job.returncode, 0, err)
        return list(peaks.values()), json.loads(out)["ranks"]

    def check(self, ranks, *words):
        peaks, told = self.peaks(*words)
        self.assertEqual((len(peaks), len(told)), (ranks, ranks))
        # The bound uses the file and the model's sizes, not the reported sizes.
        self.assertLessEqual(sum(r["weight_bytes"] for r in told), 1.05 * model()[1])
        kv = 2 * 2 * LAYERS * KV_HEADS * HEAD_DIM * CONTEXT
        for r in told:
            self.assertLessEqual(r["kv_bytes"], kv)
        for peak, rank in zip(peaks, told):
            counted = rank["weight_bytes"] + rank["kv_bytes"]
            print(f"{' '.join(words) or 'one rank'}: {peak / MIB:.0f} MiB: weights and KV cache "
                  f"{counted / MIB:.0f}, {(peak - counted) / MIB:.0f} beside them", flush=True)
            if COMPUTES_HERE:
                self.assertGreater(peak, counted)
            self.assertLessEqual(peak, counted + BESIDE)

    def test_one_rank(self):
        self.check(1)

    def test_two_tensor_ranks(self):
        self.check(2, "--tp", "2")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    DEVICE, why_not = usable(PROGRAM)
    if DEVICE is None:
        print(f"skipped: no Vulkan device to test with: {why_not}", file=sys.stderr)
        sys.exit(SKIPPED)
    listed = json.loads(subprocess.run([PROGRAM, "inspect", "--devices", "--json"], check=True,
                                       stdout=subprocess.PIPE).stdout)["gpus"]
    COMPUTES_HERE = listed[int(DEVICE.split(":")[1])]["kind"] == "cpu"
    unittest.main()
