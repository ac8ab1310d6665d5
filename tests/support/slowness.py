"""How many times slower than an idle one this machine is right now, for Python tests; the same as
slowness.h: for deadlines that are not what a test is about."""
import os
import time

MOST_SLOWNESS = 8


def measure():
    """Wall time over processor time of a short loop, or how late short sleeps end, whichever is
    more. (How fast the processor is doesn't show, as it does in slowness.h.)"""
    begin, begin_cpu = time.monotonic(), time.thread_time()
    while time.thread_time() - begin_cpu < 0.04:
        pass
    slowest = (time.monotonic() - begin) / (time.thread_time() - begin_cpu)
    for _ in range(5):
        begin = time.monotonic()
        time.sleep(0.001)
        slowest = max(slowest, 1 + (time.monotonic() - begin - 0.001) / 0.010)
    return slowest


def slowness():
    """1 to MOST_SLOWNESS; WEFT_TEST_SLOWNESS=N in the environment: at least N."""
    least = float(os.environ.get("WEFT_TEST_SLOWNESS") or 1)
    return max(1.0, least, min(measure(), MOST_SLOWNESS))


def stolen_ticks(stat):
    """Of each processor: the eighth figure of a line cpuN of /proc/stat, hundredths of a second."""
    lines = [line.split() for line in stat.splitlines() if line.startswith("cpu")]
    return {words[0]: int(words[8]) for words in lines if words[0] != "cpu" and len(words) > 8}


def stolen(before, now):
    """Seconds that a hypervisor took of the processor that lost least, so that this much at least
    nothing ran; 0 where processors have come or gone."""
    before, now = stolen_ticks(before), stolen_ticks(now)
    if not before or before.keys() != now.keys():
        return 0
    return max(0, min(now[cpu] - before[cpu] for cpu in before)) / 100


class Stopwatch:
    """How long something took, without what a hypervisor took of it (slowness.h)."""

    def __init__(self):
        self.stat = self.read()
        self.begin = time.monotonic()

    @staticmethod
    def read():
        with open("/proc/stat") as file:
            return file.read()

    def seconds(self):
        return time.monotonic() - self.begin - stolen(self.stat, self.read())


def slower(ms):
    """So many milliseconds of an idle machine, as the value of an option."""
    return str(round(ms * slowness()))
