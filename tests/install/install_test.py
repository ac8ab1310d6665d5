#!/usr/bin/env python3
"""Checks the installed tree and the packages: the tree is complete and runs from any folder; the
Debian packages and the tar match docs/install.md.

    install_test.py BUILD ROOT [UNITTEST ARGUMENT...]
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from nightly import nightly, some  # noqa: E402

PATIENCE = 600
MODEL = "models/abacus/model.gguf"


def output(*words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=PATIENCE, check=False, **more)
    assert done.returncode == 0, f"{words}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def answers(self, program, folder):
        """Checks that the program works: it names its commit and answers with a model."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        version = json.loads(output(program, "--version", "--json", cwd=folder, env=env))
        self.assertRegex(version["commit"], r"^([0-9a-f]{7,}(-dirty)?|[\w.+-]+)$")
        answer = output(
    program,
    "run",
    ROOT / MODEL,
    "--greedy",
    "-p",
    "What is 47 + 38?",
    "--local",
    "2",
    "-t",
    "1",
    cwd=folder,
     env=env)
        self.assertIn("85", answer)
        return version


class Tree(Folder):
    """One installed tree."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.dest = pathlib.Path(folder.name)
        cls.tree = cls.dest / "opt/we ft"
        output("cmake", "--install", BUILD, "--prefix", "/opt/we ft",
               env={**os.environ, "DESTDIR": folder.name})

    def test_it_runs_from_elsewhere(self):
        moved = self.folder / "moved to another"
        shutil.copytree(self.tree, moved, symlinks=True)
        version = self.answers(moved / "bin/weft", self.folder)
        here = json.loads(output(BUILD / "weft", "--version", "--json"))
        self.assertEqual(version["mpi_plugins"], here["mpi_plugins"])

    def test_destdir_and_prefix(self):
        tree = self.tree
        self.assertEqual([path.name for path in self.dest.iterdir()], ["opt"])
        files = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
        for name in ("bin/weft", "share/man/man1/weft.1", "share/man/man1/weft-train.1",
                     "share/bash-completion/completions/weft", "share/zsh/site-functions/_weft",
                     "share/fish/vendor_completions.d/weft.fish", "share/doc/weft/LICENSE",
                     "share/doc/weft/docs/install.md", "lib/systemd/system/weft.service"):
            self.assertIn(name, files)
        for name in files:  # of tests or the build nothing
            self.assertNotRegex(name, r"_tests?$|\.cc$|\.a$")
        for path in tree.rglob("*"):
            if path.is_file() and path.stat().st_size < 1 << 20:
                self.assertNotIn(str(BUILD).encode(), path.read_bytes(), path)

    def test_pages_are_those_of_the_program(self):
        tree = self.tree
        pages = {path.name for path in (tree / "share/man/man1").iterdir()}
        made = self.folder / "pages"
        output(tree / "bin/weft", "man", "--all", made)
        self.assertEqual(pages, {path.name for path in made.iterdir()})
        for path in made.iterdir():
            self.assertEqual(path.read_bytes(), (tree / "share/man/man1" / path.name).read_bytes())
        help_text = output(tree / "bin/weft", "--help")
        below = help_text.split("Subcommands:")[1].split("\n\n")[0]
        for name in re.findall(r"^  ([a-z-]+) ", below, re.MULTILINE):
            self.assertIn(f"weft-{name}.1", pages)

    def test_linters_find_nothing_in_pages(self):
        linters = [words for words in (
            ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"],
            ["groff", "-ww", "-man", "-z"], ["mandoc", "-T", "lint", "-W", "warning"])
            if shutil.which(words[0])]
        if not linters:
            self.skipTest("neither man, groff nor mandoc is here")
        made = self.folder / "pages"
        output(BUILD / "weft", "man", "--all", made)
        for page in some(sorted(made.iterdir()), 6):
            self.assertTrue(page.read_text().isascii())
            for words in linters:
                done = subprocess.run([*words, str(page)], capture_output=True, text=True,
                                      timeout=PATIENCE, check=False,
                                      env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
                said = done.stderr if words[0] == "man" else done.stdout + done.stderr
                self.assertEqual((done.returncode, said), (0, ""), (words, page.name))


class Commit(Folder):
    """The source of the commit in `weft --version` (cmake/commit.cmake)."""

    def commit(self, root, *words):
        output("cmake", f"-DROOT={root}", f"-DOUT={self.folder / 'commit.cc'}", *words, "-P",
               ROOT / "cmake/commit.cmake")
        text = (self.folder / "commit.cc").read_text()
        return re.findall(r'return "(.*)";', text)

    def clone(self):
        """A repository of one commit with the files that matter here."""
        root = self.folder / "clone"
        (root / "cmake").mkdir(parents=True)
        shutil.copy(ROOT / "cmake/commit_of_archive.txt", root / "cmake")
        shutil.copy(ROOT / ".gitattributes", root)
        git = ["git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@b", "-c",
               "init.defaultBranch=main"]
        output(*git, "init", "-q")
        output(*git, "add", ".")
        output(*git, "commit", "-q", "-m", "one")
        return root, output(*git, "rev-parse", "HEAD").strip()[:12]

    def test_of_a_clone(self):
        root, commit = self.clone()
        self.assertEqual(self.commit(root)[0], commit)
        self.assertRegex(self.commit(root)[1], r"^\d{4}-\d\d-\d\d$")
        (root / ".gitattributes").write_text("")
        self.assertEqual(self.commit(root)[0], commit + "-dirty")

    def test_of_an_archive(self):
        root, commit = self.clone()
        output("git", "-C", root, "archive", "-o", self.folder / "a.tar", "HEAD")
        # Below a repository that it is no part of.
        unpacked = root / "build/archive"
        unpacked.mkdir(parents=True)
        output("tar", "-xf", self.folder / "a.tar", "-C", unpacked)
        self.assertEqual(self.commit(unpacked)[0], commit)
        self.assertRegex(self.commit(unpacked)[1], r"^\d{4}-\d\d-\d\d$")

    def test_of_neither(self):
        (self.folder / "bare/cmake").mkdir(parents=True)
        shutil.copy(ROOT / "cmake/commit_of_archive.txt", self.folder / "bare/cmake")
        self.assertEqual(self.commit(self.folder / "bare"), ["unknown", ""])
        self.assertEqual(self.commit(self.folder / "bare", "-DGIVEN=v1.2")[0], "v1.2")

    def test_nothing_is_compiled_where_nothing_changed(self):
        root, _ = self.clone()
        self.commit(root)
        before = (self.folder / "commit.cc").stat().st_mtime_ns
        self.commit(root)
        self.assertEqual((self.folder / "commit.cc").stat().st_mtime_ns, before)

    def test_what_may_not_stand_in_a_source(self):
        for given in ('a"; evil', "a" * 65):
            done = subprocess.run(["cmake", f"-DROOT={ROOT}", f"-DOUT={self.folder / 'x.cc'}",
                                   f"-DGIVEN={given}", "-P", ROOT / "cmake/commit.cmake"],
                                  capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("WEFT_COMMIT", done.stderr)


@unittest.skipUnless(shutil.which("dpkg-shlibdeps") and shutil.which("cpack"),
                     "no dpkg-shlibdeps (dpkg-dev) here")
class Debian(Folder):
    def test_packages(self):
        output("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "DEB", "-B", self.folder,
               "-D", "CPACK_PACKAGE_CONTACT=Who Packs <packs@debian.org>")
        packages = {path.name.split("_")[0]: path for path in self.folder.glob("*.deb")}
        plugins = json.loads(output(BUILD / "weft", "--version", "--json"))["mpi_plugins"]
        self.assertEqual(set(packages), {"weft"} | {f"weft-{name}" for name in plugins})
        field = lambda package, name: output("dpkg-deb", "-f", packages[package], name).strip()
        depends = field("weft", "Depends")
        for library in ("libc6 (>=", "libstdc++6", "libcurl4", "libssl3", "libpcre2-8-0"):
            self.assertIn(library, depends)
        for other in ("mpi", "vulkan"):  # looked for at run time
            self.assertNotIn(other, depends)
        self.assertIn("libvulkan1", field("weft", "Recommends"))
        for name in plugins:
            self.assertIn(f"weft-{name}", field("weft", "Suggests"))
            self.assertRegex(field(f"weft-{name}", "Depends"), r"weft \(= .*lib(open)?mpi")
        tree = self.folder / "tree"
        for path in packages.values():
            output("dpkg-deb", "-x", path, tree)
        version = self.answers(tree / "usr/bin/weft", self.folder)
        self.assertEqual(version["mpi_plugins"], plugins)
        if shutil.which("lintian") is None or not nightly():
            self.skipTest("no lintian here, or not ./test --nightly; all else was looked at")
        done = subprocess.run(["lintian", "--fail-on", "none", "--tag-display-limit", "0",
                               *packages.values()], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual([line for line in done.stdout.splitlines() if line.startswith("E:")], [])


@unittest.skipUnless(shutil.which("patchelf") and shutil.which("dpkg-query"),
                     "no patchelf or no dpkg here: docs/install.md")
class Tar(Folder):
    def unpack(self):
        output("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "TGZ", "-B", self.folder)
        archives = list(self.folder.glob("*.tar.gz"))
        self.assertEqual(len(archives), 1)
        with tarfile.open(archives[0]) as archive:
            names = archive.getnames()
        self.assertEqual({name.split("/")[0] for name in names},
                         {archives[0].name.removesuffix(".tar.gz")})
        output("tar", "-xzf", archives[0], "-C", self.folder)
        return self.folder / names[0].split("/")[0]

    def bare_root(self, tree):
        """A root with only the C and C++ libraries, and the tree in some folder."""
        root = self.folder / "root"
        place = root / "any where"
        shutil.copytree(tree, place, symlinks=True)
        loader = re.search(r"\[Requesting program interpreter: (.*)\]",
                           output("readelf", "-lW", BUILD / "weft"))[1]
        listed = output("ldd", BUILD / "weft")
        wanted = [loader] + re.findall(
            r"=> (/\S*/(?:libc|libm|libdl|libpthread|librt|libresolv|libstdc\+\+|libgcc_s)\.so\S*)",
            listed)
        for path in wanted:
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(os.path.realpath(path), target)
            target.chmod(0o755)
        shutil.copyfile(ROOT / MODEL, root / "model.gguf")
        for folder in ("proc", "dev/shm", "tmp"):
            (root / folder).mkdir(parents=True)
        return root

    def test_it_brings_all_that_it_needs(self):
        tree = self.unpack()
        carried = {path.name for path in (tree / "lib/weft/carried").iterdir()}
        self.assertTrue(any("libcurl" in name for name in carried), carried)
        for name in carried:  # drivers of GPUs and of RDMA bring their own
            self.assertNotRegex(name, r"libc\.so|libstdc|libgcc|ibverbs|vulkan|libmpi")
        licences = {path.name for path in (tree / "share/doc/weft/licences").iterdir()}
        self.assertTrue({"README"} < licences)
        self.answers(tree / "bin/weft", self.folder)
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            self.skipTest("the root of nothing but the C libraries needs root and unshare")
        root = self.bare_root(tree)
        inside = (
    "mount -t proc proc proc; mount -t tmpfs tmpfs dev/shm; touch dev/null dev/urandom;"
    "mount --bind /dev/null dev/null; mount --bind /dev/urandom dev/urandom;"
    "exec chroot . '/any where/bin/weft' \"$@\"")
        answer = output("unshare", "-m", "sh", "-c", inside, "sh", "run", "/model.gguf",
                        "--greedy", "-p", "What is 47 + 38?", "--local", "2", "-t", "1", cwd=root,
                        env={"PATH": os.environ["PATH"], "HOME": "/tmp"})
        self.assertIn("85", answer)


if __name__ == "__main__":
    BUILD, ROOT = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
    unittest.main(verbosity=2)
