"""Bringing models of users: from a file, an archive or a live module to a described folder, and the Python entrance."""
