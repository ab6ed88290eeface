"""Profiler traces: reads and writes Chrome's JSON, divides a trace into lines of the account, and sums each line."""
