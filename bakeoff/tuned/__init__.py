"""Puts exported winners into a live object, compares it end to end, and restores it."""
