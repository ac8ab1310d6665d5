"""Hosts as network namespaces, each with a name and a home folder, and cables between them."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import limits  # noqa: E402


def why_skipped(*programs):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [name for name in ("ip", "unshare", "nsenter", *programs)
               if shutil.which(name) is None]
    if missing:
        return f"without {', '.join(missing)}"
    if os.geteuid() != 0:
        return "not root: no network namespaces"
    if subprocess.run(["unshare", "-n", "-u", "true"], capture_output=True).returncode != 0:
        return "no network namespaces here"
    if not os.path.exists("/proc/net/if_inet6"):
        return "a kernel without IPv6"
    return None


class Running:
    """A program that runs, and what it has printed so far."""

    def __init__(self, words, env, typed=""):
        self.text = ""
        self.process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)
        self.process.stdin.write(typed)
        self.process.stdin.close()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.text += line

    def await_text(self, pattern, seconds=30):
        end = time.monotonic() + limits.limit(seconds)
        while time.monotonic() < end:
            found = re.search(pattern, self.text)
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"no '{pattern}' in:\n{self.text}")

    def end(self, number=signal.SIGTERM, seconds=20):
        self.process.send_signal(number)
        status = self.process.wait(limits.limit(seconds))
        self.reader.join(5)
        return status


class Host:
    def __init__(self, weft, name, folder):
        self.weft, self.name = weft, name
        self.own_sysfs = False  # what weft sees in /sys is this host's, and not the machine's
        self.home = os.path.join(folder, f"home-{name}-{time.monotonic_ns()}")
        os.mkdir(self.home)
        self.running = []
        self.space = subprocess.Popen(["unshare", "-n", "-u", "sleep", "infinity"])
        for kind in ("net", "uts"):
            own = os.readlink(f"/proc/self/ns/{kind}")
            while os.readlink(f"/proc/{self.space.pid}/ns/{kind}") == own:
                time.sleep(0.005)  # until unshare(1) has entered it
        self.do("hostname", name)
        self.do("ip", "link", "set", "lo", "up")

    def words(self, *words):
        return ["nsenter", "-t", str(self.space.pid), "-n", "-u", *words]

    def env(self, **more):
        env = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
        env.update(HOME=self.home, **more)
        return env

    def do(self, *words):
        subprocess.run(self.words(*words), check=True, capture_output=True)

    def weft_words(self, *words):
        if not self.own_sysfs:
            return self.words(self.weft, *words)
        script = 'mount --make-rprivate / && mount -t sysfs sysfs /sys && exec "$@"'
        return self.words("unshare", "-m", "sh", "-c", script, "sh", self.weft, *words)

    def run(self, *words, **options):
        """weft, to its end."""
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
        self.space.kill()
        self.space.wait()


def cable(one, one_end, other, other_end):
    one.do("ip", "link", "add", one_end, "type", "veth", "peer", "name", other_end, "netns",
           str(other.space.pid))
    for host, end in ((one, one_end), (other, other_end)):
        host.do("ip", "link", "set", end, "up")


class Room:
    """What a test needs, and gone after it."""

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
        """a and b, with a cable between them that has no address."""
        a, b = self.host("a"), self.host("b")
        cable(a, "eth1", b, "eth7")
        return a, b

    def ring(self):
        a, b, c = self.host("a"), self.host("b"), self.host("c")
        cable(a, "eth1", b, "eth2")
        cable(b, "eth1", c, "eth2")
        cable(c, "eth1", a, "eth2")
        return a, b, c


def words_of(running):
    return running.await_text(r"(?m)^    ((?:[a-z]{5}-){5}[a-z]{5})$").group(1)


def main(tests, nightly_only=()):
    """Runs the functions test_NAME(room, model) of `tests`, each in a room of its own: those named
    on the command line behind WEFT and TINY_MODEL, else all. nightly_only: names of tests that the
    daily suite leaves out."""
    reason = why_skipped()
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
