#!/usr/bin/env python3
"""A key, or a client, uses everything it can get, and a neighbor gets answers before any greedy
request ends. Any model with a long context works; the test uses abacus with a longer context.
"""
import http.client
import json
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import threading
import unittest

MODEL = pathlib.Path(__file__).parents[2] / "models/abacus/model.gguf"
os.environ["WEFT_MODEL"] = str(MODEL)
import serving  # noqa: E402  (it reads WEFT_MODEL)
from wait import until  # noqa: E402

CHAT, TEXT, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
CONTEXT, SLOTS = 8192, 4
LONG = "1 + 2 + 3 + " * 15
ENDLESS = {"max_tokens": -1, "ignore_eos": True, "prompt": "1 + 1"}
SHORT = ((TEXT, {"prompt": "2 + 2", "max_tokens": 1}),
         (TEXT, {"prompt": ["2 + 2", "3"], "max_tokens": 1, "stream": True}),
         (CHAT, {"messages": [{"role": "user", "content": "2 + 2"}], "max_tokens": 1, "n": 2}),
         (EMBED, {"input": "2 + 2"}))


class Greedy:
    """A request read on a thread until close(); counts its finished answers."""

    def __init__(self, server, path, body, headers):
        self.ended, self.over = 0, False
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port,
                                                     timeout=serving.PATIENCE)
        self.connection.request("POST", path, json.dumps(body),
                                {"Content-Type": "application/json", **headers})
        self.wire = self.connection.sock
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        try:
            answer = self.connection.getresponse()
            while line := answer.readline():
                self.ended += b'"finish_reason":"' in line
            self.over = True
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            pass  # close() was called

    def close(self):
        try:
            self.wire.shutdown(socket.SHUT_RD)
            # Makes the server notice at once.
            self.wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass
        self.thread.join()
        self.connection.close()


class Fair(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.folder.name, "long.gguf")
        key, number = b"llama.context_length" + struct.pack("<I", 4), struct.Struct("<I")
        data = MODEL.read_bytes()
        assert data.count(key + number.pack(256)) == 1
        with open(cls.model, "wb") as file:
            file.write(data.replace(key + number.pack(256), key + number.pack(CONTEXT)))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def serve(self, keys, *words, slots=SLOTS):
        """A server with these keys, by name; None: without keys."""
        self.heads = {name: {} for name in keys}
        if any(limits is not None for limits in keys.values()):
            folder = tempfile.TemporaryDirectory()
            self.addCleanup(folder.cleanup)
            path = os.path.join(folder.name, "keys")
            with open(path, "w") as lines:
                os.fchmod(lines.fileno(), 0o600)
                for name, limits in keys.items():
                    made = json.loads(serving.weft("key", "new", name, "--json", *limits))
                    lines.write(made["line"] + "\n")
                    self.heads[name] = {"Authorization": f"Bearer {made['key']}"}
            words += ("--api-key-file", path)
        self.server = serving.Server(CONTEXT, "--max-seqs", str(slots), *words,
                                     stderr=subprocess.DEVNULL, of=self.model)
        self.addCleanup(self.server.close)

    def status(self, name):
        return self.server.json("GET", "/api/status", None, self.heads[name])[1]

    def wait_until(self, name, condition):
        until(lambda: condition(self.status(name)), lambda: self.status(name), serving.PATIENCE)

    def ask(self, name, path, body):
        status, _, data = self.server.call("POST", path, body, self.heads[name])
        self.assertEqual(status, 200, data)

    def neighbor(self, bodies, slots=SLOTS, asks=SHORT):
        """Requests of `greedy` take all slots; requests of `modest` are still answered."""
        greedy = [Greedy(self.server, path, body, self.heads["greedy"]) for path, body in bodies]
        try:
            self.wait_until("modest", lambda s: s["running"] >= slots)
            for path, body in asks * 2:
                self.ask("modest", path, body)
                self.assertEqual(sum(g.ended + g.over for g in greedy), 0, (path, body))
        finally:
            for g in greedy:
                g.close()
        self.wait_until("modest", lambda s: s["running"] + s["waiting"] == 0)

    def greedy_bodies(self):
        stream = {**ENDLESS, "stream": True}
        yield "n", [(TEXT, {**stream, "n": 64})]
        yield "best_of", [(TEXT, {**ENDLESS, "n": 64, "best_of": 64})]
        yield "chat", [(CHAT, {"messages": [{"role": "user", "content": "1"}], "n": 64,
                               "max_tokens": -1, "ignore_eos": True, "stream": True})]
        yield "a list of prompts", [(TEXT, {**stream, "prompt": ["1 + 1", "2"] * 16, "n": 2})]
        yield "long prompts", [(TEXT, {**stream, "prompt": [f"{i} + {LONG}" for i in range(64)]})]
        yield "embeddings", [(EMBED, {"input": [f"{i} + {LONG}" for i in range(2000)]})]

    def test_another_key(self):
        self.serve({"greedy": (), "modest": ()})
        for name, bodies in self.greedy_bodies():
            with self.subTest(name):
                self.neighbor(bodies)
        with self.subTest("many requests"):
            self.neighbor([(TEXT, {**ENDLESS, "stream": True})] * 40)

    def test_another_request_without_keys(self):
        self.serve({"greedy": None, "modest": None})
        for name, bodies in self.greedy_bodies():
            with self.subTest(name):
                self.neighbor(bodies)

    def test_few_pages(self):
        """A few long prompts fill the cache while slots are free."""
        self.serve({"greedy": (), "modest": ()}, "--kv-tokens", str(CONTEXT), slots=16)
        prompts = [f"{i} + {LONG * 8}" for i in range(16)]
        self.neighbor([(TEXT, {**ENDLESS, "stream": True, "prompt": prompts})], 4,
                      ((TEXT, {"prompt": LONG * 8, "max_tokens": 1}),))

    def test_one_slot(self):
        self.serve({"greedy": (), "modest": ()}, slots=1)
        self.neighbor([(TEXT, {**ENDLESS, "stream": True, "n": 64})], 1)

    def test_priority(self):
        self.serve({"greedy": ("--priority", "1"), "modest": ("--priority", "2")})
        self.neighbor([(TEXT, {**ENDLESS, "stream": True, "n": 64})])

    def test_a_limit_applies_to_sequences(self):
        self.serve({"greedy": ("--concurrent", "1"), "modest": ()})
        greedy = Greedy(self.server, TEXT, {**ENDLESS, "stream": True, "n": 64},
                        self.heads["greedy"])
        try:
            self.wait_until("modest", lambda s: s["running"] == 1 and s["waiting"] >= 32)
            for path, body in SHORT:
                self.ask("modest", path, body)
                self.wait_until("modest", lambda s: s["running"] == 1)
            self.assertEqual(greedy.ended + greedy.over, 0)
            status, answer = self.server.json("POST", TEXT, ENDLESS, self.heads["greedy"])
            self.assertEqual((status, answer["error"]["code"]), (429, "concurrency_limit_exceeded"))
        finally:
            greedy.close()
        self.wait_until("modest", lambda s: s["running"] + s["waiting"] == 0)
        self.ask("greedy", TEXT, {"prompt": "1", "max_tokens": 2, "n": 3})


if __name__ == "__main__":
    serving.main()
