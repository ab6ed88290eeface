"""Records of what was measured: their schema, the store, and figures computed from samples."""
