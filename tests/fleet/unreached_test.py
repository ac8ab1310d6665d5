"""A ring of three hosts, with a cable between each pair and no switch, loses the cable between
two workers. Rank 0 reaches both.

    unreached_test.py WEFT TINY_MODEL

Needs root, ip(8), unshare and nsenter; skips (status 77) if one is missing.
"""

import json
import os
import re
import time
from concurrent import futures

from recable_test import asked, await_answer
from spaces import Room, cable, limits, main
from wait import until

# Each of these takes at least half a minute and covers little beyond the others.
NIGHTLY_ONLY = ("test_the_link_is_waited_for_and_comes_back",
                "test_the_link_is_waited_for_in_vain",
                "test_training_that_starts_without_a_cable")
ENDS = r"10\.66\.12\.2 \(c21\) - 10\.66\.12\.1 \(c12\)"
LINK = r"tcp, 10\.66\.12\.2 \(c21\) - 10\.66\.12\.1 \(c12\)"
BOTH = r"rank 2 \(host .*\) cannot reach rank 1 \(host .*\) for data"


ABACUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "abacus",
                      "model.gguf")


def train_words(room, *words):
    """Trains a model of the tree on a few records, in room.record."""
    room.record = os.path.join(room.folder.name, "data.jsonl")
    with open(room.record, "w") as file:
        for number in range(8):
            file.write(json.dumps({"messages": [
                {"role": "user", "content": f"1+{number}"},
                {"role": "assistant", "content": f"{1 + number}"}]}) + "\n")
    return ("train", ABACUS, "--data", room.record, "--seq", "64", "--no-pack", "-t", "1", *words)


class Ring:
    """Hosts 0, 1 and 2, with a bridge in the middle of the cable between 1 and 2."""

    def __init__(self, room, model):
        self.model = model
        self.hosts = [room.host(f"r{i}") for i in range(3)]
        self.hub = room.host("hub")
        self.hub.do("ip", "link", "add", "br0", "type", "bridge")
        self.hub.do("ip", "link", "set", "br0", "up")
        for one, other in ((0, 1), (0, 2)):
            cable(self.hosts[one], f"c{one}{other}", self.hosts[other], f"c{other}{one}")
            self.address(one, other)
            self.address(other, one)
        for one, other in ((1, 2), (2, 1)):
            cable(self.hosts[one], f"c{one}{other}", self.hub, f"to{one}")
            self.hub.do("ip", "link", "set", f"to{one}", "master", "br0")
            self.address(one, other)
        self.workers = "10.66.1.2,10.66.2.2"
        self.key = room.key()
        for host in self.hosts[1:]:
            host.start("worker", "--listen", "0.0.0.0:7000", "--key-file",
                       self.key).await_text("listening")

    def address(self, one, other):
        low, high = sorted((one, other))
        last = 1 if one == low else 2
        self.hosts[one].do("ip", "addr", "add", f"10.66.{low}{high}.{last}/30", "dev",
                           f"c{one}{other}")

    def serve(self, *words):
        self.timeout_s = limits.limit(2)
        server = self.hosts[0].start(
            "serve", self.model, "--hosts", self.workers, "--key-file", self.key, "-t", "1",
            "--tp", "3", "--timeout-ms", str(int(1000 * self.timeout_s)), *words)
        server.await_text("serving ", 60)
        return server

    def pull(self, how):
        if how == "silent":  # no link goes down
            self.hub.do("ip", "link", "set", "to1", "nomaster")
        elif how == "down":
            self.hosts[1].do("ip", "link", "set", "c12", "down")
        else:  # like a USB cable
            self.hosts[2].do("ip", "link", "del", "c21")

    def plug(self):
        self.hub.do("ip", "link", "set", "to1", "master", "br0")


def test_an_elastic_job_goes_on_without_one_of_both(room, model):
    for how in ("silent", "down", "gone") if limits.NIGHTLY else ("silent",):
        with Room(room.weft) as own:
            ring = Ring(own, model)
            server = ring.serve("--elastic")
            text = await_answer(ring.hosts[0])
            ring.pull(how)
            assert await_answer(ring.hosts[0]) == text, server.text
            server.await_text(BOTH + r".*\(the link was " + LINK +
                              r"\)\. The job continues without rank 2 ")
            server.await_text(r"epoch \d+ with 2 ranks after")
            assert server.end() == 0, server.text


def test_the_link_is_waited_for_and_comes_back(room, model):
    ring = Ring(room, model)
    server = ring.serve()
    text = await_answer(ring.hosts[0])
    ring.pull("silent")
    with futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(asked, ring.hosts[0])
        server.await_text(BOTH + r".*\(the link was " + LINK + r"\)\. Waiting up to \d+ ms", 60)
        ring.plug()
        assert answer.result() == text, server.text
    server.await_text(r"epoch \d+ with 3 ranks after")
    assert server.end() == 0, server.text


