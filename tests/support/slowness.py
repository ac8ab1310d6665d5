"""How many times slower than an idle one this machine is right now, for Python tests; the same as
slowness.h: for deadlines that are not what a test is about."""
import os
import threading
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


def stat_line(path):
    """State, parent and flags of a line of proc_pid_stat(5); None where there is none."""
    try:
        with open(path) as file:
            words = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return (words[0], int(words[1]), int(words[6])) if len(words) > 6 else None


def numbers_in(folder):
    try:
        return [name for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []


def runs_nothing(line):
    """Whether a thread with that stat_line waits where no signal reaches it, or is being ended."""
    exiting = 0x4  # PF_EXITING
    if line is None or line[0] in "ZX":
        return False  # it is gone
    return line[0] == "D" or line[2] & exiting != 0


def is_held_up(pid):
    """Whether a thread of it runs nothing."""
    tasks = f"/proc/{pid}/task"
    return any(runs_nothing(stat_line(f"{tasks}/{task}/stat")) for task in numbers_in(tasks))


def descendants(root):
    """Children, their children and so on."""
    children = {}
    for pid in numbers_in("/proc"):
        line = stat_line(f"/proc/{pid}/stat")
        if line is not None:
            children.setdefault(line[1], []).append(int(pid))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


class HeldUp:
    """Seconds in which a descendant of this process was held up, looked at every 20 ms."""

    SEARCH_S = 0.5  # for those that have begun since

    def __init__(self):
        self.seconds = 0
        self.over = threading.Event()
        self.pids = set(descendants(os.getpid()))
        threading.Thread(target=self.look, daemon=True).start()

    def look(self):
        searched = looked = time.monotonic()
        was_held = False
        while not self.over.wait(0.02):
            now = time.monotonic()
            if now - searched >= self.SEARCH_S:
                self.pids.update(descendants(os.getpid()))
                searched = now
            held = any(is_held_up(pid) for pid in self.pids)
            if held and was_held:
                self.seconds += now - looked
            was_held, looked = held, now


class Stopwatch:
    """How long something took, without the time in which it could not have been faster, as
    stopwatch.h has it: taken by a hypervisor, or held up in the kernel."""

    def __init__(self):
        self.stat = self.read()
        self.held = HeldUp()
        self.begin = time.monotonic()

    def __del__(self):
        self.held.over.set()

    @staticmethod
    def read():
        with open("/proc/stat") as file:
            return file.read()

    def seconds(self):
        lost = max(stolen(self.stat, self.read()), self.held.seconds)
        return time.monotonic() - self.begin - lost


def slower(ms):
    """So many milliseconds of an idle machine, as the value of an option."""
    return str(round(ms * slowness()))
