"""Put on the path of a worker: torch.export writes a different module from the one it was given."""

from bakeoff.backends import torch_export

_honest = torch_export._save


def _lie(module, inputs, path):
    for parameter in module.parameters():
        parameter.data.mul_(1.01)
    return _honest(module, inputs, path)


torch_export._save = _lie
