"""Shared by the tests of `weft submit`: a folder with fake engine clients, hostile words, and the
CRDs against which manifests are validated.

WEFT_CRDS names a folder with the CRDs of JobSet, LeaderWorkerSet and RayJob as YAML, and of
PodMonitor and ScaledObject if it has them: a field that they do not define is a fault. Kubernetes'
own kinds are validated by the package kubernetes-validate where that is installed.
"""
import ast
import functools
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

PROGRAM, ROOT, PACKAGES = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:4])
PATIENCE = 120
HOSTILE = [
    "",
    "plain",
    "a b",
    "it's",
    '"',
    "$HOME",
    "$(touch x)",
    "`id`",
    "a;b|c&d",
    "*",
    "?[a-z]",
    "~",
    "-n",
    "=ls",
    "\\",
    "\\n",
    "a\nb",
    "\t",
    "#comment",
    "!history",
    "{a,b}",
    "<in",
    ">out",
    "%s%n",
    "'\\''",
    "\x7f",
    "\x01\x1b[m",
    "\u00e4",
    "\U0001f600",
    "yes",
    "null",
    "0x10",
    "1e3",
    "- a: b",
    "&anchor",
    "@at",
    "\u2028line",
    "\ufeffbom",
    "\u0085next",
    "$$(A)",
    "$$$(A)",
    "$(A)",
    "a$",
    "EOF",
    "@COMMAND@",
    "{}",
    "\r",
    "'''",
    "@RESTARTS@",
    "\n#SBATCH --uid=0",
    "\n---\n",
    "${A}",
     "$((1))"]
BYTES = b"\xff\xfe no UTF-8"
# Commands that `weft submit` accepts as complete.
TRAIN = ("train", "m", "--data", "d", "--output-dir", "o")
HOSTILE_COMMAND = (*TRAIN, *(f"--sample={word}" for word in HOSTILE))
# The listening flags of a server in a pod.
SERVE = ("--host", "0.0.0.0", "--api-key-file", "/models/keys")
# Words that YAML 1.1 reads as other types than strings.
NO_STRINGS = ("true", "null", "no", "on", "y", "yes", "off", "n", "false", "e1", "nan", "inf")


BUILT_IN = {"Secret", "ConfigMap", "Service", "StatefulSet"}


class SubmitTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.env = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}",
                    "HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder / "state")}

    def weft(self, *words, status=0):
        done = subprocess.run([PROGRAM, *words], capture_output=True, timeout=PATIENCE, check=False,
                              env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, status, done.stderr)
        return (done.stdout if status == 0 else done.stderr).decode(errors="replace")

    def states(self):
        return [job["state"] for job in json.loads(self.weft("job", "list", "--json"))]

    def file(self, to, *words, nodes=2):
        """The output of --dry-run. words: flags, "--" and the command."""
        if "--" not in words:
            words = ("--", *words)
        return self.weft(
    "submit",
    "--to",
    to,
    "-N",
    str(nodes),
    "--name",
    "tune",
    "--dry-run",
     *words)

    def client(self, name, text):
        path = self.bin / name
        path.write_text("#!/bin/bash\n" + text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def notes_words(self, name, rest=""):
        """A fake client that stores its arguments, one file per call."""
        self.client(name, f'n=$(ls {self.folder} | grep -c "^{name}\\.")\n'
                          f'printf "%s\\0" "$@" >{self.folder}/{name}.$n\n{rest}')

    def words(self, name, call=0):
        return (self.folder / f"{name}.{call}").read_bytes().decode().split("\0")[:-1]


def strict(schema):
    """A CRD's schema in which unknown fields are faults."""
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return {}
    out = {}
    for key, value in schema.items():
        if key.startswith("x-") or key in ("description", "format", "default", "nullable"):
            continue
        if key == "properties":
            out[key] = {name: strict(each) for name, each in value.items()}
        else:
            out[key] = strict(value) if key in ("items", "additionalProperties") else value
    if "properties" in out:
        out.setdefault("additionalProperties", False)
    return out


class PodsCase(SubmitTest):
    """Reads manifests and validates them against their CRDs."""
    def setUp(self):
        super().setUp()
        sys.path.insert(0, PACKAGES)
        try:
            import yaml
        except ImportError:
            self.skipTest("no PyYAML here, which reads the manifests")
        self.yaml = yaml

    def load(self, text):
        documents = list(self.yaml.safe_load_all(text))
        kinds = {each["kind"]: each for each in documents}
        self.assertEqual(len(kinds), len(documents))
        self.hold(documents)
        return kinds

    def hold(self, documents, optional=()):
        """optional: kinds whose CRDs may be absent."""
        self.hold_built_in([each for each in documents if each["kind"] in BUILT_IN])
        self.hold_against_crds([each for each in documents if each["kind"] not in BUILT_IN],
                               set(optional))

    def hold_built_in(self, documents):
        try:
            import kubernetes_validate
        except ImportError:
            print("not validated: no package kubernetes-validate here", file=sys.stderr)
            return
        for document in documents:
            kubernetes_validate.validate(document, "1.32", strict=True)

    def hold_against_crds(self, documents, optional):
        folder = os.environ.get("WEFT_CRDS")
        if not folder:
            print("not held against the CRDs: WEFT_CRDS names no folder of them", file=sys.stderr)
            return
        held = set()
        for document in documents:
            group, _, version = document["apiVersion"].rpartition("/")
            validator = self.validator(folder, group, version, document["kind"])
            if validator is None:
                continue
            held.add(document["kind"])
            self.assertEqual([f"{list(each.absolute_path)}: {each.message}"[:300]
                              for each in validator.iter_errors(document)], [])
        absent = {each["kind"] for each in documents} - held
        for kind in sorted(absent & optional):
            print(f"not held against its CRD: WEFT_CRDS has none of {kind}", file=sys.stderr)
        self.assertEqual(absent - optional, set())

    @staticmethod
    @functools.cache
    def validator(folder, group, version, kind):
        """None: the folder has no such CRD."""
        import jsonschema
        import yaml
        for path in pathlib.Path(folder).glob("*.yaml"):
            if f"kind: {kind}\n" not in path.read_text():
                continue
            for crd in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader):
                if crd and (crd["spec"]["group"], crd["spec"]["names"]["kind"]) == (group, kind):
                    schema, = [each["schema"]["openAPIV3Schema"]
                               for each in crd["spec"]["versions"] if each["name"] == version]
                    schema = strict(schema)
                    schema["properties"]["metadata"] = {"type": "object"}
                    return jsonschema.Draft7Validator(schema)
        return None

    @staticmethod
    def expanded(word):
        """As Kubernetes expands words (its expansion.Expand) if no variable has the name."""
        out, at = "", 0
        while at < len(word):
            if word[at] == "$" and at + 1 < len(word):
                if word[at + 1] == "(" and ")" in word[at:]:
                    return "a variable is replaced"
                out += "$" if word[at + 1] == "$" else word[at:at + 2]
                at += 2
            else:
                out += word[at]
                at += 1
        return out

    def assert_strings(self, node, path=""):
        """Checks that names, labels and values of variables are strings, as Kubernetes requires."""
        if isinstance(node, dict):
            for key, value in node.items():
                self.assertIsInstance(key, str, path)
                if key in ("name", "value", "weft.job", "secretName", "claimName", "image"):
                    self.assertIsInstance(value, str, f"{path}/{key}")
                self.assert_strings(value, f"{path}/{key}")
        elif isinstance(node, list):
            for each in node:
                self.assert_strings(each, path)


def command_of(text):
    """The command in a driver for Ray."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "COMMAND":
            return ast.literal_eval(node.value)
    return None


def main():
    del sys.argv[1:4]
    unittest.main(verbosity=2)
