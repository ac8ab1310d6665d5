#!/usr/bin/env python3
"""A reader of standard output or standard error that has stopped: `| less`, Ctrl-S, a stuck log
collector. Servers answer, workers serve jobs, training continues, and signals end all of them.
An answer of `weft run` waits for its reader unless the user asks to stop.

    stopped_reader_test.py PROGRAM [UNITTEST ARGUMENT...]
"""
import array
import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import pty
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import unittest

from terminal import PATIENCE

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "serve")]
import gguf_template  # noqa: E402
from limits import NIGHTLY  # noqa: E402
from nightly import in_turn, some  # noqa: E402
from processes import children  # noqa: E402
from wait import outlast, until  # noqa: E402

MODEL = str(TESTS.parent / "models/abacus/model.gguf")
PAGE = 4096
TIMEOUT_S = 5
STREAMS = ({"stdout"}, {"stderr"}, {"stdout", "stderr"})
ALL_STREAMS = STREAMS if NIGHTLY else STREAMS[2:]


def with_each(*words):
    """Pairs of `streams` and one of `words`: the daily run has some, with each value of both."""
    return [(streams, each) for turn, streams in enumerate(STREAMS)
            for index, each in enumerate(words) if in_turn(turn + index, len(words))]


class Pipe:
    """A pipe of one page without a reader until `rest`; starts full, or with `room` free bytes."""

    def __init__(self, room=0):
        self.ours, self.theirs = os.pipe()
        fcntl.fcntl(self.theirs, fcntl.F_SETPIPE_SZ, PAGE)
        if room < PAGE:
            os.write(self.theirs, b"." * (PAGE - room - 1) + b"\n")

    def held(self):
        count = array.array("i", [0])
        fcntl.ioctl(self.ours, termios.FIONREAD, count)
        return count[0]

    def until(self, word):
        text = b""
        while word not in text:
            more = os.read(self.ours, 65536)
            if not more:
                break
            text += more
        return text

    def rest(self):
        """Reads all data until the writers have ended."""
        with contextlib.suppress(OSError):
            os.close(self.theirs)
        with open(self.ours, "rb") as file:
            return file.read()


class StoppedTerminal:
    """A terminal stopped by Ctrl-S."""

    def __init__(self):
        self.ours, self.theirs = pty.openpty()
        termios.tcflow(self.theirs, termios.TCOOFF)


def stopped(streams):
    return {name: Pipe().theirs for name in streams}


@contextlib.contextmanager
def program(*words, **streams):
    """Starts weft; at the end kills it and its ranks."""
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **streams}
    process = subprocess.Popen([PROGRAM, *words], stdin=subprocess.DEVNULL, **streams)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def connected(port):
    return contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE))


def ask(port, method, path, body=None):
    with connected(port) as connection:
        connection.request(method, path, json.dumps(body) if body else None,
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()


def is_ready(port):
    try:
        return ask(port, "GET", "/ready")[0] == 200
    except OSError:
        return False


class Serve(unittest.TestCase):
    @contextlib.contextmanager
    def server(self, *words, **streams):
        port = free_port()
        with program("serve", MODEL, "--port", str(port), "--ctx", "256", "-t", "1", *words,
                     **streams) as process:
            until(lambda: is_ready(port), "ready", process=process)
            yield port, process

    def answers_and_ends(self, port, process):
        for _ in range(3):
            status, answer = ask(port, "POST", "/v1/chat/completions",
                                 {"messages": [{"role": "user", "content": "What is 47 + 38?"}]})
            self.assertEqual(status, 200, answer)
            self.assertIn(b"85", answer)
        self.assertEqual(ask(port, "POST", "/v1/completions", {"prompt": 7})[0], 400)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE), 0)

    def test_streams(self):
        for streams, words in with_each(("--json", "--tp", "2"), ("--log-format", "json")):
            with self.subTest(streams=streams, words=words), \
                    self.server(*words, **stopped(streams)) as (port, process):
                self.answers_and_ends(port, process)

    def test_a_terminal(self):
        tty = StoppedTerminal().theirs
        with self.server(stdout=tty, stderr=tty) as (port, process):
            self.answers_and_ends(port, process)

    def test_what_was_dropped_is_counted(self):
        for words, notice in some((((), b"weft: warning: dropped "),
                                   (("--log-format", "json"),
                                    b'"level":"warning","message":"dropped '))):
            errors = Pipe()
            with self.subTest(words=words), \
                    self.server(*words, stderr=errors.theirs) as (port, process):
                with connected(port) as connection:
                    for _ in range(1200):  # lines of some 2,000 bytes
                        connection.request("GET", "/" + "a" * 4000)
                        connection.getresponse().read()
                text = errors.until(b" log lines: nobody read standard error")
                self.assertIn(notice, text)
                self.assertEqual(ask(port, "GET", "/after")[0], 404)
                self.assertIn(b"/after", errors.until(b"/after"))
                process.send_signal(signal.SIGTERM)
                errors.rest()
                self.assertEqual(process.wait(PATIENCE), 0)


