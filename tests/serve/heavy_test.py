#!/usr/bin/env python3
"""Expensive requests: limits of their use of the reading thread, its stack and memory, while other
requests are answered. Any model works; the test uses abacus."""
import http.client
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import unittest

MODEL = str(pathlib.Path(__file__).parents[2] / "models/abacus/model.gguf")
os.environ["WEFT_MODEL"] = MODEL
import gguf_template  # noqa: E402
import serving  # noqa: E402  (it reads WEFT_MODEL)
from wait import until  # noqa: E402

CHAT, TEXT, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
RESPONSES, COUNT = "/v1/responses", "/v1/messages/count_tokens"
QUESTION = {"role": "user", "content": "1 + 1"}
# CPU time of one request within the limits, including HTTP.
MOST_S = 3 * serving.sanitizers_factor()
SECRET = "xyzzy-marker-of-a-prompt"


def nested(depth, opened="[", closed="]"):
    return opened * depth + closed * depth


def call(arguments):
    """Requests of each API whose conversation has a call with these arguments."""
    function = {"name": "f", "arguments": arguments}
    made = {"role": "assistant", "content": "", "tool_calls": [
        {"id": "1", "type": "function", "function": function}]}
    item = {"type": "function_call", "call_id": "1", **function}
    return ((CHAT, {"messages": [QUESTION, made, QUESTION], "max_tokens": 1}),
            ("/tokenize", {"messages": [QUESTION, made, QUESTION]}),
            (RESPONSES, {"input": [QUESTION, item, QUESTION], "max_output_tokens": 1}))


class HeavyCase(serving.ServedCase):
    context = 256

    def tearDown(self):
        status, body = self.server.json("POST", TEXT, {"prompt": "1 + 1", "max_tokens": 2})
        self.assertEqual(status, 200, body)

    @classmethod
    def setUpClass(cls):
        cls.server = serving.Server(cls.context, stderr=subprocess.DEVNULL)
        cls.longest = (0, "", "")

    @classmethod
    def tearDownClass(cls):
        print("longest:", cls.longest, flush=True)
        cls.server.close()

    def cpu_s(self):
        with open(f"/proc/{self.server.process.pid}/stat") as line:
            fields = line.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, path, body, statuses=(200, 400)):
        """Sends the request; checks its status and CPU time."""
        begin = self.cpu_s()
        status, answer = self.server.json("POST", path, body)
        took = self.cpu_s() - begin
        self.assertIn(status, statuses, str(answer)[:300])
        self.assertLess(took, MOST_S, f"{path}: {took:.1f} s")
        type(self).longest = max(self.longest, (took, path, str(body)[:40]))
        return status, answer


class Depth(HeavyCase):
    def test_arguments_of_calls(self):
        turn = 0
        for depth in (101, 105000, 1000000):
            for text in (nested(depth), "[" * depth, nested(depth, '{"a":', "}"),
                         '{"a":' * depth + "1" + "}" * depth):
                for path, body in call(text):
                    turn += 1
                    if not serving.in_turn(turn, 4):
                        continue
                    _, answer = self.ask(path, body, (400,))
                    self.assertIn("nested deeper than 100", answer["error"]["message"])

    def test_arguments_that_are_no_json_or_just_deep_enough(self):
        for text in ("", "{", "text", nested(40), '"a"', '{"a":"' + "[" * 100000 + '"}'):
            for path, body in call(text):
                self.ask(path, body)

    def test_values_of_bodies(self):
        deep = json.loads(nested(90))
        tool = {"name": "f", "input_schema": {"type": "object", "properties": {"a": deep}}}
        used = {"role": "assistant", "content": [
            {"type": "tool_use", "id": "1", "name": "f", "input": {"a": deep}}]}
        for path in (MESSAGES, COUNT):
            self.ask(path, {"messages": [QUESTION, used, QUESTION], "tools": [tool],
                            "max_tokens": 1})
        schema = {}
        for _ in range(40):
            schema = {"type": "object", "properties": {"a": schema}}
        for extra in ({"response_format": {"type": "json_schema", "json_schema": {
                           "name": "s", "schema": schema}}},
                      {"chat_template_kwargs": {"a": deep}}, {"metadata": {"a": deep}}):
            self.ask(CHAT, {"messages": [QUESTION], "max_tokens": 1, **extra})
        for turn, path in enumerate((CHAT, TEXT, MESSAGES, COUNT, RESPONSES, "/v1/embeddings",
                                     "/tokenize", "/detokenize")):
            for index, text in enumerate((nested(200), nested(3000000), "[" * 3000000)):
                if not serving.in_turn(turn + index, 4):
                    continue
                self.ask(path, '{"messages":%s}' % text, (400,))

    def test_schemas_as_text(self):
        for text in (nested(100000), nested(100000, '{"not":', "}"), "[" * 100000,
                     nested(100, '{"not":', "{}}")):
            for extra in ({"guided_json": text}, {"json_schema": text},
                          {"response_format": {"type": "json_schema", "schema": text}}):
                self.ask(TEXT, {"prompt": "1", "max_tokens": 1, **extra}, (400,))


