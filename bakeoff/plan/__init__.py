"""From a request to rows: which variants will run, and what is known about each beforehand."""