class Worker(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.key = self.folder.name + "/key"
        pathlib.Path(self.key).write_text("a-key-that-the-tests-share\n")
        os.chmod(self.key, 0o600)

    def tearDown(self):
        self.folder.cleanup()

    def knock(self, port):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
            with contextlib.suppress(OSError):
                stranger.recv(100)

    def is_there(self, port):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
        except OSError:
            return False
        return True

    def test_listen(self):
        for streams in ALL_STREAMS:
            port = free_port()
            with self.subTest(streams=streams), \
                    program("worker", "--listen", f"127.0.0.1:{port}", "--key-file", self.key,
                            **stopped(streams)) as worker:
                until(lambda: self.is_there(port), "the worker listens", process=worker)
                for _ in range(100):
                    self.knock(port)
                for _ in range(2):
                    done = subprocess.run(
                        [PROGRAM, "run", MODEL, "-p", "What is 47 + 38?", "-t", "1", "--hosts",
                         f"127.0.0.1:{port}", "--key-file", self.key, "--timeout-ms", "30000"],
                        capture_output=True, timeout=PATIENCE, check=False)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn(b"85", done.stdout)
                worker.send_signal(signal.SIGTERM)
                self.assertEqual(worker.wait(PATIENCE), 0)

    def test_join(self):
        """No rank 0 exists to dial; the worker reports that repeatedly."""
        for streams in ALL_STREAMS:
            with self.subTest(streams=streams), \
                    program("worker", "--join", f"127.0.0.1:{free_port()}", "--key-file", self.key,
                            "--wait", "2s", **stopped(streams)) as worker:
                self.assertNotEqual(worker.wait(PATIENCE), 0)


class Train(unittest.TestCase):
    @contextlib.contextmanager
    def training(self, steps, *words, **streams):
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder, "data.jsonl")
            data.write_text('{"text": "one two three"}\n' * 8)
            out = folder + "/out"
            with program("train", MODEL, "--data", str(data), "--output-dir", out, "--steps",
                         str(steps), "--seq-len", "16", "--micro-batch", "1", "-t", "1", *words,
                         **streams) as process:
                yield process, out

    def test_to_the_end(self):
        for streams, words in with_each((), ("--json", "--local", "2")):
            with self.subTest(streams=streams, words=words), \
                    self.training(3, *words, **stopped(streams)) as (process, out):
                self.assertEqual(process.wait(PATIENCE), 0)
                self.assertTrue(os.path.exists(out + "/model.gguf"))

    def test_a_signal(self):
        for streams, words in with_each((), ("--json", "--local", "2")):
            with self.subTest(streams=streams, words=words), \
                    self.training(100000, *words, **stopped(streams)) as (process, out):
                log = pathlib.Path(out, "log.csv")
                until(lambda: log.exists() and log.read_text().count("\n") > 2, "a step",
                      process=process)
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(PATIENCE), 75)


class Run(unittest.TestCase):
    LAYOUTS = ((), ("--tp", "2"), ("--pp", "2")) if NIGHTLY else (("--tp", "2"),)
    ROOM, TOKENS = 512, 1500  # an answer of about a byte per token

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.model = folder.name + "/long.gguf"
        gguf_template.with_keys(MODEL, cls.model, {"llama.context_length": 16384})

    @contextlib.contextmanager
    def long_answer(self, layout, tokens, out, **streams):
        with program("run", self.model, "--raw", "-p", "a", "-n", str(tokens), "--greedy",
                     "--ignore-eos", "-t", "1", *layout, stdout=out.theirs, **streams) as process:
            yield process

    def test_an_answer_waits_for_its_reader(self):
        """Ranks stay in contact meanwhile: twice --timeout-ms passes."""
        for layout in self.LAYOUTS:
            words = layout and (*layout, "--timeout-ms", str(TIMEOUT_S * 1000))
            texts = []
            for waits in (False, True):
                out = Pipe(self.ROOM)
                with self.subTest(layout=layout, waits=waits), self.long_answer(
                        words, self.TOKENS, out, stderr=subprocess.PIPE) as process:
                    if waits:
                        until(lambda: out.held() > PAGE - self.ROOM // 2, "a full pipe",
                              process=process)
                        if layout:
                            outlast(2 * TIMEOUT_S)
                        self.assertIsNone(process.poll())
                        ranks = children(process.pid)
                        self.assertEqual(len(ranks), 1 if layout else 0)
                    texts.append(out.rest())
                    errors = process.communicate(timeout=PATIENCE)[1]
                    self.assertEqual(process.returncode, 0, errors)
                    self.assertIn(b"decode: %d tokens" % self.TOKENS, errors)
            self.assertEqual(texts[0], texts[1])

    def test_signals(self):
        for turn, number in enumerate((signal.SIGINT, signal.SIGTERM)):
            for layout in self.LAYOUTS:
                for errors in (subprocess.DEVNULL, Pipe().theirs):
                    turn += 1
                    if not in_turn(turn, 2):
                        continue
                    out = Pipe(self.ROOM)
                    with self.subTest(number=number, layout=layout), \
                            self.long_answer(layout, 12000, out, stderr=errors) as process:
                        until(lambda: out.held() > PAGE - self.ROOM // 2, "a full pipe",
                              process=process)
                        ranks = children(process.pid)
                        process.send_signal(number)
                        self.assertEqual(process.wait(PATIENCE), 130)
                        for rank in ranks:
                            self.assertFalse(os.path.exists(f"/proc/{rank}"), "a rank goes on")

    def test_a_result_in_json(self):
        """All output is written at once, and the user asks to stop before it is read."""
        out = Pipe(PAGE)
        with self.long_answer(("--json",), 5000, out) as process:
            until(lambda: out.held() >= PAGE, "a full pipe", process=process)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(PATIENCE), 130)

    def test_standard_error(self):
        for layout in self.LAYOUTS:
            for words in (layout, (*layout, "--json")):
                with self.subTest(words=words), \
                        program("run", MODEL, "-p", "What is 47 + 38?", "-t", "1", *words,
                                stdout=subprocess.PIPE, **stopped({"stderr"})) as process:
                    self.assertIn(b"85", process.communicate(timeout=PATIENCE)[0])
                    self.assertEqual(process.returncode, 0)

    def test_an_error(self):
        with program("run", "no-such-model.gguf", "-p", "a", **stopped({"stderr"})) as process:
            self.assertEqual(process.wait(PATIENCE), 1)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
