#!/usr/bin/env python3
"""weft under a real Slurm: three nodes in network namespaces of this machine, whose daemons
(munged, slurmctld, slurmd) are this test's own and end with it. Needs root and Debian's slurmctld,
slurmd, slurm-client, munge; else skips (77). The slower tests run in `./test --fleet` and
--nightly.

    slurm_test.py PROGRAM ROOT PACKAGES [TEST...]
"""
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import hosts  # noqa: E402
from nightly import nightly  # noqa: E402
from limits import limit, timeout_ms  # noqa: E402

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
KillWait=100
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
"""
# Jobs of the second partition take the nodes of those in the first, which have a minute to leave.
PARTITIONS = """PartitionName=all Nodes=ALL Default=YES State=UP PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL State=UP PriorityTier=9 PreemptMode=OFF
"""


class Slurm(hosts.Hosts):
    """Three hosts with Slurm's daemons."""

    def __init__(self, folder):
        super().__init__(folder, NODES, "10.77.0")
        self.environment["SLURM_CONF"] = str(self.folder / "slurm.conf")

    def start(self):
        for name in ("munge", "ctld", *(f"spool-n{i}" for i in range(NODES))):
            (self.folder / name).mkdir(mode=0o755)
        text = CONFIG.format(self.folder)
        for i in range(NODES):
            # Unlike nodes: a job must not request the first one's number of cores on all of them.
            cores = 2 if i == 0 else 1
            text += f"NodeName=n{i} NodeAddr={self.address(i)} CPUs={cores} State=UNKNOWN\n"
        (self.folder / "slurm.conf").write_text(text + PARTITIONS)
        key = self.folder / "munge/key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munge = self.folder / "munge"
        self.daemon("munged", "-F", "--force", f"--key-file={key}", f"--socket={munge}/socket",
                    f"--pid-file={munge}/pid", f"--log-file={munge}/log",
                    f"--seed-file={munge}/seed")
        self.until(lambda: (munge / "socket").exists(), "munged")
        self.daemon(*self.inside(0, "slurmctld", "-D"))
        for i in range(NODES):
            self.daemon(*self.inside(i, "slurmd", "-D", "-N", f"n{i}"))
        self.idle()

    def idle(self):
        self.until(lambda: self.run("sinfo", "-h", "-p", "all", "-o", "%D %T").strip() ==
                   f"{NODES} idle", "the nodes")


class Job:
    def __init__(self, slurm, weft, name, *words, nodes=NODES, restarts=3, folder=None):
        self.slurm, self.weft, self.name = slurm, weft, name
        said = slurm.run(weft, "submit", "--to", "slurm", "-N", nodes, "--name", name, "--program",
                         weft, "--restarts", restarts, "--json",
                         *(["--folder", folder] if folder else []), "--", *words, status=0)
        self.id = json.loads(said)["id"]

    def state(self):
        return self.slurm.run(self.weft, "job", "status", self.name).strip()

    def log(self):
        return self.slurm.run(self.weft, "job", "logs", self.name)

    def says(self, pattern):
        self.slurm.until(lambda: re.search(pattern, self.log(), re.IGNORECASE),
                         f"{self.name}: {pattern}\n{self.log()[-1500:]}")

    def ends(self, state):
        going = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD",
                 "PREEMPTED")
        self.slurm.until(lambda: self.state() not in going,
                         f"{self.name}: {self.state()}\n{self.log()[-1500:]}")
        assert self.state() == state, f"{self.name}: {self.state()}, not {state}:\n{self.log()}"


def train(root, output, steps):
    data = pathlib.Path(output).parent / "data.jsonl"
    data.write_text("".join(json.dumps({"question": f"What is {a} + {b}?", "answer": str(a + b)})
                            + "\n" for a in range(5) for b in range(5)))
    return ("train", model(root), "--data", data, "--output-dir", output, "--seq-len", "64",
            "--steps", steps, "-t", "1", "--dp", NODES, "--resume", "auto", "--save-every",
            "1000000")


def model(root):
    return pathlib.Path(root) / "models/abacus/model.gguf"


def key_of(slurm):
    path = slurm.folder / "weft.key"
    if not path.exists():
        path.write_text("of all ranks of these tests\n")
        path.chmod(0o600)
    return path


def ranks_of(slurm, weft, *words):
    """Starts one rank on each node, without a batch script."""
    return slurm.run("srun", f"-N{NODES}", f"-n{NODES}", "--export=ALL", weft, *words,
                     "--key-file", key_of(slurm), status=0)


def test_a_job(slurm, weft, root):
    job = Job(slurm, weft, "short", *train(root, slurm.folder / "it's $a job", 3))
    job.ends("COMPLETED")
    assert (slurm.folder / "it's $a job").is_dir(), job.log()
    assert not list(slurm.folder.glob(".weft-*.key")), "the key is left"


def test_a_job_that_fails(slurm, weft, root):
    (slurm.folder / "runs").mkdir()
    job = Job(slurm, weft, "wrong", "run", "no model.gguf", "-p", "x", folder=slurm.folder / "runs")
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


# Rank 0's answer to a request sent on its node.
ASK = """
import json, sys, urllib.request
request = urllib.request.Request("http://127.0.0.1:18080/v1/chat/completions", json.dumps(
    {"messages": [{"role": "user", "content": "What is 47 + 38?"}], "temperature": 0}).encode(),
    {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=100))["choices"][0]["message"]["content"])
"""


