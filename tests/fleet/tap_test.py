"""A host between two others reads and changes frames. It reads no prompt and no weights, and a
changed byte ends the job with an error.

    tap_test.py WEFT TINY_MODEL

Needs root, ip(8), unshare and nsenter; skips (status 77) if one is missing.
"""

import json
import os
import struct
import sys

from spaces import Running, cable, main

TAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wire_tap.py")
PROMPT = "abba cab dab bad cabbage"


class Tapped:
    """a - tap - b, with a worker on b."""

    def __init__(self, room):
        self.room, self.folder = room, room.folder.name
        self.a, self.b = room.host("a"), room.host("b")
        tap = room.host("tap")
        cable(self.a, "eth0", tap, "left")
        cable(tap, "right", self.b, "eth0")
        for host, address in ((self.a, "10.66.0.1/24"), (self.b, "10.66.0.2/24")):
            host.do(sys.executable, TAP, "--without-offloads", "eth0")
            host.do("ip", "address", "add", address, "dev", "eth0")
        self.key = os.path.join(self.folder, "key")
        with open(self.key, "w") as file:
            file.write("a-shared-key-of-the-tests\n")
        os.chmod(self.key, 0o600)
        self.tap = Running(tap.words(sys.executable, TAP, "left", "right", self.folder))
        tap.running.append(self.tap)
        self.tap.await_text("forwarding")
        self.worker = self.b.start("worker", "--listen", "0.0.0.0:7000", "--key-file", self.key)
        self.worker.await_text("listening")

    def ask(self, model, *words):
        """An answer of two ranks; the tap has recorded the frames of this run only."""
        os.truncate(os.path.join(self.folder, "frames"), 0)
        return self.a.run("run", model, "-p", PROMPT, "-n", "12", "--raw", "--greedy", "-t", "1",
                          "--tp", "2", "--hosts", "10.66.0.2", "--key-file", self.key,
                          "--weights-from", "0", *words)

    def frames(self):
        with open(os.path.join(self.folder, "frames"), "rb") as file:
            return file.read()

    def change(self, kind):
        path = os.path.join(self.folder, "change")
        with open(path + ".new", "w") as file:
            file.write(kind)
        os.rename(path + ".new", path)

    def changed(self):
        try:
            with open(os.path.join(self.folder, "changed")) as file:
                return int(file.read() or 0)
        except OSError:
            return 0


def tokens_of(host, model):
    ran = host.run("tokenize", model, "--text", PROMPT, "--json")
    ids = json.loads(ran.stdout)["tokens"]
    assert len(ids) > 8, ran
    return struct.pack(f"<{len(ids)}i", *ids)


def pieces_seen(model, seen):
    """How many of about 50 pieces of a GGUF file's second half, of 32 unlike bytes each, are in
    `seen`."""
    with open(model, "rb") as file:
        data = file.read()
    pieces = [data[at:at + 32] for at in range(len(data) // 2, len(data) - 32, len(data) // 100)]
    return sum(len(set(piece)) > 16 and piece in seen for piece in pieces)


def test_a_tap_reads_nothing(room, model):
    tapped = Tapped(room)
    tokens = tokens_of(tapped.a, model)
    plain = tapped.ask(model, "--plain-links")
    assert plain.returncode == 0, plain
    seen = tapped.frames()
    assert tokens in seen, "the test does not see the prompt where it is plain"
    assert pieces_seen(model, seen) > 0, "the test does not see weights where they are plain"
    sealed = tapped.ask(model)
    assert sealed.returncode == 0 and sealed.stdout == plain.stdout, (sealed, plain)
    seen = tapped.frames()
    assert len(seen) > 10_000 and tokens not in seen and pieces_seen(model, seen) == 0, len(seen)


def test_changed_bytes_end_the_job(room, model):
    tapped = Tapped(room)
    right = tapped.ask(model)
    assert right.returncode == 0, right
    for kind, why in (("data", "data was changed, repeated or dropped on the way"),
                      ("control", "a control frame was altered")):
        before = tapped.changed()
        tapped.change(kind)
        ran = tapped.ask(model)
        assert tapped.changed() > before, f"no segment of {kind} was changed"
        assert ran.returncode != 0 and right.stdout.strip() not in ran.stdout, ran
        tapped.worker.await_text(why)
        tapped.change("nothing")
        again = tapped.ask(model)
        assert again.returncode == 0 and again.stdout == right.stdout, again


if __name__ == "__main__":
    main(globals())
