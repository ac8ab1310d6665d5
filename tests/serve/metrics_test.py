#!/usr/bin/env python3
"""/metrics: every metric used by vLLM's dashboards, with labels, bounds and correct values."""
import http.client
import json
import math
import re
import unittest

import serving
from wait import until

REQUEST_SECONDS = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960,
                   1920, 7680]
FIRST_SECONDS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5,
                 10, 20, 40, 80, 160, 640, 2560]
TOKEN_SECONDS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
                 20, 40, 80]
TOKENS = [1, 2, 5, 10, 20, 50, 100, 200, 500]  # buckets for a context of 512
STEP_TOKENS = [1] + [2 ** i for i in range(3, 15)]
# Metrics of grafana.json, performance_statistics.json and query_statistics.json in vLLM's examples,
# and others used by dashboards.
GAUGES = ["num_requests_running", "num_requests_waiting", "prompt_tokens_left",
          "prompt_seconds_left", "kv_cache_usage_perc", "gpu_cache_usage_perc"]
COUNTERS = ["prompt_tokens_total", "generation_tokens_total", "request_success_total",
            "prefix_cache_queries_total", "prefix_cache_hits_total", "num_preemptions_total",
            "gpu_prefix_cache_queries_total", "gpu_prefix_cache_hits_total"]
HISTOGRAMS = {
    "time_to_first_token_seconds": FIRST_SECONDS, "inter_token_latency_seconds": TOKEN_SECONDS,
    "time_per_output_token_seconds": TOKEN_SECONDS,
    "request_time_per_output_token_seconds": TOKEN_SECONDS,
    "e2e_request_latency_seconds": REQUEST_SECONDS, "request_queue_time_seconds": REQUEST_SECONDS,
    "request_inference_time_seconds": REQUEST_SECONDS,
    "request_prefill_time_seconds": REQUEST_SECONDS,
    "request_decode_time_seconds": REQUEST_SECONDS, "request_prompt_tokens": TOKENS,
    "request_generation_tokens": TOKENS, "request_max_num_generation_tokens": TOKENS,
    "request_prefill_kv_computed_tokens": TOKENS, "request_params_n": [1, 2, 5, 10, 20],
    "request_params_max_tokens": TOKENS, "iteration_tokens_total": STEP_TOKENS}

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: -?\d+)?')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)",?')


def parse(text):
    """Strict parser of Prometheus's text format 0.0.4: types by name, samples (name, labels,
    value)."""
    types, samples = {}, []
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types, f"{name} comes twice"
            assert kind in ("counter", "gauge", "histogram", "summary", "untyped"), line
            types[name] = kind
        elif line and not line.startswith("#"):
            found = SAMPLE.fullmatch(line)
            assert found, line
            labels = dict(LABEL.findall(found[2] or ""))
            assert LABEL.sub("", found[2] or "") == "", line
            samples.append((found[1], labels, float(found[3])))
    return types, samples


