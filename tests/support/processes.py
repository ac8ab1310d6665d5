"""Processes of a program under test: those that it has started, and signals to them."""
import os


def children(pid):
    """What `pid` has started and not yet waited for; none where it has ended itself."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def send(pid, signal):
    """Whether there was a process to take it: one that was listed may have ended since."""
    try:
        os.kill(pid, signal)
    except ProcessLookupError:
        return False
    return True
