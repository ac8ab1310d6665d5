"""An elastic server of a cluster: hosts that leave come back, and new hosts join.

    elastic_test.py WEFT TINY_MODEL

Needs root, ip(8), unshare and nsenter; skips (status 77) if one is missing.
"""

import signal

from recable_test import await_answer
from spaces import await_others, cable, limits, main, words_of


def serve(host, model, *words):
    server = host.start("serve", model, "-t", "1", "--elastic", "--timeout-ms",
                        limits.timeout_ms(2000), *words)
    server.await_text("serving ", 60)
    return server


class Cluster:
    """Hosts a, b and c on one switch; a and b serve the cluster, and a serves a model over both."""

    def __init__(self, room, model, *words):
        self.a, self.b, self.c = room.on_a_switch("abc")
        self.first = self.a.up()
        self.words = words_of(self.first)
        self.second = self.b.up(self.words)
        await_others(self.a, ["b"])
        self.server = serve(self.a, model, "--cluster", "home", "--tp", "2", *words)
        self.text = await_answer(self.a)


def test_hosts_that_leave_return_and_new_ones_join(room, model):
    cluster = Cluster(room, model, "--new-hosts")
    a, b, server, text = cluster.a, cluster.b, cluster.server, cluster.text
    # The host's worker ends, and starts again.
    cluster.second.end(signal.SIGKILL)
    server.await_text(r"epoch \d+ with 1 rank after", 60)
    assert await_answer(a) == text, server.text
    b.up()
    server.await_text(r"b answers at \S+ and may join", 60)
    server.await_text(r"epoch \d+ with 2 ranks after", 60)
    assert await_answer(a) == text, server.text
    # A host with which the job did not begin.
    cluster.c.up(cluster.words)
    server.await_text(r"c answers at \S+ and may join", 60)
    server.await_text(r"c \(\S+\) joins; epoch \d+ with 3 ranks after", 60)
    assert await_answer(a) == text, server.text
    assert server.end() == 0, server.text


def test_without_the_flag_nobody_new_joins(room, model):
    cluster = Cluster(room, model)
    a, b, server = cluster.a, cluster.b, cluster.server
    other = cluster.c.up(cluster.words)
    cluster.first.await_text("found: .* of c")
    await_others(a, ["b", "c"])
    cluster.second.end()
    server.await_text(r"epoch \d+ with 1 rank after", 60)  # rank 0 dials the absent hosts now
    b.up()
    server.await_text(r"epoch \d+ with 2 ranks after", 60)
    assert "c answers" not in server.text, server.text
    assert server.end() == 0 and other.end() == 0, server.text
    ran = a.run("serve", model, "--cluster", "home", "--new-hosts")
    assert ran.returncode == 2 and "--new-hosts needs --cluster NAME and --elastic" in ran.stderr


def test_a_data_net_that_goes_down(room, model):
    """Control messages have their own network. The host leaves, and returns with its interface."""
    a, b = room.host("a"), room.host("b")
    for net, name in ((71, "eth0"), (72, "eth1")):
        cable(a, name, b, name)
        for host, last in ((a, 1), (b, 2)):
            host.do("ip", "addr", "add", f"10.{net}.0.{last}/24", "dev", name)
    key = room.key()
    b.start("worker", "--listen", "0.0.0.0:7000", "--key-file", key).await_text("listening")
    server = serve(a, model, "--hosts", "10.71.0.2", "--key-file", key, "--data-net", "eth1",
                   "--tp", "2")
    text = await_answer(a)
    b.do("ip", "link", "set", "eth1", "down")
    assert await_answer(a, 120) == text, server.text
    server.await_text(r"epoch \d+ with 1 rank after", 60)
    b.do("ip", "link", "set", "eth1", "up")
    server.await_text(r"epoch \d+ with 2 ranks after", 120)
    assert await_answer(a) == text, server.text
    assert server.end() == 0, server.text


if __name__ == "__main__":
    main(globals())
