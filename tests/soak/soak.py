#!/usr/bin/env python3
"""Streams continue while ranks are killed, with exactly the texts of an undisturbed run.

Usage: soak.py WEFT MODEL [--kills N] [--seconds S] [--clients C] [--ranks R] [--pp P]
               [--prompt-lookup] [--timeout-ms T]

Starts `weft serve MODEL --local R`, lets C clients stream greedy answers all the time, and kills
(SIGKILL) or stops (SIGSTOP) a random rank other than 0 at random moments. Every answer must be
complete and equal to an undisturbed server's answer to the same prompt. With stages alone (--pp),
the undisturbed server has one rank; with --prompt-lookup, which drafts in every step, it drafts
nothing. Prints the lengths of the pauses. T and S grow on a slow machine. Needs only Python.
"""
import argparse
import http.client
import json
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from processes import children, send  # noqa: E402
from limits import limit, timeout_ms  # noqa: E402
from wait import Pace, until  # noqa: E402


class Server:
    def __init__(self, options, ranks, pp, *words):
        command = [options.weft, "serve", options.model, "--port", "0", "--json", "--ctx", "1024",
                   "--max-seqs", "16", "-t", "1", "--local", str(ranks), "--pp",
                   str(pp), "--tp", str(ranks // pp),
                   "--timeout-ms", str(options.timeout_ms), "--max-restarts", "100000",
                   *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                        stderr=open(options.log, "w") if options.log else None)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the server ended with status {self.process.wait()}")
        self.port = json.loads(line)["port"]

    def ask(self, body, timeout_s):
        """The pieces of a streamed answer, each with its time of arrival."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {answer.read()[:300]}")
        for line in answer:
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                return
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(event["error"]["message"])
            if event["choices"]:
                yield time.monotonic(), event["choices"][0]
        raise RuntimeError("the stream ended without [DONE]")

    def status(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/api/status")
        return json.loads(connection.getresponse().read())

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


PROMPTS = ["The sky is", "Once upon a time there was", "A list of five animals:",
           "def fibonacci(n):\n", "The capital of France", "Water boils when", "One, two, three,",
           "Dear Sir or Madam,\n", "Long ago, " * 60, "The quick brown fox " * 40]


def body_of(number):
    return {"prompt": PROMPTS[number % len(PROMPTS)], "max_tokens": 16 + 32 * (number % 3),
            "temperature": 0, "ignore_eos": True, "stream": True}


class Client(threading.Thread):
    def __init__(self, server, expected, seed, over):
        super().__init__(daemon=True)
        self.server, self.expected, self.over = server, expected, over
        self.random = random.Random(seed)
        self.answers, self.faults, self.pauses = 0, [], []

    def run(self):
        while not self.over.is_set():
            number = self.random.randrange(len(self.expected))
            try:
                text, last, longest = "", time.monotonic(), 0.0
                for when, choice in self.server.ask(body_of(number), 400):
                    longest, last = max(longest, when - last), when
                    text += choice["text"]
                self.answers += 1
                self.pauses.append(longest)
                if text != self.expected[number]:
                    self.faults.append(f"prompt {number}: {text!r} in place of "
                                       f"{self.expected[number]!r}")
            except Exception as error:  # noqa: BLE001: whatever a client sees is a fault
                self.faults.append(f"prompt {number}: {type(error).__name__}: {error}")


def disturb(server, options, chooser):
    """Makes one fault. A stopped rank continues long after the others have declared it lost."""
    ranks = children(server.process.pid)  # 1 and up
    if len(ranks) < options.ranks - 1:
        return False
    victim = chooser.choice(ranks)
    return send(victim, signal.SIGSTOP if options.stop_share > chooser.random() else signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weft")
    parser.add_argument("model")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60, help="at most")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pp", type=int, default=1, help="pipeline stages")
    parser.add_argument("--prompt-lookup", action="store_true", help="guesses are in flight")
    parser.add_argument("--timeout-ms", type=int, default=1000)
    parser.add_argument("--gap", type=float, default=1.5, help="seconds between faults, on average")
    parser.add_argument("--stop-share", type=float, default=0.1, help="SIGSTOP in place of SIGKILL")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", default="")
    options = parser.parse_args()
    options.timeout_ms = int(timeout_ms(options.timeout_ms))
    options.seconds = limit(options.seconds)
    begin = time.monotonic()
    words = ("--prompt-lookup", "--draft-always") if options.prompt_lookup else ()
    server = Server(options, options.ranks, options.pp, *words)
    # Stages compute what one rank does, to the bit. Sums over tensor ranks may, in the rarest case,
    # be rounded otherwise: there the texts are those of the same cluster, undisturbed.
    alone = server
    if options.ranks == options.pp:
        alone = Server(options, 1, 1)
    elif options.prompt_lookup:
        alone = Server(options, options.ranks, options.pp)
    expected = ["".join(choice["text"] for _, choice in alone.ask(body_of(number), 400))
                for number in range(len(PROMPTS))]
    if alone is not server:
        alone.stop()
    print(f"undisturbed: {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
    over = threading.Event()
    clients = [Client(server, expected, seed, over) for seed in range(options.clients)]
    for client in clients:
        client.start()
    chooser = random.Random(options.seed)
    end, kills = time.monotonic() + options.seconds, 0
    while kills < options.kills and time.monotonic() < end:
        Pace(chooser.uniform(0.02, 2 * options.gap)).next()
        kills += disturb(server, options, chooser)
    before = [client.answers + len(client.faults) for client in clients]
    until(lambda: all(client.answers + len(client.faults) > count
                      for client, count in zip(clients, before)), "an answer to each client")
    over.set()
    for client in clients:
        client.join(400)
    status = server.status()
    faults = [fault for client in clients for fault in client.faults]
    pauses = sorted(pause for client in clients for pause in client.pauses)
    answers = sum(client.answers for client in clients)
    code = server.stop()
    print(json.dumps({"kills": kills, "recoveries": len(status["recoveries"]), "answers": answers,
                      "faults": len(faults), "exit": code,
                      "guesses": status["speculation"],
                      "longest_pause_s": round(pauses[-1], 3) if pauses else None,
                      "recovery_s": [round(r["seconds"], 2) for r in status["recoveries"]][:20]}))
    for fault in faults[:10]:
        print(fault, file=sys.stderr)
    good = (not faults and answers > 0 and kills > 0 and code == 0
            and (status["speculation"]["accepted"] > 0 or not options.prompt_lookup)
            and status["recoveries"] and all(not client.is_alive() for client in clients))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
