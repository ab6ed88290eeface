"""Glue modules of wrong loops."""
