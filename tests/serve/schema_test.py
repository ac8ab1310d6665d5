#!/usr/bin/env python3
"""Requests made up by schemathesis from /openapi.json: the server does what the file says."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import serving

serving.package("schemathesis")
ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance," \
         "response_schema_conformance"


def short(schemas):
    """Answers of a few tokens, so that the time goes into requests."""
    for request in schemas.values():
        properties = request.get("properties", {})
        for name, most in (("max_tokens", 3), ("max_completion_tokens", 3),
                           ("max_output_tokens", 3), ("num_predict", 3), ("n_predict", 3),
                           ("n", 2)):
            if name in properties:
                properties[name] = {"type": "integer", "minimum": 1, "maximum": most}
    schemas["OllamaOptions"]["required"] = ["num_predict"]
    for name in ("OllamaChatRequest", "OllamaGenerateRequest"):
        schemas[name]["required"].append("options")
    schemas["ChatRequest"]["required"] = ["messages", "max_tokens"]
    schemas["CompletionRequest"]["required"] = ["prompt", "max_tokens"]
    schemas["PlainCompletionRequest"]["required"] = ["prompt", "n_predict"]
    schemas["ResponseRequest"]["required"] = ["input", "max_output_tokens"]


class Schema(serving.ServedCase):
    # Two pages: an answer whose length is not bound ends soon.
    context = 128

    def test_file_is_served(self):
        status, headers, body = self.server.call("GET", "/openapi.json")
        self.assertEqual(status, 200)
        self.assertEqual(headers["Content-Type"], "application/json")
        self.assertEqual(body, (ROOT / "docs" / "openapi.json").read_bytes())

    def test_every_path_is_there(self):
        document = json.loads((ROOT / "docs" / "openapi.json").read_text())
        for path, methods in document["paths"].items():
            for method in methods:
                _, _, body = self.server.call(method.upper(), path, "{")
                self.assertNotIn(b"unknown_url", body, path)

    def test_made_up_requests(self):
        document = json.loads((ROOT / "docs" / "openapi.json").read_text())
        short(document["components"]["schemas"])
        examples, seconds = ("12", "30") if serving.nightly() else ("4", "15")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "openapi.json"
            path.write_text(json.dumps(document))
            run = subprocess.run(
                [sys.executable, "-m", "schemathesis.cli", "run", str(path), "--url",
                 self.server.url, "--checks", CHECKS, "--phases", "examples,coverage,fuzzing",
                 "--max-examples", examples, "--max-time", seconds, "--seed", "1", "--no-color",
                 "--request-timeout", "20", "--continue-on-failure", "--no-shrink",
                 "--generation-database", "none", "--suppress-health-check", "all", "--warnings",
                 "off"],
                env={**os.environ, "PYTHONPATH": serving.PACKAGES}, cwd=folder, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        self.assertEqual(run.returncode, 0, run.stdout[-8000:])
        print(*[line for line in run.stdout.splitlines() if "generated" in line], sep="\n")
        self.assertEqual(self.server.json("GET", "/health")[0], 200)


if __name__ == "__main__":
    serving.main()
