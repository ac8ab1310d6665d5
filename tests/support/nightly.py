"""Selects nightly tests (./test --nightly): nightly.h for Python tests."""
import os


def nightly():
    return os.environ.get("WEFT_TEST_NIGHTLY") == "1"


def in_turn(index, of):
    """Selects one of `of` cases daily, all nightly."""
    return nightly() or index % of == 0
