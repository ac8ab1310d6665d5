"""`weft hosts add` and `remove`: first with a fake ssh that enters a namespace, then with a real
sshd there.

    ssh_test.py WEFT TINY_MODEL

Needs root, ip(8), unshare and nsenter; skips (status 77) if one is missing. The second part
needs sshd, ssh and ssh-keygen; a message says if one is missing.
"""

import glob
import json
import os
import shutil
import signal
import subprocess

from secret_test import Watch
from namespaces import serve_ssh
from spaces import await_others, main, words_of


# test_fake has the same requirements.
NIGHTLY_ONLY = ("test_sshd",)


def fake_ssh(folder, *hosts):
    """A fake ssh in a folder for PATH: runs the command in a host's namespace as its user's
    shell would. It knows these hosts and logs its arguments."""
    os.mkdir(f"{folder}/bin")
    known = "\n".join(f"me@{host.name}) home={host.home} pid={host.space.pid} ;;"
                      for host in hosts)
    with open(f"{folder}/bin/ssh", "w") as file:
        file.write(f"""#!/bin/sh
echo "$@" >>{folder}/calls
for host; do command=$host; done
while [ "$1" != -- ]; do shift; done
[ "$2" != me@flood ] || exec yes
case $2 in
{known}
*) echo "ssh: Could not resolve hostname $2" >&2; exit 255 ;;
esac
echo "Welcome to $2!"
cd $home
exec nsenter -t $pid -n -u env -i HOME=$home \\
    PATH=/usr/bin:/bin:/usr/sbin:/sbin sh -c "$command"
""")
    os.chmod(f"{folder}/bin/ssh", 0o755)


def state_file(host, name):
    return os.path.join(host.home, ".local/state/weft", name)


def runs(file):
    """Whether the process that the file names is a 'weft up'."""
    try:
        pid = int(open(file).read())
        return b"\0up\0--cluster\0" in open(f"/proc/{pid}/cmdline", "rb").read()
    except OSError:
        return False


def kill_up(there):
    """Programs that 'hosts add' started on the host outlive it, and would outlive the test."""
    for file in glob.glob(state_file(there, "up-home*.pid")):
        if runs(file):
            os.kill(int(open(file).read()), signal.SIGKILL)


