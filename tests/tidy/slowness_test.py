#!/usr/bin/env python3
"""tests/support/slowness.py tells what a hypervisor and the kernel kept from running."""
import os
import pathlib
import subprocess
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
        lost = max(slowness.stolen(watch.stat, watch.read()), watch.held.seconds)
        self.assertGreaterEqual(watch.seconds() + lost, 0.05)


class HeldUp(unittest.TestCase):
    # Until its child ends, a process that has called vfork(2) waits where no signal reaches it.
    VFORK = "import ctypes; c = ctypes.CDLL(None); c.vfork() or (c.usleep(700000), c._exit(0))"

    def seconds(self, code):
        """Of a program, and how long it took."""
        with subprocess.Popen([sys.executable, "-c", code]) as process:
            watch = slowness.Stopwatch()
            process.wait()
            took = time.monotonic() - watch.begin
            return watch.seconds(), took

    def test_what_the_kernel_holds_up_is_no_time(self):
        seconds, took = self.seconds(self.VFORK)
        self.assertGreater(took, 0.5)
        self.assertLess(seconds, took - 0.4)

    def test_a_thread_is_held_up_where_none_of_its_code_runs(self):
        exiting, others = 0x4, 0x400040
        self.assertTrue(slowness.runs_nothing(("D", 1, others)))
        for state in "RSTt":
            self.assertFalse(slowness.runs_nothing((state, 1, others)))
            self.assertTrue(slowness.runs_nothing((state, 1, others | exiting)))
        for line in (("Z", 1, exiting), ("X", 1, exiting), None):
            self.assertFalse(slowness.runs_nothing(line))
        state, parent, flags = slowness.stat_line("/proc/self/stat")
        self.assertEqual((state, parent, flags & exiting), ("R", os.getppid(), 0))

    def test_sleeping_and_computing_is_time(self):
        for code in ("import time; time.sleep(0.6)",
                     "import time; e = time.monotonic() + 0.6\nwhile time.monotonic() < e: pass"):
            seconds, took = self.seconds(code)
            self.assertGreater(seconds, took * 0.6)

    def test_children_of_children_are_found(self):
        with subprocess.Popen(["sh", "-c", "sleep 5 & wait"]) as shell:
            for _ in range(500):
                found = slowness.descendants(os.getpid())
                if len(found) >= 2:
                    break
                time.sleep(0.01)
            self.assertEqual(found[0], shell.pid)
            self.assertEqual(len(found), 2)
            for pid in reversed(found):
                os.kill(pid, 9)


if __name__ == "__main__":
    unittest.main()
