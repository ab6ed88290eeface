"""What a measured engine is checked for: outputs, dispatched operators, fresh inputs, memory."""
