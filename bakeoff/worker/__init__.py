"""Worker processes, the side that imports torch: one process a job, started only by bakeoff.process.supervisor."""
