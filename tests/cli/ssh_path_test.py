"""`weft doctor --hosts` over a path that loses large packets: two hosts of MTU 9000 in network
namespaces, between them a bridge of MTU 1500 that silently drops larger packets, and a real
sshd. The doctor must report the path, whether ssh hangs or gives up by itself, and must stop
reporting it once both ends are set to 1500.

    ssh_path_test.py WEFT

Needs root, ip(8), ssh, sshd and ssh-keygen; skips (status 77) if one is missing.
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from namespaces import Namespace, serve_ssh, why_skipped  # noqa: E402


def connect(here, switch, there):
    """A bridge in `switch` with ports of MTU 1500, between ends of MTU 9000."""
    switch.do("ip", "link", "add", "br0", "type", "bridge")
    for end, port, address in ((here, "p1", "10.99.7.1/24"), (there, "p2", "10.99.7.2/24")):
        switch.do("ip", "link", "add", port, "type", "veth", "peer", "name", "fabric0",
                   "netns", str(end.space.pid))
        switch.do("ip", "link", "set", port, "mtu", "1500", "master", "br0", "up")
        # One packet at a time, because a veth passes larger GSO packets.
        end.do("ip", "link", "set", "fabric0", "mtu", "9000", "gso_max_segs", "1", "up")
        end.do("ip", "addr", "add", address, "dev", "fabric0")
    switch.do("ip", "link", "set", "br0", "up")


def findings(here, folder, weft, timeout_ms):
    environment = dict(os.environ, PATH=f"{folder}/bin:{os.environ['PATH']}")
    ran = subprocess.run(here.words(weft, "doctor", "--hosts", "10.99.7.2", "--json",
                                    "--no-measure", "--remote", weft, "--timeout-ms",
                                    str(timeout_ms)),
                         env=environment, capture_output=True, text=True)
    return json.loads(ran.stdout)["findings"]


def assert_lost(found, ended):
    """ended: how ssh ended, as the finding says."""
    lost = [f for f in found if f["check"] == "reachable"]
    assert len(lost) == 1, lost
    assert "packets of 9000 bytes do not arrive" in lost[0]["read"], lost
    assert ended in lost[0]["read"], lost
    assert "sudo ip link set dev fabric0 mtu 1500" in lost[0]["fix"], lost


def main(weft):
    spaces = [Namespace(), Namespace(), Namespace()]
    here, switch, there = spaces
    try:
        with tempfile.TemporaryDirectory() as folder:
            connect(here, switch, there)
            sshd = serve_ssh(there, "10.99.7.2", folder)
            try:
                assert_lost(findings(here, folder, weft, 5000), "did not end within 5000 ms")
                with open(f"{folder}/ssh.conf", "a") as file:
                    file.write("ServerAliveInterval 1\nServerAliveCountMax 2\n")
                assert_lost(findings(here, folder, weft, 120000), "ended with status 255")
                for end in (here, there):
                    end.do("ip", "link", "set", "fabric0", "mtu", "1500")
                whole = findings(here, folder, weft, 120000)
                assert not [f for f in whole if f["check"] == "reachable"], whole
                assert len(whole) > 3, whole
            finally:
                sshd.terminate()
                sshd.wait()
    finally:
        for space in spaces:
            space.close()


if __name__ == "__main__":
    reason = why_skipped("ssh", "sshd", "ssh-keygen")
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(77)
    main(os.path.abspath(sys.argv[1]))
