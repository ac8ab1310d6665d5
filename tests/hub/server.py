#!/usr/bin/env python3
"""An HTTPS server that acts as a Hugging Face Hub and misbehaves on request, for tests/hub.

    server.py FOLDER        writes FOLDER/ca.pem, prints "PORT CDN_PORT", serves until killed

Two ports: the Hub, and another origin to which it redirects downloads (its CDN). The content of a
file is generated from its name and size. POST /control sets the files and faults with a JSON object
that replaces the previous one (see State); GET /control returns the counters.
"""
import hashlib
import http.server
import json
import mmap
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from wait import Pace  # noqa: E402

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def content(name, size, salt=""):
    """Content that differs if parts are shifted or swapped."""
    block = hashlib.shake_256(f"{name} {salt}".encode()).digest(min(size, 1 << 20))
    out = bytearray()
    number = 0
    while len(out) < size:
        out += number.to_bytes(8, "little") + block[8:]
        number += 1
    return bytes(out[:size])


class State:
    """Set by /control. files: [{path, size, text?, large?, salt?, listed_size?, listed_hash?,
    content_type?}]. Faults: cuts (each answer of the CDN ends after so many bytes), refuse (list of
    [status, retry_after] for the next requests of the CDN), hub_refuse (the same for the Hub),
    no_range, loop, trickle (bytes a second), silent, gated, need_token, etag (a list: in turn),
    page (entries of a listing's page), dataset (the repository is one), card (its README's header),
    raw_tree (the text of the listing), rate (bytes a second over all)."""

    def __init__(self):
        self.lock = threading.Lock()
        self.reset({})

    def reset(self, words):
        with self.lock:
            self.words = words
            self.refuse = list(words.get("refuse", []))
            self.hub_refuse = list(words.get("hub_refuse", []))
            self.cuts = list(words.get("cuts", []))
            self.etag_turn = 0
            self.sent = 0
            self.requests = []
            self.tokens = {"hub": [], "cdn": []}
            self.bytes = {}

    def file(self, path):
        for file in self.words.get("files", []):
            if file["path"] == path:
                if "data" not in file:
                    text = file.get("text")
                    if "from" in file:
                        with open(file["from"], "rb") as source:
                            file["data"] = mmap.mmap(source.fileno(), 0, prot=mmap.PROT_READ)
                        return file
                    file["data"] = (text.encode() if text is not None else
                                    content(path, file["size"], file.get("salt", "")))
                return file
        return None

    def etag(self):
        etags = self.words.get("etag", '"cdn-1"')
        if isinstance(etags, str):
            return etags
        with self.lock:
            self.etag_turn += 1
            return etags[self.etag_turn % len(etags)]

    def take(self, name):
        with self.lock:
            entries = getattr(self, name)
            return entries.pop(0) if entries else None


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def listed(file):
    """The file's entry in a listing, computed once."""
    if "entry" in file:
        return file["entry"]
    data = file["data"]
    size = file.get("listed_size", len(data))
    entry = {"type": "file", "path": file.get("listed_path", file["path"]), "size": size}
    if file.get("large"):
        sha = file.get("listed_hash") or hashlib.sha256(data).hexdigest()
        entry["oid"] = git_hash(sha.encode())
        entry["lfs"] = {"oid": sha, "size": size, "pointerSize": 135}
    else:
        entry["oid"] = git_hash(data)
    file["entry"] = entry
    return entry


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    is_cdn = False

    def log_message(self, *args):
        pass

    def finish_with(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"]))
        STATE.reset(json.loads(text))
        self.finish_with(200, b"{}")

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        if path == "/control":
            with STATE.lock:
                body = {"sent": STATE.sent, "requests": STATE.requests, "tokens": STATE.tokens,
                        "bytes": STATE.bytes}
            return self.finish_with(200, json.dumps(body).encode())
        with STATE.lock:
            STATE.requests.append(("cdn " if self.is_cdn else "hub ") + self.path)
            STATE.tokens["cdn" if self.is_cdn else "hub"].append(
                self.headers.get("Authorization", ""))
        if self.is_cdn:
            return self.cdn(path)
        return self.hub(path, urllib.parse.parse_qs(url.query))

    def hub(self, path, query):
        words = STATE.words
        refused = STATE.take("hub_refuse")
        if refused:
            return self.finish_with(refused[0], b"later", Retry_After=refused[1])
        token = self.headers.get("Authorization", "")
        if words.get("gated"):
            return self.finish_with(403, b"{}", X_Error_Code="GatedRepo",
                                    X_Error_Message="Access is restricted")
        if words.get("need_token") and token != "Bearer " + words["need_token"]:
            return self.finish_with(401, b"{}", X_Error_Code="RepoNotFound",
                                    X_Error_Message="Repository not found")
        kind = "datasets" if words.get("dataset") else "models"
        revision = path.removeprefix(f"/api/{kind}/o/n/revision/")
        if revision != path:
            if revision not in ("main", "v1", "refs/convert/parquet", COMMIT):
                return self.finish_with(404, b"{}", X_Error_Code="RevisionNotFound")
            return self.finish_with(200, json.dumps({
                "id": "o/n", "sha": COMMIT, "cardData": words.get("card"),
                "siblings": [{"rfilename": f["path"]} for f in words.get("files", [])]}).encode())
        if path == f"/api/{kind}/o/n/tree/{COMMIT}":
            return self.tree(int(query.get("cursor", ["0"])[0]))
        prefix = "/datasets" if words.get("dataset") else ""
        file = re.match(f"{prefix}/o/n/resolve/(?:main|v1|{COMMIT})/", path)
        if file:
            return self.resolve(path[file.end():])
        return self.finish_with(404, b"{}", X_Error_Code="RepoNotFound")

    def do_HEAD(self):  # as huggingface_hub sends it
        self.do_GET()

    def tree(self, begin):
        words = STATE.words
        if "raw_tree" in words:
            return self.finish_with(200, words["raw_tree"].encode())
        if words.get("huge_tree"):
            return self.finish_with(200, b"[" + b" " * (20 << 20) + b"]")
        files = words.get("files", [])
        for file in files:
            STATE.file(file["path"])
        page = words.get("page", 1000)
        body = json.dumps([{"type": "directory", "path": "sub", "oid": "0" * 40, "size": 0}] +
                          [listed(f) for f in files[begin:begin + page]]).encode()
        headers = {}
        if begin + page < len(files):
            where = words.get("next_host", f"https://localhost:{PORTS[0]}")
            headers["Link"] = (f"<{where}{self.path.split('?')[0]}?recursive=true&"
                               f"cursor={begin + page}>; rel=\"next\"")
        return self.finish_with(200, body, **headers)

    def resolve(self, name):
        file = STATE.file(name)
        if file is None:
            return self.finish_with(404, b"{}", X_Error_Code="EntryNotFound")
        if STATE.words.get("loop"):
            return self.finish_with(302, b"", Location=self.path)
        if STATE.words.get("downgrade"):
            return self.finish_with(302, b"", Location=f"http://localhost:{PORTS[1]}/{name}")
        if not file.get("large"):
            return self.send_file(name, file, f'"{listed(file)["oid"]}"')
        sha = listed(file)["lfs"]["oid"]
        where = f"https://127.0.0.1:{PORTS[1]}/{name}?sign=secret"
        return self.finish_with(302, b"", Location=where,
                                X_Linked_ETag=f'"{sha}"', X_Linked_Size=len(file["data"]),
                                X_Repo_Commit=COMMIT, ETag='"of the redirect"')

    def cdn(self, path):
        file = STATE.file(path[1:])
        refused = STATE.take("refuse")
        if refused:
            return self.finish_with(refused[0], b"later", Retry_After=refused[1])
        return self.send_file(path[1:], file, STATE.etag())

    def send_file(self, name, file, etag):
        data = file["data"]
        served = data if "served_size" not in file else content(name, file["served_size"])
        if file.get("flip"):
            served = served[:100] + bytes([served[100] ^ 1]) + served[101:]
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        status, begin, end = 200, 0, len(served)
        if asked and not STATE.words.get("no_range"):
            status, begin, end = 206, int(asked[1]), min(int(asked[2]) + 1, len(served))
        self.send_response(status)
        self.send_header("ETag", etag)
        self.send_header("X-Repo-Commit", COMMIT)
        if status == 206:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(served)}")
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        if self.command == "HEAD":
            return
        cut = STATE.take("cuts")
        most = end - begin if cut is None else min(cut, end - begin)
        self.send_slowly(name, memoryview(served)[begin:begin + most])
        if most < end - begin:
            self.close_connection = True
            self.connection.close()

    def send_slowly(self, name, data):
        words = STATE.words
        if words.get("silent"):
            return self.rfile.read(1)  # the end of the connection
        rate = words.get("rate", 0)
        step = max(1, min(rate // 20, 1 << 18)) if rate else 1 << 20
        for at in range(0, len(data), step):
            piece = data[at:at + step]
            self.wfile.write(piece)
            with STATE.lock:
                STATE.sent += len(piece)
                STATE.bytes[name] = STATE.bytes.get(name, 0) + len(piece)
            if rate > 0:
                Pace(len(piece) / rate).next()


class CdnHandler(Handler):
    is_cdn = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass  # the tests break connections on purpose


def make_certificates(folder):
    """Creates a CA, and a certificate signed by it for localhost."""
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=weft test CA", "-keyout", "ca.key",
            "-out", "ca.pem", "-addext", "basicConstraints=critical,CA:TRUE")
    openssl("req", *key, "-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "request.pem")
    with open(os.path.join(folder, "extensions"), "w") as file:
        file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-days", "2", "-extfile", "extensions", "-out", "cert.pem")


STATE = State()
PORTS = []


def main():
    folder = sys.argv[1]
    make_certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem"))
    for handler in (Handler, CdnHandler):
        server = Server(("127.0.0.1", 0), handler)
        # The connection's own thread does the handshake, at its first read.
        server.socket = context.wrap_socket(server.socket, server_side=True,
                                            do_handshake_on_connect=False)
        server.socket.settimeout(None)
        PORTS.append(server.socket.getsockname()[1])
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(*PORTS, flush=True)
    sys.stdin.read()  # until the parent process ends


if __name__ == "__main__":
    main()
