"""`weft plan --measure --local 2`: in every job that it runs, one after another, the two ranks
compute on different cores. If a job left its process on one core, the ranks of the next job would
share that core.

    measure_cores_test.py WEFT
"""

import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from processes import children  # noqa: E402
from limits import limit  # noqa: E402
from wait import watch  # noqa: E402

LIMIT_S = 240


def kept_on(pid):
    """The cores to which a process's first thread is pinned, as "0-3"; None: not pinned."""
    try:
        lists = []
        for process in (pid, "self"):
            with open(f"/proc/{process}/status") as status:
                lists.append(next(line.split()[1] for line in status
                                  if line.startswith("Cpus_allowed_list")))
    except (OSError, StopIteration):
        return None
    return lists[0] if lists[0] != lists[1] else None


class MeasureCores(unittest.TestCase):
    def test_ranks_of_all_jobs_have_cores_of_their_own(self):
        measure = subprocess.Popen(
            [WEFT, "plan", "--measure", "--local", "2", "--types", "q4_0", "--measure-with",
             "synthetic:smollm2-135m", "--measure-experts-with", "none", "--train-types", "none"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        seen, shared = {}, set()

        def look():
            mine = kept_on(measure.pid)
            for child in children(measure.pid):
                cores = kept_on(child)
                if cores is not None:
                    seen[child] = cores
                    if cores == mine:
                        shared.add(child)
        self.addCleanup(measure.kill)
        watch(measure, look, limit(LIMIT_S))
        self.assertEqual(measure.wait(), 0, measure.stderr.read())
        measure.stderr.close()
        self.assertGreater(len(seen), 3, "no rank was seen to be pinned")
        self.assertFalse(shared, f"of {len(seen)} second ranks these shared rank 0's cores")


if __name__ == "__main__":
    WEFT = sys.argv.pop(1)
    if len(os.sched_getaffinity(0)) < 2:
        print("skipped: one core")
        sys.exit(77)
    unittest.main()
