#!/usr/bin/env python3
"""Line editing in a conversation at a terminal: characters beyond ASCII in any locale, pasted
text, Tab, Ctrl-Z, resizing. Needs a Weft built with libedit.

    lines_test.py PROGRAM [UNITTEST ARGUMENT...]
"""
import os
import pathlib
import re
import signal
import sys
import tempfile
import unittest

from terminal import PROMPT, Terminal

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "support"), str(TESTS / "serve")]
import gguf_template  # noqa: E402
from wait import Pace  # noqa: E402

MODEL = str(pathlib.Path(__file__).resolve().parents[2] / "models/abacus/model.gguf")
BEGIN, END = "\x1b[200~", "\x1b[201~"
PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"


class Lines(unittest.TestCase):
    def begin(self, *words, settings="", of=MODEL, **env):
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        (pathlib.Path(home.name) / ".editrc").write_text(settings)
        terminal = Terminal(PROGRAM, "run", of, "--greedy", *words, env={
            "HOME": home.name, "TERM": "xterm", "LC_ALL": "C.UTF-8", **env})
        self.addCleanup(terminal.__exit__)
        terminal.until(re.escape(PROMPT))
        return terminal

    def value_of(self, terminal, typed):
        """Text that arrives when `typed` is typed, as quoted by an error message."""
        terminal.type("/set temp <" + typed + ">\n")
        terminal.until("'<")
        value = terminal.until("(?s)>' is not a valid value of temp")
        terminal.until(re.escape(PROMPT))
        return value

    def end(self, terminal):
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0, terminal.text[-500:])


