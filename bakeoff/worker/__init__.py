"""The side that imports torch: one process for each job, started by bakeoff.supervisor and by nothing else."""
