"""Selects nightly tests (./test --nightly): nightly.h for Python tests."""
import os


def nightly():
    return os.environ.get("WEFT_TEST_NIGHTLY") == "1"


def in_turn(index, of):
    """Selects one of `of` cases daily, all nightly."""
    return nightly() or index % of == 0


def some(cases, of=2):
    """One of `of` cases daily, all nightly."""
    return [case for index, case in enumerate(cases) if in_turn(index, of)]
