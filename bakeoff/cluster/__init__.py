"""Sweeps on other nodes: a driver sends orders, a process on each node carries one out and reports as it goes on."""
