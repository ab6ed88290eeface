"""Pages made from records alone: the same records give the same bytes."""
