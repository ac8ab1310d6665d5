"""A host between two others that reads, and changes, what passes: it forwards the frames of two
interfaces.

    wire_tap.py INTERFACE INTERFACE FOLDER

FOLDER/frames receives the payloads of the TCP segments that it forwards. While FOLDER/change
exists, holding "data" or "control", the tap changes one byte in the middle of each longer segment
of that kind, with a right checksum; it writes the number of changed segments to FOLDER/changed.
"""

import ctypes
import fcntl
import os
import select
import socket
import struct
import sys

CONTROL_PORT = 7000
LEAST_PAYLOAD = 200  # of a changed segment: shorter ones greet
SIOCETHTOOL, SET_TX_CSUM, SET_TSO, SET_GSO = 0x8946, 0x17, 0x1f, 0x24


def without_offloads(interface):
    """Sent frames have checksums, and fit the interface."""
    with socket.socket() as any_socket:
        for setting in (SET_TX_CSUM, SET_TSO, SET_GSO):
            value = ctypes.create_string_buffer(struct.pack("II", setting, 0))
            fcntl.ioctl(any_socket, SIOCETHTOOL,
                        struct.pack("16sP16x", interface.encode(), ctypes.addressof(value)))


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


class Segment:
    """The TCP segment of an Ethernet frame (IPv4 or IPv6); None if there is none."""

    @staticmethod
    def of(frame):
        kind = struct.unpack_from("!H", frame, 12)[0]
        if kind == 0x0800 and frame[23] == socket.IPPROTO_TCP:
            begin, end = 14 + 4 * (frame[14] & 15), 14 + struct.unpack_from("!H", frame, 16)[0]
            addresses = frame[26:34]
        elif kind == 0x86dd and frame[20] == socket.IPPROTO_TCP:
            begin, end = 54, 54 + struct.unpack_from("!H", frame, 18)[0]
            addresses = frame[22:54]
        else:
            return None
        return Segment(frame, begin, end, addresses)

    def __init__(self, frame, begin, end, addresses):
        self.frame, self.begin, self.end, self.addresses = frame, begin, end, addresses
        self.payload = begin + 4 * (frame[begin + 12] >> 4)
        self.control = CONTROL_PORT in struct.unpack_from("!HH", frame, begin)

    def changed(self):
        frame = bytearray(self.frame)
        frame[(self.payload + self.end) // 2] ^= 0x41
        frame[self.begin + 16:self.begin + 18] = b"\0\0"
        segment = bytes(frame[self.begin:self.end])
        pseudo = self.addresses + struct.pack("!IHBB", len(segment), 0, 0, socket.IPPROTO_TCP)
        struct.pack_into("!H", frame, self.begin + 16, checksum(pseudo + segment))
        return bytes(frame)


def wanted(folder):
    try:
        with open(os.path.join(folder, "change")) as file:
            return file.read()
    except OSError:
        return ""


def main(interfaces, folder):
    ends = []
    for interface in interfaces:
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
        end.bind((interface, 0))
        ends.append(end)
    changed = 0
    frames = open(os.path.join(folder, "frames"), "wb", buffering=0)
    print("forwarding", flush=True)
    while True:
        for end in select.select(ends, [], [])[0]:
            frame, source = end.recvfrom(1 << 17)
            if source[2] == socket.PACKET_OUTGOING:
                continue
            segment = Segment.of(frame)
            if segment is not None and segment.end > segment.payload:
                frames.write(frame[segment.payload:segment.end])
                kind = "control" if segment.control else "data"
                long = segment.end - segment.payload >= LEAST_PAYLOAD
                if long and wanted(folder) == kind:
                    frame = segment.changed()
                    changed += 1
                    with open(os.path.join(folder, "changed"), "w") as file:
                        file.write(str(changed))
            ends[1 - ends.index(end)].send(frame)


if __name__ == "__main__":
    if sys.argv[1] == "--without-offloads":
        without_offloads(sys.argv[2])
    else:
        main(sys.argv[1:3], sys.argv[3])
