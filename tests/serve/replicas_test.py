#!/usr/bin/env python3
"""Two replicas behind HAProxy with deploy/haproxy.cfg (docs/replicas.md). Nightly
(./test --nightly), on a machine with haproxy; else skipped."""
import collections
import http.client
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import serving
from wait import until

CHAT = "/v1/chat/completions"
CONFIG = pathlib.Path(__file__).resolve().parents[2] / "deploy/haproxy.cfg"
CLIENTS = 8


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Client(threading.Thread):
    """Sends requests in turn, streamed and complete, until it is stopped. `outcomes` counts how
    each ended; `begun` is set while a stream has begun and not ended."""

    def __init__(self, case, number):
        super().__init__(daemon=True)
        self.case, self.number = case, number
        self.outcomes, self.over, self.begun = collections.Counter(), False, threading.Event()
        self.start()

    def run(self):
        turn = 0
        while not self.over:
            turn += 1
            self.outcomes[self.one(turn)] += 1
            self.begun.clear()

    def one(self, turn):
        streams = turn % 2 == 1
        body = {"messages": [{"role": "user", "content": f"{self.number}, {turn}: go on."}],
                "max_tokens": 30, "ignore_eos": True, "temperature": 0, "stream": streams}
        connection = self.case.connect()
        try:
            connection.request("POST", CHAT, json.dumps(body), self.case.headers)
            answer = connection.getresponse()
            if answer.status != 200:
                return f"status {answer.status}"
            if not streams:
                return "whole" if json.loads(answer.read())["choices"] else "empty"
            last = b""
            for line in answer:
                if line.startswith(b"data: "):
                    self.begun.set()
                    last = line.strip()
            return "whole" if last == b"data: [DONE]" else "cut"
        except (OSError, http.client.HTTPException) as error:
            return "cut" if self.begun.is_set() else f"{error!r}"
        finally:
            connection.close()


