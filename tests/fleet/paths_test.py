"""What is said of hosts that run another job.

    paths_test.py WEFT TINY_MODEL [TEST...]

Needs root, ip(8), unshare and nsenter; skips (status 77) where one is missing.
"""

import json
import os
import subprocess
import sys
import time

from spaces import Room, why_skipped, words_of


def findings(host, *words, status):
    ran = host.run("doctor", *words, "--check", "across-measured", "--json")
    assert ran.returncode == status, ran
    return json.loads(ran.stdout)["findings"]


def test_busy_is_not_broken(room, model):
    a, b, c = room.ring()
    words = words_of(a.up())
    seconds = [host.up("-", typed=words + "\n") for host in (b, c)]
    for second in seconds:
        second.await_text(r"found: .* of a")
    with open(os.path.join(a.home, ".config/weft/clusters/pair.toml"), "w") as file:
        file.write('key = "home.key"\n[[host]]\nname = "b"\n')
    server = a.start("serve", model, "--cluster", "pair", "--port", "0", "-t", "1", "--ctx", "256",
                     "--weights-from", "0", "--pp", "2")
    server.await_text(r"serving ")
    found = findings(a, "--cluster", "pair", status=0)
    (busy,) = found
    assert busy["host"] == "b" and busy["severity"] == "note", busy
    assert "is running another job (inference of " in busy["read"], busy
    assert " s)" in busy["read"] and "not measured" in busy["why"], busy
    # The idle one of two is measured, and the server goes on.
    found = findings(a, "--cluster", "home", status=0)
    assert [each["host"] for each in found if each["severity"] == "note"] == ["b"], found
    assert [each for each in found if each["host"] == "a to c"], found
    text = a.run("doctor", "--cluster", "pair", "--check", "across-measured", "-v")
    assert text.returncode == 0 and "second worker" not in text.stdout, text
    ran = a.run("run", model, "-p", "ab", "--cluster", "pair", "-n", "2", "--timeout-ms", "2000")
    assert ran.returncode == 1 and "is running another job (inference of " in ran.stderr, ran
    assert server.end() == 0, server.text
    # By whom it is asked does not matter, nor what the job is.
    seconds[0].await_text(r"the job ended")
    assert not [each for each in findings(a, "--cluster", "pair", status=0)
                if each["severity"] == "note"]


def main(weft, tiny_model):
    with Room(weft) as room:
        model = os.path.join(room.folder.name, "tiny.gguf")
        subprocess.run([tiny_model, model], check=True, capture_output=True)
        for name, test in list(globals().items()):
            if not name.startswith("test_") or (sys.argv[3:] and name not in sys.argv[3:]):
                continue
            begin = time.monotonic()
            with Room(weft) as own:
                test(own, model)
            print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    reason = why_skipped()
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(77)
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
