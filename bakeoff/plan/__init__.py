"""Turns a request into rows: the variants to run, and what is known about each beforehand."""
