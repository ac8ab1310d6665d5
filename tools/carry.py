#!/usr/bin/env python3
"""Makes an installed tree run on other distributions: copies the libraries that its program needs
to lib/weft/carried, and makes the program search for them relative to itself.

    tools/carry.py TREE        (TREE/bin/weft; run by `cpack -G TGZ`)

Libraries that every system has are not copied: the C library, so the tree runs with any C library
at least as new as this one, and C++'s, which GPU drivers need at least as new as they were built
with. Carried libraries are renamed, so a driver that is loaded later gets the system's library.
share/doc/weft/licences has the license of each one, with the package and version that identify its
sources. Needs ldd, readelf, patchelf, and dpkg, which knows the package of a file.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

# (libresolv and similar libraries are part of the C library; libgcc_s is part of C++'s.)
OF_SYSTEM = re.compile(r"(ld-linux.*|linux-vdso|libc|libm|libdl|librt|libpthread|libresolv|libutil|"
                       r"libnsl|libanl|libstdc\+\+|libgcc_s)\.so[.\d]*$")
MARK = "weft-"


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def needed(path):
    """The names of the libraries that an ELF file needs directly."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", str(path)))


def libraries(program):
    """Name -> path of all libraries that the program loads, except the system's."""
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
    """Renames carried libraries in an ELF file's list of needed libraries."""
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
