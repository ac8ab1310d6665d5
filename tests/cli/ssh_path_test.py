"""`weft doctor --hosts` over a way that loses large packets: two hosts of MTU 9000 in network
namespaces, a bridge of MTU 1500 between them that drops what is larger and says nothing, and a real
sshd. The doctor must say that, and nothing of the kind once the ends have 1500, too.

    ssh_path_test.py WEFT

Needs root, ip(8), ping, ssh, sshd and ssh-keygen; skips (status 77) where one is missing.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

NEEDED = ("ip", "ping", "ssh", "sshd", "ssh-keygen", "unshare", "nsenter")


def why_skipped():
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"without {', '.join(missing)}"
    if os.geteuid() != 0:
        return "not root: no network namespaces"
    if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode != 0:
        return "no network namespaces here"
    return None


class Namespace:
    """A network namespace that lives as long as a process that sleeps in it."""

    def __init__(self):
        self.process = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self.process.pid}/ns/net") == own:
            pass  # until unshare(1) has entered it

    def words(self, *words):
        return ["nsenter", "-t", str(self.process.pid), "-n", *words]

    def run(self, *words, **options):
        return subprocess.run(self.words(*words), check=True, **options)

    def end(self):
        self.process.kill()
        self.process.wait()


def connect(here, switch, there):
    """A bridge in `switch` whose ports take 1500 bytes; the ends believe in 9000."""
    switch.run("ip", "link", "add", "br0", "type", "bridge")
    for end, port, address in ((here, "p1", "10.99.7.1/24"), (there, "p2", "10.99.7.2/24")):
        switch.run("ip", "link", "add", port, "type", "veth", "peer", "name", "fabric0",
                   "netns", str(end.process.pid))
        switch.run("ip", "link", "set", port, "mtu", "1500", "master", "br0", "up")
        # One packet at a time: a veth lets through what is to be cut later.
        end.run("ip", "link", "set", "fabric0", "mtu", "9000", "gso_max_segs", "1", "up")
        end.run("ip", "link", "set", "lo", "up")
        end.run("ip", "addr", "add", address, "dev", "fabric0")
    switch.run("ip", "link", "set", "br0", "up")


def serve_ssh(there, folder):
    """A sshd for one key, and a client's ssh with its configuration in the folder bin."""
    for name in ("host", "id"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"],
                       check=True)
    os.makedirs("/run/sshd", exist_ok=True)
    with open(f"{folder}/sshd.conf", "w") as file:
        file.write(f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/id.pub\nStrictModes no\n"
                   f"UsePAM no\nPidFile {folder}/sshd.pid\nListenAddress 10.99.7.2\n")
    there.run(shutil.which("sshd"), "-f", f"{folder}/sshd.conf", "-E", f"{folder}/sshd.log")
    os.mkdir(f"{folder}/bin")
    with open(f"{folder}/bin/ssh", "w") as file:
        file.write(f"#!/bin/sh\nexec {shutil.which('ssh')} -F {folder}/ssh.conf \"$@\"\n")
    os.chmod(f"{folder}/bin/ssh", 0o755)
    with open(f"{folder}/ssh.conf", "w") as file:
        file.write(f"IdentityFile {folder}/id\nStrictHostKeyChecking no\nUser root\n"
                   f"UserKnownHostsFile {folder}/known\nLogLevel ERROR\n")


def findings(here, folder, weft, timeout_ms):
    environment = dict(os.environ, PATH=f"{folder}/bin:{os.environ['PATH']}")
    ran = subprocess.run(here.words(weft, "doctor", "--hosts", "10.99.7.2", "--json",
                                    "--no-measure", "--remote", weft, "--timeout-ms",
                                    str(timeout_ms)),
                         env=environment, capture_output=True, text=True)
    return json.loads(ran.stdout)["findings"]


def main(weft):
    spaces = [Namespace(), Namespace(), Namespace()]
    here, switch, there = spaces
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o700)
            connect(here, switch, there)
            serve_ssh(there, folder)
            try:
                lost = findings(here, folder, weft, 5000)
                lost = [f for f in lost if f["check"] == "reachable"]
                assert len(lost) == 1, lost
                assert "packets of 9000 bytes do not arrive" in lost[0]["read"], lost
                assert "sudo ip link set dev fabric0 mtu 1500" in lost[0]["fix"], lost
                for end in (here, there):
                    end.run("ip", "link", "set", "fabric0", "mtu", "1500")
                whole = findings(here, folder, weft, 120000)
                assert not [f for f in whole if f["check"] == "reachable"], whole
                assert len(whole) > 3, whole
            finally:
                with open(f"{folder}/sshd.pid") as file:
                    os.kill(int(file.read()), 15)
    finally:
        for space in spaces:
            space.end()


if __name__ == "__main__":
    reason = why_skipped()
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(77)
    main(os.path.abspath(sys.argv[1]))
