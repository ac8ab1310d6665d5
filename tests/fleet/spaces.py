"""Hosts as network namespaces, each with a name and a home folder, and cables between them."""

import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import limits  # noqa: E402
import namespaces  # noqa: E402
from namespaces import Namespace, Running, cable  # noqa: E402
from wait import until  # noqa: E402


class Host(Namespace):
    def __init__(self, weft, name, folder):
        super().__init__(name)
        self.weft = weft
        self.own_sysfs = False  # weft sees this host's /sys, not the machine's
        self.home = os.path.join(folder, f"home-{name}-{time.monotonic_ns()}")
        os.mkdir(self.home)
        self.running = []

    def env(self, **more):
        env = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
        env.update(HOME=self.home, **more)
        return env

    def weft_words(self, *words):
        if not self.own_sysfs:
            return self.words(self.weft, *words)
        script = 'mount --make-rprivate / && mount -t sysfs sysfs /sys && exec "$@"'
        return self.words("unshare", "-m", "sh", "-c", script, "sh", self.weft, *words)

    def run(self, *words, **options):
        """Runs weft to its end."""
        return subprocess.run(self.weft_words(*words), env=self.env(), capture_output=True,
                              text=True, timeout=limits.limit(120), **options)

    def start(self, *words, typed=""):
        running = Running(self.weft_words(*words), self.env(), typed)
        self.running.append(running)
        return running

    def up(self, *words, typed=""):
        running = self.start("up", *words, typed=typed)
        running.await_text(r"serves cluster '")
        return running

    def close(self):
        for running in self.running:
            if running.process.poll() is None:
                running.process.kill()
                running.process.wait()
        super().close()


class Room:
    """Resources of a test, removed after it."""

    def __init__(self, weft):
        self.weft, self.hosts = weft, []
        self.folder = tempfile.TemporaryDirectory()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            host.close()
        self.folder.cleanup()

    def host(self, name):
        host = Host(self.weft, name, self.folder.name)
        self.hosts.append(host)
        return host

    def two(self):
        """a and b, joined by a cable without addresses."""
        a, b = self.host("a"), self.host("b")
        cable(a, "eth1", b, "eth7")
        return a, b

    def on_a_switch(self, names):
        """Hosts on one switch, each with its eth0, without addresses."""
        switch = self.host("switch")
        switch.do("ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        switch.do("ip", "link", "set", "br0", "up")
        hosts = [self.host(name) for name in names]
        for number, host in enumerate(hosts):
            cable(switch, f"p{number}", host, "eth0")
            switch.do("ip", "link", "set", f"p{number}", "master", "br0")
        return hosts

    def key(self):
        """The path of a key file."""
        path = os.path.join(self.folder.name, "key")
        with open(path, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write("a-shared-key-of-the-tests")
        return path

    def ring(self):
        a, b, c = self.host("a"), self.host("b"), self.host("c")
        cable(a, "eth1", b, "eth2")
        cable(b, "eth1", c, "eth2")
        cable(c, "eth1", a, "eth2")
        return a, b, c


def others(host):
    """Names of the hosts in a host's `weft hosts` that are on its cables."""
    ran = host.run("hosts", "--json")
    assert ran.returncode == 0, ran
    return sorted(each["name"] for each in json.loads(ran.stdout)["hosts"]
                  if not each["this_host"] and "via" not in each)


def await_others(host, names, seconds=30):
    until(lambda: others(host) == names, lambda: f"{names}, not {others(host)}",
          limits.limit(seconds))


def words_of(running):
    return running.await_text(r"(?m)^    ((?:[a-z]{5}-){5}[a-z]{5})$").group(1)


def main(tests, nightly_only=()):
    """Runs the functions test_NAME(room, model) of `tests`, each in its own room: those named on
    the command line after WEFT and TINY_MODEL, else all. nightly_only: tests that the daily
    suite skips."""
    reason = namespaces.why_skipped()
    if reason is None and not os.path.exists("/proc/net/if_inet6"):
        reason = "a kernel without IPv6"
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(77)
    weft, tiny_model = (os.path.abspath(word) for word in sys.argv[1:3])
    asked = sys.argv[3:]
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        subprocess.run([tiny_model, model], check=True, capture_output=True)
        for name, test in list(tests.items()):
            if not name.startswith("test_") or (asked and name not in asked):
                continue
            if name in nightly_only and not limits.NIGHTLY:
                continue
            begin = time.monotonic()
            with Room(weft) as room:
                test(room, model)
            print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
