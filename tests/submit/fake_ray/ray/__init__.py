"""A fake Ray with the parts that the driver of `weft submit --to ray` uses: an actor is an object
whose calls are threads. A file lost-node-N in the working folder simulates the loss of the N-th
actor's node: its calls fail once.
"""
import concurrent.futures
import os
import signal
import sys

from . import exceptions

_pool = concurrent.futures.ThreadPoolExecutor(64)


class _Call:
    def __init__(self, actor, method):
        self.actor, self.method = actor, method

    def remote(self, *words):
        return _pool.submit(self.call, *words)

    def call(self, *words):
        value = getattr(self.actor.object, self.method)(*words)
        mark = f"lost-node-{self.actor.rank}"
        if os.path.exists(mark):
            os.unlink(mark)
            raise exceptions.RayError("the node of the actor died")
        return value


class _Actor:
    def __init__(self, kind, rank):
        self.object, self.rank, self.killed = kind(rank), rank, False

    def __getattr__(self, method):
        assert not self.killed, "a call of an actor that was killed"
        return _Call(self, method)


class _Kind:
    def __init__(self, kind):
        self.kind = kind

    def options(self, **_):
        return self

    def remote(self, rank):
        return _Actor(self.kind, rank)


def remote(**_):
    return _Kind


def init(**_):
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))  # as Ray's worker.py


def cluster_resources():
    return {"node:__internal_head__": 1.0}


def get(calls):
    if isinstance(calls, list):
        return [each.result() for each in calls]
    return calls.result()


def wait(calls, num_returns=1, timeout=None):
    when = (concurrent.futures.FIRST_COMPLETED if num_returns == 1 else
            concurrent.futures.ALL_COMPLETED)
    done = concurrent.futures.wait(calls, timeout, when).done
    return [each for each in calls if each in done], [each for each in calls if each not in done]


def kill(actor):
    actor.killed = True
