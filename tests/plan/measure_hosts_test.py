"""`weft plan --measure --hosts` over two hosts: network namespaces with their own names and a wire
between them, and a worker on one. The file must describe two machines of one rank each, with the
measured wire, and `weft plan` must accept it. A missing worker is an error.

    measure_hosts_test.py WEFT

Needs root, ip(8), unshare(1) and nsenter(1); skips (status 77) if one is missing.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from limits import limit  # noqa: E402
from namespaces import Namespace, cable, why_skipped  # noqa: E402
from nightly import nightly, some  # noqa: E402
from wait import until  # noqa: E402

LIMIT_S = 150


class Host(Namespace):
    def run(self, *words):
        return subprocess.run(self.words(*words), capture_output=True, text=True,
                              timeout=limit(LIMIT_S))


class MeasureHosts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.key = self.folder / "key"
        self.key.write_text("a key for this test only")
        self.key.chmod(0o600)
        self.here, self.there = Host("near"), Host("far")
        self.addCleanup(self.here.close)
        self.addCleanup(self.there.close)
        cable(self.here, "wire", self.there, "wire")
        for host, address in ((self.here, "10.98.7.1/24"), (self.there, "10.98.7.2/24")):
            host.do("ip", "addr", "add", address, "dev", "wire")

    def start_worker(self):
        log = open(self.folder / "worker", "w")
        self.addCleanup(log.close)
        worker = subprocess.Popen(
            self.there.words(WEFT, "worker", "--listen", "10.98.7.2:7000", "--key-file",
                             str(self.key)), stdout=log, stderr=log)
        self.addCleanup(worker.wait)
        self.addCleanup(worker.send_signal, signal.SIGTERM)
        said = (self.folder / "worker").read_text
        until(lambda: "listening" in said(), said, process=worker)

    def measure(self, *more):
        return self.here.run(WEFT, "plan", "--measure", "--hosts", "10.98.7.2:7000", "--key-file",
                             str(self.key), "-t", "1", "--types", "q8_0", "--measure-with",
                             "synthetic:smollm2-135m", "--measure-experts-with", "none",
                             "--kv-types", "f16", "--train-types", "bf16" if nightly() else "none",
                             "-o", str(self.folder / "lab.json"), *more)

    def test_a_file_of_two_hosts(self):
        self.start_worker()
        done = self.measure("--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["devices"], 1, done.stdout)
        lab = json.loads((self.folder / "lab.json").read_text())
        self.assertNotIn("tiers", lab)
        self.assertIn("tcp", lab["wire"]["about"])
        self.assertEqual(lab["wire"]["latency"]["mark"], "measured")
        self.assertGreater(float(lab["wire"]["latency"]["is"].split()[0]), 0.1)
        self.assertEqual(lab["measured"]["ranks"], 2)
        self.assertIn("8192", lab["measured"]["all_reduce"])
        if nightly():
            self.assertIn("512", lab["measured"]["training"]["BF16"]["ops"]["mat_mul"])
        self.assertEqual(lab["measured"]["cores"], 1)
        # Over a wire of this file the two are tensor ranks or stages.
        plan = subprocess.run(
            [WEFT, "plan", "synthetic:smollm2-135m:q8_0", "--machines",
             f"2x{self.folder / 'lab.json'}", "--hosts", "10.98.7.2:7000", "--context", "64",
             "--json", "--explain"], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(plan.returncode, 0, plan.stderr)
        rows = {row["layout"]: row for row in json.loads(plan.stdout)["layouts"]}
        self.assertEqual(rows["tp2"]["machines"], 2)
        self.assertGreater(rows["tp2"]["token_s"]["wire"], 0)
        self.assertGreater(rows["pp2"]["token_s"]["hops"], 0)
        # The commands that it prints run on these hosts.
        for layout in some(("pp2", "tp2"), 2):
            words = rows[layout]["run"].split()
            self.assertEqual(words[:2], ["weft", "run"])
            self.assertIn("10.98.7.2:7000", words)
            words[words.index("--key-file") + 1] = str(self.key)
            ran = self.here.run(WEFT, *words[1:], "--raw", "-p", "hello", "-n", "2",
                                "--ignore-eos", "-t", "1", "--json")
            self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_a_worker_that_is_not_there(self):
        begin = time.monotonic()
        done = self.measure("--wait", "2s")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("10.98.7.2:7000", done.stderr)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertFalse((self.folder / "lab.json").exists())


if __name__ == "__main__":
    reason = why_skipped()
    if reason:
        print(f"SKIPPED: {reason}")
        sys.exit(77)
    WEFT = os.path.abspath(sys.argv.pop(1))
    unittest.main()
