#!/usr/bin/env python3
"""The .deb and the tar on fresh roots of Debian 12, Debian 13 and Ubuntu 24.04: follows
docs/install.md as a user would.

    roots_test.py BUILD ROOT [UNITTEST ARGUMENT...]

Roots come from bring_roots (tools/setup.sh). Skips missing roots; skips the test (status 77) if all
are missing.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import roots  # noqa: E402

PATIENCE = 900
QUESTION = ("--greedy", "-p", "What is 47 + 38?", "-t", "1")
RELEASES = ("bookworm", "trixie", "noble")


def pack(kind, folder):
    done = subprocess.run(["cpack", "--config", BUILD / "CPackConfig.cmake", "-G", kind, "-B",
                           folder, "-D", "CPACK_PACKAGE_CONTACT=Who Packs <packs@debian.org>"],
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="weft-packages-")
        place = pathlib.Path(cls.folder.name)
        pack("DEB", place)
        pack("TGZ", place)
        (cls.deb,) = place.glob("weft_*.deb")
        (cls.tar,) = place.glob("*.tar.gz")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def host(self, release):
        reason = roots.why_skipped(release)
        if reason is not None:
            self.skipTest(reason)
        host = roots.Root(release, "fresh")
        self.addCleanup(host.close)
        host.put(ROOT / "models/abacus/model.gguf", f"{host.home}/model.gguf")
        return host

    def answers(self, host, weft="weft", **options):
        """Checks as the root's user that weft names its commit, and that two ranks answer."""
        version = json.loads(host.run(weft, "--version", "--json", user="me", **options).stdout)
        here = json.loads(subprocess.run([BUILD / "weft", "--version", "--json"], check=True,
                                         capture_output=True, text=True).stdout)
        self.assertEqual(version["commit"], here["commit"])
        done = host.run(weft, "run", "model.gguf", *QUESTION, "--local", "2", user="me", **options)
        self.assertIn("85", done.stdout)

    def unpack(self, host):
        """Unpacks as in docs/install.md."""
        host.put(self.tar, f"{host.home}/{self.tar.name}")
        (line,) = re.findall(r"^(mkdir -p ~/\.local && tar .*?)(?:\s+#.*)?$",
                             (ROOT / "docs/install.md").read_text(), re.MULTILINE)
        host.sh(line.replace("weft-0.1.0-Linux-x86_64.tar.gz", self.tar.name), user="me")
        return line

    def test_the_deb_on_debian_12(self):
        host = self.host("bookworm")
        host.put(self.deb, f"{host.home}/{self.deb.name}")
        (line,) = re.findall(r"^sudo (apt install \./weft_\S+)",
                             (ROOT / "docs/install.md").read_text(), re.MULTILINE)
        words = line.replace("weft_0.1.0_amd64.deb", self.deb.name).split()
        host.apt(f"{host.home}/{words[-1].removeprefix('./')}", recommends=True)
        self.answers(host)
        # The package has man pages, completion and units, and can be removed again.
        host.apt("man-db", "bash-completion")
        shown = host.sh("MANWIDTH=80 man weft-train | cat", user="me").stdout
        if "minimized" not in shown:  # (images leave pages out)
            self.assertRegex(shown, r"(?m)^NAME$")
        offered = host.run("bash", "-c", COMPLETE, user="me").stdout.split()
        self.assertIn("--output-dir", offered)
        self.assertTrue(host.file("/usr/share/doc/weft/copyright").exists())
        host.apt("systemd", "procps")
        checked = host.sh("systemd-analyze verify /usr/lib/systemd/system/weft*.service "
                          "/lib/systemd/system/weft*.service 2>&1", status=None).stdout
        for fault in checked.splitlines():
            self.assertNotIn("weft", fault.split(":")[0], checked)
        host.run("apt-get", "remove", "-y", "-q", "weft")
        self.assertEqual(host.sh("command -v weft", status=None).returncode, 127)
        self.assertFalse(host.file("/usr/share/man/man1/weft.1").exists())

    def test_the_deb_of_another_release(self):
        host = self.host("trixie")
        host.put(self.deb, "/tmp/weft.deb", user="root")
        done = host.run("apt-get", "install", "-y", "/tmp/weft.deb", status=None, online=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout + done.stderr, r"libfmt9.*(not installable|no installation)")
        # If it is only unpacked, the loader's error names the missing library (status 127).
        host.run("dpkg-deb", "-x", "/tmp/weft.deb", "/opt/weft")
        done = host.run("/opt/weft/usr/bin/weft", "--version", status=127)
        self.assertRegex(done.stderr, r"lib\S+: cannot open shared object file")

    def test_the_tar(self):
        tried = []
        for release in RELEASES:
            with self.subTest(release):
                host = self.host(release)
                self.unpack(host)
                self.answers(host)
                # Nothing of the system's but the C and C++ libraries was loaded.
                loaded = host.sh("LD_TRACE_LOADED_OBJECTS=1 ~/.local/bin/weft", user="me").stdout
                self.assertNotIn("not found", loaded)
                for name, path in re.findall(r"^\s*(\S+) => (\S+)", loaded, re.MULTILINE):
                    if not re.match(r"lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s)\.so", name):
                        self.assertIn("/.local/bin/../lib/weft/carried/", path, name)
                host.apt("man-db")
                shown = host.sh("MANWIDTH=80 man -l ~/.local/share/man/man1/weft.1 | cat",
                                user="me").stdout
                self.assertRegex(shown, r"(?m)^NAME$")
                offered = host.run("bash", "-c", COMPLETE.replace(
                    "/usr/share", "~/.local/share"), user="me").stdout.split()
                self.assertIn("--output-dir", offered)
                tried.append(release)
        self.assertTrue(tried)
        print(f"the tar answered on {', '.join(tried)}", file=sys.stderr)

    def test_the_tar_without_a_home_or_a_writable_folder(self):
        """As a service: another user's tree, no HOME, no writable folder."""
        host = self.host("trixie")
        self.unpack(host)
        host.sh(f"mkdir /opt/weft && cp -a {host.home}/.local/. /opt/weft && "
                f"cp {host.home}/model.gguf /opt && useradd -r -M -d /nonexistent nobody2")
        done = host.sh("cd / && unset HOME && exec setpriv --reuid nobody2 --clear-groups "
                       "/opt/weft/bin/weft run /opt/model.gguf --greedy -p 'What is 47 + 38?' -t 1")
        self.assertIn("85", done.stdout)


# The completions of `weft train --out`.
COMPLETE = """
. /usr/share/bash-completion/completions/weft
COMP_WORDS=(weft train --out) COMP_CWORD=2 COMP_LINE='weft train --out' COMP_POINT=16
_weft 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""

if __name__ == "__main__":
    BUILD, ROOT = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
    why = [roots.why_skipped(release) for release in RELEASES]
    if all(why):
        print(f"skipped: {why[0]}")
        sys.exit(77)
    unittest.main(verbosity=2)
