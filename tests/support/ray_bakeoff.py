"""The command line with short clocks for sweeps on a cluster or on GPUs: `python ray_bakeoff.py sweep toy --on ray`.

With `NODE` in the environment, nodes run that script instead of the lab's own.
"""

import functools
import os
import sys

import fake_gpus
from lab import FAST

from bakeoff import cli
from bakeoff.cluster import order
from bakeoff.plan import request

NODE = "BAKEOFF_TEST_NODE"

if __name__ == "__main__":
    fake_gpus.install()
    request.FINAL_S = float(os.environ.get("BAKEOFF_TEST_FINAL_S", "0"))
    request.Request = functools.partial(request.Request, policy=FAST, ceilings=False)  # type: ignore[misc, assignment]
    if os.environ.get(NODE):
        order.NODE = tuple(os.environ[NODE].split())
    sys.path.append(os.getcwd())
    cli.main()
