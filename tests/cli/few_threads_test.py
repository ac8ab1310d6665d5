#!/usr/bin/env python3
"""Commands while the system refuses threads: each ends with an answer or with an error, and none
is ended by a signal or hangs.

    few_threads_test.py PROGRAM LIBRARY [UNITTEST ARGUMENT...]    (LIBRARY: few_threads.cc)
"""
import concurrent.futures
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from terminal import PROMPT, Terminal

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(TESTS / "support"))
from limits import limit  # noqa: E402
from nightly import nightly  # noqa: E402
from wait import until  # noqa: E402

MODEL = str(TESTS.parent / "models/abacus/model.gguf")
EVER = 1_000_000  # refusals
MOST_THREADS = 60  # of one process in these tests
PATIENCE = limit(30)
ASK = ("-p", "3 + 4 =", "-n", "4", "--temp", "0")


class FewThreads(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def environment(self, first, count):
        self.refusals(first).unlink(missing_ok=True)
        return os.environ | {"LD_PRELOAD": LIBRARY, "WEFT_REFUSED_THREADS": f"{first}:{count}",
                             "WEFT_REFUSALS": str(self.refusals(first)),
                             "XDG_CACHE_HOME": str(self.folder)}

    def refusals(self, first):
        return self.folder / f"refusals{first}"

    def run_refused(self, words, first, count):
        words = [word.format(first=first) for word in words]
        done = subprocess.run([PROGRAM, *words], env=self.environment(first, count),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE)
        said = f"thread {first}, {count}: {done.returncode} {done.stdout} {done.stderr}"
        self.assertIn(done.returncode, range(0, 100), said)
        if done.returncode != 0:
            self.assertIn("error", done.stderr, said)
        return done, self.refusals(first).exists(), said

    def each(self, work):
        """Calls work(k) for the k-th thread, until no thread was refused; it returns whether one
        was. (They mostly wait, so many run at once.)"""
        step = 1 if nightly() else 3
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            refused = list(pool.map(work, range(1, 12, step)))
            for first in range(12, MOST_THREADS, 8 * step):
                if not refused[-1]:
                    break
                refused += pool.map(work, range(first, first + 8 * step, step))
        self.assertTrue(refused[0])

    def ends(self, *words):
        self.each(lambda first: self.run_refused(words, first, EVER)[1])

    def waits(self, answer, *words):
        """A shortage that passes changes nothing."""
        def work(first):
            done, refused, said = self.run_refused(words, first, 5)
            self.assertEqual(done.returncode, 0, said)
            self.assertIn(answer, done.stdout, said)
            return refused
        self.each(work)

    def test_run(self):
        self.ends("run", MODEL, *ASK, "-t", "3")
        self.waits("7", "run", MODEL, *ASK, "-t", "3")

    def test_ranks(self):
        for layout in (("--local", "2"), ("--local", "2", "--pp", "2"),
                       ("--local", "2", "--transport", "tcp")):
            with self.subTest(layout=layout):
                self.ends("run", MODEL, *ASK, "-t", "1", *layout)
        self.waits("7", "run", MODEL, *ASK, "-t", "1", "--local", "2")

    def test_chat(self):
        self.each(self.chat_once)

    def chat_once(self, first):
        """A conversation begins, and ends on request; or the program ends with an error."""
        words = ("run", MODEL, "-t", "1", "--local", "2")
        with Terminal(PROGRAM, *words, env=self.environment(first, EVER)) as terminal:
            end = time.monotonic() + PATIENCE
            told = False
            while terminal.more(0.1) and time.monotonic() < end:
                if PROMPT in terminal.text and not told:
                    terminal.type("/bye\n")
                    told = True
            status = terminal.wait()
        self.assertIn(status, range(0, 100), terminal.text)
        if not told:
            self.assertIn("error", terminal.text)
        return self.refusals(first).exists()

    def test_quantize(self):
        self.ends("quantize", MODEL, str(self.folder / "out{first}.gguf"), "Q8_0", "-t", "4")

    def test_doctor(self):
        self.ends("doctor")
        self.ends("doctor", "--model-content", MODEL)

    def test_net(self):
        self.ends("net", "--local", "2", "--seconds", "0.1")

    def test_serve(self):
        self.each(self.serve_once)

    def serve_once(self, first):
        """A server answers or ends with an error; one that answers ends on request."""
        port = free_port()
        with open(self.folder / f"log{first}", "w+b") as log:
            server = subprocess.Popen(
                [PROGRAM, "serve", MODEL, "--port", str(port), "-t", "2"],
                env=self.environment(first, EVER), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                until(lambda: ask(port) is not None or server.poll() is not None, "its end")
                answer = ask(port) if server.poll() is None else None
                if answer is not None:
                    self.assertEqual(len(answer["choices"]), 1)
                    server.send_signal(signal.SIGTERM)
                status = server.wait(timeout=PATIENCE)
            finally:
                server.kill()
                server.wait()
            log.seek(0)
            said = f"thread {first}: {log.read().decode()}"
        self.assertIn(status, range(0, 100), said)
        if answer is None:
            self.assertIn("error", said)
        return self.refusals(first).exists()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def ask(port):
    """None: the server does not answer yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("POST", "/v1/completions", headers={"Content-Type": "application/json"},
                           body=json.dumps({"prompt": "3 + 4 =", "max_tokens": 1,
                                            "temperature": 0}))
        answer = connection.getresponse()
        text = answer.read()
        return json.loads(text) if answer.status == 200 else None
    except OSError:
        return None
    finally:
        connection.close()


if __name__ == "__main__":
    PROGRAM, LIBRARY = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
    unittest.main()
