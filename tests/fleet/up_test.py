"""`weft up`, `weft hosts` and --cluster: hosts as network namespaces, joined by cables with
link-local addresses only.

    up_test.py WEFT TINY_MODEL

Needs root, ip(8), unshare and nsenter; skips (status 77) if one is missing.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from spaces import await_others, cable, limits, main, others, words_of
import builds

GROUP, PORT = "ff12::5745:4654", 7000
# This takes 15 s.
NIGHTLY_ONLY = ("test_what_is_played_back",)


def listed(host):
    ran = host.run("hosts", "--json")
    assert ran.returncode == 0, ran
    return json.loads(ran.stdout)


def test_a_ring_without_addresses(room, model):
    a, b, c = room.ring()
    first = a.up()
    words = words_of(first)
    b.up(*words.upper().split("-")), c.up(words)
    first.await_text(r"found: eth1 at eth2 of b")
    first.await_text(r"found: eth2 at eth1 of c")
    await_others(a, ["b", "c"])
    cables = {(each["from"], each["from_interface"], each["to"], each["to_interface"])
              for each in listed(a)["cables"]}
    assert cables == {("a", "eth1", "b", "eth2"), ("a", "eth2", "c", "eth1"),
                      ("b", "eth1", "c", "eth2")}, cables
    key = os.path.join(b.home, ".config/weft/clusters/home.key")
    assert open(key).read() == words + "\n" and os.stat(key).st_mode & 0o777 == 0o600
    alone = a.run("run", model, "--greedy", "-p", "ab", "-n", "8", "--raw", "-t", "1")
    assert alone.returncode == 0, alone
    ran = a.run("run", model, "--greedy", "-p", "ab", "-n", "8", "--raw", "-t", "1",
                "--cluster", "home", "--weights-from", "0", "-v", "--pp", "3")
    assert ran.returncode == 0 and ran.stdout == alone.stdout, ran
    for pair in ("rank 0 (a) - rank 1 (b): tcp, encrypted, ", "(eth1) - ",
                 "rank 1 (b) - rank 2 (c)"):
        assert pair in ran.stderr, ran.stderr
    text = a.run("hosts").stdout
    assert "(this host)" in text and "a eth1 - b eth2" in text, text


def test_hosts_that_die_leave_and_come(room, _):
    a, b = room.two()
    first = a.up()
    words = words_of(first)
    second = b.up(words)
    first.await_text(r"found: eth1 at eth7 of b")
    assert second.end() == 0, second.text
    first.await_text(r"gone: eth1 at eth7 of b")
    first.text = ""
    second = b.up()  # the key exists
    first.await_text(r"found: eth1 at eth7 of b")
    assert "weft up" not in second.text, second.text  # no terminal: the words stay out of logs
    second.end(signal.SIGKILL)
    begin = time.monotonic()
    first.await_text(r"gone: eth1 at eth7 of b")
    assert time.monotonic() - begin < limits.limit(12)
    # One cable comes and another goes while it runs.
    first.text = ""
    b.up()
    first.await_text(r"found: eth1 at eth7 of b")
    cable(a, "usb0", b, "usb9")
    first.await_text(r"found: usb0 at usb9 of b")
    a.do("ip", "link", "del", "usb0")
    first.await_text(r"gone: usb0 at usb9 of b")
    assert others(a) == ["b"]
    assert first.end(signal.SIGINT) == 0, first.text


def test_another_key_and_words(room, _):
    a, b = room.two()
    first, second = a.up(), b.up()
    assert words_of(first) != words_of(second)
    first.await_text(r"eth1: fe80:\S+ announces a cluster with another key")
    seen = listed(a)
    assert len(seen["hosts"]) == 1 and not seen["cables"], seen
    assert any("a cluster with another key" in note for note in seen["notes"]), seen
    ran = a.run("run", "synthetic:llama-3.2-1b", "-p", "x", "--cluster", "home")
    assert ran.returncode == 1 and "has another key" in ran.stderr, ran
    assert "Is 'weft up' running there" in ran.stderr, ran
    second.end()
    ran = b.run("up", words_of(first))
    assert ran.returncode == 1 and "is the key of another cluster" in ran.stderr, ran
    second = b.up(words_of(first), "--cluster", "two")  # in addition to the other
    first.await_text(r"found: eth1 at eth7 of b")
    assert a.run("hosts", "--cluster", "nope").returncode == 1
    wrong = words_of(first)[:-1]
    for typed in ([wrong], ["hello"], [words_of(first), "x"]):
        ran = b.run("up", *typed, "--cluster", "three")
        assert ran.returncode == 2, ran
    assert not os.path.exists(os.path.join(b.home, ".config/weft/clusters/three.key"))
    assert "Does 'weft up' or 'weft worker' run here" in a.run("up").stderr


def test_two_of_one_name(room, _):
    a, b = room.two()
    twin = room.host("b")
    cable(a, "eth2", twin, "eth7")
    words = words_of(a.up())
    b.up(words), twin.up(words)
    await_others(a, ["b", "b"])
    assert "another host has this name" in a.run("hosts").stdout


def test_where_there_is_no_multicast(room, model):
    a, b = room.two()
    a.do("ip", "link", "set", "eth1", "multicast", "off")
    a.do("ip", "addr", "add", "10.9.0.1/24", "dev", "eth1")
    b.do("ip", "addr", "add", "10.9.0.2/24", "dev", "eth7")
    first = a.up()
    b.up(words_of(first))
    first.await_text(r"eth1: discovery does not work on it: it has no multicast")
    assert any("no multicast" in note for note in listed(a)["notes"])
    first.end()
    # With a peer's address in the file, none has to be found.
    with open(os.path.join(a.home, ".config/weft/clusters/home.toml"), "w") as file:
        file.write('[[host]]\nname = "b"\naddress = "10.9.0.2"\n')
    ran = a.run("run", model, "--greedy", "-p", "ab", "-n", "4", "--raw", "-t", "1",
                "--cluster", "home", "--weights-from", "0", "--tp", "1", "--pp", "2")
    assert ran.returncode == 0, ran
    with open(os.path.join(a.home, ".config/weft/clusters/home.toml"), "a") as file:
        file.write('adress = "typo"\n')
    ran = a.run("run", model, "-p", "ab", "--cluster", "home")
    assert ran.returncode == 2 and "home.toml:4: 'adress'" in ran.stderr, ran
    b.do("sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/eth7/disable_ipv6")
    assert any("disable_ipv6=0" in note for note in listed(b)["notes"])


HEARD = 6
SUPPORT = str(pathlib.Path(__file__).resolve().parent.parent / "support")
# Records packets on an interface and replays them many times.
RECORDER = f"""
import socket, struct, sys
sys.path.insert(0, {SUPPORT!r})
from wait import Pace
pace = Pace(0.01)
name, kind = sys.argv[1:]
there = socket.if_nametoindex(name)
sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
sock.bind(("::", {PORT}))
sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP,
                socket.inet_pton(socket.AF_INET6, "{GROUP}") + struct.pack("I", there))
