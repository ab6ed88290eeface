"""The command line with short clocks: `python fast_bakeoff.py sweep ...`, for tests that kill or interrupt it."""

import signal
import sys

import pytest
from lab import shorten_clocks
from shared_headers import share_headers

from bakeoff import cli

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # SIGINT is ignored in a process started in the background
    shorten_clocks(pytest.MonkeyPatch())
    share_headers(sys.argv)
    cli.main()
