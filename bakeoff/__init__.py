"""Compiler-backend comparison lab for real-time world models."""

__version__ = "0.1.0"
