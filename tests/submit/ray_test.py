#!/usr/bin/env python3
"""weft submit --to ray on a real Ray: a head and a second node in network namespaces of this
machine, with their dashboard. Needs root, ip(8) and the package ray[default] (`ray` on PATH, or in
$WEFT_RAY/bin); else skips (77).

    ray_test.py PROGRAM ROOT PACKAGES [TEST...]
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

NODES = 2
WAIT = pathlib.Path(__file__).resolve().parent.parent / "support/wait.sh"
URL = "http://127.0.0.1:8265"


class Ray(hosts.Hosts):
    def __init__(self, folder, ray):
        super().__init__(folder, NODES, "10.78.0")
        self.ray = ray
        self.environment.update(RAY_USAGE_STATS_ENABLED="0", TMPDIR=str(folder),
                                PATH=f"{pathlib.Path(ray).parent}:{os.environ['PATH']}")

    def start(self):
        common = ("--block", "--disable-usage-stats", "--num-cpus", "1", "--object-store-memory",
                  "100000000")
        self.daemon(*self.inside(0, self.ray, "start", "--head", *common, "--node-ip-address",
                                 self.address(0), "--port", "6379", "--dashboard-host", "0.0.0.0",
                                 "--temp-dir", self.folder / "r"))
        self.until(lambda: "ray_version" in self.get("/api/version"), "the head")
        self.start_second = lambda: self.daemon(
            *self.inside(1, self.ray, "start", *common, "--node-ip-address", self.address(1),
                         "--address", f"{self.address(0)}:6379"))
        self.start_second()
        self.await_second()

    def await_second(self):
        self.until(lambda: self.get("/nodes?view=summary").count('"ALIVE"') >= NODES,
                   "the second node")

    def get(self, path):
        ask = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read())"
        return self.run(sys.executable, "-c", ask, URL + path)


def train(root, folder, steps, save_every=1_000_000):
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps({"question": f"What is {a} + {b}?", "answer": str(a + b)})
                            + "\n" for a in range(5) for b in range(5)))
    return ("train", pathlib.Path(root) / "models/abacus/model.gguf", "--data", data,
            "--output-dir", folder / "out", "--seq-len", "64", "--steps", steps, "-t", "1", "--dp",
            NODES, "--resume", "auto", "--save-every", save_every)


def submit(ray, weft, name, *words, program=None):
    ray.run(weft, "submit", f"--to=ray:{URL}", "-N", NODES, "--name", name, "--cpus", "1",
            "--program", program or weft, "--", *words, status=0)


def ends(ray, weft, name, state, log):
    """Returns the client's output on both streams."""
    asked = ["sh", "-c", '"$0" "$@" 2>&1', weft, "job", "status", name]
    ray.until(lambda: re.search("SUCCEEDED|FAILED|STOPPED|succeeded|failed|stopped",
                                ray.run(*asked)), f"{name}: {log}")
    said = ray.run(*asked)
    assert state.lower() in said.lower(), f"{name}: {said}\n{log}"


def test_a_job_with_its_log(ray, weft, root):
    submit(ray, weft, "short", *train(root, ray.folder, 3))
    log = ray.run(weft, "job", "logs", "-f", "short", status=0)  # until the job ends
    assert re.search(r"\bstep\b", log), log
    ends(ray, weft, "short", "SUCCEEDED", log)
    assert (ray.folder / "out").is_dir(), log


def test_a_job_that_fails(ray, weft, root):
    submit(ray, weft, "wrong", "run", ray.folder / "no model.gguf", "-p", "x")
    log = ray.run(weft, "job", "logs", "-f", "wrong")
    assert "no model.gguf" in log, log
    ends(ray, weft, "wrong", "FAILED", log)