heard = []
sock.settimeout(0.2)
print("ready", flush=True)
while kind == "record":
    try:
        data, source = sock.recvfrom(4096)
        heard.append(data)
        print("heard", flush=True)
    except TimeoutError:
        pass
    if len(heard) >= {HEARD}:
        break
sys.stdin.readline()
for turn in range(400):
    if kind == "junk":
        heard = [b"", b"WFT1", bytes(1232), bytes(4000), b"WFT1" + bytes(turn * 3), b"x" * turn]
    for data in heard:
        try:
            sock.sendto(data, ("{GROUP}", {PORT}, 0, there))
        except OSError:
            pass
    pace.next()
print("done", flush=True)
"""


def recorder(host, interface, kind):
    return subprocess.Popen(host.words(sys.executable, "-c", RECORDER, interface, kind),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_what_is_played_back(room, _):
    a, b, spy = room.on_a_switch(["a", "b", "spy"])
    first = a.up()
    second = b.up(words_of(first))
    first.await_text(r"found: eth0 at eth0 of b")
    player = recorder(spy, "eth0", "record")
    for _ in range(HEARD):
        while "heard" not in player.stdout.readline():
            pass
    second.end(signal.SIGKILL)
    first.await_text(r"gone: eth0 at eth0 of b")
    first.text = ""
    player.stdin.write("go\n"), player.stdin.flush()
    while "done" not in player.stdout.readline():
        pass
    assert "found" not in first.text, first.text
    assert others(a) == []
    player.wait(10)
    player.stdin.close(), player.stdout.close()


def test_junk(room, _):
    a, b, spy = room.on_a_switch(["a", "b", "spy"])
    first = a.up()
    second = b.up(words_of(first))
    first.await_text(r"found: eth0 at eth0 of b")
    player = recorder(spy, "eth0", "junk")
    player.stdout.readline()
    player.stdin.write("go\n"), player.stdin.flush()
    while "done" not in player.stdout.readline():
        pass
    player.wait(10)
    player.stdin.close(), player.stdout.close()
    first.await_text(r"eth0: fe80:\S+ sends no beacons of this version")
    assert first.text.count("sends no beacons") == 1, first.text
    await_others(a, ["b"])
    assert first.process.poll() is None and second.process.poll() is None
    assert first.end() == 0 and second.end() == 0


def test_hosts_of_other_builds(room, model):
    a, b, c = room.ring()
    here = builds.build_of(a.weft)
    b.weft = builds.other_build(a.weft, os.path.join(room.folder.name, "b"), "protocol_hash")
    others_commit = ["commit"] if here["commit"] != "unknown" else []
    c.weft = builds.other_build(a.weft, os.path.join(room.folder.name, "c"), *others_commit)
    first = a.up()
    b.up(words_of(first)), c.up(words_of(first))
    first.await_text(r"found: b runs weft \S+ \(commit .* messages or ops differ")
    await_others(a, ["b", "c"])
    ran = a.run("hosts")
    rows = {line.split()[0]: line for line in ran.stdout.split("\n\n")[0].splitlines()}
    assert rows["host"].split() == ["host", "memory", "weft", "commit", "device"], ran
    assert here["commit"] in rows["a"] and "(this host)" in rows["a"], ran
    assert "(cannot work with this host: its protocol differs)" in rows["b"], ran
    assert re.search(r"b runs weft .* messages or ops differ, .*\. Install the same", ran.stderr)
    if others_commit:
        assert "(its commit differs from this host's)" in rows["c"], ran
        first.await_text(r"found: c runs weft \S+ of commit ")
    seen = {each["name"]: each for each in listed(a)["hosts"]}
    assert seen["a"]["protocol_hash"] == here["protocol_hash"], seen
    assert seen["b"]["protocol_hash"] == builds.build_of(b.weft)["protocol_hash"], seen
    assert seen["c"]["commit"] == builds.build_of(c.weft)["commit"], seen
    assert not seen["b"]["can_work_with_this_host"] and seen["c"]["can_work_with_this_host"], seen
    ran = a.run("run", model, "--greedy", "-p", "ab", "-n", "4", "--raw", "-t", "1",
                "--cluster", "home", "--weights-from", "0", "-v")
    assert ran.returncode == 0 and "(host b" not in ran.stderr, ran
    assert "b runs weft " in ran.stderr and "messages or ops differ" in ran.stderr, ran
    with open(os.path.join(a.home, ".config/weft/clusters/home.toml"), "w") as file:
        file.write('[[host]]\nname = "b"\n')
    ran = a.run("run", model, "-p", "ab", "--cluster", "home")
    assert ran.returncode == 1 and "not found" not in ran.stderr, ran
    assert "cluster 'home': b runs weft " in ran.stderr, ran


if __name__ == "__main__":
    main(globals(), NIGHTLY_ONLY)
