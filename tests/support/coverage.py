#!/usr/bin/env python3
"""Prints the share of lines that tests ran, for each folder of src/ and in all.

    tests/support/coverage.py SUMMARY      SUMMARY: of gcovr --json-summary
"""
import collections
import json
import pathlib
import sys


def main():
    folders = collections.defaultdict(lambda: [0, 0])
    for file in json.loads(pathlib.Path(sys.argv[1]).read_text())["files"]:
        folder = pathlib.PurePath(file["filename"]).parts[1]
        for name in (folder, "all of src"):
            folders[name][0] += file["line_covered"]
            folders[name][1] += file["line_total"]
    for name, (covered, lines) in sorted(folders.items(), key=lambda row: row[1][1]):
        print(f"{name:12} {covered:6} of {lines:6} lines  {100 * covered / max(lines, 1):5.1f} %")


main()
