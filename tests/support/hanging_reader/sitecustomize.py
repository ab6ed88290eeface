"""Put on the path of a worker: opening a program never ends."""

import time

from bakeoff.backends import torch_export

torch_export._open = lambda _path: time.sleep(600)
