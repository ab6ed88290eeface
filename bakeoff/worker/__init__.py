"""The side that imports torch: one process for each job, started by bakeoff.process.supervisor and by nothing else."""
