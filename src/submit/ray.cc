// Ray: a Python driver that reserves cores on each node and starts a rank there, rank 0 on the head
// if possible. A RayCluster gets the driver through the Jobs API (`ray job submit`), KubeRay gets a
// RayJob with the driver in a ConfigMap.
#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "submit/job.h"
#include "submit/pods.h"
#include "submit/quote.h"

namespace weft::submit {
namespace {

// Rank 0's output is the job's output. A rank that fails ends the others. A stop of the job
// (SIGTERM) reaches all ranks, and they have GRACE_S for a checkpoint. The driver restarts the
// ranks after a lost rank, or after a stop that nobody requested.
constexpr const char* kDriver = R"py(
GRACE_S = 110
# 3: a rank was lost. 75: stopped, with a checkpoint. 134 to 139: a signal ended a rank.
AGAIN = {3, 75, 134, 135, 136, 137, 138, 139}
NOT_STARTED = 127  # as a shell's; a restart would not help

import os, secrets, signal, socket, subprocess, sys, tempfile, threading, time

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(max_restarts=0, max_concurrency=4)
class Rank:
    def __init__(self, rank):
        self.rank, self.child, self.asked = rank, None, None

    def address(self):
        return ray.util.get_node_ip_address()

    def free_port(self):
        with socket.socket() as probe:
            probe.bind(("", 0))
            return probe.getsockname()[1]

