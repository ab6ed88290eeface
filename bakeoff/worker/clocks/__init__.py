"""The clocks: timing, steady state, ceilings, and the check of the clock itself."""
