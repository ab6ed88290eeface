"""Put on the path of a worker: opening a program allocates eight gigabytes."""

from bakeoff.backends import torch_export

_modest = torch_export._open


def _greedy(path):
    import torch

    kept = torch.ones(2 << 30)
    run = _modest(path)
    return lambda tensors, _kept=kept: run(tensors)


torch_export._open = _greedy
