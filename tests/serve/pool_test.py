#!/usr/bin/env python3
"""`weft serve` with several models: three types of the model of models/abacus, which load in
milliseconds. A stopped process (SIGSTOP) is a slow load."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import serving
from processes import children, is_pending
from wait import outlast, until

ABACUS = pathlib.Path(__file__).resolve().parents[2] / "models" / "abacus" / "model.gguf"
NAMES = ("first", "second", "third")
TEXT = "/v1/completions"
PROBE_S = 1  # the server asks each process of a model once in this time


def folder_of_models():
    """A temporary folder with first.gguf (BF16), second.gguf and third.gguf."""
    folder = tempfile.TemporaryDirectory()
    path = pathlib.Path(folder.name)
    shutil.copy(ABACUS, path / "first.gguf")
    for name, kind in (("second", "Q8_0"), ("third", "Q4_0")):
        subprocess.run([serving.PROGRAM, "quantize", str(ABACUS), str(path / f"{name}.gguf"), kind],
                       check=True, stdout=subprocess.DEVNULL, timeout=serving.limit(30))
    return folder


FOLDER = folder_of_models()


def slow():
    """A model whose answers take seconds."""
    return "slow=" + serving.model()


def path_of(name):
    return str(pathlib.Path(FOLDER.name) / f"{name}.gguf")


class Pool(serving.Server):
    """A server of several models; `models`: words of the command line."""

    def __init__(self, *words, models=None):
        self.log = tempfile.NamedTemporaryFile()
        self.process = subprocess.Popen(
            [serving.PROGRAM, "serve", *(models or map(path_of, NAMES)), "-t", "1", "--ctx", "256",
             "--port", "0", "--json", *words],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if not line or "port" not in json.loads(line):
            status = self.process.wait(30)
            self.process.stdout.close()
            raise RuntimeError(f"weft serve ended with status {status}: {self.said()}")
        self.port = json.loads(line)["port"]
        self.url = f"http://127.0.0.1:{self.port}"

    def said(self):
        return pathlib.Path(self.log.name).read_text()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            return self.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def loaded(self):
        return [model["name"].removesuffix(":latest")
                for model in self.json("GET", "/api/ps")[1]["models"]]

    def model(self, name):
        """The entry of a model in /api/status."""
        return next(m for m in self.status()["models"] if m["name"] == name)

    def metric(self, name, headers, model=""):
        """The sum of a metric over all models, or its value for one."""
        text = self.call("GET", "/metrics", None, headers)[2].decode()
        return sum(float(line.split()[-1]) for line in text.splitlines()
                   if line.startswith(f'weft:{name}{{model_name="{model}'))

    def wait_until(self, condition, seconds=10):
        until(condition, lambda: "the server said:\n" + self.said(), serving.limit(seconds))

    def ask(self, name, prompt, **more):
        status, body = self.json("POST", TEXT, {"model": name, **request(prompt), **more})
        if status != 200:
            raise AssertionError(f"{status}: {body}")
        if "/" not in name and body["model"] != name:
            raise AssertionError(f"{body['model']} answered instead of {name}")
        return body["choices"][0]["text"]


class Keys:
    """A file of keys; `lines`: arguments of `weft key new`."""

    def __init__(self, *lines):
        self.file = tempfile.NamedTemporaryFile("w")
        self.path, self.keys = self.file.name, {}
        for line in lines:
            said = subprocess.run([serving.PROGRAM, "key", "new", *line.split()], check=True,
                                  text=True, stdout=self.file, stderr=subprocess.PIPE).stderr
            self.keys[line.split()[0]] = next(w for w in said.split() if w.startswith("weft-"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def header(self, name):
        return {"Authorization": f"Bearer {self.keys[name]}"}


def request(prompt, tokens=12):
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


class Stream(threading.Thread):
    """A stream of events, line by line."""

    def __init__(self, server, name, tokens=12, path=TEXT, body=None, headers=None):
        super().__init__(daemon=True)
        self.headers = {"Content-Type": "application/json", **(headers or {})}
        self.server, self.path = server, path
        self.body = body or {"model": name, "stream": True, **request("1 + 2 =", tokens)}
        self.lines, self.changed, self.status = [], threading.Condition(), 0
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port,
                                                     timeout=serving.PATIENCE)
        self.over = False
        self.start()

    def run(self):
        try:
            self.connection.request("POST", self.path, json.dumps(self.body), self.headers)
            answer = self.connection.getresponse()
            self.status = answer.status
            for line in answer:
                with self.changed:
                    self.lines.append(line.decode().strip())
                    self.changed.notify_all()
        except (OSError, http.client.HTTPException, AttributeError):
            pass
        finally:
            with self.changed:
                self.over = True
                self.changed.notify_all()

    def wait_for(self, word, count=1):
        """Waits for `count` different lines with `word`; returns the last of them."""
        def lines():
            return list(dict.fromkeys(line for line in self.lines if word in line))[:count]

        with self.changed:
            self.changed.wait_for(lambda: self.over or len(lines()) == count, serving.limit(30))
            found = lines()
        if len(found) < count:
            raise AssertionError(f"not {count} of {word!r} in {self.lines}\n{self.server.said()}")
        return found[-1]

    def finish(self):
        self.join(serving.limit(60))
        if self.is_alive():
            raise AssertionError(f"the stream goes on: {self.lines[-3:]}")
        return self.lines

    def text(self):
        events = [line[6:] for line in self.finish() if line.startswith("data: {")]
        return "".join(json.loads(event)["choices"][0]["text"] for event in events)


class Lists(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Pool()

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    def test_lists_without_loading(self):
        self.assertEqual(self.server.loaded(), ["first"])
        _, models = self.server.json("GET", "/v1/models")
        self.assertEqual([m["id"] for m in models["data"]], list(NAMES))
        self.assertEqual([m["status"]["value"] for m in models["data"]],
                         ["loaded", "unloaded", "unloaded"])
        _, one = self.server.json("GET", "/v1/models/third")
        self.assertEqual((one["id"], one["status"]["value"]), ("third", "unloaded"))
        _, tags = self.server.json("GET", "/api/tags")
        self.assertEqual([m["name"] for m in tags["models"]], [f"{n}:latest" for n in NAMES])
        _, show = self.server.json("POST", "/api/show", {"model": "second"})
        self.assertEqual(show["details"]["quantization_level"], "Q8_0")
        self.assertIn("version", self.server.json("GET", "/api/version")[1])
        for path in ("/live", "/health", "/ready", "/", "/metrics"):
            self.assertEqual(self.server.call("GET", path)[0], 200, path)
        self.assertEqual(self.server.loaded(), ["first"])

    def test_packages_list(self):
        openai, ollama = serving.package("openai"), serving.package("ollama")
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none")
        self.assertEqual([m.id for m in client.models.list()], list(NAMES))
        listed = ollama.Client(host=self.server.url).list()
        self.assertEqual([m.model for m in listed.models], [f"{n}:latest" for n in NAMES])

    def test_an_empty_name(self):
        with Pool() as server:
            status, body = server.json("POST", TEXT, {"model": "", **request("1")})
            self.assertEqual(status, 404)
            self.assertIn("third", body["error"]["message"])

    def test_unknown_names(self):
        names = "'first', 'second', 'third'"
        status, body = self.server.json("POST", TEXT, {"model": "other", "prompt": "x"})
        self.assertEqual((status, body["error"]["message"]),
                         (404, f"The model 'other' does not exist; this server has {names}."))
        status, body = self.server.json("POST", "/v1/messages", {"model": "other"})
        self.assertEqual((status, body["error"]["type"]), (404, "not_found_error"))
        for path in ("/api/chat", "/api/show", "/api/pull"):
            status, body = self.server.json("POST", path, {"model": "other"})
            self.assertEqual(status, 404, path)
            self.assertIn(f"model 'other' not found; this server has {names}", body["error"])
        self.assertEqual(self.server.json("GET", "/v1/models/other")[0], 404)
        self.assertEqual(self.server.json("POST", "/api/chat", {})[0], 400)
        self.assertEqual(self.server.json("POST", TEXT, "{")[0], 400)
        self.assertEqual(self.server.json("POST", "/v1/nothing", {})[0], 404)
        self.assertEqual(self.server.json("DELETE", "/v1/models")[0], 405)
        self.assertEqual(self.server.json("POST", "/api/create", {"model": "x"})[0], 501)


class Serving(unittest.TestCase):
    def test_answers_as_single_servers_do(self):
        """Eight clients of three models; one fits at a time."""
        prompts = [f"{i} + {7 * i % 11} =" for i in range(8)]
        alone = {}
        for name in NAMES:
            with Pool(models=[path_of(name)]) as server:
                for prompt in prompts:
                    alone[name, prompt] = server.ask(name, prompt)
        with Pool("--max-loaded", "1") as server:
            jobs = [(NAMES[(i + j) % 3], prompt) for i, prompt in enumerate(prompts)
                    for j in range(3)]
            with concurrent.futures.ThreadPoolExecutor(8) as threads:
                answers = list(threads.map(lambda job: server.ask(*job), jobs))
            self.assertEqual(answers, [alone[job] for job in jobs])
            self.assertEqual(len(server.loaded()), 1)
            self.assertLessEqual(len(children(server.process.pid)), 1)

    def test_named_models(self):
        with Pool(models=["small=" + path_of("third"), "big:7b=" + path_of("first")]) as server:
            _, models = server.json("GET", "/v1/models")
            self.assertEqual([m["id"] for m in models["data"]], ["small", "big:7b"])
            server.ask("big:7b", "1")
            server.ask(path_of("third"), "1")  # a path is a name, too
            status, props = server.json("GET", "/props?model=big%3A7b")
            self.assertEqual((status, props["model_path"]), (200, path_of("first")))
            self.assertEqual(server.json("GET", "/api/status?model=small")[1]["model"], "small")

    def test_a_stream_says_that_it_waits(self):
        with Pool("--max-loaded", "1") as server:
            expected = server.ask("second", "1 + 2 =")
            server.ask("first", "1")
            begin = server.model("second")["loads"]
            stop = StopLoads(server, "second")
            stream = Stream(server, "second")
            stream.wait_for(": loading second (", count=2)
            other = Stream(server, "third")
            other.wait_for(": waiting for second to load")
            stop.go_on()
            self.assertEqual(stream.text(), expected)
            self.assertEqual(stream.lines[-2], "data: [DONE]")
            other.text()
            self.assertEqual(server.model("second")["loads"], begin + 1)

    def test_streams_without_comments_are_not_silent(self):
        message = [{"role": "user", "content": "1 + 2 ="}]
        bodies = {"/v1/messages": {"messages": message, "max_tokens": 5},
                  "/api/chat": {"messages": message, "options": {"num_predict": 5}},
                  "/api/generate": {"prompt": "1 + 2 =", "options": {"num_predict": 5}}}
        with Pool("--max-loaded", "1") as server:
            server.ask("first", "1")
            stop = StopLoads(server, "second")
            streams = {path: Stream(server, "", path=path,
                                    body={"model": "second", "stream": True, **body})
                       for path, body in bodies.items()}
            streams["/v1/messages"].wait_for('data: {"type":"ping"}')
            for path in ["/api/chat", "/api/generate"]:
                streams[path].wait_for('"done":false')
            stop.go_on()
            for path, stream in streams.items():
                with stream.changed:
                    stream.changed.wait_for(lambda stream=stream: stream.over, serving.limit(30))
                self.assertEqual(stream.status, 200)
                if path == "/v1/messages":
                    self.assertIn("event: message_stop", stream.lines)
                    continue
                lines = [json.loads(line) for line in stream.lines if line]
                first, last = lines[0], lines[-1]
                self.assertEqual((first["model"], first["done"], last["done"]),
                                 ("second", False, True))
                said = first["message"]["content"] if "message" in first else first["response"]
                self.assertEqual((said, "message" in first), ("", path == "/api/chat"))

    def test_clients_of_other_packages_wait(self):
        openai, ollama = serving.package("openai"), serving.package("ollama")
        with Pool("--max-loaded", "1") as server:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                                   timeout=serving.PATIENCE)
            chunks = client.completions.create(model="second", prompt="1 + 2 =", max_tokens=12,
                                               temperature=0, stream=True)
            text = "".join(chunk.choices[0].text for chunk in chunks)
            self.assertTrue(text)
            lines = list(ollama.Client(host=server.url).generate(
                "third", "1 + 2 =", stream=True, raw=True, options={"num_predict": 5}))
            self.assertTrue(lines[-1].done)
            self.assertEqual(server.loaded(), ["third"])

    def test_keep_alive(self):
        with Pool() as server:
            generate = {"model": "second", "prompt": "1", "raw": True, "stream": False,
                        "options": {"num_predict": 2}}
            server.json("POST", "/api/generate", {**generate, "keep_alive": 0})
            server.wait_until(lambda: server.model("second")["state"] == "unloaded")
            server.json("POST", "/api/generate", generate)
            self.assertIn("second", server.loaded())
            _, said = server.json("POST", "/api/generate", {"model": "second", "keep_alive": 0,
                                                            "stream": False})
            self.assertEqual(said["done_reason"], "unload")
            server.wait_until(lambda: server.model("second")["state"] == "unloaded")
            # A model that is not loaded does not load to be unloaded.
            _, said = server.json("POST", "/api/chat", {"model": "second", "keep_alive": 0})
            self.assertEqual(said["done_reason"], "unload")
            self.assertEqual(server.model("second")["loads"], 2)
        with Pool("--keep-alive", "1s") as server:
            server.wait_until(lambda: not server.loaded())
            server.json("POST", "/api/generate", {**generate, "keep_alive": -1})
            server.ask("third", "1")
            server.wait_until(lambda: server.loaded() == ["second"])
            self.assertEqual(server.call("GET", "/ready")[0], 200)

    def test_a_busy_model_does_not_starve_another(self):
        with Pool("--max-loaded", "1", models=[slow(), path_of("second")]) as server:
            over = threading.Event()

            def ask_slow():
                while not over.is_set():
                    server.ask("slow", "1 + 1 =", max_tokens=40)

            clients = [threading.Thread(target=ask_slow, daemon=True) for _ in range(3)]
            for client in clients:
                client.start()
            try:
                server.wait_until(lambda: server.model("slow")["running"] == 3)
                stream = Stream(server, "second")
                stream.wait_for(": waiting for slow to finish")
                self.assertTrue(stream.text())
            finally:
                over.set()
            for client in clients:
                client.join(serving.limit(60))
                self.assertFalse(client.is_alive())

    def test_a_client_that_leaves_frees_its_model(self):
        models = [slow(), *map(path_of, NAMES)]
        with Pool("--max-loaded", "1", models=models) as server:
            stream = Stream(server, "slow", tokens=200)
            stream.wait_for("data: ")
            stop = StopLoads(server, "second")
            waiting = Stream(server, "second")
            waiting.wait_for(":")
            stream.connection.sock.shutdown(2)
            stream.finish()
            waiting.wait_for(": loading second")
            waiting.connection.sock.shutdown(2)
            server.wait_until(lambda: server.model("second")["waiting"] == 0)
            stop.go_on()
            self.assertTrue(server.ask("third", "1"))

    def test_keys_and_metrics(self):
        keys = tempfile.NamedTemporaryFile("w")
        key = subprocess.run([serving.PROGRAM, "key", "new", "ann"], check=True, text=True,
                             stdout=keys, stderr=subprocess.PIPE).stderr
        key = next(word for word in key.split() if word.startswith("weft-"))
        with Pool("--api-key-file", keys.name) as server:
            mine = {"Authorization": f"Bearer {key}"}
            body = {"model": "second", **request("1")}
            for headers in ({}, {"x-api-key": "weft-wrong"}):
                self.assertEqual(server.call("POST", TEXT, body, headers)[0], 401)
                self.assertEqual(server.call("GET", "/v1/models", None, headers)[0], 401)
            self.assertEqual(server.call("GET", "/ready")[0], 200)
            self.assertEqual(server.call("POST", TEXT, body, mine)[0], 200)
            text = server.call("GET", "/metrics", None, mine)[2].decode()
            for line in ('weft:model_loaded{model_name="first"} 1',
                         'weft:model_loaded{model_name="third"} 0',
                         'weft:model_loads_total{model_name="second"} 1'):
                self.assertIn(line + "\n", text)
            samples = [line for line in text.splitlines()
                       if line.startswith("weft:generation_tokens_total")]
            self.assertEqual(len(samples), 2)
            names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
            self.assertEqual(len(names), len(set(names)))
            server.wait_until(lambda: "key=ann" in server.said())
            line = next(line for line in server.said().splitlines() if "status=200" in line)
            self.assertIn("generated=12", line)
            self.assertIn("peer=127.0.0.1:", line)

    def test_rates_outlive_models(self):
        with Keys("ann --rate 3", "bob --tokens 40", "eve --concurrent 1") as keys, \
                Pool("--api-key-file", keys.path, "--max-loaded", "1") as server:
            def post(name, model, **more):
                body = {"model": model, **request("1 + 2 =", 4), **more}
                status, _, answer = server.call("POST", TEXT, body, keys.header(name))
                return status, json.loads(answer)

            # Each request loads another model, and the last ones of each key would, too.
            for name in ("first", "second", "third"):
                self.assertEqual(post("ann", name)[0], 200)
            loads = server.metric("model_loads_total", keys.header("bob"))
            for name in ("first", "second"):
                status, answer = post("ann", name)
                self.assertEqual((status, answer["error"]["code"]), (429, "rate_limit_exceeded"))
            used = 0
            for name in ("first", "second", "third", "first", "second"):
                status, answer = post("bob", name)
                if status != 200:
                    self.assertEqual(answer["error"]["code"], "rate_limit_exceeded")
                    break
                used += answer["usage"]["total_tokens"]
            else:
                self.fail("the tokens of a minute were forgotten")
            self.assertLessEqual(used, 40)
            self.assertLessEqual(server.metric("model_loads_total", keys.header("bob")),
                                 loads + 5)

    def test_a_key_concurrent_over_all_models(self):
        with Keys("eve --concurrent 1", "ann") as keys, \
                Pool("--api-key-file", keys.path, "--max-loaded", "3") as server:
            stop = StopLoads(server, "second")
            body = {"model": "second", **request("1")}
            with concurrent.futures.ThreadPoolExecutor() as pool:
                first = pool.submit(server.call, "POST", TEXT, body, keys.header("eve"))
                self.assertTrue(stop.found.wait(serving.limit(10)))
                status, _, answer = server.call("POST", TEXT, {**body, "model": "third"},
                                                keys.header("eve"))
                self.assertEqual(status, 429, answer)
                self.assertEqual(json.loads(answer)["error"]["code"],
                                 "concurrency_limit_exceeded")
                stop.go_on()
                self.assertEqual(first.result()[0], 200)
            for _ in range(20):
                self.assertEqual(server.call("POST", TEXT, body, keys.header("eve"))[0], 200)
            # A client may ask again once it has read a stream's last event.
            links = []
            for _ in range(200):
                links.append(http.client.HTTPConnection("127.0.0.1", server.port))
                links[-1].request("POST", TEXT, json.dumps({**body, "stream": True}),
                                  {"Content-Type": "application/json", **keys.header("eve")})
                answer = links[-1].getresponse()
                self.assertEqual(answer.status, 200)
                self.assertIn(b"data: [DONE]\n", iter(answer.readline, b""))
            for link in links:
                link.close()

    def test_loads_count_as_work(self):
        with Keys("ann", "bob") as keys, \
                Pool("--api-key-file", keys.path, "--max-loaded", "1",
                     "--load-share", "2") as server:
            def status_of(name, model, **more):
                body = {"model": model, **request("1 + 2 =", 2), **more}
                return server.call("POST", TEXT, body, keys.header(name))

            # 2.4 s at the start: the third load of a second each is too much.
            answers = [status_of("ann", name) for name in ("second", "third", "second", "third")]
            self.assertEqual([answer[0] for answer in answers], [200, 200, 200, 429])
            status, headers, body = answers[-1]
            self.assertEqual(json.loads(body)["error"]["code"], "load_limit_exceeded")
            self.assertGreater(int(headers["Retry-After"]), 5)
            # Loaded models answer, and other keys load.
            self.assertEqual(status_of("ann", "second")[0], 200)
            self.assertEqual(status_of("bob", "third")[0], 200)
            self.assertEqual(status_of("ann", "third")[0], 200)
            # Another key's model stays loaded.
            gone = {"model": "third", "keep_alive": 0}
            self.assertEqual(server.call("POST", "/api/generate", gone, keys.header("ann"))[0], 200)
            self.assertEqual(status_of("ann", "third")[0], 200)
            self.assertEqual(server.metric("model_loads_total", keys.header("bob"), "third"), 2)

    def test_keys_that_fill_the_queue_leave_places_to_others(self):
        with Keys("ann", "bob", "cid") as keys, \
                Pool("--api-key-file", keys.path, "--max-loaded", "1",
                     "--max-waiting", "2") as server:
            stop = StopLoads(server, "second")
            waiting = []
            for name in ("ann", "bob", "cid"):
                waiting.append(Stream(server, "second", headers=keys.header(name)))
                waiting[-1].wait_for(": ")
            more = Stream(server, "second", headers=keys.header("ann"))
            more.finish()
            self.assertEqual(more.status, 429)
            stop.go_on()
            self.assertEqual(len({stream.text() for stream in waiting}), 1)

    def test_stored_responses(self):
        with tempfile.TemporaryDirectory() as folder, \
                Pool("--max-loaded", "1", "--responses-dir", folder) as server:
            _, made = server.json("POST", "/v1/responses",
                                  {"model": "second", "input": "1 + 2 =", "max_output_tokens": 16})
            status, body = server.json("POST", "/v1/responses/compact",
                                       {"model": "second", "input": "1 + 2 =",
                                        "max_output_tokens": 4})
            self.assertNotEqual(status, 404, body)  # (the small context may lack room: 400)
            server.ask("third", "1")
            status, stored = server.json("GET", f"/v1/responses/{made['id']}")
            self.assertEqual((status, stored["id"]), (200, made["id"]))
            status, body = server.json("GET", f"/v1/responses/{made['id']}?stream=true")
            self.assertEqual((status, body["error"]["code"]), (400, "unsupported_value"))
            self.assertEqual(server.json("DELETE", f"/v1/responses/{made['id']}")[0], 200)
            self.assertEqual(server.json("GET", f"/v1/responses/{made['id']}")[0], 404)


class StopLoads:
    """Stops the next process of a model while it loads."""

    def __init__(self, server, name):
        self.server, self.name, self.pid = server, name, 0
        self.found = threading.Event()
        self.over = threading.Event()
        self.known = set(children(server.process.pid))
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            for pid in set(children(self.server.process.pid)) - self.known:
                os.kill(pid, signal.SIGSTOP)
                self.pid = pid
                self.found.set()
                return

    def go_on(self):
        if not self.found.wait(serving.limit(10)):
            raise AssertionError("no process was started")
        self.over.set()
        self.thread.join()
        os.kill(self.pid, signal.SIGCONT)


def alive(pid):
    """Whether the process runs; a zombie does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Faults(unittest.TestCase):
    def ended(self, *words):
        done = subprocess.run([serving.PROGRAM, "serve", *words, "--port", "0", "-t", "1"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              errors="replace", timeout=serving.limit(30))
        return done.returncode, done.stderr

    def test_faults_of_the_command(self):
        first, second = path_of("first"), path_of("second")
        status, said = self.ended(first, "missing.gguf")
        self.assertEqual(status, 1, said)
        self.assertIn("missing.gguf", said)
        status, said = self.ended(first, "first=" + second)
        self.assertEqual(status, 2, said)
        self.assertIn("two models have the name 'first'", said)
        for flags in (["--name", "x"], ["--alias", "x"], ["--lora", "a=b"], ["--restart"],
                      ["--draft", first], ["--keep-alive", "soon"], ["--max-loaded", "0"]):
            status, said = self.ended(first, second, *flags)
            self.assertEqual(status, 2, flags)
            self.assertIn(flags[0], said)

    def test_names_and_paths_of_any_bytes(self):
        odd = os.path.join(os.fsencode(FOLDER.name), b"m\xe9\n.gguf")
        shutil.copy(ABACUS, odd)
        for word in (odd, b"n\nl=" + odd, b"x\xff=" + odd):
            status, said = self.ended(word, path_of("first"))
            self.assertEqual(status, 2, said)
            self.assertIn("NAME=MODEL", said)
        for words in ([b"ok=" + odd, path_of("first")], [path_of("first"), b"ok=" + odd]):
            with Pool(models=words) as server:
                self.assertTrue(server.ask("ok", "1 + 2 ="))

    def test_no_file_is_left(self):
        with Pool() as server:
            pid = server.process.pid
            server.ask("second", "1")
            expected = server.loaded()
            least = len(os.listdir(f"/proc/{pid}/fd")) + 2
            before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (least, before[1]))
            crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
            outlast(4 * PROBE_S)  # several probes, none of which can be sent
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            for one in crowd:
                one.close()
            self.assertEqual(server.loaded(), expected)
            self.assertNotIn("was killed", server.said())

    def test_too_large_a_model(self):
        status, said = self.ended(path_of("first"), "big=synthetic:llama-3.1-405b")
        self.assertEqual(status, 1, said)
        self.assertIn("big needs", said)

    def test_a_killed_process_loads_again(self):
        with Pool() as server:
            expected = server.ask("second", "1 + 2 =")
            pid = server.model("second")["process"]
            os.kill(pid, signal.SIGKILL)
            server.wait_until(lambda: server.model("second")["state"] == "unloaded")
            self.assertEqual(server.ask("second", "1 + 2 ="), expected)
            self.assertIn("the process of second ended", server.said())
        with Pool(models=[path_of("first"), slow()]) as server:
            stream = Stream(server, "slow", tokens=200)
            stream.wait_for("data: ")
            other = Stream(server, "first", tokens=100)
            os.kill(server.model("slow")["process"], signal.SIGKILL)
            stream.wait_for("The model 'slow' gave no complete answer")
            self.assertEqual(stream.finish()[-2], "data: [DONE]")
            self.assertEqual(other.finish()[-2], "data: [DONE]")  # undisturbed
            self.assertNotIn("error", "".join(other.lines))

    def test_a_killed_process_charges_nothing(self):
        with Keys("ann --tokens 240") as keys, \
                Pool("--api-key-file", keys.path, models=[path_of("first"), slow()]) as server:
            body = {"model": "slow", **request("1 + 2 =", 200)}
            with concurrent.futures.ThreadPoolExecutor() as pool:
                cut = pool.submit(server.call, "POST", TEXT, body, keys.header("ann"))
                server.wait_until(lambda: server.json(
                    "GET", "/api/status", None, keys.header("ann"))[1]["models"][1]["running"])
                models = server.json("GET", "/api/status", None, keys.header("ann"))[1]["models"]
                os.kill(models[1]["process"], signal.SIGKILL)
                self.assertEqual(cut.result()[0], 503)
            body = {"model": "first", **request("1 + 2 =", 150)}
            self.assertEqual(server.call("POST", TEXT, body, keys.header("ann"))[0], 200)

    def test_a_frozen_process_is_killed(self):
        with Pool("--timeout-ms", serving.timeout_ms(5000)) as server:
            expected = server.ask("second", "1 + 2 =")
            os.kill(server.model("second")["process"], signal.SIGSTOP)
            status, body = server.json("POST", TEXT, {"model": "second", **request("1")})
            self.assertEqual((status, body["error"]["code"]), (503, "model_lost"))
            self.assertIn("second", body["error"]["message"])
            self.assertIn("did not answer for", body["error"]["message"])
            server.wait_until(lambda: "the process of second ended" in server.said())
            self.assertEqual(server.ask("second", "1 + 2 ="), expected)

    def test_a_load_that_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "odd.gguf")
            shutil.copy(path_of("second"), path)
            with Pool(models=[path_of("first"), path]) as server:
                os.rename(path, path + ".away")
                status, body = server.json("POST", TEXT, {"model": "odd", **request("1")})
                self.assertEqual((status, body["error"]["code"]), (500, "model_load_failed"))
                self.assertIn("odd", body["error"]["message"])
                stream = Stream(server, "odd")
                self.assertIn("model_load_failed", stream.wait_for("error"))
                os.rename(path + ".away", path)
                self.assertTrue(server.ask("odd", "1"))

    def test_a_load_that_hangs(self):
        with Pool("--load-timeout-ms", serving.timeout_ms(2000)) as server:
            stop = StopLoads(server, "second")
            status, body = server.json("POST", TEXT, {"model": "second", **request("1")})
            stop.over.set()
            self.assertEqual((status, body["error"]["code"]), (503, "model_load_failed"))
            self.assertIn("--load-timeout-ms", body["error"]["message"])
            self.assertTrue(server.ask("third", "1"))

    def test_a_killed_server_leaves_no_process(self):
        server = Pool()
        server.ask("second", "1")
        pids = children(server.process.pid)
        self.assertEqual(len(pids), 2)
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()
        server.wait_until(lambda: not any(map(alive, pids)))

    def test_stops_during_a_load(self):
        server = Pool("--drain-ms", "100")
        stop = StopLoads(server, "second")
        stream = Stream(server, "second")
        stream.wait_for(": loading second")
        self.assertTrue(stop.found.wait(serving.limit(10)))
        server.process.terminate()
        self.assertIn("shutting down", stream.wait_for("error"))
        stop.go_on()
        self.assertEqual(server.process.wait(serving.limit(30)), 0)
        server.process.stdout.close()

    def test_stops_during_the_first_load(self):
        process = subprocess.Popen(
            [serving.PROGRAM, "serve", path_of("first"), path_of("second"), "-t", "1", "--ctx",
             "256", "--port", "0", "--drain-ms", "100"], stderr=subprocess.PIPE, text=True)
        # (The load is over within a tenth of a second.)
        member = until(lambda: children(process.pid), "a process of a model", pause_s=0)[0]
        os.kill(member, signal.SIGSTOP)
        process.terminate()
        self.assertIn("shutting down", process.stderr.readline())
        until(lambda: is_pending(member, signal.SIGTERM),
              "SIGTERM to the process of the model")
        os.kill(member, signal.SIGCONT)
        said = process.communicate(timeout=serving.limit(30))[1]
        self.assertEqual(process.returncode, 0, said)

    def test_headers_near_the_limit(self):
        with Pool() as server:
            server.ask("second", "1")
            many = {f"X-Extra-{i}": "a" for i in range(94)}
            for headers in (many, {"X-Large": "a" * 16200}):
                status, _, body = server.call("GET", "/props?model=second", headers=headers)
                self.assertEqual(status, 200, body)

    def test_running_requests_may_finish(self):
        server = Pool(models=[path_of("first"), slow()])
        streams = [Stream(server, "slow", tokens=tokens) for tokens in (20, 40)]
        for stream in streams:
            stream.wait_for("data: ")
        server.close()
        for stream in streams:
            self.assertEqual(stream.finish()[-2], "data: [DONE]")
            self.assertNotIn("error", "".join(stream.lines))


if __name__ == "__main__":
    serving.main()
