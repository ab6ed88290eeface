"""Renderers of documents: as text for a terminal, as markdown and as HTML."""
