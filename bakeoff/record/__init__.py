"""What was measured: the schema of a record, the store, and figures computed from samples."""
