#!/usr/bin/env python3
"""`weft serve` as a process: signals, log, limits and shutdown."""
import json
import os
import pathlib
import signal
import socket
import tempfile
import threading
import time
import unittest

import serving
from processes import children
from wait import until

serving.few_layers = True

TEXT = "/v1/completions"
LONG = {"prompt": "One, two,", "max_tokens": 1900, "ignore_eos": True, "temperature": 0,
        "stream": True}


class Serving(serving.Server):
    """A server that captures its standard error."""

    def __init__(self, *words, context=2048, of=None):
        self.log = tempfile.NamedTemporaryFile()
        super().__init__(context, *words, stderr=self.log, of=of)

    def lines(self):
        return pathlib.Path(self.log.name).read_text().splitlines()

    def line_of(self, word):
        """Waits briefly for the first log line with that word."""
        return until(lambda: next((line for line in self.lines() if word in line), None),
                     lambda: f"a line with {word} in:\n" + "\n".join(self.lines()))


class Stream(threading.Thread):
    """A request that collects its events; `begun` is set with the first."""

    def __init__(self, server, body, headers=None):
        super().__init__(daemon=True)
        self.server, self.body, self.headers = server, body, headers or {}
        self.begun, self.events, self.error = threading.Event(), [], None
        self.start()

    def run(self):
        connection = serving.http.client.HTTPConnection("127.0.0.1", self.server.port,
                                                        timeout=serving.PATIENCE)
        try:
            connection.request("POST", TEXT, json.dumps(self.body),
                               {"Content-Type": "application/json", **self.headers})
            for line in connection.getresponse():
                if not line.startswith(b"data: "):
                    continue
                self.events.append(line[6:].strip())
                self.begun.set()
        except OSError as error:
            self.error = error
        finally:
            self.begun.set()
            connection.close()

    @property
    def whole(self):
        return bool(self.events) and self.events[-1] == b"[DONE]" and self.failure is None

    @property
    def failure(self):
        for event in self.events:
            if b'"error"' in event:
                return json.loads(event)["error"]
        return None


