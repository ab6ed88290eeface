"""The worker's side of an export: samples, programs, verification."""
