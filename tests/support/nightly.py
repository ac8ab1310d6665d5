"""Selects nightly tests (./test --nightly): nightly.h for Python tests."""
import os
import unittest


def nightly():
    return os.environ.get("WEFT_TEST_NIGHTLY") == "1"


def in_turn(index, of):
    """Selects one of `of` cases daily, all nightly."""
    return nightly() or index % of == 0


def some(cases, of=4):
    """One of `of` cases daily, all nightly."""
    return [case for index, case in enumerate(cases) if in_turn(index, of)]


def nightly_only(test):
    """Skips a test, or a class of tests, in the daily suite."""
    return unittest.skipUnless(nightly(), "./test --nightly runs it")(test)
