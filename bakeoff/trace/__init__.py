"""Traces: read and written as Chrome's JSON, divided by the stamps of the account, and added up by line."""
