#!/usr/bin/env python3
"""The pages quote messages, error codes, checks and names that the sources have.

- Each line of a `text` block of docs/troubleshooting.md resembles a message of the sources; `...`
  stands for a part that varies or is left out. A message that was reworded still resembles its
  quotation, so the test prints the line and passes. It fails when the sources have no such message.
- docs/api.md names each error code of src/serve.
- docs/doctor.md has each check of `weft doctor` that docs/troubleshooting.md names.
- docs/install.md has every CMake option and every package of the build, and the sources read each
  WEFT_NAME of a page.

Usage: messages_test.py ROOT
"""
import pathlib
import re
import sys

import pages

LITERALS = re.compile(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+')
VARIES = re.compile(r"\{[^{}]*\}")
PAGE = "docs/troubleshooting.md"
NOT_TO_BUILD = {"python3-pip", "ca-certificates"}  # what ./quickstart and ./test fetch with
UNSEEN = {"cancelled"}  # of requests whose client has gone


def strings(code):
    """The string literals of C++ code; adjacent literals are joined."""
    code = re.sub(r"^\s*//.*$", "", code, flags=re.MULTILINE)
    for match in LITERALS.finditer(code):
        text = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', match[0]))
        yield text.replace(r"\"", '"').replace(r"\n", " ")


def messages(root):
    """The messages in the sources, with "\\0" for each variable part."""
    found = set()
    for path in pathlib.Path(root, "src").rglob("*"):
        if path.suffix in (".cc", ".h", ".c", ".inc"):
            found.update(VARIES.sub("\0", text) for text in strings(path.read_text()))
    return {text for text in found if len(text) > 12}


def is_said(quotation, said):
    """Whether a message contains the words of a quotation, in order."""
    parts = [re.escape(part) for part in quotation.split("...")]
    words = re.compile(".*".join(parts), re.DOTALL)
    return any(words.search(text) for text in said)


def words_of(text):
    return set(re.findall(r"[a-z][a-z'-]*", text.lower().replace("\0", " ")))


def resembles(quotation, said):
    """Whether a message contains at least half of the words of a quotation."""
    words = words_of(quotation)
    return any(2 * len(words & words_of(text)) >= len(words) for text in said)


def quotation_faults(name, text, said):
    """Returns (number of quotations, faults, reworded quotations)."""
    count, wrong, reworded = 0, [], []
    for block in pages.blocks(name, text):
        if block.language != "text":
            continue
        for number, line in enumerate(block.text.splitlines()):
            count += 1
            longest = max((len(part) for part in line.split("...")), default=0)
            place = f"{name}:{block.line + number}"
            if longest < 12:
                wrong.append(f"{place}: too little is quoted to look for it: {line}")
            elif not is_said(line, said):
                if resembles(line, said):
                    reworded.append(f"{place}: the message was reworded: {line}")
                else:
                    wrong.append(f"{place}: no source has a message like: {line}")
    return count, wrong, reworded


def code_faults(root):
    """Returns (number of codes, codes of src/serve that docs/api.md does not name)."""
    codes = set()
    error = re.compile(r'"([a-z]+(?:_[a-z]+)+)"|"([a-z]{5,})"\s*\}')
    for path in pathlib.Path(root, "src/serve").rglob("*.cc"):
        text = path.read_text()
        # {429, "words", "param", "code"} and Refuse(..., "code", ...)
        for match in re.finditer(r"\{\s*[45]\d\d,(?:[^;{}]|\{[^;{}]*\})*\}|Refuse\([^;]*;", text):
            codes.update(some or last for some, last in error.findall(match[0]))
    named = pathlib.Path(root, "docs/api.md").read_text()
    return len(codes), [f"docs/api.md does not name the code {code}"
                        for code in sorted(codes - UNSEEN) if f"`{code}`" not in named]


def check_faults(root, text):
    """Returns (number of checks, faults)."""
    page = pathlib.Path(root, "docs/doctor.md").read_text()
    known = set(re.findall(r"^### ([a-z0-9-]+)$", page, re.MULTILINE))
    named = [word for names in re.findall(r"--check ([a-z0-9,-]+)", text)
             for word in names.split(",")]
    return len(named), [f"{PAGE}: 'weft doctor' has no check {name}"
                        for name in named if name not in known]


def install_faults(root):
    """Returns (number of options, packages and names, faults)."""
    cmake = [pathlib.Path(root, "CMakeLists.txt"), *pathlib.Path(root, "cmake").glob("*.cmake")]
    text = "".join(path.read_text() for path in cmake)
    page = pathlib.Path(root, "docs/install.md").read_text()
    options = set(re.findall(r"option\((WEFT_\w+)|set\((WEFT_\w+) [^()]*CACHE", text))
    options = {one or other for one, other in options}
    packages = re.search(r"BUILD_PACKAGES=\(([^)]*)\)",
                         pathlib.Path(root, "tools/setup.sh").read_text())[1].split()
    wrong = [f"docs/install.md has no {name}"
             for name in sorted(options | set(packages) - NOT_TO_BUILD)
             if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", page)]
    for folder in ("src", "tests", "bench", "tools", "models"):
        for path in sorted(pathlib.Path(root, folder).rglob("*")):
            if path.suffix in (".cc", ".h", ".c", ".py", ".sh", ".txt", ".cmake"):
                text += path.read_text(errors="replace")
    names = 0
    for name, words in pages.pages(root):
        for variable in sorted(set(re.findall(r"\bWEFT_[A-Z_]+[A-Z]\b", words))):
            names += 1
            if variable not in text:
                wrong.append(f"{name}: nothing reads {variable}")
    return len(options) + len(packages) + names, wrong


def main():
    root = pathlib.Path(sys.argv[1])
    text = (root / PAGE).read_text()
    quoted, wrong, reworded = quotation_faults(PAGE, text, messages(root))
    codes, of_codes = code_faults(root)
    checks, of_checks = check_faults(root, text)
    names, of_names = install_faults(root)
    wrong += of_codes + of_checks + of_names
    if quoted < 40 or codes < 12 or checks < 10 or names < 40:
        wrong.append(f"only {quoted} quotations, {codes} codes, {checks} checks, {names} names")
    for line in reworded + wrong:
        print(line)
    print(f"{quoted} messages, {codes} codes of errors, {checks} checks and {names} names "
          f"compared with the sources: {len(wrong)} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
