#!/usr/bin/env python3
"""Runs a shell script inside a small virtual machine with a real kernel RDMA stack.

    tests/rdma/guest.py --fetch                                    # once: the kernel, 70 MB
    tests/rdma/guest.py --script tests/rdma/perftest.guest.sh
    tests/rdma/guest.py --add build/weft --add build/tests/net_tests --script FILE [ARGUMENT...]

The guest is Debian's kernel (rdma_rxe, ib_uverbs, veth, sch_netem) on an initramfs of busybox,
ip, tc, rdma, ibv_devinfo, perftest and libibverbs from this machine's packages, made for each run.
Files of --add are in /weft (or at the DESTINATION of PATH:DESTINATION), programs with the libraries
that they need. The script runs as root with /lib/guest.sh sourced (see README.md). This program
prints the script's output and returns its exit status.

Exit status: the script's; 77 if something that a guest needs is missing (it prints the reason), 1
if the guest died, 124 if it took longer than --timeout (scaled by how much slower than on an idle
machine the kernel starts). The emulator never outlives this program.
"""
import argparse
import ctypes
import fcntl
import lzma
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from wait import until  # noqa: E402

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                     "weft", "guest")
LOCK = "lock"
SKIP, TIMED_OUT = 77, 124
# The kernel takes 2 to 3 s to its first program, ten times that on a busy machine.
USUAL_BOOT_S, BOOT_S, BOOTS = 3, 90, 3
MOST_SLOWNESS = 8

# Loaded in this order, each after what it needs.
MODULES = ["crc32_generic", "veth", "sch_netem", "ib_uverbs", "rdma_ucm", "rdma_rxe"]
# The parts of the kernel package in which modules and what they need are looked for.
MODULE_FOLDERS = ["arch/x86/crypto", "crypto", "drivers/infiniband/core",
                  "drivers/infiniband/sw/rxe", "drivers/net", "fs/configfs", "lib", "net"]
PROGRAMS = ["ip", "tc", "ss", "rdma", "ibv_devinfo", "ib_write_lat", "ib_write_bw", "ib_send_lat"]
PACKAGES = "qemu-system-x86 busybox-static kmod iproute2 ibverbs-providers ibverbs-utils perftest"


class Missing(Exception):
    """This machine lacks something that a guest needs."""


def program(name):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not path:
        raise Missing(f"'{name}' is not installed; the packages are: {PACKAGES}")
    return path


class Archive:
    """An initramfs: files by path, written in cpio's 'newc' format (the kernel's
    Documentation/driver-api/early-userspace/buffer-format.rst)."""

    def __init__(self):
        self.entries = {}

    def folder(self, path):
        if path not in ("", "/") and path not in self.entries:
            self.folder(os.path.dirname(path))
            self.entries[path] = (stat.S_IFDIR | 0o755, b"")

    def data(self, path, data, mode=0o644):
        self.folder(os.path.dirname(path))
        self.entries[path] = (stat.S_IFREG | mode, data)

    def file(self, source, path):
        """Adds a file, or a folder with its content; a program brings its libraries."""
        if os.path.isdir(source):
            self.folder(path)
            for name in sorted(os.listdir(source)):
                self.file(os.path.join(source, name), os.path.join(path, name))
            return
        with open(source, "rb") as file:
            data = file.read()
        self.data(path, data, 0o755 if os.access(source, os.X_OK) else 0o644)
        if data.startswith(b"\x7fELF"):
            listed = subprocess.run(["ldd", source], capture_output=True, text=True).stdout
            if "not found" in listed:
                raise Missing(f"{source} needs a library that isn't here:\n{listed}")
            for library in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listed, re.MULTILINE):
                if library not in self.entries:
                    with open(library, "rb") as file:
                        self.data(library, file.read(), 0o755)

    def write(self, out):
        trailer = [("TRAILER!!!", (0, b""))]
        for number, (path, (mode, data)) in enumerate(list(self.entries.items()) + trailer, 1):
            name = path.lstrip("/").encode() + b"\0"
            fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
            header = b"070701" + b"".join(b"%08x" % field for field in fields)
            out.write(header + name + b"\0" * (-(len(header) + len(name)) % 4))
            out.write(data)
            out.write(b"\0" * (-len(data) % 4))