def test_serve_answers_and_ends_at_once(slurm, weft, root):
    job = Job(slurm, weft, "answers", "serve", model(root), "--port", "18080", "-t", "1")
    job.says(r"serving .*3 ranks")
    alone = slurm.run(weft, "run", model(root), "--greedy", "-p", "What is 47 + 38?", "-n", "12",
                      "-t", "1", status=0)
    said = slurm.run(sys.executable, "-c", ASK, status=0).strip()
    assert said and said == alone.strip(), f"{said!r}, not {alone!r}"
    begin = time.monotonic()
    slurm.run("scancel", job.id, status=0)
    slurm.until(lambda: not any(slurm.weft_on(node) for node in range(NODES)), "the ranks' end")
    seconds = time.monotonic() - begin
    assert seconds < limit(5), f"{seconds:.1f} s from scancel to the end:\n{job.log()}"
    job.ends("CANCELLED")
    assert "was lost" not in job.log(), job.log()


def test_run_and_bench_in_a_step(slurm, weft, root):
    one = slurm.run(weft, "run", model(root), "--greedy", "-p", "What is 47 + 38?", "-n", "12",
                    "-t", "1", status=0)
    three = ranks_of(slurm, weft, "run", model(root), "--greedy", "-p", "What is 47 + 38?", "-n",
                     "12", "-t", "1")
    assert three == one, f"{three!r}, not {one!r}"
    rows = json.loads(ranks_of(slurm, weft, "bench", model(root), "-p", "32", "-n", "8", "-r", "1",
                               "-t", "1", "--json"))
    assert rows, rows


def test_a_heterogeneous_job(slurm, weft, root):
    words = ("run", model(root), "--greedy", "-p", "What is 47 + 38?", "-n", "12", "-t", "1")
    one = slurm.run(weft, *words, status=0)
    both = slurm.run("salloc", "-N1", ":", "-N2", "srun", "--het-group=0,1", weft, *words,
                     "--key-file", key_of(slurm), status=0)
    assert both == one, f"{both!r}, not {one!r}"


def test_a_killed_rank_is_named(slurm, weft, root):
    job = Job(slurm, weft, "killed", *train(root, slurm.folder / "killed", 1_000_000), restarts=0)
    job.says(r"\bstep\b")
    for pid in slurm.weft_on(2):
        os.kill(pid, signal.SIGKILL)
    job.ends("FAILED")
    assert re.search(r"rank 2 \(host n2.*was lost", job.log()), job.log()
    assert not any(slurm.weft_on(node) for node in range(NODES))


def test_a_killed_rank_is_started_again(slurm, weft, root):
    words = [*train(root, slurm.folder / "again", 1_000_000)]
    words[words.index("--save-every") + 1] = "5"
    job = Job(slurm, weft, "again", *words, restarts=1)
    slurm.until(lambda: list((slurm.folder / "again/checkpoints").glob("step-*")),
                f"a checkpoint\n{job.log()}")
    for pid in slurm.weft_on(1):
        os.kill(pid, signal.SIGKILL)
    job.says("back to the queue")
    slurm.until(lambda: job.state() == "PENDING", "the queue")
    # (Slurm lets a requeued job wait for two minutes.)
    slurm.run("scontrol", "update", f"JobId={job.id}", "StartTime=now", status=0)
    job.says(r"back to the queue(?s:.*)\bstep (?:[6-9]|\d\d+)/")
    for pid in slurm.weft_on(0):
        os.kill(pid, signal.SIGKILL)
    job.says("all 1 restarts are used")
    job.ends("FAILED")


def test_a_cut_link_is_named(slurm, weft, root):
    job = Job(slurm, weft, "cut", "serve", model(root), "--port", "18080", "-t", "1",
              "--timeout-ms", timeout_ms(2000), restarts=0)
    job.says(r"serving .*3 ranks")
    slurm.ip("-n", f"{slurm.mark}2", "link", "set", "eth0", "down")
    job.says(r"rank 2 \(host n2.*was lost.*silent for")
    slurm.until(lambda: not slurm.weft_on(0) and not slurm.weft_on(2), "the end on both sides")
    slurm.ip("-n", f"{slurm.mark}2", "link", "set", "eth0", "up")
    job.ends("FAILED")
    slurm.idle()


def test_preemption(slurm, weft, root):
    """The urgent job takes the nodes; the other job saves a checkpoint, and continues from it
    later."""
    job = Job(slurm, weft, "low", *train(root, slurm.folder / "low", 1_000_000))
    job.says(r"\bstep\b")
    slurm.run("srun", "--partition=urgent", f"-N{NODES}", "--exclusive", "sleep", "1", status=0)
    job.says("a checkpoint|saved")
    job.says("resum")
    slurm.run(weft, "job", "cancel", job.name, status=0)
    job.ends("CANCELLED")


DAILY = (test_a_job, test_a_job_that_fails, test_notice_and_requeue,
         test_serve_answers_and_ends_at_once, test_run_and_bench_in_a_step,
         test_a_killed_rank_is_named, test_a_killed_rank_is_started_again, test_preemption)
FLEET = (test_a_heterogeneous_job, test_a_cut_link_is_named)


def main():
    weft, root = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        print(f"skipped: a Slurm of this test's own wants root, and: {', '.join(missing) or '-'}")
        sys.exit(77)
    tests = DAILY + (FLEET if nightly() else ())
    if len(sys.argv) > 4:
        tests = [test for test in DAILY + FLEET if test.__name__ in sys.argv[4:]]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="weft-slurm-") as folder, Slurm(folder) as slurm:
        for test in tests:
            begin = time.monotonic()
            test(slurm, weft, root)
            print(f"{test.__name__}: ok, {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