    def run(self, command, environment, key):
        """Returns the status, or why the program did not start."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "key")
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                file.write(key)
            try:
                self.child = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=FOLDER or None,
                    env={**os.environ, **environment, "WEFT_KEY_FILE": path})
            except OSError as error:  # no program, or no folder
                return self.not_started(command[0], error)
            if self.asked is not None:  # before there was a child
                self.child.send_signal(self.asked)
            for line in self.child.stdout:
                sys.stdout.buffer.write(line)
                sys.stdout.flush()
            return self.child.wait()

    def not_started(self, program, error):
        where = f"node {socket.gethostname()} ({ray.util.get_node_ip_address()})"
        if FOLDER and error.filename == FOLDER:
            return (f"weft: rank {self.rank}: {where} cannot enter the folder {FOLDER} "
                    f"({error.strerror}). Name one that all nodes have: weft submit --folder")
        where_sought = "" if "/" in program else f" on its PATH ({os.environ.get('PATH', '')})"
        return (f"weft: rank {self.rank}: {where} cannot start the program '{program}'"
                f"{where_sought}: {error.strerror}. Install weft on each node under one path, and "
                f"name it: weft submit --program /path/to/weft")

    def stop(self, number):
        self.asked = number
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(number)


def places(stopped):
    """Of the nodes that live, those with room; the head first."""
    bundle = {"CPU": CPUS or 1}
    if "node:__internal_head__" in ray.cluster_resources():
        first = {**bundle, "node:__internal_head__": 0.001}
    else:
        first = bundle
    for heads in (first, bundle):  # the head may be for no work
        group = placement_group([heads] + [bundle] * (NODES - 1), strategy="STRICT_SPREAD")
        end = time.monotonic() + (WAIT_S if heads is bundle else min(WAIT_S, 10))
        while time.monotonic() < end and not stopped.is_set():
            if group.wait(1):
                return group
        remove_placement_group(group)
    if stopped.is_set():
        sys.exit("weft: stopped before the ranks began")
    sys.exit(f"weft: {NODES} nodes with {bundle} each were not available within {WAIT_S} s. "
             f"'ray status' lists the resources")


def attempt(stopped, restart):
    """Runs all ranks to their end; the first status that is not 0."""
    group = places(stopped)
    ranks = [Rank.options(num_cpus=CPUS or 1, scheduling_strategy=PlacementGroupSchedulingStrategy(
        placement_group=group, placement_group_bundle_index=rank)).remote(rank)
        for rank in range(NODES)]
    try:
        return run(ranks, stopped, restart)
    except ray.exceptions.RayError as error:
        print(f"weft: a node was lost: {error}", file=sys.stderr, flush=True)
        return 3
    finally:
        for each in ranks:
            ray.kill(each)
        remove_placement_group(group)


def run(ranks, stopped, restart):
    host, port = ray.get([ranks[0].address.remote(), ranks[0].free_port.remote()])
    key = secrets.token_hex(32)
    # Ray's nodes may be tasks of another launcher, whose variables say something else.
    runs = [each.run.remote(COMMAND, {"RANK": str(rank), "WORLD_SIZE": str(NODES),
                                      "MASTER_ADDR": host, "MASTER_PORT": str(port),
                                      "WEFT_LAUNCHER": "torchrun",
                                      # (A training job goes on from its checkpoints.)
                                      "WEFT_RESTART": str(restart)}, key)
            for rank, each in enumerate(ranks)]
    status, left, told = 0, list(runs), None
    while left:
        done, left = ray.wait(left, timeout=0.5)
        for run in sorted(done, key=runs.index):  # of several, rank 0 says why
            try:
                ended = ray.get(run)
            except ray.exceptions.RayError as error:
                print(f"weft: a node was lost: {error}", file=sys.stderr, flush=True)
                ended = 3
            if isinstance(ended, str):
                print(ended, file=sys.stderr, flush=True)
                ended = NOT_STARTED
            status = status or (ended if ended >= 0 else 128 - ended)
        if told is None and left and (stopped.is_set() or status):
            told = time.monotonic()
            for each in ranks:
                each.stop.remote(signal.SIGTERM)
        if told is not None and left and time.monotonic() - told > GRACE_S:
            ray.wait([each.stop.remote(signal.SIGKILL) for each in ranks],
                     num_returns=NODES, timeout=10)
            return status or 1
    return status


def main():
    stopped = threading.Event()

    def listen():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())

    listen()
    ray.init(log_to_driver=True)
    listen()  # ray.init installs a handler of its own, which ends the driver at once
    for restart in range(RESTARTS + 1):
        status = attempt(stopped, restart)
        if status not in AGAIN or stopped.is_set() or restart == RESTARTS:
            sys.exit(status)
        print(f"weft: the ranks ended with status {status}; restart {restart + 1} of {RESTARTS}",
              file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
)py";

constexpr int kWaitSeconds = 600;
// How long Ray waits for a job to stop: three seconds, unless the job's environment sets more.
constexpr const char* kStopTime = "RAY_JOB_STOP_WAIT_TIME_S";
constexpr int kStopSeconds = 120;

// restarts: number of restarts by the driver itself.
std::string Driver(const JobSpec& job, int restarts) {
    return fmt::format(
               "# Made by 'weft submit --to {}'.\nCOMMAND = {}\nFOLDER = {}\nNODES = {}\n"
               "CPUS = {}\nWAIT_S = {}\nRESTARTS = {}\n",
               EngineName(job.target.engine), PythonWords(PodCommand(job)), YamlText(job.folder),
               job.nodes, job.cpus, kWaitSeconds, restarts) +
           kDriver;
}

Status CheckWords(const JobSpec& job) {
    std::vector<std::string> words = job.command;
    words.insert(words.end(), {job.program, job.folder});
    if (std::ranges::all_of(words, IsUtf8)) return {};
    return MakeError(
        ErrorCode::kUsage,
        "an argument of the command is not UTF-8, which Ray can't pass on. Rename the file");
}

// KubeRay's operator sets the pods' scheduler itself.
std::string RayLabels(const JobSpec& job) {
    std::string labels;
    if (IsKueue(job)) labels = "    kueue.x-k8s.io/queue-name: " + YamlText(job.queue) + "\n";
    if (!job.scheduler.empty()) {
        labels += "    ray.io/scheduler-name: " + YamlText(job.scheduler) + "\n";
    }
    if (IsVolcano(job) && !job.queue.empty()) {
        labels += "    volcano.sh/queue-name: " + YamlText(job.queue) + "\n";
    }
    return labels.empty() ? "" : "  labels:\n" + labels;
}

// The pod of the head, or of a worker.
std::string RayPod(const JobSpec& job, bool head) {
    const std::string networks = NetworkAnnotation(job, "    ");
    std::string text = networks.empty() ? "" : "metadata:\n  annotations:\n" + networks;
    text += "spec:\n";
    // An added capability applies only to root's processes.
    if (WantsRdma(job)) text += "  securityContext: {runAsUser: 0}\n";
    text += "  containers:\n";
    text += fmt::format("    - name: {}\n      image: {}\n", head ? "ray-head" : "ray-worker",
                        YamlText(job.image));
    if (head) text += "      ports:\n        - {name: dashboard, containerPort: 8265}\n";
    JobSpec limited = job;
    if (job.cpus > 0) limited.resources.push_back(fmt::format("cpu={}", job.cpus));
    text += Indented(PodResources(limited), 6);
    if (WantsRdma(job)) text += "      securityContext: {capabilities: {add: [IPC_LOCK]}}\n";
    if (!job.environment.empty()) text += "      env:\n" + Indented(PodEnvironment(job), 8);
    return text + "      volumeMounts:\n        - {name: driver, mountPath: /etc/weft}\n" +
           Indented(PodMounts(job), 8) +
           fmt::format("  volumes:\n    - {{name: driver, configMap: {{name: {}}}}}\n",
                       YamlText(job.name)) +
           Indented(PodVolumes(job), 4) + Indented(PodPlacement(job), 2);
}

}  // namespace

Result<NativeFile> WriteRay(const JobSpec& job) {
    WEFT_TRY(CheckWords(job));
    // The client uploads the folder of the file (client.cc).
    NativeFile file{"weft_" + job.name + ".py",
                    Driver(job, job.restarts),
                    {"ray", "job", "submit", "--no-wait",
                     fmt::format(R"(--runtime-env-json={{"env_vars": {{"{}": "{}"}}}})", kStopTime,
                                 kStopSeconds)}};
    if (!job.target.place.empty()) {
        file.client.push_back("--address=" + job.target.place);
    }
    return file;
}

Result<NativeFile> WriteKubeRay(const JobSpec& job) {
    WEFT_TRY(CheckWords(job));
    WEFT_TRY(CheckPods(job));
    std::string place;
    if (!job.target.place.empty()) {
        place = fmt::format("\n  namespace: {}", YamlText(job.target.place));
    }
    // The operator restarts the job (backoffLimit), with its cluster.
    constexpr int kRestartsOfDriver = 0;
    const std::string driver = YamlText(Driver(job, kRestartsOfDriver));
    std::string text = fmt::format(
        "# Made by 'weft submit --to kuberay'.\n"
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {0}{1}\ndata:\n  driver.py: {2}\n---\n"
        "apiVersion: ray.io/v1\nkind: RayJob\nmetadata:\n  name: {0}{1}\n{3}spec:\n"
        "  entrypoint: python3 /etc/weft/driver.py\n"
        "  runtimeEnvYAML: \"env_vars: {{{6}: '{7}'}}\"\n"
        "  shutdownAfterJobFinishes: true\n  ttlSecondsAfterFinished: 3600\n  backoffLimit: {4}\n"
        "{5}  rayClusterSpec:\n"
        "    headGroupSpec:\n      rayStartParams:\n        dashboard-host: \"0.0.0.0\"\n"
        "      template:\n",
        YamlText(job.name), place, driver, RayLabels(job), job.restarts,
        IsKueue(job) ? "  suspend: true  # Kueue lets it go\n" : "", kStopTime, kStopSeconds);
    text += Indented(RayPod(job, true), 8);
    if (job.nodes > 1) {
        text += fmt::format(
            "    workerGroupSpecs:\n      - groupName: ranks\n        replicas: {0}\n"
            "        minReplicas: {0}\n        maxReplicas: {0}\n        rayStartParams: {{}}\n"
            "        template:\n",
            job.nodes - 1);
        text += Indented(RayPod(job, false), 10);
    }
    return NativeFile{job.name + ".yaml", text, {"kubectl", "create", "-f"}};
}

}  // namespace weft::submit
