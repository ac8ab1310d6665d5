"""Hosts of which only neighbors are joined by cables, without a common network: a ring of four
and a chain of three. Rank 0 reaches the others through their neighbors.

    chain_test.py WEFT TINY_MODEL

Needs root, ip(8), unshare and nsenter; skips (status 77) if one is missing.
"""

import json
import re

from recable_test import asked, await_answer
from spaces import await_others, cable, limits, main, words_of
from unreached_test import ABACUS, train_words


def up_all(hosts):
    first = hosts[0].up()
    words = words_of(first)
    return [first] + [host.up(words) for host in hosts[1:]]


def run(host, model, *words):
    return host.run("run", model, "--greedy", "-p", "ab", "-n", "12", "--raw", "-t", "1",
                    "--ignore-eos", "--timeout-ms", limits.timeout_ms(4000), *words)


def losses(ran):
    assert ran.returncode == 0, ran
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def ring(room):
    """a, c, b and d, in this order: the order of the names is not that of the cables."""
    a, c, b, d = hosts = [room.host(name) for name in "acbd"]
    for i, host in enumerate(hosts):
        cable(host, "next", hosts[(i + 1) % 4], "last")
    ups = up_all(hosts)
    await_others(a, ["c", "d"])
    await_others(b, ["c", "d"])
    return a, c, b, d, ups


def test_a_ring_of_four(room, _):
    model = ABACUS  # has four layers
    a, c, b, d, ups = ring(room)
    alone = run(a, model)
    assert alone.returncode == 0, alone
    for words in (("--pp", "4", "-v"), ()):  # an open layout becomes a pipeline
        ran = run(a, model, "--cluster", "home", *words)
        assert ran.returncode == 0 and ran.stdout == alone.stdout, ran
        assert re.search(r"rank 2 is b, \[fe80:\S+\]:7000>b", ran.stderr), ran
    assert any("forwards " in up.text for up in ups), [up.text for up in ups]
    # The error of a layout that needs more links names a layout that works, and each host.
    ran = run(a, model, "--cluster", "home", "--tp", "4")
    assert ran.returncode == 3, ran
    assert re.search(r"rank \d \(host \w.* cannot reach rank \d \(host \w", ran.stderr), ran
    assert "--pp 4 works, because pipeline stages need links between" in ran.stderr, ran
    # Training as a pipeline gives the losses of one process.
    words = train_words(room, "--no-output", "--steps", "2", "--grad-accum", "4", "--json")
    alone = losses(a.run(*words))
    staged = losses(a.run(*words, "--cluster", "home", "--pp", "4"))
    assert len(alone) == 2 and len(staged) == 2, (alone, staged)
    assert all(abs(x - y) <= 1e-3 * x for x, y in zip(alone, staged)), (alone, staged)
    # Other layouts need more links, and the error names this one.
    ran = a.run(*words, "--cluster", "home", "--timeout-ms", limits.timeout_ms(2000))
    assert ran.returncode == 3 and "--pp 4 works" in ran.stderr, ran
    # The opposite host is known, and that only neighbors have cables is no fault.
    ran = a.run("hosts", "--json")
    assert ran.returncode == 0, ran
    listed = json.loads(ran.stdout)
    far = [host for host in listed["hosts"] if host["name"] == "b"]
    assert len(far) == 1 and far[0]["via"] in ("c", "d"), listed
    ran = a.run("doctor", "--cluster", "home", "--check", "across-measured", "--json")
    findings = json.loads(ran.stdout)["findings"]
    by_host = {finding["host"]: finding for finding in findings}
    assert "reached by way of" in by_host["b"]["read"], findings
    assert sorted(by_host) == ["a to c", "a to d", "b"], findings
    assert all(finding["severity"] != "fail" for finding in findings), findings
    del c, d


def test_a_host_that_is_missing(room, model):
    """The error names those that were found, also beyond the neighbors."""
    a, c, b, d, ups = ring(room)
    folder = f"{a.home}/.config/weft/clusters"
    with open(f"{folder}/home.toml", "w") as file:
        file.write("".join(f'[[host]]\nname = "{name}"\n' for name in "bcdx"))
    ran = run(a, model, "--cluster", "home", "--pp", "5")
    assert ran.returncode == 1 and "host x was not found" in ran.stderr, ran
    found = r"Found: c on next, d on last, b by way of [cd]"
    assert re.search(found, ran.stderr), ran
    del c, b, d, ups


def test_a_chain_of_three(room, model):
    """The last stage returns its answers to rank 0 through the host in the middle."""
    a, b, c = hosts = [room.host(name) for name in "abc"]
    for one, other in ((a, b), (b, c)):
        cable(one, f"to{other.name}", other, f"to{one.name}")
    middle = up_all(hosts)[1]
    await_others(b, ["a", "c"])
    alone = run(a, model)
    ran = run(a, model, "--cluster", "home", "--pp", "3", "-v")
    assert ran.returncode == 0 and ran.stdout == alone.stdout, ran
    # A cable that breaks in the middle ends the job, with the name of the host behind it.
    server = a.start("serve", model, "-t", "1", "--timeout-ms", limits.timeout_ms(2000),
                     "--cluster", "home", "--pp", "3", "-v", "--max-restarts", "0")
    server.await_text("serving ", 60)
    assert re.search(r"rank 0 \(a\) - rank 2 \(c\): tcp, encrypted", server.text), server.text
    await_answer(a)
    b.do("ip", "link", "del", "toc")
    assert asked(a) is None
    server.await_text(r"error: .*rank 2 \(host c", 60)
    assert server.process.wait(limits.limit(60)) == 3, server.text
    assert middle.end() == 0, middle.text



if __name__ == "__main__":
    main(globals())
