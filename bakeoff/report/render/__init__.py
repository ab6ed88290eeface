"""Documents for a terminal, as markdown and as HTML."""
