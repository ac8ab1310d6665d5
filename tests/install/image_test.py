#!/usr/bin/env python3
"""deploy/Containerfile without a container engine: executes its lines, each stage in a fresh root
of Debian 13, with the files that .dockerignore permits, and runs the image's command as its user.

    image_test.py BUILD ROOT

Builds weft from scratch (minutes; uses this machine's ccache if there is one). Needs the root of
bring_roots (tools/setup.sh); else skips (status 77).
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import roots  # noqa: E402

BASES = {"debian:13": "trixie", "debian:13-slim": "trixie"}
BUILD_SECONDS = 3000


def ignored_by(patterns):
    """As Docker reads .dockerignore: each pattern matches the whole path, and ! includes files
    again."""
    rules = []
    for line in patterns.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        keep = line.startswith("!")
        parts = line.lstrip("!").strip("/").split("/")
        text = ""
        for part in parts:
            if part == "**":
                text += "(?:[^/]+/)*"
            else:
                one = re.escape(part).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
                text += one + "/"
        rules.append((keep, re.compile(text.rstrip("/") + "(?:/.*)?")))

    def ignored(path):
        out = False
        for keep, rule in rules:
            if rule.fullmatch(path):
                out = not keep
        return out
    return ignored


def check_ignored_by():
    ignored = ignored_by("/.git\n/build\n/build-*\n**/__pycache__\n**/*.pyc\n# a comment\n*.md\n"
                         "!README.md\n")
    for path in (".git", ".git/config", "build/weft", "build-asan/x", "a/b/__pycache__/c.pyc",
                 "__pycache__", "x.pyc", "a/x.pyc", "CHANGELOG.md"):
        assert ignored(path), path
    for path in ("src/build/x", "rebuild", "a/.git", "tests/x.py", "README.md", "docs/serve.md"):
        assert not ignored(path), path


def instructions(text):
    """(word, rest) of each instruction, with continued lines joined and without comments."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), rest.strip()


class Stage:
    def __init__(self, base):
        self.root = roots.Root(BASES[base], "image")
        self.folder, self.user = "/", "0"
        self.entry, self.command = [], []

    def run(self, words, status=0, more=()):
        """Runs as this stage's user, with this machine's network."""
        entered = ["nsenter", "-t", str(self.root.pid), "-m", "-u", "-i", "-p", "-r", "--", "env",
                   "-i", f"--chdir={self.folder}", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:"
                   "/usr/bin:/sbin:/bin", *more, "setpriv", "--reuid", self.user, "--regid",
                   self.user, "--clear-groups", *words]
        done = subprocess.run(entered, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=BUILD_SECONDS, check=False)
        assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout[-4000:]}"
        return done.stdout

    def copy(self, source, target):
        """COPY: copies a file or folder into this stage."""
        place = self.root.file(os.path.join(self.folder, target))
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(source, place)

    def copy_context(self, context, target):
        ignored = ignored_by((context / ".dockerignore").read_text())
        place, count = self.root.file(os.path.join(self.folder, target)), 0
        for folder, names, files in os.walk(context):
            below = os.path.relpath(folder, context)
            names[:] = [each for each in names if not ignored(os.path.normpath(f"{below}/{each}"))]
            for each in files:
                path = os.path.normpath(f"{below}/{each}")
                if not ignored(path):
                    (place / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(context / path, place / path, follow_symlinks=False)
                    count += 1
        assert not (place / "build").exists() and not (place / ".git").exists()
        assert count > 1000, count


def with_ccache(stage):
    """Uses this machine's ccache, if it has one, so that nothing is compiled twice."""
    folder = os.environ.get("CCACHE_DIR")
    if not folder or shutil.which("ccache") is None or not os.path.isdir(folder):
        return ()
    stage.root.apt("ccache")
    inside = stage.root.file("/ccache")
    inside.mkdir()
    subprocess.run(["nsenter", "-t", str(stage.root.space.pid), "-m", "mount", "--bind", folder,
                    str(stage.root.place / "root/ccache")], check=True)
    return ("CCACHE_DIR=/ccache", "CMAKE_CXX_COMPILER_LAUNCHER=ccache", "CCACHE_BASEDIR=/weft",
            "CCACHE_NOHASHDIR=1", "CCACHE_MAXSIZE=" + os.environ.get("CCACHE_MAXSIZE", "5G"))


def walk(context, stages):
    """Fills the stages; returns the last one, after all instructions."""
    stage, known, more = None, set(), ()
    for word, rest in instructions((context / "deploy/Containerfile").read_text()):
        known.add(word)
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stage = stages[name or str(len(stages))] = Stage(base)
            more = with_ccache(stage) if name == "build" else ()
        elif word == "COPY":
            *flags, source, target = rest.split()
            if flags:
                (flag,) = flags
                source = stages[flag.removeprefix("--from=")].root.file(source)
                stage.copy(source, target)
            else:
                assert source == ".", rest
                stage.copy_context(context, target)
        elif word == "WORKDIR":
            stage.folder = rest
        elif word == "RUN":
            stage.run(["/bin/sh", "-c", rest], more=more)
        elif word == "USER":
            stage.user = rest
        elif word in ("ENTRYPOINT", "CMD"):
            setattr(stage, "entry" if word == "ENTRYPOINT" else "command", json.loads(rest))
        else:
            raise AssertionError(f"what does {word} do? This test does not know it")
    assert known == {"FROM", "COPY", "WORKDIR", "RUN", "USER", "ENTRYPOINT", "CMD"}, known
    return stage


def check_image(stage, context):
    assert "Subcommands:" in stage.run([*stage.entry, *stage.command])
    version = stage.run([*stage.entry, "--version"])
    assert version.startswith("weft "), version
    # The image has a loader, Mesa's drivers (one computes on the processor), and kernels for matrix
    # units.
    devices = json.loads(stage.run([*stage.entry, "inspect", "--devices", "--json"]))
    assert any("llvmpipe" in gpu["name"] for gpu in devices["gpus"]), devices
    assert devices["shaders"]["count"] > 200 and not devices["shaders"]["lacking"], devices
    # `podman run -v ./models:/models:ro weft run ...`: as its user, who owns nothing.
    stage.root.file("/models").mkdir()
    stage.copy(context / "models/abacus/model.gguf", "/models/model.gguf")
    assert stage.user == "65534"
    said = stage.run([*stage.entry, *shlex.split(
        "run /models/model.gguf --greedy -p 'What is 47 + 38?' --local 2 -t 1")])
    assert "85" in said, said
    # The image listens beyond the host only with keys; a message says so.
    said = stage.run([*stage.entry, "serve", "/models/model.gguf", "--host", "0.0.0.0"], status=2)
    assert "--api-key-file" in said, said


def main():
    context = pathlib.Path(sys.argv[2]).resolve()
    check_ignored_by()
    reason = roots.why_skipped("trixie")
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(77)
    stages = {}
    try:
        last = walk(context, stages)
        check_image(last, context)
    finally:
        for stage in stages.values():
            stage.root.close()
    print(f"{len(stages)} stages; the image answers as user {last.user}")


if __name__ == "__main__":
    main()
