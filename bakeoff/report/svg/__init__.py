"""Figures as SVG files, drawn with matplotlib."""
