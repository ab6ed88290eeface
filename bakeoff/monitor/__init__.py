"""Monitoring of a machine by a separate process: GPUs by NVML, processes by /proc, memory by cgroups, CPUs by RAPL."""
