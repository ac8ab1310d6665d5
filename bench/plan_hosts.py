"""Places where bench/plan.py runs: ranks of this machine, or of two hosts, which are network
namespaces with a core each and a wire between them, as in bench/two_hosts.sh."""
import os
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATIENCE_S = 20


def run(words, **more):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)


def must(words):
    done = run(words)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def why_no_hosts():
    """Why two hosts can't be created here; None: they can."""
    if os.geteuid() != 0:
        return "not root: no network namespaces"
    if (os.cpu_count() or 1) < 2:
        return "one core: two hosts would share it"
    return None


class Local:
    """Ranks of this machine."""
    hosts = 1

    def __init__(self, ranks, transport):
        self.ranks, self.transport = ranks, transport

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def where(self):
        words = ["--local", str(self.ranks)] if self.ranks > 1 else []
        return words + ["--transport", self.transport, "-t", "1"]

    def command(self, words):
        return [str(w) for w in words]

    def machines(self, file):
        return str(file)


class TwoHosts:
    """`ranks` ranks, half on each host; every packet is delayed by delay_us, both ways."""
    hosts = 2

    def __init__(self, weft, folder, ranks, delay_us):
        self.weft, self.folder = str(weft), pathlib.Path(folder)
        self.ranks, self.delay_us = ranks, delay_us
        self.names = [f"weft_plan_{side}_{os.getpid()}" for side in "ab"]
        self.processes, self.addresses = [], []

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for name in self.names:
            run(["ip", "netns", "del", name])

    def on(self, side, words):
        return ["taskset", "-c", str(side), "ip", "netns", "exec", self.names[side],
                *map(str, words)]

    def make(self):
        for name in self.names:
            must(["ip", "netns", "add", name])
        self.make_wire()
        for side, name in enumerate(self.names):
            must(["ip", "-n", name, "addr", "add", f"10.77.0.{side + 1}/24", "dev", "wire"])
            must(["ip", "-n", name, "link", "set", "lo", "up"])
            must(["ip", "-n", name, "link", "set", "wire", "mtu", "9000", "up"])
        self.key = self.folder / "key"
        self.key.write_text(os.urandom(32).hex())
        self.key.chmod(0o600)
        for rank in range(1, self.ranks):
            self.start_worker(rank, 0 if rank < self.ranks // 2 else 1)

    def make_wire(self):
        """Delays with the kernel's netem; without netem, bench/slow_wire adds the delay."""
        a, b = self.names
        netem = run(["ip", "netns", "exec", a, "tc", "qdisc", "add", "dev", "lo", "root",
                     "netem", "delay", "1us"]).returncode == 0
        if netem:
            must(["ip", "netns", "exec", a, "tc", "qdisc", "del", "dev", "lo", "root"])
        if self.delay_us == 0 or netem:
            must(["ip", "link", "add", "wire", "netns", a, "type", "veth", "peer", "name", "wire",
                  "netns", b])
            for name in self.names if self.delay_us else []:
                must(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "wire", "root",
                      "netem", "delay", f"{self.delay_us}us"])
            return
        slow = pathlib.Path(self.weft).parent / "bench/slow_wire"
        if not slow.exists():
            raise RuntimeError(f"this kernel has no netem, and there is no {slow}: build it")
        wire = subprocess.Popen([str(slow), a, b, str(self.delay_us), "0"],
                                stdout=subprocess.PIPE, text=True)
        self.processes.append(wire)
        if wire.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{slow}: no wire")
        wire.send_signal(10)  # SIGUSR1: it begins without a delay

    def start_worker(self, rank, side):
        address = f"10.77.0.{side + 1}:{7000 + rank}"
        path = self.folder / f"worker{rank}"
        with open(path, "w") as log:
            self.processes.append(subprocess.Popen(
                self.on(side, [self.weft, "worker", "--listen", address, "--key-file", self.key]),
                stdout=log, stderr=log))
        self.addresses.append(address)
        until = time.monotonic() + PATIENCE_S
        while "listening" not in path.read_text():
            if time.monotonic() > until:
                raise RuntimeError(f"worker {address}: {path.read_text()}")
            time.sleep(0.05)

    def where(self):
        return ["--hosts", ",".join(self.addresses), "--key-file", str(self.key), "-t", "1"]

    def command(self, words):
        return self.on(0, words)

    def machines(self, file):
        return f"2x{file}"
