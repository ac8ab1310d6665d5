"""Time limits of Python tests; the same as limits.h.

A test waits for an event. Its limit only ends a hang, so it is wide enough for a busy machine and
nothing measures how busy the machine is.
"""
import os

NIGHTLY = os.environ.get("WEFT_TEST_NIGHTLY") == "1"


def limit(seconds):
    """Upper bound in seconds for work that takes an idle machine `seconds`."""
    return seconds * (4 if NIGHTLY else 10)


def timeout_ms(ms):
    """Value for an option such as --timeout-ms: short enough that a test can wait until it passes,
    long enough that a live process on a busy machine keeps it."""
    return str(4 * ms)
