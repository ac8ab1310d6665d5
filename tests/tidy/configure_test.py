#!/usr/bin/env python3
"""A build folder that was configured before a package was installed finds the package at the next
`build` of tools/setup.sh. The test is a tiny project with Weft's own setup.sh and
mpi_plugins.cmake, and fake MPI compilers, on its own PATH. Weft itself is configured once, as
./quickstart does. The test compiles nothing of Weft."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from nightly import nightly_only  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LISTS = """cmake_minimum_required(VERSION 3.25)
project(tiny LANGUAGES C)
# The wrappers that this machine really has are not to be found.
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)
add_executable(weft main.c)
include(cmake/mpi_plugins.cmake)
file(APPEND ${CMAKE_BINARY_DIR}/configured "${CMAKE_C_COMPILER_VERSION}\\n")
"""
PRESETS = """{"version": 6, "configurePresets": [{"name": "release", "generator": "Ninja",
 "binaryDir": "${sourceDir}/build", "cacheVariables": {"CMAKE_BUILD_TYPE": "Release"}}]}
"""
# What the build asks of a wrapper: the macros of mpi.h, and a plug-in.
WRAPPER = """#!/bin/sh
case "$*" in
    *-dM*) echo "#define {macro} 1"; echo "#define OMPI_MAJOR_VERSION {version}" ;;
    *) while [ $# -gt 1 ]; do [ "$1" != -o ] || echo {version} > "$2"; shift; done ;;
esac
"""
OPENMPI, MPICH = "OPEN_MPI", "MPICH_VERSION"


class Configure(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.bin = self.root / "bin"
        self.put("CMakeLists.txt", LISTS)
        self.put("CMakePresets.json", PRESETS)
        self.put("main.c", "int main(void) { return 0; }\n")
        for name in ("tools/setup.sh", "cmake/mpi_plugins.cmake"):
            self.put(name, (ROOT / name).read_text())
        for name in ("src/net/mpi/plugin.c", "src/net/mpi/abi.h"):
            self.put(name, "")
        self.bin.mkdir()
        for place in ["/usr/bin", "/bin"] + os.environ["PATH"].split(":"):
            for tool in pathlib.Path(place).glob("*") if pathlib.Path(place).is_dir() else ():
                taken = self.bin / tool.name
                if not tool.name.startswith("mpi") and not os.path.lexists(taken):
                    taken.symlink_to(tool)

    def put(self, name, text, mode=0o644):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def wrapper(self, name, macro, version=4):
        self.put(f"bin/{name}", WRAPPER.format(macro=macro, version=version), 0o755)

    def build(self, levels="all"):
        """Builds as ./test does; returns how often the folder has been configured so far."""
        script = f"set -euo pipefail; source tools/setup.sh; build release {levels} all"
        done = subprocess.run([shutil.which("bash"), "-c", script], cwd=self.root, text=True,
                              env=dict(os.environ, PATH=str(self.bin)), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        return len((self.root / "build/configured").read_text().splitlines())

    def plugins(self):
        return sorted(path.name for path in self.root.glob("build/weft_mpi_*.so"))

    def test_an_mpi_that_comes_later_gives_its_plugin(self):
        self.assertEqual(self.build(), 1)
        self.assertEqual(self.plugins(), [])
        self.wrapper("mpicc.openmpi", OPENMPI)
        self.assertEqual(self.build(), 2)
        self.assertEqual(self.plugins(), ["weft_mpi_openmpi.so"])
        self.wrapper("mpicc.mpich", MPICH)
        self.assertEqual(self.build(), 3)
        self.assertEqual(self.plugins(), ["weft_mpi_mpich.so", "weft_mpi_openmpi.so"])
        # Nothing has changed: seconds are not to be spent.
        self.assertEqual(self.build(), 3)

    @nightly_only
    def test_an_mpi_that_went_is_not_asked_for(self):
        self.wrapper("mpicc.openmpi", OPENMPI)
        self.assertEqual(self.build(), 1)
        (self.root / "bin/mpicc.openmpi").unlink()
        self.assertEqual(self.build(), 2)
        self.assertEqual(self.plugins(), [])

    @nightly_only
    def test_another_version_of_an_mpi_gives_another_plugin(self):
        self.wrapper("mpicc.openmpi", OPENMPI)
        self.build()
        self.wrapper("mpicc.openmpi", OPENMPI, version=5)
        subprocess.run(["touch", "-d", "1 hour ago", self.bin / "mpicc.openmpi"], check=True)
        (self.root / "build/toolchain").write_text("that of another version\n")
        self.build()
        self.assertEqual((self.root / "build/weft_mpi_openmpi.so").read_text(), "5\n")

    # ./quickstart builds the kernels of this processor, ./test all; ./quickstart keeps them.
    def test_kernels_of_all_processors_stay(self):
        self.assertEqual(self.build("native"), 1)
        self.assertEqual(self.build("native"), 1)
        self.assertEqual(self.build("all"), 2)
        self.assertEqual(self.build("native"), 2)
        self.assertRegex((self.root / "build/CMakeCache.txt").read_text(),
                         "WEFT_CPU_LEVELS:[A-Z]+=all")

    def test_weft_configures_with_the_kernels_of_this_processor(self):
        done = subprocess.run(["cmake", "-S", ROOT, "-B", self.root / "weft", "-G", "Ninja",
                               "-DCMAKE_BUILD_TYPE=Release", "-DWEFT_CPU_LEVELS=native"],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_another_compiler_is_looked_at_anew(self):
        self.build()
        real = os.path.realpath(self.bin / "cc")
        # Says of itself that it is a later one, on its command line and in its macros.
        self.put("bin/cc", f'#!/bin/sh\n[ "$1" != --version ] || {{ echo cc 99.8.7; exit; }}\n'
                 f'exec {real} -U__GNUC__ -D__GNUC__=99 -U__GNUC_MINOR__ -D__GNUC_MINOR__=8 '
                 f'-U__GNUC_PATCHLEVEL__ -D__GNUC_PATCHLEVEL__=7 -w "$@"\n', 0o755)
        self.assertEqual(self.build(), 2)
        self.assertEqual((self.root / "build/configured").read_text().splitlines()[-1], "99.8.7")
        # A user's own setting is kept.
        cache = self.root / "build/CMakeCache.txt"
        self.assertIn("CMAKE_BUILD_TYPE:STRING=Release", cache.read_text())

    @nightly_only
    def test_a_folder_configured_by_hand_is_looked_at_once(self):
        subprocess.run(["cmake", "--preset", "release", "-DWEFT_MINE=7"], cwd=self.root, check=True,
                       env=dict(os.environ, PATH=str(self.bin)), stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        self.assertEqual(self.build(), 2)
        self.assertEqual(self.build(), 2)
        self.assertIn("WEFT_MINE:UNINITIALIZED=7",
                      (self.root / "build/CMakeCache.txt").read_text())


if __name__ == "__main__":
    unittest.main()
