"""docs/two-mini-pcs.md as a reader types it: each command of the page, as printed, on two fresh
hosts (Debian 12 with the package, Debian 13 with the tar) joined by one cable without addresses,
and `weft hosts add` to a third by a real sshd.

    page_test.py BUILD ROOT [4b]      4b: only that step

A small model replaces the model of 142 GB: $WEFT_MODEL, or models/abacus. Needs root and the
roots of bring_roots (tools/setup.sh); else skips (status 77). The test fails if it does not type a
command of the page, or looks for a command that the page lacks.
"""

import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parent / "docs")]
import pages  # noqa: E402
import roots  # noqa: E402
from spaces import Running, limits  # noqa: E402
from wait import until  # noqa: E402

PAGE = "docs/two-mini-pcs.md"
REPOSITORY, FILE = "Qwen/Qwen3-235B-A22B-GGUF", "Qwen3-235B-A22B-Q4_K_M.gguf"
PACKAGE, TAR = "weft_0.1.0_amd64.deb", "weft-0.1.0-Linux-x86_64.tar.gz"
# Commands that cannot run in a root without a network, systemd, GPU and laptop.
NOT_TYPED = (
    "sudo apt install ./thunderbolt", "sudo modprobe", "ibv_devices", "weft doctor --check",
    "sudo ./quickstart", "(cd build", "sudo apt install mesa", "sudo usermod", "weft inspect",
    "mkdir -p ~/.config/systemd", "systemctl", "sudo loginctl", "ssh -L", "weft key new",
    "weft serve hf:Qwen/Qwen3-235B-A22B-GGUF:Q4_K_M --cluster home --host")
WORDS = re.compile(r"(?:[a-z]{5}-){5}[a-z]{5}")


class Page:
    """The commands of the page; each must be typed at least once."""

    def __init__(self, root):
        text = (root / PAGE).read_text()
        self.left = {}
        for block in pages.blocks(PAGE, text):
            printed = block.language == "text" and not block.text.startswith("weft up  ")
            if block.language in pages.SHELLS or (block.language == "text" and not printed):
                for line in pages.commands(block.text):
                    self.left[line] = line
        for start in NOT_TYPED:
            names = [line for line in self.left if line.startswith(start)]
            assert names, f"the page has no command '{start}'"
            for line in names:
                del self.left[line]
        self.all = dict(self.left)
        self.text = text
        (self.toml,) = [block.text for block in pages.blocks(PAGE, text)
                        if block.language == "toml"]

    def line(self, line):
        """Finds a command that must be on the page; returns what the reader types for it."""
        assert line in self.all, f"'{line}' is not on the page: {sorted(self.all)}"
        self.left.pop(line, None)
        return self.all[line]

    def says(self, pattern):
        """Checks a program's line that the page shows."""
        assert re.search(pattern, self.text, re.MULTILINE), f"the page does not show {pattern}"
        return pattern


class Reader:
    """A user at a host."""

    def __init__(self, page, host):
        self.page, self.host, self.running = page, host, []

    def words(self, line):
        return self.host.words("bash", "-c", "set -o pipefail; " + line, user="me",
                               more=("HF_HUB_OFFLINE=1",))

    def type(self, line, status=0, seconds=180):
        """Types a command and waits for its end; returns the output."""
        typed = self.page.line(line)
        done = subprocess.run(self.words(typed), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, errors="replace",
                              timeout=limits.limit(seconds))
        assert status is None or done.returncode == status, \
            f"{self.host.name}: {typed}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def start(self, line, typed=""):
        """Types a command that keeps running, and its input."""
        running = Running(self.words("exec " + self.page.line(line)), os.environ, typed)
        self.running.append(running)
        return running

    def end(self):
        """Ends running programs like a shutdown."""
        self.host.run("pkill", "-TERM", "-x", "weft")
        for running in self.running:
            status = running.process.wait(limits.limit(60))
            assert status == 0, f"{status}: {running.text}"

    def close(self):
        for running in self.running:
            if running.process.poll() is None:
                running.process.kill()
                running.process.wait()


def bring_model(host, model):
    """The model's name in the Hub's cache, as if its 142 GB had been downloaded, and
    ~/model.gguf."""
    folder = (f"{host.home}/.cache/huggingface/hub/models--" + REPOSITORY.replace("/", "--"))
    content, commit = hashlib.sha256(model.read_bytes()).hexdigest(), "c" * 40
    host.put(model, f"{folder}/blobs/{content}")
    host.sh(f"mkdir -p {folder}/refs {folder}/snapshots/{commit} && printf {commit} "
            f">{folder}/refs/main && ln -s ../../blobs/{content} "
            f"{folder}/snapshots/{commit}/{FILE} && ln -s {folder}/blobs/{content} ~/model.gguf",
            user="me")


def a_host(release, name, model, packages=()):
    """A new desktop PC: a user with sudo."""
    host = roots.Root(release, name)
    host.apt("sudo", "iproute2", "procps", *packages)
    host.sh("echo 'me ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/me && chmod 440 /etc/sudoers.d/me")
    bring_model(host, model)
    return host