def check_add_and_remove(room, a, b, model, folder):
    """Requirements on both kinds of ssh."""
    file = os.path.join(a.home, ".config/weft/clusters/home.toml")
    key = os.path.join(b.home, ".config/weft/clusters/home.key")
    ran = a.run("hosts", "add", "me@nowhere")
    assert ran.returncode == 1 and "ssh to me@nowhere" in ran.stderr, ran
    assert "ssh-copy-id me@nowhere" in ran.stderr, ran
    ran = a.run("hosts", "add", "-oProxyCommand=touch /tmp/x")
    assert ran.returncode == 2, ran
    ran = a.run("hosts", "add", "me@b;reboot")
    assert ran.returncode == 2, ran
    assert not os.path.exists(file)
    ran = a.run("hosts", "add", "me@b")
    assert ran.returncode == 0, ran
    assert "no weft is there; copying" in ran.stderr, ran
    assert "b is a host of cluster 'home'" in ran.stdout, ran
    assert "checks" in ran.stdout or "[" in ran.stdout, ran.stdout  # from its doctor
    program = os.path.join(b.home, ".local/bin/weft")
    assert open(program, "rb").read() == open(room.weft, "rb").read()
    assert os.stat(key).st_mode & 0o777 == 0o600
    assert open(key).read() == open(os.path.join(a.home,
                                                 ".config/weft/clusters/home.key")).read()
    assert open(file).read() == '[[host]]\nname = "b"\nssh = "me@b"\n'
    await_others(a, ["b"])
    one = a.run("run", model, "--greedy", "-p", "ab", "-n", "4", "--raw", "-t", "1",
                "--cluster", "home", "--weights-from", "0")
    assert one.returncode == 0, one
    # Again: no copy, and no duplicate entry.
    ran = a.run("hosts", "add", "me@b", "--json")
    assert ran.returncode == 0 and "copying" not in ran.stderr, ran
    assert json.loads(ran.stdout)["name"] == "b", ran
    assert open(file).read().count("[[host]]") == 1
    await_others(a, ["b"])
    ran = a.run("submit", "--to", "ssh:home", "-N", "1", "--dry-run", "--", "bench", "m.gguf")
    assert ran.returncode == 0 and "for host in me@b; do" in ran.stdout, ran
    ran = a.run("submit", "--to", "ssh:home", "-N", "2", "--dry-run", "--", "bench", "m.gguf")
    assert ran.returncode == 2 and "1 hosts were named for -N 2" in ran.stderr, ran
    ran = a.run("submit", "--to", "ssh:none", "-N", "1", "--dry-run", "--", "bench", "m.gguf")
    assert ran.returncode == 2 and "none.toml names no hosts" in ran.stderr, ran
    # Another program of that name is replaced by a copy of this one.
    with open(program + ".new", "w") as other:
        other.write("#!/bin/sh\necho weft 0.0.1 '(commit 0)'\n")
    os.chmod(program + ".new", 0o755)
    os.rename(program + ".new", program)
    ran = a.run("hosts", "add", "me@b")
    assert ran.returncode == 0, ran
    assert "is weft 0.0.1 (commit 0); copying" in ran.stderr, ran
    assert open(program, "rb").read() == open(room.weft, "rb").read()
    ran = a.run("hosts", "remove", "c")
    assert ran.returncode == 1 and "names no host 'c'" in ran.stderr, ran
    ran = a.run("hosts", "remove", "b")
    assert ran.returncode == 0 and ran.stderr == "", ran
    assert open(file).read() == "" and not os.path.exists(key)
    await_others(a, [])
    # A host is not taken out of another cluster.
    with open(key, "w") as own:
        own.write("a-key-of-another-cluster\n")
    ran = a.run("hosts", "add", "me@b")
    assert ran.returncode == 1 and "another key of a cluster 'home'" in ran.stderr, ran
    assert open(key).read() == "a-key-of-another-cluster\n"
    os.remove(key)


def test_fake(room, model):
    a, b = room.two()
    folder = room.folder.name
    fake_ssh(folder, b)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}/bin:{path}"
    try:
        ran = a.run("hosts", "add", "me@flood")  # endless output
        assert ran.returncode == 1 and "printed more than 1048576 bytes" in ran.stderr, ran
        first = a.up()  # creates the key
        words = words_of(first)
        assert first.end() == 0
        with Watch(words):
            check_add_and_remove(room, a, b, model, folder)
    finally:
        os.environ["PATH"] = path
        kill_up(b)
    calls = open(f"{folder}/calls").read()
    key = open(os.path.join(a.home, ".config/weft/clusters/home.key")).read().strip()
    assert key not in calls and "BatchMode=yes" in calls, calls


def test_one_home(room, _):
    """b and c share a home folder; later this host shares it, too."""
    a, b, c = room.ring()
    c.home = b.home
    folder = room.folder.name
    fake_ssh(folder, a, b, c)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}/bin:{path}"
    key = os.path.join(b.home, ".config/weft/clusters/home.key")
    files = [state_file(b, f"up-home:{name}.pid") for name in "bc"]
    try:
        for name in "bc":
            ran = a.run("hosts", "add", f"me@{name}")
            assert ran.returncode == 0, ran
        assert all(runs(file) for file in files), files
        await_others(a, ["b", "c"])
        ran = a.run("hosts", "remove", "b")
        assert ran.returncode == 0 and "b keeps the key" in ran.stderr, ran
        assert os.path.exists(key) and not os.path.exists(files[0]) and runs(files[1])
        await_others(a, ["c"])
        ran = a.run("hosts", "remove", "c")
        assert ran.returncode == 0 and ran.stderr == "", ran
        assert not os.path.exists(key) and not os.path.exists(files[1])
        a.home = b.home
        ran = a.run("hosts", "add", "me@b")
        assert ran.returncode == 0, ran
        ran = a.run("hosts", "remove", "b")
        assert ran.returncode == 0 and "b keeps the key" in ran.stderr, ran
        assert os.path.exists(key) and not os.path.exists(files[0])
        kept = [name for name in os.listdir(os.path.dirname(key)) if not name.endswith(".lock")]
        assert sorted(kept) == ["home.key", "home.toml"]
    finally:
        os.environ["PATH"] = path
        kill_up(b)


