#!/usr/bin/env python3
"""weft submit --to slurm on a real Slurm: three nodes in network namespaces of this machine, whose
daemons (munged, slurmctld, slurmd) are this test's own and end with it. Wants root and Debian's
slurmctld, slurmd, slurm-client, munge; skips (77) without.

    slurm_test.py PROGRAM ROOT PACKAGES
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE = 400
NODES = 3
TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "squeue", "ip", "unshare")

CONFIG = """ClusterName=weft
SlurmctldHost=n0(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={0}/munge/socket
StateSaveLocation={0}/ctld
SlurmdSpoolDir={0}/spool-%n
SlurmctldPidFile={0}/ctld.pid
SlurmdPidFile={0}/slurmd-%n.pid
SlurmctldLogFile={0}/ctld.log
SlurmdLogFile={0}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=10
SlurmctldParameters=enable_configless
"""


class Slurm:
    """Namespaces n0, n1, ... with a bridge between, and Slurm's daemons in them."""

    def __init__(self, folder):
        self.folder, self.started = pathlib.Path(folder), []
        self.mark = f"wfs{os.getpid()}"
        self.hosts = self.folder / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n" + "".join(
            f"10.77.0.{i + 1} n{i}\n" for i in range(NODES)))
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"),
                            "HOME": str(self.folder)}

    def __enter__(self):
        try:
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
        for name in [f"{self.mark}{i}" for i in range(NODES)] + [f"{self.mark}hub"]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def network(self):
        hub = f"{self.mark}hub"
        self.ip("netns", "add", hub)
        self.ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        self.ip("-n", hub, "link", "set", "bridge", "up")
        for i in range(NODES):
            node = f"{self.mark}{i}"
            self.ip("netns", "add", node)
            self.ip("-n", node, "link", "set", "lo", "up")
            self.ip("-n", hub, "link", "add", f"v{i}", "type", "veth", "peer", "name", "eth0",
                    "netns", node)
            self.ip("-n", hub, "link", "set", f"v{i}", "master", "bridge", "up")
            self.ip("-n", node, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            self.ip("-n", node, "link", "set", "eth0", "up")

    def inside(self, node, *words):
        """The command line that runs `words` on a node."""
        script = f'hostname n{node}; mount --bind {self.hosts} /etc/hosts; exec "$@"'
        return ["nsenter", f"--net=/run/netns/{self.mark}{node}",
            "unshare", "-um", "sh", "-c", script, "sh", *map(str, words)]

    def daemon(self, *words):
        log = open(self.folder / "daemons.log", "ab")
        self.started.append(subprocess.Popen(words, env=self.environment, stdout=log, stderr=log,
                                             cwd=self.folder, stdin=subprocess.DEVNULL))

    def start(self):
        self.network()
        for name in ("munge", "ctld", *(f"spool-n{i}" for i in range(NODES))):
            (self.folder / name).mkdir(mode=0o755)
        text = CONFIG.format(self.folder)
        for i in range(NODES):
            text += f"NodeName=n{i} NodeAddr=10.77.0.{i + 1} CPUs=2 State=UNKNOWN\n"
        text += "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        (self.folder / "slurm.conf").write_text(text.replace(
            "SlurmctldParameters=enable_configless\n", ""))
        key = self.folder / "munge/key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munge = self.folder / "munge"
        self.daemon(
    "munged",
    "-F",
    "--force",
    f"--key-file={key}",
    f"--socket={munge}/socket",
    f"--pid-file={munge}/pid",
    f"--log-file={munge}/log",
     f"--seed-file={munge}/seed")
        self.until(lambda: (munge / "socket").exists(), "munged")
        self.daemon(*self.inside(0, "slurmctld", "-D"))
        for i in range(NODES):
            self.daemon(*self.inside(i, "slurmd", "-D", "-N", f"n{i}"))
        self.until(lambda: self.run("sinfo", "-h", "-o", "%D %T").strip() == f"{NODES} idle",
                   "the nodes")

    def run(self, *words, status=None):
        done = subprocess.run(self.inside(0, *words), env=self.environment, cwd=self.folder,
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        if status is not None and done.returncode != status:
            raise AssertionError(f"{words}: {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def until(self, condition, what):
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                log = (self.folder / "daemons.log").read_text()[-2000:]
                raise AssertionError(f"{what}: not within {PATIENCE} s\n{log}")
            time.sleep(0.2)


class Job:
    def __init__(self, slurm, weft, name, *words):
        self.slurm, self.weft, self.name = slurm, weft, name
        said = slurm.run(weft, "submit", "--to", "slurm", "-N", NODES, "--name", name, "--program",
                         weft, "--json", "--", *words, status=0)
        self.id = json.loads(said)["id"]

    def state(self):
        return self.slurm.run(self.weft, "job", "status", self.name).strip()

    def log(self):
        return self.slurm.run(self.weft, "job", "logs", self.name)

    def ends(self, state):
        def ended():
            return self.state() not in (
    "PENDING",
    "RUNNING",
    "COMPLETING",
    "CONFIGURING",
    "REQUEUED",
     "REQUEUE_HOLD")
        self.slurm.until(ended, f"{self.name}: {self.state()}\n{self.log()[-1500:]}")
        assert self.state() == state, f"{self.name}: {self.state()}, not {state}:\n{self.log()}"


def train(root, output, steps):
    data = pathlib.Path(output).parent / "data.jsonl"
    data.write_text("".join(json.dumps({"question": f"What is {a} + {b}?",
     "answer": str(a + b)}) + "\n" for a in range(5) for b in range(5)))
    return (
    "train",
    pathlib.Path(root) /
    "models/abacus/model.gguf",
    "--data",
    data,
    "--output-dir",
    output,
    "--seq-len",
    "64",
    "--steps",
    steps,
    "-t",
    "1",
    "--dp",
    NODES,
    "--resume",
    "auto",
    "--save-every",
     "1000000")


def test_a_job(slurm, weft, root):
    job = Job(slurm, weft, "short", *train(root, slurm.folder / "it's $a job", 3))
    job.ends("COMPLETED")
    assert (slurm.folder / "it's $a job").is_dir(), job.log()
    assert not list(slurm.folder.glob(".weft-*.key")), "the key is left"


def test_a_job_that_fails(slurm, weft, root):
    job = Job(slurm, weft, "wrong", "run", slurm.folder / "no model.gguf", "-p", "x")
    job.ends("FAILED")
    assert "no model.gguf" in job.log(), job.log()


def test_notice_and_requeue(slurm, weft, root):
    output = slurm.folder / "long"
    job = Job(slurm, weft, "long", *train(root, output, 1_000_000))
    slurm.until(lambda: re.search(r"\bstep\b", job.log()), "the first steps")
    slurm.run("scancel", "--signal=USR1", job.id, status=0)
    slurm.until(lambda: "back to the queue" in job.log(), f"requeue\n{job.log()[-1500:]}")
    slurm.until(lambda: re.search(r"resum", job.log(), re.IGNORECASE), "the second run")
    slurm.run(weft, "job", "cancel", job.name, status=0)
    job.ends("CANCELLED")


def main():
    weft, root = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        print(f"skipped: a Slurm of this test's own wants root, and: {', '.join(missing) or '-'}")
        sys.exit(77)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="weft-slurm-") as folder, Slurm(folder) as slurm:
        for test in (test_a_job, test_a_job_that_fails, test_notice_and_requeue):
            begin = time.monotonic()
            test(slurm, weft, root)
            print(f"{test.__name__}: ok, {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
