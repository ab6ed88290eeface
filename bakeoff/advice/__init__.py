"""Advice from what was measured: rules with a condition, a line of evidence, and the most that could be gained."""