def lay_cable(one, other):
    one.do("ip", "link", "add", "enp1s0f0", "type", "veth", "peer", "name", "enp1s0f0", "netns",
           str(other.pid))


def install(reader, package, tar):
    """Step 3: the package if there is one for this release, else the tar."""
    host = reader.host
    if host.release == "bookworm":
        host.put(package, f"{host.home}/{PACKAGE}")
        # (apt asks, and the host does not have this machine's network.)
        typed = reader.page.line(f"sudo apt install ./{PACKAGE}").removeprefix("sudo apt install ")
        host.apt(typed.replace("./", f"{host.home}/"))
    else:
        host.put(tar, f"{host.home}/{TAR}")
        reader.type(f"mkdir -p ~/.local && tar -xzf {TAR} -C ~/.local --strip-components 1")
    return reader.type("weft --version").splitlines()[0]


def await_line(reader, line, pattern, seconds=60):
    def said():
        text = reader.type(line)
        return text if re.search(pattern, text, re.MULTILINE) else None
    return until(said, pattern, limits.limit(seconds))


def read_from_1_to_5(a, b, package, tar):
    page = a.page
    for reader in (a, b):
        said = reader.type("ip -brief link")
        assert re.search(r"^enp1s0f0\S* +DOWN", said, re.MULTILINE), said
        reader.type("sudo ip link set enp1s0f0 up")
    assert re.search(r"^enp1s0f0\S* +UP", a.type("ip -brief link"), re.MULTILINE)
    assert install(a, package, tar) == install(b, package, tar)
    for machines, layout in (("roce", "tp2"), ("10gbe", "tp2")):
        said = a.type(f"weft plan qwen3-235b-a22b:q4_k_m --machines 2xstrix-halo,{machines} "
                      "--context 8192")
        assert re.search(rf"^{layout} +2 .*<- fastest$", said, re.MULTILINE), said
    first = a.start("weft up")
    assert page.says("On each other host of this cluster, run") in first.await_text(
        r"(?s).*serves cluster 'home' at port 7000; Ctrl-C ends").group(0)
    words = first.await_text(r"(?m)^    (" + WORDS.pattern + ")$").group(1)
    second = b.start("weft up -", words + "\n")
    shown = page.says(r"^weft: found: enp1s0f0 at enp1s0f0 of b, 10 Gbit/s$")
    first.await_text("(?m)" + shown)
    second.await_text("(?m)" + shown.replace("of b", "of a"))
    key = b.host.file(f"{b.host.home}/.config/weft/clusters/home.key")
    assert key.read_text() == words + "\n" and key.stat().st_mode & 0o777 == 0o600
    page.says(r"^  a enp1s0f0 - b enp1s0f0  10 Gbit/s")
    said = await_line(a, "weft hosts", r"^  a enp1s0f0 - b enp1s0f0  10 Gbit/s$")
    assert re.search(r"^b +\S+ GiB  0\.1\.0 ", said, re.MULTILINE), said
    assert "BW average[MiB/sec]" in a.type("weft net bw --cluster home")
    a.type("weft doctor --cluster home", status=None)
    for reader in (a, b):
        assert re.search(r"\d+ checks|\[", reader.type("weft doctor", status=None))


def read_6(a, b):
    """A model over two hosts under the 235B's name."""
    hub = f"hf:{REPOSITORY}:Q4_K_M"
    for reader in (a, b):
        reader.type(f"weft pull {hub}")
    ask = ("weft", "run", "model.gguf", "--greedy", "-p", "Hello")
    alone, together = (a.host.run(*ask, *words, user="me").stdout
                       for words in ((), ("--cluster", "home")))
    assert alone.strip() == together.strip(), (alone, together)
    assert "decode: " in a.type('weft run model.gguf -p "Hello" --cluster home')
    assert "decode: " in a.type(f'weft run {hub} -p "Hello" --cluster home --weights-from 0')
    said = b.type(f'weft run {hub} -p "Hello" --cluster home -v')
    assert "decode: " in said, said
    a.page.says(r"^weft: rank 1 is b, \[fe80::\S+%enp1s0f0\]:7000$")
    assert re.search(r"(?m)^weft: rank 1 is a, \[fe80::\S+%enp1s0f0\]:7000$", said), said
    a.page.says(r"^weft: rank 0 \(a\) - rank 1 \(b\): tcp, encrypted, fe80::\S+ "
                r"\(enp1s0f0\) - fe80::")
    assert re.search(r"(?m)^weft: rank 0 \(b\) - rank 1 \(a\): tcp, encrypted, "
                     r"fe80::\S+ \(enp1s0f0\) - fe80::\S+ \(enp1s0f0\), 10 Gbit/s$", said), said
    server = a.start(f"weft serve {hub} --cluster home")
    server.await_text(r"serving .* \(2 ranks", seconds=180)
    ask = ("import json, sys, urllib.request as r; print(json.load(r.urlopen(r.Request("
           "'http://127.0.0.1:8080/v1/completions', json.dumps({'prompt': 'Hello', "
           "'max_tokens': 4}).encode(), {'Content-Type': 'application/json'})))['choices'])")
    done = subprocess.run(["nsenter", "-t", str(a.host.pid), "-n", sys.executable, "-c", ask],
                          capture_output=True, text=True, timeout=limits.limit(120))
    assert done.returncode == 0 and "text" in done.stdout, done


