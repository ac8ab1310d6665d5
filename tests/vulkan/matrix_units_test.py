#!/usr/bin/env python3
"""The kernels for matrix units on a lavapipe that has cooperative matrices (Mesa 26), without
their emulation: in a root of Debian 13 with Mesa of its backports, with a program that the root's
glslc compiled the shaders of.

    matrix_units_test.py SOURCE BUILD [UNITTEST ARGUMENT...]

Builds vulkan_tests in BUILD/matrix-units. Roots come from bring_roots (tools/setup.sh). Exit status
77: there is none.
"""
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import roots  # noqa: E402
from limits import limit  # noqa: E402

RELEASE = "trixie"
PATIENCE = 3000
# glslc with the loader and libraries of its root. The root's path differs between runs, and this
# file must not: CMake compiles all shaders again if it is newer.
GLSLC = """#!/bin/sh
exec "$WEFT_TEST_GLSLC_ROOT/lib64/ld-linux-x86-64.so.2" \\
    --library-path "$WEFT_TEST_GLSLC_ROOT/usr/lib/x86_64-linux-gnu" \\
    "$WEFT_TEST_GLSLC_ROOT/usr/bin/glslc" "$@"
"""
# Lavapipe takes half a minute to compile a kernel. These tests share their kernels.
TESTS = ("VulkanUnits.*", "VulkanMatrix.HalvesAreExact", "VulkanMatrix.LargeTiles",
         "VulkanGemm.MatrixUnitsScaleRowsAndColumns", "VulkanAttentionMatrix.Scores*",
         "VulkanAttentionMatrix.NotANumberStaysInItsRows", "VulkanMatrixModels.*")
COUNT = 8


def bring_packages(root):
    """Installs glslc and Mesa of backports in it. (Not the validation layer: Debian 13's compares
    the default size of a kernel's matrices with the device's, not the specialized one.)"""
    root.apt("ca-certificates")  # updates apt's lists if they are missing
    (mirror,) = {line.split()[1] for line in root.file("/etc/apt/sources.list").read_text()
                 .splitlines() if line.startswith("deb ")}
    root.file("/etc/apt/sources.list.d/backports.list").write_text(
        f"deb {mirror} {RELEASE}-backports main\n")
    root.run("apt-get", "update", "-q", "-o", "APT::Sandbox::User=root", online=True)
    root.apt(f"mesa-vulkan-drivers/{RELEASE}-backports", "libvulkan1", "glslc")


def build(root):
    """Builds vulkan_tests with the root's glslc."""
    folder = BUILD / "matrix-units"
    folder.mkdir(exist_ok=True)
    glslc = folder / "glslc"
    if not glslc.exists() or glslc.read_text() != GLSLC:
        glslc.write_text(GLSLC)
        glslc.chmod(0o755)
    env = roots.os.environ | {"WEFT_TEST_GLSLC_ROOT": str(root.file("/")).rstrip("/")}
    for words in (["cmake", "--preset", "release", "-B", folder, f"-DGLSLC={glslc}",
                   "-DWEFT_SMALL_MATRIX_UNITS=ON"],
                  ["cmake", "--build", folder, "--target", "vulkan_tests"]):
        done = subprocess.run(words, cwd=SOURCE, env=env, capture_output=True, text=True,
                              timeout=limit(PATIENCE), check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder / "tests/vulkan_tests"


class Units(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = roots.Root(RELEASE, "units")
        cls.addClassCleanup(cls.root.close)
        bring_packages(cls.root)
        cls.tests = build(cls.root)
        for path in (SOURCE, cls.tests.parents[1]):  # at the same place, with its data
            cls.root.run("mkdir", "-p", path)
            subprocess.run(["nsenter", "-t", str(cls.root.pid), "-m", "mount", "--bind", path,
                            f"{cls.root.place}/root{path}"], check=True)
        cls.bring_libraries()

    @classmethod
    def bring_libraries(cls):
        """Puts the libraries of this machine that the root lacks in /weft."""
        linked = subprocess.run(["ldd", cls.tests], capture_output=True, text=True, check=True)
        cls.root.run("mkdir", "-p", "/weft")
        for name, path in re.findall(r"(\S+) => (/\S+)", linked.stdout):
            if not cls.root.file(f"/usr/lib/x86_64-linux-gnu/{name}").exists():
                cls.root.put(path, f"/weft/{name}", user="root")

    def test_kernels(self):
        done = self.root.run("env", "LD_LIBRARY_PATH=/weft", "WEFT_TEST_MATRIX_UNIT=8x8x8",
                             f"MESA_SHADER_CACHE_DIR={self.tests.parents[1]}/mesa", self.tests,
                             f"--gtest_filter={':'.join(TESTS)}", seconds=PATIENCE, status=None)
        self.assertEqual(done.returncode, 0, done.stdout[-5000:] + done.stderr[-3000:])
        self.assertNotIn("SKIPPED", done.stdout)
        self.assertIn(f"[  PASSED  ] {COUNT} tests", done.stdout)


if __name__ == "__main__":
    SOURCE, BUILD = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    WHY = roots.why_skipped(RELEASE)
    if WHY is not None:
        print(f"skipped: {WHY}", file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
