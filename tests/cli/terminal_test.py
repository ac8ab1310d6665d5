#!/usr/bin/env python3
"""weft run at a terminal: a conversation, its commands, Ctrl-C, Ctrl-D, a lost rank; and prompts
on standard input. Uses the model in the repository, which does arithmetic.

    terminal_test.py PROGRAM [UNITTEST ARGUMENT...]
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import unittest

from terminal import PATIENCE, PROMPT, Terminal

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "support"), str(TESTS / "serve")]
import gguf_template  # noqa: E402
from processes import children  # noqa: E402
from limits import timeout_ms  # noqa: E402

MODEL = str(TESTS.parent / "models/abacus/model.gguf")
LONG = {"llama.context_length": 100000}  # for answers that do not end by themselves


def run(*words, stdin=b"", source=None, status=0):
    words += () if "--temp" in words else ("--greedy",)
    given = {"input": stdin} if source is None else {"stdin": source}
    done = subprocess.run([PROGRAM, "run", MODEL, *words], capture_output=True, timeout=PATIENCE,
                          **given)
    if done.returncode != status:
        raise AssertionError(f"{words}: status {done.returncode}: {done.stderr.decode()}")
    return done.stdout.decode(), done.stderr.decode()


def kill_rank_1(terminal):
    os.kill(children(terminal.pid)[0], signal.SIGKILL)


class Conversation(unittest.TestCase):
    def begin(self, *words, model=MODEL):
        words += () if "--temp" in words else ("--greedy",)
        terminal = Terminal(PROGRAM, "run", model, *words)
        self.addCleanup(terminal.__exit__)
        said = terminal.until(re.escape(PROMPT))
        self.assertIn("/help lists commands", said)
        return terminal

    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def with_keys(self, keys):
        """A copy of the model with changed keys."""
        model = os.path.join(self.folder(), "model.gguf")
        gguf_template.with_keys(MODEL, model, keys)
        return model

    def with_template(self, template):
        """A copy of the model with this chat template and a longer context."""
        model = os.path.join(self.folder(), "model.gguf")
        gguf_template.with_template(MODEL, model, template)
        return model

    def test_questions_and_answers(self):
        terminal = self.begin()
        self.assertRegex(terminal.ask("What is 47 + 38?"), r"\b85\b")
        self.assertRegex(terminal.ask("What is 12 * 7?"), r"\b84\b")
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)

    def test_answers_are_those_of_one_question(self):
        alone = run("-p", "What is 90 - 45?")[0].strip()
        for words in ((), ("--tp", "2"), ("--pp", "2", "--transport", "tcp"), ("--prompt-lookup",)):
            terminal = self.begin(*words)
            self.assertIn(alone, terminal.ask("What is 90 - 45?"))
            terminal.ask("/clear")
            self.assertIn(alone, terminal.ask("What is 90 - 45?"))
            terminal.type("/bye\n")
            self.assertEqual(terminal.wait(), 0, words)

    def test_commands(self):
        terminal = self.begin("--temp", "0.5")
        self.assertIn("/clear", terminal.ask("/help"))
        self.assertIn("temp 0.5,", terminal.ask("/set"))
        self.assertIn("temp 0,", terminal.ask("/set temp 0"))
        self.assertIn("predict 3", terminal.ask("/set predict 3"))
        for wrong in ("/set temp warm", "/set temp -3", "/set size 3", "/set predict -2",
                      "/set top-p 7", "/fly"):
            self.assertRegex(terminal.ask(wrong), "valid value|no setting|no command|expected|must")
        self.assertIn("temp 0,", terminal.ask("/set"))
        self.assertIn("seed 7,", terminal.ask("/set seed 7"))
        self.assertIn("seed random,", terminal.ask("/set seed -1"))
        self.assertIn("starts over with", terminal.ask("/system You do sums."))
        self.assertEqual(terminal.ask("").strip(), "")
        self.assertIn("forgotten", terminal.ask("/clear"))
        terminal.type("/quit\n")
        self.assertEqual(terminal.wait(), 0)

    def test_files_of_a_conversation(self):
        folder = self.folder()
        notes, kept = os.path.join(folder, "my notes.txt"), os.path.join(folder, "talk.json")
        pathlib.Path(notes).write_text("What is 47 + 38?\n")
        terminal = self.begin("-n", "24")
        self.assertIn("bytes go with your next message", terminal.ask(f"/file {notes}"))
        self.assertRegex(terminal.ask("What is 12 * 7?"), r"\d")
        self.assertIn("Saved 2 messages", terminal.ask(f"/save {kept}"))
        self.assertEqual(os.stat(kept).st_mode & 0o777, 0o600)
        messages = json.loads(pathlib.Path(kept).read_text())["messages"]
        self.assertEqual([message["role"] for message in messages], ["user", "assistant"])
        self.assertEqual(messages[0]["content"],
                         "File my notes.txt:\n\n```\nWhat is 47 + 38?\n```\n\nWhat is 12 * 7?")
        self.assertIn("is not a conversation", terminal.ask(f"/save {notes}"))
        self.assertIn("there is no folder", terminal.ask(f"/save {folder}/none/kept.json"))
        self.assertEqual(pathlib.Path(notes).read_text(), "What is 47 + 38?\n")
        other = self.begin()
        self.assertIn("after 2 messages", other.ask(f"/load {kept}"))
        other.ask("What is 6 + 6?")
        self.assertIn("Saved 4 messages", other.ask(f"/save {kept}"))
        for wrong in ("/load", "/save", "/file", f"/load {notes}", f"/load {folder}/none",
                      f"/file {folder}", f"/file {MODEL}", "/think maybe"):
            self.assertRegex(other.ask(wrong), "Name a file|not |cannot|such file|syntax error")

    def test_retry_and_think(self):
        terminal = self.begin()
        self.assertIn("no question", terminal.ask("/retry"))
        first = terminal.ask("What is 47 + 38?")
        self.assertRegex(first, r"\b85\b")
        self.assertRegex(terminal.ask("/retry"), r"\b85\b")
        kept = os.path.join(self.folder(), "talk.json")
        self.assertIn("Saved 2 messages", terminal.ask(f"/save {kept}"))
        for word in ("on", "off"):
            self.assertIn("no switch for reasoning", terminal.ask(f"/think {word}"))
        self.assertIn("template's default", terminal.ask("/think"))
        model = self.with_template(
            "{% for m in messages %}{{ m.content }}{% endfor %}"
            "{% if enable_thinking is defined and enable_thinking %}\nWhat is 47 + 38?\n{% else %}"
            "\nWhat is 12 * 7?\n{% endif %}")
        terminal = self.begin("-n", "2", "--chat-template-kwargs", '{"enable_thinking": true}',
                              model=model)
        self.assertIn("thinking: on (default)", terminal.ask("/think"))
        terminal = self.begin("-n", "8", model=model)
        self.assertIn("thinking: off (default)", terminal.ask("/think"))
        off = terminal.ask("Hm.")
        self.assertIn("thinking: on", terminal.ask("/think on"))
        terminal.ask("/clear")
        self.assertNotEqual(terminal.ask("Hm."), off)
        self.assertIn("thinking: off", terminal.ask("/think off"))
        terminal.ask("/clear")
        self.assertEqual(terminal.ask("Hm."), off)

    def test_history_of_former_sessions(self):
        state = self.folder()
        path = os.path.join(state, "weft", "run_history")
        os.mkdir(os.path.dirname(path), 0o700)
        os.symlink(os.path.join(self.folder(), "history"), path)
        for line in ("What is 47 + 38?", " What is a secret?", "What is 6 + 6?"):
            terminal = Terminal(PROGRAM, "run", MODEL, "--greedy",
                                env={"XDG_STATE_HOME": state})
            self.addCleanup(terminal.__exit__)
            terminal.until(re.escape(PROMPT))
            terminal.ask(line)
            terminal.type("\x04")
            self.assertEqual(terminal.wait(), 0)
        if not os.path.exists(path):
            self.skipTest("Weft was built without libedit")
        self.assertTrue(os.path.islink(path))
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o777, 0o700)
        text = pathlib.Path(path).read_text()
        self.assertIn("47", text)
        self.assertNotIn("secret", text)
        terminal = Terminal(PROGRAM, "run", MODEL, "--greedy", env={"XDG_STATE_HOME": state})
        self.addCleanup(terminal.__exit__)
        terminal.until(re.escape(PROMPT))
        terminal.type("\x10\x10\n")  # Ctrl-P: the line before
        self.assertRegex(terminal.until(re.escape("\n" + PROMPT)), r"\b85\b")

    def test_what_is_no_command(self):
        terminal = self.begin("-n", "8")
        for text in ("/etc/passwd what is this file?", "/* 6 + 6 */", "//", '"""/bye"""',
                     '"""/fly"""'):
            said = terminal.ask(text)
            self.assertNotIn("no command", said)
            self.assertNotIn("error", said)
        self.assertIn("no command /sett. Did you mean '/set'?", terminal.ask("/sett temp 1"))
        self.assertIn('"""/fly ...""" is a message', terminal.ask("/fly"))
        terminal.type("/bye\n")
        self.assertEqual(terminal.wait(), 0)

    def test_bounds_of_settings_are_those_of_flags(self):
        terminal = self.begin()
        # (-n -2 and --seed -1 are forms of other programs, which only flags accept.)
        for name, flag, least in (("predict", "--predict", "-3"), ("seed", "--seed", "-2")):
            for value in (least, "0", "1", str(1 << 30), str((1 << 30) + 1), str(1 << 63),
                          str((1 << 64) - 1), "abc", "1.5"):
                done = subprocess.run([PROGRAM, "run", "/none", "-p", "a", f"{flag}={value}"],
                                      capture_output=True, text=True, timeout=PATIENCE,
                                      check=False)
                taken = "top-k" in terminal.ask(f"/set {name} {value}")
                self.assertEqual(taken, done.returncode == 1, (name, value, done.stderr))
        terminal.type("/bye\n")
        self.assertEqual(terminal.wait(), 0)

    def test_several_lines(self):
        terminal = self.begin()
        terminal.type('"""What is\n')
        terminal.until(re.escape("... "))
        self.assertRegex(terminal.ask('47 + 38?"""'), r"\d")
        terminal.type("What is \\\n")
        terminal.until(re.escape("... "))
        self.assertRegex(terminal.ask("6 + 6?"), r"\d")
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)

    def test_control_c_stops_an_answer_and_a_line(self):
        terminal = self.begin("--ignore-eos", "--ctx", "100000", "--kv-dtype", "f32",
                              model=self.with_keys(LONG))
        terminal.type("What is 47 + 38?\n")
        terminal.until("85")
        terminal.type("\x03")
        terminal.until(re.escape(PROMPT))
        terminal.type("nothing of this\x03")
        terminal.until(re.escape(PROMPT))
        terminal.ask("/set predict 4")
        self.assertRegex(terminal.ask("What is 6 + 6?"), r"\d")
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)

    def test_a_conversation_that_is_too_long_goes_on(self):
        terminal = self.begin("--ctx", "64")
        said = terminal.ask("What is 1 + 1? " * 40)
        self.assertIn("error", said)
        self.assertRegex(terminal.ask("What is 6 + 6?"), r"\b12\b")
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)

    def model_of_all_turns(self):
        """The model's own template shows only the last question; this one shows all turns."""
        return self.with_template((TESTS / "data/chat/chatml.jinja").read_text())

    def test_a_question_that_does_not_fit_waits_for_drop(self):
        model = self.model_of_all_turns()
        terminal = self.begin("--ctx", "256", "-n", "8", model=model)
        said = ""
        for number in range(1, 41):
            said = terminal.ask(f"What is {number} + {number}?")
            if "/drop asks again" in said:
                break
        self.assertIn("/drop asks again without the oldest turns", said)
        said = terminal.ask("/drop")
        self.assertRegex(said, r"(?s)without the oldest \d+ messages.*\n.*\w")
        self.assertNotIn("error", said)
        self.assertIn("sees all turns again", terminal.ask("/undrop"))
        self.assertIn("No turns were dropped", terminal.ask("/undrop"))
        self.assertIn("/drop asks again", terminal.ask("What is 6 + 6?"))
        said = terminal.ask("What is 6 + 6?")
        self.assertIn("The previous question did not fit", said)
        self.assertIn("/drop asks again", said)
        said = terminal.ask("/drop")
        self.assertIn("without the oldest", said)
        self.assertNotIn("error", said)
        self.assertIn("forgotten", terminal.ask("/clear"))
        self.assertIn("no older turns", terminal.ask("/drop"))
        self.assertRegex(terminal.ask("What is 6 + 6?"), r"\w")
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)

    def test_stop_strings_count_in_the_answer_alone(self):
        qwen = (TESTS / "data/chat/qwen.jinja").read_text()
        for template in (qwen, qwen + "<think>\n"):
            model = self.with_template(template)
            answers = []
            for words in ((), ("--stop", "never said")):
                terminal = self.begin("-n", "12", "--ignore-eos", *words, model=model)
                answers.append(terminal.ask("What is 47 + 38?").split("\n", 1)[1].strip())
                terminal.type("\x04")
                self.assertEqual(terminal.wait(), 0)
            whole = answers[0]
            self.assertEqual(answers[1], whole)
            thinks = whole.startswith("<think>\n")
            self.assertEqual(thinks, template != qwen)
            said = whole.removeprefix("<think>\n")
            terminal = self.begin("-n", "12", "--ignore-eos", "--stop", said[2:5], model=model)
            for _ in range(2):  # the conversation continues after a stop string
                answer = terminal.ask("What is 47 + 38?").split("\n", 1)[1].strip()
                self.assertEqual(answer, whole if thinks else said[:said.index(said[2:5])].strip())
                terminal.ask("/clear")
            terminal.type("\x04")
            self.assertEqual(terminal.wait(), 0)

    def test_a_context_beyond_the_models_is_refused(self):
        terminal = Terminal(PROGRAM, "run", MODEL, "--ctx", "257")
        self.addCleanup(terminal.__exit__)
        self.assertEqual(terminal.wait(), 2, terminal.text)
        self.assertIn("--ctx 257: the model's trained context", terminal.text)
        terminal = self.begin("--ctx", "256")
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)

    def test_an_answer_that_fills_the_context_is_cut_off(self):
        terminal = self.begin("--ctx", "64", "--ignore-eos", "-n", "-1")
        said = terminal.ask("What is 6 + 6?")
        self.assertIn("the context of 64 tokens is full", said)
        self.assertIn("/drop", said)
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)

    def test_a_first_turn_that_fills_the_context_is_no_dead_end(self):
        terminal = self.begin("--ctx", "128", "--ignore-eos", "-n", "-1",
                              model=self.model_of_all_turns())
        self.assertIn("/drop continues without this turn", terminal.ask("What is 6 + 6?"))
        # Turns are dropped before the next question, and together with it.
        self.assertIn("starts over without the previous 2 messages", terminal.ask("/drop"))
        self.assertIn("no older turns", terminal.ask("/drop"))
        said = terminal.ask("What is 7 + 7?")
        self.assertNotIn("error", said)
        self.assertIn("/drop continues without this turn", said)
        self.assertIn("/drop asks again without the oldest turns", terminal.ask("What is 8 + 8?"))
        said = terminal.ask("/drop")
        self.assertIn("without the oldest 4 messages", said)
        self.assertNotIn("error", said)
        # The whole conversation is still there.
        self.assertIn("sees all turns again", terminal.ask("/undrop"))
        self.assertIn("/drop asks again", terminal.ask("What is 9 + 9?"))
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)

    def test_what_never_fits_is_not_to_be_dropped(self):
        terminal = self.begin("--ctx", "200", "-n", "8", "--ignore-eos",
                              model=self.model_of_all_turns())
        long = "What is 1 + 1? " * 40
        said = terminal.ask(long)
        self.assertIn("Shorten the prompt", said)
        self.assertNotIn("/drop", said)
        said = terminal.ask("What is 6 + 6?")
        self.assertIn("The previous question did not fit", said)
        self.assertNotIn("error", said)
        # The first question is kept; after /undrop the context is exceeded again.
        self.assertIn("sees all turns again", terminal.ask("/undrop"))
        self.assertIn("/drop asks again", terminal.ask("What is 7 + 7?"))
        self.assertNotIn("error", terminal.ask("/drop"))
        # Drops older turns until none is left.
        self.assertIn("/drop asks again", terminal.ask(long))
        for _ in range(10):
            said = terminal.ask("/drop")
            if "/drop asks again" not in said:
                break
        self.assertIn("Shorten the prompt", said)
        self.assertIn("no older turns", terminal.ask("/drop"))
        self.assertNotIn("error", terminal.ask("What is 6 + 6?"))
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)

    def test_a_lost_rank_ends_it(self):
        for idle in (True, False):
            terminal = self.begin("--tp", "2", "--ignore-eos", "--timeout-ms", timeout_ms(6000),
                                  "--ctx", "100000", model=self.with_keys(LONG))
            before = termios.tcgetattr(terminal.fd)[3] & termios.ISIG
            if not idle:
                terminal.type("What is 47 + 38?\n")
                terminal.until("85")
            kill_rank_1(terminal)
            self.assertEqual(terminal.wait(), 3, terminal.text)
            # The message appears once, on its own line.
            self.assertEqual(len(re.findall(r"rank 1 \(host .*\) was lost", terminal.text)), 1,
                             terminal.text)
            self.assertRegex(terminal.text, r"(?m)^weft: error: .*rank 1 \(host .*\) was lost")
            self.assertEqual(terminal.text.count(PROMPT), 1, terminal.text)
            # The terminal has the modes of a shell.
            after = termios.tcgetattr(terminal.fd)[3]
            wanted = termios.ISIG | termios.ICANON | termios.ECHO
            self.assertEqual(after & wanted, wanted)
            self.assertNotEqual(before, 0)

    def test_a_lost_rank_that_comes_back(self):
        terminal = self.begin("--tp", "2", "--ignore-eos", "--timeout-ms", timeout_ms(6000),
                              "--ctx", "100000", "--restart-timeout-ms", "240000",
                              model=self.with_keys(LONG))
        warning = (r"(?m)^\S+( 0\])? warning: rank 1 \(host .*\) was lost.*; epoch {} with 2 "
                   r"ranks.*\n")
        terminal.type("What is 47 + 38?\n")
        terminal.until("85")
        kill_rank_1(terminal)
        terminal.until(warning.format(2))
        terminal.type("\x03")
        terminal.until(re.escape(PROMPT))
        terminal.ask("/set predict 4")
        # At the prompt, which is redrawn with the typed text.
        terminal.type("What is 6 ")
        terminal.until("What is 6 ")
        kill_rank_1(terminal)
        terminal.until(warning.format(3))
        terminal.until(re.escape(PROMPT + "What is 6 "))
        self.assertRegex(terminal.ask("+ 6?"), r"\b12")
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)

    def test_a_request_to_end(self):
        terminal = self.begin()
        os.kill(terminal.pid, signal.SIGTERM)
        self.assertEqual(terminal.wait(), 130)


