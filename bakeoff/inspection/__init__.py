"""Finds where the time of a user's own callable goes, by module and method, and which modules are worth a sweep."""