class Metrics(unittest.TestCase):
    def serve(self, *words):
        server = serving.Server(512, *words)
        self.addCleanup(server.close)
        return server

    def scrape(self, server):
        status, headers, body = server.call("GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertTrue(headers["Content-Type"].startswith("text/plain; version=0.0.4"))
        return parse(body.decode())

    def value(self, samples, name, **labels):
        found = [value for each, has, value in samples
                 if each == name and labels.items() <= has.items()]
        self.assertEqual(len(found), 1, f"{name} {labels}: {found}")
        return found[0]

    def ask(self, server, path="/v1/chat/completions", **more):
        body = {"messages": [{"role": "user", "content": "Name three colours."}], **more}
        status, answer = server.json("POST", path, body)
        self.assertEqual(status, 200, answer)
        return answer["usage"]

    def check_histogram(self, samples, name, bounds):
        buckets = [(has["le"], value) for each, has, value in samples if each == name + "_bucket"]
        self.assertEqual([float(le) for le, _ in buckets], [*map(float, bounds), math.inf], name)
        counts = [count for _, count in buckets]
        self.assertEqual(counts, sorted(counts), name)
        self.assertEqual(counts[-1], self.value(samples, name + "_count"), name)
        return counts[-1], self.value(samples, name + "_sum")

    def test_dashboards(self):
        server = self.serve("--metrics-prefix", "vllm")
        types, samples = self.scrape(server)
        for reason in ("stop", "length", "abort", "error"):  # before any request
            self.assertEqual(
                self.value(samples, "vllm:request_success_total", finished_reason=reason), 0)
        first = self.ask(server, n=2, max_tokens=8, temperature=1, ignore_eos=True)
        second = self.ask(server, max_tokens=5, temperature=0, ignore_eos=True)
        # An answer is counted after it is written, and the engine counts a step's tokens after it
        # has passed them on; the client may see both earlier.
        def both_counted():
            types, samples = self.scrape(server)
            found = (self.value(samples, "vllm:request_params_n_count") == 2 and
                     self.value(samples, "vllm:generation_tokens_total") >= 21)
            return (types, samples) if found else None
        types, samples = until(both_counted, "the count of the second answer")
        kinds = {**dict.fromkeys(GAUGES, "gauge"), **dict.fromkeys(COUNTERS, "counter"),
                 **dict.fromkeys(HISTOGRAMS, "histogram")}
        for name, kind in kinds.items():
            self.assertEqual(types.get("vllm:" + name), kind, name)
        for name, labels, _ in samples:
            self.assertTrue(name.startswith("vllm:"), name)
            self.assertEqual((labels["engine"], labels["model_name"]),
                             ("0", server.status()["model"]), name)
        seen = {name: self.check_histogram(samples, "vllm:" + name, bounds)
                for name, bounds in HISTOGRAMS.items()}
        self.assertEqual(seen["request_params_n"], (2, 3))
        self.assertEqual(seen["request_params_max_tokens"], (3, 21))
        self.assertEqual(seen["request_generation_tokens"], (3, 21))
        self.assertEqual(seen["request_max_num_generation_tokens"], (2, 13))
        self.assertEqual(seen["request_prompt_tokens"],
                         (3, 2 * first["prompt_tokens"] + second["prompt_tokens"]))
        self.assertEqual(seen["inter_token_latency_seconds"][0], 18)
        for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds",
                     "request_time_per_output_token_seconds", "request_decode_time_seconds"):
            self.assertEqual(seen[name][0], 3, name)
            self.assertGreater(seen[name][1], 0, name)
        whole = seen["e2e_request_latency_seconds"][1]
        parts = [seen[f"request_{part}_time_seconds"][1] for part in
                 ("queue", "prefill", "decode", "inference")]
        self.assertAlmostEqual(sum(parts[:3]), whole, places=6)
        self.assertAlmostEqual(parts[0] + parts[3], whole, places=6)
        self.assertEqual(self.value(samples, "vllm:generation_tokens_total"), 21)
        self.assertEqual(
            self.value(samples, "vllm:request_success_total", finished_reason="length"), 3)
        status = server.status()
        self.assertEqual(seen["iteration_tokens_total"],
                         (status["steps"]["count"], status["steps"]["rows"]))
        self.assertEqual(self.value(samples, "vllm:cache_config_info",
                                    enable_prefix_caching="True", engine="0"), 1)

    def test_a_client_that_leaves_is_an_abort(self):
        server = self.serve("--metrics-prefix", "vllm")
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=serving.PATIENCE)
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": "a", "max_tokens": 500, "stream": True, "ignore_eos": True}),
            {"Content-Type": "application/json"})
        connection.getresponse().readline()
        connection.close()
        server.wait_for(lambda status: status["requests"]["cancelled"] == 1, 20)
        _, samples = self.scrape(server)
        self.assertEqual(
            self.value(samples, "vllm:request_success_total", finished_reason="abort"), 1)
        self.assertEqual(
            self.value(samples, "vllm:request_success_total", finished_reason="error"), 0)

    def test_other_prefixes(self):
        for prefix, begin in (("weft", "weft:"), ("vllm_", "vllm_")):
            server = serving.Server(512, "--metrics-prefix", prefix)
            try:
                types, samples = self.scrape(server)
            finally:
                server.close()
            self.assertEqual(types[begin + "num_requests_running"], "gauge")
            self.assertTrue(all(name.startswith(begin) for name, _, _ in samples))


if __name__ == "__main__":
    serving.main()
