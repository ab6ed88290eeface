"""On the path of a worker: a program dies of a segfault when it is opened."""

import os
import signal

from bakeoff.backends import torch_export

torch_export._open = lambda _path: os.kill(os.getpid(), signal.SIGSEGV)
