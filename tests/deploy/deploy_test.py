#!/usr/bin/env python3
"""Checks deploy/: its flags and metrics exist, and its files are well-formed.

Usage: deploy_test.py WEFT ROOT
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

weft, root = sys.argv[1], pathlib.Path(sys.argv[2])
deploy = root / "deploy"
faults = []


def check(good, what):
    if not good:
        faults.append(what)


help_text = subprocess.run([weft, "serve", "--help"], capture_output=True, text=True).stdout
worker_help = subprocess.run([weft, "worker", "--help"], capture_output=True, text=True).stdout

# Every flag of the example, those that are commented out as well.
lines = [line.removeprefix("# ") for line in (deploy / "weft.toml").read_text().splitlines()]
names = [match[1] for line in lines if (match := re.match(r"([a-z-]+) = ", line))]
check(len(names) > 8, "weft.toml: hardly any flags were found")
for name in names:
    check(name == "model" or f"--{name} " in help_text, f"weft.toml: serve has no --{name}")

# The file as it stands is read: what fails is the model, which is not there.
with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
    file.write((deploy / "weft.toml").read_text())
    file.flush()
    run = subprocess.run([weft, "serve", "--config", file.name, "--port", "0"],
                         capture_output=True, text=True, timeout=60)
    check("/srv/models/model.gguf" in run.stderr and run.returncode == 1,
          f"weft.toml: {run.returncode}, {run.stderr!r}")

for path in [*deploy.glob("*.service"), *deploy.glob("kubernetes/*.yaml")]:
    text = path.read_text()
    for command, known in (("serve", help_text), ("worker", worker_help)):
        for words in re.findall(rf"weft,? {command}\b(.*(?:\n +--.*)*)", text):
            for flag in re.findall(r"(--[a-z-]+)", words):
                check(flag in known, f"{path.name}: {command} has no {flag}")
# A pod that loads its model, or gets over a lost rank, is not killed for it; it gets no requests.
probes = {}
for path in deploy.glob("kubernetes/*.yaml"):
    for kind, asked in re.findall(r"(\w+)Probe:\s+httpGet: \{path: ([^,}]+)", path.read_text()):
        probes.setdefault(kind, set()).add(asked)
        good = {"/live"} if kind in ("liveness", "startup") else {"/ready", "/health"}
        check(asked in good, f"{path.name}: the {kind} probe asks {asked}, not {' or '.join(good)}")
check({"liveness", "readiness"} <= set(probes), f"only {set(probes)} probes were found")

if shutil.which("haproxy"):
    run = subprocess.run(["haproxy", "-c", "-f", deploy / "haproxy.cfg"], capture_output=True,
                         text=True)
    check(run.returncode == 0, f"haproxy.cfg: {run.stderr}")

if shutil.which("systemd-analyze"):
    for path in deploy.glob("*.service"):
        run = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)
        wrong = [line for line in run.stderr.splitlines() if "is not executable" not in line]
        check(not wrong, f"{path.name}: {wrong}")

# The unit: what it names is what the program looks for, without a home folder.
unit = (deploy / "weft.service").read_text()
settings = dict(re.findall(r"(XDG_\w+)=(\S+)", unit))
credentials = dict(re.findall(r"^LoadCredential=([^:]+):(.*)$", unit, re.MULTILINE))
fallbacks = dict(re.findall(r"^SetCredential=([^:]+):(.+)$", unit, re.MULTILINE))
check(credentials.keys() == fallbacks.keys(), f"weft.service: {credentials}, {fallbacks}")
check(credentials.get("home.key") == settings["XDG_CONFIG_HOME"] + "/weft/clusters/home.key",
      f"weft.service: {credentials}")
named = re.findall(r"/run/credentials/weft.service/(\S+?)\"", (deploy / "weft.toml").read_text())
for name in named:
    check(name in credentials, f"weft.toml: weft.service has no credential {name}")
with tempfile.TemporaryDirectory() as folder:
    given, config = pathlib.Path(folder, "credentials"), pathlib.Path(folder, "config")
    given.mkdir(), config.mkdir()
    env = {"PATH": "/usr/bin:/bin", "XDG_CONFIG_HOME": str(config), "HOME": "/nonexistent",
           "CREDENTIALS_DIRECTORY": str(given)}
    for text, there in ((fallbacks["home.key"], False), ("bizol-ganup-kivat-sotud\n", True)):
        (given / "home.key").write_text(text)
        (given / "home.key").chmod(0o400)
        run = subprocess.run([weft, "hosts", "list", "--json"], capture_output=True, text=True,
                             env=env, timeout=60)
        missing = "there is no cluster 'home'" in run.stderr and str(config) in run.stderr
        check(missing != there, f"a credential of {text!r}: {run.stderr}")

metrics = set(re.findall(r'(?:Make[A-Za-z]+|SetNow)\(\s*"([a-z0-9_]+)"',
                         (root / "src/serve/metrics.cc").read_text()))
board = json.loads((deploy / "grafana.json").read_text())
used = {name for panel in board["panels"] for target in panel["targets"]
        for name in re.findall(r"weft:([a-z0-9_]+)", target["expr"])}
check(len(used) > 10, "grafana.json: hardly any metrics were found")
for name in used:
    check(name.removesuffix("_bucket") in metrics, f"grafana.json: there is no metric {name}")

for fault in faults:
    print(fault, file=sys.stderr)
print(f"{len(names)} flags, {len(used)} metrics; {len(faults)} faults")
sys.exit(1 if faults else 0)
