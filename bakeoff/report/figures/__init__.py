"""What the figures show, as plain data: drawn as SVG by `report/svg` and by Plotly on the HTML page."""
