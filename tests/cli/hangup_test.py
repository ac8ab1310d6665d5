#!/usr/bin/env python3
"""Signals to `weft serve`. SIGHUP with --restart, while it waits for hosts and while it serves: if
the terminal closes, both processes end; otherwise the server reloads its files. A second SIGTERM
ends the server at once, as PID 1 of a container, too; SIGINT of a background job stays ignored.

    hangup_test.py PROGRAM [UNITTEST ARGUMENT...]
"""
import contextlib
import http.client
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from cache import Cache
from terminal import PATIENCE, Terminal

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(TESTS / "support"))
from processes import children  # noqa: E402
from wait import until  # noqa: E402

MODEL = str(TESTS.parent / "models/abacus/model.gguf")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def get(port, path, headers=None):
    """Status and body; (0, "") if no server listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


def post(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


class Hangup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.port = free_port()

    def new_key(self, name):
        made = subprocess.run([PROGRAM, "key", "new", name, "--json"], check=True,
                              stdout=subprocess.PIPE, timeout=PATIENCE)
        return json.loads(made.stdout)

    def keys(self, *lines):
        path = self.folder / "keys"
        path.touch(0o600)
        path.write_text("".join(line + "\n" for line in lines))
        return "--api-key-file", str(path)

    def words(self, *words):
        return ("serve", MODEL, "--restart", "--port", str(self.port), "-t", "1", *words)

    def absent_host(self):
        key = self.folder / "cluster.key"
        key.touch(0o600)
        key.write_text("a-shared-key-of-the-tests")
        return "--hosts", f"127.0.0.1:{free_port()}", "--key-file", str(key), "--pp", "2"

    @contextlib.contextmanager
    def supervisor(self, *words, ignored=False):
        """A supervisor without a terminal; ended and reaped at the end."""
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
        try:
            process = subprocess.Popen([PROGRAM, *self.words(*words)], start_new_session=True,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        finally:
            signal.signal(signal.SIGHUP, before)
        try:
            yield process
        finally:
            process.kill()
            process.wait(PATIENCE)

    def await_health(self, status, text=""):
        def seen():
            got = get(self.port, "/health")
            return got[0] == status and text in got[1]
        until(seen, f"/health {status} {text}")

    def await_tries(self, pid, count):
        """Waits until the supervisor has started its server `more` more times."""
        seen = set(children(pid))
        known = len(seen)

        def more():
            seen.update(children(pid))
            return len(seen) >= known + count
        until(more, f"{count} more tries")

    def test_it_ends_while_it_waits(self):
        with self.supervisor(*self.absent_host()) as process:
            self.await_health(503, "waiting for host 127.0.0.1:")
            process.send_signal(signal.SIGHUP)
            self.assertEqual(process.wait(PATIENCE), 0)

    def test_it_ends_while_its_server_is_stopped(self):
        with self.supervisor() as process:
            self.await_health(200)
            os.kill(children(process.pid)[0], signal.SIGSTOP)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(PATIENCE), 0)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be a user without processes")
    def test_it_goes_on_when_no_process_can_start(self):
        """The user has as many processes as it may have, for a while."""
        user, most = 65_532, 60
        self.folder.chmod(0o755)
        for path, name in ((PROGRAM, "weft"), (MODEL, "model.gguf")):
            shutil.copy(path, self.folder / name)
        with open(self.folder / "log", "w+") as log:
            process = subprocess.Popen(
                [self.folder / "weft", "serve", self.folder / "model.gguf", "--restart", "--port",
                 str(self.port), "-t", "1"], user=user, stderr=log,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (most, most)))
            others = []
            try:
                self.await_health(200)
                others = [subprocess.Popen(["sleep", "infinity"], user=user) for _ in range(most)]
                os.kill(children(process.pid)[0], signal.SIGKILL)
                until(lambda: "fork: " in (self.folder / "log").read_text(), "a failed start")
            finally:
                for other in others:
                    other.kill()
                    other.wait()
            self.await_health(200)
            process.terminate()
            self.assertEqual(process.wait(PATIENCE), 0)

    def test_it_goes_on_under_nohup_and_as_a_service(self):
        cases = (({"ignored": True}, ()), ({"ignored": True}, self.keys()), ({}, self.keys()))
        for how, words in cases:
            with self.subTest(how=how, words=words), \
                    self.supervisor(*self.absent_host(), *words, **how) as process:
                self.await_health(503, "waiting for host 127.0.0.1:")
                process.send_signal(signal.SIGHUP)  # during a pause or an attempt
                self.await_tries(process.pid, 1)
                self.await_health(503, "waiting for host 127.0.0.1:")
                process.terminate()
                self.assertEqual(process.wait(PATIENCE), 0)

    def test_a_terminal_that_closes(self):
        for words in ((), self.keys()):
            with self.subTest(words=words):
                terminal = Terminal(PROGRAM, *self.words(*self.absent_host(), *words))
                try:
                    self.await_health(503, "waiting for host 127.0.0.1:")
                    if words:  # the terminal still exists
                        os.kill(terminal.pid, signal.SIGHUP)
                        self.await_tries(terminal.pid, 1)
                    os.close(terminal.fd)
                    self.assertEqual(self.status_of(terminal.pid), 0)
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(terminal.pid, signal.SIGKILL)

    def status_of(self, pid):
        ended = []

        def over():
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                ended.append(os.waitstatus_to_exitcode(status))
            return bool(ended)
        until(over, f"the end of {pid}")
        return ended[0]

    def test_a_server_that_runs(self):
        first, second = self.new_key("alice"), self.new_key("bob")
        words = self.keys(first["line"])

        def takes(made):
            return get(self.port, "/v1/models", {"Authorization": f"Bearer {made['key']}"})[0]
        with self.supervisor(*words) as process:
            self.await_health(200)
            child = children(process.pid)
            self.assertEqual((takes(first), takes(second)), (200, 401))
            self.keys(second["line"])
            process.send_signal(signal.SIGHUP)
            until(lambda: takes(second) == 200, "the second key")
            self.assertEqual((takes(first), children(process.pid)), (401, child))
            process.terminate()
            self.assertEqual(process.wait(PATIENCE), 0)
        with self.supervisor() as process:
            self.await_health(200)
            for _ in range(2):  # both the kernel and the shell send it
                process.send_signal(signal.SIGHUP)
            self.assertEqual(process.wait(PATIENCE), 0)

    def test_hosts_search_for_the_typed_word(self):
        """The model is a folder here, and in the Hub's cache on the other host."""
        cache = Cache(self.folder / "hub")
        cache.add("own", "abacus", {"abacus-f16.gguf": MODEL})
        here = self.folder / "here"
        (here / "own/abacus").mkdir(parents=True)
        shutil.copy(MODEL, here / "own/abacus/abacus-f16.gguf")
        _, address, *key, _, _ = self.absent_host()
        worker = subprocess.Popen(
            [PROGRAM, "worker", "--listen", address, *key], cwd=self.folder,
            env={**os.environ, "HF_HUB_CACHE": str(cache.path)}, stderr=subprocess.DEVNULL)
        server = subprocess.Popen(
            [PROGRAM, "serve", "own/abacus", "--hosts", address, *key, "--tp", "2", "-t", "1",
             "--port", str(self.port), "--restart", "--name", "x"], cwd=here,
            stderr=subprocess.PIPE, text=True)
        try:
            until(lambda: server.poll() is not None or get(self.port, "/health")[0] == 200,
                  "a server or its end")
            self.assertIsNone(server.poll(), server.poll() and server.stderr.read())
            for model, status in (("own/abacus", 200), ("./own/abacus", 200), ("none", 404)):
                body = json.dumps({"model": model, "prompt": "1+1", "max_tokens": 1})
                self.assertEqual(post(self.port, "/v1/completions", body), status, model)
        finally:
            for process in (server, worker):
                process.terminate()
                process.communicate(timeout=PATIENCE)

    def drains(self, *before):
        """Starts a server that drains for ten minutes, as a child of `before`; it serves."""
        process = subprocess.Popen(
            [*before, PROGRAM, "serve", MODEL, "--port", str(self.port), "-t", "1",
             "--drain-delay-ms", "600000"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait, PATIENCE)
        self.addCleanup(process.kill)
        self.await_health(200)
        return process

    def await_line(self, process, words):
        while words not in (line := process.stderr.readline()):
            self.assertNotEqual(line, "", f"no line with {words}")

    def test_a_second_signal_ends_it(self):
        for first, second in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)):
            with self.subTest(first=first, second=second):
                process = self.drains()
                process.send_signal(first)
                self.await_line(process, "shutting down")
                process.send_signal(second)
                self.assertEqual(process.wait(PATIENCE), -second)

    def test_a_second_signal_ends_pid_1(self):
        space = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
        if subprocess.run([*space, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("unshare: no namespaces of processes here")
        process = self.drains(*space)
        server, = children(process.pid)
        os.kill(server, signal.SIGTERM)
        self.await_line(process, "shutting down")
        os.kill(server, signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE), 128 + signal.SIGTERM)

    def test_interrupts_that_are_ignored(self):
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process = self.drains()
        finally:
            signal.signal(signal.SIGINT, before)
        process.send_signal(signal.SIGINT)
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text().split("\n")
        ignored = [line for line in status if line.startswith("SigIgn:")][0].split()[1]
        self.assertTrue(int(ignored, 16) >> (signal.SIGINT - 1) & 1)
        self.await_health(200)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
