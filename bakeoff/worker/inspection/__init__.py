"""Runs a user's callable and attributes its time to modules and methods."""
