#!/usr/bin/env python3
"""weft submit with unusual input: names, amounts, folders, images and flags that an engine would
refuse or misread. Weft writes valid files, or reports an error.

    odd_test.py PROGRAM ROOT PACKAGES [UNITTEST ARGUMENT...]
"""
import ast
import json
import os

from cases import NO_STRINGS, SERVE, TRAIN, PodsCase, SubmitTest, command_of, main


class Pods(PodsCase):
    def test_names_that_yaml_takes_for_something_else(self):
        for name in NO_STRINGS:
            for to, words in (("k8s", [*TRAIN]), ("k8s", ["serve", "m", *SERVE]),
                              ("kuberay", [*TRAIN])):
                text = self.weft("submit", "--to", to, "-N", "2", "--name", name, "--dry-run",
                                 "--", *words)
                for kind, document in self.load(text).items():
                    self.assertEqual(document["metadata"]["name"],
                                     f"{name}-http" if kind == "Service" else name)
                    self.assert_strings(document)

    def test_values_that_yaml_takes_for_something_else(self):
        words = ["--memory", "1e3", "--resource", "rdma/hca=010", "--mount", "0x10=/data",
                 "--mount", "/010=/d2", "--folder", "/$HOME/$(x)", "--image", "1e3:0777",
                 "--queue", "0123", "--program", "no"]
        train = ("train", "010", "--data", "yes", "--output-dir", "on")
        for to in ("k8s:123", "kuberay:1e3"):
            for document in self.load(self.file(to, *words, "--", *train)).values():
                self.assert_strings(document)
                self.assertIsInstance(document["metadata"]["namespace"], str)
        job = self.load(self.file("k8s", *words, "--", *train))["JobSet"]
        pod = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        self.assertEqual(container["command"], ["no", *train])
        # (Kubernetes replaces nothing in a folder, unlike in a command.)
        self.assertEqual(container["workingDir"], "/$HOME/$(x)")
        self.assertEqual(container["resources"]["limits"], {"memory": "1e3", "rdma/hca": "010"})

    def test_commands_that_the_job_would_refuse(self):
        """Before a scheduler queues the job. Files of the job need not be here."""
        refusals = {
            ("train", "m", "--data", "d"): "--output-dir DIR is missing",
            ("train", "m", "--output-dir", "o"): "--data is missing",
            ("train", "m", "--data", "d", "--ds-config", "z.json"): "--output-dir DIR is missing",
            (*TRAIN, "--lrr", "3"): "Did you mean '--lr'",
            (*TRAIN, "--optimizer", "x"): "--optimizer x: expected",
            (*TRAIN, "--loss-scale", "2"): "only float16",
            (*TRAIN, "--tp", "3"): "--tp 3 needs 3 ranks: -N 2",
            (*TRAIN, "--local", "2"): "--local in the job's command",
            ("run", "m", "--hosts=a,b"): "--hosts in the job's command",
            ("up",): "the job's command is 'up', which starts jobs itself",
            ("run", "m", "--tp=2", "--pp", "2"): "--tp 2 --pp 2 needs 4 ranks",
            ("run",): "MODEL is missing",
            ("serve", "m", "--port", "99999999"): "--port",
            ("rum", "m"): "no command 'rum'",
        }
        for command, said in refusals.items():
            for to in ("slurm", "ray"):
                self.assertIn(said, self.weft("submit", "--to", to, "-N", "2", "--dry-run", "--",
                                              *command, status=2), command)
        for command in ((*TRAIN, "--ds-config", "none.json"), ("serve", "m", "--config", "c.toml"),
                        ("bench", "m", "--tp", "1,2"), ("run", "m", "-ngl", "99"),
                        (*TRAIN, "--save_every", "5"), (*TRAIN, "--tp", "2", "--dp", "1")):
            self.file("slurm", *command)

    def test_many_nodes(self):
        for nodes in (1, 4096):
            for to, words in (("k8s", ["bench", "m"]), ("k8s", ["serve", "m", *SERVE]),
                              ("kuberay", ["bench", "m"])):
                self.load(self.file(to, *words, nodes=nodes))

    def test_the_longest_name(self):
        """Pods are called NAME-rank-0-INDEX and five letters, and so are hosts: at most 63
        characters."""
        name = "x" * 40
        text = self.weft("submit", "--to", "k8s", "-N", "4096", "--name", name, "--dry-run", "--",
                         *TRAIN)
        self.load(text)
        self.assertLessEqual(len(f"{name}-rank-0-9999-abcde"), 63)
        for to in ("slurm", "k8s", "kuberay", "ray"):
            self.assertIn("at most 40", self.weft("submit", "--to", to, "--name", "x" * 64,
                                                  "--dry-run", "--", *TRAIN, status=2))

    def test_a_server_that_nobody_could_reach(self):
        for words, said in ((["m"], "add --api-keys"),
                            (["m", "--host", "0.0.0.0"], "add --api-keys"),
                            (["m", *SERVE, "--port", "0"], "1 to 65535"),
                            (["m", *SERVE, "--port=80}, x: {"], "--port")):
            self.assertIn(said, self.weft("submit", "--to", "k8s", "--dry-run", "--", "serve",
                                          *words, status=2))
        def leader(*words):
            jobs = self.load(self.file("k8s", "serve", "m", *words))
            group = jobs["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
            (container,) = group["leaderTemplate"]["spec"]["containers"]
            return container
        other = leader(*SERVE, "--port", "9000", "--tls-cert", "/c.pem", "--tls-key", "/k.pem")
        self.assertEqual(other["ports"], [{"name": "http", "containerPort": 9000}])
        self.assertEqual(other["livenessProbe"]["httpGet"]["scheme"], "HTTPS")
        self.assertEqual(leader("--config", "/models/weft.toml")["ports"][0]["containerPort"], 8080)

    def test_networks_of_ray_pods(self):
        jobs = self.load(self.file("kuberay", "--network", "rdma-a", "--resource", "rdma/hca=1",
                                   "--", *TRAIN))
        cluster = jobs["RayJob"]["spec"]["rayClusterSpec"]
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            self.assertEqual(group["template"]["metadata"]["annotations"],
                             {"k8s.v1.cni.cncf.io/networks": "rdma-a"})
            self.assertEqual(group["template"]["spec"]["securityContext"], {"runAsUser": 0})
        self.assertEqual(command_of(jobs["ConfigMap"]["data"]["driver.py"]),
                         ["weft", *TRAIN, "--data-net=net1"])

    def test_refusals(self):
        rows = [(["--image", ""], "--image ''"), (["--image", "My/Weft:1"], "small"),
                            (["--image", "a:"], "--image 'a:'"),
                            (["--memory", "32GB"], "--memory 32GB"),
                            (["--memory", "lots"], "--memory lots"),
                            (["--resource", "gpu=two"], "--resource"),
                            (["--resource", "a b=1"], "--resource"),
                            (["--resource", "a=1", "--resource", "a=2"], "is given twice"),
                            (["--resource", "cpu=8"], "use --cpus for it"),
                            (["--mount", "My Claim=/d"], "a claim's name"),
                            (["--mount", "a=/d", "--mount", "b=/d"], "two volumes have the path"),
                            (["--mount", "/a/../b=/d"], "'..'"),
                            (["--queue", "a/b"], "--queue"), (["--queue", "q" * 64], "--queue"),
                            (["--folder", "relative"], "absolute path"),
                            (["--cpus", "-1"], "--cpus"), (["-N", "0"], "1 to 4096"),
                            (["-N", "4097"], "1 to 4096")]
        for flags, said in rows:
            self.assertIn(said, self.weft("submit", "--to", "k8s", *flags, "--", *TRAIN,
                                          status=2))


class Ray(SubmitTest):
    def test_a_folder(self):
        text = self.file("ray", "--folder", "/it's a \\ $folder", "--", *TRAIN)
        names = {node.targets[0].id: ast.literal_eval(node.value) for node in ast.parse(text).body
                 if isinstance(node, ast.Assign)}
        self.assertEqual(names["FOLDER"], "/it's a \\ $folder")
        self.assertIn("cwd=FOLDER or None", text)


class Words(SubmitTest):
    def test_namespaces(self):
        for place in ("ML", "a.b", "-a", "a-", "x" * 64, "a_b"):
            for to in ("k8s", "kuberay"):
                self.assertIn("a namespace has", self.weft("submit", "--to", f"{to}:{place}",
                                                          "--dry-run", "--", *TRAIN,
                                                          status=2))

    def test_flags_of_other_engines(self):
        rows = {"--time=1": ("slurm",), "--partition=p": ("slurm",), "--account=a": ("slurm",),
                "--slurm=--exclusive": ("slurm",), "--memory=32G": ("slurm", "k8s", "kuberay"),
                "--cpus=2": ("slurm", "k8s", "kuberay", "ray"),
                "--mount=a=/b": ("k8s", "kuberay"), "--resource=a=1": ("k8s", "kuberay"),
                "--network=n": ("k8s", "kuberay"), "--queue=q": ("k8s", "kuberay"),
                "--env=A=1": ("k8s", "kuberay"), "--node-selector=a=b": ("k8s", "kuberay"),
                "--toleration=a": ("k8s", "kuberay"), "--pull-secret=a": ("k8s", "kuberay"),
                "--secret=a": ("k8s",),
                "--scheduler=volcano": ("k8s", "kuberay")}
        for flag, engines in rows.items():
            for to in ("slurm", "k8s", "kuberay", "ray", "ssh"):
                more = ("--hosts", "a") if to == "ssh" else ()
                words = ("submit", "--to", to, *more, flag, "--dry-run", "--", *TRAIN)
                if to in engines:
                    self.weft(*words)
                else:
                    self.assertIn(f"{flag.split('=')[0]} needs --to {', '.join(engines)}",
                                  self.weft(*words, status=2))

    def test_amounts_of_slurm(self):
        for flag in ("--memory=lots", "--memory=G", "--memory=1.5G", "--time=2h", "--time=soon"):
            self.assertIn(flag.replace("=", " "), self.weft("submit", "--to", "slurm", flag,
                                                            "--dry-run", "--", *TRAIN,
                                                            status=2))
        for flag in ("--memory=32G", "--memory=500", "--memory=32Gi", "--time=90",
                     "--time=2-12:00:00", "--time=UNLIMITED"):
            self.weft("submit", "--to", "slurm", flag, "--dry-run", "--", *TRAIN)

    def test_no_home(self):
        """Without HOME, the user's folder is still known; nothing is written to the root."""
        del self.env["HOME"], self.env["XDG_STATE_HOME"]
        self.assertIsInstance(json.loads(self.weft("job", "list", "--json")), list)
        self.assertFalse(os.path.exists("/.local/state/weft"))


if __name__ == "__main__":
    main()
