"""Processes that a program under test has started, and signals to them."""
import json
import os
import re
import signal
import subprocess


def children(pid):
    """Unreaped children of `pid`; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def listening_port(pid):
    """The TCP port of 127.0.0.1 on which a process listens; None: on none."""
    try:
        links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]
    except OSError:
        return None  # it has ended, or closed a file since it was listed
    with open("/proc/net/tcp") as table:
        for row in map(str.split, table):
            if row[3] == "0A" and f"socket:[{row[9]}]" in links:
                return int(row[1].partition(":")[2], 16)
    return None


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


def steps_with_a_kill(words, patience, step=3, victim=lambda pids: pids[0]):
    """Runs a training job that prints JSON, and kills one of its processes after `step`. Returns
    the last line of each step, the job's restarts, its exit status and its messages."""
    lines, restarts = {}, 0
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        for text in job.stdout:
            line = json.loads(text)
            if "loss" not in line:
                restarts = line["restarts"]
                continue
            if line["step"] == step and step not in lines:
                send(victim(children(job.pid)), signal.SIGKILL)
            lines[line["step"]] = line
        status, said = job.wait(patience), job.stderr.read()
    return [lines[at] for at in sorted(lines)], restarts, status, said
