"""Bringing in a user's model: a Python file, an exported archive or a live module becomes a described folder."""
