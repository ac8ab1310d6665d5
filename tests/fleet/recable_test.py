"""Cables that break and come while a job runs: the lost rank is called over another cable.

    recable_test.py WEFT TINY_MODEL

Needs root, ip(8), unshare and nsenter; skips (status 77) if one is missing.
"""

import json
import subprocess
import sys
from concurrent import futures

from spaces import await_others, cable, limits, main, words_of
from wait import outlast, until

# Each of these takes 10 to 35 s.
NIGHTLY_ONLY = ("test_a_network_for_data_that_comes_back",)

ASK = ("import json, sys, urllib.request as u; "
       "r = u.Request('http://127.0.0.1:8080/v1/completions', json.dumps({'prompt': 'ab', "
       "'max_tokens': 40, 'temperature': 0, 'ignore_eos': True}).encode(), "
       "{'Content-Type': 'application/json'}); "
       "print(json.load(u.urlopen(r, timeout=120))['choices'][0]['text'])")


def asked(host):
    """An answer of the server on that host; None while its ranks recover."""
    ran = subprocess.run(host.words(sys.executable, "-c", ASK), capture_output=True, text=True,
                         timeout=limits.limit(200))
    return ran.stdout if ran.returncode == 0 else None


def await_answer(host, seconds=60):
    return until(lambda: asked(host), "an answer", limits.limit(seconds))


def tentative(host):
    """The addresses of a host whose uniqueness the kernel still checks."""
    return subprocess.run(host.words("ip", "-6", "addr", "show", "tentative"), check=True,
                          capture_output=True, text=True).stdout


def test_a_cable_that_breaks(room, model):
    a, b = room.two()
    first = a.up()
    second = b.up(words_of(first))
    first.await_text(r"found: eth1 at eth7 of b")
    first.end()
    server = a.start("serve", model, "--cluster", "home", "--weights-from", "0", "-t", "1", "-v",
                     "--tp", "1", "--pp", "2", "--timeout-ms", limits.timeout_ms(2000))
    server.await_text(r"rank 0 \(a\) - rank 1 \(b\): tcp, encrypted, "
                      r"\S+ \(eth1\) - \S+ \(eth7\)", 60)
    text = await_answer(a)
    # Another cable without addresses comes, and the first one goes.
    cable(a, "usb0", b, "usb9")
    second.await_text(r"serves cluster")
    for host in (a, b):
        until(lambda: not tentative(host), "addresses that the kernel has checked")
    await_others(a, ["b"])
    server.text = ""
    a.do("ip", "link", "del", "eth1")
    server.await_text(r"is now reached at \[fe80:\S+%usb0\]:7000, "
                      r"no longer at \[fe80:\S+%eth1\]", 60)
    server.await_text(r"rank 0 \(a\) - rank 1 \(b\): tcp, encrypted, "
                      r"\S+ \(usb0\) - \S+ \(usb9\)", 60)
    assert await_answer(a) == text
    assert server.end() == 0, server.text


def test_a_network_for_data_that_comes_back(room, model):
    """Control has a separate network. A step's message is lost, so ranks wait in different ops."""
    a, b, hub = room.host("a"), room.host("b"), room.host("hub")
    cable(a, "eth0", b, "eth0")
    hub.do("ip", "link", "add", "br0", "type", "bridge")
    hub.do("ip", "link", "set", "br0", "up")
    for host, last in ((a, 1), (b, 2)):
        cable(host, "eth1", hub, f"to{host.name}")
        hub.do("ip", "link", "set", f"to{host.name}", "master", "br0")
        host.do("ip", "addr", "add", f"10.71.0.{last}/24", "dev", "eth0")
        host.do("ip", "addr", "add", f"10.72.0.{last}/24", "dev", "eth1")
    key = room.key()
    b.start("worker", "--listen", "0.0.0.0:7000", "--key-file", key).await_text("listening")
    timeout_s = 4
    server = a.start("serve", model, "--hosts", "10.71.0.2", "--key-file", key, "-t", "1",
                     "--tp", "2", "--data-net", "10.72.0.0/24",
                     "--timeout-ms", str(int(1000 * timeout_s)))
    server.await_text("serving ", 60)
    text = await_answer(a)
    # Frames are lost behind the cable; then there is no cable. Both last longer than a series of
    # recovery attempts would take.
    for away, back in ((("nomaster",), ("master", "br0")), (("down",), ("up",))):
        server.text = ""
        hub.do("ip", "link", "set", "toa", *away)
        with futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(asked, a)
            outlast(4 * timeout_s)
            hub.do("ip", "link", "set", "toa", *back)
            assert answer.result() == text, server.text
        server.await_text(r"warning: rank . .* waits for rank .*; epoch \d+ with 2 ranks after")
    assert server.end() == 0, server.text


def test_the_doctor_of_a_cluster(room, _):
    a, b = room.two()
    first = a.up()
    b.up(words_of(first))
    first.await_text(r"found: eth1 at eth7 of b")
    ran = a.run("doctor", "--cluster", "home", "--check", "across-measured", "--json")
    assert ran.returncode in (0, 1), ran
    findings = json.loads(ran.stdout)["findings"]
    assert {each["host"] for each in findings} == {"a to b"}, ran
    assert "the links to b are measured" in ran.stderr, ran
    for running in b.running:
        running.end()
    ran = a.run("doctor", "--cluster", "home", "--check", "across-measured", "--json")
    assert ran.returncode == 1, ran
    read = [each["read"] for each in json.loads(ran.stdout)["findings"]]
    assert any("no other host was found" in text for text in read), ran
    ran = a.run("doctor", "--cluster", "home", "--hosts", "b")
    assert ran.returncode == 2 and "it excludes --hosts" in ran.stderr, ran
    assert a.run("doctor", "--cluster", "nope").returncode == 1


if __name__ == "__main__":
    main(globals(), NIGHTLY_ONLY)