class Characters(Lines):
    def test_every_locale_has_them(self):
        text = "née Ωμέγα 日本語 🙂"
        for env in ({"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"LC_ALL": "", "LANG": ""},
                    {"LC_ALL": "C.UTF-8"}, {"LC_ALL": "nonsense"},
                    {"LC_ALL": "de_DE.ISO-8859-1"}):
            for term in ("xterm", "dumb"):
                terminal = self.begin(TERM=term, **env)
                self.assertEqual(self.value_of(terminal, text), text, env)
                self.end(terminal)

    def test_what_is_none_is_shown(self):
        terminal = self.begin(LC_ALL="C")
        for typed, want in ((b"a\xffb", "a\ufffdb"), (b"a\xc3b", "a\ufffdb"),
                            (b"\xe2\x82\xc3\xa9", "\ufffdé"), (b"\xed\xa0\x80", "\ufffd" * 3),
                            (b"\xc0\xaf", "\ufffd" * 2), (b"\xf4\x90\x80\x80", "\ufffd" * 4)):
            terminal.send(b"/set temp <" + typed + b">\n")
            terminal.until("'<")
            self.assertEqual(terminal.until(">' is not a valid value"), want, typed)
            terminal.until(re.escape(PROMPT))
        self.end(terminal)

    def test_tab_is_a_character(self):
        for term in ("xterm", "dumb"):
            terminal = self.begin(TERM=term)
            self.assertEqual(self.value_of(terminal, "a\tb"), "a\tb")
            self.end(terminal)


class Errors(Lines):
    def test_a_template_cannot_command_the_terminal(self):
        with tempfile.TemporaryDirectory() as folder:
            evil = os.path.join(folder, "evil.gguf")
            gguf_template.with_template(
                MODEL, evil, "{{ raise_exception('\x1b]0;OWNED\x07 \x9b2J') }}")
            terminal = self.begin(of=evil, TERM="dumb")
            terminal.type("Hello\n")
            said = terminal.until(re.escape(PROMPT))
            self.assertIn("OWNED", said)
            self.assertFalse({"\x1b", "\x07", "\x9b"} & set(said), said)
            self.end(terminal)


    def test_a_text_cannot_command_the_terminal(self):
        terminal = self.begin()
        terminal.type(BEGIN + "/set temp <\x1b]0;OWNED\x07\x9b2J\r>" + END + "\n")
        said = terminal.until("is not a valid value").rsplit("'<", 1)[1]
        self.assertIn("\\x1b]0;OWNED\\x07", said)
        self.assertFalse({"\x1b", "\x07", "\x9b"} & set(said), said)
        terminal.until(re.escape(PROMPT))
        self.end(terminal)


class Pastes(Lines):
    TEXT = "one\n\ttwo é\n\n  three"

    def test_the_terminal_is_asked_while_a_line_is_read(self):
        terminal = self.begin()
        terminal.ask("/set")
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)
        asked = re.findall(r"\x1b\[\?2004[hl]", terminal.text)
        self.assertEqual(asked, [PASTE_ON, PASTE_OFF] * 2)
        terminal = self.begin(TERM="dumb")
        self.end(terminal)
        self.assertNotIn("\x1b", terminal.text)

    def test_several_lines_are_one_message(self):
        terminal = self.begin()
        for ends in ("\r", "\n"):
            pasted = BEGIN + self.TEXT.replace("\n", ends) + END
            self.assertEqual(self.value_of(terminal, pasted), self.TEXT)
        # At the end of a message, and with its own line end.
        terminal.type("/set temp " + BEGIN + "x\ny\n" + END + "\n")
        self.assertIn("'x\ny' is not a valid value", terminal.until(re.escape(PROMPT)))
        self.end(terminal)

    def test_it_is_not_sent_by_itself(self):
        terminal = self.begin()
        terminal.type(BEGIN + "/bye\n/bye\n" + END)
        terminal.until("/bye\n")
        self.assertTrue(terminal.stays(0.5))
        terminal.type("\x03")
        terminal.until(re.escape(PROMPT))
        self.assertEqual(self.value_of(terminal, "x"), "x")
        self.end(terminal)

    def test_history_has_it(self):
        terminal = self.begin()
        self.assertEqual(self.value_of(terminal, BEGIN + self.TEXT + END), self.TEXT)
        terminal.type("\x1b[A\n")
        terminal.until("'<")
        self.assertEqual(terminal.until("(?s)>' is not a valid value"), self.TEXT)
        terminal.until(re.escape(PROMPT))
        self.end(terminal)

    def test_between_quotes(self):
        terminal = self.begin()
        terminal.type('"""\n')
        terminal.until(re.escape("... "))
        terminal.type(BEGIN + "What is\n\t6 + 6?\n" + END + "\n")
        terminal.until(re.escape("... "))
        self.assertRegex(terminal.ask('"""'), r"\d")
        self.end(terminal)

    def test_pieces(self):
        for settings in ("", "bind -v\n"):
            terminal = self.begin(settings=settings)
            terminal.type("/set temp <")
            pasted = (BEGIN + self.TEXT + END).encode()
            # In vi mode Escape is a key unless more bytes follow at once.
            pieces = [pasted[i:i + 1] for i in range(len(pasted))] if not settings else \
                [pasted[:3], pasted[3:20], pasted[20:-3], pasted[-3:]]
            slow = Pace(0.07)
            for piece in pieces:
                terminal.send(piece)
                slow.next()
            terminal.type(">\n")
            terminal.until("'<")
            self.assertEqual(terminal.until("(?s)>' is not a valid value"), self.TEXT)
            terminal.until(re.escape(PROMPT))
            self.end(terminal)

    def test_without_an_end(self):
        terminal = self.begin()
        terminal.type(BEGIN + "first\nsecond\n")
        terminal.until("second")  # shown although more may come
        terminal.type("\x03")
        terminal.until(re.escape(PROMPT))
        self.assertEqual(self.value_of(terminal, "x"), "x")
        # Ctrl-D ends the paste; text after it is typed.
        terminal.type("/set temp <" + BEGIN + "first\nsecond\x04>\n")
        terminal.until("'<")
        self.assertEqual(terminal.until("(?s)>' is not a valid value"), "first\nsecond")
        terminal.until(re.escape(PROMPT))
        terminal.type(BEGIN)
        self.assertTrue(terminal.stays(0.3))
        self.end(terminal)

    def test_other_bytes(self):
        terminal = self.begin()
        for pasted, want in (("a\x1b[31mb\x1b[0mc", r"a\x1b[31mb\x1b[0mc"),
                             ("\x1b\x1b[20\x1b[200~", r"\x1b\x1b[20\x1b[200~"),
                             ("a\0b", "a\ufffdb"), ("a\x01\x08\x7fb", r"a\x01\x08\x7fb")):
            self.assertEqual(self.value_of(terminal, BEGIN + pasted + END), want)
        self.end(terminal)

    def test_a_long_one(self):
        terminal = self.begin()
        text = "\n".join(f"line {i} of many, ünïcode" for i in range(2000))
        terminal.feed("/set temp <" + BEGIN + text + END)
        terminal.type(">\n")
        terminal.until("'<")
        self.assertEqual(terminal.until("(?s)>' is not a valid value"), text)
        terminal.until(re.escape(PROMPT))
        self.end(terminal)


