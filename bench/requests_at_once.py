"""Requests to an endpoint of completions (Weft, llama-server) from some clients at a time."""
import dataclasses
import http.client
import itertools
import json
import random
import statistics
import threading
import time
import urllib.parse

VOCABULARY = 30_000  # token ids of prompts lie below


@dataclasses.dataclass
class Load:
    """Each of `clients` clients sends its next request when its last one is answered."""
    clients: int
    requests: int
    input_len: int = 256  # tokens
    output_len: int = 128
    shared_prefix: int = 0  # the first tokens, the same in all prompts
    warmup: int = 1  # requests before those that count
    seed: int = 1


def prompts(load):
    draw = random.Random(load.seed)
    ids = lambda n: [draw.randrange(3, VOCABULARY) for _ in range(n)]
    shared = ids(load.shared_prefix)
    return [shared + ids(load.input_len - load.shared_prefix)
            for _ in range(load.warmup + load.requests)]


def ask(url, model, prompt, tokens):
    """Sends one request: the times of its pieces after its start, in seconds, and their tokens."""
    place = urllib.parse.urlsplit(url)
    link = http.client.HTTPConnection(place.hostname, place.port, timeout=600)
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0,
            "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
    start, times, counted, ended = time.monotonic(), [], 0, False
    link.request("POST", "/v1/completions", json.dumps(body),
                 {"Content-Type": "application/json"})
    answer = link.getresponse()
    if answer.status != 200:
        raise OSError(f"HTTP {answer.status}: {answer.read().decode()[:300]}")
    for line in answer:
        if not line.startswith(b"data:"):
            continue
        if line[5:].strip() == b"[DONE]":
            ended = True
            break
        event = json.loads(line[5:])
        if "error" in event:
            raise OSError(str(event["error"]))
        if event.get("choices"):
            times.append(time.monotonic() - start)
        counted = (event.get("usage") or {}).get("completion_tokens", counted)
    link.close()
    if not ended:
        raise OSError("the stream ended early")
    return times, counted


def run(url, model, load, stop=None):
    """Sends the load. Gives tokens per second, and lists of milliseconds: to the first token
    (TTFT), and between pieces (ITL). stop: an event that ends it early. Raises the first error."""
    waiting = prompts(load)
    for prompt in waiting[:load.warmup]:
        ask(url, model, prompt, load.output_len)
    order, answers, errors = itertools.count(load.warmup), [], []

    def client():
        for at in iter(lambda: next(order), None):
            if at >= len(waiting) or errors or (stop and stop.is_set()):
                return
            try:
                answers.append(ask(url, model, waiting[at], load.output_len))
            except (OSError, ValueError, http.client.HTTPException) as error:
                errors.append(error)

    clients = [threading.Thread(target=client) for _ in range(load.clients)]
    start = time.monotonic()
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    seconds = time.monotonic() - start
    if errors:
        raise errors[0]
    return {"tok_s": sum(tokens for _, tokens in answers) / seconds,
            "ttft_ms": [1e3 * times[0] for times, _ in answers],
            "itl_ms": [1e3 * (later - earlier) for times, _ in answers
                       for earlier, later in itertools.pairwise(times)]}


def quantile(values, of_100):
    """A percentile, between 1 and 99."""
    return statistics.quantiles(values, n=100, method="inclusive")[of_100 - 1] if len(
        values) > 1 else sum(values)
