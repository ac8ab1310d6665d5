#!/usr/bin/env python3
"""The pods in deploy/kubernetes and those of weft submit, as processes with the pods' user and
capabilities: the leader answers its probes and stops in time, workers dial in, and a worker that is
added later joins. A network namespace is the pods' network. Needs root, ip(8), setpriv(1) and
PyYAML; else skips (77).

    deploy_test.py PROGRAM ROOT PACKAGES
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

SUPPORT = str(pathlib.Path(__file__).resolve().parent.parent / "support")
sys.path.insert(0, SUPPORT)
from wait import until  # noqa: E402

PATIENCE = 240
URL = "http://127.0.0.1:8080"
# get URL [KEY]: prints the status of an HTTP request, or 0, and its text.
# watch URL OTHER: prints the status, and once it changes, the new one and the other's.
CLIENT = """import sys, urllib.error, urllib.request
from wait import until
def get(url, key=""):
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + key})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return 0, ""
if sys.argv[1] == "get":
    print(*get(*sys.argv[2:]))
else:
    seen = [get(sys.argv[2])[0]]
    print(seen[0], flush=True)
    until(lambda: seen.append(get(sys.argv[2])[0]) or seen[-1] != seen[0], pause_s=0.01)
    print(seen[-1], get(sys.argv[3])[0])"""


class Pods:
    """Runs the containers of a manifest, with a folder in place of their mounts."""

    def __init__(self, folder, weft, root):
        self.folder, self.started = pathlib.Path(folder), []
        self.folder.chmod(0o755)
        self.space = f"wfd{os.getpid()}"
        (self.folder / "bin").mkdir()
        shutil.copy(weft, self.folder / "bin/weft")
        shutil.copy(root / "models/abacus/model.gguf", self.folder / "model.gguf")
        self.secret("key", "a key of the pods of this test\n")
        made = subprocess.run([weft, "key", "new", "tester"], capture_output=True, text=True,
                              check=True)
        self.secret("keys", made.stdout)
        self.api_key = made.stderr.split()[-1]

    def __enter__(self):
        subprocess.run(["ip", "netns", "add", self.space], check=True)
        subprocess.run(["ip", "-n", self.space, "link", "set", "lo", "up"], check=True)
        return self

    def __exit__(self, *_):
        for pod in self.started:
            pod.process.kill()
            pod.process.wait()
        subprocess.run(["ip", "netns", "del", self.space], check=False)

    def secret(self, name, text):
        """An entry of the Secret, with the mode and group of its volume."""
        path = self.folder / name
        path.write_text(text)
        os.chown(path, 0, 65534)
        path.chmod(0o440)

    def here(self, word):
        for path in ("/models/", "/etc/weft/"):
            word = word.replace(path, f"{self.folder}/")
        return word.replace("weft-0.weft-ranks", "127.0.0.1")

    def run(self, name, spec, more):
        (container,) = spec["containers"]
        environment = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "HOSTNAME": name,
                       "HOME": "/nonexistent", **more}
        for each in container.get("env", []):
            environment[each["name"]] = self.here(each["value"])
        words = []
        for word in [*container["command"], *container.get("args", [])]:
            for variable, value in environment.items():  # as the kubelet does it
                word = word.replace(f"$({variable})", value)
            words.append(self.here(word))
        user, group = (spec["securityContext"][field] for field in ("runAsUser", "fsGroup"))
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        user_words = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups",
                      "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        pod = Pod(self, name, [*user_words, *words], environment)
        self.started.append(pod)
        return pod


class Pod:
    def __init__(self, pods, name, words, environment):
        self.log = pods.folder / f"{name}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(["ip", "netns", "exec", pods.space, *words],
                                            env=environment, stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, cwd="/")

    @staticmethod
    def client(pods, *words):
        return subprocess.Popen(["ip", "netns", "exec", pods.space, sys.executable, "-c", CLIENT,
                                 *words], stdout=subprocess.PIPE, text=True,
                                env={**os.environ, "PYTHONPATH": SUPPORT})

    def asks(self, pods, path, key=""):
        """Status and text of a GET of the pod that serves."""
        client = self.client(pods, "get", URL + path, key)
        status, _, text = client.communicate(timeout=PATIENCE)[0].partition(" ")
        return int(status), text

    def comes_to(self, pods, path, status):
        self.until(lambda: self.asks(pods, path)[0] == status, f"{status} of {path}")

    def says(self, text):
        self.until(lambda: text in self.log.read_text(), text)

    def until(self, condition, what):
        until(condition, lambda: f"{what}; {self.log.read_text()}", PATIENCE, self.process)

    def end(self):
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, self.log.read_text()


def of_kind(yaml, text, kind):
    return [each["spec"] for each in yaml.safe_load_all(text) if each["kind"] == kind]


def templates(yaml, text):
    """The pods of a LeaderWorkerSet: of the leader, and of a worker."""
    (spec,) = of_kind(yaml, text, "LeaderWorkerSet")
    return [spec["leaderWorkerTemplate"][f"{role}Template"]["spec"] for role in ("leader",
                                                                                "worker")]


def test_a_stateful_set_grows(pods, yaml, root):
    text = (root / "deploy/kubernetes/statefulset.yaml").read_text()
    leader, workers = of_kind(yaml, text, "StatefulSet")
    count = workers["replicas"]
    running = [pods.run("weft-0", leader["template"]["spec"], {})]
    worker = workers["template"]["spec"]
    running += [pods.run(f"weft-worker-{i}", worker, {}) for i in range(count)]
    running[0].says(f"({count + 1} ranks, ")
    running.append(pods.run(f"weft-worker-{count}", worker, {}))  # kubectl scale
    running[0].says(f" joins; epoch 2 with {count + 2} ranks after ")
    for pod in running:
        pod.end()


def test_a_leader_worker_set(pods, yaml, root):
    leader, worker = templates(yaml,
                               (root / "deploy/kubernetes/leaderworkerset.yaml").read_text())
    group = {"LWS_GROUP_SIZE": "3", "LWS_LEADER_ADDRESS": "127.0.0.1"}
    # In any order.
    running = [pods.run("group-0-2", worker, {**group, "LWS_WORKER_INDEX": "2"}),
               pods.run("group-0", leader, {**group, "LWS_WORKER_INDEX": "0"}),
               pods.run("group-0-1", worker, {**group, "LWS_WORKER_INDEX": "1"})]
    running[1].says("(3 ranks, ")
    for pod in running:
        pod.end()


def probes_of(spec):
    (container,) = spec["containers"]
    return {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe",
                                                                 "readinessProbe")}


def test_a_submitted_server(pods, yaml, root):
    """From the start of the leader to its end, as Kubernetes sees it."""
    text = subprocess.run([pods.folder / "bin/weft", "submit", "--to", "k8s", "-N", "2", "--name",
                           "tune", "--api-keys", pods.folder / "keys", "--dry-run", "--", "serve",
                           "/models/model.gguf"], capture_output=True, text=True, check=True).stdout
    (secret,) = [each["stringData"] for each in yaml.safe_load_all(text)
                 if each["kind"] == "Secret"]
    for name, value in secret.items():
        pods.secret(name, value)
    leader, worker = templates(yaml, text)
    group = {"LWS_GROUP_SIZE": "2", "LWS_LEADER_ADDRESS": "127.0.0.1"}
    running = [pods.run("tune-0", leader, {**group, "LWS_WORKER_INDEX": "0"})]
    probes = probes_of(leader)
    # The leader waits for the other rank: it is alive, and not ready.
    running[0].comes_to(pods, probes["startupProbe"], 200)
    assert running[0].asks(pods, probes["readinessProbe"])[0] == 503
    running.append(pods.run("tune-0-1", worker, {**group, "LWS_WORKER_INDEX": "1"}))
    running[0].comes_to(pods, probes["readinessProbe"], 200)
    hold_metrics(yaml, running[0].asks(pods, "/metrics", pods.api_key)[1], root)
    # All pods receive the signal. Requests may still be in transit.
    watch = Pod.client(pods, "watch", URL + probes["readinessProbe"], URL + probes["livenessProbe"])
    assert watch.stdout.readline() == "200\n"
    for pod in running:
        pod.process.terminate()
    assert watch.communicate(timeout=PATIENCE)[0] == "503 200\n"
    assert "accepting requests for another" in running[0].log.read_text()
    for pod in running:
        assert pod.process.wait(leader["terminationGracePeriodSeconds"]) == 0, pod.log.read_text()


def test_a_submitted_server_of_one_rank(pods, yaml, root):
    text = subprocess.run([pods.folder / "bin/weft", "submit", "--to", "k8s", "--name", "tune",
                           "--secret", "weft", "--dry-run", "--", "serve", "/models/model.gguf",
                           "--drain-delay-ms", "0"], capture_output=True, text=True,
                          check=True).stdout
    leader, _ = templates(yaml, text)
    pod = pods.run("tune-0", leader, {"LWS_GROUP_SIZE": "1", "LWS_LEADER_ADDRESS": "127.0.0.1",
                                      "LWS_WORKER_INDEX": "0"})
    pod.comes_to(pods, probes_of(leader)["readinessProbe"], 200)
    pod.end()


def hold_metrics(yaml, metrics, root):
    """The autoscaler's metrics exist."""
    text = (root / "deploy/kubernetes/autoscale.yaml").read_text()
    (spec,) = of_kind(yaml, text, "ScaledObject")
    names = {name for trigger in spec["triggers"]
             for name in re.findall(r"weft:\w+", trigger["metadata"]["query"])}
    assert len(names) == 2
    for name in names:
        assert re.search(f"^{name}{{", metrics, re.MULTILINE), f"no {name} in:\n{metrics}"


def main():
    weft, root, packages = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
    sys.path.insert(0, str(packages))
    try:
        import yaml
    except ImportError:
        yaml = None
    if os.geteuid() != 0 or None in (shutil.which("ip"), shutil.which("setpriv"), yaml):
        print("skipped: pods as processes want root, ip(8), setpriv(1) and PyYAML")
        sys.exit(77)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for test in (test_a_stateful_set_grows, test_a_leader_worker_set, test_a_submitted_server,
                 test_a_submitted_server_of_one_rank):
        with tempfile.TemporaryDirectory(prefix="weft-pods-") as folder, \
                Pods(folder, weft, root) as pods:
            test(pods, yaml, root)
        print(f"{test.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