class Signals(Lines):
    def test_another_size(self):
        terminal = self.begin()
        terminal.resize(24, 80)
        terminal.type("/set temp <" + "x" * 30)
        terminal.until("x" * 30)
        for columns in (20, 200, 40):
            terminal.resize(24, columns)
            terminal.until(re.escape(PROMPT))  # redrawn
            terminal.until("(?:x\\s*(?:\x1b\\S*)?){30}")
        terminal.type("y>\n")
        terminal.until("'<")
        self.assertEqual(terminal.until(">' is not a valid value"), "x" * 30 + "y")
        terminal.until(re.escape(PROMPT))
        self.end(terminal)

    def test_stopped_and_continued(self):
        for term in ("xterm", "dumb"):
            terminal = self.begin(TERM=term)
            terminal.type("/set temp <xyz")
            terminal.until("<xyz")
            raw = terminal.modes()
            os.kill(terminal.pid, signal.SIGSTOP)
            os.waitpid(terminal.pid, os.WUNTRACED)
            terminal.cook()
            os.kill(terminal.pid, signal.SIGCONT)
            terminal.until("<xyz")  # redrawn
            self.assertEqual(terminal.modes(), raw)
            terminal.type("q>\n")
            terminal.until("'<")
            self.assertEqual(terminal.until(">' is not a valid value"), "xyzq")
            terminal.until(re.escape(PROMPT))
            self.end(terminal)

    def test_control_z(self):
        # A shell with job control.
        shell = Terminal("/bin/sh", "-i", env={"TERM": "xterm", "PS1": "$ ", "LC_ALL": "C.UTF-8",
                                               "ENV": ""})
        self.addCleanup(shell.__exit__)
        shell.until(re.escape("$ "))
        shell.type(f"{PROGRAM} run {MODEL}\n")
        shell.until(re.escape(PROMPT))
        for _ in range(2):
            shell.type("/set temp <xyz")
            shell.until("<xyz")
            shell.type("\x1a")
            self.assertIn(PASTE_OFF, shell.until(re.escape("$ ")))
            shell.type("echo so$((40 + 2))\n")
            shell.until("so42")
            shell.type("fg\n")
            shell.until("<xyz")
            shell.type("q>\n")
            shell.until("'<")
            self.assertEqual(shell.until(">' is not a valid value"), "xyzq")
            shell.until(re.escape(PROMPT))
        shell.type("\x04")
        shell.until(re.escape("$ "))

    def test_control_z_where_no_shell_is(self):
        terminal = self.begin()
        terminal.type("/set temp <xy")
        terminal.until("<xy")
        terminal.type("\x1a")
        terminal.until("<xy")  # redrawn
        terminal.type("z>\n")
        terminal.until("'<")
        self.assertEqual(terminal.until(">' is not a valid value"), "xyz")
        terminal.until(re.escape(PROMPT))
        self.end(terminal)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
