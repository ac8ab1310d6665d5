"""Processes that a program under test has started, and signals to them."""
import os
import re


def children(pid):
    """Unreaped children of `pid`; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def send(pid, signal):
    """Sends a signal; false: the process has ended since it was listed."""
    try:
        os.kill(pid, signal)
    except ProcessLookupError:
        return False
    return True


def is_pending(pid, number):
    """Whether a signal has been sent to a process that has not taken it yet."""
    with open(f"/proc/{pid}/status") as file:
        pending = re.search(r"^ShdPnd:\s*(\w+)$", file.read(), re.M)[1]
    return int(pending, 16) >> (number - 1) & 1 == 1
