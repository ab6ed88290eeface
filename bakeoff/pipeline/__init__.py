"""Runs of whole pipelines: plans mixes of variants, runs them side by side, and makes their records."""
