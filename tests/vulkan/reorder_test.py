#!/usr/bin/env python3
"""Barriers: tests give the same results when the commands between two barriers run in another order
(reorder.cc), and fail when barriers are left out.

    reorder_test.py LIBRARY PROGRAM FILTER [UNITTEST ARGUMENT...]

FILTER: the tests of PROGRAM, for GoogleTest. Exit status 77: no Vulkan device can be used.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent),
                str(pathlib.Path(__file__).resolve().parents[1] / "support")]
from nightly import nightly  # noqa: E402
from vulkan_device import PATIENCE, SKIPPED, machine_env, true_loader  # noqa: E402


def run(tests, **env):
    """Returns the status, how many tests ran, and how many groups of commands were reordered."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report")
        done = subprocess.run(
            [PROGRAM, f"--gtest_filter={tests}"], capture_output=True, text=True,
            timeout=10 * PATIENCE,
            env={**machine_env(folder, LIBRARY, ""), "WEFT_TEST_ORDER_REPORT": report, **env})
        passed = re.search(r"\[  PASSED  \] (\d+) test", done.stdout)
        skipped = re.search(r"\[  SKIPPED \] (\d+) test", done.stdout)
        groups = pathlib.Path(report).read_text().split() if os.path.exists(report) else []
        if done.returncode != 0 and "WEFT_TEST_DROP" not in env:
            print(done.stdout[-4000:], done.stderr[-4000:], file=sys.stderr)
        return (done.returncode, int(passed[1]) if passed else 0,
                int(skipped[1]) if skipped else 0, sum(map(int, groups)))


class Barriers(unittest.TestCase):
    def test_commands_between_two_barriers_run_in_any_order(self):
        for order in ("reverse", "1", "2") if nightly() else ("reverse",):
            status, passed, _, groups = run(FILTER, WEFT_TEST_ORDER=order)
            self.assertEqual(status, 0, order)
            self.assertGreater(passed, 0)
            self.assertGreater(groups, 20)

    def test_a_missing_barrier_is_seen(self):
        """Of all barriers, every 7th."""
        status, _, _, groups = run(FILTER.split(":")[0], WEFT_TEST_ORDER="reverse",
                                   WEFT_TEST_DROP="7")
        self.assertNotEqual(status, 0)
        self.assertGreater(groups, 0)


if __name__ == "__main__":
    LIBRARY, PROGRAM = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    FILTER = sys.argv.pop(1)
    if true_loader() is None:
        print("skipped: no libvulkan.so.1", file=sys.stderr)
        sys.exit(SKIPPED)
    if run(FILTER.split(":")[0])[2] > 0:
        print("skipped: no Vulkan device to test with", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main()
