#!/usr/bin/env python3
"""Hosts join a server while it answers: streams continue with the same text, and the server reports
them."""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
os.environ["WEFT_MODEL"] = str(ROOT / "models/abacus/model.gguf")

import serving  # noqa: E402
from processes import children  # noqa: E402
from wait import until  # noqa: E402

WAIT_S = 60
REQUEST = {"prompt": "What is 47 + 38?", "max_tokens": 100, "temperature": 0, "ignore_eos": True,
           "stream": True}


def streamed(server):
    """The text of one complete streamed answer."""
    status, _, body = server.call("POST", "/v1/completions", REQUEST)
    assert status in (200, 503), f"{status}: {body}"
    if status == 503:  # the ranks are re-forming
        return None
    events = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]", events[-1]
    return "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])


class Joins(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.workers = []
        self.key = pathlib.Path(folder.name) / "key"
        self.key.write_text("of the hosts that join\n")
        self.key.chmod(0o600)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"

    def worker(self, stderr=subprocess.DEVNULL, **env):
        worker = subprocess.Popen([serving.PROGRAM, "worker", "--join", self.address, "--key-file",
                                   self.key], stderr=stderr, env={**os.environ, **env})
        self.workers.append(worker)
        self.addCleanup(worker.wait)
        self.addCleanup(worker.terminate)

    def test_a_failed_recovery_answers_with_its_reason(self):
        """Rank 0 has to load again after a loss, and its file is away."""
        folder = self.key.parent
        shutil.copy(os.environ["WEFT_MODEL"], folder / "model.gguf")
        self.worker()
        server = serving.Server(256, "--expect-workers", "1", "--listen", self.address,
                                "--key-file", str(self.key), "--elastic", "--transport", "tcp",
                                "--restart-timeout-ms", "500", of=str(folder / "model.gguf"))
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)
        try:
            rank = children(self.workers[0].pid)[0]
            os.rename(folder / "model.gguf", folder / "away.gguf")
            client.request("POST", "/v1/completions", json.dumps({**REQUEST, "max_tokens": 240}),
                           {"Content-Type": "application/json"})
            answer = client.getresponse()
            self.assertIn(b"data: ", answer.readline())
            os.kill(rank, signal.SIGKILL)
            text = answer.read().decode()
            self.assertIn("The job could not continue with 1 of 2 ranks", text)
            self.assertIn("cannot open", text)
            self.assertEqual(server.process.wait(WAIT_S), 3)
        finally:
            client.close()
            server.process.kill()
            server.process.stdout.close()

    def test_streams_continue(self):
        self.worker()
        server = serving.Server(256, "--expect-workers", "1", "--listen", self.address,
                                "--key-file", str(self.key), "--elastic", "--transport", "tcp")
        try:
            alone, texts, over = streamed(server), [], threading.Event()

            def ask():
                while not over.is_set():
                    texts.append(streamed(server))
            clients = [threading.Thread(target=ask) for _ in range(3)]
            for client in clients:
                client.start()
            self.worker()
            grown = server.wait_for(lambda s: len(s["ranks"]) == 3 and s["state"] == "serving",
                                    WAIT_S)
            so_far = len(texts)
            server.wait_for(lambda _: len(texts) > so_far + 3, WAIT_S)
            over.set()
            for client in clients:
                client.join()
            self.assertEqual({text for text in texts if text is not None}, {alone})
            self.assertEqual([rank["state"] for rank in grown["ranks"]], ["up"] * 3)
            self.assertEqual(grown["layout"]["tp"], 3)
            joined = server.status()["recoveries"][-1]
            self.assertEqual((joined["joined"], joined["lost_ranks"], joined["ranks"]), (1, [], 3))
            self.assertIn(" joins; epoch 2 with 3 ranks", joined["text"])
            # A join is not counted as a loss.
            losses = [line for line in server.call("GET", "/metrics")[2].decode().splitlines()
                      if line.startswith("weft:recoveries_total")]
            self.assertTrue(losses and losses[0].endswith(" 0"), losses)
            server.close()
        finally:
            server.process.kill()

    def test_a_host_with_other_bits_stays_out_of_a_pipeline(self):
        """Otherwise, answers would continue with other tokens."""
        self.worker()
        server = serving.Server(256, "--expect-workers", "1", "--listen", self.address,
                                "--key-file", str(self.key), "--elastic", "--transport", "tcp",
                                "--pp", "2")
        try:
            alone = streamed(server)
            with open(self.key.parent / "other", "w+", encoding="utf-8") as said:
                self.worker(stderr=said, WEFT_CPU="reference")
                until(lambda: "cpu-reference: these devices do not give the same bits" in
                      pathlib.Path(said.name).read_text("utf-8"), "the refusal")
            self.assertEqual(len(server.status()["ranks"]), 2)
            self.assertEqual(streamed(server), alone)
        finally:
            server.process.kill()
            server.process.stdout.close()

    def test_a_host_returns_to_a_pipeline_of_unlike_hosts(self):
        """The devices were unlike before the loss."""
        self.worker(WEFT_CPU="reference")
        server = serving.Server(256, "--expect-workers", "1", "--listen", self.address,
                                "--key-file", str(self.key), "--elastic", "--transport", "tcp",
                                "--pp", "2")
        try:
            self.workers[0].terminate()
            server.wait_for(lambda s: len(s["ranks"]) == 1 and s["state"] == "serving", WAIT_S)
            self.worker(WEFT_CPU="reference")
            server.wait_for(lambda s: len(s["ranks"]) == 2 and s["state"] == "serving", WAIT_S)
            self.assertIsNotNone(streamed(server))
            server.close()
        finally:
            server.process.kill()
            server.process.stdout.close()

    def test_a_replacement_has_the_place_in_the_layout_that_was_chosen(self):
        """The job names no layout, and its devices can only be stages."""
        self.worker(WEFT_CPU="reference")
        server = serving.Server(256, "--expect-workers", "1", "--listen", self.address,
                                "--key-file", str(self.key), "--transport", "tcp")
        try:
            alone = streamed(server)
            self.assertEqual(server.status()["layout"]["pp"], 2)
            self.worker(WEFT_CPU="reference")
            self.workers[0].terminate()
            server.wait_for(lambda s: s["recoveries"] and s["state"] == "serving", WAIT_S)
            self.assertEqual(server.status()["layout"]["pp"], 2)
            self.assertEqual(streamed(server), alone)
            server.close()
        finally:
            server.process.kill()


if __name__ == "__main__":
    serving.main()
