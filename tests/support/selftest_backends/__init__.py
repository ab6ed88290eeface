"""Backends of the whole selftest beside those of the product: faulty ones, and correct ones that are unusual."""