class Ending(unittest.TestCase):
    def test_drain(self):
        drain_ms = 1500 * serving.sanitizers_factor()
        server = Serving("--drain-ms", str(drain_ms))
        try:
            long_one = Stream(server, LONG)
            short = Stream(server, {**LONG, "max_tokens": 20})
            self.assertTrue(long_one.begun.wait(20) and short.begun.wait(20))
            begin = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            until(lambda: self.ready(server) == 503, "/ready after SIGTERM")
            until(lambda: self.refused(server), "a refusal after SIGTERM")
            self.assertEqual(server.json("GET", "/health")[0], 200)
            self.assertEqual(server.json("GET", "/ready")[0], 503)
            self.assertEqual(server.process.wait(30), 0)
            self.assertGreaterEqual(time.monotonic() - begin, drain_ms / 1000 - 0.1)
            for stream in (long_one, short):
                stream.join(20)
            self.assertTrue(short.whole, short.events[-2:])
            self.assertGreater(len(long_one.events), 5)
            self.assertIn("shutting down", long_one.failure["message"])
        finally:
            server.process.kill()

    def ready(self, server):
        return server.json("GET", "/ready")[0]

    def refused(self, server):
        """Cancels a request that is accepted: it would wait for the earlier requests."""
        asked = serving.http.client.HTTPConnection("127.0.0.1", server.port, timeout=1)
        try:
            asked.request("POST", TEXT, json.dumps({"prompt": "a", "max_tokens": 1}))
            answer = asked.getresponse()
            data = answer.read()
        except TimeoutError:
            return False
        finally:
            asked.close()
        if answer.status != 503:
            return False
        self.assertEqual(json.loads(data)["error"]["code"], "draining")
        self.assertEqual(answer.headers["Connection"], "close")
        self.assertGreater(int(answer.headers["Retry-After"]), 0)
        return True

    def test_running_and_queued_requests_finish(self):
        server = Serving("--max-seqs", "1", "--drain-delay-ms", "100", "--drain-ms", "600000")
        try:
            running = Stream(server, LONG)
            self.assertTrue(running.begun.wait(serving.PATIENCE))
            queued = Stream(server, LONG)
            status = server.wait_for(lambda s: s["waiting"] == 1, serving.PATIENCE)
            self.assertEqual((status["running"], status["waiting"]), (1, 1))
            server.process.send_signal(signal.SIGTERM)
            until(lambda: self.ready(server) == 503, "/ready after SIGTERM")
            until(lambda: self.refused(server), "a refusal after --drain-delay-ms")
            self.assertEqual(server.json("GET", "/health")[0], 200)
            self.assertEqual(server.json("GET", "/live")[0], 200)
            for stream in (running, queued):
                stream.join(serving.PATIENCE)
                self.assertTrue(stream.whole, stream.failure or stream.error)
            self.assertEqual(server.process.wait(serving.PATIENCE), 0)
        finally:
            server.process.kill()

    def test_a_request_that_is_being_read_finishes(self):
        """SIGTERM arrives while a schema compiles, which takes more than a second."""
        schema = {"type": "array", "items": {"type": "string", "maxLength": 6000}}
        server = Serving()
        try:
            asked = serving.http.client.HTTPConnection("127.0.0.1", server.port,
                                                       timeout=serving.PATIENCE)
            asked.request("POST", TEXT, json.dumps({
                "prompt": "a", "max_tokens": 2, "response_format": {
                    "type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}))
            # One thread reads all connections, so it has the request when it answers these.
            for _ in range(2):
                self.assertEqual(server.call("GET", "/live")[0], 200)
            server.process.send_signal(signal.SIGTERM)
            answer = asked.getresponse()
            self.assertEqual(answer.status, 200, answer.read())
            answer.read()
            self.assertEqual(server.process.wait(serving.PATIENCE), 0)
        finally:
            asked.close()
            server.process.kill()

    def test_drain_delay_and_second_signal(self):
        """Requests are accepted during the delay; a second signal of another kind ends the
        server."""
        for second in serving.some((signal.SIGINT, signal.SIGTERM), 2):
            server = Serving("--drain-delay-ms", "3600000")
            try:
                kept = serving.http.client.HTTPConnection("127.0.0.1", server.port,
                                                          timeout=serving.PATIENCE)
                kept.request("GET", "/ready")
                self.assertEqual(kept.getresponse().read(), b'{"status":"ready"}')
                server.process.send_signal(signal.SIGTERM)
                until(lambda: self.ready(server) == 503, "/ready after SIGTERM")
                kept.request("POST", TEXT, json.dumps({"prompt": "a", "max_tokens": 1}))
                answer = kept.getresponse()
                self.assertEqual((answer.status, answer.headers["Connection"]), (200, "close"))
                answer.read()
                fresh = Stream(server, LONG | {"max_tokens": 3})
                fresh.join(serving.PATIENCE)
                self.assertTrue(fresh.whole, fresh.failure or fresh.error)
                running = Stream(server, LONG)
                self.assertTrue(running.begun.wait(serving.PATIENCE))
                server.process.send_signal(second)
                self.assertEqual(server.process.wait(serving.PATIENCE), -second)
            finally:
                kept.close()
                server.process.kill()

    def test_hangup_drains(self):
        """A closed ssh session acts like SIGTERM; a second SIGHUP from the shell changes
        nothing."""
        server = Serving()
        try:
            stream = Stream(server, LONG | {"max_tokens": 200})
            self.assertTrue(stream.begun.wait(serving.PATIENCE))
            server.process.send_signal(signal.SIGHUP)
            until(lambda: server.json("GET", "/ready")[0] == 503, "/ready after SIGHUP")
            server.process.send_signal(signal.SIGHUP)
            stream.join(serving.PATIENCE)
            self.assertTrue(stream.whole, stream.failure)
            self.assertEqual(server.process.wait(serving.PATIENCE), 0)
        finally:
            server.process.kill()

    def test_ignored_hangup(self):
        """Started by nohup: the server continues."""
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            server = Serving()
        finally:
            signal.signal(signal.SIGHUP, before)
        try:
            server.process.send_signal(signal.SIGHUP)
            stream = Stream(server, LONG | {"max_tokens": 5})
            stream.join(serving.PATIENCE)
            self.assertTrue(stream.whole, stream.failure)
            self.assertIsNone(server.process.poll())
        finally:
            server.close()

    def test_max_restarts(self):
        server = Serving("--local", "2", "--tp", "2", "--timeout-ms", serving.timeout_ms(1500),
                         "--max-restarts", "1")
        try:
            stream = Stream(server, LONG)
            self.assertTrue(stream.begun.wait(20))
            os.kill(children(server.process.pid)[0], signal.SIGKILL)
            status = server.wait_for(lambda s: s["recoveries"] and s["state"] == "serving", 40)
            self.assertEqual(len(status["recoveries"]), 1)
            recovery = status["recoveries"][0]
            self.assertEqual(recovery["lost_ranks"], [1])
            self.assertAlmostEqual(recovery["back_s"], time.time(), delta=30)
            said = len(stream.events)
            until(lambda: len(stream.events) > said, "another token")
            self.assertIsNone(stream.failure)
            os.kill(children(server.process.pid)[0], signal.SIGKILL)
            self.assertEqual(server.process.wait(40), 3)
            stream.join(20)
            self.assertIn("--max-restarts 1", stream.failure["message"])
            self.assertIn("rank 1", stream.failure["message"])
            self.assertIn("--max-restarts 1", "\n".join(server.lines()))
        finally:
            server.process.kill()


class Keys(unittest.TestCase):
    def test_hangup(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "keys"

            def new(name):
                made = json.loads(serving.weft("key", "new", name, "--json"))
                return made["key"], made["line"]
            first, line = new("alice")
            second, other = new("bob")
            path.write_text(line + "\n")
            path.chmod(0o600)
            server = Serving("--api-key-file", str(path))
            try:
                def asks(key):
                    return server.call("GET", "/v1/models",
                                       headers={"Authorization": f"Bearer {key}"})[0]
                self.assertEqual((asks(first), asks(second)), (200, 401))
                path.write_text("nonsense\n")
                server.process.send_signal(signal.SIGHUP)
                self.assertIn("are unchanged", server.line_of("API keys"))
                self.assertEqual((asks(first), asks(second)), (200, 401))
                path.write_text(other + "\n")
                server.process.send_signal(signal.SIGHUP)
                until(lambda: asks(second) == 200, "the other keys")
                self.assertEqual((asks(first), asks(second)), (401, 200))
                server.json("POST", TEXT, {"prompt": "a", "max_tokens": 1},
                            {"x-api-key": second, "x-request-id": "by-bob"})
                self.assertIn(" key=bob ", server.line_of("id=by-bob"))
            finally:
                server.close()


class Log(unittest.TestCase):
    def test_text(self):
        server = Serving()
        try:
            status, headers, _ = server.call("POST", TEXT, {"prompt": "One, two", "max_tokens": 5,
                                                            "ignore_eos": True},
                                             {"X-Request-Id": "mine-1"})
            self.assertEqual((status, headers["X-Request-Id"]), (200, "mine-1"))
            line = server.line_of("id=mine-1")
            self.assertRegex(line, r"^weft: time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z "
                                   r"peer=127\.0\.0\.1:\d+ id=mine-1 method=POST "
                                   r"path=/v1/completions status=200 prompt=[34] cached=0 "
                                   r"generated=5 "
                                   r"queue_ms=\d+\.\d first_token_ms=\d+\.\d total_ms=\d+\.\d "
                                   r"bytes=\d+$")
            status, headers, _ = server.call("POST", TEXT, {"prompt": []},
                                             {"X-Request-Id": "not sane"})
            made = headers["X-Request-Id"]
            self.assertRegex(made, r"^req_[A-Za-z0-9]+$")
            self.assertRegex(server.line_of(made), r'status=400 .*error="\'prompt\' must be')
            _, headers, _ = server.call("GET", "/what%20is=\"this\"")
            self.assertIn(r'path="/what is=\"this\""', server.line_of(headers["X-Request-Id"]))
            for path in ("/health", "/ready", "/metrics", "/api/status", "/"):
                server.call("GET", path)
            self.assertFalse([line for line in server.lines() if "path=/ready" in line])
        finally:
            server.close()

    def test_json(self):
        server = Serving("--log-format", "json", "--local", "2", "--tp", "2",
                         "--drain-ms", "500")
        try:
            stream = Stream(server, {**LONG, "max_tokens": 5}, {"X-Request-Id": "s1"})
            stream.join(20)
            line = json.loads(server.line_of('"s1"'))
            self.assertEqual((line["status"], line["generated"], line["level"]), (200, 5, "info"))
            for word in ("time", "peer", "method", "path", "prompt", "cached", "queue_ms",
                         "first_token_ms", "total_ms", "bytes"):
                self.assertIn(word, line)
            leaver = Stream(server, LONG, {"X-Request-Id": "s2"})
            leaver.begun.wait(20)
        finally:
            server.close()
        for line in server.lines():
            self.assertIsInstance(json.loads(line), dict)

    def test_no_log_and_recent_errors(self):
        server = Serving("--no-access-log", "--max-body-size", "2kb")
        try:
            server.call("POST", TEXT, {"prompt": "a", "max_tokens": 1}, {"X-Request-Id": "quiet"})
            status, answer = server.json("POST", TEXT, {"prompt": "a" * 3000})
            self.assertEqual(status, 413)
            self.assertIn("2048", answer["error"]["message"])
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as wire:
                wire.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                             b"Content-Length: 30\r\n\r\n")
            self.assertFalse([line for line in server.lines() if "quiet" in line])
            self.assertEqual(server.status()["errors"], [])
        finally:
            server.close()


class Limits(unittest.TestCase):
    def test_flags_and_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
            config.write('max-body-size = "1MB"\nhead-timeout-ms = 400\nmax-headers = 5\n'
                         'idle-timeout-ms = 600\n')
            config.flush()
            server = Serving("--config", config.name, "--max-body-size", "64kb")
            try:
                self.assertEqual(server.call("POST", TEXT, b"x" * 70_000)[0], 413)
                self.assertEqual(server.call("POST", TEXT, b"x" * 60_000)[0], 400)
                many = {f"X-{i}": "a" for i in range(6)}
                self.assertEqual(server.call("GET", "/health", headers=many)[0], 431)
                begin = time.monotonic()
                with socket.create_connection(("127.0.0.1", server.port), timeout=20) as wire:
                    wire.sendall(b"GET /health HTTP/1.1\r\n")
                    self.assertIn(b" 408 ", wire.recv(4096))
                with socket.create_connection(("127.0.0.1", server.port), timeout=20) as wire:
                    self.assertEqual(wire.recv(4096), b"")
                self.assertLess(time.monotonic() - begin, serving.limit(5))
                errors = server.status()["errors"]
                self.assertEqual([e["status"] for e in errors], [408])
                self.assertIn("400 ms", errors[0]["text"])
            finally:
                server.close()

    def test_a_half_closed_client(self):
        server = Serving()
        try:
            asked = {"prompt": "One, two,", "max_tokens": 30, "ignore_eos": True}
            body = json.dumps(asked).encode()
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as wire:
                wire.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                             b"Content-Length: %d\r\n\r\n" % len(body) + body)
                wire.shutdown(socket.SHUT_WR)
                got = b""
                while chunk := wire.recv(65536):
                    got += chunk
            answer = json.loads(got[got.index(b"{"):])
            self.assertEqual(answer["usage"]["completion_tokens"], 30)
            self.assertEqual(server.status()["requests"]["cancelled"], 0)
        finally:
            server.close()


class Prefixes(unittest.TestCase):
    """A prompt that diverges from a cached one within a page: every rank copies its part."""

    def check(self, *words):
        # Every layer copies, so three layers suffice.
        server = Serving("--local", "2", "--trace", self.trace.name, "--layers", "3", *words,
                         of="synthetic:smollm2-135m:q4_1")
        try:
            known = list(range(1000, 1150))
            for index, common in enumerate((150, 100, 37, 64, 130)):
                prompt = known[:common] + [2000 + index] * 9
                body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
                # The last token is always computed; the first prompt is not cached.
                expected = 0 if index == 0 else common
                answers = []
                for cached in (False, True):
                    status, answer = server.json("POST", TEXT, {**body, "cache_prompt": cached})
                    self.assertEqual(status, 200, answer)
                    details = answer["usage"]["prompt_tokens_details"]
                    self.assertEqual(details["cached_tokens"], expected if cached else 0, words)
                    answers.append(answer["choices"][0]["text"])
                self.assertEqual(answers[1], answers[0], (words, common))
        finally:
            server.close()
        events = json.loads(pathlib.Path(self.trace.name).read_text())["traceEvents"]
        self.assertEqual({event["pid"] for event in events if event["ph"] == "X"}, {0, 1})

    def test_ranks(self):
        for words in serving.some((("--tp", "2", "--kv-dtype", "q8_0,q4_0"), ("--pp", "2"),
                                   ("--tp", "2"), ("--tp", "2", "--kv-dtype", "bf16"),
                                   ("--tp", "2", "--kv-dtype", "q5_1"))):
            with tempfile.NamedTemporaryFile() as self.trace:
                self.check(*words)


class Readiness(unittest.TestCase):
    def test_concurrent_probes_run_once(self):
        server = Serving("--max-waiting", "1")
        try:
            def ready():
                answers.append(server.json("GET", "/ready"))
            answers = []
            threads = [threading.Thread(target=ready) for _ in range(30)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            self.assertEqual({status for status, _ in answers}, {200})
            # All probes before the first step waited for one token.
            self.assertLess(server.status()["tokens"]["prompt"], 30)
        finally:
            server.close()


if __name__ == "__main__":
    serving.main()
