"""A running `weft serve` for the tests of this folder, which talk to it as its users do.

    XXX_test.py PROGRAM PACKAGES [UNITTEST ARGUMENT...]

PROGRAM: the weft to test. PACKAGES: the folder into which tools/setup.sh installed
requirements.txt; if one of them is missing, the test names it and ends with status 77 (skipped).
The model is $WEFT_MODEL, or the model of ./quickstart; without a model the test is skipped, too.
A test that is about requests, not about what the model says, sets `serving.few_layers`: then the
daily suite uses the first layers only.
"""
import functools
import http.client
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from nightly import in_turn, nightly, nightly_only, some  # noqa: E402, F401
from limits import limit, timeout_ms  # noqa: E402, F401
from wait import until  # noqa: E402
import gguf_template  # noqa: E402

SKIPPED = 77
KEPT = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Seconds that a client waits where a test is not about time. A shared core may take a minute for a
# prompt of 2,000 tokens; a hang ends with the test's own time limit.
PATIENCE = 300


def skip(reason):
    print(f"skipped: {reason}", file=sys.stderr)
    sys.exit(SKIPPED)


few_layers = False
LAYERS = 4  # of 30
CUT = tempfile.TemporaryDirectory(prefix="weft-serve-")


def model():
    return first_layers() if few_layers else whole_model()


def first_layers():
    """The first layers of the real model; nightly, or of another model, all of them."""
    path = whole_model()
    return path if nightly() or os.path.basename(path) != KEPT else cut(path)


@functools.cache
def cut(path):
    target = os.path.join(CUT.name, KEPT)
    gguf_template.with_layers(path, target, LAYERS)
    return target


def layers():
    return LAYERS if few_layers and model() != whole_model() else 30


def whole_model():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    kept = cache / "weft" / KEPT
    for path in (os.environ.get("WEFT_MODEL"), str(kept)):
        if path and os.path.exists(path):
            return path
    return skip(f"no model at {kept}; './quickstart' brings it")


def sanitizers_factor():
    """Factor for CPU time and memory limits in builds with sanitizers: their checks, freed memory
    that they keep (256 MiB), and the thread sanitizer's shadow memory (per its manual 5 to 10 times
    the memory and 5 to 15 times the time)."""
    with open(PROGRAM, "rb") as program:
        code = program.read()
    return 8 if b"__tsan_init" in code else 4 if b"__asan_init" in code else 1


class Server:
    """One `weft serve` on its own port."""

    def __init__(self, context=2048, *words, stderr=None, of=None, port=0):
        """`of`: a model other than model(); port 0: any free one."""
        self.process = subprocess.Popen(
            [PROGRAM, "serve", of or model(), "-t", "1", "--ctx", str(context),
             "--port", str(port), "--json", "--alias", "gpt-test", *words],
            stdout=subprocess.PIPE, stderr=stderr, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"weft serve ended with status {self.process.wait(30)}")
        self.port = json.loads(line)["port"]
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self):
        self.process.terminate()
        try:
            status = self.process.wait(60)
        finally:
            self.process.kill()
            self.process.stdout.close()
        if status != 0:
            raise RuntimeError(f"weft serve ended with status {status}")

    def call(self, method, path, body=None, headers=None):
        """Status, headers and body of one request; `body`: bytes, text, or a value sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            if isinstance(body, str):
                body = body.encode()
            connection.request(method, path, body,
                               {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def json(self, method, path, body=None, headers=None):
        status, _, data = self.call(method, path, body, headers)
        return status, json.loads(data)

    def status(self):
        return self.json("GET", "/api/status")[1]

    def wait_for(self, condition, seconds):
        """Waits until condition(status) holds, at most limit(seconds); returns that status."""
        seen = {}

        def holds():
            seen.update(now=self.status())
            return condition(seen["now"])
        until(holds, lambda: f"the awaited status, but {seen['now']}", limit(seconds))
        return seen["now"]


class ServedCase(unittest.TestCase):
    """Tests that share one server."""
    context = 2048
    words = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.context, *cls.words)

    @classmethod
    def tearDownClass(cls):
        cls.server.close()


def weft(*words):
    """The output of a weft command."""
    return subprocess.run([PROGRAM, *words], check=True, stdout=subprocess.PIPE, text=True,
                          timeout=120).stdout


def package(name):
    """Imports a module; skips the test if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        return skip(f"{error}; './test' installs tests/serve/requirements.txt into {PACKAGES}")


def main():
    model()
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)


if len(sys.argv) < 3:
    sys.exit(__doc__)
PROGRAM, PACKAGES = map(os.path.abspath, sys.argv[1:3])
sys.path.insert(1, PACKAGES)
