"""Checks of a measured engine: outputs, dispatched operators, fresh inputs, memory."""
