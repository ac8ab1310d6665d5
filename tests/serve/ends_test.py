#!/usr/bin/env python3
"""A stop and a limit of 0 do not damage answers in progress or other programs' files."""
import json
import os
import pathlib
import socket
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Any model works.
os.environ["WEFT_MODEL"] = str(ROOT / "models/abacus/model.gguf")

import serving  # noqa: E402
from wait import Pace  # noqa: E402


class Ends(unittest.TestCase):
    def test_an_answer_that_is_being_sent_ends_before_the_server(self):
        server = serving.Server(256)
        text = json.dumps({"content": "7" * 1_000_000}).encode()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            client.connect(("127.0.0.1", server.port))
            client.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                           + str(len(text)).encode() + b"\r\n\r\n" + text)
            head, _, body = client.recv(4096).partition(b"\r\n\r\n")
            size = next(int(line.split()[1]) for line in head.decode().split("\r\n")
                        if line.lower().startswith("content-length"))
            server.process.terminate()
            got = len(body)
            pace = Pace(0.1)
            while got < size:
                part = client.recv(size // 20, socket.MSG_WAITALL)  # 2 s in all
                self.assertNotEqual(part, b"", f"{got} of {size} bytes")
                got += len(part)
                pace.next()
        self.assertEqual(server.process.wait(serving.limit(30)), 0)
        server.process.stdout.close()

    def test_a_server_that_stores_nothing_leaves_the_folder_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            server = serving.Server(256, "--responses-dir", folder)
            status, made = server.json("POST", "/v1/responses",
                                       {"input": "1 + 2 =", "max_output_tokens": 16})
            self.assertEqual(status, 200, made)
            server.close()
            before = sorted(os.listdir(folder + "/all"))
            self.assertEqual(len(before), 1)
            server = serving.Server(256, "--responses-dir", folder, "--max-responses", "0")
            status, answer = server.json("POST", "/v1/responses",
                                         {"input": "1", "previous_response_id": made["id"]})
            self.assertEqual((status, answer["error"]["code"]), (400, "unsupported_value"))
            server.close()
            self.assertEqual(sorted(os.listdir(folder + "/all")), before)


if __name__ == "__main__":
    serving.main()
