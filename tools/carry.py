#!/usr/bin/env python3
"""Makes an installed tree run on other distributions: puts the libraries that its program needs into
lib/weft/carried, and lets the program look for them from where it lies.

    tools/carry.py TREE        (TREE/bin/weft; run by `cpack -G TGZ`)

What every system has stays the system's: the C library, so that the tree runs where that is at least
as new as here, and C++'s, which drivers of GPUs need as new as they were built with. Carried ones get
names of their own, so that a driver that is loaded later finds the system's library of that name and
not this one. Each keeps its licence, in share/doc/weft/licences, with the package and version that its
sources are found by. Wants ldd, readelf, patchelf, and dpkg to know where a file comes from.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

# (libresolv and the like come with the C library; libgcc_s with C++'s.)
OF_SYSTEM = re.compile(r"(ld-linux.*|linux-vdso|libc|libm|libdl|librt|libpthread|libresolv|libutil|"
                       r"libnsl|libanl|libstdc\+\+|libgcc_s)\.so[.\d]*$")
MARK = "weft-"


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def needed(path):
    """The names of the libraries that an ELF file asks for itself."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", str(path)))


def libraries(program):
    """Name -> path of all that the program loads, but for the system's."""
    found = {}
    for line in output("ldd", str(program)).splitlines():
        match = re.match(r"\s*(\S+) => (.*?)( \(0x.*)?$", line)
        if not match or OF_SYSTEM.match(match[1]):
            continue
        if not match[2].startswith("/"):
            sys.exit(f"carry.py: {program} needs {match[1]}, which is not here")
        found[match[1]] = pathlib.Path(match[2])
    return found


def package_of(path):
    """(package, version, its copyright file) of a library's file, or None."""
    for name in (path, path.resolve()):
        for each in (str(name), str(name).removeprefix("/usr")):
            run = subprocess.run(["dpkg-query", "-S", each], capture_output=True, text=True)
            if run.returncode == 0:
                package = run.stdout.split(": ")[0]
                version = output("dpkg-query", "-W", "-f=${source:Package} ${source:Version}",
                                 package)
                copyright = pathlib.Path("/usr/share/doc", package.split(":")[0], "copyright")
                return package.split(":")[0], version, copyright
    return None


def rename(path, names):
    """Lets an ELF file ask for carried libraries by the names that they have there."""
    words = []
    for name in needed(path):
        if name in names:
            words += ["--replace-needed", name, MARK + name]
    if words:
        output("patchelf", *words, str(path))


def carry(tree):
    program = tree / "bin/weft"
    folder = tree / "lib/weft/carried"
    licences = tree / "share/doc/weft/licences"
    folder.mkdir(parents=True)
    licences.mkdir(parents=True)
    names = libraries(program)
    rows = []
    for name, path in sorted(names.items()):
        target = folder / (MARK + name)
        shutil.copyfile(path.resolve(), target)
        target.chmod(0o755)
        output("patchelf", "--set-soname", MARK + name, str(target))
        rename(target, names)
        output("patchelf", "--set-rpath", "$ORIGIN", str(target))
        known = package_of(path)
        if known is None:
            sys.exit(f"carry.py: no package has {path}, so its licence is not known")
        package, version, copyright = known
        shutil.copyfile(copyright, licences / package)
        rows.append(f"{MARK + name}  {package}  (Debian source {version})\n")
    rename(program, names)
    output("patchelf", "--set-rpath", "$ORIGIN/../lib/weft/carried", str(program))
    (licences / "README").write_text(
        "Libraries in lib/weft/carried, which are not Weft's, and what they were built from. Each\n"
        "package's file here has its licence. They were copied from Debian as they were; only the\n"
        "names by which they call each other were changed, with patchelf. Sources: apt source\n"
        "PACKAGE=VERSION, or https://snapshot.debian.org. One may be replaced by another build of it.\n\n"
        + "".join(rows))


def oldest_c_library(tree):
    """The version of the C library that the tree needs, as (2, 36)."""
    most = (0, 0)
    for path in [tree / "bin/weft", *(tree / "lib/weft/carried").iterdir()]:
        for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", output("readelf", "-VW", str(path))):
            most = max(most, (int(major), int(minor)))
    return most


def main():
    tree = pathlib.Path(sys.argv[1])
    for tool in ("ldd", "readelf", "patchelf", "dpkg-query"):
        if shutil.which(tool) is None:
            sys.exit(f"carry.py: '{tool}' is missing: apt install binutils patchelf dpkg")
    carry(tree)
    major, minor = oldest_c_library(tree)
    count = len(os.listdir(tree / "lib/weft/carried"))
    print(f"{count} libraries carried; runs with glibc {major}.{minor} or newer")


if __name__ == "__main__":
    main()
