#!/usr/bin/env python3
"""Manifests of weft submit --to k8s and those in deploy/kubernetes: what a server needs, the
"restricted" Pod Security Standard, and values that YAML would read as something else.

    kubernetes_test.py PROGRAM ROOT PACKAGES [UNITTEST ARGUMENT...]
"""
import copy
import pathlib
import re

from cases import HOSTILE, NO_STRINGS, ROOT, TRAIN, PodsCase, main

DEPLOY = pathlib.Path(ROOT) / "deploy/kubernetes"
SERVE = ("--secret", "own", "--", "serve", "/models/m.gguf")
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
           "projected", "secret"}


def pods(node):
    """The specs of all pods in a document."""
    if isinstance(node, dict):
        if isinstance(node.get("containers"), list):
            yield node
        for value in node.values():
            yield from pods(value)
    elif isinstance(node, list):
        for each in node:
            yield from pods(each)


def container_faults(container, pod):
    at = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
    capabilities = at.get("capabilities", {})
    handlers = [container.get(name, {}) for name in ("startupProbe", "livenessProbe",
                                                    "readinessProbe")]
    handlers += container.get("lifecycle", {}).values()
    rules = {
        "privileged": not at.get("privileged", False),
        "allowPrivilegeEscalation": at.get("allowPrivilegeEscalation") is False,
        "drop": capabilities.get("drop") == ["ALL"],
        "add": set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"},
        "hostPort": not any(port.get("hostPort") for port in container.get("ports", [])),
        "procMount": at.get("procMount", "Default") == "Default",
        "seccompProfile": at.get("seccompProfile", {}).get("type") in ("RuntimeDefault",
                                                                       "Localhost"),
        "runAsNonRoot": at.get("runAsNonRoot") is True,
        "runAsUser": at.get("runAsUser") != 0,
        "seLinuxOptions": not at.get("seLinuxOptions"),
        "appArmorProfile": at.get("appArmorProfile", {}).get("type") != "Unconfined",
        "windowsOptions": not at.get("windowsOptions", {}).get("hostProcess"),
        "host": not any(each.get("host") for handler in handlers
                        for each in handler.values() if isinstance(each, dict)),
    }
    return {name for name, kept in rules.items() if not kept}


def restricted_faults(pod):
    """The controls of the Pod Security Standard "restricted" (and so "baseline") that a pod
    violates. https://kubernetes.io/docs/concepts/security/pod-security-standards"""
    found = {name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)}
    for volume in pod.get("volumes", []):
        found |= {f"volume {kind}" for kind in set(volume) - {"name"} - VOLUMES}
    if pod.get("securityContext", {}).get("sysctls"):
        found.add("sysctls")
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in pod.get(kind, []):
            found |= container_faults(container, pod)
    return found


