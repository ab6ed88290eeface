"""Runs a pipeline in a worker: builds its programs, feeds them, and accounts for every nanosecond of a unit."""
