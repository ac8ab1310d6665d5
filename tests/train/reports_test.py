#!/usr/bin/env python3
"""Reports after an update: commands of the user, W&B's offline runs, an MLflow server. Their faults
do not end a job.

    tests/train/reports_test.py build/weft [UNITTEST ARGUMENT...]
"""
import http.server
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "models/abacus/model.gguf")
PATIENCE = 600


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.data = self.folder / "data.jsonl"
        self.data.write_text("".join(json.dumps(dict(question=f"What is {a} + 3?", answer=str(a)))
                                     + "\n" for a in range(40)))

    def train(self, *more, status=0, steps=4, output="--no-output", **environment):
        words = [PROGRAM, "train", MODEL, "--data", str(self.data), "--seq-len", "64", "--json",
                 "--dtype", "f32", "-t", "1", "--micro-batch", "4", "--steps", str(steps),
                 *output.split(), *more]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE,
                              env={**ENVIRONMENT, **environment})
        self.assertEqual(done.returncode, status, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


class Commands(Case):
    def test_they_read_the_lines_of_json(self):
        steps, evaluations = self.folder / "steps", self.folder / "evaluations"
        lines, said = self.train("--test-split", "0.3", "--eval-every", "2",
                                 "--on-step", f"cat >> {steps}",
                                 "--on-eval", f"cat >> {evaluations}")
        self.assertNotIn("Training goes on", said)
        rows = [json.loads(line) for line in steps.read_text().splitlines()]
        self.assertEqual(rows, lines[:-1])
        self.assertEqual([row["step"] for row in rows], [1, 2, 3, 4])
        self.assertEqual([json.loads(line) for line in evaluations.read_text().splitlines()],
                         [rows[1], rows[3]])
        for row in rows:
            self.assertAlmostEqual(row["perplexity"] / math.exp(row["loss"]), 1, places=9)
        self.assertAlmostEqual(rows[1]["eval_perplexity"], math.exp(rows[1]["eval_loss"]), places=6)

    def test_faults_are_warnings(self):
        lines, said = self.train("--on-step", "echo no disk >&2; exit 3")
        self.assertEqual(len(lines), 5)
        self.assertEqual(said.count("ended with status 3 after step"), 1, said)
        self.assertIn("no disk. Training goes on", said)
        lines, said = self.train("--on-step", "exec cat <> /dev/zero > /dev/null",
                                 "--on-step-timeout", "1", steps=2)
        self.assertEqual(len(lines), 3)
        self.assertEqual(said.count("did not end within 1000 ms"), 1, said)

    def test_a_fault_that_ends_is_told(self):
        _, said = self.train("--on-step", "grep -q '\"step\":[34]'")
        self.assertIn("--on-step succeeds again", said)

    def test_options_are_checked(self):
        _, said = self.train("--on-eval", "true", status=2)
        self.assertIn("--on-eval needs --test-split", said)
        _, said = self.train("--on-step", "true", "--on-step-timeout", "0", status=2)
        self.assertIn("--on-step-timeout", said)


def fields(data):
    """A protocol buffer as a list of (field, integer or bytes)."""
    at, found = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
            continue
        assert key & 7 == 2, key
        size = varint()
        found.append((key >> 3, data[at:at + size]))
        at += size
    return found


def items(data):
    """The items of a history or config: keys and their JSON."""
    pairs = [dict(fields(value)) for field, value in fields(data) if field == 1]
    return {one[1].decode(): json.loads(one[16]) for one in pairs}


def wandb_records(text):
    """The records of a run-ID.wandb file; checks the checksum of each part."""
    assert text[:7] == struct.pack("<4sHB", b":W&B", zlib.crc32(b"Weights & Biases") & 0xffff, 0)
    at, record, records = 7, b"", []
    while at < len(text):
        left = 32768 - at % 32768
        if left < 7:
            assert not any(text[at:at + left])
            at += left
            continue
        crc, size, kind = struct.unpack_from("<IHB", text, at)
        part = text[at + 7:at + 7 + size]
        assert crc == zlib.crc32(part, zlib.crc32(bytes([kind])))
        assert (kind in (1, 2)) == (record == b""), kind
        record += part
        if kind in (1, 4):
            records.append(fields(record))
            record = b""
        at += 7 + size
    assert record == b""
    return records


class WandbFolder(Case):
    def test_an_offline_run(self):
        out = self.folder / "out"
        lines, said = self.train("--report-to", "wandb", "--run-name", "first", steps=300,
                                 output=f"--output-dir {out}", WANDB_PROJECT="p")
        self.assertNotIn("Training goes on", said)
        self.assertEqual(list(out.glob("events.*")), [])
        file, = out.glob("wandb/offline-run-*-*/run-*.wandb")
        self.assertTrue(file.parent.name.endswith(file.stem[len("run"):]))
        text = file.read_bytes()
        self.assertGreater(len(text), 2 * 32768)  # (records are divided at the borders of blocks)
        records = wandb_records(text)
        self.assertEqual([dict(record)[1] for record in records], list(range(1, 304)))
        self.assertIn(21, dict(records[0]))
        run = dict(fields(dict(records[1])[17]))
        self.assertEqual((run[1].decode(), run[3], run[8]), (file.stem[4:], b"p", b"first"))
        self.assertEqual(items(run[4])["rate"], 5e-5)
        for line, record in zip(lines, records[2:-1]):
            history = items(dict(record)[2])
            self.assertEqual(history, {**line, "_step": line["step"]})
        self.assertEqual(dict(fields(dict(records[-1])[18]))[1], 0)

    def test_options_are_checked(self):
        _, said = self.train("--report-to", "wandb", status=2)
        self.assertIn("--report-to wandb needs --output-dir", said)
        _, said = self.train("--report-to", "tensorboard,comet", status=2)
        self.assertIn("expected some of tensorboard, wandb and mlflow", said)


class Tracker(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({"error_code": "RESOURCE_DOES_NOT_EXIST"}, 404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        call = self.path.removeprefix("/api/2.0/mlflow/")
        self.server.calls.append((call, body, self.headers.get("Authorization")))
        if self.server.refuses:
            return self.answer({"error_code": "INTERNAL_ERROR"}, 500)
        return self.answer({"experiments/create": {"experiment_id": "7"},
                            "runs/create": {"run": {"info": {"run_id": "r1"}}}}.get(call, {}))

    def answer(self, body, status=200):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class Mlflow(Case):
    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tracker)
        self.server.calls, self.server.refuses = [], False
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def called(self, name):
        return [body for call, body, _ in self.server.calls if call == name]

    def test_a_run(self):
        lines, said = self.train("--report-to", "mlflow", "--run-name", "first",
                                 MLFLOW_TRACKING_URI=self.url + "/", MLFLOW_TRACKING_TOKEN="secret",
                                 MLFLOW_EXPERIMENT_NAME="sums & more")
        self.assertNotIn("Training goes on", said)
        self.assertEqual(self.called("experiments/create"), [{"name": "sums & more"}])
        created, = self.called("runs/create")
        self.assertEqual((created["experiment_id"], created["run_name"]), ("7", "first"))
        batches = self.called("runs/log-batch")
        self.assertTrue(all(batch["run_id"] == "r1" and len(batch.get("params", ())) <= 100
                            for batch in batches))
        parameters = {one["key"]: one["value"] for batch in batches
                      for one in batch.get("params", ())}
        self.assertEqual((parameters["optimizer"], parameters["rate"]), ("adamw", "5e-05"))
        metrics = [one for batch in batches for one in batch.get("metrics", ())]
        for line in lines[:-1]:
            told = {one["key"]: one["value"] for one in metrics if one["step"] == line["step"]}
            self.assertEqual(told, {key: value for key, value in line.items() if key != "step"})
        self.assertEqual(self.called("runs/update")[0]["status"], "FINISHED")
        self.assertEqual({token for *_, token in self.server.calls}, {"Bearer secret"})

    def test_a_run_goes_on(self):
        self.train("--report-to", "mlflow", MLFLOW_TRACKING_URI=self.url, MLFLOW_RUN_ID="old")
        self.assertEqual(self.called("runs/create"), [])
        self.assertEqual({body["run_id"] for _, body, _ in self.server.calls}, {"old"})

    def test_a_dead_server_is_one_warning(self):
        self.server.shutdown()
        self.server.server_close()
        lines, said = self.train("--report-to", "mlflow", MLFLOW_TRACKING_URI=self.url)
        self.assertEqual(len(lines), 5)
        self.assertEqual(said.count("Training goes on"), 1, said)
        self.assertIn(self.url, said)
        self.assertNotIn("succeeds again", said)

    def test_errors_of_the_server(self):
        self.server.refuses = True
        _, said = self.train("--report-to", "mlflow", MLFLOW_TRACKING_URI=self.url)
        self.assertEqual(said.count("Training goes on"), 1, said)
        self.assertIn("status 500", said)
        self.assertNotIn("succeeds again", said)

    def test_the_address_is_checked(self):
        _, said = self.train("--report-to", "mlflow", status=2)
        self.assertIn("MLFLOW_TRACKING_URI is ''", said)


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    ENVIRONMENT = {key: value for key, value in os.environ.items()
                   if not key.startswith(("WANDB_", "MLFLOW_"))}
    unittest.main()
