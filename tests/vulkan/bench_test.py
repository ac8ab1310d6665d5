#!/usr/bin/env python3
"""bench/gpu.py runs to its end with tiny sizes, and reports how reliable its figures are; weft
bench --power with simulated sensors, and without any.

    bench_test.py BUILD [UNITTEST ARGUMENT...]

Exit status 77: no Vulkan device can be used.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from vulkan_device import MODEL, PATIENCE, ROOT, SKIPPED, usable  # noqa: E402

LLAMA = """#!/bin/sh
echo '[{"n_prompt": 16, "n_gen": 0, "avg_ts": 2.0}, {"n_prompt": 0, "n_gen": 4, "avg_ts": 1.0}]'
"""


def run(*words, root=None):
    env = {**os.environ, "WEFT_POWER_ROOT": root or "/nowhere"}
    return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=PATIENCE, env=env)


def sensors(folder):
    """An APU of 50 W, whose RAPL counter must not be counted in addition."""
    hwmon = pathlib.Path(folder) / "sys/class/hwmon/hwmon4"
    hwmon.mkdir(parents=True)
    for name, text in (("name", "amdgpu"), ("power1_average", "50000000"), ("in1_label", "vddnb")):
        (hwmon / name).write_text(text + "\n")
    rapl = pathlib.Path(folder) / "sys/class/powercap/intel-rapl:0"
    rapl.mkdir(parents=True)
    for name, text in (("name", "package-0"), ("energy_uj", "1"), ("max_energy_range_uj", "9")):
        (rapl / name).write_text(text + "\n")
    return folder


class Bench(unittest.TestCase):
    def test_it_runs_to_its_end(self):
        with tempfile.TemporaryDirectory() as folder:
            llama = pathlib.Path(folder) / "llama-bench"
            llama.write_text(LLAMA)
            llama.chmod(0o755)
            path = os.path.join(folder, "all.json")
            done = run(sys.executable, ROOT / "bench/gpu.py", "--quick", "--device", DEVICE,
                       "--build", BUILD, "--llama", folder, "--model", MODEL, "--json", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(pathlib.Path(path).read_text())
        kernels = found["kernels"]
        self.assertGreater(kernels["submit_us"], 0)
        self.assertGreater(kernels["copy_gb_s"], 0)
        self.assertGreater(kernels["transfer_gb_s"], 0)
        self.assertGreater(kernels["float_tflop_s"], 0)
        types = {row["type"] for row in kernels["types"]}
        self.assertLessEqual({"F32", "F16", "Q4_0", "Q8_0", "Q4_K", "Q6_K", "MXFP4"}, types)
        for row in kernels["types"]:
            self.assertGreater(row["matvec_gb_s"], 0, row)
            self.assertGreater(row["tile_tflop_s"], 0, row)
        self.assertEqual([row["keys"] for row in kernels["attention"]], [512, 2048, 4096])
        for row in kernels["attention"]:
            self.assertGreater(row["tflop_s"], 0, row)
        self.assertIn("| 4096 keys | 16 |", done.stdout)
        forms = {row["form"] for row in found["training"]["products"]}
        self.assertEqual(forms, {"y = x W^T", "dx = dy W", "dW += dy^T x"})
        for row in found["training"]["products"]:
            self.assertGreater(row["tflop_s"], 0, row)
        self.assertIn("| products of training (", done.stdout)
        self.assertRegex(done.stdout, r"\| weft \| \S+ \(commit \S+\) \|")
        self.assertRegex(done.stdout, r"\| copies \| [0-9.]+ GB/s, read and written by a kernel \|")
        self.assertRegex(done.stdout, r"\| transfers \| [0-9.]+ GB/s, by a command \|")
        self.assertIn("| Q4_K |", done.stdout)
        self.assertIn("| decode |", done.stdout)
        if kernels["kind"] == "cpu":
            self.assertIn("these figures mean nothing", done.stdout)

    def test_power(self):
        words = (BUILD / "weft", "bench", MODEL, "-p", "64", "-n", "32", "-r", "2", "--power")
        with tempfile.TemporaryDirectory() as folder:
            root = sensors(folder)
            for layout in ((), ("--tp", "2"), ("--tp", "2", "--transport", "tcp")):
                done = run(*words, *layout, "-o", "json", root=root)
                self.assertEqual(done.returncode, 0, done.stderr)
                for row in json.loads(done.stdout):
                    # One of two ranks of a host measures. Energy and time are read one message
                    # apart.
                    self.assertEqual(len(row["power_sensors"]), 1, row)
                    self.assertIn("with its GPU", row["power_sensors"][0]["sensor"])
                    self.assertTrue(25 <= row["avg_watts"] <= 100, row)
                    tokens = 2 * (row["n_prompt"] + row["n_gen"])
                    self.assertAlmostEqual(
                        row["joules_per_token"] * tokens,
                        row["avg_watts"] * row["power_seconds"], places=6)
            table = run(*words, root=root).stdout
            self.assertIn("J/token", table)
            self.assertIn("amdgpu hwmon4 power1_average: the processor with its GPU", table)
        table = run(*words).stdout
        self.assertIn("no power sensor: ", table)
        for row in json.loads(run(*words, "-o", "json").stdout):
            self.assertIsNone(row["avg_watts"])
            self.assertIsNone(row["joules_per_token"])


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    DEVICE, why_not = usable(str(BUILD / "weft"))
    if DEVICE is None:
        print(f"skipped: no Vulkan device to test with: {why_not}", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main()