class Training(unittest.TestCase):
    def test_a_stop_ends_the_progress_line(self):
        with tempfile.TemporaryDirectory() as folder:
            data = os.path.join(folder, "data.jsonl")
            with open(data, "w") as file:
                file.write("".join(f'{{"text": "{i}+1={i + 1}"}}\n' for i in range(64)))
            with Terminal(PROGRAM, "train", MODEL, "--data", data, "--output-dir", folder + "/out",
                          "--seq-len", "32", "-t", "1", "--epochs", "100000",
                          env={"TERM": "xterm"}, columns=100) as terminal:
                terminal.until(r"step \d+.* left")
                terminal.send(b"\x03")
                self.assertEqual(terminal.wait(), 75, terminal.text)
            self.assertRegex(terminal.text, r"\n\d+ steps, ")
            self.assertTrue(terminal.text.endswith("continues\n"), terminal.text[-500:])
            self.assertNotIn("\n\n", terminal.text[-500:])


class Prompts(unittest.TestCase):
    def test_standard_input(self):
        want = run("-p", "What is 47 + 38?")[0]
        self.assertIn("85", want)
        self.assertEqual(run(stdin=b"What is 47 + 38?\n")[0], want)
        self.assertEqual(run("-f", "-", stdin=b"What is 47 + 38?")[0], want)

    def test_a_template_is_used_unless_raw(self):
        question = "What is 47 + 38?"
        counts = {}
        for form in ((), ("--chat",), ("--raw",)):
            for words, stdin in ((("-p", question), b""), ((), question.encode())):
                said = json.loads(run(*form, *words, "--json", stdin=stdin)[0])
                counts.setdefault(form, set()).add((said["prompt_tokens"], said["text"]))
        self.assertEqual({len(of_form) for of_form in counts.values()}, {1}, counts)
        self.assertEqual(counts[()], counts[("--chat",)])
        (chat, answer), = counts[()]
        (raw, _), = counts[("--raw",)]
        self.assertEqual(answer.strip(), "85")
        self.assertEqual(chat, raw + 2)
        # Control tokens in a raw prompt are parsed; the template writes this text.
        turn = f"<|user|>{question}<|assistant|>"
        self.assertEqual(run("--raw", "-p", turn)[0].strip(), "85")
        self.assertNotEqual(run("-p", turn)[0].strip(), "85")

    def test_forms_that_contradict(self):
        self.assertIn("--chat", run("--raw", "--chat", "-p", "a", status=2)[1])
        self.assertIn("--system", run("--raw", "--system", "b", "-p", "a", status=2)[1])
        self.assertIn("--chat-template-kwargs", run("--raw", "--chat-template-kwargs", '{"a": 1}',
                                                    "-p", "a", status=2)[1])

    def test_reasoning_is_switched_off(self):
        for flag in ("--no-thinking", "--think=false", "--reasoning-budget"):
            self.assertIn("--chat-template-kwargs '{\"enable_thinking\": false}'",
                          run(flag, "-p", "a", status=2)[1])
        self.assertIn("is not a JSON object",
                      run("--chat-template-kwargs", "[]", "-p", "a", status=2)[1])

    def test_pipes(self):
        want = run("-p", "What is 47 + 38?")[0]
        with tempfile.TemporaryDirectory() as folder:
            pipe = os.path.join(folder, "pipe")
            os.mkfifo(pipe)
            writer = threading.Thread(
                target=lambda: pathlib.Path(pipe).write_text("What is 47 + 38?\n"))
            writer.start()
            self.assertEqual(run("-f", pipe)[0], want)
            writer.join()
        self.assertEqual(run("-f", "/dev/stdin", stdin=b"What is 47 + 38?\n")[0], want)

    def test_what_cannot_be_read(self):
        folder = os.open("/tmp", os.O_RDONLY)
        self.addCleanup(os.close, folder)
        self.assertIn("standard input: cannot read: Is a directory",
                      run(source=folder, status=1)[1])
        self.assertIn("/tmp: cannot read: Is a directory", run("-f", "/tmp", status=1)[1])
        self.assertIn("No such file", run("-f", "/nonexistent", status=1)[1])
        closed = subprocess.run(["/bin/sh", "-c", '"$0" run "$1" <&-', PROGRAM, MODEL],
                                capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(closed.returncode, 1, closed.stderr)
        self.assertIn("standard input: cannot read: Bad file descriptor", closed.stderr)

    def test_empty_ones(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "prompt")
            for text in ("", "\n", " \t\r\n "):
                pathlib.Path(path).write_text(text)
                self.assertIn(f"{path} is empty", run("-f", path, status=2)[1])
                self.assertIn("standard input is empty", run(stdin=text.encode(), status=2)[1])
                self.assertIn("the text of -p is empty", run("-p", text, status=2)[1])
        terminal = Terminal(PROGRAM, "run", MODEL, "-p", "")
        self.addCleanup(terminal.__exit__)
        self.assertEqual(terminal.wait(), 2)
        self.assertIn("the text of -p is empty", terminal.text)

    def test_tokens_of_standard_input(self):
        def count(*words, stdin=None):
            done = subprocess.run([PROGRAM, "tokenize", MODEL, "--json", *words], input=stdin,
                                  capture_output=True, timeout=PATIENCE, check=True)
            return json.loads(done.stdout)["count"]
        self.assertEqual(count("--file", "-", stdin=b"12 + 34"), count("--text", "12 + 34"))

    def test_none(self):
        self.assertIn("standard input is empty", run(status=2)[1])
        self.assertIn("use one of them", run("-p", "a", "-f", "b", status=2)[1])


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
