"""Puts exported programs into a live object, compares the object end to end with and without them, and restores it."""
