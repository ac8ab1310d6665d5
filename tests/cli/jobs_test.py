"""Several jobs of real models on one worker: the same answers as alone, jobs that wait in line, and
a job that finds too little memory beside another one.

    jobs_test.py WEFT
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import limits  # noqa: E402
from namespaces import Running  # noqa: E402
from processes import children, send  # noqa: E402

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models/abacus/model.gguf"
PROMPTS = ("What is 47 + 38?", "What is 12 + 9?", "What is 60 - 13?")


class Jobs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.key = pathlib.Path(folder.name) / "key"
        self.key.write_text("a-shared-key-of-the-tests\n")
        self.key.chmod(0o600)

    def worker(self, *words, **env):
        worker = Running([WEFT, "worker", "--listen", "127.0.0.1:0", "--key-file", self.key,
                          *words], {**os.environ, **env})
        self.addCleanup(worker.end)
        self.hosts = "127.0.0.1:" + worker.await_text(r"port (\d+)\)")[1]
        return worker

    def words(self, command, *words):
        return [WEFT, command, MODEL, "-t", "1", "--hosts", self.hosts, "--key-file", self.key,
                *words]

    def run_words(self, prompt, *words):
        return self.words("run", "-p", prompt, "--greedy", "-n", "16", *words)

    def alone(self, prompt):
        ran = subprocess.run([WEFT, "run", MODEL, "-t", "1", "-p", prompt, "--greedy", "-n", "16"],
                             capture_output=True, text=True, stdin=subprocess.DEVNULL,
                             timeout=limits.limit(60), check=True)
        return ran.stdout

    def test_three_jobs_on_two_places(self):
        self.worker("--jobs", "2")
        runs = [subprocess.Popen(self.run_words(prompt, "--wait", "10m"), text=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE) for prompt in PROMPTS]
        for prompt, run in zip(PROMPTS, runs):
            out, err = run.communicate(timeout=limits.limit(120))
            self.assertEqual(run.returncode, 0, err)
            self.assertEqual(out, self.alone(prompt))

    def test_a_lost_rank_comes_back_before_jobs_that_wait(self):
        worker = self.worker()
        first = Running(self.words("serve", "--port", "0", "--ctx", "256",
                                   "--restart-timeout-ms", "60000"))
        self.addCleanup(first.end)
        url = first.await_text(r"on (http://[\d.:]+\d)")[1]
        second = Running(self.run_words(PROMPTS[1], "--wait", "10m"))
        self.addCleanup(second.process.kill)
        worker.await_text(r"waits, at place 1 of 1 in line")
        ranks = children(worker.process.pid)
        self.assertEqual(len(ranks), 1)
        send(ranks[0], signal.SIGKILL)
        first.await_text("rank 1 .*(lost|ended)")
        self.assertEqual(self.answer(url, PROMPTS[0]), self.alone(PROMPTS[0]).strip())
        self.assertIsNone(second.process.poll(), second.text)
        first.end()
        self.assertEqual(second.process.wait(limits.limit(60)), 0, second.text)
        second.reader.join()
        self.assertIn(self.alone(PROMPTS[1]).strip(), second.text)

    def answer(self, url, prompt):
        body = json.dumps({"messages": [{"role": "user", "content": prompt}], "max_tokens": 16,
                           "temperature": 0}).encode()
        request = urllib.request.Request(url + "/v1/chat/completions", body,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=limits.limit(60)) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]

    def test_a_job_that_does_not_fit_beside_another(self):
        little = {"WEFT_MEMORY_MIB": "1"}
        self.worker("--jobs", "2", **little)
        ran = subprocess.run(self.run_words("a", "--ctx", "256"), text=True, capture_output=True,
                             env={**os.environ, **little}, stdin=subprocess.DEVNULL,
                             timeout=limits.limit(60), check=False)
        lack = re.search(r"rank 0: (\d+) MiB \+ rank 1: (\d+) MiB = (\d+) MiB", ran.stderr)
        self.assertTrue(lack, ran.stderr)
        # Enough memory for one job, but not for a second one in addition to the first one's rank.
        enough = {"WEFT_MEMORY_MIB": str(int(lack[3]) + int(lack[2]) // 2)}
        worker = self.worker("--jobs", "2", **enough)
        env = {**os.environ, **enough}
        first = Running(self.words("serve", "--port", "0", "--ctx", "256", "--max-seqs", "1"), env)
        self.addCleanup(first.end)
        first.await_text("serving ")
        second = subprocess.run(self.run_words("a", "--ctx", "256"), text=True, capture_output=True,
                                env=env, stdin=subprocess.DEVNULL, timeout=limits.limit(60),
                                check=False)
        self.assertEqual(second.returncode, 1, second.stderr)
        self.assertRegex(second.stderr, r"does not fit into the memory of .* MiB are free, of "
                         r"which other jobs of its worker have claimed \d+ MiB \(inference of "
                         r"127\.0\.0\.1:\d+, for \d+ s: \d+ MiB\)")
        # The claim ends with its job.
        first.end()
        worker.await_text("the job ended with status 0")
        third = subprocess.run(self.run_words("a", "--ctx", "256", "--wait", "1m"), text=True,
                               capture_output=True, env=env, stdin=subprocess.DEVNULL,
                               timeout=limits.limit(60), check=False)
        self.assertEqual(third.returncode, 0, third.stderr)

    def test_jobs_that_load_at_the_same_moment(self):
        little = {"WEFT_MEMORY_MIB": "1"}
        self.worker("--jobs", "3", **little)
        ran = subprocess.run(self.run_words("a", "--ctx", "256"), text=True, capture_output=True,
                             env={**os.environ, **little}, stdin=subprocess.DEVNULL,
                             timeout=limits.limit(60), check=False)
        lack = re.search(r"rank 0: (\d+) MiB \+ rank 1: (\d+) MiB = (\d+) MiB", ran.stderr)
        env = {**os.environ, "WEFT_MEMORY_MIB": str(int(lack[3]) + int(lack[2]) // 2)}
        self.worker("--jobs", "3", **env)
        runs = [subprocess.Popen(self.run_words(prompt, "--ctx", "256"), text=True, env=env,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE) for prompt in PROMPTS]
        answered = 0
        for prompt, run in zip(PROMPTS, runs):
            out, err = run.communicate(timeout=limits.limit(60))
            if run.returncode == 0:
                answered += 1
                self.assertEqual(out, self.alone(prompt))
            else:
                self.assertIn("of which other jobs of its worker have claimed", err)
        self.assertGreater(answered, 0)

    def test_flags(self):
        for words, said in ((("--jobs", "0"), "--jobs"), (("--jobs", "17"), "--jobs")):
            ran = subprocess.run([WEFT, "worker", "--listen", "127.0.0.1:0", "--key-file", self.key,
                                  *words], capture_output=True, text=True,
                                 timeout=limits.limit(20), check=False)
            self.assertEqual(ran.returncode, 2, ran.stderr)
            self.assertIn(said, ran.stderr)
        ran = subprocess.run([WEFT, "worker", "--join", "127.0.0.1:1", "--key-file", self.key,
                              "--jobs", "2"], capture_output=True, text=True,
                             timeout=limits.limit(20), check=False)
        self.assertEqual(ran.returncode, 2, ran.stderr)
        self.assertIn("--jobs 2 needs --listen", ran.stderr)


if __name__ == "__main__":
    WEFT = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
