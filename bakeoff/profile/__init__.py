"""Profiles: traces read into busy and idle time by phase, kernels, operators, and advice. No torch is imported here."""
