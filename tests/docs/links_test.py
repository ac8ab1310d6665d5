#!/usr/bin/env python3
"""Links in the documents lead to existing files and headings, and the paths in the text exist.

Usage: links_test.py ROOT
"""
import pathlib
import re
import sys

import pages

LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
PATH = r"(?:[\w.-]+/)+[\w.*-]+\.(?:h|cc|c|py|sh|md|json|jsonl|comp|cmake|toml)"
# Of `src/FOLDER/x.cc`.
STANDIN = re.compile(r"[A-Z]{2,}(?!\w*\.md)|/x[._]")


def anchors(text):
    """The anchors of a page's headings, as web pages of Git hosts make them."""
    found, inside = set(), False
    for line in text.split("\n"):
        inside ^= line.startswith("```")
        if not inside and line.startswith("#"):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()).lower()
            name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            found.add(name if name not in found else f"{name}-1")
    return found


def link_faults(root, name, text):
    """Returns (number of links, faults) of a page."""
    wrong, targets = [], LINK.findall(text)
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (pathlib.Path(root, name).parent / path) if path else pathlib.Path(root, name)
        if not file.exists():
            wrong.append(f"{name}: no file for the link {target}")
        elif anchor and anchor not in anchors(file.read_text()):
            wrong.append(f"{name}: no heading for the link {target}")
    return len(targets), wrong


def path_faults(name, text, files):
    """Returns (number of paths, faults). Checks paths that begin with a folder of the
    repository."""
    wrong, count = [], 0
    folders = {file.split("/")[0] for file in files if "/" in file}
    folders |= {file.split("/")[1] for file in files if file.startswith("src/")}
    for number, line in pages.prose(text):
        for path in re.findall(rf"(?<![\w./~-])(?:{PATH})(?!\w)", line):
            if path.split("/")[0] not in folders or "/" not in path or STANDIN.search(path):
                continue
            count += 1
            tail = re.compile("(^|/)" + re.escape(path).replace(r"\*", "[^/]*") + "$")
            if not any(tail.search(file) for file in files):
                wrong.append(f"{name}:{number}: there is no {path}")
    return count, wrong


def main():
    root = pathlib.Path(sys.argv[1])
    files = [str(path.relative_to(root)) for top in root.iterdir() if not
             top.name.startswith(("build", ".git")) for path in [top, *top.rglob("*")]]
    links = paths = 0
    wrong = []
    for name, text in pages.pages(root):
        count, faults = link_faults(root, name, text)
        links, wrong = links + count, wrong + faults
        count, faults = path_faults(name, text, files)
        paths, wrong = paths + count, wrong + faults
    if links < 100 or paths < 100:
        wrong.append(f"only {links} links and {paths} paths were found")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{links} links and {paths} paths looked for: {len(wrong)} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
