#!/usr/bin/env python3
"""The commands of the pods in deploy/kubernetes, as processes: the leader serves, workers dial in,
and a worker that is added later joins. A network namespace is the pods' network. Needs root, ip(8)
and PyYAML; else skips (77).

    deploy_test.py PROGRAM ROOT PACKAGES
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

PATIENCE = 240


class Pods:
    """Runs the containers of a manifest, with a folder in place of their mounts."""

    def __init__(self, folder, weft, root):
        self.folder, self.started = pathlib.Path(folder), []
        self.space = f"wfd{os.getpid()}"
        (self.folder / "bin").mkdir()
        (self.folder / "bin/weft").symlink_to(weft)
        shutil.copy(root / "models/abacus/model.gguf", self.folder / "model.gguf")
        (self.folder / "key").write_text("a key of the pods of this test\n")
        (self.folder / "key").chmod(0o600)
        keys = subprocess.run([weft, "key", "new", "tester"], capture_output=True, text=True,
                              check=True).stdout
        (self.folder / "keys").write_text(keys)
        (self.folder / "keys").chmod(0o600)

    def __enter__(self):
        subprocess.run(["ip", "netns", "add", self.space], check=True)
        subprocess.run(["ip", "-n", self.space, "link", "set", "lo", "up"], check=True)
        return self

    def __exit__(self, *_):
        for pod in self.started:
            pod.process.kill()
            pod.process.wait()
        subprocess.run(["ip", "netns", "del", self.space], check=False)

    def run(self, name, container, more):
        environment = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "HOSTNAME": name,
                       "HOME": str(self.folder), **more}
        for each in container.get("env", []):
            environment[each["name"]] = each["value"].replace("weft-0.weft-ranks", "127.0.0.1")
        words = []
        for word in [*container["command"], *container.get("args", [])]:
            for variable, value in environment.items():  # as the kubelet does it
                word = word.replace(f"$({variable})", value)
            word = word.replace("/models/", f"{self.folder}/").replace("/etc/weft/",
                                                                       f"{self.folder}/")
            words.append(word)
        pod = Pod(self, name, words, environment)
        self.started.append(pod)
        return pod


class Pod:
    def __init__(self, pods, name, words, environment):
        self.log = pods.folder / f"{name}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(["ip", "netns", "exec", pods.space, *words],
                                            env=environment, stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, cwd="/")

    def says(self, text):
        end = time.monotonic() + PATIENCE
        while text not in self.log.read_text():
            assert self.process.poll() is None, f"it ended:\n{self.log.read_text()}"
            assert time.monotonic() < end, f"{text}: not within {PATIENCE} s:\n" \
                                           f"{self.log.read_text()}"
            time.sleep(0.1)

    def end(self):
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, self.log.read_text()


def containers(yaml, path, kind):
    (document,) = [each for each in yaml.safe_load_all(path.read_text()) if each["kind"] == kind]
    spec = document["spec"]
    if kind == "StatefulSet":
        templates = [spec["template"]]
    else:
        group = spec["leaderWorkerTemplate"]
        templates = [group["leaderTemplate"], group["workerTemplate"]]
    return spec, [template["spec"]["containers"][0] for template in templates]


def test_a_stateful_set_grows(pods, yaml, root):
    spec, (container,) = containers(yaml, root / "deploy/kubernetes/statefulset.yaml",
                                    "StatefulSet")
    running = [pods.run(f"weft-{i}", container, {}) for i in range(spec["replicas"])]
    running[0].says(f"({spec['replicas']} ranks, ")
    running.append(pods.run(f"weft-{spec['replicas']}", container, {}))  # kubectl scale
    running[0].says(f" joins; epoch 2 with {spec['replicas'] + 1} ranks after ")
    for pod in running:
        pod.end()


def test_a_leader_worker_set(pods, yaml, root):
    _, (leader, worker) = containers(yaml, root / "deploy/kubernetes/leaderworkerset.yaml",
                                     "LeaderWorkerSet")
    group = {"LWS_GROUP_SIZE": "3", "LWS_LEADER_ADDRESS": "127.0.0.1"}
    # In any order.
    running = [pods.run("group-0-2", worker, {**group, "LWS_WORKER_INDEX": "2"}),
               pods.run("group-0", leader, {**group, "LWS_WORKER_INDEX": "0"}),
               pods.run("group-0-1", worker, {**group, "LWS_WORKER_INDEX": "1"})]
    running[1].says("(3 ranks, ")
    for pod in running:
        pod.end()


def main():
    weft, root, packages = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
    sys.path.insert(0, str(packages))
    try:
        import yaml
    except ImportError:
        yaml = None
    if os.geteuid() != 0 or shutil.which("ip") is None or yaml is None:
        print("skipped: pods as processes want root, ip(8) and PyYAML")
        sys.exit(77)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for test in (test_a_stateful_set_grows, test_a_leader_worker_set):
        with tempfile.TemporaryDirectory(prefix="weft-pods-") as folder, \
                Pods(folder, weft, root) as pods:
            test(pods, yaml, root)
        print(f"{test.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
