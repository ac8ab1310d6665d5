#!/usr/bin/env python3
"""The counts of tests/support/summary.py are those of ctest: real ctest runs over tests that pass,
fail, crash, hang, can't be started, skip in each of the two ways, or are disabled."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SUMMARY = pathlib.Path(__file__).resolve().parents[1] / "support/summary.py"
GOOD = 'add_test(good true)\n'
SKIPS = r"""
add_test(skip_a sh -c "echo x; echo 'SKIPPED: no cable here'; exit 77")
add_test(skip_b sh -c "echo 'SKIPPED: no cable here'; exit 77")
set_tests_properties(skip_a skip_b PROPERTIES SKIP_RETURN_CODE 77)
add_test(Hosts.Cut printf "[ RUN      ] Hosts.Cut\\n/a/b_test.cc:27: Skipped\\nneeds\\nroot\\n\\n\
[  SKIPPED ] Hosts.Cut\\n")
set_tests_properties(Hosts.Cut PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
add_test(off true)
set_tests_properties(off PROPERTIES DISABLED ON)
"""
SUITE = r"""
add_test(Suite printf "[       OK ] Suite.A/0, where GetParam() = 1 (0 ms)\\n\
/a_test.cc:2: Skipped\\nno GPU\\n\\n[  SKIPPED ] Suite.B (0 ms)\\n[       OK ] Suite.C (0 ms)\\n\
[==========] 3 tests from 1 test suite ran. (0 ms total)\\n[  PASSED  ] 2 tests.\\n")
"""
BAD = """
add_test(wrong false)
add_test(hangs sleep infinity)
set_tests_properties(hangs PROPERTIES TIMEOUT 1)
add_test(crash sh -c "kill -SEGV $$")
add_test(absent "./not-there")
"""


class Summary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ctest(self, name, tests, *words):
        (self.folder / "CTestTestfile.cmake").write_text(tests)
        results = self.folder / name
        status = subprocess.run(["ctest", "--output-junit", results, *words], cwd=self.folder,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
        return results, status

    def summary(self, *words):
        done = subprocess.run([sys.executable, SUMMARY, *words], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout, done.stdout.splitlines()[-1]

    def test_all_pass(self):
        results, _ = self.ctest("release.xml", GOOD)
        self.assertEqual(self.summary(results)[::2], (0, "1 passed, 0 failed, 0 skipped"))

    def test_tests_of_a_suite_are_counted(self):
        results, _ = self.ctest("release.xml", GOOD + SUITE)
        status, out, last = self.summary(results)
        self.assertEqual((status, last), (0, "3 passed, 0 failed, 1 skipped"), out)
        self.assertIn("   1  no GPU\n        Suite.B\n", out)

    def test_skips_have_their_reasons_and_are_no_failures(self):
        results, status = self.ctest("release.xml", GOOD + SKIPS)
        self.assertEqual(status, 0)
        status, out, last = self.summary(results)
        self.assertEqual((status, last), (0, "1 passed, 0 failed, 4 skipped"), out)
        self.assertIn("   2  SKIPPED: no cable here\n        skip_a, skip_b\n", out)
        self.assertIn("   1  needs root\n        Hosts.Cut\n", out)
        self.assertIn("   1  disabled\n        off\n", out)

    def test_every_way_to_fail_counts(self):
        results, status = self.ctest("release.xml", GOOD + SKIPS + BAD)
        self.assertNotEqual(status, 0)
        status, out, last = self.summary(results, "--also-failed", "release")
        self.assertEqual((status, last), (1, "1 passed, 4 failed, 4 skipped"), out)
        for name in ("wrong", "hangs", "crash", "absent (Unable to find executable)"):
            self.assertIn(f"        {name}\n", out)

    def test_what_failed_says_why(self):
        (self.folder / "said").write_text("/a/b_test.cc:7: Failure\nWhich is: 3\nweft: time=1\n"
                                          + "x\n" * 60)
        results, _ = self.ctest("release.xml", 'add_test(wrong sh -c "cat said; exit 1")\n')
        _, out, _ = self.summary(results)
        self.assertIn("wrong said:\n    /a/b_test.cc:7: Failure\n    Which is: 3\n    x\n", out)
        self.assertNotIn("time=", out)
        self.assertLess(len(out.splitlines()), 25, out)

    def test_several_suites_are_added_up(self):
        release, _ = self.ctest("release.xml", GOOD + SKIPS)
        asan, _ = self.ctest("asan.xml", GOOD + BAD)
        status, _, last = self.summary(release, asan, "--also-failed", "asan", "--also-failed",
                                       "fuzz")
        self.assertEqual((status, last), (1, "2 passed, 5 failed, 4 skipped"))

    def test_what_ended_without_results_has_failed(self):
        self.assertEqual(self.summary("--also-failed", "release")[::2],
                         (1, "0 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.summary(self.folder / "none.xml")[::2],
                         (1, "0 passed, 1 failed, 0 skipped"))
        none, status = self.ctest("release.xml", GOOD, "-R", "nothing", "--no-tests=error")
        self.assertNotEqual(status, 0)
        self.assertEqual(self.summary(none, "--also-failed", "release")[::2],
                         (1, "0 passed, 1 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
