#!/usr/bin/env python3
"""The documents, and the examples in --help, name only commands and flags that `weft COMMAND
--help` lists.

Usage: flags_test.py WEFT ROOT
"""
import re
import sys

import help_flags
import pages

# Flags of other programs that pages name outside of a command line.
OTHERS = {
    "--asan", "--fleet", "--fuzz", "--nightly", "--tsan",  # ./test
    "--install", "--small",  # ./quickstart
    "--apply_chat_template",  # lm-eval
    "--head", "--dashboard-host", "--address", "--working-dir", "--no-wait", "--runtime-env-json",
    "--logdir", "--replicas",  # ray, tensorboard, kubectl
    "--bind-to", "--mpi", "--requeue", "--signal", "--exclusive", "--constraint",  # mpirun, sbatch
    "--kills", "--seconds", "--llama", "--kinds", "--only", "--fix",  # scripts of this repository
    "--gtest_filter", "--preset", "--build", "--prefix", "--target",  # tests, CMake
    "--device=/dev/infiniband", "--ulimit", "--network",  # containers
    "--user", "--now",  # systemctl
    "--temperature", "--max-model-len",  # of other programs, taken as Weft's (src/cli/command_line)
    "--permanent", "--zone", "--add-source", "--reload",  # firewall-cmd
    "--key",  # llm
}


def faults(root, known):
    """Returns (counts, faults)."""
    wrong, calls, names = [], 0, 0
    for page, text in pages.pages(root):
        lines = []
        for block in pages.blocks(page, text):
            if block.language in pages.SHELLS:
                lines += [(block.place, line) for line in pages.commands(block.text)]
            elif block.language == "text":
                lines += [(block.place, line[2:]) for line in pages.commands(block.text)
                          if line.startswith("$ ")]
        for number, code in pages.inline_code(text):
            if re.match(r"(\S+/)?weft [a-z]", code):
                lines.append((f"{page}:{number}", code))
            for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", code):
                names += 1
                if flag.replace("_", "-") not in known.all_flags() and flag not in OTHERS:
                    wrong.append(f"{page}:{number}: no command has a flag {flag}")
        for place, line in lines:
            for words in pages.weft_words(line):
                calls += 1
                wrong += [f"{place}: 'weft {' '.join(words)}': unknown: {word}"
                          for word in known.unknown(words)]
    return (calls, names), wrong


def example_faults(known):
    """Returns (number of examples, faults) of the examples in --help."""
    wrong, calls = [], 0
    for command, line in known.examples:
        for words in pages.weft_words(line):
            calls += 1
            wrong += [f"weft {' '.join(command)} --help: '{line}': unknown: {word}"
                      for word in known.unknown(words)]
    return calls, wrong


def main():
    weft, root = sys.argv[1:]
    known = help_flags.Help(weft)
    (calls, names), wrong = faults(root, known)
    examples, of_examples = example_faults(known)
    wrong += of_examples
    if calls < 80 or names < 200 or examples < 40:
        wrong.append(f"only {calls} command lines, {names} flags, {examples} examples were found")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{calls} command lines, {examples} examples of --help and {names} names of flags "
          f"compared with --help: {len(wrong)} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
