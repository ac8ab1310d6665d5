#!/usr/bin/env python3
"""weft submit and weft job: the native files hold any command exactly, and run it; the engines'
clients, which are fakes here, get the right arguments.

    submit_test.py PROGRAM ROOT PACKAGES [UNITTEST ARGUMENT...]
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from nightly import in_turn, some  # noqa: E402
from processes import children, is_pending  # noqa: E402
from wait import until  # noqa: E402
from cases import (BYTES, HOSTILE_COMMAND, PATIENCE, PROGRAM, SERVE, TRAIN, PodsCase, SubmitTest,
                   command_of, main)

WAIT = pathlib.Path(__file__).resolve().parents[1] / "support/wait.sh"


class Slurm(SubmitTest):
    def run_script(self, text, status=0, state="RUNNING"):
        """Runs the batch script like Slurm, with fakes for its programs."""
        self.notes_words("srun", f'[ -f "$WEFT_KEY_FILE" ] && stat -c %a "$WEFT_KEY_FILE" '
                                 f'>{self.folder}/mode; exit {status}')
        self.notes_words("scontrol")
        self.client("squeue", f"echo {state}")
        script = self.folder / "script"
        script.write_text(text)
        env = {**self.env, "SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "2"}
        return subprocess.run(["bash", script], env=env, cwd=self.folder, timeout=PATIENCE,
                              check=False, capture_output=True).returncode

    def test_words(self):
        self.assertEqual(self.run_script(self.file("slurm", *HOSTILE_COMMAND)), 0)
        words = self.words("srun")
        self.assertEqual(words[words.index("weft"):], ["weft", *HOSTILE_COMMAND])
        # All cores of each node, not as many as the first one has.
        self.assertFalse(any("cpus-per-task" in word for word in words[:words.index("weft")]))
        self.assertEqual((self.folder / "mode").read_text(), "600\n")
        self.assertEqual(list(self.folder.glob(".weft*")), [])  # the key was removed
        self.assertFalse((self.folder / "x").exists())

    def test_a_job_without_a_note_is_not_submitted(self):
        """No 'weft job' would find it."""
        self.notes_words("sbatch", "echo 4711")
        (self.folder / "state").write_text("not a folder")
        self.weft("submit", "--to", "slurm", "--name", "tune", "--", "run", "m", status=1)
        self.assertFalse((self.folder / "sbatch.0").exists())

    def test_a_job_without_a_number(self):
        """'squeue --jobs=' would list all jobs."""
        self.client("sbatch", "echo queued")
        said = self.weft("submit", "--to", "slurm", "--name", "tune", "--", "run", "m", status=1)
        self.assertIn("sbatch printed 'queued", said)
        self.assertNotIn("tune", self.weft("job", "list"))

    def test_jobs_of_one_second_have_names_of_their_own(self):
        self.client("sbatch", "echo 4711")
        names = {self.weft("submit", "--to", "slurm", "--", "run", "m").split()[0]
                 for _ in range(8)}
        self.assertEqual(len(names), 8, names)

    def test_a_parent_that_ignores_its_children(self):
        """The system then keeps no status of the client, unless the program asks for it."""
        self.client("sbatch", "exit 1")
        done = subprocess.run([PROGRAM, "submit", "--to", "slurm", "--", "run", "m"], env=self.env,
                              cwd=self.folder, capture_output=True, timeout=PATIENCE, check=False,
                              preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, 1, done)

    def test_cores_of_the_step(self):
        self.env["SLURM_CPUS_PER_TASK"] = "8"
        self.assertEqual(self.run_script(self.file("slurm", "--cpus", "8", "--", "run", "m")), 0)
        self.assertIn("--cpus-per-task=8", self.words("srun"))

    def test_words_that_are_no_utf8(self):
        done = subprocess.run([PROGRAM, "submit", "--to", "slurm", "--dry-run", "--", "run", BYTES],
                              capture_output=True, env=self.env, timeout=PATIENCE, check=True)
        (self.folder / "script").write_bytes(done.stdout)
        self.assertEqual(self.run_script(done.stdout.decode("latin-1")), 0)

    def test_options(self):
        text = self.file("slurm", "--cpus", "8", "--memory", "32G", "--time", "2:00:00",
                         "--partition", "low", "--slurm=--constraint=ib|eth", "--", "bench", "m",
                         nodes=4)
        options = re.findall("^#SBATCH (.*)$", text, re.MULTILINE)
        for option in ("--nodes=4", "--ntasks-per-node=1", "--cpus-per-task=8", "--mem=32G",
                       "--time=2:00:00", "--partition=low", "--constraint=ib|eth",
                       "--job-name=tune", "--output=tune-%j.log"):
            self.assertIn(option, options)
        self.assertNotIn("--exclusive", options)
        self.assertIn("--exclusive", self.file("slurm", "bench", "m"))
        self.assertIn("--requeue", options)
        once = self.file("slurm", "--restarts", "0", "--", "bench", "m")
        self.assertNotIn("--requeue", once)

    def test_training_goes_back_to_the_queue(self):
        text = self.file("slurm", *TRAIN)
        self.assertIn("#SBATCH --requeue", text)
        self.assertRegex(text, "#SBATCH --signal=USR1@")
        self.assertEqual(self.run_script(text, status=75), 0)
        self.assertEqual(self.words("scontrol"), ["requeue", "7"])

    def test_a_lost_rank_goes_back_to_the_queue(self):
        """3: a rank was lost; 128 + signal: srun's own status when a signal ended a task."""
        for turn, command in enumerate((TRAIN, ("serve", "m"), ("bench", "m"))):
            for index, status in enumerate((3, 134, 135, 137, 139)):
                if not in_turn(turn + index, 3):
                    continue
                with self.subTest(command=command, status=status):
                    self.assertEqual(self.run_script(self.file("slurm", *command), status), 0)
                    self.assertEqual(self.words("scontrol"), ["requeue", "7"])
                    (self.folder / "scontrol.0").unlink()

    def test_rank_0_says_why(self):
        """srun's status is the highest: a rank that loses rank 0 ends with 3."""
        self.notes_words("scontrol")
        self.client("squeue", "echo RUNNING")
        self.client("srun", """while [ "$1" != bash ]; do shift; done
most=0
for rank in 0 1 2; do
    SLURM_PROCID=$rank "$@"; status=$?
    [ $status -le $most ] || most=$status
done
exit $most""")
        script = self.folder / "script"
        for statuses, ended, again in (
                ((1, 3, 3), 3, False), ((2, 3, 3), 3, False), ((3, 137, 3), 0, True),
                ((137, 3, 3), 0, True), ((3, 3, 139), 0, True), ((0, 0, 137), 137, False),
                ((0, 0, 0), 0, False), ((75, 75, 75), 0, True)):
            self.client("weft", "case $SLURM_PROCID in " + " ".join(
                f"{rank}) exit {status} ;;" for rank, status in enumerate(statuses)) + " esac")
            script.write_text(self.file("slurm", *TRAIN))
            done = subprocess.run(["bash", script], cwd=self.folder, timeout=PATIENCE, check=False,
                                  env={**self.env, "SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "2"})
            self.assertEqual(done.returncode, ended, statuses)
            self.assertEqual((self.folder / "scontrol.0").exists(), again, statuses)
            (self.folder / "scontrol.0").unlink(missing_ok=True)
            self.assertEqual(list(self.folder.glob(".weft*")), [])

    def test_restarts_are_counted(self):
        text = self.file("slurm", "--restarts", "2", "--", *TRAIN)
        for count, status in (("0", 0), ("1", 0), ("2", 137), ("9", 137)):
            self.env["SLURM_RESTART_COUNT"] = count
            self.assertEqual(self.run_script(text, 137), status)
        self.assertEqual(self.run_script(self.file("slurm", "--restarts", "0", "--", *TRAIN),
                                         3), 3)

    def test_ranks_know_of_the_restart(self):
        self.notes_words("scontrol")
        self.client("srun", 'while [ "$1" != bash ]; do shift; done\nSLURM_PROCID=0 "$@"')
        self.client("weft", 'echo "$WEFT_RESTART" >"$HOME/restart"')
        script = self.folder / "script"
        script.write_text(self.file("slurm", *TRAIN))
        for count, told in ((None, "0"), ("0", "0"), ("2", "2")):
            env = {**self.env, "SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "2"}
            env.pop("SLURM_RESTART_COUNT", None)
            if count is not None:
                env["SLURM_RESTART_COUNT"] = count
            subprocess.run(["bash", script], cwd=self.folder, timeout=PATIENCE, check=True, env=env)
            said = next(self.folder.rglob("restart")).read_text()
            self.assertEqual(said, told + "\n")

    def test_what_does_not_go_back(self):
        for status, state in ((75, "CANCELLED"), (75, ""), (3, "COMPLETING"), (137, "CANCELLED"),
                              (1, "RUNNING"), (2, "RUNNING"), (130, "RUNNING"), (143, "RUNNING"),
                              (129, "RUNNING"), (0, "RUNNING")):
            for command in some((TRAIN, ("bench", "m")), 2):
                self.assertEqual(self.run_script(self.file("slurm", *command), status, state),
                                 status)
                self.assertFalse((self.folder / "scontrol.0").exists())

    def test_folder(self):
        there = self.folder / "it's a $folder"
        there.mkdir()
        self.client("srun", "pwd")
        script = self.file("slurm", "--folder", str(there), "--", "bench", "m")
        done = subprocess.run(["bash", "-c", script], env={**self.env, "SLURM_JOB_ID": "7",
                              "SLURM_CPUS_ON_NODE": "1"}, capture_output=True, text=True,
                              timeout=PATIENCE, check=True)
        self.assertEqual(done.stdout.strip(), str(there))

    def test_a_job(self):
        self.notes_words("sbatch", f'cp "${{@: -1}}" {self.folder}/submitted; echo "4711;cluster"')
        self.assertIn(
    "tune (4711)",
    self.weft(
        "submit",
        "--to",
        "slurm",
        "-N",
        "2",
        "--name",
        "tune",
        "--",
        "train",
        "my model.gguf", "--data", "d", "--output-dir", "o"))
        self.assertIn("--nodes=2", (self.folder / "submitted").read_text())
        (job,) = json.loads(self.weft("job", "list", "--json"))
        self.assertEqual((job["name"], job["id"], job["to"]), ("tune", "4711", "slurm"))
        self.assertEqual(job["command"],
                         ["train", "my model.gguf", "--data", "d", "--output-dir", "o"])
        self.client("squeue", '[[ " $* " == *" --jobs=4711 "* ]] && echo PENDING')
        self.assertEqual(self.weft("job", "status", "tune"), "PENDING\n")
        self.assertEqual(self.states(), ["pending"])
        self.client("squeue", "exit 1")
        self.client("scontrol", "exit 1")
        self.assertEqual(self.states(), ["unknown"])
        (self.folder / "tune-4711.log").write_text("what it printed\n")
        self.assertEqual(self.weft("job", "logs", "tune"), "what it printed\n")
        self.notes_words("scancel")
        self.weft("job", "cancel", "tune")
        self.assertEqual(self.words("scancel"), ["4711"])
        # A job that Slurm no longer knows.
        self.client("squeue", "exit 1")
        self.client("scontrol", 'echo "Invalid job id specified" >&2; exit 1')
        self.assertIn("Invalid job id", self.weft("job", "status", "tune", status=1))
        # sbatch puts the log into the folder of the submission.
        self.weft("submit", "--to", "slurm", "--name", "far", "--folder", "/runs", "--", "run", "m")
        (self.folder / "far-4711.log").write_text("far\n")
        self.assertEqual(self.weft("job", "logs", "far"), "far\n")
        self.weft("job", "cancel", "far", "--forget")
        self.assertIn(
    "submitted before",
    self.weft(
        "submit",
        "--to",
        "slurm",
        "--name",
        "tune",
        "--",
        *TRAIN,
         status=2))
        self.weft("job", "cancel", "tune", "--forget")
        self.assertEqual(json.loads(self.weft("job", "list", "--json")), [])

    def test_a_scheduler_that_hangs(self):
        """All jobs of a list share one deadline."""
        self.client("sbatch", "echo 4711")
        self.client("squeue", "exec sleep infinity")
        for number in range(17):
            self.weft("submit", "--to", "slurm", "--name", f"tune-{number}", "--", *TRAIN)
        begin = time.monotonic()
        self.assertEqual(self.states(), ["unknown"] * 17)
        self.assertLess(time.monotonic() - begin, 18)

    def test_what_the_client_says(self):
        self.client("sbatch", "echo 'sbatch: error: no such partition' >&2; exit 1")
        error = self.weft("submit", "--to", "slurm", "--name", "tune", "--", *TRAIN, status=1)
        self.assertIn("no such partition", error)
        self.assertEqual(json.loads(self.weft("job", "list", "--json")), [])
        self.client("sbatch", "")
        (self.bin / "sbatch").unlink()
        self.env["PATH"] = str(self.bin)
        self.assertIn("'sbatch' is not installed",
                      self.weft("submit", "--to", "slurm", "--", *TRAIN, status=1))


class Ssh(SubmitTest):
    """Hosts are folders, each a home; a fake ssh runs commands there like a login shell. The host
    named `down` is unreachable."""

    def setUp(self):
        super().setUp()
        self.ssh("$host")
        self.client(
    "weft", 'printf "%s\\0" "$@" >"$HOME/words"; cat "$WEFT_KEY_FILE" >"$HOME/key"\n'
    'echo "rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"\n'
    '[ "$2" != sleep ] || exec sleep infinity; exit 5')

    def ssh(self, home):
        """home: the home folder of $host, in the folder of hosts."""
        self.client(
    "ssh", 'while [ "$1" = -o ]; do shift 2; done\nhost=$1; shift\n'
    '[ $host != down ] || { echo "ssh: connect to host down: refused" >&2; exit 255; }\n'
    f'mkdir -p {self.folder}/hosts/{home}; export HOME={self.folder}/hosts/{home}\n'
    'unset XDG_STATE_HOME; cd; exec sh -c "$*"')

    def submit(self, *words, hosts="a,me@b", status=0):
        return self.weft("submit", "--to", "ssh", "-N", "2", "--name", "tune", "--hosts", hosts,
                         "--port", "1234", "--", *words, status=status)

    def job(self, home, rank):
        return self.folder / "hosts" / home / ".local/state/weft/jobs/tune" / str(rank)

    def running(self):
        """The processes of ranks."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if f"WEFT_JOB={self.folder}/".encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                pass
        return found

    def status(self, expected):
        until(lambda: self.weft("job", "status", "tune") == expected,
              lambda: self.weft("job", "status", "tune"), PATIENCE)

    def test_a_job(self):
        self.submit(*HOSTILE_COMMAND)
        self.status("a: ended with status 5\nme@b: ended with status 5\n")
        self.assertEqual(self.states(), ["ended with status 5"])
        keys = set()
        for rank, host in enumerate(("a", "me@b")):
            home = self.folder / "hosts" / host
            self.assertEqual((home / "words").read_bytes().decode().split("\0")[:-1],
                             [*HOSTILE_COMMAND])
            log = (self.job(host, rank) / "log").read_text()
            self.assertEqual(log, f"rank {rank} of 2 at a:1234\n")
            self.assertFalse((self.job(host, rank) / "key").exists())
            keys.add((home / "key").read_text())
        self.assertEqual(len(keys), 1)
        self.assertGreater(len(keys.pop()), 40)
        self.assertEqual(self.weft("job", "logs", "tune"), "rank 0 of 2 at a:1234\n")

    def test_cancel(self):
        self.submit("run", "sleep")
        self.status("a: running\nme@b: running\n")
        self.assertEqual(self.weft("job", "cancel", "tune"), "a: stopped\nme@b: stopped\n")
        self.status("a: ended with status 143\nme@b: ended with status 143\n")

    def test_cancel_a_stopped_rank(self):
        self.submit("run", "sleep")
        self.status("a: running\nme@b: running\n")
        for rank, host in enumerate(("a", "me@b")):
            shell = int((self.job(host, rank) / "pid").read_text())
            until(lambda shell=shell: children(shell), "a rank", PATIENCE)
            os.kill(children(shell)[0], signal.SIGSTOP)
        self.assertEqual(self.weft("job", "cancel", "tune"), "a: stopped\nme@b: stopped\n")
        self.status("a: ended with status 143\nme@b: ended with status 143\n")

    def test_a_host_that_does_not_answer(self):
        self.submit("run", "sleep", hosts="a,b")
        program = self.bin / "ssh"
        program.write_text(program.read_text().replace("!= down", "!= a"))
        self.assertIn("refused", self.weft("job", "status", "tune", status=1))
        self.assertEqual(self.states(), ["running, unknown"])
        self.ssh("$host")
        self.weft("job", "cancel", "tune")

    def test_a_host_that_has_the_name(self):
        self.submit("run", "x")
        self.weft("job", "cancel", "tune", "--forget")
        self.assertIn("is here already", self.submit("run", "x", hosts="a,b", status=1))
        # Also for another rank; files of the earlier job there are kept.
        self.assertIn("rank 0 was ended on b", self.submit("run", "sleep", hosts="b,a", status=1))
        self.assertEqual(self.running(), [])
        self.assertFalse(self.job("b", 0).parent.exists())
        self.assertTrue((self.job("a", 0) / "log").exists())

    def test_one_home(self):
        self.ssh("all")
        self.submit("run", "sleep")
        self.status("a: running\nme@b: running\n")
        self.assertEqual(self.weft("job", "cancel", "tune"), "a: stopped\nme@b: stopped\n")
        self.status("a: ended with status 143\nme@b: ended with status 143\n")
        for rank in range(2):
            log = (self.job("all", rank) / "log").read_text()
            self.assertTrue(log.startswith(f"rank {rank} of 2 at a:1234\n"), log)
        self.assertIn("rank 0 of 2 at a:1234\n", self.weft("job", "logs", "tune"))
        self.weft("job", "cancel", "tune", "--forget")
        self.assertIn("is here already", self.submit("run", "x", status=1))

    def test_a_host_that_fails(self):
        for home in ("$host", "all"):
            self.ssh(home)
            said = self.submit("run", "sleep", hosts="a,down", status=1)
            self.assertIn("rank 1 was not started on down", said)
            self.assertIn("rank 0 was ended on a", said)
            self.assertEqual(self.running(), [])
            self.assertEqual(json.loads(self.weft("job", "list", "--json")), [])
        # One that begins, and then lacks the folder of the job.
        self.ssh("$host")
        (self.folder / "hosts/a/only here").mkdir()
        self.client("weft", 'exec sleep infinity')
        said = self.weft("submit", "--to", "ssh", "-N", "2", "--name", "tune", "--hosts", "a,b",
                         "--folder", "only here", "--", "run", "m", status=1)
        self.assertIn("rank 1 was not started on b", said)
        self.assertEqual(self.running(), [])
        self.submit("run", "m", hosts="a,b")  # the name is free again
        self.status("a: running\nb: running\n")
        self.assertEqual(self.weft("job", "cancel", "tune"), "a: stopped\nb: stopped\n")

    def test_ctrl_c_while_ranks_are_started(self):
        """Rank 0 runs; rank 1 begins, but its host has not answered yet. The signal goes to all
        processes of a terminal's job. A signal during bash's wait may end the next one too."""
        (self.folder / "early").write_text(
            'wait() { [ -z "${stopped-}" ] || (( early++ >= 2 )) || return 130; '
            'builtin wait "$@"; }\nearly=0\n')
        for home, late in (("$host", "b"), ("all", "b"), ("$host", "a")):
            (self.folder / "late").unlink(missing_ok=True)
            self.ssh(home)
            program = self.bin / "ssh"
            program.write_text(program.read_text().replace(
                'exec sh -c "$*"', f'[ $host != {late} ] || [ -e {self.folder}/seen ] ||\n'
                f'{{ touch {self.folder}/seen; . {WAIT}; wait_until [ -e {self.folder}/late ]; }}\n'
                f'exec sh -c "$*"'))
            asked = subprocess.Popen(
                [PROGRAM, "submit", "--to", "ssh", "-N", "2", "--name", "tune", "--hosts", "a,b",
                 "--", "run", "sleep"], env=self.env | {"BASH_ENV": str(self.folder / "early")},
                cwd=self.folder, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                start_new_session=True)
            until((self.folder / "seen").exists, "a late host", PATIENCE)
            os.killpg(asked.pid, signal.SIGINT)
            until(lambda: not is_pending(asked.pid, signal.SIGINT), "the signal")
            os.killpg(asked.pid, signal.SIGINT)  # who is impatient
            (self.folder / "late").touch()
            said = asked.communicate(timeout=PATIENCE)[1].decode()
            self.assertEqual((asked.returncode, said), (
                130, "weft: ending the ranks that were started\n"
                     "weft: stopped by the user: no job was submitted\n"))
            until(lambda: not self.running(), "the end of the ranks", PATIENCE)
            self.assertEqual(json.loads(self.weft("job", "list", "--json")), [])
            self.assertEqual(list(self.folder.glob("hosts/*/.local/state/weft/jobs/*")), [])
            (self.folder / "seen").unlink()
        self.submit("run", "x", hosts="a,b")  # the name is free again

    def test_a_pid_of_another_process(self):
        """After a reboot, the file's number belongs to a process that is not the rank."""
        self.submit("run", "sleep")
        self.status("a: running\nme@b: running\n")
        for pid in self.running():
            os.kill(pid, signal.SIGKILL)
        other = subprocess.Popen(["sh", "-c", "sleep infinity; exit 3"], env=self.env)
        try:
            for rank, home in enumerate(("a", "me@b")):
                (self.job(home, rank) / "pid").write_text(f"{other.pid}\n")
            self.status("a: lost\nme@b: lost\n")
            self.assertIn("rank 0 of 2", self.weft("job", "logs", "-f", "tune"))  # and ends
            self.assertEqual(self.weft("job", "cancel", "tune"), "a: ended\nme@b: ended\n")
            with self.assertRaises(subprocess.TimeoutExpired):  # its sleep would end it
                other.wait(1)
        finally:
            subprocess.run(["pkill", "-P", str(other.pid)], check=False)
            other.wait()

    def test_a_file_of_hosts(self):
        (self.folder / "hosts.txt").write_text("\ufeffa slots=1\n# two\n\nme@b  # other\n")
        text = self.weft("submit", "--to", "ssh", "-N", "2", "--hostfile", "hosts.txt", "--dry-run",
                         "--", "run", "m")
        self.assertIn("for host in a me@b; do", text)
        self.assertIn("need --to ssh", self.weft("submit", "--to", "slurm", "--hosts", "a",
                                                "--dry-run", "--", "run", "m", status=2))

    def test_hosts(self):
        for hosts, said in (("a", "1 hosts were named for -N 2"),
                            ("a,-oProxyCommand=x", "expected HOST"), ("a,$(id)", "expected HOST")):
            self.assertIn(
    said,
    self.weft(
        "submit",
        "--to",
        "ssh",
        "-N",
        "2",
        "--hosts",
        hosts,
        "--",
        "run",
        "m",
         status=2))


class Pods(PodsCase):
    def test_words(self):
        jobs = self.load(self.file("k8s", *HOSTILE_COMMAND))
        job = jobs["JobSet"]["spec"]["replicatedJobs"][0]["template"]["spec"]
        (container,) = job["template"]["spec"]["containers"]
        self.assertEqual([self.expanded(word) for word in container["command"]],
                         ["weft", *HOSTILE_COMMAND])

    def test_a_jobset(self):
        jobs = self.load(
    self.file(
        "k8s:ml",
        "--mount",
        "models=/models",
        "--mount",
        "/srv/d a=/data",
        "--resource",
        "rdma/hca=1",
        "--network",
        "rdma-net",
        "--queue",
        "mine",
        "--cpus",
        "8",
        "--memory",
        "32Gi",
        "--",
        *TRAIN,
         nodes=3))
        self.assertEqual(jobs["JobSet"]["metadata"]["namespace"], "ml")
        self.assertEqual(jobs["JobSet"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "mine")
        job = jobs["JobSet"]["spec"]["replicatedJobs"][0]["template"]["spec"]
        self.assertEqual((job["parallelism"], job["completions"]), (3, 3))
        pod = job["template"]["spec"]
        container = pod["containers"][0]
        env = {each["name"]: each.get("value") for each in container["env"]}
        self.assertEqual(env["WORLD_SIZE"], "3")
        self.assertEqual(env["MASTER_ADDR"], "tune-rank-0-0.tune")
        self.assertIn("RANK", env)
        (restart,) = [each for each in container["env"] if each["name"] == "WEFT_RESTART"]
        self.assertIn("restart-attempt", restart["valueFrom"]["fieldRef"]["fieldPath"])
        self.assertEqual(container["resources"]["limits"], {"memory": "32Gi", "rdma/hca": "1"})
        self.assertEqual(container["resources"]["requests"], {"memory": "32Gi", "cpu": "8"})
        volumes = {each["name"]: each for each in pod["volumes"]}
        self.assertEqual(volumes["mount-0"]["persistentVolumeClaim"], {"claimName": "models"})
        self.assertEqual(volumes["mount-1"]["hostPath"], {"path": "/srv/d a"})
        self.assertGreater(len(jobs["Secret"]["stringData"]["key"]), 40)
        self.assertEqual(volumes["key"]["secret"]["secretName"], jobs["Secret"]["metadata"]["name"])

    def test_networks_and_devices(self):
        def pod(*words):
            job = self.load(self.file("k8s", *words))["JobSet"]["spec"]["replicatedJobs"][0]
            return job["template"]["spec"]["template"]
        plain = pod("--", "bench", "m")
        self.assertEqual(plain["spec"]["securityContext"]["runAsUser"], 65534)
        self.assertNotIn("annotations", plain["metadata"])
        fast = pod("--network", "rdma-a,ml/rdma-b", "--resource", "rdma/hca=2", "--", "bench", "m")
        (container,) = fast["spec"]["containers"]
        self.assertEqual(container["command"], ["weft", "bench", "m", "--data-net=net1,net2"])
        self.assertEqual(container["securityContext"]["capabilities"],
                         {"drop": ["ALL"], "add": ["IPC_LOCK"]})
        self.assertEqual(fast["spec"]["securityContext"]["runAsUser"], 0)
        self.assertEqual(fast["metadata"]["annotations"],
                         {"k8s.v1.cni.cncf.io/networks": "rdma-a,ml/rdma-b"})
        for said in (["--data-net", "10.1.0.0/16"], ["--data-net=eth0"]):
            own = pod("--network", "rdma-a", "--", "bench", "m", *said)
            self.assertEqual(own["spec"]["containers"][0]["command"], ["weft", "bench", "m", *said])

    def test_volcano(self):
        words = ("--scheduler", "volcano", "--queue", "mine", "--")
        job = self.load(self.file("k8s", *words, *TRAIN, nodes=3))["JobSet"]
        self.assertNotIn("suspend", job["spec"])
        self.assertNotIn("kueue.x-k8s.io/queue-name", job["metadata"]["labels"])
        template = job["spec"]["replicatedJobs"][0]["template"]
        self.assertEqual(template["metadata"]["annotations"],
                         {"scheduling.volcano.sh/group-min-member": "3"})
        pod = template["spec"]["template"]
        self.assertEqual(pod["metadata"]["annotations"],
                         {"scheduling.volcano.sh/queue-name": "mine"})
        self.assertEqual(pod["spec"]["schedulerName"], "volcano")
        ray = self.load(self.file("kuberay", *words, *TRAIN))["RayJob"]
        self.assertEqual(ray["metadata"]["labels"], {"ray.io/scheduler-name": "volcano",
                                                     "volcano.sh/queue-name": "mine"})
        self.assertNotIn("suspend", ray["spec"])

    def test_a_server(self):
        jobs = self.load(self.file("k8s", "serve", "/models/m.gguf", *SERVE))
        group = jobs["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
        self.assertEqual(group["size"], 2)
        leader, worker = (group[name]["spec"]["containers"][0] for name in
                          ("leaderTemplate", "workerTemplate"))
        self.assertEqual(leader["command"], worker["command"])
        self.assertEqual(leader["readinessProbe"]["httpGet"]["path"], "/ready")
        self.assertNotIn("readinessProbe", worker)

    def test_kuberay(self):
        jobs = self.load(
    self.file(
        "kuberay:ml",
        "--image",
        "weft-ray:1",
        "--cpus",
        "4",
        "--",
        *HOSTILE_COMMAND,
         nodes=3))
        spec = jobs["RayJob"]["spec"]
        self.assertEqual(spec["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"], 2)
        environment = self.yaml.safe_load(spec["runtimeEnvYAML"])["env_vars"]
        self.assertEqual(environment, {"RAY_JOB_STOP_WAIT_TIME_S": "120"})
        self.assertEqual(command_of(jobs["ConfigMap"]["data"]["driver.py"]),
                         ["weft", *HOSTILE_COMMAND])
        self.assertIn(spec["entrypoint"].split("/")[-1], jobs["ConfigMap"]["data"])

    def test_a_job(self):
        self.notes_words("kubectl", 'echo created')
        self.weft("submit", "--to", "k8s:ml", "-N", "2", "--name", "tune", "--", *TRAIN)
        self.assertEqual(self.words("kubectl")[:3], ["create", "--dry-run=server", "-f"])
        self.assertEqual(self.words("kubectl", 1)[:2], ["create", "-f"])
        self.weft("job", "status", "tune")
        self.assertEqual(self.words("kubectl", 2), ["get", "jobset", "tune", "--namespace=ml"])
        for said, state in (("", "pending"), ("0", "pending"), ("1", "running"),
                            ("Failed0", "failed"), ("Completed", "completed")):
            self.client("kubectl", f"[[ $* == *--output=jsonpath=* ]] && printf '%s' '{said}'")
            self.assertEqual(self.states(), [state])
        self.notes_words("kubectl", 'echo created')
        self.weft("job", "logs", "-f", "tune")
        self.assertEqual(self.words("kubectl", 3),
                         ["logs", "job/tune-rank-0", "--follow", "--namespace=ml"])
        self.weft("job", "cancel", "tune")
        self.assertEqual(
    self.words(
        "kubectl", 4), [
            "delete", "jobset,secret", "--selector=weft.job=tune", "--namespace=ml"])

    def test_a_refused_manifest_leaves_nothing(self):
        """The cluster lacks the kind of the last object: it would keep the first ones."""
        self.notes_words("kubectl", 'echo no matches for kind JobSet >&2; exit 1')
        self.weft("submit", "--to", "k8s", "--name", "tune", "--", *TRAIN, status=1)
        self.assertEqual(self.words("kubectl")[:2], ["create", "--dry-run=server"])
        self.assertFalse((self.folder / "kubectl.1").exists())
        self.assertNotIn("tune", self.weft("job", "list"))

    def test_refusals(self):
        for flags, said in ((["--mount", "x"], "--mount"), (["--mount", "x=rel"], "--mount"),
                            (["--mount", "x=/etc/weft"], "--mount"),
                            (["--resource", "x"], "--resource"),
                            (["--image", "a b"], "--image"), (["--image", "a\n- x"], "--image"),
                            (["--queue", "$(id)"], "--queue")):
            self.assertIn(
    said,
    self.weft(
        "submit",
        "--to",
        "k8s",
        *flags,
        "--",
        *TRAIN,
         status=2))


class Ray(SubmitTest):
    def test_words(self):
        text = self.file("ray", *HOSTILE_COMMAND)
        compile(text, "driver", "exec")
        self.assertEqual(command_of(text), ["weft", *HOSTILE_COMMAND])

    def test_words_that_are_no_utf8(self):
        for to in ("ray", "kuberay", "k8s"):
            done = subprocess.run([PROGRAM, "submit", "--to", to, "--dry-run", "--", "run", BYTES],
                                  capture_output=True, env=self.env, timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(b"not UTF-8", done.stderr)

    def test_a_job(self):
        self.notes_words(
    "ray", f'for word; do case $word in --working-dir=*) cp "${{word#*=}}"/*.py '
    f'{self.folder}/driver.py ;; esac; done')
        self.weft(
    "submit",
    "--to",
    "ray:http://head:8265",
    "-N",
    "2",
    "--name",
    "tune",
    "--",
    *TRAIN)
        words = self.words("ray")
        self.assertEqual(words[:3], ["job", "submit", "--no-wait"])
        self.assertIn("--address=http://head:8265", words)
        self.assertIn("--submission-id=tune", words)
        (environment,) = [word for word in words if word.startswith("--runtime-env-json=")]
        # Ranks have as long to end as the driver gives them, and a little more.
        patience = json.loads(environment.split("=", 1)[1])["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"]
        grace = re.search(r"^GRACE_S = (\d+)", (self.folder / "driver.py").read_text(), re.M)
        self.assertGreater(int(patience), int(grace[1]))
        self.assertEqual(words[-3:], ["--", "python3", "weft_tune.py"])
        self.assertEqual(command_of((self.folder / "driver.py").read_text()),
                         ["weft", *TRAIN])
        for said, state in (("Status for job 'tune': RUNNING\nStatus message: fine", "running"),
                            ("a warning\n---\nJob 'tune' succeeded\n---", "succeeded")):
            self.client("ray", f'[ "$*" = "job status tune --address=http://head:8265" ] && '
                               f'echo "{said}" >&2')
            self.assertEqual(self.states(), [state])
        self.notes_words("ray")
        self.weft("job", "logs", "-f", "tune")
        self.assertEqual(self.words("ray", 1), ["job", "logs", "tune", "--follow",
                                                "--address=http://head:8265"])
        self.weft("job", "cancel", "tune")
        self.assertEqual(
    self.words(
        "ray", 2), [
            "job", "stop", "tune", "--address=http://head:8265"])


class RayRestarts(SubmitTest):
    """The driver with a fake Ray, whose actors are threads; ranks are real processes."""

    def setUp(self):
        super().setUp()
        fake = pathlib.Path(__file__).resolve().parent / "fake_ray"
        self.env["PYTHONPATH"] = str(fake)

    def drive(self, script, *flags, nodes=2, stop=None, begins=True):
        """Runs the driver; the program of ranks is this script, in which $n counts the starts of a
        rank. stop: a file; the driver gets SIGTERM when the file is there. begins: whether a rank
        of each attempt begins."""
        self.client("weft", f'n=$(ls {self.folder} | grep -c "^start.$RANK\\.")\n'
                            f'touch {self.folder}/start.$RANK.$n\n{script}')
        text = self.file("ray", *flags, "--", *TRAIN, nodes=nodes)
        driver = self.folder / "driver.py"
        driver.write_text(text)
        process = subprocess.Popen([sys.executable, driver], env=self.env, cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if stop is not None:
            until((self.folder / stop).exists, stop, PATIENCE)
            process.terminate()
        said, _ = process.communicate(timeout=PATIENCE)
        # (Of each attempt at least one rank has begun; the others may be stopped before.)
        starts = 1 + said.count("; restart ")
        self.assertGreaterEqual(len(list(self.folder.glob("start.*"))), starts if begins else 0)
        for file in self.folder.glob("start.*"):
            file.unlink()
        return process.returncode, starts, said

    def test_a_lost_rank(self):
        for lost in ("exit 3", "kill -KILL $$", "kill -SEGV $$", "exit 75", "exit 137"):
            with self.subTest(lost=lost):
                status, starts, said = self.drive(f"[ $RANK$n != 10 ] || {lost}\nexit 0")
                self.assertEqual((status, starts), (0, 2), said)
                self.assertIn("restart 1 of 3", said)

    def test_ranks_know_of_the_restart(self):
        status, starts, said = self.drive('[ $RANK = 0 ] || [ "$n" = "$WEFT_RESTART" ] || exit 9\n'
                                          "[ $RANK = 0 ] || [ $n = 2 ] || exit 3\nexit 0")
        self.assertEqual((status, starts), (0, 3), said)

    def test_a_lost_node(self):
        status, starts, said = self.drive("[ $RANK$n != 10 ] || touch lost-node-1\nexit 0")
        self.assertEqual((status, starts), (0, 2), said)
        self.assertIn("a node was lost", said)

    def test_the_rest_of_the_ranks_is_ended(self):
        status, starts, said = self.drive(
            f". {WAIT}\n[ ! -e ended ] || exit 0\n"
            "[ $RANK = 0 ] || { wait_until [ -e begun ]; exit 3; }\n"
            "touch begun; stay_until_term 'touch ended; exit 75'")
        self.assertEqual((status, starts), (0, 2), said)
        self.assertTrue((self.folder / "ended").exists())

    def test_restarts_are_counted(self):
        for restarts, flags in ((3, ()), (1, ("--restarts", "1")), (0, ("--restarts", "0"))):
            status, starts, said = self.drive("kill -KILL $$", *flags)
            self.assertEqual((status, starts), (137, restarts + 1), said)

    def test_what_is_not_started_again(self):
        for status in (1, 2, 130):
            self.assertEqual(self.drive(f"exit {status}")[:2], (status, 1))

    def test_a_stop(self):
        status, starts, said = self.drive(f". {WAIT}\ntouch begun.$RANK\n"
                                          "stay_until_term 'exit 75'", stop="begun.0")
        self.assertEqual((status, starts), (75, 1), said)

    def test_a_node_without_the_program(self):
        for program, words in (("no-such-weft", "on its PATH"), ("/opt/no/weft", "'/opt/no/weft'")):
            status, starts, said = self.drive("", "--program", program, begins=False)
            self.assertEqual((status, starts), (127, 1), said)
            self.assertIn(f"cannot start the program '{program}'", said)
            self.assertIn(words, said)
            self.assertIn("--program /path/to/weft", said)
            for wrong in ("Traceback", "node was lost"):
                self.assertNotIn(wrong, said)

    def test_a_node_without_the_folder(self):
        status, starts, said = self.drive("", "--folder", "/no/such/folder", begins=False)
        self.assertEqual((status, starts), (127, 1), said)
        self.assertIn("cannot enter the folder /no/such/folder", said)
        self.assertNotIn("Traceback", said)

    def test_kuberay_restarts_by_its_operator(self):
        text = self.file("kuberay", "--restarts", "5", "--image", "weft:1", "--", *TRAIN)
        self.assertIn("backoffLimit: 5", text)
        self.assertIn("RESTARTS = 0", text)

    def test_kuberay_warns_of_restarts_that_cannot_resume(self):
        for words, warns in (((), True), (("--resume", "auto"), False)):
            done = subprocess.run(
                [PROGRAM, "submit", "--to", "kuberay", "--dry-run", "--image", "weft:1", "--",
                 *TRAIN, *words],
                capture_output=True, text=True, env=self.env, timeout=PATIENCE, check=True)
            self.assertEqual("Add --resume auto" in done.stderr, warns, done.stderr)


class Words(SubmitTest):
    def test_targets(self):
        for to, said in (("slurn", "Did you mean 'slurm'?"), ("slurm:x", "expected slurm"),
                         ("k8s:", "expected k8s:NAMESPACE"), ("k8s:a b", "--to"),
                         ("ssh:home", "home"),
                         ("", "expected slurm")):
            self.assertIn(said, self.weft("submit", "--to", to, "--", *TRAIN, status=2))

    def test_names(self):
        for name in ("A", "a_b", "-a", "a-", "x" * 41, "a\nb", "../x", "a b", "1a"):
            self.assertIn(
    "--name",
    self.weft(
        "submit",
        "--to",
        "slurm",
        f"--name={name}",
        "--dry-run",
        "--",
        *TRAIN,
         status=2))
        for name in ("../../etc/passwd", "", ".x", "a\nb"):
            self.weft("job", "status", name, status=1)

    def test_no_command(self):
        for words in ((), ("--",), ("--", "--data")):
            self.assertIn("the command of the ranks is missing",
                          self.weft("submit", "--to", "slurm", *words, status=2))

    def test_options_of_other_lines(self):
        for flag, value in (("--partition", "a\n#SBATCH --uid=0"), ("--time", "1 2"),
                            ("--slurm", "wrap=x"), ("--slurm", "--a\n--b")):
            self.weft("submit", "--to", "slurm", f"{flag}={value}", "--", *TRAIN, status=2)

    def test_flags_of_the_command_stay_its_own(self):
        text = self.file("slurm", "serve", "--config", "/nowhere/weft.toml", "--output_dir", "x",
                         "--json", "--help")
        self.assertIn("weft serve --config /nowhere/weft.toml --output_dir x --json --help", text)

    def test_notes_of_others(self):
        notes = self.folder / "state/weft/submitted"
        notes.mkdir(parents=True)
        for name, text in (("a", "{"), ("b", "[]"), ("c", '{"name": 1}'), ("d", "\xff")):
            (notes / f"{name}.json").write_text(text)
        (notes / "e.json").mkdir()
        self.assertEqual(json.loads(self.weft("job", "list", "--json")), [])
        for name in "abcde":
            self.weft("job", "status", name, status=1)


if __name__ == "__main__":
    main()
