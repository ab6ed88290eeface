"""Advice from measurements: each rule has a condition, a line of evidence, and an upper bound of what it could gain."""
