"""Pages: documents made from records."""
