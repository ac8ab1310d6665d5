"""Whether the long proofs run as well (./test --nightly): nightly.h for Python tests."""
import os


def nightly():
    return os.environ.get("WEFT_TEST_NIGHTLY") == "1"


def in_turn(index, of):
    """Every day one case of `of`, in the night all."""
    return nightly() or index % of == 0
