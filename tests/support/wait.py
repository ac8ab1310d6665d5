"""Waits of Python tests for an event that nobody signals; the same as wait.h.

The only place of the tests that looks again and again (tests/tidy/tidy.py). A line of a program is
read from its pipe, its end is waited for with Popen.wait.
"""
import time

import limits

PATIENCE_S = limits.limit(30)


def until(condition, what="the event", within=PATIENCE_S, process=None, pause_s=0.02):
    """Returns the first true value of condition().

    within   seconds, which only end a hang: limits.limit(seconds of an idle machine)
    process  a Popen whose end ends the wait, too
    what     the event, or a function that returns it, with what was seen instead

    Raises an AssertionError if the time or the process ends first; looks once more after it."""
    end = time.monotonic() + within
    while True:
        late = time.monotonic() > end
        ended = process is not None and process.poll() is not None
        found = condition()
        if found:
            return found
        if late or ended:
            name = what() if callable(what) else what
            why = f"the process ended with status {process.returncode}" if ended \
                else f"not within {within:g} s"
            raise AssertionError(f"{name}: {why}")
        time.sleep(pause_s)


def outlast(seconds):
    """Returns after the time-out, period or window of a running program, in which nothing happens
    that could be waited for. seconds: computed from what the program was told."""
    time.sleep(seconds)


class Pace:
    """A client, server or machine that has a speed of its own: next() returns after each period."""

    def __init__(self, period_s):
        self.period_s = period_s

    def next(self):
        time.sleep(self.period_s)


def watch(process, look, within=PATIENCE_S, pause_s=0.01):
    """Calls look() again and again until a Popen has ended."""
    def ended():
        look()
        return process.poll() is not None
    until(ended, "the end of the process", within, pause_s=pause_s)
