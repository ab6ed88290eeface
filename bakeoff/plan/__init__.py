"""Turns a request into rows: which variants will run, and what is known about each beforehand."""