class KubernetesTest(PodsCase):
    def pod(self, *words, role="leader"):
        """The pod template of a rank."""
        jobs = self.load(self.file("k8s", *words))
        if "JobSet" in jobs:
            return jobs["JobSet"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        return jobs["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"][f"{role}Template"]

    def container(self, *words, role="leader"):
        (container,) = self.pod(*words, role=role)["spec"]["containers"]
        return container

    def refused(self, *words):
        return self.weft("submit", "--to", "k8s", "--name", "tune", "--dry-run", *words, status=2)


class Restricted(KubernetesTest):
    def test_the_check_itself(self):
        """Each control is checked: a pod that violates it has that fault."""
        good = next(pods(self.pod(*SERVE)))
        self.assertEqual(restricted_faults(good), set())
        at = ("containers", 0, "securityContext")
        for path, value, fault in (
                (("hostNetwork",), True, "hostNetwork"), (("hostPID",), True, "hostPID"),
                (("volumes", 0), {"name": "v", "hostPath": {"path": "/"}}, "volume hostPath"),
                (("securityContext", "sysctls"), [{"name": "a", "value": "1"}], "sysctls"),
                ((*at, "privileged"), True, "privileged"),
                ((*at, "allowPrivilegeEscalation"), True, "allowPrivilegeEscalation"),
                ((*at, "capabilities"), {"drop": ["KILL"]}, "drop"),
                ((*at, "capabilities"), {"drop": ["ALL"], "add": ["IPC_LOCK"]}, "add"),
                ((*at, "runAsUser"), 0, "runAsUser"), ((*at, "runAsNonRoot"), False,
                                                       "runAsNonRoot"),
                (("securityContext", "seccompProfile"), {"type": "Unconfined"}, "seccompProfile"),
                (("containers", 0, "ports", 0, "hostPort"), 80, "hostPort"),
                (("containers", 0, "livenessProbe", "httpGet", "host"), "a", "host")):
            pod = copy.deepcopy(good)
            node = pod
            for step in path[:-1]:
                node = node[step]
            node[path[-1]] = value
            self.assertEqual(restricted_faults(pod), {fault}, path)

    def test_ranks(self):
        more = ("--mount", "models=/models", "--mount", "secret/tls=/tls", "--resource",
                "nvidia.com/gpu=1", "--env", "A=b", "--network", "net")
        for words in (SERVE, ("--", *TRAIN), ("--", "bench", "m")):
            for flags in ((), more):
                found = [pod for document in self.load(self.file("k8s", *flags, *words)).values()
                         for pod in pods(document)]
                self.assertEqual(len(found), 2 if words is SERVE else 1)
                for pod in found:
                    self.assertEqual(restricted_faults(pod), set())
                    self.assertIs(pod["automountServiceAccountToken"], False)

    def test_rdma_adds_one_capability(self):
        text = self.file("k8s", "--resource", "rdma/hca=1", *SERVE)
        self.assertIn('needs the Pod Security level "privileged"', text)
        for pod in pods(self.load(text)["LeaderWorkerSet"]):
            self.assertEqual(restricted_faults(pod), {"add", "runAsNonRoot", "runAsUser"})
            self.assertEqual(pod["containers"][0]["securityContext"],
                             {"allowPrivilegeEscalation": False,
                              "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}})
        self.assertNotIn("privileged", self.file("k8s", "--resource", "nvidia.com/gpu=1", *SERVE))

    def test_a_folder_of_the_nodes(self):
        text = self.file("k8s", "--mount", "/srv=/srv", *SERVE)
        self.assertIn('needs the Pod Security level "privileged"', text)
        for pod in pods(self.load(text)["LeaderWorkerSet"]):
            self.assertEqual(restricted_faults(pod), {"volume hostPath"})


class Serving(KubernetesTest):
    def keys(self, text="# of the team\nalice " + 64 * "a" + " rate=60\n"):
        (self.folder / "keys").write_text(text)
        return "--api-keys", str(self.folder / "keys")

    def test_a_service(self):
        for more, kind, port in (((), "ClusterIP", 80), (("--service-type", "NodePort"), "NodePort",
                                                        80),
                                 (("--service-type=LoadBalancer",), "LoadBalancer", 80)):
            jobs = self.load(self.file("k8s:ml", *more, *SERVE))
            service = jobs["Service"]
            self.assertEqual(service["metadata"]["name"], "tune-http")
            self.assertEqual(service["metadata"]["namespace"], "ml")
            self.assertEqual(service["spec"]["type"], kind)
            self.assertEqual(service["spec"]["ports"],
                             [{"name": "http", "port": port, "targetPort": "http"}])
            group = jobs["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
            leader, worker = (group[role]["metadata"]["labels"].items()
                              for role in ("leaderTemplate", "workerTemplate"))
            selector = service["spec"]["selector"].items()
            self.assertTrue(selector <= leader)
            self.assertFalse(selector <= worker)
        tls = self.load(self.file("k8s", *SERVE, "--tls-cert", "/c", "--tls-key", "/k"))
        self.assertEqual(tls["Service"]["spec"]["ports"][0]["port"], 443)
        self.assertNotIn("Service", self.load(self.file("k8s", "--", *TRAIN)))
        self.assertIn("--service-type", self.refused("--service-type", "yes", *SERVE))

    def test_probes(self):
        leader = self.container(*SERVE)
        paths = {name: probe["httpGet"] for name, probe in leader.items() if name.endswith("Probe")}
        self.assertEqual(paths, {"startupProbe": {"path": "/live", "port": "http"},
                                 "livenessProbe": {"path": "/live", "port": "http"},
                                 "readinessProbe": {"path": "/ready", "port": "http"}})
        worker = self.container(*SERVE, role="worker")
        self.assertEqual([name for name in worker if name.endswith("Probe")], [])

    def test_flags_by_other_names(self):
        """Probes at another port than the server's would restart its pods for ever."""
        for words in (("-p", "9000"), ("-p9000",), ("--port=9000", "--name", "--port", "-t", "1")):
            container = self.container("--secret", "own", "--", "server", "m", *words)
            self.assertEqual(container["ports"][0]["containerPort"], 9000)
            self.assertIn("/etc/weft/keys", container["command"][-4])
        self.assertIn("the launcher starts one rank on each node", self.weft(
            "submit", "--to", "k8s", "--", "bench", "m", "--local=2", status=2))
        self.weft("submit", "--to", "slurm", "--dry-run", "--", "run", "m", "-p", "--local")
        self.assertIn("needs 3 ranks", self.weft(
            "submit", "--to", "k8s", "-N", "2", "--", "run", "m", "-p", "a",
            "--tensor-parallel-size", "3", status=2))

    def test_replicas(self):
        jobs = self.load(self.file("k8s", "--replicas", "3", *SERVE))
        self.assertEqual(jobs["LeaderWorkerSet"]["spec"]["replicas"], 3)
        for words in (("--replicas", "2"), self.keys(), ("--service-type", "NodePort")):
            self.assertIn(f"{words[0]} needs 'serve'; 'train' answers no clients",
                          self.refused(*words, "--", *TRAIN))
        for words in (("--replicas", "2"), self.keys(), ("--service-type", "NodePort")):
            self.assertIn(f"{words[0]} needs --to k8s",
                          self.weft("submit", "--to", "slurm", *words, "--", "serve", "m",
                                    status=2))
        for value in ("0", "-1", "1e3", "yes"):
            self.assertIn("--replicas", self.refused(f"--replicas={value}", *SERVE))

    def test_replicas_that_share_a_node(self):
        def term(*words):
            affinity = self.pod(*words)["spec"]["affinity"]["podAntiAffinity"]
            (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
            return term
        divided = ("--cpus", "8", "--resource", "nvidia.com/gpu=1")
        self.assertEqual(term(*divided, *SERVE)["matchLabelKeys"],
                         ["leaderworkerset.sigs.k8s.io/group-key"])
        for words in (SERVE, ("--cpus", "8", *SERVE), (*divided, "--", *TRAIN)):
            self.assertNotIn("matchLabelKeys", term(*words))

    def test_time_to_stop(self):
        for words, seconds in (((), 120), (("--drain-ms", "600000"), 635),
                               (("--drain-ms=600000", "--drain-delay-ms=5001"), 636),
                               (("--drain_ms=3600000", "--drain_delay_ms", "3600000"), 7230)):
            for role in ("leader", "worker"):
                pod = self.pod(*SERVE, *words, role=role)["spec"]
                self.assertEqual(pod["terminationGracePeriodSeconds"], seconds)
        self.assertEqual(self.pod("--", *TRAIN)["spec"]["terminationGracePeriodSeconds"], 120)
        for value in ("5s", "", "-1", "1e3", "99999999", "yes"):
            for flag in ("--drain-ms", "--drain-delay-ms"):
                self.assertIn(f"{flag}: ", self.refused(*SERVE, f"{flag}={value}"))

    def test_flags_of_the_server(self):
        def command(*words):
            return self.container("--secret", "own", "--", "serve", "m", *words)["command"][3:]
        self.assertEqual(command(), ["--api-key-file=/etc/weft/keys", "--host=0.0.0.0",
                                     "--wait=1h", "--drain-delay-ms=5000"])
        own = ["--host", "::", "--wait", "5m", "--drain_delay_ms=0", "--api-key-file", "/k"]
        self.assertEqual(command(*own), own)
        # The file may set them.
        self.assertEqual(command("--config", "/f"), ["--config", "/f",
                                                     "--api-key-file=/etc/weft/keys"])

    def test_a_secret_of_the_user(self):
        for words in (SERVE, ("--secret", "own", "--", *TRAIN)):
            text = self.file("k8s", *words)
            jobs = self.load(text)
            self.assertNotIn("Secret", jobs)
            for pod in (pod for document in jobs.values() for pod in pods(document)):
                (volume,) = [each for each in pod["volumes"] if each["name"] == "key"]
                self.assertEqual(volume["secret"]["secretName"], "own")
            # Nothing in it is secret: the same command makes the same file.
            self.assertEqual(text, self.file("k8s", *words))
        self.assertIn("exclude each other", self.refused(*self.keys(), *SERVE))

    def test_keys_of_clients(self):
        jobs = self.load(self.file("k8s", *self.keys(), "--", "serve", "m"))
        secret = jobs["Secret"]["stringData"]
        self.assertEqual(secret["keys"], (self.folder / "keys").read_text())
        for pod in pods(jobs["LeaderWorkerSet"]):
            self.assertNotIn(secret["key"], str(pod))
            self.assertNotIn("a" * 64, str(pod))
            self.assertIn("--api-key-file=/etc/weft/keys", pod["containers"][0]["command"])
        for line in ("yes: 1e3", "it's \"quoted\"", "&a *b", "\t- x", "\u2028"):
            text = f"# {line}\nalice {64 * 'b'}\n"
            jobs = self.load(self.file("k8s", *self.keys(text), "--", "serve", "m"))
            self.assertEqual(jobs["Secret"]["stringData"]["keys"], text)

    def test_bad_files_of_keys(self):
        path = str(self.folder / "keys")
        for text, said, status in (("# none\n", "--api-keys", 2), ("alice\n", f"{path}:1:", 1),
                                   (None, path, 1)):
            (self.folder / "keys").unlink(missing_ok=True)
            if text is not None:
                self.keys(text)
            self.assertIn(said, self.weft("submit", "--to", "k8s", "--dry-run", "--api-keys", path,
                                          "--", "serve", "m", status=status))

    def test_a_job(self):
        self.notes_words("kubectl")
        self.weft("submit", "--to", "k8s:ml", "-N", "2", "--name", "tune", *SERVE)
        for call, (words, asked) in enumerate((
                (("status", "tune"), ["get", "leaderworkerset", "tune"]),
                (("logs", "tune"), ["logs", "pod/tune-0"]),
                # Not the user's Secret: it does not have the label.
                (("cancel", "tune"), ["delete", "leaderworkerset,service,secret",
                                      "--selector=weft.job=tune"])), 2):
            self.weft("job", *words)
            self.assertEqual(self.words("kubectl", call), [*asked, "--namespace=ml"])
        jobs = self.load(self.file("k8s", *self.keys(), "--", "serve", "m"))
        for kind in ("LeaderWorkerSet", "Service", "Secret"):
            self.assertEqual(jobs[kind]["metadata"]["labels"]["weft.job"], "tune")


class Values(KubernetesTest):
    """Each flag keeps a value exactly, or refuses it by name."""
    # Values that neither labels nor names may have.
    ODD = ("a b", "it's", '"', "a\nb", ": ", "- a: b", "{}", "&anchor", "#comment", "$(A)", "\\",
           "\u2028line", "\u00e4", "a" * 254)
    # Values that YAML reads as something else than a string.
    WORDS = (*NO_STRINGS, "1e3", "010", "0x10", "null", "1.5")

    def pods_with(self, flag, values):
        """The pods of both engines with one flag per value."""
        words = (*(f"{flag}={value}" for value in values), "--", "bench", "m")
        return [pod for to in ("k8s", "kuberay")
                for document in self.load(self.file(to, *words)).values()
                for pod in pods(document)]

    def refuses(self, flag, *values):
        for value in values:
            self.assertIn(flag, self.refused(f"{flag}={value}", "--", "bench", "m"), value)

    def test_environment(self):
        values = (*HOSTILE, *self.WORDS, ": ", "a: b", "a=b")
        for pod in self.pods_with("--env", [f"A_{i}={value}" for i, value in enumerate(values)]):
            env = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
            self.assertEqual([self.expanded(env[f"A_{i}"]) for i in range(len(values))],
                             list(values))
        self.refuses("--env", "A", "=b", "1A=b", "a b=c", "a-b=c", "RANK=0", "WEFT_KEY_FILE=/k",
                     "LWS_GROUP_SIZE=1", "a\n- b=c", '"a"=b', "a: b=c")
        twice = self.refused("--env=A=hidden", "--env=A=hidden", "--", "bench", "m")
        self.assertIn("--env A is given twice", twice)
        self.assertNotIn("hidden", twice)

    def test_labels_of_nodes(self):
        values = ("", *self.WORDS)
        labels = {f"example.com/a.{i}_c-d": value for i, value in enumerate(values)}
        labels.update({word: "no" for word in self.WORDS})
        for pod in self.pods_with("--node-selector", map("=".join, labels.items())):
            self.assertEqual(pod["nodeSelector"], labels)
            self.assert_strings(pod)
        self.refuses("--node-selector", "a", "=b", "a/b/c=d", ": =a", "-a=b", "{}=a", "a b=c",
                     *(f"a={value}" for value in self.ODD))
        self.assertIn("is given twice", self.refused("--node-selector=a=1", "--node-selector=a=2",
                                                     "--", "bench", "m"))

    def test_taints(self):
        taints = ("yes", "1e3=yes", "nvidia.com/gpu:NoSchedule", "a=:NoExecute",
                  "true=1e3:PreferNoSchedule", *(f"no={word}" for word in self.WORDS))
        for pod in self.pods_with("--toleration", taints):
            found = []
            for each in pod["tolerations"]:
                self.assertTrue(all(isinstance(value, str) for value in each.values()))
                self.assertEqual(each["operator"], "Equal" if "value" in each else "Exists")
                found.append(each["key"] + ("=" + each["value"] if "value" in each else "") +
                             (":" + each["effect"] if "effect" in each else ""))
            self.assertEqual(found, list(taints))
        self.refuses("--toleration", "", ":NoSchedule", "a:", "a:Soon", "a:noschedule", "=b",
                     "a=b=c", "a: b", "a\n:NoSchedule", "a=b:NoSchedule:NoSchedule",
                     *(f"a={value}" for value in self.ODD))

    def test_secrets(self):
        for pod in self.pods_with("--pull-secret", self.WORDS):
            self.assertEqual([each["name"] for each in pod["imagePullSecrets"]], list(self.WORDS))
        for flag in ("--pull-secret", "--secret"):
            self.refuses(flag, *self.ODD, "A", "-a", "a/b")
        for word in ("yes", "1e3", "010"):
            for pod in pods(self.load(self.file("k8s", f"--secret={word}", "--", *TRAIN))):
                (volume,) = [each for each in pod["volumes"] if each["name"] == "key"]
                self.assertEqual(volume["secret"]["secretName"], word)

    def test_mounts_of_secrets(self):
        sources = [f"secret/{word}" for word in self.WORDS]
        for pod in self.pods_with("--mount", [f"{source}=/m{i}" for i, source in
                                              enumerate(sources)]):
            volumes = {each["name"]: each for each in pod["volumes"]}
            self.assertEqual(["secret/" + volumes[f"mount-{i}"]["secret"]["secretName"]
                              for i in range(len(sources))], sources)
        self.refuses("--mount", "secret/=/tls", "secret/A=/tls", "secret/a/b=/tls",
                     "secret/a\n=/tls")


class Deploy(KubernetesTest):
    """The manifests in deploy/kubernetes agree with those that weft submit writes."""

    def documents(self, name):
        found = list(self.yaml.safe_load_all((DEPLOY / name).read_text()))
        self.hold(found, optional=("PodMonitor", "ScaledObject"))
        return found

    def roles(self, documents):
        """[(labels, spec)] of the pods."""
        found = []

        def walk(node):
            if isinstance(node, dict):
                if "containers" in node.get("spec", {}):
                    found.append((node["metadata"]["labels"], node["spec"]))
                for value in node.values():
                    walk(value)
        for document in documents:
            walk(document)
        return found

    def test_pods(self):
        words = ("--name", "weft", "--image", "weft:0.1.0", "--secret", "weft", "--mount",
                 "models=/models", "--cpus", "8", "--memory", "32Gi", "--", "serve",
                 "/models/model.gguf")
        ours = self.load(self.weft("submit", "--to", "k8s", "-N", "2", "--dry-run", *words))
        submitted = {labels["weft.role"]: (labels, spec) for labels, spec in
                     self.roles(ours.values())}
        for name in ("leaderworkerset.yaml", "statefulset.yaml"):
            documents = self.documents(name)
            (service,) = [each for each in documents if each["metadata"]["name"] == "weft-http"]
            self.assertEqual({"type": "ClusterIP", **service["spec"]}, ours["Service"]["spec"])
            pods_of_file = self.roles(documents)
            self.assertEqual([labels["weft.role"] for labels, _ in pods_of_file],
                             ["leader", "worker"])
            for labels, spec in pods_of_file:
                self.assertEqual(restricted_faults(spec), set())
                own_labels, own = submitted[labels["weft.role"]]
                self.assertEqual(labels, own_labels)
                for field in ("securityContext", "automountServiceAccountToken"):
                    self.assertEqual(spec[field], own[field], field)
                self.assertEqual([{**each, "name": ""} for each in spec["volumes"]],
                                 [{**each, "name": ""} for each in (own["volumes"][2],
                                                                   own["volumes"][1],
                                                                   own["volumes"][0])])
                (container,), (own_container,) = spec["containers"], own["containers"]
                for field in ("image", "securityContext", "resources", "startupProbe",
                              "livenessProbe", "readinessProbe"):
                    self.assertEqual(container.get(field), own_container.get(field), field)
            leader = pods_of_file[0][1]
            self.assertEqual(leader["terminationGracePeriodSeconds"],
                             submitted["leader"][1]["terminationGracePeriodSeconds"])
            (container,) = leader["containers"]
            self.assertRegex(" ".join(container["command"] + container.get("args", [])),
                             "--wait 1h --drain-delay-ms 5000 ")

    def test_autoscaling(self):
        monitor, scaled, replicas = self.documents("autoscale.yaml")
        documents = self.documents("leaderworkerset.yaml")
        (target,) = [each for each in documents if each["kind"] == "LeaderWorkerSet"]
        reference = scaled["spec"]["scaleTargetRef"]
        self.assertEqual(reference, {"apiVersion": target["apiVersion"], "kind": target["kind"],
                                     "name": target["metadata"]["name"]})
        leader, _ = self.roles(documents)
        for selector in (monitor["spec"]["selector"]["matchLabels"], replicas["spec"]["selector"]):
            self.assertEqual(selector, leader[0])
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        # (/metrics requires a key.)
        self.assertEqual(set(endpoint["authorization"]["credentials"]), {"name", "key"})
        (container,) = leader[1]["containers"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        self.assertEqual(ports[endpoint["port"]], replicas["spec"]["ports"][0]["port"])
        for trigger in scaled["spec"]["triggers"]:
            self.assertTrue(all(isinstance(each, str) for each in trigger["metadata"].values()))
            self.assertGreater(float(trigger["metadata"]["threshold"]), 0)
            (pattern,) = set(re.findall(r'pod=~"([^"]*)"', trigger["metadata"]["query"]))
            self.assertTrue(re.fullmatch(pattern, "weft-12"))   # (Prometheus anchors it)
            self.assertFalse(re.fullmatch(pattern, "weft-0-1"))  # a worker
        # An answer may take as long as the slowest replica needs to stop.
        stop = leader[1]["terminationGracePeriodSeconds"]
        behavior = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        self.assertGreater(behavior["scaleDown"]["policies"][0]["periodSeconds"], stop)


if __name__ == "__main__":
    main()