def let_ssh_in(here, there):
    """An sshd on `there` that me@here reaches by name without a password."""
    address = "10.98.7.3"
    here.sh(f"ip addr add 10.98.7.1/24 dev enp2s0 && ip link set enp2s0 up && "
            f"echo {address} {there.name} >>/etc/hosts")
    there.sh(f"ip addr add {address}/24 dev enp2s0 && ip link set enp2s0 up && mkdir -p /run/sshd")
    here.sh("mkdir -p -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519 && "
            "echo 'StrictHostKeyChecking accept-new' >~/.ssh/config", user="me")
    public = here.file(f"{here.home}/.ssh/id_ed25519.pub").read_text()
    there.sh(f"mkdir -p -m 700 ~/.ssh && echo '{public}' >~/.ssh/authorized_keys && "
             "chmod 600 ~/.ssh/authorized_keys", user="me")
    return Running(there.words("/usr/sbin/sshd", "-D", "-e"), os.environ)


def read_4b(page, model, tar, opened):
    """`weft hosts add me@b` from a host with the tar to a host of another release without weft."""
    here = a_host("trixie", "a", model, ["openssh-client"])
    opened.append(here)
    there = a_host("bookworm", "b", model, ["openssh-server"])
    opened.append(there)
    lay_cable(here, there)
    here.do("ip", "link", "add", "enp2s0", "type", "veth", "peer", "name", "enp2s0", "netns",
            str(there.pid))
    for host in (here, there):
        host.do("ip", "link", "set", "enp1s0f0", "up")
    sshd = let_ssh_in(here, there)
    reader = Reader(page, here)
    install(reader, None, tar)
    try:
        said = reader.type("weft hosts add me@b")
        assert "no weft is there; copying" in said, said
        assert "b is a host of cluster 'home'" in said, said
        versions = [host.run(f"{host.home}/.local/bin/weft", "--version", user="me").stdout
                    for host in (here, there)]
        assert versions[0].splitlines()[0] == versions[1].splitlines()[0], versions
        await_line(reader, "weft hosts", r"^  a enp1s0f0 - b enp1s0f0  10 Gbit/s$")
        reader.type('weft run model.gguf -p "Hello" --cluster home')
        assert 'ssh = "me@b"' in here.file(
            f"{here.home}/.config/weft/clusters/home.toml").read_text()
        done = here.run("weft", "hosts", "remove", "b", user="me")
        assert done.stderr == "", done
        # The page's file is read; c is called by its address and does not exist.
        here.file(f"{here.home}/.config/weft/clusters/home.toml").write_text(page.toml)
        done = here.run("weft", "run", "model.gguf", "-p", "Hello", "--cluster", "home", user="me",
                        status=None)
        assert done.returncode == 1 and "b was not found" in done.stderr, done
    finally:
        sshd.process.kill()
        sshd.process.wait()


def pack(build, folder):
    for kind in ("DEB", "TGZ"):
        subprocess.run(["cpack", "--config", build / "CPackConfig.cmake", "-G", kind, "-B", folder,
                        "-D", "CPACK_PACKAGE_CONTACT=Who Packs <packs@debian.org>"], check=True,
                       capture_output=True)
    (package,), (tar,) = folder.glob("weft_*.deb"), folder.glob("*.tar.gz")
    return package, tar


def read_all_but_4b(page, model, package, tar, opened, done):
    readers = []
    try:
        for release, name in (("bookworm", "a"), ("trixie", "b")):
            opened.append(a_host(release, name, model))
            readers.append(Reader(page, opened[-1]))
        a, b = readers
        lay_cable(a.host, b.host)
        done("two hosts and a cable")
        read_from_1_to_5(a, b, package, tar)
        done("steps 1 to 5")
        read_6(a, b)
        done("step 6")
        a.end()
        b.end()
    finally:
        for each in readers:
            each.close()


def main(build, root, only_4b):
    model = pathlib.Path(os.environ.get("WEFT_MODEL") or root / "models/abacus/model.gguf")
    page = Page(root)
    opened = []
    begin = time.monotonic()

    def done(what):
        print(f"{what}: {time.monotonic() - begin:.1f} s", flush=True)
    with tempfile.TemporaryDirectory(prefix="weft-page-") as folder:
        try:
            package, tar = pack(build, pathlib.Path(folder))
            done("packed")
            if not only_4b:
                read_all_but_4b(page, model, package, tar, opened, done)
            read_4b(page, model, tar, opened)
            done("step 4b")
        finally:
            for host in opened:
                host.close()
    assert only_4b or not page.left, f"commands that this test does not type: {page.left}"
    print(f"{len(page.all) - len(page.left)} of {len(page.all)} commands of the page")


if __name__ == "__main__":
    reason = roots.why_skipped("bookworm", "trixie")
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(77)
    main(*(pathlib.Path(word).resolve() for word in sys.argv[1:3]), sys.argv[3:] == ["4b"])
