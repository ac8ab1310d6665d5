#!/usr/bin/env python3
"""Writes the seeds of the control-frame fuzz target to fuzz/corpus/control, one file per message.

Usage: tools/make_control_seeds.py [FOLDER]. Standard library of Python 3.11 only; deterministic.
The layout follows src/cluster/frame.h (protocol 11).
"""
import pathlib
import struct
import sys


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


def strings(values) -> bytes:
    return struct.pack("<I", len(values)) + b"".join(text(v) for v in values)


def frame(kind: int, payload: bytes, tag: bytes = b"") -> bytes:
    return struct.pack("<IB", 1 + len(payload) + len(tag), kind) + payload + tag


KEY = bytes(range(32))  # public
HELLO = text(b"weft") + struct.pack("<Iq", 11, 5000) + KEY + text(b"0.1.0")
BUILD = text(b"1f3da7147a20-dirty") + text(b"9f86d081884c")
# The MAC, the version, the build; ticket, number, take and returns of the request.
PROOF = bytes(range(32)) + text(b"0.1.0") + BUILD + struct.pack("<QQBB", 7, 3, 1, 0)
# The running jobs; places, place, waiting, free, number; the MAC.
ANSWER = strings([b"training of 10.0.0.1:5, for 9 s"]) + struct.pack("<iiiBQ", 2, 1, 3, 0, 4)
NO_ANSWER = strings([]) + struct.pack("<iiiBQ", 1, 0, 0, 0, 0)
# A wait: on, step, index, place, op, still_ms.
WAIT = struct.pack("<iqqq", 1, 7, 30, 2) + text(b"all-reduce") + struct.pack("<q", 150)
# Progress; waits of the stepping thread, and of other threads; awaits_own; stalled_ms; loaded.
HEARTBEAT = (struct.pack("<qI", 42, 1) + WAIT + struct.pack("<I", 2) + WAIT + WAIT
             + struct.pack("<Bqi", 1, 0, 500))
# The rank's own fields; then those of all ranks, with two links (one for few bytes) and spares.
ASSIGN = (struct.pack("<i", 1) + text(b"") + struct.pack("<qQ", 1, 4096) + text(b"verbs")
          + text(b"mlx5_0:1") + text(b"10.0.1.0/24") + text(b"") + struct.pack("<iBB", 3, 1, 0)
          + strings([b"a", b"b", b"c"]) + struct.pack("<IiiBiiBB", 2, 0, 1, 0, 2, 0, 1, 1)
          + text(b'{"model": "x.gguf"}') + struct.pack("<q", 20_000))
PAYLOADS = {
    "hello": (1, HELLO),
    "challenge": (2, struct.pack("<I", 11) + KEY),
    "proof": (3, PROOF),
    "welcome": (4, PROOF),
    "refuse": (5, b"\x02" + text(b"0.2.0") + BUILD + NO_ANSWER + bytes(32)),
    "busy": (5, b"\x03" + text(b"") + text(b"") + text(b"") + ANSWER + bytes(32)),
    "assign": (6, ASSIGN),
    "heartbeat": (7, HEARTBEAT),
    "relay": (8, struct.pack("<iiIII", 0, 1, 3, 4, 2) + struct.pack("<4I", 1, 2, 3, 4)),
    "value": (9, struct.pack("<q", 1) + text(b"model") + text(b"abc")
              + struct.pack("<q", 1)),
    "result": (10, struct.pack("<q", 1) + text(b"abc") + struct.pack("<q", 1)),
    "failure": (11, struct.pack("<Bi", 5, -1) + text(b"9 GiB needed") + text(b"")
                + struct.pack("<qB", 1, 0)),
    "verdict": (12, struct.pack("<Bi", 7, 2) + text(b"rank 2 was lost") + text(b"silent")
                + struct.pack("<qB", 1, 1)),
    "end": (13, b""),
    "end_strings": (13, strings([b"one", b"two"])),
    "end_ack": (14, b""),
    "ready": (15, struct.pack("<qIi", 1, 1, 1)),
}


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "fuzz/corpus/control")
    folder.mkdir(parents=True, exist_ok=True)
    for name, (kind, payload) in PAYLOADS.items():
        (folder / name).write_bytes(b"\0" + frame(kind, payload))
    every = b"".join(frame(kind, payload) for kind, payload in PAYLOADS.values())
    (folder / "all").write_bytes(b"\0" + every)
    (folder / "handshake").write_bytes(b"\0" + frame(1, HELLO) + frame(3, PROOF))
    (folder / "sealed").write_bytes(b"\1" + frame(7, HEARTBEAT, bytes(16)))


if __name__ == "__main__":
    main()
