#!/usr/bin/env python3
"""State reported by a server of two ranks while it loads and while a rank is lost."""
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Any model works; a small one loads quickly.
os.environ["WEFT_MODEL"] = str(ROOT / "models/abacus/model.gguf")

import serving  # noqa: E402
from processes import children, listening_port, send  # noqa: E402
from wait import outlast, until  # noqa: E402

RANKS = ("--local", "2", "--tp", "2", "--timeout-ms", "4000")
WAIT_S, WINDOW_S = 40, 2


def wait(condition, what):
    return until(condition, what, WAIT_S, pause_s=0.005)


def stop_next(pid, but=()):
    """Stops (SIGSTOP) the next new child process and returns it."""
    child = wait(lambda: [c for c in children(pid) if c not in but], "a child")[0]
    os.kill(child, signal.SIGSTOP)
    return child


def sleeps(pid):
    """How many times the main thread of a process has waited."""
    status = pathlib.Path(f"/proc/{pid}/task/{pid}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.M)[1])


def cores_of(pid):
    """The cores to which a rank's computing thread is pinned, as "0-3"; None: not pinned."""
    lists = [next(line.split()[1] for line in pathlib.Path(path).read_text().splitlines()
                  if line.startswith("Cpus_allowed_list"))
             for path in (f"/proc/{pid}/status", "/proc/self/status")]
    return lists[0] if lists[0] != lists[1] else None


def probes(server):
    return {path: server.call("GET", path)[0] for path in ("/live", "/health", "/healthz")}


def metrics(server):
    return server.call("GET", "/metrics")[2].decode()


class Losses(unittest.TestCase):
    def test_a_lost_rank_is_shown_lost_until_it_is_back(self):
        server = serving.Server(256, *RANKS)
        try:
            up = server.wait_for(lambda s: len(s["ranks"]) == 2, WAIT_S)
            self.assertEqual([rank["state"] for rank in up["ranks"]], ["up", "up"])
            self.assertEqual([rank["why"] for rank in up["ranks"]], [None, None])
            begin_s = int(time.time())
            first = children(server.process.pid)[0]
            os.kill(first, signal.SIGKILL)
            second = stop_next(server.process.pid, but=(first,))
            lost = server.wait_for(lambda s: s["state"] == "recovering", WAIT_S)
            self.assertEqual(lost["state"], "recovering")
            self.assertEqual(lost["ranks"][0]["state"], "up")
            self.assertIn(lost["ranks"][1]["state"], ("lost", "rejoining"))
            self.assertIn("killed by signal 9", lost["ranks"][1]["why"])
            self.assertGreaterEqual(lost["ranks"][1]["since_s"], begin_s)
            self.assertIn("rank 1", lost["loss"]["text"])
            self.assertNotIn("job has ended", lost["loss"]["text"])
            self.assertEqual(probes(server), {"/live": 200, "/health": 503, "/healthz": 503})
            self.assertEqual(server.json("GET", "/health")[1]["error"]["code"], "recovering")
            self.assertEqual(server.call("GET", "/ready")[0], 503)
            os.kill(second, signal.SIGCONT)
            back = server.wait_for(lambda s: s["state"] == "serving" and
                                   [r["state"] for r in s["ranks"]] == ["up", "up"], WAIT_S)
            self.assertEqual([rank["state"] for rank in back["ranks"]], ["up", "up"])
            self.assertEqual([rank["why"] for rank in back["ranks"]], [None, None])
            self.assertEqual((back["loss"], back["departed"]), (None, []))
            self.assertEqual(probes(server), {"/live": 200, "/health": 200, "/healthz": 200})
            self.assertEqual(back["errors"], [], "probes are no errors")
            server.close()
        finally:
            server.process.kill()

    def test_a_rank_is_lost_then_rejoining_then_up(self):
        server = serving.Server(256, *RANKS, of="synthetic:smollm2-135m:q4_1:layers=12")
        try:
            os.kill(children(server.process.pid)[0], signal.SIGKILL)
            states = []

            def back():
                state = server.status()["ranks"][1]["state"]
                if states[-1:] != [state]:
                    states.append(state)
                return states[-2:] == ["rejoining", "up"]
            until(back, lambda: f"a rejoining rank that is up: {states}", WAIT_S, pause_s=0)
            self.assertEqual([state for state in states if state != "up"], ["lost", "rejoining"])
            self.assertEqual(states[-1], "up")
            server.close()
        finally:
            server.process.kill()

    def test_a_rank_returns_when_descriptors_are_there_again(self):
        """Without descriptors no process can be started; the server tries for seconds."""
        with tempfile.TemporaryFile("w+") as log:
            server = serving.Server(256, *RANKS, stderr=log)
            try:
                pid = server.process.pid

                def said():
                    log.seek(0)
                    return log.read()
                used = max(map(int, os.listdir(f"/proc/{pid}/fd"))) + 1
                before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
                os.kill(children(pid)[0], signal.SIGKILL)
                wait(lambda: "cannot make a socket pair" in said(), "a refusal")
                # It pauses between its tries; six tries without a pause would be over.
                before_pauses = sleeps(pid)
                wait(lambda: sleeps(pid) > before_pauses + 20, "pauses between tries")
                self.assertIsNone(server.process.poll(), said())
                self.assertIn("Trying again for", said())
                self.assertEqual(said().count("cannot make a socket pair"), 1)
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
                self.assertGreater(used, 3)
                server.wait_for(lambda s: s["state"] == "serving" and
                                [r["state"] for r in s["ranks"]] == ["up", "up"], WAIT_S)
                status, body = server.json("POST", "/v1/completions",
                                           {"prompt": "1 + 2 =", "max_tokens": 2})
                self.assertEqual(status, 200, body)
                server.close()
            finally:
                server.process.kill()

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one core")
    def test_a_rank_that_is_back_has_cores_of_its_own(self):
        server = serving.Server(256, *RANKS)
        try:
            pid = server.process.pid
            server.wait_for(lambda s: len(s["ranks"]) == 2, WAIT_S)
            first = children(pid)[0]
            begun = cores_of(pid), cores_of(first)
            self.assertNotIn(None, begun)
            self.assertNotEqual(*begun)
            os.kill(first, signal.SIGKILL)
            wait(lambda: first not in children(pid), "a loss")
            server.wait_for(lambda s: s["state"] == "serving" and
                            [r["state"] for r in s["ranks"]] == ["up", "up"], WAIT_S)
            second = children(pid)[0]
            self.assertNotEqual(first, second)
            self.assertEqual((cores_of(pid), cores_of(second)), begun)
            server.close()
        finally:
            server.process.kill()

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one core")
    @serving.nightly_only
    def test_only_what_computes_is_kept_on_its_cores(self):
        server = serving.Server(256, *RANKS)
        try:
            server.wait_for(lambda s: len(s["ranks"]) == 2, WAIT_S)
            pid = server.process.pid
            # A thread starts on its parent's cores and moves to its own when it runs.
            wait(lambda: [int(task) for task in os.listdir(f"/proc/{pid}/task")
                          if cores_of(task) is not None] == [pid], "the other threads' leave")
            server.close()
        finally:
            server.process.kill()

    def test_the_others_go_on_without_a_rank_that_stays_away(self):
        server = serving.Server(256, "--local", "2", "--tp", "2", "--timeout-ms",
                                serving.timeout_ms(1000), "--elastic", "--restart-timeout-ms",
                                "1000")
        try:
            server.wait_for(lambda s: 'rank="1"' in metrics(server), WAIT_S)
            self.assertIn("weft:ranks{", metrics(server))
            os.kill(children(server.process.pid)[0], signal.SIGKILL)
            # The replacement process does not become ready.

            def departed():
                for child in children(server.process.pid):
                    send(child, signal.SIGSTOP)
                return server.status()["departed"]
            until(departed, "a rank that is gone", WAIT_S, pause_s=0)
            left = server.wait_for(lambda s: s["state"] == "serving", WAIT_S)
            self.assertEqual([(rank["rank"], rank["state"]) for rank in left["ranks"]], [(0, "up")])
            self.assertEqual(left["layout"]["tp"], 1)
            self.assertEqual(left["transport"], "none")
            gone = left["departed"][0]
            self.assertEqual((gone["rank"], gone["state"]), (1, "lost"))
            self.assertGreaterEqual(gone["epoch"], 1)
            self.assertTrue(gone["why"])
            self.assertNotIn('rank="1"', metrics(server), "of a rank that has gone")
            self.assertRegex(metrics(server), r"weft:ranks\{[^}]*\} 1\b")
            server.close()
        finally:
            server.process.kill()

    @serving.nightly_only
    def test_losses_are_forgiven_after_the_window(self):
        server = serving.Server(256, *RANKS, "--max-restarts", "1", "--restart-window-ms",
                                str(1000 * WINDOW_S))
        try:
            for number in (1, 2):
                os.kill(children(server.process.pid)[0], signal.SIGKILL)
                status = server.wait_for(lambda s, number=number: len(s["recoveries"]) == number
                                         and s["state"] == "serving", WAIT_S)
                self.assertEqual(len(status["recoveries"]), number)
                answer = server.json("POST", "/v1/completions", {"prompt": "1", "max_tokens": 1})
                self.assertEqual(answer[0], 200, "a token between losses")
                outlast(WINDOW_S)
            os.kill(children(server.process.pid)[0], signal.SIGKILL)
            server.wait_for(lambda s: len(s["recoveries"]) == 3 and s["state"] == "serving", WAIT_S)
            os.kill(children(server.process.pid)[0], signal.SIGKILL)
            self.assertEqual(server.process.wait(WAIT_S), 3, "two within the window are too many")
        finally:
            server.process.kill()

    def test_probes_while_it_loads(self):
        process = subprocess.Popen(
            [serving.PROGRAM, "serve", serving.model(), "-t", "1", "--port", "0", "--json",
             *RANKS], stdout=subprocess.PIPE, text=True)
        try:
            child = stop_next(process.pid)
            port = wait(lambda: listening_port(process.pid), "a port")

            def ask(path):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                try:
                    connection.request("GET", path)
                    answer = connection.getresponse()
                    return answer.status, json.loads(answer.read())
                except OSError:
                    return None
                finally:
                    connection.close()
            self.assertEqual(wait(lambda: ask("/live"), "/live")[0], 200)
            status, body = ask("/health")
            self.assertEqual((status, body["error"]["code"]), (503, "loading"))
            self.assertEqual(ask("/ready")[0], 503)
            os.kill(child, signal.SIGCONT)
            self.assertTrue(process.stdout.readline())
            self.assertEqual(ask("/health"), (200, {"status": "ok"}))
            self.assertEqual(ask("/live")[0], 200)
            process.terminate()
            self.assertEqual(process.wait(WAIT_S), 0)
        finally:
            process.kill()
            process.stdout.close()


if __name__ == "__main__":
    serving.main()