def test_two_of_one_name(room, _):
    """The second host would take the place of the first in the cluster's file."""
    a, b, c = room.ring()
    folder = room.folder.name
    fake_ssh(folder, b, c)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}/bin:{path}"
    file = os.path.join(a.home, ".config/weft/clusters/home.toml")
    try:
        c.do("hostname", "b")
        assert a.run("hosts", "add", "me@b").returncode == 0
        before = open(file).read()
        ran = a.run("hosts", "add", "me@c")
        assert ran.returncode == 2 and "two hosts that call themselves b" in ran.stderr, ran
        assert open(file).read() == before
        assert not os.path.exists(os.path.join(c.home, ".config/weft")), "the host was set up"
    finally:
        os.environ["PATH"] = path
        kill_up(b)


def test_pid_files(room, _):
    """A state file of an earlier version, or from before a reboot, ends only an 'up' of this
    cluster."""
    a, b = room.two()
    folder = room.folder.name
    fake_ssh(folder, b)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}/bin:{path}"
    old, own = (state_file(b, name) for name in ("up-home.pid", "up-home:b.pid"))
    os.makedirs(os.path.dirname(old))
    sleep = subprocess.Popen(["sleep", "600"])

    def write(file, pid):
        with open(file, "w") as out:
            out.write(f"{pid}\n")

    try:
        for change in (("add", "me@b"), ("remove", "b")):
            kill_up(b)
            for file in (old, own):
                write(file, sleep.pid)
            ran = a.run("hosts", *change)
            assert ran.returncode == 0, ran
            assert sleep.poll() is None, change
            assert runs(own) == (change[0] == "add"), change
        assert not os.path.exists(old) and not os.path.exists(own)
        # An earlier version's 'up' is running.
        ran = a.run("hosts", "add", "me@b")
        assert ran.returncode == 0, ran
        os.rename(own, old)
        with open(f"{folder}/first", "w") as file:
            file.write(open(old).read())
        ran = a.run("hosts", "add", "me@b")
        assert ran.returncode == 0 and not os.path.exists(old), ran
        assert runs(own) and not runs(f"{folder}/first")
        os.rename(own, old)
        ran = a.run("hosts", "remove", "b")
        assert ran.returncode == 0 and not os.path.exists(old), ran
        await_others(a, [])
    finally:
        os.environ["PATH"] = path
        kill_up(b)
        sleep.kill()
        sleep.wait()


def test_systemd(room, _):
    """The user's systemd, judged by files and calls; b and c share a home folder."""
    a, b, c = room.ring()
    c.home = b.home
    folder = room.folder.name
    fake_ssh(folder, b, c)
    os.mkdir(f"{folder}/there")
    for name, says in (("systemctl", ""), ("loginctl", "echo Linger=no")):
        with open(f"{folder}/there/{name}", "w") as file:
            file.write(f'#!/bin/sh\necho {name} "$@" >>{folder}/units\n{says}\n')
        os.chmod(f"{folder}/there/{name}", 0o755)
    script = open(f"{folder}/bin/ssh").read()
    with open(f"{folder}/bin/ssh", "w") as file:
        file.write(script.replace("PATH=/usr/bin", f"PATH={folder}/there:/usr/bin"))
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}/bin:{path}"
    try:
        units = os.path.join(b.home, ".config/systemd/user")
        key = os.path.join(b.home, ".config/weft/clusters/lab.key")
        os.makedirs(units)
        with open(f"{units}/weft-up-lab.service", "w"):
            pass  # state file of an earlier version
        for name in "bc":
            ran = a.run("hosts", "add", f"me@{name}", "--cluster", "lab")
            assert ran.returncode == 0 and "sudo loginctl enable-linger" in ran.stdout, ran
            text = open(f"{units}/weft-up-lab:{name}.service").read()
            assert f'ExecStart="{b.home}/.local/bin/weft" up --cluster lab\n' in text, text
            assert f"\nConditionHost={name}\n" in text, text
            assert "Restart=always" in text and "WantedBy=default.target" in text, text
            calls = open(f"{folder}/units").read()
            assert f"systemctl --user restart weft-up-lab:{name}\n" in calls, calls
        assert "disable --now weft-up-lab\n" in calls, calls
        assert sorted(os.listdir(units)) == ["weft-up-lab:b.service", "weft-up-lab:c.service"]
        ran = a.run("hosts", "remove", "b", "--cluster", "lab")
        assert ran.returncode == 0 and "b keeps the key" in ran.stderr, ran
        assert os.listdir(units) == ["weft-up-lab:c.service"] and os.path.exists(key)
        calls = open(f"{folder}/units").read()
        assert "disable --now weft-up-lab:b\n" in calls, calls
        assert "disable --now weft-up-lab:c\n" not in calls, calls
        ran = a.run("hosts", "remove", "c", "--cluster", "lab")
        assert ran.returncode == 0 and ran.stderr == "", ran
        assert os.listdir(units) == [] and not os.path.exists(key)
    finally:
        os.environ["PATH"] = path


