"""Root file systems of distributions, as `bring_roots` of tools/setup.sh installs them, each
with its own mounts, network, processes and host name: a fresh machine with a user `me`. Changes
are lost with it.
"""
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from limits import limit  # noqa: E402
from processes import children  # noqa: E402
from wait import until  # noqa: E402

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
FOLDER = pathlib.Path(os.environ.get("WEFT_ROOTS") or CACHE / "weft/roots")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # end running programs
KEPT_PACKAGES = "packages"  # packages fetched by apt, next to the roots
PATIENCE = 600

# Runs in new namespaces; $1: folder of the root, $2: its name, $3: its lower file system, $4: the
# packages that apt keeps.
BEGIN = r"""set -e
mount --make-rprivate /
cd "$1"
mount -t overlay overlay -o "lowerdir=$3,upperdir=$1/upper,workdir=$1/work" root
cd root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do
    touch dev/$node && mount --bind /dev/$node dev/$node
done
ln -s /proc/self/fd dev/fd
mkdir dev/shm dev/pts && mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts && ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p "$4" && mount --bind "$4" var/cache/apt/archives
cp --remove-destination /etc/resolv.conf etc/resolv.conf
hostname "$2"
echo "$2" >etc/hostname
echo "127.0.0.1 localhost $2" >etc/hosts
ip link set lo up
exec chroot . sh -c 'while :; do sleep infinity & wait $!; done'
"""


def why_skipped(*releases):
    """The reason why roots are not available here; None: they are."""
    programs = ("ip", "unshare", "nsenter", "chroot", "setpriv")
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        return f"without {', '.join(missing)}"
    if os.geteuid() != 0:
        return "not root: no namespaces"
    absent = [release for release in releases if not (FOLDER / release / "etc").is_dir()]
    if absent:
        return (f"no root of {', '.join(absent)} in {FOLDER}: ./test --fleet brings those that "
                f"debootstrap reaches")
    tried = subprocess.run(["unshare", "-m", "-n", "-u", "-p", "-i", "--fork", "true"],
                           capture_output=True)
    return None if tried.returncode == 0 else "no namespaces here"


class Failed(AssertionError):
    """A command that ended with another status than expected."""


class Root:
    """A host. `release`: bookworm, trixie, noble."""

    def __init__(self, release, name):
        self.release, self.name = release, name
        self.place = pathlib.Path(tempfile.mkdtemp(prefix=f"weft-root-{name}-"))
        self.place.chmod(0o755)
        for folder in ("upper", "work", "root"):
            (self.place / folder).mkdir()
        self.space = subprocess.Popen(
            ["unshare", "-m", "-n", "-u", "-p", "-i", "--fork", "--kill-child", "sh", "-c", BEGIN,
             "sh", str(self.place), name, str(FOLDER / release),
             str(FOLDER / KEPT_PACKAGES / release)], stderr=subprocess.PIPE, text=True)
        self.pid = self.await_first()
        self.homes = {"root": "/"}
        self.sh("useradd -m -s /bin/bash me")
        rows = [line.split(":") for line in self.file("/etc/passwd").read_text().splitlines()]
        self.homes = {row[0]: row[5] for row in rows}
        self.home = self.homes["me"]

    def await_first(self):
        """Its process 1, after chroot."""
        def inside():
            for pid in children(self.space.pid):
                try:
                    if os.path.exists(f"/proc/{pid}/root/home") and os.readlink(
                            f"/proc/{pid}/root") != "/":
                        return pid
                except OSError:
                    pass
            return None

        try:
            return until(inside, "a root", limit(60), self.space)
        except AssertionError as error:
            said = "" if self.space.poll() is None else self.space.stderr.read()
            raise Failed(f"{self.name}: {error} {said}") from error

    def file(self, path):
        """Path of one of its files, seen from outside."""
        return pathlib.Path(f"/proc/{self.pid}/root{path}")

    def words(self, *words, user="root", online=False, cwd=None, more=()):
        """The command line that runs `words` in it. online: with this machine's network."""
        home = self.homes[user]
        spaces = ["-m", "-u", "-i", "-p"] + ([] if online else ["-n"])
        local = [f"{home}/.local/bin"] if self.file(f"{home}/.local/bin").is_dir() else []
        path = ":".join([*local, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin",
                         "/sbin", "/bin"])
        as_user = [] if user == "root" else ["setpriv", "--reuid", user, "--regid", user,
                                             "--init-groups"]
        return ["nsenter", "-t", str(self.pid), *spaces, "-r", "--", "env", "-i",
                f"--chdir={cwd or home}", f"HOME={home}", f"USER={user}", f"PATH={path}",
                "LANG=C.UTF-8", *more, *as_user, *words]

    def run(self, *words, status=0, seconds=PATIENCE, **options):
        """Runs to the end. status None: any."""
        done = subprocess.run(self.words(*map(str, words), **options), capture_output=True,
                              text=True, errors="replace", timeout=limit(seconds),
                              stdin=subprocess.DEVNULL)
        if status is not None and done.returncode != status:
            raise Failed(f"{self.name}: {' '.join(map(str, words))}: status {done.returncode}\n"
                         f"{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done

    def sh(self, script, **options):
        return self.run("sh", "-c", script, **options)

    def apt(self, *packages, recommends=False):
        """Installs by apt, from fetched packages or over this machine's network."""
        words = ["apt-get", "install", "-y", "-q", "-o", "APT::Sandbox::User=root",
                 *([] if recommends else ["--no-install-recommends"]), *packages]
        more = ["DEBIAN_FRONTEND=noninteractive"]
        with open(FOLDER / KEPT_PACKAGES / f"{self.release}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # all tests share the package folder
            done = self.run(*words, online=True, more=more, status=None)
            if done.returncode != 0:
                self.run("apt-get", "update", "-q", "-o", "APT::Sandbox::User=root", online=True)
                done = self.run(*words, online=True, more=more)
        return done

    def put(self, source, path, user="me", mode=0o644):
        """Copies a file of this machine into the root."""
        self.run("mkdir", "-p", os.path.dirname(path), user=user)
        shutil.copyfile(source, self.file(path))
        self.file(path).chmod(mode)
        self.run("chown", f"{user}:{user}", path)

    def do(self, *words):
        """Runs this machine's program in its network, for laying cables (spaces.cable)."""
        subprocess.run(["nsenter", "-t", str(self.pid), "-n", *words], check=True,
                       capture_output=True)

    def close(self):
        self.space.kill()
        self.space.wait()
        self.space.stderr.close()
        shutil.rmtree(self.place, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
