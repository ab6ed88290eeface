"""A backend whose module raises MemoryError in workers: these alone have a limit of memory, and other arguments."""

import os

from bakeoff.process.environment import IN_WORKER
from bakeoff.selftest.faulty import canary, doing

if IN_WORKER in os.environ:
    raise MemoryError

BACKEND = canary("memory", "does so", doing(lambda: None))
