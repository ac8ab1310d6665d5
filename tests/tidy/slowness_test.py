#!/usr/bin/env python3
"""tests/support/slowness.py tells what a hypervisor took of the machine."""
import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import slowness  # noqa: E402

STAT = """cpu  1117113 3242 127188 37404 267 0 1641 3801 0 0
cpu0 557228 1636 62937 14562 25 0 683 1879 0 0
cpu1 559869 1605 64210 10154 239 0 956 1922 0 0
intr 13846694 0 0 9 0 0 0 0 0 0 0 0 0 0
"""


class Stolen(unittest.TestCase):
    def test_only_what_all_processors_lost_is_no_time(self):
        both = STAT.replace("1879", "2786").replace("1922", "2832")
        self.assertEqual(slowness.stolen(STAT, both), 9.07)
        self.assertEqual(slowness.stolen(STAT, STAT.replace("1922", "2832")), 0)
        self.assertEqual(slowness.stolen(both, STAT), 0)

    def test_where_processors_come_or_go_nothing_is_known(self):
        one = "".join(STAT.splitlines(keepends=True)[:2])
        self.assertEqual(slowness.stolen(STAT, one.replace("1879", "1979")), 0)
        self.assertEqual(slowness.stolen(one, STAT.replace("1879", "1979")), 0)

    def test_a_kernel_that_does_not_say(self):
        self.assertEqual(slowness.stolen("", ""), 0)
        self.assertEqual(slowness.stolen("cpu0 1 2 3\n", "cpu0 1 2 3\n"), 0)

    def test_a_stopwatch_counts(self):
        watch = slowness.Stopwatch()
        time.sleep(0.05)
        self.assertGreaterEqual(watch.seconds() + slowness.stolen(watch.stat, watch.read()), 0.05)


if __name__ == "__main__":
    unittest.main()
