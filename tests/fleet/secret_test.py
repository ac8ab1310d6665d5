"""No command line that other users can read contains a key.

    secret_test.py WEFT TINY_MODEL

Needs root, ip(8), unshare and nsenter; skips (status 77) if one is missing.
"""

import glob
import os
import pty
import re
import subprocess
import threading

from spaces import limits, main, words_of


def command_lines():
    lines = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                lines[path] = file.read().decode(errors="replace").lower()
        except OSError:
            pass  # the process has ended
    return lines


def shown(secret):
    """Command lines that contain two consecutive words of the secret."""
    words = secret.lower().split("-")
    pairs = ["-".join(words[i:i + 2]) for i in range(max(1, len(words) - 1))]
    plain = [re.sub("[ \0-]+", "-", line) for line in command_lines().values()]
    return [line for line in plain if any(pair in line for pair in pairs)]


class Watch:
    """Reads all command lines of the machine repeatedly while a block runs."""

    def __init__(self, secret):
        self.secret, self.seen, self.ends, self.turns = secret, [], threading.Event(), 0
        self.thread = threading.Thread(target=self.look, daemon=True)

    def look(self):
        while not self.ends.is_set():
            self.seen += shown(self.secret)
            self.turns += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()
        assert self.turns > 0 and self.seen == [], self.seen


def test_words_that_are_typed(room, model):
    a, b = room.two()
    first = a.up()
    words = words_of(first)
    assert re.search(r"(?m)^    weft up -$", first.text), first.text
    with Watch(words):
        second = b.up("-", typed=words.upper() + "\n")
        first.await_text(r"found: eth1 at eth7 of b")
        ran = a.run("run", model, "-p", "ab", "-n", "4", "--raw", "-t", "1", "--cluster", "home",
                    "--weights-from", "0")
        assert ran.returncode == 0, ran
    assert "command line" not in second.text and words not in second.text, second.text
    assert second.end() == 0
    lab = a.up("--cluster", "lab", "--port", "7001")
    assert re.search(r"(?m)^    weft up - --cluster lab$", lab.text), lab.text


def test_a_terminal_is_asked(room, _):
    a, b = room.two()
    words = words_of(a.up())
    with Watch(words):
        screen, end = pty.openpty()
        process = subprocess.Popen(b.weft_words("up", "-"), env=b.env(), stdin=end, stdout=end,
                                   stderr=end, start_new_session=True)
        os.close(end)
        said = b""
        while b"on the first host: " not in said:
            said += os.read(screen, 4096)
        os.write(screen, words.replace("-", " ").encode() + b"\n")
        while b"serves cluster 'home'" not in said:
            said += os.read(screen, 4096)
    process.terminate()
    assert process.wait(limits.limit(20)) == 0
    os.close(screen)


def test_words_that_are_arguments(room, _):
    a, b = room.two()
    words = words_of(a.up())
    for typed in ([words], words.split("-"), [words.upper().replace("-", " ")],
                  [words, "--cluster", "two", "--port=7002"], ["--port", "7003", "--", words],
                  ["--data-ports", "7100-7110", *words.split("-")]):
        second = b.up(*typed)
        assert shown(words) == [], shown(words)
        assert "'weft up -" in second.text and "history" in second.text, second.text
        line = command_lines()[f"/proc/{second.process.pid}/cmdline"].split("\0")
        kept = [word for word in typed if word.startswith("--") or word == "two"]
        assert line[1] == "up" and [word for word in line if word in kept] == kept, line
        assert second.end() == 0
    # Mistyped words are almost the key.
    with subprocess.Popen(b.weft_words("up", words[:-1]), env=b.env(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as wrong:
        assert b"error" in wrong.stderr.readline() and shown(words) == []


if __name__ == "__main__":
    main(globals())
