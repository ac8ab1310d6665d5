#!/usr/bin/env python3
"""Speed of downloading a large file from a local HTTPS server: weft pull, curl, huggingface_hub.

    bench/pull.py [--weft build/weft] [--gb 2] [--python PYTHON] [--rounds 2]

The server (tests/hub/server.py) and the client share the cores, so this measures the cost of a
client: TLS, copies, the file, and, for weft and huggingface_hub, checks of the data. curl uses one
connection and checks nothing; --python names an interpreter with huggingface_hub. Prints the best
of the rounds.
"""
import argparse
import json
import os
import pathlib
import resource
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
HF = ("import huggingface_hub as h; "
      "print(h.hf_hub_download('o/n', 'x.gguf'))")


def run(words, environment):
    begin = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{words[0]}: {done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - begin, cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", default=str(ROOT / "build/weft"))
    parser.add_argument("--gb", type=float, default=2)
    parser.add_argument("--python")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--connections", default="1,2,8")
    words = parser.parse_args()
    size = int(words.gb * 1e9)
    with tempfile.TemporaryDirectory(prefix="weft-pull-") as folder:
        source = os.path.join(folder, "source")
        with open(source, "wb") as file:
            block = os.urandom(1 << 24)
            for at in range(0, size, len(block)):
                file.write(block[:size - at])
        server = subprocess.Popen([sys.executable, ROOT / "tests/hub/server.py", folder],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        port, cdn = server.stdout.readline().split()
        ca, hub = os.path.join(folder, "ca.pem"), f"https://localhost:{port}"
        context = ssl.create_default_context(cafile=ca)
        control = json.dumps({"files": [{"path": "x.gguf", "from": source, "large": True}]})
        urllib.request.urlopen(f"{hub}/control", control.encode(), context=context).read()
        listing = f"{hub}/api/models/o/n/tree/0123456789abcdef0123456789abcdef01234567"
        # Makes the server compute the hash once.
        urllib.request.urlopen(listing, context=context).read()
        cache = os.path.join(folder, "cache")
        environment = {**os.environ, "HF_ENDPOINT": hub, "HF_HUB_CACHE": cache, "HF_HOME": folder,
                       "SSL_CERT_FILE": ca, "REQUESTS_CA_BUNDLE": ca, "HF_HUB_DISABLE_XET": "1",
                       "HF_HUB_DISABLE_TELEMETRY": "1"}
        rows = {"curl (1 connection, nothing checked)":
                ["curl", "-s", "--cacert", ca, "-o", os.path.join(cache, "x"),
                 f"https://127.0.0.1:{cdn}/x.gguf"]}
        for count in words.connections.split(","):
            rows[f"weft pull (connections: {count}, SHA-256)"] = [
                words.weft, "pull", "o/n", "--connections", count]
        if words.python:
            rows["huggingface_hub (hf_hub_download)"] = [words.python, "-c", HF]
        best = {}
        for _ in range(words.rounds):
            for name, line in rows.items():
                shutil.rmtree(cache, ignore_errors=True)
                os.mkdir(cache)
                best[name] = min(run(line, environment), best.get(name, (1e9, 0)))
        print(f"{size * 1e-9:.2f} GB, {os.cpu_count()} cores shared with the server")
        for name, (seconds, cpu) in best.items():
            print(f"{name:<40} {seconds:6.2f} s  {size * 1e-6 / seconds:7.0f} MB/s"
                  f"  {cpu:6.2f} s of CPU")
        server.stdin.close()
        server.wait()


if __name__ == "__main__":
    main()
