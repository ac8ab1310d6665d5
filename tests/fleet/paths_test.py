"""Messages about paths between hosts that lose large packets, and about hosts that run another
job.

    paths_test.py WEFT TINY_MODEL [TEST...]

Needs root, ip(8), unshare and nsenter; skips (status 77) if one is missing.
"""

import json
import os
import re
import time

from spaces import Room, cable, limits, main, words_of
from unreached_test import Ring, train_words

# Each of these takes 10 to 35 s.
NIGHTLY_ONLY = ("test_a_black_hole_between_workers",)


def over_a_switch(room, mtu, ends=9000):
    """a and b, each with eth0 of MTU `ends`, and a bridge between them that silently drops
    packets larger than `mtu`."""
    switch, a, b = room.host("switch"), room.host("a"), room.host("b")
    switch.do("ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
    for port, (host, address) in enumerate(((a, "10.9.0.1/24"), (b, "10.9.0.2/24"))):
        cable(switch, f"p{port}", host, "eth0")
        switch.do("ip", "link", "set", f"p{port}", "mtu", str(mtu), "master", "br0")
        # One packet at a time, because a veth passes larger GSO packets.
        host.do("ip", "link", "set", "eth0", "mtu", str(ends), "gso_max_segs", "1")
        host.do("ip", "addr", "add", address, "dev", "eth0")
    switch.do("ip", "link", "set", "br0", "mtu", str(mtu), "up")
    return a, b


def findings(host, *words, status):
    ran = host.run("doctor", *words, "--check", "across-measured", "--json")
    assert ran.returncode == status, ran
    return json.loads(ran.stdout)["findings"]


def run_words(model):
    return ("run", model, "-p", "ab " * 200, "-n", "8", "--raw", "-t", "1", "--weights-from", "0",
            "--pp", "2", "--timeout-ms", "2000")


def test_a_black_hole(room, model):
    """The ends agree on 9000 bytes; the network between them passes fewer."""
    for mtu in (1500, 1400, 4096) if limits.NIGHTLY else (1400,):
        with Room(room.weft) as own:
            a, b = over_a_switch(own, mtu)
            first = a.up()
            b.up("-", typed=words_of(first) + "\n")
            first.await_text(r"found: eth0 at eth0 of b")
            found = findings(a, "--cluster", "home", status=1)
            (lost,) = [each for each in found if each["severity"] == "fail"]
            assert lost["check"] == "across-path" and lost["host"] == "b", lost
            passed = {1500: 1500, 1400: 1400, 4096: 4092}[mtu]
            assert f"{passed} bytes arrive, 9000 do not" in lost["read"], lost
            for part in ("eth0 here: 9000", "the other end takes 9000",
                         f"sudo ip link set dev eth0 mtu {passed}"):
                assert part in lost["read"], lost
            assert "start" not in lost["fix"], lost
            key = os.path.join(a.home, ".config/weft/clusters/home.key")
            for words in ((*run_words(model), "--cluster", "home"),
                          (*train_words(own, "--no-output"), "--cluster", "home",
                           "--timeout-ms", "2000"),
                          ("net", "bw", "--cluster", "home", "--sizes", "1M", "--timeout-ms",
                           "2000"),
                          ("net", "bw", "--hosts", "10.9.0.2:7000", "--key-file", key, "--sizes",
                           "1M", "--timeout-ms", "2000")):
                ran = a.run(*words)
                assert ran.returncode in (1, 3), ran
                assert f"{passed} bytes arrive, 9000 do not" in ran.stderr, ran
                assert "sudo ip link set dev eth0 mtu" in ran.stderr, ran
            # The MTU is fixed as the message says.
            for host in (a, b):
                host.do("ip", "link", "set", "dev", "eth0", "mtu", str(passed))
            found = findings(a, "--cluster", "home", status=0)
            assert not [each for each in found if each["check"] == "across-path"], found
            ran = a.run(*run_words(model), "--cluster", "home")
            assert ran.returncode == 0 and "bytes arrive" not in ran.stderr, ran


def test_a_black_hole_between_workers(room, model):
    """Rank 0's own paths are fine, so only the workers can detect it."""
    for ends in ((1500, 1500), (1500, 9000))[:None if limits.NIGHTLY else 1]:
        with Room(room.weft) as own:
            ring = Ring(own, model)
            for one in range(3):
                for other in range(3):
                    if one != other:
                        ring.hosts[one].do("ip", "link", "set", f"c{one}{other}", "mtu", "9000",
                                           "gso_max_segs", "1")
            ring.hub.do("ip", "link", "set", "br0", "mtu", "1500")
            for end, mtu in zip((1, 2), ends):
                ring.hub.do("ip", "link", "set", f"to{end}", "mtu", str(mtu))
            first = ring.hosts[0]
            hosts = ("--hosts", ring.workers, "--key-file", ring.key, "--timeout-ms", "2000")
            for words in (("run", model, "-p", "ab " * 200, "-n", "8", "--raw", "-t", "1", "--tp",
                           "3", *hosts),
                          (*train_words(own, "--no-output", "--dp", "3"), *hosts)):
                ran = first.run(*words)
                assert ran.returncode == 3, ran
                for part in (r"from 10\.66\.\d\.2 to 10\.66\.\d\.2 \(10\.66\.12\.[12]\)",
                             "1500 bytes arrive, 9000 do not", r"MTU of c(12|21) on 10\.66\.",
                             r"sudo ip link set dev c(12|21) mtu 1500"):
                    assert re.search(part, ran.stderr), (part, ran)
            found = findings(first, "--workers", ring.workers, "--key-file", ring.key, status=1)
            failed = [each for each in found if each["severity"] == "fail"]
            assert failed and {each["check"] for each in failed} == {"across-path"}, found
            assert all("1500 bytes arrive, 9000 do not" in each["read"] and
                       "weft worker" not in each["fix"] for each in failed), found
            # The same among 20 ranks.
            many = [f"10.66.1.2:{7001 + i}" for i in range(17)]
            for worker in many:
                ring.hosts[1].start("worker", "--listen", worker, "--key-file",
                                    ring.key).await_text("listening")
            workers = ",".join((ring.workers, *many))
            found = findings(first, "--workers", workers, "--key-file", ring.key, status=1)
            failed = [each for each in found if each["severity"] == "fail"]
            assert failed and {each["check"] for each in failed} == {"across-path"}, found


def test_ways_that_are_whole(room, _):
    """Jumbo frames that arrive, ends of different MTU, and an absent host: no message about MTU."""
    for mtu, ends in ((9000, 9000), (1500, 1500))[:None if limits.NIGHTLY else 1]:
        with Room(room.weft) as own:
            a, b = over_a_switch(own, mtu, ends)
            first = a.up()
            second = b.up("-", typed=words_of(first) + "\n")
            first.await_text(r"found: eth0 at eth0 of b")
            found = findings(a, "--cluster", "home", status=0)
            assert [each["check"] for each in found] == ["across-measured"], found
            key = os.path.join(a.home, ".config/weft/clusters/home.key")
            second.end()
            begin = time.monotonic()
            ran = a.run("net", "lat", "--hosts", "10.9.0.2:7000", "--key-file", key)
            assert ran.returncode == 1 and "bytes arrive" not in ran.stderr, ran
            b.do("ip", "link", "set", "eth0", "down")
            ran = a.run("net", "lat", "--hosts", "10.9.0.2:7000", "--key-file", key)
            assert ran.returncode == 1 and "bytes arrive" not in ran.stderr, ran
            assert time.monotonic() - begin < limits.limit(40)


def test_busy_is_not_broken(room, model):
    a, b, c = room.ring()
    words = words_of(a.up())
    seconds = [host.up("-", typed=words + "\n") for host in (b, c)]
    for second in seconds:
        second.await_text(r"found: .* of a")
    with open(os.path.join(a.home, ".config/weft/clusters/pair.toml"), "w") as file:
        file.write('key = "home.key"\n[[host]]\nname = "b"\n')
    server = a.start("serve", model, "--cluster", "pair", "--port", "0", "-t", "1", "--ctx", "256",
                     "--weights-from", "0", "--pp", "2")
    server.await_text(r"serving ")
    found = findings(a, "--cluster", "pair", status=0)
    (busy,) = found
    assert busy["host"] == "b" and busy["severity"] == "note", busy
    assert "is running another job (inference of " in busy["read"], busy
    assert " s)" in busy["read"] and "not measured" in busy["why"], busy
    seen = {each["name"]: each for each in json.loads(a.run("hosts", "--json").stdout)["hosts"]}
    (job,) = seen["b"]["jobs"]
    assert job.startswith("inference of ") and seen["b"]["places"] == 1, seen
    assert seen["c"]["jobs"] == [] and seen["c"]["waiting"] == 0, seen
    assert "\njobs\n  b  inference of " in a.run("hosts").stdout
    # The host whose worker runs that job does not measure either.
    (busy,) = findings(b, "--cluster", "home", status=0)
    assert busy["host"] == "b" and busy["severity"] == "note", busy
    assert "the worker of this host is running another job (inference of " in busy["read"], busy
    # Of two workers only the idle one is measured, and the server continues.
    found = findings(a, "--cluster", "home", status=0)
    assert [each["host"] for each in found if each["severity"] == "note"] == ["b"], found
    assert [each for each in found if each["host"] == "a to c"], found
    text = a.run("doctor", "--cluster", "pair", "--check", "across-measured", "-v")
    assert text.returncode == 0 and "second worker" not in text.stdout, text
    ran = a.run("run", model, "-p", "ab", "--cluster", "pair", "-n", "2", "--timeout-ms", "2000")
    assert ran.returncode == 1 and "is running another job (inference of " in ran.stderr, ran
    assert "name a second worker of that host in --hosts" in ran.stderr, ran
    assert server.end() == 0, server.text
    # The finding does not depend on the asking host or on a job.
    seconds[0].await_text(r"the job ended")
    assert not [each for each in findings(a, "--cluster", "pair", status=0)
                if each["severity"] == "note"]


if __name__ == "__main__":
    main(globals(), NIGHTLY_ONLY)
