"""Several processes that run one pipeline together: who each of them is, and their records side by side."""
