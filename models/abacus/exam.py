#!/usr/bin/env python3
"""Asks a model questions with known answers, and says how many it gets right.

    exam.py WEFT MODEL [--questions FILE] [--least 98] [--answers FILE] [--wrong N] [-- FLAGS...]

WEFT is the program, FILE has a record a line: question, answer, kind (default: held-out.jsonl beside
this script). One `weft serve MODEL FLAGS` answers all of them over its API, greedily; an answer is
right where it is the expected text to the letter. Exit status 1: fewer than --least percent are.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import signal
import subprocess
import sys
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
START_S = 120
AT_ONCE = 8


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=START_S) as reply:
        return json.load(reply)


def serve(weft, model, flags):
    """The server, and its address once the model is there."""
    server = subprocess.Popen([weft, "serve", model, "--port", "0", *flags], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE)
    said = []
    for line in server.stderr:
        said.append(line)
        found = re.search(r"http://[^\s/]+:\d+", line)
        if found:
            return server, found[0]
    raise SystemExit(f"weft serve: exit {server.wait()}\n{''.join(said)}")


def ask_all(weft, model, records, flags=()):
    """The answers, in the order of the records."""
    server, address = serve(weft, model, flags)
    try:
        def ask(record):
            reply = post(address + "/v1/chat/completions",
                         {"messages": [{"role": "user", "content": record["question"]}],
                          "temperature": 0, "max_tokens": 64})
            return reply["choices"][0]["message"]["content"]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(ask, records))
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate()


def read_questions(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def main():
    words, flags = sys.argv[1:], []
    if "--" in words:
        at = words.index("--")
        words, flags = words[:at], words[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("model")
    parser.add_argument("--questions", default=HERE / "held-out.jsonl")
    parser.add_argument("--least", type=float, default=0)
    parser.add_argument("--answers", help="a file for all answers, a line each, as JSON")
    parser.add_argument("--wrong", type=int, default=10, help="show so many wrong answers")
    options = parser.parse_args(words)
    records = read_questions(options.questions)
    answers = ask_all(options.weft, options.model, records, flags)
    if options.answers:
        with open(options.answers, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(answer) + "\n" for answer in answers)
    asked, right = collections.Counter(), collections.Counter()
    wrong = []
    for record, answer in zip(records, answers):
        asked[record["kind"]] += 1
        right[record["kind"]] += answer == record["answer"]
        if answer != record["answer"]:
            wrong.append(f"{record['question']} {answer!r}, right: {record['answer']!r}")
    for kind, count in asked.items():
        print(f"{kind:22} {right[kind]:4} of {count:4}  {100 * right[kind] / count:6.1f} %")
    share = 100 * right.total() / asked.total()
    print(f"{'all':22} {right.total():4} of {asked.total():4}  {share:6.1f} %")
    for line in wrong[:options.wrong]:
        print("wrong:", line)
    if share < options.least:
        raise SystemExit(f"{share:.1f} % are right; expected {options.least} % or more")


if __name__ == "__main__":
    main()
