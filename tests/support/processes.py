"""Processes that a program under test has started, and signals to them."""
import os


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
