#!/usr/bin/env python3
"""Runs the commands of the documents as written.

Each block of `sh` runs line by line in its own folder, with the files that its commands name
(kit.py). A server runs until the next block without <!-- goes on -->. A block after <!-- not run:
WHY --> is counted but not run (pages.py). A command that fails, or that takes longer than a minute,
fails the test: correct the page, or state why the block is not run. The daily suite runs README.md
and every other page, without Python.

Usage: commands_test.py WEFT ROOT [PACKAGES] [--only PAGE]
PACKAGES has the Python packages of OpenAI and Anthropic, for the blocks of `python`.
"""
import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
import kit  # noqa: E402
import pages  # noqa: E402
from limits import limit  # noqa: E402
from nightly import in_turn, nightly  # noqa: E402
from wait import until  # noqa: E402

COMMAND_SECONDS = 60
SERVER = re.compile(r"^(build/)?weft (serve|worker) (?!--help)")


class Missing(Exception):
    """This machine lacks something that a command needs."""


class Server:
    """A `weft serve` or `weft worker` that runs during the commands after it."""

    def __init__(self, line, folder, environment, port, seconds):
        self.line, self.log = line, folder / "server.log"
        self.answers = f"http://127.0.0.1:{port}/ready" if " serve " in line else None
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(["bash", "-c", "exec " + line], cwd=folder, stdout=log,
                                            stderr=log, env=environment, start_new_session=True)
        try:
            until(self.ready, "an answer", seconds, self.process)
        except AssertionError as error:
            raise RuntimeError(f"'{self.line}': {error}: {self.log.read_text()[-2000:]}") from error

    def ready(self):
        if self.answers is None:
            return re.search("listening on|no job from", self.log.read_text())
        try:
            return urllib.request.urlopen(self.answers, timeout=10).read()
        except OSError:
            return False

    def stop(self):
        """Returns the exit status: 0 if it still ran and ended as asked."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(limit(30))
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.wait()


class Runner:
    def __init__(self, weft, root, packages):
        self.kit = kit.Kit(weft, root, packages)
        self.servers, self.folder = [], None
        self.ran = self.read = self.compared = 0
        self.output = ""  # of the block before
        self.wrong, self.reasons, self.times = [], {}, []
        self.seconds = limit(COMMAND_SECONDS)

    def stop_servers(self, place):
        for server in reversed(self.servers):
            status = server.stop()
            if status != 0:
                self.wrong.append(f"{place}: '{server.line}' ended with status {status}: "
                                  f"{server.log.read_text()[-2000:]}")
        self.servers = []

    def page(self, name, text):
        for block in pages.blocks(name, text):
            if block.language in pages.SHELLS or (block.language == "python" and block.goes_on):
                self.block(block)
            elif block.printed:
                self.compare(block)
        self.stop_servers(name)

    def compare(self, block):
        """Checks that the previous block printed these lines in this order; `...` stands for other
        lines."""
        at = 0
        for line in block.text.splitlines():
            if line.strip() == "...":
                continue
            self.compared += 1
            at = self.output.find(line + "\n", at)
            if at < 0:
                self.wrong.append(f"{block.place}: this is not printed: {line}")
                return

    def block(self, block):
        lines = list(pages.commands(block.text)) if block.language != "python" else [block.text]
        reason = block.reason
        if block.language == "python" and self.kit.packages is None:
            reason = "no Python packages here"
        elif block.language == "python" and not nightly():
            reason = "./test --nightly runs Python"
        if reason:
            self.read += len(lines)
            self.reasons.setdefault(reason, []).append(block.place)
            return
        if not block.goes_on or self.folder is None:
            self.stop_servers(block.place)
            self.folder = self.kit.folder(block.text)
        self.output = ""
        for line in lines:
            try:
                if not self.line(block, line):
                    return  # later lines may need this one
            except Missing as missing:
                self.read += 1
                self.reasons.setdefault(f"no {missing} here", []).append(block.place)

    def line(self, block, line):
        missing = self.kit.missing(line)
        if missing is not None:
            raise Missing(missing)
        line = self.kit.local(line, block.language)
        begin = time.monotonic()
        try:
            if SERVER.match(line):
                self.servers.append(Server(line, self.folder, self.kit.environment, self.kit.port,
                                           self.seconds))
            else:
                self.run(block, line)
        except (RuntimeError, subprocess.SubprocessError) as error:
            self.wrong.append(f"{block.place}: {error}")
            return False
        self.ran += 1
        self.times.append((time.monotonic() - begin, f"{block.place}: {line.strip()[:70]}"))
        return True

    def run(self, block, line):
        words = ["bash", "-c", "set -o pipefail; " + line]
        if block.language == "python":
            words = [sys.executable, "-c", line]
        # A separate process group, so that no process of a command that takes too long remains.
        process = subprocess.Popen(words, cwd=self.folder, env=self.kit.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace",
                                   start_new_session=True)
        try:
            out, err = process.communicate(timeout=self.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise RuntimeError(f"'{line.strip()}' takes more than {self.seconds:.0f} s") from None
        self.output += out + err
        module = re.search(r"^ModuleNotFoundError: No module named '(\w+)'", err, re.MULTILINE)
        if block.language == "python" and module:
            raise Missing(f"Python package {module[1]}")
        # `weft doctor` exits with 1 if it finds a fault of this machine: no error of the page.
        good = (0, 1) if re.match(r"weft doctor\b", line) and "error:" not in err else (0,)
        failed = line.startswith("curl ") and '"error":' in out
        if process.returncode not in good or failed:
            raise RuntimeError(f"'{line.strip()}' ended with status {process.returncode}:\n"
                               f"{out[-500:]}{err[-2000:]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weft")
    parser.add_argument("root")
    parser.add_argument("packages", nargs="?")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    runner = Runner(args.weft, args.root, args.packages)
    begin = os.times()
    try:
        for index, (name, text) in enumerate(pages.pages(args.root)):
            if args.only in name if args.only else name == "README.md" or in_turn(index, 2):
                runner.page(name, text)
    finally:
        runner.stop_servers("the end")
        runner.kit.close()
    end = os.times()
    if not args.only and runner.ran < (40 if nightly() else 20):
        runner.wrong.append(f"only {runner.ran} commands ran")
    for reason, places in sorted(runner.reasons.items()):
        print(f"not run ({reason}): {', '.join(places)}")
    for seconds, what in sorted(runner.times, reverse=True)[:5]:
        print(f"{seconds:5.1f} s  {what}")
    print(*runner.wrong, sep="\n", end="\n" if runner.wrong else "")
    used = end.children_user + end.children_system - begin.children_user - begin.children_system
    print(f"{runner.ran} commands of the documents ran ({used:.0f} s of CPU time), "
          f"{runner.compared} lines of their output compared; {runner.read} were not run, with a "
          f"reason; {len(runner.wrong)} failed")
    sys.exit(bool(runner.wrong))


if __name__ == "__main__":
    main()
