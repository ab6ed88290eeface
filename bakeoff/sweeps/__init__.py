"""Turns rows into records: a session, one row after the other, finals, comparisons, resume."""
