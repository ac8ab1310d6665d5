#!/usr/bin/env python3
"""An OpenAI endpoint that answers at known times, for tests of weft bench serve.

    fake_endpoint.py        prints its port, serves until standard input ends

The first token comes after FIRST seconds, each further one GAP later. The name of a request's model
selects a fault: "words" (refuses token ids), "odd-fails" (every second request is answered with
500), "cut" (no [DONE] at its end), "error" (an error within the stream), "slow-line" (an event in
two pieces), "no-usage", "silent" (never answers), "text" (no stream of events).
"""
import http.server
import json
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from wait import Pace  # noqa: E402

FIRST, GAP = 0.05, 0.01
SEEN = {"requests": 0, "bodies": []}
LOCK = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def finish_with(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/v1/models":
            data = [{"id": "words"}] if self.headers.get("Authorization") else []
            return self.finish_with(200, json.dumps({"data": data}).encode())
        with LOCK:
            return self.finish_with(200, json.dumps(SEEN).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with LOCK:
            SEEN["requests"] += 1
            number = SEEN["requests"]
            SEEN["bodies"].append(body | {"path": self.path,
                                          "key": self.headers.get("Authorization", "")})
        model = body["model"]
        if model == "words" and not isinstance(body.get("prompt", ""), str):
            return self.finish_with(400, b'{"error": {"message": "prompt must be text"}}')
        if model == "odd-fails" and number % 2 == 1:
            return self.finish_with(500, b'{"error": {"message": "out of luck"}}')
        if model == "text":
            return self.finish_with(200, b"hello")
        if model == "silent":
            return self.rfile.read(1)  # the end of the connection
        self.stream(body, model)

    def piece(self, text):
        self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")

    def event(self, value):
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.piece(b"data: " + text + b"\n\n")

    def stream(self, body, model):
        chat = self.path == "/v1/chat/completions"
        prompt = body["messages"][0]["content"] if chat else body["prompt"]
        length = len(prompt.split()) if isinstance(prompt, str) else len(prompt)
        count = body["max_tokens"]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if chat:
            self.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        begin = time.monotonic()
        for i in range(count):
            Pace(max(0, begin + FIRST + i * GAP - time.monotonic())).next()
            if model == "error" and i == 2:
                self.event({"error": {"message": "a rank was lost"}})
            choice = {"delta": {"content": "x "}} if chat else {"text": "x ", "finish_reason": None}
            text = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
            if model == "slow-line":
                self.piece(text[:9])
                self.wfile.flush()
                self.piece(text[9:])
            else:
                self.piece(text)
        if model == "cut":
            self.piece(b"")
            return
        self.event({"choices": [{"delta": {}, "text": "", "finish_reason": "length"}]})
        if model != "no-usage":
            self.event({"choices": [], "usage": {"prompt_tokens": length,
                                                 "completion_tokens": count}})
        self.event(b"[DONE]")
        self.piece(b"")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass


def main():
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
