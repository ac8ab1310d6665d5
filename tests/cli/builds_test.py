"""Ranks of two builds: with different commits or versions they work, with a warning; with different
protocol hashes they refuse each other, and both print the reason.

    builds_test.py WEFT TINY_MODEL
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import builds  # noqa: E402
import limits  # noqa: E402
from namespaces import Running  # noqa: E402


class Builds(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.key = self.folder / "key"
        self.key.write_text("a-shared-key-of-the-tests\n")
        self.key.chmod(0o600)
        self.model = self.folder / "tiny.gguf"
        subprocess.run([TINY_MODEL, self.model], check=True, capture_output=True)
        self.here = builds.build_of(WEFT)

    def another(self, *words):
        if "commit" in words and self.here["commit"] == "unknown":
            self.skipTest("this build does not know its commit")
        program = builds.other_build(WEFT, self.folder / "other", *words)
        return program, builds.build_of(program)

    def listening(self, program):
        worker = Running([program, "worker", "--listen", "127.0.0.1:0", "--key-file", self.key])
        self.addCleanup(worker.end)
        return worker, worker.await_text(r"\(port (\d+)\)")[1]

    def run_with(self, *words):
        return subprocess.run([WEFT, "run", self.model, "-p", "ab", "-n", "4", "--greedy", "--raw",
                               "-t", "1", "--key-file", self.key, *words], capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=limits.limit(120))

    def assert_refusal(self, text, other):
        for build in (self.here, other):
            self.assertIn(f"weft {build['version']} (commit {build['commit']}, protocol hash "
                          f"{build['protocol_hash']})", text)
        self.assertIn("messages or ops differ", text)

    def assert_warning(self, text, port, other):
        here = self.here
        self.assertIn(f"worker 127.0.0.1:{port} runs weft {other['version']} of commit "
                      f"{other['commit']}, this is weft {here['version']} of commit "
                      f"{here['commit']}: they can work together", text)
        self.assertIn("Install the same build on every host", text)

    def test_the_same_build(self):
        self.assertRegex(self.here["protocol_hash"], r"^[0-9a-f]{12}$")
        _, port = self.listening(WEFT)
        ran = self.run_with("--hosts", f"127.0.0.1:{port}")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertNotIn("commit", ran.stderr)

    def test_another_commit(self):
        program, other = self.another("commit")
        _, port = self.listening(program)
        ran = self.run_with("--hosts", f"127.0.0.1:{port}")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assert_warning(ran.stderr, port, other)

    def test_another_version(self):
        program, other = self.another("version")
        _, port = self.listening(program)
        ran = self.run_with("--hosts", f"127.0.0.1:{port}")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assert_warning(ran.stderr, port, other)

    def test_another_protocol(self):
        program, other = self.another("protocol_hash")
        worker, port = self.listening(program)
        ran = self.run_with("--hosts", f"127.0.0.1:{port}")
        self.assertEqual(ran.returncode, 1, ran.stderr)
        self.assertIn(f"worker 127.0.0.1:{port} runs weft ", ran.stderr)
        self.assert_refusal(ran.stderr, other)
        self.assertIn("Install the same build on every host", ran.stderr)
        worker.await_text("messages or ops differ")
        self.assert_refusal(worker.text, other)

    def test_a_worker_that_dials_in(self):
        program, other = self.another("protocol_hash")
        root = Running([WEFT, "run", self.model, "-p", "ab", "-n", "4", "--key-file", self.key,
                        "--expect-workers", "1", "--listen", "127.0.0.1:0"])
        self.addCleanup(root.end)
        port = root.await_text(r"connect to port (\d+)")[1]
        worker = Running([program, "worker", "--join", f"127.0.0.1:{port}", "--key-file", self.key,
                          "--once"])
        self.addCleanup(worker.end)
        self.assertEqual(worker.process.wait(limits.limit(60)), 1)
        worker.reader.join(5)
        self.assert_refusal(worker.text, other)
        self.assertIn("Install the same build on every host", worker.text)
        root.await_text("messages or ops differ")
        self.assert_refusal(root.text, other)


if __name__ == "__main__":
    WEFT, TINY_MODEL = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
