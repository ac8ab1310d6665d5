#!/usr/bin/env python3
"""tests/support/slowness.py tells how slow the machine is, and what a hypervisor took of it."""
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import slowness  # noqa: E402

STAT = """cpu  1117113 3242 127188 37404 267 0 1641 3801 0 0
cpu0 557228 1636 62937 14562 25 0 683 1879 0 0
cpu1 559869 1605 64210 10154 239 0 956 1922 0 0
intr 13846694 0 0 9 0 0 0 0 0 0 0 0 0 0
"""


class Stolen(unittest.TestCase):
    def test_the_processor_that_lost_most_counts(self):
        self.assertEqual(slowness.stolen(STAT, STAT), 0)
        self.assertEqual(slowness.stolen(STAT, STAT.replace("1922", "2832")), 9.1)
        self.assertEqual(slowness.stolen(STAT, STAT.replace("1879", "2000")), 1.21)

    def test_processors_come_and_go(self):
        one = "".join(STAT.splitlines(keepends=True)[:2])
        self.assertEqual(slowness.stolen(STAT, one.replace("1879", "1979")), 1)
        self.assertEqual(slowness.stolen(one, STAT.replace("1922", "9999")), 0)

    def test_a_kernel_that_does_not_say(self):
        self.assertEqual(slowness.stolen("", ""), 0)
        self.assertEqual(slowness.stolen("cpu0 1 2 3\n", "cpu0 1 2 3\n"), 0)

    def test_a_bound_is_no_less_than_an_idle_machines(self):
        self.assertGreaterEqual(slowness.bound(2), 2)
        os.environ["WEFT_TEST_SLOWNESS"] = "3"
        try:
            self.assertGreaterEqual(slowness.bound(2), 6)
        finally:
            del os.environ["WEFT_TEST_SLOWNESS"]


if __name__ == "__main__":
    unittest.main()
