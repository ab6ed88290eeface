"""What the figures show as plain data, and each as a Vega-Lite specification, drawn as SVG and on the HTML page."""
