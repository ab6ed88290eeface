"""Reference outputs: made in high precision, loaded, and the error against them."""
