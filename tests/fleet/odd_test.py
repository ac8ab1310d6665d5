"""`weft up` and `weft hosts` on unusual hosts: all kinds of networks, home folders, names and
terminals.

    odd_test.py WEFT TINY_MODEL [TEST...]

Needs root, ip(8), unshare and nsenter; skips (status 77) if one is missing.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

from spaces import await_others, cable, limits, main, words_of
from wait import until

# Each of these takes 10 to 35 s.
NIGHTLY_ONLY = ("test_an_interface_gets_another_name",
                "test_a_host_that_died",
                "test_two_cables_between_them")


def runs_on_both(host, model):
    ran = host.run("run", model, "--greedy", "-p", "ab", "-n", "4", "--raw", "-t", "1",
                   "--cluster", "home", "--weights-from", "0", "--pp", "2", "-v")
    assert ran.returncode == 0, ran
    return ran.stderr


def in_shell(host, script, **more):
    """Runs a script on a host with its own mounts; $WEFT is the program."""
    words = host.words("unshare", "-m", "sh", "-c", "mount --make-rprivate /\n" + script)
    return subprocess.run(words, env=host.env(WEFT=host.weft, **more), capture_output=True,
                          text=True, timeout=limits.limit(60), stdin=subprocess.DEVNULL)


def up_for_a_while(host, script, pattern, **more):
    """Runs a script that starts `weft up`; returns the output when it has the expected text, or
    at its end."""
    words = host.words("unshare", "-m", "sh", "-c", "mount --make-rprivate /\n" + script)
    process = subprocess.Popen(["timeout", "-k", "5", "20", *words],
                               env=host.env(WEFT=host.weft, **more), text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
    text = ""
    for line in process.stdout:
        text += line
        if re.search(pattern, text):
            break
    process.send_signal(signal.SIGTERM)
    process.stdout.close()
    process.wait()
    assert re.search(pattern, text), text
    return text


def test_a_host_of_many_containers(room, model):
    """Interfaces of Docker and Kubernetes, more than the limit that weft examines; the cable is
    plugged in last."""
    a, b, pods = room.host("a"), room.host("b"), room.host("pods")
    lines = "link add docker0 type bridge\nlink set docker0 up\n"
    for i in range(40):
        lines += (f"link add veth{i} type veth peer name eth{i} netns {pods.space.pid}\n"
                  f"link set veth{i} master docker0\nlink set veth{i} up\n")
    subprocess.run(a.words("ip", "-batch", "-"), input=lines, text=True, check=True)
    pods.do("sh", "-c", "for i in /proc/sys/net/ipv6/conf/eth*; do "
            "ip link set ${i##*/} up; done")
    cable(a, "eth1", b, "eth7")
    a.own_sysfs = True
    words = words_of(a.up())
    b.up(words)
    await_others(a, ["b"])
    # A bridge is one path, and its ports are not separate ones.
    notes = json.loads(a.run("hosts", "--json").stdout)["notes"]
    assert not any("veth" in note for note in notes), notes
    runs_on_both(a, model)


def test_tunnels(room, _):
    a, b = room.two()
    a.do("ip", "tuntap", "add", "tun0", "mode", "tun")
    hold = subprocess.Popen(a.words(sys.executable, "-c", """if True:
        import fcntl, struct, sys
        tun = open("/dev/net/tun", "r+b", buffering=0)
        fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH", b"tun0", 0x1001))
        print("ready", flush=True)
        sys.stdin.read()"""), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert hold.stdout.readline() == "ready\n"
        a.do("ip", "addr", "add", "10.8.0.1/24", "dev", "tun0")
        a.do("ip", "link", "set", "tun0", "up")
        first = a.up()
        b.up(words_of(first))
        first.await_text(r"found: eth1 at eth7 of b")
        a.do("ip", "link", "set", "tun0", "multicast", "off")
        first.await_text(r"tun0: discovery does not work on it: it has no multicast \(a tunnel\?\)")
        await_others(a, ["b"])
    finally:
        hold.stdin.close()
        hold.wait(10)
        hold.stdout.close()


def test_what_is_wrong_with_an_interface(room, _):
    a, b = room.two()
    for name, end in (("small", "far1"), ("quiet", "far2"), ("eth1.7", "far3")):
        cable(a, name, b, end)
    a.do("ip", "link", "set", "small", "mtu", "1000")
    a.do("ip", "link", "set", "quiet", "down")
    a.do("ip", "link", "set", "quiet", "addrgenmode", "none")
    a.do("ip", "link", "set", "quiet", "up")
    a.do("sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/eth1.7/disable_ipv6")
    first = a.up()
    first.await_text(r"small: discovery does not work on it: .*ip link set small mtu 1500")
    first.await_text(r"quiet: discovery does not work on it: "
                     r".*addrgenmode eui64.*ipv6.method link-local")
    first.await_text(r"eth1\.7: .*sysctl net\.ipv6\.conf\.eth1/7\.disable_ipv6=0")
    # The suggested remedies work.
    a.do("ip", "link", "set", "small", "mtu", "1500")
    a.do("ip", "link", "set", "quiet", "addrgenmode", "eui64")
    a.do("ip", "link", "set", "quiet", "down"), a.do("ip", "link", "set", "quiet", "up")
    a.do("sysctl", "-q", "net.ipv6.conf.eth1/7.disable_ipv6=0")

    def notes():
        return json.loads(a.run("hosts", "--json").stdout)["notes"]
    until(lambda: not any("discovery does not work on it" in note for note in notes()), notes)


def test_a_kernel_whose_ipv6_is_off(room, model):
    """Hosts are then named by address, and `weft up` serves them."""
    a, b = room.two()
    for host, end, address in ((a, "eth1", "10.9.0.1"), (b, "eth7", "10.9.0.2")):
        host.do("sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6")
        host.do("ip", "addr", "add", f"{address}/24", "dev", end)
    first = a.up()
    first.await_text(r"eth1: discovery does not work on it: .*disable_ipv6=0")
    second = b.up(words_of(first))
    with open(os.path.join(a.home, ".config/weft/clusters/home.toml"), "w") as file:
        file.write('[[host]]\nname = "b"\naddress = "10.9.0.2"\n')
    assert "10.9.0.1" in runs_on_both(a, model)
    assert first.end() == 0 and second.end() == 0


def test_an_interface_gets_another_name(room, model):
    a, b = room.two()
    first = a.up()
    b.up(words_of(first))
    first.await_text(r"found: eth1 at eth7 of b")
    for old, new, begin, end in (("eth1", "lan0", "down", "up"), ("lan0", "lan1", None, None)):
        first.text = ""
        for word in filter(None, (begin,)):
            a.do("ip", "link", "set", old, word)
        renamed = subprocess.run(a.words("ip", "link", "set", old, "name", new),
                                 capture_output=True)
        if renamed.returncode != 0:
            continue  # kernels before 6.6 do not rename an interface that is up
        for word in filter(None, (end,)):
            a.do("ip", "link", "set", new, word)
        first.await_text(rf"found: {new} at eth7 of b")
        first.await_text(rf"gone: {old} at eth7 of b")
        await_others(a, ["b"])
    runs_on_both(a, model)


def test_both_are_called_localhost(room, model):
    a, b = room.host("localhost"), room.host("localhost")
    cable(a, "eth1", b, "eth7")
    first = a.up()
    b.up(words_of(first))
    await_others(a, ["localhost"])
    text = a.run("hosts").stdout
    assert "another host has this name" in text, text
    assert "tcp" in runs_on_both(a, model)
    for name in ("(none)", "a.very.long.name.of.a.host.in.a.domain", "\u00fcber b"):
        c = room.host("c")
        c.do("sh", "-c", f"echo '{name}' >/proc/sys/kernel/hostname")
        up_for_a_while(c, 'exec "$WEFT" up', r"serves cluster 'home'")


def test_two_cables_between_them(room, model):
    """The faster cable is used; when it is pulled, the other one."""
    a, b = room.two()
    cable(a, "usb0", b, "usb9")
    first = a.up()
    b.up(words_of(first))
    first.await_text(r"found: eth1 at eth7 of b")
    first.await_text(r"found: usb0 at usb9 of b")
    runs_on_both(a, model)
    a.do("ip", "link", "set", "eth1", "down")
    first.await_text(r"gone: eth1 at eth7 of b")
    await_others(a, ["b"])
    assert "(usb0)" in runs_on_both(a, model)


def test_two_on_one_host(room, model):
    """Two clusters, each with its own key and port."""
    a, b = room.two()
    first = a.up()
    second = a.up("--cluster", "lab", "--port", "7001")
    lab = words_of(second)
    assert lab != words_of(first)
    b.up(lab, "--cluster", "lab")
    second.await_text(r"found: eth1 at eth7 of b")
    assert "found" not in first.text, first.text
    ran = a.run("hosts", "--json", "--cluster", "lab")
    assert [each["name"] for each in json.loads(ran.stdout)["hosts"]] == ["a", "b"], ran
    ran = b.run("run", model, "--greedy", "-p", "ab", "-n", "4", "--raw", "-t", "1",
                "--cluster", "lab", "--weights-from", "0", "--pp", "2")
    assert ran.returncode == 0, ran
    third = a.run("up")
    assert third.returncode == 1 and "Does 'weft up' or 'weft worker' run" in third.stderr, third


def test_keys(room, _):
    a, b = room.two()
    first = a.up()
    words = words_of(first)
    first.end()
    key = os.path.join(a.home, ".config/weft/clusters/home.key")
    os.chmod(key, 0o644)
    first = a.up()
    assert f"chmod 600 {key}" in first.text, first.text
    first.end()
    os.chmod(key, 0o600)
    for text, said in (("", "a key of 0 bytes"), ("x" * 5000, "5000 bytes|larger|too large|bytes")):
        with open(key, "w") as file:
            file.write(text)
        for command in (["up"], ["hosts"], ["run", "./m", "-p", "x", "--cluster", "home"]):
            ran = a.run(*command)
            assert ran.returncode == 1 and re.search(said, ran.stderr), ran
            assert key in ran.stderr, ran
    os.remove(key)
    os.mkdir(key)
    ran = a.run("up")
    assert ran.returncode == 1 and key in ran.stderr, ran
    os.rmdir(key)
    with open(key, "w") as file:
        file.write(words.upper().replace("-", " ") + "\n")
    ran = b.run("up", "--key-file", "/nonexistent")
    assert ran.returncode == 1 and "--key-file /nonexistent: there is no such file" in ran.stderr


def test_homes(room, _):
    a = room.host("a")
    # Read-only; full; no home, as for a system service; a user without a home.
    ran = in_shell(a, 'mount --bind "$HOME" "$HOME"; mount -o remount,ro,bind "$HOME"\n'
                      'exec "$WEFT" up')
    assert ran.returncode == 1 and "Read-only file system" in ran.stderr, ran
    assert "clusters" in ran.stderr, ran
    ran = in_shell(a, 'mount -t tmpfs -o size=8k tmpfs "$HOME"; mkdir -p "$HOME/.config/weft"\n'
                      'head -c 20000 /dev/zero >"$HOME/full" 2>&1; exec "$WEFT" up')
    assert ran.returncode == 1 and "No space left on device" in ran.stderr, ran
    assert not re.search(r"(\w{5}-){5}", ran.stderr), ran
    keys = os.path.join(a.home, "keys")
    with open(keys, "w") as file:
        file.write("a key of a service, which has no home\n")
    os.chmod(keys, 0o600)
    up_for_a_while(a, f'unset HOME; exec "$WEFT" up --key-file {keys}', r"serves cluster 'home'")
    text = up_for_a_while(a, 'mkdir "$HOME/root"; mount --bind "$HOME/root" /root; unset HOME\n'
                             'exec "$WEFT" up', r"serves cluster 'home'")
    assert "/root/.config/weft/clusters/home.key" in text, text
    ran = in_shell(a, 'unset HOME; exec setpriv --reuid 54321 --clear-groups "$WEFT" up')
    assert ran.returncode == 1 and "neither XDG_CONFIG_HOME nor HOME is set" in ran.stderr, ran


def test_terminals(room, _):
    """A dumb terminal, no terminal, a closed terminal, and no standard input."""
    a = room.host("a")
    for script in ('TERM=dumb exec "$WEFT" up', 'unset TERM; exec "$WEFT" up',
                   'exec "$WEFT" up <&-'):
        text = up_for_a_while(a, script, r"serves cluster '")
        assert "\x1b" not in text and "\r" not in text, repr(text)
    ran = in_shell(a, 'exec "$WEFT" up - </dev/null')
    assert ran.returncode == 2 and "standard input has no key phrase" in ran.stderr, ran
    ran = in_shell(a, 'exec "$WEFT" up - <&-')
    assert ran.returncode == 2 and "standard input has no key phrase" in ran.stderr, ran
    # A full log or a closed reader does not end the program.
    gone = subprocess.Popen(a.words("sh", "-c", f'exec {a.weft} up 2>&1 | head -c 10'),
                            env=a.env(), stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                            start_new_session=True)

    def is_read():
        return "head" in subprocess.run(["pgrep", "-l", "-g", str(gone.pid)], capture_output=True,
                                        text=True).stdout

    def listens():
        return ":7000 " in subprocess.run(a.words("ss", "-Hltn"), capture_output=True,
                                          text=True).stdout
    until(lambda: listens() and not is_read(), "'weft up' without a reader")
    ran = a.run("up")
    os.killpg(gone.pid, signal.SIGTERM)
    gone.wait(20)
    assert "Does 'weft up' or 'weft worker' run here already" in ran.stderr, ran
    full = in_shell(a, 'timeout 3 "$WEFT" hosts >/dev/full; echo $?')
    assert full.stdout.strip() == "1", full


def test_a_port_that_is_taken(room, _):
    """Another program holds the UDP port exclusively; jobs are served all the same."""
    a, b = room.two()
    holder = subprocess.Popen(a.words(sys.executable, "-c", """if True:
        import socket, sys
        sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        sock.bind(("::", 7000))
        print("ready", flush=True)
        sys.stdin.read()"""), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "ready\n"
    first = a.up()
    first.await_text(r"cannot find this host: cannot hear beacons at UDP port 7000: "
                     r"Address already in use")
    ran = a.run("hosts")
    assert ran.returncode == 1 and "UDP port 7000: Address already in use" in ran.stderr, ran
    holder.stdin.close()
    holder.wait(10)
    holder.stdout.close()


def test_a_host_that_died(room, model):
    """The host leaves the list, and a job whose file needs it soon reports that."""
    a, b = room.two()
    first = a.up()
    second = b.up(words_of(first))
    await_others(a, ["b"])
    with open(os.path.join(a.home, ".config/weft/clusters/home.toml"), "w") as file:
        file.write('[[host]]\nname = "b"\n')
    first.await_text(r"found: eth1 at eth7 of b")
    second.process.send_signal(signal.SIGSTOP)  # hangs without ending
    first.await_text(r"gone: eth1 at eth7 of b")
    ran = a.run("hosts")
    assert ran.returncode == 0 and "the cluster file names b, but discovery did not find it" in \
        ran.stderr, ran
    begin = time.monotonic()
    ran = a.run("run", model, "-p", "ab", "--cluster", "home")
    assert ran.returncode == 1 and "cluster 'home': host b was not found within" in ran.stderr, ran
    assert time.monotonic() - begin < limits.limit(20)
    second.process.send_signal(signal.SIGCONT)
    await_others(a, ["b"])
    # With an address the host is called without a beacon.
    with open(os.path.join(a.home, ".config/weft/clusters/home.toml"), "w") as file:
        file.write('[[host]]\nname = "b"\naddress = "10.99.99.99"\n')
    begin = time.monotonic()
    ran = a.run("run", model, "-p", "ab", "--cluster", "home", "--timeout-ms", "4000")
    assert ran.returncode in (1, 3) and "10.99.99.99:7000" in ran.stderr, ran
    assert time.monotonic() - begin < limits.limit(20)


if __name__ == "__main__":
    main(globals(), NIGHTLY_ONLY)
