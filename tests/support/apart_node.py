"""A node's process that takes each device of this host for one of a machine of its own; its workers measure nothing."""

import os

from forked_workers import TORCHLESS

from bakeoff.cluster import node
from bakeoff.machine import host, identity
from bakeoff.process import supervisor

if __name__ == "__main__":
    os.environ |= {identity.VARIABLE: host.node(), "BAKEOFF_TEST_SURE": "1"}
    supervisor.WORKER = TORCHLESS
    node.main()
