"""Network namespaces as hosts, a real sshd, and running programs, for tests of several hosts.
Namespaces need root, ip(8), unshare(1) and nsenter(1)."""

import os
import re
import shutil
import signal
import subprocess
import threading

import limits
from wait import until


def why_skipped(*programs):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [name for name in ("ip", "unshare", "nsenter", *programs)
               if shutil.which(name) is None]
    if missing:
        return f"without {', '.join(missing)}"
    if os.geteuid() != 0:
        return "not root: no network namespaces"
    if subprocess.run(["unshare", "-n", "-u", "true"], capture_output=True).returncode != 0:
        return "no network namespaces here"
    return None


class Running:
    """A running program and its output so far."""

    def __init__(self, words, env=None, typed=""):
        self.text = ""
        self.process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)
        self.process.stdin.write(typed)
        self.process.stdin.close()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.text += line

    def await_text(self, pattern, seconds=30):
        return until(lambda: re.search(pattern, self.text),
                     lambda: f"'{pattern}' in:\n{self.text}", limits.limit(seconds))

    def end(self, number=signal.SIGTERM, seconds=20):
        self.process.send_signal(number)
        status = self.process.wait(limits.limit(seconds))
        self.reader.join(5)
        return status


class Namespace:
    """A network namespace with its own host name. It exists while a process sleeps in it."""

    def __init__(self, name="host"):
        self.name = name
        self.space = subprocess.Popen(["unshare", "-n", "-u", "sleep", "infinity"])
        for kind in ("net", "uts"):
            own = os.readlink(f"/proc/self/ns/{kind}")
            until(lambda: os.readlink(f"/proc/{self.space.pid}/ns/{kind}") != own, "unshare(1)",
                  process=self.space, pause_s=0.005)
        self.do("hostname", name)
        self.do("ip", "link", "set", "lo", "up")

    def words(self, *words):
        return ["nsenter", "-t", str(self.space.pid), "-n", "-u", *words]

    def do(self, *words):
        subprocess.run(self.words(*words), check=True, capture_output=True)

    def close(self):
        self.space.kill()
        self.space.wait()


def cable(one, one_end, other, other_end):
    one.do("ip", "link", "add", one_end, "type", "veth", "peer", "name", other_end, "netns",
           str(other.space.pid))
    for host, end in ((one, one_end), (other, other_end)):
        host.do("ip", "link", "set", end, "up")


def serve_ssh(there, address, folder, sshd_lines="", ssh_lines=""):
    """Starts an sshd for one key in the namespace, and writes a configured ssh client to
    FOLDER/bin. Returns the listening sshd; the caller ends it."""
    for name in ("host", "id"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"],
                       check=True)
    os.makedirs("/run/sshd", exist_ok=True)
    os.chmod(folder, 0o700)
    with open(f"{folder}/sshd.conf", "w") as file:
        file.write(f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/id.pub\nStrictModes no\n"
                   f"UsePAM no\nPidFile none\nListenAddress {address}\n{sshd_lines}")
    log = f"{folder}/sshd.log"
    sshd = subprocess.Popen(there.words(shutil.which("sshd"), "-D", "-f", f"{folder}/sshd.conf",
                                        "-E", log))
    until(lambda: os.path.exists(log) and "listening" in open(log).read(), "sshd listens",
          process=sshd)
    os.mkdir(f"{folder}/bin")
    with open(f"{folder}/bin/ssh", "w") as file:
        file.write(f"#!/bin/sh\nexec {shutil.which('ssh')} -F {folder}/ssh.conf -l root \"$@\"\n")
    os.chmod(f"{folder}/bin/ssh", 0o755)
    with open(f"{folder}/ssh.conf", "w") as file:
        file.write(f"{ssh_lines}Host *\nIdentityFile {folder}/id\nStrictHostKeyChecking no\n"
                   f"UserKnownHostsFile {folder}/known\nLogLevel ERROR\n")
    return sshd