def fetch():
    """Downloads Debian's kernel to the cache: CACHE/NAME/ with vmlinux, the modules and `order`."""
    depends = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True,
                             text=True).stdout
    found = re.search(r"Depends: (linux-image-(\S+-amd64))", depends)
    if not found:
        raise Missing("apt knows no linux-image-amd64; is there an 'apt-get update' to do?")
    name, version = found.groups()
    os.makedirs(CACHE, exist_ok=True)
    # Another checkout may be about to bring the same: who waited finds it there.
    with open(os.path.join(CACHE, LOCK), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isfile(os.path.join(CACHE, name, "order")):
            fetch_kernel(name, version)


def fetch_kernel(name, version):
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        # As root, apt would like to become a user that has no rights in this folder.
        command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=", "download", name]
        if subprocess.run(command, cwd=work).returncode != 0:
            raise Missing(f"apt-get could not download {name}")
        package = next(file for file in os.listdir(work) if file.endswith(".deb"))
        unpack_kernel(os.path.join(work, package), version, work)
        shutil.rmtree(os.path.join(CACHE, name), ignore_errors=True)
        os.rename(os.path.join(work, "kernel"), os.path.join(CACHE, name))
    for other in os.listdir(CACHE):
        if other not in (name, LOCK):
            shutil.rmtree(os.path.join(CACHE, other), ignore_errors=True)


def unpack_kernel(package, version, work):
    root, kernel = os.path.join(work, "root"), os.path.join(work, "kernel")
    modules = f"lib/modules/{version}"
    os.mkdir(root)
    os.mkdir(kernel)
    tar = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
    wanted = [f"./boot/vmlinuz-{version}", f"./{modules}/modules.builtin",
              f"./{modules}/modules.builtin.modinfo", f"./{modules}/modules.order"]
    wanted += [f"./{modules}/kernel/{folder}" for folder in MODULE_FOLDERS]
    subprocess.run(["tar", "-x", "-C", root] + wanted, stdin=tar.stdout, check=True)
    tar.wait()
    subprocess.run([program("depmod"), "-b", root, version], check=True)
    with open(os.path.join(root, f"boot/vmlinuz-{version}"), "rb") as file:
        packed = file.read()
    with open(os.path.join(kernel, "vmlinux"), "wb") as file:  # the emulator unpacks slowly
        file.write(lzma.LZMADecompressor().decompress(packed[packed.index(b"\xfd7zXZ\0"):]))
    order = []
    for module in MODULES:
        shown = subprocess.run([program("modprobe"), "-d", root, "-S", version, "--show-depends",
                                module], check=True, capture_output=True, text=True).stdout
        for path in re.findall(r"^insmod (\S+)", shown, re.MULTILINE):
            if os.path.basename(path) not in order:
                order.append(os.path.basename(path))
                shutil.copy(path, kernel)
    with open(os.path.join(kernel, "order"), "w") as file:
        file.write("".join(name + "\n" for name in order))


def kernel_folder():
    for name in sorted(os.listdir(CACHE)) if os.path.isdir(CACHE) else []:
        if os.path.isfile(os.path.join(CACHE, name, "order")):
            return os.path.join(CACHE, name)
    raise Missing(f"no kernel in {CACHE}; 'tests/rdma/guest.py --fetch' brings it")


def make_archive(kernel, options):
    archive = Archive()
    for folder in ["/dev", "/proc", "/sys", "/tmp", "/run", "/var/run", "/root", "/weft"]:
        archive.folder(folder)
    archive.file(program("busybox"), "/bin/busybox")
    archive.file(program("dash"), "/usr/bin/sh")  # busybox's shell prefers its own ip to ours
    for name in PROGRAMS:
        archive.file(program(name), "/usr/bin/" + name)
    provider = "/usr/lib/x86_64-linux-gnu/libibverbs"
    rxe = [file for file in os.listdir(provider) if file.startswith("librxe")] \
        if os.path.isdir(provider) else []
    if not rxe:
        raise Missing(f"no provider of Soft-RoCE in {provider}; the package is ibverbs-providers")
    archive.file(os.path.join(provider, rxe[0]), os.path.join(provider, rxe[0]))
    archive.file("/etc/libibverbs.d/rxe.driver", "/etc/libibverbs.d/rxe.driver")
    archive.data("/etc/passwd", b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n")
    archive.data("/etc/group", b"root:x:0:\nuser:x:1000:\n")
    archive.data("/etc/hosts", b"127.0.0.1 localhost guest\n10.77.0.1 a\n10.77.0.2 b\n")
    for name in os.listdir(kernel):
        if name != "vmlinux":
            archive.file(os.path.join(kernel, name), "/modules/" + name)
    archive.file(os.path.join(HERE, "init.guest.sh"), "/init")
    archive.file(os.path.join(HERE, "lib.guest.sh"), "/lib/guest.sh")
    archive.file(options.script, "/script")
    archive.data("/arguments", "".join(a + "\n" for a in options.argument).encode())
    for added in options.add:
        source, _, place = added.partition(":")
        archive.file(source, place if place.startswith("/")
                     else "/weft/" + (place or os.path.basename(os.path.normpath(source))))
    return archive


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def clock():
    """The kernel parameter with the rate of the guest's time stamp counter, which is this
    machine's. Without it, the guest measures the rate for some milliseconds against an emulated
    timer. On a busy machine, its clock would then run several times too fast, and every deadline
    would be as much too short.
    Linux: bogomips = kHz / 500 (arch/x86/kernel/tsc.c: lpj_fine = tsc_khz * 1000 / HZ)."""
    with open("/proc/cpuinfo") as file:
        found = re.search(r"^bogomips\s*: ([0-9.]+)", file.read(), re.MULTILINE)
    return f"tsc_early_khz={round(float(found.group(1)) * 500)} " if found else ""


def run(options):
    emulator = program("qemu-system-x86_64")
    kernel = kernel_folder()
    with tempfile.TemporaryDirectory(prefix="weft-guest-") as work:
        initrd, status = os.path.join(work, "initrd"), os.path.join(work, "status")
        with open(initrd, "wb") as out:
            make_archive(kernel, options).write(out)
        command = [
            emulator, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-accel", "kvm" if options.accel == "kvm" else "tcg,thread=multi",
            "-cpu", "host" if options.accel == "kvm" else "max", "-smp", "2",
            "-m", str(options.memory + os.path.getsize(initrd) // 2 ** 20 * 2),
            "-kernel", os.path.join(kernel, "vmlinux"), "-initrd", initrd, "-append",
            "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off nokaslr tsc=reliable "
            # The kernel counts some ticks of an emulated timer, and panics where they are late.
            "no_timer_check "
            + clock() + "cryptomgr.notests random.trust_cpu=on rdinit=/init",
            "-chardev", "stdio,id=out,signal=off", "-serial", "chardev:out",
            "-serial", "file:" + status]
        for attempt in range(1, BOOTS + 1):
            result = boot(command, status, options.timeout)
            if result is not None:
                return result
            print(f"guest: its kernel did not start (attempt {attempt} of {BOOTS})", flush=True)
        return 1


def boot(command, status, timeout):
    """The script's exit status, or a substitute for it. None: the kernel never reached the script,
    which is the emulator's fault; the caller may try again."""
    with open(status, "w"):
        pass
    guest = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
    begin = time.monotonic()
    try:
        until(lambda: said(status) or guest.poll() is not None, "the script", BOOT_S)
        slowness = min(max(1, (time.monotonic() - begin) / USUAL_BOOT_S), MOST_SLOWNESS)
        guest.wait(timeout * slowness)
    except AssertionError:
        return None
    except subprocess.TimeoutExpired:
        print("\nguest: ended by --timeout", flush=True)
        return TIMED_OUT
    finally:
        guest.kill()
        guest.wait()
    if not said(status):
        return None
    try:
        return int(said(status)[1])
    except (IndexError, ValueError):
        print("\nguest: it ended without a status of the script", flush=True)
        return 1


def said(status):
    """The guest's messages besides its output: `up`, then the script's exit status."""
    with open(status) as file:
        return file.read().split()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetch", action="store_true", help="bring the kernel into the cache")
    parser.add_argument("--script", metavar="FILE", help="what runs inside, for busybox sh")
    parser.add_argument("--add", metavar="PATH[:PLACE]", action="append", default=[],
                        help="a file or folder, to be /weft/NAME, or at PLACE")
    parser.add_argument("--timeout", metavar="S", type=float, default=120,
                        help="for the script, on an idle machine (%(default)s)")
    parser.add_argument("--memory", metavar="MIB", type=int, default=512,
                        help="memory beside what the files take (%(default)s)")
    parser.add_argument("--accel", choices=["tcg", "kvm"], default="tcg")
    parser.add_argument("argument", nargs="*", help="the script's arguments")
    options = parser.parse_args()
    try:
        if options.fetch:
            fetch()
        if options.script:
            return run(options)
    except Missing as missing:
        print(f"SKIPPED: no guest can be run: {missing}")
        return SKIP
    return 0


if __name__ == "__main__":
    sys.exit(main())
