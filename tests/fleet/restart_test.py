"""`weft serve --restart` with hosts that come and go, and the units of `--unit`.

    restart_test.py WEFT TINY_MODEL [TEST...]

Needs root, ip(8), unshare and nsenter; skips (status 77) if one is missing.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

from spaces import limits, main
from wait import until

ASK = """
import json, sys, urllib.error, urllib.request
path, body = sys.argv[1], sys.argv[2].encode() or None
request = urllib.request.Request("http://127.0.0.1:18080" + path, body,
                                 {"Content-Type": "application/json"})
try:
    with urllib.request.urlopen(request, timeout=60) as answer:
        print(json.dumps([answer.status, answer.read().decode()]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, error.read().decode()]))
except OSError as error:
    print(json.dumps([0, str(error)]))
"""
COMPLETION = json.dumps({"prompt": "ab", "max_tokens": 4})


def ask(host, path, body=""):
    ran = subprocess.run(host.words(sys.executable, "-c", ASK, path, body), capture_output=True,
                         text=True, check=True)
    return json.loads(ran.stdout)


def await_health(host, server, status, text="", seconds=90):
    def healthy():
        seen.append(ask(host, "/health"))
        return seen[-1][0] == status and text in seen[-1][1]
    seen = []
    until(healthy, lambda: f"{status} {text}, not {seen[-1]}:\n{server.text}",
          limits.limit(seconds), server.process)
    return seen[-1]


def children(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            found += [int(word) for word in file.read().split()]
    return found


NIGHTLY_ONLY = ("test_named_workers",)


def serve(host, model, *words):
    return host.start("serve", model, "--cluster", "home", "--restart", "--port", "18080", "-t",
                      "1", "--ctx", "256", "--weights-from", "0", "--pp", "2",
                      "--restart-timeout-ms", "500", *words)


def two_with_a_key(room):
    a, b = room.two()
    ran = a.up()  # creates the key
    words = ran.await_text(r"(?m)^    ((?:[a-z]{5}-){5}[a-z]{5})$").group(1)
    assert ran.end() == 0
    return a, b, words


def test_hosts_that_come_and_go(room, model):
    a, b, words = two_with_a_key(room)
    with open(os.path.join(a.home, ".config/weft/clusters/home.toml"), "w") as file:
        file.write('[[host]]\nname = "b"\n')
    server = serve(a, model)
    server.await_text(r"waiting for host b.*host b of cluster|waiting for host b.*was not found")
    await_health(a, server, 503, "waiting for host b")
    assert ask(a, "/live")[0] == 200
    status, answer = ask(a, "/v1/completions", COMPLETION)
    assert status == 503 and "waiting for host b" in answer, answer
    second = b.up("-", typed=words + "\n")
    await_health(a, server, 200)
    assert ask(a, "/v1/completions", COMPLETION)[0] == 200
    for again in range(2 if limits.NIGHTLY else 1):
        os.kill(second.process.pid, signal.SIGKILL)  # ends its rank, too
        await_health(a, server, 503, "waiting for host b")
        second = b.up()
        await_health(a, server, 200)
        assert ask(a, "/v1/completions", COMPLETION)[0] == 200
    # An unchanged reason is not repeated endlessly.
    assert server.text.count("waiting for host b") <= 8, server.text
    # The server itself crashes.
    (child,) = children(server.process.pid)
    os.kill(child, signal.SIGKILL)
    server.await_text(r"killed by signal 9")
    await_health(a, server, 200)
    assert children(server.process.pid) != [child]
    assert ask(a, "/v1/completions", COMPLETION)[0] == 200
    (child,) = children(server.process.pid)
    assert server.end() == 0, server.text
    assert not os.path.exists(f"/proc/{child}")


def test_the_hosts_of_the_first_start_are_kept(room, model):
    """Without a host file, a server does not restart with fewer hosts."""
    a, b, words = two_with_a_key(room)
    second = b.up("-", typed=words + "\n")
    server = serve(a, model)
    await_health(a, server, 200)
    os.kill(second.process.pid, signal.SIGKILL)
    await_health(a, server, 503, "waiting for host b")
    # It can be stopped while it waits.
    assert server.end(signal.SIGINT) == 0, server.text


def test_named_workers(room, model):
    """--hosts instead of --cluster; the worker starts later."""
    a, b, _ = two_with_a_key(room)
    a.do("ip", "addr", "add", "10.9.0.1/24", "dev", "eth1")
    b.do("ip", "addr", "add", "10.9.0.2/24", "dev", "eth7")
    key = os.path.join(a.home, ".config/weft/clusters/home.key")
    server = a.start("serve", model, "--hosts", "10.9.0.2:7000", "--key-file", key, "--restart",
                     "--port", "18080", "-t", "1", "--ctx", "256", "--weights-from", "0", "--pp",
                     "2")
    await_health(a, server, 503, "waiting for host 10.9.0.2:7000")
    b.start("worker", "--listen", "0.0.0.0:7000", "--key-file", key)
    await_health(a, server, 200)
    assert server.end() == 0, server.text


def test_what_does_not_pass(room, model):
    a, _, _ = two_with_a_key(room)
    for words, status, said in (
            (["/nonexistent.gguf", "--port", "0"], 1, "/nonexistent.gguf"),
            ([model, "--port", "0", "--kv-dtype", "x"], 2, "--kv-dtype"),
            ([model, "--port", "0", "--cluster", "other"], 1, "there is no cluster 'other'"),
            ([model, "--unit"], 2, "--unit needs --restart")):
        ran = a.run("serve", *words, *([] if "--unit" in words else ["--restart"]))
        assert ran.returncode == status and said in ran.stderr, ran
        assert ran.stderr.count("error:") == 1, ran
    server = a.start("serve", model, "--port", "18080", "-t", "1", "--ctx", "256")
    await_health(a, server, 200)
    ran = a.run("serve", model, "--restart", "--port", "18080")
    assert ran.returncode == 1 and "another program listens on this port" in ran.stderr, ran
    assert server.end() == 0


def test_units(room, model):
    a, _, _ = two_with_a_key(room)
    odd = os.path.join(room.folder.name, "it's $a \"50%\" model\\.gguf")
    shutil.copy(model, odd)
    for words, name in ((["serve", odd, "--restart", "--cluster", "home", "--name", "$x %n ${y}"],
                         "weft-serve"), (["up", "--port", "7009"], "weft-up-home")):
        ran = a.run(*words, "--unit")
        assert ran.returncode == 0 and name in ran.stderr, ran
        command = re.search(r"(?m)^ExecStart=(.*)$", ran.stdout).group(1)
        # Undoes systemd's quoting.
        plain = [re.sub(r"\\(.)", r"\1", word).replace("%%", "%").replace("$$", "$")
                 for word in re.findall(r'"((?:[^"\\]|\\.)*)"', command)]
        assert plain == [os.path.realpath(a.weft), *words], plain
        assert "LimitMEMLOCK=infinity" in ran.stdout and "KillMode=mixed" in ran.stdout
        if shutil.which("systemd-analyze"):
            path = os.path.join(room.folder.name, name + ".service")
            with open(path, "w") as file:
                file.write(ran.stdout)
            checked = subprocess.run(["systemd-analyze", "verify", path], capture_output=True,
                                     text=True, check=False)
            assert checked.returncode == 0 and name not in checked.stderr, checked
    # A name that without the file means a model of the Hub; variables of this command.
    os.mkdir(os.path.join(room.folder.name, "models"))
    shutil.copy(model, os.path.join(room.folder.name, "models", "qwen3:8b"))
    ran = subprocess.run(
        a.weft_words("serve", "qwen3:8b", "--restart", "--name", "qwen3:8b", "--unit"),
        env={**a.env(), "HF_ENDPOINT": "http://10.9.0.9", "HF_TOKEN": "hf_secret",
             "CUDA_VISIBLE_DEVICES": "1", "WEFT_MEMORY_MIB": "4096"},
        cwd=os.path.join(room.folder.name, "models"), capture_output=True, text=True, check=False)
    assert '"serve" "./qwen3:8b" "--restart" "--name" "qwen3:8b"' in ran.stdout, ran
    for variable in ("HF_ENDPOINT=http://10.9.0.9", "CUDA_VISIBLE_DEVICES=1",
                     "WEFT_MEMORY_MIB=4096"):
        assert f'Environment="{variable}"' in ran.stdout, ran
    assert "hf_secret" not in ran.stdout and "no HF_TOKEN" in ran.stderr, ran
    words = "bizol-ganup-kivat-sotud-famir-lubos"
    ran = a.run("up", words, "--unit")
    assert ran.returncode == 2 and "a unit must not contain the key phrase" in ran.stderr, ran
    ran = a.run("up", "--cluster", "none", "--unit")
    assert ran.returncode == 1 and "there is no cluster 'none'" in ran.stderr, ran


if __name__ == "__main__":
    main(globals(), NIGHTLY_ONLY)
