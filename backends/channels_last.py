"""Stores the weights of convolutions with the channels innermost, in torch's memory format channels_last.

A convolution whose weight has this layout computes in it and returns it, whatever the layout of its input
(aten/src/ATen/native/ConvUtils.h, mkldnn_conv_use_channels_last and cudnn_conv_suggest_memory_format), so the layout
spreads from weights to all activations that follow. cuDNN's fastest kernels for 16-bit dtypes need it, and inductor
chooses it by itself.
"""

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING

from bakeoff.backends.backend import Unsupported
from bakeoff.backends.torch_internals import watch_dispatch
from bakeoff.models.component import Layer

if TYPE_CHECKING:
    from torch import Tensor, nn

CONVOLUTIONS: tuple[Layer, ...] = ("conv1d", "conv2d", "conv3d")


def store_channels_last(module: "nn.Module", inputs: "Mapping[str, Tensor]") -> int:
    """Store the weights of the module's convolutions in channels_last, in place, and return how many were changed.

    One call of the module finds the weights: a convolution may read a view of its weight, and then the view gets the
    layout. Raises Unsupported if no convolution reads a weight of the module as it is stored.
    """
    import torch

    read: list[Tensor] = []

    def note(operator: object, tensors: "list[Tensor]", _result: object) -> None:
        if str(operator) == "aten.convolution.default":
            read.append(tensors[1])

    with torch.no_grad(), watch_dispatch(note):
        module(*inputs.values())
    owners: dict[int, list[Tensor]] = {}
    for tensor in dict.fromkeys(chain(module.parameters(), module.buffers())):
        owners.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
    stored = 0
    for view in read:
        owner = owners.pop(view.untyped_storage().data_ptr(), [])
        if len(owner) == 1 and owner[0].is_contiguous() and owner[0].numel() == view.numel():
            laid_out = _laid_out(owner[0].detach(), view.detach())
            if laid_out is not None:
                owner[0].data = laid_out
                stored += 1
    if not stored:
        raise Unsupported("channels_last: no convolution reads a weight of the module as it is stored; leave it out")
    return stored


def _laid_out(weight: "Tensor", view: "Tensor") -> "Tensor | None":
    """Return a copy of a contiguous weight whose `view`, which covers the whole weight, has the layout channels_last.

    None if no strides allow this, for example if the view splits a dimension.
    """
    import torch

    shown = view.unsqueeze(2) if view.dim() == 3 else view
    layout = torch.channels_last if shown.dim() == 4 else torch.channels_last_3d
    places = torch.arange(weight.numel()).as_strided(shown.shape, shown.stride()).contiguous(memory_format=layout)
    order = places.permute(0, *range(2, shown.dim()), 1).flatten()  # the weight's elements as the copy stores them
    place = torch.empty_like(order)
    place[order] = torch.arange(weight.numel())
    steps = [int(place[step]) if size > 1 else 1 for size, step in zip(weight.shape, weight.stride(), strict=True)]
    if sum((size - 1) * step for size, step in zip(weight.shape, steps, strict=True)) != weight.numel() - 1:
        return None
    copy = weight.flatten()[order.to(weight.device)].as_strided(weight.shape, steps)
    return copy if torch.equal(copy, weight) else None
