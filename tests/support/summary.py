#!/usr/bin/env python3
"""Summary of ctest's runs: skipped tests with each reason once, failed tests with their
messages, and the counts in the last line.

    tests/support/summary.py [--also-failed NAME]... RESULTS.xml...

RESULTS.xml is written by `ctest --output-junit`; a missing one counts as a failure. A test that
could not start has failed. --also-failed names a failure without test results (a build, a fuzz
target, ctest itself); it is omitted if NAME.xml has a failure, which tells more.

Exit status: 0 when nothing failed, else 1.
"""
import argparse
import collections
import os
import re
import sys
import xml.etree.ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
LONGEST_REASON = 300
MOST_LINES = 25  # of a failed test's output


def reason_of(case):
    """The reason why a test was skipped: for GoogleTest the text after `FILE:LINE: Skipped`,
    else the line with SKIPPED, or the last line."""
    text = case.findtext("system-out") or ""
    google = re.search(r"^\S+:\d+: Skipped\n(.*?)\n\s*\[  SKIPPED \]", text, re.S | re.M)
    if google:
        reason = google[1]
    else:
        lines = [line for line in text.splitlines() if line.strip()]
        said = [line for line in lines if re.match(r"\W*skipp", line, re.IGNORECASE)]
        reason = (said or lines[-1:] or ["it does not say why"])[-1]
    return " ".join(reason.split())[:LONGEST_REASON]


def outcome(case):
    """PASSED, FAILED or SKIPPED, and the reason."""
    status = case.get("status")
    if status == "run":
        return PASSED, ""
    if status == "disabled":
        return SKIPPED, "disabled"
    skipped = case.find("skipped")
    message = skipped.get("message", "") if skipped is not None else ""
    if status == "notrun" and message.startswith("SKIP_"):
        return SKIPPED, reason_of(case)
    return FAILED, message


def complaint_of(case):
    """The lines of a failed test's output with the reason: from each failed expectation,
    traceback or error on, without a server's log."""
    lines = [line[:LONGEST_REASON] for line in (case.findtext("system-out") or "").splitlines()
             if line.strip() and not line.startswith("weft: time=")]
    begins = [at for at, line in enumerate(lines)
              if re.search(r": Failure$|^Traceback|^(ERROR|FAIL):|runtime error|Sanitizer", line)]
    wanted = sorted({at for begin in begins for at in range(begin, begin + 12) if at < len(lines)})
    return [lines[at] for at in wanted][:MOST_LINES] or lines[-MOST_LINES:]


def read(path):
    """(name, outcome, reason, complaint) of each test."""
    try:
        cases = list(xml.etree.ElementTree.parse(path).iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        return [(os.path.basename(path), FAILED, f"no results: {error}", [])]
    return [test for case in cases for test in tests_of(case)]


def tests_of(case):
    """(name, outcome, reason, complaint) of a case, or of each test of a GoogleTest suite."""
    what, reason = outcome(case)
    whole = (case.get("name"), what, reason, complaint_of(case))
    text = case.findtext("system-out") or ""
    if what == FAILED or not re.search(r"(?m)^\[==========\] [\d,]+ tests? from .* ran\.", text):
        return [whole]
    found = [(name, PASSED, "", []) for name in re.findall(r"(?m)^\[       OK \] (\S+?),? ", text)]
    skips = re.findall(r"(?ms)^\S+:\d+: Skipped\n(.*?)\n\s*\[  SKIPPED \] (\S+?),? ", text)
    found += [(name, SKIPPED, " ".join(why.split())[:LONGEST_REASON], []) for why, name in skips]
    return found if len(found) > 1 else [whole]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--also-failed", metavar="NAME", action="append", default=[])
    parser.add_argument("results", nargs="*")
    options = parser.parse_args()
    found, explained = [], set()
    for path in options.results:
        tests = read(path)
        found += tests
        if any(test[1] == FAILED for test in tests):
            explained.add(os.path.basename(path).removesuffix(".xml"))
    found += [(name, FAILED, "", []) for name in options.also_failed if name not in explained]
    of = collections.defaultdict(list)
    reasons = collections.defaultdict(list)
    complaints = []
    for name, what, reason, complaint in found:
        of[what].append(name + (f" ({reason})" if what == FAILED and reason else ""))
        if what == SKIPPED:
            reasons[reason].append(name)
        if what == FAILED and complaint:
            complaints.append((name, complaint))
    if reasons:
        print("\nSkipped:")
    for reason, names in sorted(reasons.items(), key=lambda entry: -len(entry[1])):
        print(f"  {len(names):4}  {reason}")
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        print(f"        {shown}")
    for name, complaint in complaints:
        print(f"\n{name} said:")
        print("\n".join("    " + line for line in complaint))
    if of[FAILED]:
        print("\nFailed:")
    for name in of[FAILED]:
        print(f"        {name}")
    print(f"\n{len(of[PASSED])} passed, {len(of[FAILED])} failed, {len(of[SKIPPED])} skipped")
    return 1 if of[FAILED] else 0


if __name__ == "__main__":
    sys.exit(main())
