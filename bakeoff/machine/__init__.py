"""This machine: facts, folders, caches and datasheets. Imports no torch."""
