"""Figures of reports as Vega-Lite specifications with their data, drawn as SVG files and on HTML pages."""
