"""Runs sweeps and comparisons: workers for each row, records, finals, and resuming after an interruption."""