class Replicas(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        made = json.loads(serving.weft("key", "new", "alice", "--json"))
        keys = self.folder / "keys"
        keys.write_text(made["line"] + "\n")
        keys.chmod(0o600)
        self.headers = {"Content-Type": "application/json",
                        "Authorization": f"Bearer {made['key']}"}
        self.words = ["--api-key-file", str(keys), "--no-access-log",
                      "--responses-dir", str(self.folder / "responses"),
                      "--drain-delay-ms", "4000", "--drain-ms", "600000"]
        self.replicas = [self.start() for _ in range(2)]
        self.port = free_port()
        text = CONFIG.read_text()
        for asked, given in (("127.0.0.1:8000", f"127.0.0.1:{self.port}"),
                             ("10.0.0.1:8080", f"127.0.0.1:{self.replicas[0].port}"),
                             ("10.0.0.2:8080", f"127.0.0.1:{self.replicas[1].port}")):
            self.assertEqual(text.count(asked), 1, asked)
            text = text.replace(asked, given)
        config = self.folder / "haproxy.cfg"
        config.write_text(text)
        self.balancer = subprocess.Popen([shutil.which("haproxy"), "-db", "-f", str(config)])
        self.addCleanup(self.balancer.wait)
        self.addCleanup(self.balancer.terminate)
        until(lambda: self.ask("GET", "/v1/models")[0] == 200, "HAProxy listens")

    def start(self, port=0):
        replica = serving.Server(2048, *self.words, port=port)
        self.addCleanup(replica.process.stdout.close)
        self.addCleanup(replica.process.wait)
        self.addCleanup(replica.process.kill)
        return replica

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=serving.PATIENCE)

    def ask(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               self.headers if headers is None else headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError as error:
            return None, error
        finally:
            connection.close()

    def status(self, replica):
        return replica.json("GET", "/api/status", headers=self.headers)[1]

    def clients(self, act):
        """Outcomes of requests during act(clients)."""
        clients = [Client(self, number) for number in range(CLIENTS)]
        try:
            act(clients)
        finally:
            for client in clients:
                client.over = True
        total = collections.Counter()
        for client in clients:
            client.join(serving.PATIENCE)
            self.assertFalse(client.is_alive())
            total += client.outcomes
        return total

    def wait_for_more(self, clients, answers):
        """Until each client has got that many more answers."""
        before = [client.outcomes.total() for client in clients]
        until(lambda: all(client.outcomes.total() >= count + answers
                          for client, count in zip(clients, before)), "answers")

    def test_every_api_and_keys(self):
        question = [{"role": "user", "content": "Hi."}]
        for path, body in ((CHAT, {"messages": question, "max_tokens": 2}),
                           ("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 2}),
                           ("/v1/responses", {"input": "Hi.", "max_output_tokens": 2}),
                           ("/v1/messages", {"messages": question, "max_tokens": 2}),
                           ("/v1/embeddings", {"input": "Hi."}),
                           ("/api/chat", {"model": "gpt-test", "messages": question,
                                          "stream": False, "options": {"num_predict": 2}}),
                           ("/completion", {"prompt": "Hi.", "n_predict": 2})):
            with self.subTest(path):
                self.assertEqual(self.ask("POST", path, body)[0], 200)
                self.assertEqual(self.ask("POST", path, body, {})[0], 401)
        # Larger than the balancer's buffer.
        body = {"messages": question, "max_tokens": 2, "user": "x" * 1_000_000}
        self.assertEqual(self.ask("POST", CHAT, body)[0], 200)

    def test_streams_and_leaving_clients(self):
        connection = self.connect()
        connection.request("POST", CHAT, json.dumps(
            {"messages": [{"role": "user", "content": "Count."}], "stream": True,
             "ignore_eos": True, "max_tokens": 1900}), self.headers)
        answer = connection.getresponse()
        while not answer.readline().startswith(b"data: "):
            pass
        # The first event arrives long before the last one is made.
        self.assertEqual(sum(self.status(replica)["running"] for replica in self.replicas), 1)
        answer.close()
        connection.close()
        until(lambda: sum(self.status(replica)["requests"]["cancelled"]
                               for replica in self.replicas) == 1, "the request is cancelled")

    def test_conversations_stay_on_a_replica(self):
        system = {"role": "system", "content": "You are terse. " * 10}
        talks = [[system, {"role": "user", "content": f"Tell me about number {i}. " * 10}]
                 for i in range(6)]
        # json.dumps writes them as escapes above U+00FF.
        talks += [[system, {"role": "user", "content": f"\u8bf7\u544a\u8bc9\u6211 {i}. " * 10}]
                  for i in range(6)]
        for turn in range(3):
            for talk in talks:
                status, data = self.ask("POST", CHAT, {"messages": talk, "max_tokens": 4,
                                                       "ignore_eos": True, "temperature": 0})
                self.assertEqual(status, 200, data)
                answer = json.loads(data)
                usage = answer["usage"]
                if turn > 0:  # all but the answer's last token and the new question
                    cached = usage["prompt_tokens_details"]["cached_tokens"]
                    self.assertGreater(cached, usage["prompt_tokens"] - 40)
                talk += [answer["choices"][0]["message"], {"role": "user", "content": "More."}]
        ended = [self.status(replica)["requests"]["ended"] for replica in self.replicas]
        self.assertTrue(all(ended), ended)

    def test_rolling_restart(self):
        """Each replica in turn gets SIGTERM and returns: no request fails."""
        def restart(clients):
            self.wait_for_more(clients, 1)
            for index, replica in enumerate(self.replicas):
                replica.process.send_signal(signal.SIGTERM)
                self.assertEqual(replica.process.wait(serving.PATIENCE), 0)
                self.wait_for_more(clients, 1)
                self.replicas[index] = self.start(replica.port)
                until(lambda i=index: self.status(self.replicas[i])["tokens"]["generated"] > 60,
                      "the balancer uses the new replica")
        outcomes = self.clients(restart)
        self.assertEqual(set(outcomes), {"whole"}, outcomes)

    def test_a_killed_replica(self):
        """Only streams that have begun end early."""
        victim = self.replicas[0]

        def kill(clients):
            self.wait_for_more(clients, 1)
            until(lambda: self.status(victim)["running"] >= 2
                  and any(client.begun.is_set() for client in clients), "running requests")
            victim.process.kill()
            self.wait_for_more(clients, 2)
            self.replicas[0] = self.start(victim.port)
            until(lambda: self.status(self.replicas[0])["tokens"]["generated"] > 60,
                  "the balancer uses the new replica")
        outcomes = self.clients(kill)
        self.assertLessEqual(set(outcomes), {"whole", "cut"}, outcomes)
        self.assertLessEqual(outcomes["cut"], CLIENTS)

    def test_responses_continue_on_any_replica(self):
        first = json.loads(self.ask("POST", "/v1/responses",
                                    {"input": "Hi.", "max_output_tokens": 4})[1])
        for replica in self.replicas:
            status, answer = replica.json("POST", "/v1/responses", {
                "input": "Go on.", "previous_response_id": first["id"], "max_output_tokens": 4},
                self.headers)
            self.assertEqual(status, 200, answer)


if __name__ == "__main__":
    if not serving.nightly():
        serving.skip("replicas behind HAProxy are a nightly test (./test --nightly)")
    if shutil.which("haproxy") is None:
        serving.skip("haproxy is not installed (apt install haproxy)")
    serving.main()
