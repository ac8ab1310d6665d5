"""Time limits of Python tests; the same as limits.h.

A test waits for an event. Its limit only ends a hang, so it is wide enough for a busy machine;
no test measures the load.
"""
import os

NIGHTLY = os.environ.get("WEFT_TEST_NIGHTLY") == "1"


def limit(seconds):
    """Upper bound in seconds for work that takes `seconds` on an idle machine."""
    return seconds * (4 if NIGHTLY else 10)


def timeout_ms(ms):
    """Value for an option such as --timeout-ms: short enough for a test to wait until it
    expires, long enough for a live process on a busy machine to keep it."""
    return str(4 * ms)
