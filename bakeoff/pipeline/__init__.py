"""Whole frames: plans a mix of variants, runs it beside others, and makes its record."""