def test_where_it_does_not_run(room, _):
    """A machine with another architecture, and a machine that lacks the program's libraries."""
    a, b = room.two()
    folder = room.folder.name
    fake_ssh(folder, b)
    for name, text in (("uname", "#!/bin/sh\necho riscv64\n"),):
        with open(f"{folder}/bin/{name}", "w") as file:
            file.write(text)
        os.chmod(f"{folder}/bin/{name}", 0o755)
    script = open(f"{folder}/bin/ssh").read()
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}/bin:{path}"
    try:
        with open(f"{folder}/bin/ssh", "w") as file:
            file.write(script.replace("PATH=/usr/bin", f"PATH={folder}/bin:/usr/bin"))
        ran = a.run("hosts", "add", "me@b")
        assert ran.returncode == 1 and "has architecture riscv64, this host" in ran.stderr, ran
        os.remove(f"{folder}/bin/uname")
        with open(f"{folder}/bin/ssh", "w") as file:
            file.write(script.replace("env -i", "env -i LD_PRELOAD=/nonexistent.so").replace(
                'sh -c "$command"', 'sh -c "ulimit -v 30000; $command"'))
        ran = a.run("hosts", "add", "me@b")
        assert ran.returncode == 1 and "on me@b: status" in ran.stderr, ran
        assert not os.path.exists(os.path.join(a.home, ".config/weft/clusters/home.toml"))
        with open(f"{folder}/bin/ssh", "w") as file:
            file.write("#!/bin/sh\necho no shell for you\n")
        ran = a.run("hosts", "add", "me@b")
        assert ran.returncode == 1 and "'no shell for you'" in ran.stderr, ran
    finally:
        os.environ["PATH"] = path


def test_sshd(room, model):
    missing = [name for name in ("ssh", "sshd", "ssh-keygen") if shutil.which(name) is None]
    if missing:
        print(f"skipped: a real sshd: without {', '.join(missing)}")
        return
    a, b = room.two()
    folder = room.folder.name
    a.do("ip", "addr", "add", "10.98.7.1/24", "dev", "eth1")
    b.do("ip", "addr", "add", "10.98.7.2/24", "dev", "eth7")
    # me@b is root here, because the test has no other user with a usable home folder.
    sshd = serve_ssh(b, "10.98.7.2", folder, f"SetEnv HOME={b.home} XDG_RUNTIME_DIR=/nonexistent "
                     "DBUS_SESSION_BUS_ADDRESS=none\n", "Host b\nHostName 10.98.7.2\n")
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}/bin:{path}"
    try:
        ran = a.run("hosts", "add", "b")
        assert ran.returncode == 0, ran
        assert os.path.exists(os.path.join(b.home, ".local/bin/weft")), ran
        await_others(a, ["b"])
        ran = a.run("hosts", "remove", "b")
        assert ran.returncode == 0 and ran.stderr == "", ran
        await_others(a, [])
    finally:
        os.environ["PATH"] = path
        kill_up(b)
        sshd.terminate()
        sshd.wait()


if __name__ == "__main__":
    main(globals(), NIGHTLY_ONLY)
