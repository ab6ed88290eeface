"""Brought models in a worker: loaded from their source, described by running them, and built for each workload."""
