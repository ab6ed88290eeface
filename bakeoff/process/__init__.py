"""Runs one job in one worker process: the job, its supervisor, guard, environment and deadlines."""
