"""Put on the path of a worker: opening a program needs more memory than any host has."""

from bakeoff.backends import torch_export

_modest = torch_export._open


def _greedy(path):
    import torch

    kept = torch.ones(1 << 44)
    run = _modest(path)
    return lambda tensors, _kept=kept: run(tensors)


torch_export._open = _greedy
