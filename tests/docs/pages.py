"""The pages of Weft's documents: their code blocks, commands and quotations.

A block of `sh` or `bash` is run by commands_test.py unless a marker is right before it:

    <!-- not run: two hosts -->    the reason; its flags are still checked
    <!-- goes on -->               in the folder and with the servers of the previous block

    <!-- printed -->               before a `text`: the lines that the previous block prints

A block of `python` is run if it has the marker "goes on".
"""
import pathlib
import re
import shlex
from dataclasses import dataclass

PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "models/abacus/README.md", "docs/*.md")
SHELLS = ("sh", "bash")
MARKER = re.compile(r"<!--(.*?)-->\s*\Z", re.DOTALL)


class BadMarker(Exception):
    """A comment before a block that is empty or not a known marker."""


@dataclass
class Block:
    page: str
    line: int  # of its first line of text
    language: str
    text: str
    reason: str  # why it is not run; empty: it is
    goes_on: bool
    printed: bool

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def pages(root):
    """(name, text) of every page."""
    for pattern in PAGES:
        for path in sorted(pathlib.Path(root).glob(pattern)):
            yield str(path.relative_to(root)), path.read_text()


def read_marker(place, language, before):
    """(reason, goes_on, printed) from the text before a block."""
    marker = MARKER.search(before)
    if marker is None or language not in SHELLS + ("python", "text"):
        return "", False, False
    words = " ".join(marker[1].split())
    if language == "text" and words == "printed":
        return "", False, True
    if language != "text" and words == "goes on":
        return "", True, False
    name, _, reason = words.partition(":")
    if language == "text" or name != "not run" or len(reason.strip()) < 4:
        raise BadMarker(f"{place}: <!-- {words} --> is no marker of {language}; there are "
                        f"<!-- not run: WHY -->, <!-- goes on --> and, of text, <!-- printed -->")
    return reason.strip(), False, False


def blocks(name, text):
    """The code blocks of a page, in order."""
    lines = text.split("\n")
    found, begin = [], None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if begin is None:
            begin = number
            continue
        language = lines[begin][3:].strip()
        before = "\n".join(lines[max(0, begin - 4):begin])
        place = f"{name}:{begin + 2}"
        found.append(Block(name, begin + 2, language, "\n".join(lines[begin + 1:number]) + "\n",
                           *read_marker(place, language, before)))
        begin = None
    return found


def commands(text):
    """The command lines of a shell block: with continued lines joined, without comments."""
    joined = text.replace("\\\n", " ")
    for line in joined.split("\n"):
        line = line.strip()
        if line and not line.startswith("#"):
            yield re.sub(r"\s+#\s.*$", "", line)


def weft_words(line):
    """The words after each `weft` in a command line: [run, x] for `a | weft run x > y`."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:  # a quotation that ends in another line
        words = line.split()
    calls, call = [], None
    for word in words:
        if re.fullmatch(r"[|&;<>()]+", word):
            call = None
        elif call is None and (word == "weft" or word.endswith("/weft")):
            call = []
            calls.append(call)
        elif call is not None:
            call.append(word)
    # `install weft /usr/local/bin` and `podman build -t weft -f FILE` call none.
    return [call for call in calls if call and re.match(r"[a-z]|--", call[0])]


def prose(text):
    """Yields (number, line) of a page; lines of blocks are empty."""
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        fence = line.startswith("```")
        yield number, "" if inside or fence else line
        inside ^= fence


def inline_code(text):
    """(line, words) of every `...` in a page outside its blocks."""
    joined = "\n".join(line for _, line in prose(text))
    for match in re.finditer(r"(?<!`)`([^`]+)`(?!`)", joined):
        yield joined.count("\n", 0, match.start()) + 1, " ".join(match[1].split())
