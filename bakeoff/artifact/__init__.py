"""Exports a variant to a folder that loads elsewhere, and verifies it."""
