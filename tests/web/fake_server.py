"""A server for the page's files in web/, with answers that a test defines.

    with FakeServer() as server:
        server.answer = lambda body: ["Hel", "lo"]     # pieces; a number among them is a pause (s)
        server.status = {...}                          # of /api/status, or a function that
                                                       # returns it; None: 503
        server.requests                                # bodies of chat requests
A dict as a piece is a delta, sent unchanged, or an error ({"error": ...}); CUT cuts the connection.
With `key`, a request without this key gets 401. A pause ends early when the client leaves;
server.left counts these.
"""
import atexit
import http.server
import json
import pathlib
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from limits import limit  # noqa: E402

WEB = pathlib.Path(__file__).resolve().parents[2] / "web"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript",
         ".svg": "image/svg+xml", ".woff2": "font/woff2", ".txt": "text/plain"}
POLICY = "default-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'"
CUT = object()


def bundle(package):
    """The script that the build makes of a Node package, or None without the package."""
    if not (package / "lib/index.js").is_file():
        return None
    folder = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    script = folder / "bundle.js"
    subprocess.run(["cmake", f"-DROOT={package}", f"-DOUT={script}", "-P",
                    WEB.parent / "cmake/bundle_modules.cmake"], check=True, timeout=limit(60))
    return script


def find_libraries():
    """The files of web/libraries.txt that exist on this machine, by name."""
    found = {}
    for line in (WEB / "libraries.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        name, pattern, _ = line.split()
        if pattern.endswith("/"):
            script = bundle(pathlib.Path(pattern))
            found |= {name: script} if script else {}
            continue
        for path in sorted(pathlib.Path("/").glob(pattern[1:])):
            found[name + path.name if name.endswith("/") else name] = path
    return found


LIBRARIES = find_libraries()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.fake.connections.add(self.connection)

    def finish(self):
        self.fake.connections.discard(self.connection)
        super().finish()

    def log_message(self, *_):
        pass

    @property
    def fake(self):
        return self.server.fake

    def reply(self, status, body, kind="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def error(self, status, message, code=None):
        self.reply(status, {"error": {"message": message, "type": "x", "param": None,
                                      "code": code}})

    def refused(self):
        key = self.fake.key
        if key is None or self.headers.get("Authorization") == f"Bearer {key}":
            return False
        self.error(401, "Bring a key, please.")
        return True

    def do_GET(self):
        name = {"/": "index.html"}.get(self.path, self.path.removeprefix("/assets/"))
        file = WEB / name
        if "/" not in name and file.is_file():
            return self.reply(200, file.read_bytes(), TYPES[file.suffix])
        if name == "libraries.js":
            names = json.dumps(list(self.fake.libraries)).encode()
            return self.reply(200, b"export const libraries = %s;" % names, "text/javascript")
        if name in self.fake.libraries:
            return self.reply(200, self.fake.libraries[name].read_bytes(),
                              TYPES[pathlib.Path(name).suffix])
        if self.refused():
            return None
        if self.path == "/v1/models":
            return self.reply(200, {"object": "list", "data": self.fake.models})
        if self.path == "/props" and self.fake.props is not None:
            return self.reply(200, self.fake.props)
        if self.path == "/api/status":
            self.fake.asked += 1
            status = self.fake.status() if callable(self.fake.status) else self.fake.status
            if status is None:
                return self.error(503, "The model is loading.")
            return self.reply(200, status)
        return self.error(404, "There is no such thing here.")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.refused():
            return
        self.fake.requests.append(body)
        answer = self.fake.answer(body)
        if isinstance(answer, tuple):
            self.error(*answer)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self.stream(answer)
        except OSError:
            self.fake.left += 1

    def stream(self, answer):
        said = 0
        for piece in answer:
            if piece is CUT:
                return
            if isinstance(piece, (int, float)):
                if select.select([self.connection], [], [], piece)[0]:
                    raise OSError("the client left")
                continue
            if isinstance(piece, dict) and "error" in piece:
                self.event(piece)
                continue
            said += 1
            delta = piece if isinstance(piece, dict) else {"content": piece}
            self.event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": self.fake.finish}]})
        self.event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": said}})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, data):
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")
        self.wfile.flush()


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Ignores a page that disconnects during an answer."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class FakeServer:
    def __init__(self):
        self.reset()
        self.start(0)

    def reset(self):
        self.answer = lambda body: ["Hello."]
        self.status = {"model": "fake", "state": "serving"}
        self.key = None
        self.models = [{"id": "fake"}]
        self.props = None  # of /props; None: 404
        self.libraries = LIBRARIES
        self.finish = "stop"
        self.requests = []
        self.left = 0
        self.asked = 0  # number of requests for /api/status

    def start(self, port):
        self.connections = set()
        self.http = QuietServer(("127.0.0.1", port), Handler)
        self.http.fake = self
        self.url = f"http://127.0.0.1:{self.http.server_port}/"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def slowly(text, pause_s=0.03):
    """The words of a text with pauses between them."""
    for word in text.split(" "):
        yield word + " "
        yield pause_s
