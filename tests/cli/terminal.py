"""Runs a program at its own terminal, for the tests of this folder."""
import codecs
import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import tempfile
import termios
import time

PATIENCE = 120
STATE = tempfile.TemporaryDirectory(prefix="weft-state-")  # of all programs; env gives another
PROMPT = ">>> "


class Terminal:
    """A program at its own terminal; the test plays the user."""

    def __init__(self, program, *words, env=None, columns=0):
        """columns: the terminal's width; 0: not known."""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.environ.update({"TERM": "dumb", "XDG_STATE_HOME": STATE.name, **(env or {})})
            os.execv(program, [program, *words])
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.text = ""
        self.at = 0
        self.status = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def type(self, text):
        self.send(text.encode())

    def send(self, data):
        os.write(self.fd, data)

    def feed(self, text):
        """As type, for more text than a terminal accepts at once."""
        data = text.encode()
        deadline = time.monotonic() + PATIENCE
        while data:
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(data)} bytes are not taken")
            self.more(0)
            if select.select([], [self.fd], [], 0.1)[1]:
                data = data[os.write(self.fd, data[:1024]):]

    def stays(self, seconds):
        """Checks that the program still runs after this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self.more(0.05):
                return False
        return os.waitpid(self.pid, os.WNOHANG)[0] == 0

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self):
        """The terminal's input and output modes."""
        return termios.tcgetattr(self.fd)[:4]

    def cook(self):
        """Modes as a shell sets them."""
        modes = termios.tcgetattr(self.fd)
        modes[0] |= termios.ICRNL
        modes[3] |= termios.ICANON | termios.ECHO | termios.ISIG
        termios.tcsetattr(self.fd, termios.TCSANOW, modes)

    def more(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            got = os.read(self.fd, 65536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        self.text += self.decoder.decode(got).replace("\r", "")
        return got != b""

    def until(self, pattern):
        """The text before the next match of the pattern."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = re.search(pattern, self.text[self.at:])
            if found:
                before = self.text[self.at:self.at + found.start()]
                self.at += found.end()
                return before
            if time.monotonic() > deadline or not self.more(1):
                raise AssertionError(f"no {pattern!r} in {self.text[self.at:]!r}")

    def ask(self, text):
        """Types a line of a conversation; returns the text before the next prompt."""
        self.type(text + "\n")
        return self.until(re.escape(PROMPT))

    def wait(self):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            open_ = self.more(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                while open_ and self.more(0):
                    if not select.select([self.fd], [], [], 0.2)[0]:
                        break
                self.status = os.waitstatus_to_exitcode(status)
                return self.status
        raise AssertionError(f"it does not end: {self.text[-500:]!r}")
