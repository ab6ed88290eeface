"""From a variant to a folder that loads elsewhere, and its verification."""