class Breadth(HeavyCase):
    """Twice as many bytes take twice as long, or are refused."""

    def test_lists_of_objects(self):
        # each path's skipped lists are used by the next one
        for turn, (path, name) in enumerate((
                (CHAT, "messages"), (RESPONSES, "input"), (TEXT, "prompt"), (MESSAGES, "messages"),
                (COUNT, "messages"), ("/tokenize", "messages"), ("/detokenize", "tokens"),
                ("/v1/embeddings", "input"))):
            for item, size in (('{"a":1}', 1 << 20), ("{}", 1 << 20), ('{"a":[{}]}', 2 << 20),
                               ("{}", 31 << 20), ('{"role":"user","content":"1"}', 31 << 20),
                               ('"1"', 31 << 20), ("1", 31 << 20)):
                if size > 4 << 20 and path not in (CHAT, RESPONSES):
                    continue
                turn += 1
                if not serving.in_turn(turn, 4):
                    continue
                count = size // (len(item) + 1)
                body = '{"%s":[%s]}' % (name, ",".join([item] * count))
                self.ask(path, body, (200, 400))

    def test_many_keys(self):
        for count in (1000, 9000, 200000):
            many = ",".join(f'"key {i}":1' for i in range(count))
            for path, body in call("{%s}" % many):
                self.ask(path, body)
            self.ask(CHAT, '{"messages":[{"role":"user","content":"1",%s}]}' % many)
            schema = '{"type":"object","properties":{%s}}' % many.replace(":1", ':{"type":"null"}')
            self.ask(TEXT, {"prompt": "1", "max_tokens": 1, "guided_json": schema})
            self.ask(TEXT, '{"prompt":"1","max_tokens":1,"logit_bias":{%s}}' % many)

    def test_members_that_are_null(self):
        for start in (0, 100000):  # long lists are allocated separately
            nulls = ",".join(f'"k{start + i:{1 + 29 * (start > 0)}}":null' for i in range(9900))
            message = '{"role":"user","content":"1",%s}' % nulls
            body = '{"messages":[%s],"max_tokens":1}' % ",".join([message] * 3)
            status, answer = self.ask(CHAT, body)
            self.assertEqual(status, 200, answer)

    def test_many_values(self):
        """A template gets at most as many values as it can process quickly."""
        for turn, item in enumerate(("{}", "[]", '{"a":1}', "1")):
            for index, name in enumerate(("messages", "tools", "chat_template_kwargs")):
                if not serving.in_turn(turn + index, 4):
                    continue
                many = "[%s]" % ",".join([item] * 400000)
                message = '{"role":"user","content":"1"%s}' % (
                    ',"x":' + many if name == "messages" else "")
                more = {"messages": "", "chat_template_kwargs":
                        ',"chat_template_kwargs":{"x":%s}' % many,
                        "tools": ',"tools":[{"type":"function","function":{"name":"f",'
                                 '"parameters":{"x":%s}}}]' % many}[name]
                _, answer = self.ask(CHAT, '{"messages":[%s]%s}' % (message, more), (400,))
                self.assertIn("values", answer["error"]["message"])

    def test_many_results(self):
        question = {"role": "tool", "tool_call_id": "1", "content": "a" * 3000}
        status, answer = self.ask(CHAT, {"messages": [QUESTION] + [question] * 4000}, (400,))
        self.assertEqual(answer["error"]["code"], "context_length_exceeded")
        calls = [{"id": str(i), "type": "function", "function": {"name": "f", "arguments": "{}"}}
                 for i in range(9900)]
        made = {"role": "assistant", "content": "", "tool_calls": calls}
        self.ask(CHAT, {"messages": [QUESTION, made] + [
            {"role": "tool", "tool_call_id": str(9899 - i), "content": ""} for i in range(9900)]})

    def test_many_calls(self):
        made = {"role": "assistant", "content": "", "tool_calls": [
            {"id": "1", "type": "function", "function": {
                "name": "f", "arguments": "[" + "1," * 500000 + "1]"}}]}
        status, answer = self.ask(CHAT, {"messages": [QUESTION] + [made] * 20 + [QUESTION],
                                         "max_tokens": 1})
        self.assertEqual(status, 400)
        self.assertIn("values", answer["error"]["message"])

    def test_long_texts(self):
        for size in (1 << 20, 30 << 20):
            for turn, text in enumerate(("a" * size, "1 " * (size // 2), "\n" * (size // 2),
                                         "é" * (size // 2), "'" * size)):
                for path, body in ((TEXT, {"prompt": text}), ("/tokenize", {"prompt": text}),
                                   (CHAT, {"messages": [{"role": "user", "content": text}]}),
                                   (MESSAGES, {"messages": [{"role": "user", "content": text}],
                                               "max_tokens": 1}),
                                   (COUNT, {"messages": [{"role": "user", "content": text}]}),
                                   (RESPONSES, {"input": text}),
                                   ("/v1/embeddings", {"input": text})):
                    turn += 1
                    if serving.in_turn(turn, 6):
                        self.ask(path, body)
                if size > 1 << 20:
                    break

    def test_conversations_beyond_the_context_are_counted(self):
        for size in (2000, 200000):
            said = {"messages": [{"role": "user", "content": "1 " * (size // 2)}]}
            status, answer = self.ask(COUNT, said)
            self.assertEqual(status, 200, answer)
            self.assertGreater(answer["input_tokens"], self.context)
            status, told = self.ask("/tokenize", said)
            self.assertEqual((status, told.get("count")), (200, answer["input_tokens"]), told)
            self.assertEqual(self.ask("/apply-template", said)[0], 200)
            self.assertEqual(self.ask(MESSAGES, {**said, "max_tokens": 1})[0], 400)
        status, answer = self.ask(COUNT, {"messages": [
            {"role": "user", "content": "1" * (5 << 20)}]})
        self.assertEqual(status, 400)
        self.assertIn("at most 4194304 are tokenized", answer["error"]["message"])

    def test_memory_of_one_large_body(self):
        def peak_mib():
            with open(f"/proc/{self.server.process.pid}/status") as lines:
                words = dict(line.split(":", 1) for line in lines)
            return int(words["VmHWM"].split()[0]) / 1024
        server = serving.Server(256, stderr=subprocess.DEVNULL)
        shared, type(self).server = self.server, server
        try:
            before = peak_mib()
            size = 31 << 20
            for name, body in (
                    ("numbers", '{"prompt":[%s]}' % ",".join(["1"] * (size // 2))),
                    ("lists", '{"prompt":[%s]}' % ",".join(["[]"] * (size // 3))),
                    ("objects", '{"prompt":[%s]}' % ",".join(['{"a":1}'] * (size // 8))),
                    ("a text", json.dumps({"messages": [
                        {"role": "user", "content": "1 " * (size // 2)}]}))):
                self.ask(CHAT, body)
                print(f"peak after {name}: {before:.0f} -> {peak_mib():.0f} MiB", flush=True)
            # The body itself and several times its parsed form.
            self.assertLess(peak_mib() - before, 330 * serving.sanitizers_factor())
        finally:
            type(self).server = shared
            server.close()


class Sizes(unittest.TestCase):
    """Small requests wait neither for large ones nor for many of one client."""

    def test_small_requests_pass_large_ones(self):
        server = serving.Server(256, stderr=subprocess.DEVNULL)
        self.addCleanup(server.close)
        digits = "1234567890" * 400000
        large = [("/tokenize", {"content": digits}), ("/tokenize", {"prompt": digits}),
                 ("/tokenize", {"content": digits, "with_pieces": False}),
                 ("/infill", {"input_prefix": digits, "n_predict": 1}),
                 ("/detokenize", {"tokens": [1] * 1000000})] * 2
        small = [("/tokenize", {"prompt": "1"}), (TEXT, {"prompt": "1", "max_tokens": 1}),
                 (CHAT, {"messages": [QUESTION], "max_tokens": 1}),
                 ("/detokenize", {"tokens": [1]}), ("/v1/embeddings", {"input": "1"})]
        wires, answered = [], []

        def read(wire):
            wire.recv(1)
            answered.append(wire)
        for path, body in large:
            wires.append(socket.create_connection(("127.0.0.1", server.port),
                                                  timeout=serving.PATIENCE))
            data = json.dumps(body).encode()
            wires[-1].sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                              f"{len(data)}\r\n\r\n".encode() + data)
        readers = [threading.Thread(target=read, args=(wire,)) for wire in wires]
        for thread in readers:
            thread.start()
        passed = 0
        for path, body in small:
            before = len(answered)
            self.assertEqual(server.json("POST", path, body)[0], 200)
            passed += len(answered) == before and before < len(wires)
        # A large request may end meanwhile, but a small one does not wait for it.
        self.assertGreater(passed, 0)
        for thread in readers:
            thread.join()
        for wire in wires:
            wire.close()


    @serving.nightly_only
    def test_small_requests_pass_heavy_schemas(self):
        self.pass_heavy_schemas(CHAT, lambda form: {
            "messages": [QUESTION], "max_tokens": 1, "response_format": {
                "type": "json_schema", "json_schema": {"name": "a", "schema": form}}})

    @serving.nightly_only
    def test_small_requests_pass_heavy_schemas_of_raw_prompts(self):
        self.pass_heavy_schemas("/api/generate", lambda form: {
            "model": "gpt-test", "prompt": "1 + 1", "raw": True, "stream": False, "format": form,
            "options": {"num_predict": 1}})

    def pass_heavy_schemas(self, heavy_path, heavy_body):
        """Different schemas of a few KB that compile slowly, each on its own connection. Small
        requests, with and without a schema, do not wait for all of them."""
        server = serving.Server(256, stderr=subprocess.DEVNULL)
        self.addCleanup(server.close)
        heavy, wires, answered = 14, [], []
        self.addCleanup(lambda: [wire.close() for wire in wires])

        def ask(form, wire):
            data = json.dumps(heavy_body(form)).encode()
            wire.sendall(f"POST {heavy_path} HTTP/1.1\r\nHost: localhost\r\n"
                         f"Content-Length: {len(data)}\r\n\r\n".encode() + data)

        def read(wire):
            answered.append(wire.recv(12)[9:])
        pattern = {"type": "string", "pattern": "^[a-z]{1,60}(foo|bar){2,50}$"}
        for turn in range(heavy):
            wires.append(socket.create_connection(("127.0.0.1", server.port),
                                                  timeout=serving.PATIENCE))
            members = {f"m{turn}x{i}": pattern for i in range(100)}
            ask({"type": "object", "properties": members}, wires[-1])
        readers = [threading.Thread(target=read, args=(wire,)) for wire in wires]
        for thread in readers:
            thread.start()
        readers[0].join()
        small = {"type": "object", "properties": {"a": {"type": "boolean"}}}
        for path, body in (("/tokenize", {"content": "hello"}), (CHAT, {
                "messages": [QUESTION], "max_tokens": 1, "response_format": {
                    "type": "json_schema", "json_schema": {"name": "a", "schema": small}}})):
            self.assertEqual(server.json("POST", path, body)[0], 200)
            self.assertLess(len(answered), heavy / 2 + 2, path)
        for thread in readers:
            thread.join()
        self.assertEqual(answered, [b"200"] * heavy)


class Memory(unittest.TestCase):
    def test_unread_tokens(self):
        """Memory for tokenizing and for answers stays within --max-bodies-size."""
        limit_mib, clients = 128, 16
        server = serving.Server(256, "--max-bodies-size", f"{limit_mib}MB",
                                stderr=subprocess.DEVNULL)
        self.addCleanup(server.close)

        def peak_mib():
            with open(f"/proc/{server.process.pid}/status") as lines:
                words = dict(line.split(":", 1) for line in lines)
            return int(words["VmHWM"].split()[0]) / 1024
        self.assertEqual(server.json("POST", "/tokenize", {"content": "1"})[0], 200)
        before = peak_mib()
        wires = []
        self.addCleanup(lambda: [wire.close() for wire in wires])
        for turn in range(clients):
            name = ("content", "prompt")[turn % 2]
            data = json.dumps({name: "12" * (1 << 20)}).encode()
            wires.append(socket.create_connection(("127.0.0.1", server.port),
                                                  timeout=serving.PATIENCE))
            wires[-1].sendall(f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                              f"{len(data)}\r\n\r\n".encode() + data)
        # The first bytes of each answer: it is an answer or a refusal (cut off, since it is not
        # read).
        statuses = []
        for wire in wires:
            try:
                statuses.append(wire.recv(12)[9:])
            except ConnectionError:
                statuses.append(b"cut")
        self.assertIn(b"200", statuses)
        self.assertLessEqual(set(statuses), {b"200", b"503", b"cut", b""}, statuses)
        grown = peak_mib() - before
        print(f"peak: {grown:.0f} MiB more, {statuses.count(b'200')} answered", flush=True)
        self.assertLess(grown, 1.5 * limit_mib * serving.sanitizers_factor())


class Logs(unittest.TestCase):
    def test_a_body_that_is_no_json_is_not_in_the_log(self):
        with tempfile.TemporaryFile("w+") as log:
            server = serving.Server(256, stderr=log)
            try:
                for broken in ("\n", "\t\x01", "\\q", "\xff", '" "', "\\ud800", "\x7f\x00"):
                    text = SECRET + broken + SECRET
                    for body in ('{"prompt":"%s"}' % text, '{"%s":1}' % text, '{"prompt":"' + text,
                                 '{"prompt":%s}' % text):
                        for path in (TEXT, CHAT, MESSAGES, COUNT, "/tokenize", RESPONSES):
                            status, answer = server.json("POST", path, body.encode("latin-1"))
                            self.assertEqual(status, 400, answer)
                            self.assertNotIn(SECRET, json.dumps(answer))
                            self.assertIn("column", json.dumps(answer))
                self.assertNotIn(SECRET, json.dumps(server.status()))
            finally:
                server.close()
            log.seek(0)
            said = log.read()
        self.assertNotIn(SECRET, said)
        self.assertIn("path=/v1/completions", said)

    def test_values_that_are_refused_are_not_in_the_log(self):
        """The error goes to the client; the log has only the parameter's name."""
        quoted = f"a' {SECRET} 'b\" {SECRET}"
        raising = self.raising_template()
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
            model = os.path.join(folder, "raising.gguf")
            gguf_template.with_template(MODEL, model, raising)
            for path, bodies in ((MODEL, self.refused(SECRET) + self.refused(quoted)),
                                 (model, [(CHAT, {"messages": [
                                     {"role": "user", "content": SECRET}]})])):
                os.environ["WEFT_MODEL"] = path
                server = serving.Server(256, stderr=log)
                try:
                    for api, body in bodies:
                        status, answer = server.json("POST", api, body)
                        self.assertIn(status, (400, 404), (api, body, answer))
                    # A tool of an unknown type without a schema is omitted, with a line in the log.
                    if path == MODEL:
                        status, answer = server.json("POST", COUNT, {
                            "messages": [QUESTION], "tools": [{"type": SECRET, "name": "f"}]})
                        self.assertEqual(status, 200, answer)
                finally:
                    os.environ["WEFT_MODEL"] = MODEL
                    server.close()
            log.seek(0)
            said = log.read()
        self.assertNotIn(SECRET, said)
        for name in ("role", "tool_choice", "response_format", "model", "type"):
            self.assertIn(name, said)

    @staticmethod
    def raising_template():
        return "{% for m in messages %}{{ raise_exception('no ' + m.content) }}{% endfor %}"

    @staticmethod
    def refused(secret):
        chat = {"messages": [QUESTION], "max_tokens": 1}
        tools = [{"type": "function", "function": {"name": "f"}}]
        part = [{"type": secret, "text": "1"}]
        return [
            (CHAT, {"messages": [{"role": secret, "content": "1"}]}),
            (CHAT, {"messages": [{"role": "user", "content": part}]}),
            (CHAT, {**chat, "tools": tools, "tool_choice": secret}),
            (CHAT, {**chat, "response_format": {"type": secret}}),
            (CHAT, {**chat, "model": secret}),
            (CHAT, {**chat, "response_format": {"type": "regex", "regex": secret + "(("}}),
            (CHAT, {**chat, "response_format": {"type": "grammar", "grammar": secret + " ::= "}}),
            (CHAT, {**chat, "logit_bias": {secret: 1}}),
            (TEXT, {"prompt": "1", "guided_json": {"type": secret}}),
            (TEXT, {"prompt": "1", "guided_json": {"properties": {secret: {"type": "x"}}}}),
            (RESPONSES, {"input": [{"type": secret}]}),
            (RESPONSES, {"input": [{"role": "user", "content": part}]}),
            (RESPONSES, {"input": "1", "truncation": secret}),
            (MESSAGES, {"messages": [{"role": "user", "content": part}], "max_tokens": 1}),
            (MESSAGES, {"messages": [{"role": secret, "content": "1"}], "max_tokens": 1}),
            (COUNT, {"messages": [QUESTION], "tools": [{"type": secret, "name": "f",
                                                        "input_schema": {"type": "object"}}]}),
            ("/v1/embeddings", {"input": "1", "encoding_format": secret})]


class Keys(unittest.TestCase):
    """Keys are checked before bodies are read, and their limits apply to every path."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = os.path.join(cls.folder.name, "keys")
        cls.keys = {}
        with open(path, "w") as lines:
            os.fchmod(lines.fileno(), 0o600)
            for name, limits in (("free", ()), ("other", ()), ("three", ("--rate", "3")),
                                 ("wrong", ("--rate", "6"))):
                made = json.loads(serving.weft("key", "new", name, "--json", *limits))
                cls.keys[name] = made["key"]
                lines.write(made["line"] + "\n")
        cls.server = serving.Server(256, "--api-key-file", path, stderr=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        cls.folder.cleanup()

    def head(self, name):
        return {"Authorization": f"Bearer {self.keys[name]}"}

    def await_reading(self):
        """Until the server has read what was sent: one thread reads all connections."""
        for _ in range(2):
            self.assertEqual(self.server.call("GET", "/live")[0], 200)

    @serving.nightly_only
    def test_one_key_does_not_hold_up_the_requests_of_another(self):
        """Grammars that each take a third of a second and are then refused."""
        order, grammar = [], "root ::= " + '"a"? ' * 4000

        def asked(name, path, body):
            """A thread that awaits the answer to a request, which is sent here."""
            wire = http.client.HTTPConnection("127.0.0.1", self.server.port,
                                              timeout=serving.PATIENCE)
            self.addCleanup(wire.close)
            wire.request("POST", path, json.dumps(body), self.head(name))
            thread = threading.Thread(
                target=lambda: order.append((name, wire.getresponse().status)))
            thread.start()
            return thread

        heavy = [asked("free", CHAT, {"messages": [QUESTION], "max_tokens": 1,
                                      "grammar": f"{grammar}#{i}"}) for i in range(12)]
        self.await_reading()
        light = [asked("other", "/tokenize", {"prompt": "1"}) for _ in range(3)]
        for thread in heavy + light:
            thread.join()
        self.assertEqual(order.count(("free", 400)), 12)
        self.assertEqual(order.count(("other", 200)), 3)
        behind = order[[name for name, _ in order].index("other"):]
        self.assertGreaterEqual(behind.count(("free", 400)), 6, order)

    def test_unread_stored_responses(self):
        tools = [{"type": "function", "name": "f", "description": "1" * (24 << 20)}]
        status, kept = self.server.json("POST", RESPONSES, {
            "input": "1 + 1", "max_output_tokens": 1, "tools": tools, "tool_choice": "none"},
            self.head("free"))
        self.assertEqual(status, 200)
        ask = (f"GET {RESPONSES}/{kept['id']} HTTP/1.1\r\nHost: localhost\r\n"
               f"Authorization: Bearer {self.keys['free']}\r\n\r\n").encode()
        wires = []
        try:
            for _ in range(7):
                wire = socket.socket()
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                wire.settimeout(serving.PATIENCE)
                wire.connect(("127.0.0.1", self.server.port))
                wires.append(wire)
                wire.sendall(ask)
                first = wire.recv(12)
                self.assertEqual(first, b"HTTP/1.1 429" if len(wires) > 5 else b"HTTP/1.1 200")
            self.assertIn(b"--max-bodies-size", wires[-1].recv(65536))
            status, _ = self.server.json("POST", "/tokenize", {"prompt": "1"}, self.head("other"))
            self.assertEqual(status, 200)
        finally:
            for wire in wires:
                wire.close()

        def again():
            status, got = self.server.json("GET", f"{RESPONSES}/{kept['id']}", None,
                                           self.head("free"))
            return got if status == 200 else None
        self.assertEqual(until(again, "the end of the closed answers")["id"], kept["id"])
        self.server.json("DELETE", f"{RESPONSES}/{kept['id']}", None, self.head("free"))

    def test_limits_hold_for_every_path(self):
        bodies = (("/tokenize", {"prompt": "1"}), ("/detokenize", {"tokens": [1]}),
                  (COUNT, {"messages": [QUESTION]}))
        got = []
        for i in range(6):
            path, body = bodies[i % 3]
            status, answer = self.server.json("POST", path, body, self.head("three"))
            got.append(status)
        self.assertEqual(got, [200, 200, 200, 429, 429, 429], answer)
        status, headers, _ = self.server.call("POST", "/tokenize", {"prompt": "1"},
                                              self.head("three"))
        self.assertEqual(status, 429)
        self.assertTrue(headers["Retry-After"])
        for path, body in bodies:
            self.assertEqual(self.server.json("POST", path, body, self.head("free"))[0], 200)

    def test_invalid_requests_count(self):
        wrong = ((CHAT, {"messages": []}), (TEXT, "{"), ("/v1/embeddings", {"input": {}})) * 3
        got = [self.server.json("POST", path, body, self.head("wrong"))[0] for path, body in wrong]
        self.assertEqual(got, [400] * 6 + [429] * 3)

    def test_an_unread_body(self):
        """The answer does not depend on how TCP splits the request."""
        known = f"Authorization: Bearer {self.keys['free']}\r\n"
        for path, head, length, status in (
                ("/health", "", 2, 200), ("/live", "", 4096, 200), ("/health", "", 5000, 400),
                ("/v1/models", "", 2, 401), ("/v1/models", known, 2, 200),
                ("/v1/nothing", known, 2, 404)):
            for first in (0, 1, length):
                with socket.create_connection(("127.0.0.1", self.server.port), timeout=20) as wire:
                    wire.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{head}Content-Length: "
                                 f"{length}\r\n\r\n{'b' * first}".encode())
                    if first < length:
                        self.await_reading()
                    try:
                        wire.sendall(b"b" * (length - first))
                    except OSError:
                        pass  # already answered
                    self.assertIn(f" {status} ".encode(), wire.recv(65536), (path, length, first))

    def test_requests_without_a_key_use_no_memory(self):
        wires = []
        try:
            for i in range(12):
                wire = socket.create_connection(("127.0.0.1", self.server.port), timeout=20)
                wires.append(wire)
                wire.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                             f"{32 << 20}\r\n\r\n".encode())
            for wire in wires:
                self.assertIn(b" 401 ", wire.recv(65536))
            body = {"messages": [{"role": "user", "content": "1 " * (4 << 20)}]}
            status, answer = self.server.json("POST", CHAT, body, self.head("free"))
            self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))
        finally:
            for wire in wires:
                wire.close()

    def test_error_formats_of_the_apis(self):
        big = {"messages": [{"role": "user", "content": "1 " * (1 << 20)}], "max_tokens": 1}
        status, answer = self.server.json("POST", MESSAGES, big)
        self.assertEqual((status, answer["error"]["type"]), (401, "authentication_error"))
        self.assertEqual(answer["type"], "error")
        status, answer = self.server.json("POST", CHAT, big, {"Authorization": "Bearer no"})
        self.assertEqual((status, answer["error"]["code"]), (401, "invalid_api_key"))
        status, answer = self.server.json("POST", "/v1/nothing", big, self.head("free"))
        self.assertEqual((status, answer["error"]["code"]), (404, "unknown_url"))


if __name__ == "__main__":
    serving.main()