def test_stop_saves_a_checkpoint(ray, weft, root):
    submit(ray, weft, "long", *train(root, ray.folder, 1_000_000))
    ray.until(lambda: re.search(r"\bstep\b", ray.run(weft, "job", "logs", "long")), "steps")
    ray.run(weft, "job", "cancel", "long", status=0)
    ray.until(lambda: not ray.weft_on(0) and not ray.weft_on(1), "the ranks' end")
    log = ray.run(weft, "job", "logs", "long")
    assert re.search(r"checkpoint|saved", log), log


def test_a_killed_rank_is_started_again(ray, weft, root):
    submit(ray, weft, "again", *train(root, ray.folder, 1_000_000))
    ray.until(lambda: re.search(r"\bstep\b", ray.run(weft, "job", "logs", "again")), "steps")
    for pid in ray.weft_on(1):
        os.kill(pid, signal.SIGKILL)
    ray.until(lambda: re.search(r"(?s)restart 1 of 3.*\bstep\b",
                                ray.run(weft, "job", "logs", "again")), "steps of the restart")
    ray.run(weft, "job", "cancel", "again", status=0)
    ray.until(lambda: not ray.weft_on(0) and not ray.weft_on(1), "the ranks' end")


def test_a_lost_node_is_waited_for(ray, weft, root):
    """Training continues from its checkpoint."""
    submit(ray, weft, "node", *train(root, ray.folder, 1_000_000, save_every=20))
    ray.until(lambda: list((ray.folder / "out").glob("checkpoints/*/manifest.json")), "checkpoint")
    for pid in ray.pids_on(1):
        os.kill(pid, signal.SIGKILL)
    ray.until(lambda: "restart 1 of 3" in ray.run(weft, "job", "logs", "node"), "the restart")
    ray.start_second()
    ray.until(lambda: re.search(r"(?s)restart 1 of 3.*\bstep\b",
                                ray.run(weft, "job", "logs", "node")), "steps of the restart")
    log = ray.run(weft, "job", "logs", "node")
    first = re.search(r"(?s)restart 1 of 3.*?\bstep (\d+)", log)
    assert int(first.group(1)) > 20, log
    ray.run(weft, "job", "cancel", "node", status=0)
    ray.until(lambda: not ray.weft_on(0) and not ray.weft_on(1), "the ranks' end")


SLOW = f"""#!/bin/sh
. {WAIT}
echo begun
stay_until_term 'sleep 8; echo ended in order; exit 75'
"""


def test_a_stop_waits_for_the_ranks(ray, weft, _root):
    """By default, Ray ends a job's driver after three seconds."""
    slow = ray.folder / "slow"
    slow.write_text(SLOW)
    slow.chmod(0o755)
    submit(ray, weft, "slow", "train", "m", "--data", "d", "--output-dir", "o", program=slow)
    ray.until(lambda: "begun" in ray.run(weft, "job", "logs", "slow"), "the ranks")
    ray.run(weft, "job", "cancel", "slow", status=0)
    ray.until(lambda: ray.run(weft, "job", "logs", "slow").count("ended in order") == NODES,
              "the ranks' last words")


def main():
    weft, root = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
    there = os.environ.get("WEFT_RAY")
    ray = shutil.which("ray", path=f"{there}/bin" if there else None)
    if os.geteuid() != 0 or ray is None or shutil.which("ip") is None:
        print("skipped: a Ray of this test's own wants root, ip(8) and 'pip install ray[default]' "
              "(WEFT_RAY names its environment)")
        sys.exit(77)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="wr", ignore_cleanup_errors=True) as folder, \
            Ray(folder, ray) as cluster:
        tests = [test_a_job_with_its_log, test_a_job_that_fails, test_stop_saves_a_checkpoint,
                 test_a_killed_rank_is_started_again, test_a_lost_node_is_waited_for,
                 test_a_stop_waits_for_the_ranks]
        for test in tests:
            if len(sys.argv) > 4 and test.__name__ not in sys.argv[4:]:
                continue
            begin = time.monotonic()
            test(cluster, weft, root)
            print(f"{test.__name__}: ok, {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
