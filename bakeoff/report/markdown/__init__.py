"""Pages in markdown: the optimization history and README's results."""
