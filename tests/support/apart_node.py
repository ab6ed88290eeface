"""A node's process that takes each device of this host for one of a machine of its own."""

import os

from bakeoff.cluster import node
from bakeoff.machine import host, identity

if __name__ == "__main__":
    os.environ[identity.VARIABLE] = host.node()
    node.main()
