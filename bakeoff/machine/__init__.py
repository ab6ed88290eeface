"""This machine: its hardware and versions, its folders and caches, and datasheets of GPUs. Imports no torch."""
