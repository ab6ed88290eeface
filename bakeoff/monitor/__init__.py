"""Watching a machine from a process of its own: GPUs by NVML, processes by /proc, memory by cgroups, CPUs by RAPL."""
