"""Hosts n0, n1, ... as network namespaces joined by a bridge, for the daemons of external engines.
Needs root and ip(8). All started programs end with the object."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from wait import until  # noqa: E402

PATIENCE = 400


class Hosts:
    def __init__(self, folder, count, network):
        """network: the first three numbers of the hosts' addresses: "10.77.0"."""
        self.folder, self.count, self.network = pathlib.Path(folder), count, network
        self.started, self.environment = [], {**os.environ, "HOME": str(folder)}
        self.mark = f"wfh{os.getpid()}"
        self.names = self.folder / "hosts"
        self.names.write_text("127.0.0.1 localhost\n" + "".join(
            f"{self.address(i)} n{i}\n" for i in range(count)))

    def __enter__(self):
        try:
            self.make_network()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.started):
            process.terminate()
        for process in reversed(self.started):
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
        for name in [f"{self.mark}{i}" for i in range(self.count)] + [f"{self.mark}hub"]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def start(self):
        """Starts the daemons; a subclass that has daemons overrides it."""

    def address(self, node):
        return f"{self.network}.{node + 1}"

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def make_network(self):
        hub = f"{self.mark}hub"
        self.ip("netns", "add", hub)
        self.ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        self.ip("-n", hub, "link", "set", "bridge", "up")
        for i in range(self.count):
            node = f"{self.mark}{i}"
            self.ip("netns", "add", node)
            self.ip("-n", node, "link", "set", "lo", "up")
            self.ip("-n", hub, "link", "add", f"v{i}", "type", "veth", "peer", "name", "eth0",
                    "netns", node)
            self.ip("-n", hub, "link", "set", f"v{i}", "master", "bridge", "up")
            self.ip("-n", node, "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
            self.ip("-n", node, "link", "set", "eth0", "up")

    def inside(self, node, *words):
        """The command line that runs `words` on a node."""
        script = f'hostname n{node}; mount --bind {self.names} /etc/hosts; exec "$@"'
        return ["nsenter", f"--net=/run/netns/{self.mark}{node}", "unshare", "-um", "sh", "-c",
                script, "sh", *map(str, words)]

    def daemon(self, *words):
        log = open(self.folder / "daemons.log", "ab")
        self.started.append(subprocess.Popen(words, env=self.environment, stdout=log, stderr=log,
                                             cwd=self.folder, stdin=subprocess.DEVNULL))

    def run(self, *words, status=None):
        """Runs a command on the first node."""
        done = subprocess.run(self.inside(0, *words), env=self.environment, cwd=self.folder,
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        if status is not None and done.returncode != status:
            raise AssertionError(f"{words}: {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def pids_on(self, node):
        words = subprocess.run(["ip", "netns", "pids", f"{self.mark}{node}"], capture_output=True,
                               text=True, check=True).stdout.split()
        return [int(word) for word in words]

    def weft_on(self, node):
        """The processes of weft on a node, except `weft submit` and `weft job`."""
        found = []
        for pid in self.pids_on(node):
            try:
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "weft":
                    found.append(pid)
            except OSError:
                pass
        return found

    def until(self, condition, what):
        log = self.folder / "daemons.log"
        until(condition, lambda: f"{what}; {log.read_text()[-2000:]}", PATIENCE)
