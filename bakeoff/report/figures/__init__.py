"""Data of the figures, and each as a Vega-Lite specification, drawn as SVG and on the HTML page."""
