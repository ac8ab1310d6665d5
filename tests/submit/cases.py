"""Shared by the tests of `weft submit`: a folder with fake engine clients, hostile words, and the
CRDs against which manifests are validated.

WEFT_CRDS names a folder with the CRDs of JobSet, LeaderWorkerSet and RayJob as YAML: a field that
they do not define is a fault.
"""
import ast
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
# What a server in a pod listens by.
SERVE = ("--host", "0.0.0.0", "--api-key-file", "/models/keys")
# Words that YAML 1.1 takes for something else than a string.
NO_STRINGS = ("true", "null", "no", "on", "y", "yes", "off", "n", "false", "e1", "nan", "inf")


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
        documents = {each["kind"]: each for each in self.yaml.safe_load_all(text)}
        self.hold_against_crds(documents.values())
        return documents

    def hold_against_crds(self, documents):
        folder = os.environ.get("WEFT_CRDS")
        if not folder:
            print("not held against the CRDs: WEFT_CRDS names no folder of them", file=sys.stderr)
            return
        import jsonschema
        held = set()
        for document in documents:
            group, _, version = document["apiVersion"].rpartition("/")
            for path in pathlib.Path(folder).glob("*.yaml"):
                if f"kind: {document['kind']}\n" not in path.read_text():
                    continue
                for crd in self.yaml.load_all(path.read_text(), Loader=self.yaml.CSafeLoader):
                    if crd and (crd["spec"]["group"], crd["spec"]["names"]["kind"]) == \
                            (group, document["kind"]):
                        schema, = [each["schema"]["openAPIV3Schema"]
                                   for each in crd["spec"]["versions"] if each["name"] == version]
                        schema = strict(schema)
                        held.add(document["kind"])
                        schema["properties"]["metadata"] = {"type": "object"}
                        faults = list(jsonschema.Draft7Validator(schema).iter_errors(document))
                        self.assertEqual([f"{list(each.absolute_path)}: {each.message}"[:300]
                                          for each in faults], [])
        self.assertEqual(held, {each["kind"] for each in documents} - {"Secret", "ConfigMap"})

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
