"""The worker's side of an export: makes samples, writes programs, and verifies artifacts."""