def test_the_link_is_waited_for_in_vain(room, model):
    ring = Ring(room, model)
    server = ring.serve("--restart-timeout-ms", limits.timeout_ms(6000))
    await_answer(ring.hosts[0])
    ring.pull("down")
    assert asked(ring.hosts[0]) is None
    server.await_text(r"error: " + BOTH + r".*\(the link was " + LINK +
                      r"\)\. Within \d+ ms \(--restart-timeout-ms\) this did not change")
    assert server.process.wait(60) == 3, server.text


def test_a_cable_that_is_out_at_the_start(room, model):
    """An elastic job begins without one of the two workers, just as it continues without one later;
    other jobs name both ends and the cable."""
    for how in ("silent", "down") if limits.NIGHTLY else ("down",):
        with Room(room.weft) as own:
            ring = Ring(own, model)
            ring.pull(how)
            cable = rf"their link: {ENDS}" if how == "silent" else (
                r"they share no network now: rank 2 has .*10\.66\.2\.2 \(c20\).*; rank 1 has "
                r"10\.66\.1\.2 \(c10\)")
            ran = ring.hosts[0].run("run", model, "-p", "ab", "-n", "2", "--raw", "-t", "1", "--tp",
                                    "3", "--timeout-ms", limits.timeout_ms(2000), "--hosts",
                                    ring.workers, "--key-file", ring.key)
            assert ran.returncode == 3 and re.search(f"error: {BOTH}.*{cable}", ran.stderr), ran
            for attempt in range(2 if limits.NIGHTLY else 1):  # the first start, and a second one
                server = ring.serve("--elastic")
                assert re.search(rf"{BOTH}.*{cable}.*The job continues without rank 2 ",
                                 server.text), server.text
                assert re.search(r"\(2 ranks, ", server.text), server.text
                await_answer(ring.hosts[0])
                assert server.end() == 0, server.text


def test_training_that_starts_without_a_cable(room, model):
    ring = Ring(room, model)
    ring.pull("silent")
    out = os.path.join(room.folder.name, "out")
    ran = ring.hosts[0].run(*train_words(room, "--steps", "4", "--save-every", "2", "--elastic",
                                         "--dp", "3", "--output-dir", out, "--timeout-ms",
                                         limits.timeout_ms(2000)),
                            "--hosts", ring.workers, "--key-file", ring.key)
    assert ran.returncode == 0, ran
    assert re.search(rf"{BOTH}.*their link: {ENDS}.*The job continues without rank 2 ",
                     ran.stderr), ran
    assert os.path.exists(os.path.join(out, "model.gguf")), ran


def test_a_layout_that_cannot_shrink_waits_for_the_link(room, model):
    """Elastic or not: the job excludes no rank that the others need."""
    for layout in ("--pp", "--tp") if limits.NIGHTLY else ("--pp",):
        with Room(room.weft) as own:
            ring = Ring(own, model)
            out = os.path.join(own.folder.name, "out")
            job = ring.hosts[0].start(
                *train_words(own, "--steps", "100000", "--save-every", "5", "--elastic", layout,
                             "3", "--output-dir", out, "--timeout-ms", limits.timeout_ms(2000)),
                "--hosts", ring.workers, "--key-file", ring.key)
            job.await_text(r"step 6/", 60)
            ring.pull("silent")
            job.await_text(BOTH + r".*\(the link was " + LINK + r"\)\. Waiting up to \d+ ms "
                           r".*cannot continue without one of them \(2 ranks are left, but one "
                           r"copy of the model needs 3 ", 60)
            ring.plug()
            job.await_text(r"Training goes on with 3 ranks|worker replaces it|goes on.*from ", 90)
            seen = len(job.text)
            until(lambda: re.search(r"step \d+/", job.text[seen:]), "a step")
            assert "continues without rank" not in job.text, job.text
            assert job.end() == 75, job.text


def test_a_job_that_recovers_from_nothing_ends(room, model):
    ring = Ring(room, model)
    server = ring.serve("--max-restarts", "0")
    await_answer(ring.hosts[0])
    begin = time.monotonic()
    ring.pull("silent")
    assert asked(ring.hosts[0]) is None
    found = server.await_text(r"error: (.*)").group(1)
    for words in ("10.66.12.1 (c12)", "10.66.12.2 (c21)", "rank 1", "rank 2"):
        assert words in found, server.text
    assert server.process.wait(60) == 3, server.text
    print(f"  ended {time.monotonic() - begin:.1f} s after the cable was pulled")


if __name__ == "__main__":
    main(globals(), NIGHTLY_ONLY)
