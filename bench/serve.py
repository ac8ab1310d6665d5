#!/usr/bin/env python3
"""weft serve beside llama-server: the same cores and the same load.

    bench/serve.py PEERS --model FILE [--clients 1,8,32] [--requests 4] [--threads 2] [--json FILE]

PEERS is a folder with llama.cpp's llama-server (directly, or in llama/build/bin/ or build/bin/);
`none`: only Weft. Each server is started alone, loaded, and ended:

    closed     each of N clients asks again as soon as it is answered, --requests times per client
    prompts    8 clients, while another one keeps sending prompts of 2,000 tokens
    prefix     16 clients whose prompts share 1,500 tokens, with and without the prefix cache
    hit        time to the first token of such a prompt alone, beside a prompt of 32 tokens
    tensor     two ranks of one thread beside one rank of two threads
    share      shares of a step's time: scheduler, sampling, and the rest of answering

Run nothing else meanwhile. Needs the release build: ./test builds it.
"""
import argparse
import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import requests_at_once
from requests_at_once import Load

ROOT = pathlib.Path(__file__).resolve().parent.parent
WEFT = ROOT / "build/weft"
CONTEXT, SEQUENCES = 2560, 32


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


@contextlib.contextmanager
def running(command, port):
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            if process.poll() is not None:
                sys.exit(f"{command[0]} ended: {process.stderr.read().decode()[-600:]}")
            try:
                get(url + "/v1/models")  # (503 while the model loads)
                break
            except OSError:
                if time.monotonic() > deadline:
                    sys.exit(f"{command[0]} does not answer")
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


class Bench:
    def __init__(self, options):
        self.options = options
        self.rows = []
        if options.peers == "none":
            self.llama_server = None
            return
        peers = pathlib.Path(options.peers).resolve()
        places = [peers, peers / "llama/build/bin", peers / "build/bin"]
        self.llama_server = next((p / "llama-server" for p in places
                                  if (p / "llama-server").exists()), None)
        if self.llama_server is None:
            sys.exit(f"no llama-server in {', '.join(map(str, places))}")

    def weft(self, *more, threads=None):
        port = free_port()
        return running([WEFT, "serve", self.options.model, "--port", port, "--no-access-log",
                        "-t", threads or self.options.threads, "--ctx", CONTEXT, "--kv-tokens",
                        CONTEXT * SEQUENCES, "--max-seqs", SEQUENCES, *more], port)

    def llama(self):
        port = free_port()
        return running([self.llama_server, "-m", self.options.model, "--port", port, "-t",
                        self.options.threads, "-c", CONTEXT * SEQUENCES, "-np", SEQUENCES,
                        "--no-warmup"], port)

    def load(self, url, load, stop=None):
        model = get(url + "/v1/models")["data"][0]["id"]
        return requests_at_once.run(url, model, load, stop)

    def note(self, name, server, report):
        quantile = requests_at_once.quantile
        row = {"case": name, "server": server, "tok_s": report["tok_s"],
               "ttft_p50": quantile(report["ttft_ms"], 50),
               "ttft_p95": quantile(report["ttft_ms"], 95),
               "itl_p50": quantile(report["itl_ms"], 50), "itl_p99": quantile(report["itl_ms"], 99)}
        self.rows.append(row)
        print(f"{name:14}{server:16}{row['tok_s']:9.1f}{row['ttft_p50']:10.1f}"
              f"{row['ttft_p95']:10.1f}{row['itl_p50']:9.1f}{row['itl_p99']:9.1f}", flush=True)
        return row

    def closed(self, url, server):
        for clients in self.options.clients:
            load = Load(clients, clients * self.options.requests)
            self.note(f"closed {clients}", server, self.load(url, load))

    def prompts(self, url, server):
        stop = threading.Event()
        endless = Load(1, 1000, input_len=2000, output_len=2, warmup=0, seed=7)
        long = threading.Thread(target=self.load, args=(url, endless, stop))
        long.start()
        try:
            time.sleep(1)
            report = self.load(url, Load(8, 16, input_len=64, output_len=24, warmup=0, seed=3))
            if not long.is_alive():
                sys.exit("the long prompts came to an end")
        finally:
            stop.set()
            long.join()
        self.note("prompts", server, report)

    def prefix(self):
        load = Load(16, 32, input_len=1532, output_len=16, shared_prefix=1500)
        for name, more in (("prefix", []), ("no cache", ["--no-prefix-cache"])):
            with self.weft(*more) as url:
                self.note(name, "weft", self.load(url, load))

    def hit(self):
        with self.weft() as url:
            alone = Load(1, 12, input_len=32, output_len=4, warmup=2)
            self.note("short 32", "weft", self.load(url, alone))
            shared = Load(1, 12, input_len=1532, output_len=4, shared_prefix=1500, warmup=2)
            self.note("hit 1500+32", "weft", self.load(url, shared))

    def share(self, url):
        seconds = get(url + "/api/status")["seconds"]
        total = seconds["steps"] + seconds["plans"] + seconds["saying"]
        rest = seconds["saying"] - seconds["sampling"]
        plans, sampling = 100 * seconds["plans"] / total, 100 * seconds["sampling"] / total
        print(f"{'share':14}{'weft':16}plans {plans:.2f} %, sampling {sampling:.2f} %, text and "
              f"HTTP {100 * rest / total:.2f} %", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peers")
    parser.add_argument("--model", required=True)
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--requests", type=int, default=4, help="of each client")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cases", default="closed,prompts,prefix,hit,tensor")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    options.clients = [int(word) for word in options.clients.split(",")]
    cases = options.cases.split(",")
    bench = Bench(options)
    print(f"{'case':14}{'server':16}{'tok/s':>9}{'TTFT p50':>10}{'p95':>10}{'ITL p50':>9}"
          f"{'p99':>9}   ms")
    if "closed" in cases or "prompts" in cases:
        with bench.weft() as url:
            if "closed" in cases:
                bench.closed(url, "weft")
                bench.share(url)
            if "prompts" in cases:
                bench.prompts(url, "weft")
        if bench.llama_server:
            with bench.llama() as url:
                if "closed" in cases:
                    bench.closed(url, "llama-server")
                if "prompts" in cases:
                    bench.prompts(url, "llama-server")
    if "prefix" in cases:
        bench.prefix()
    if "hit" in cases:
        bench.hit()
    if "tensor" in cases:
        with bench.weft("--local", 2, "--tp", 2, threads=1) as url:
            bench.closed(url, "weft tp 2")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(bench.rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
