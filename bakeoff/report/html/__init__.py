"""The HTML page of `bakeoff report`."""
