"""A language model with tied weights that returns a dict that is a dataclass, some parts None (pytorch#96386).

Such an object is no pytree, and its weights are one tensor under two names (transformers#12985). Expected: the
outputs have the names of its fields, None is no output, and the tied weight is counted once.
"""

from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Output(OrderedDict[str, Any]):
    """As the ones of transformers: a field that is not None is also an item."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(256, 64), nn.Linear(64, 256, bias=False)
        self.body, self.norm = nn.GRU(64, 64, batch_first=True), nn.RMSNorm(64)
        self.head.weight = self.embed.weight

    def forward(self, input_ids: Tensor) -> Output:
        embedded = self.embed(input_ids)
        hidden = self.norm(self.body(embedded)[0])
        return Output(logits=self.head(hidden), hidden_states=(embedded, hidden))


def model() -> Any:
    return Language().eval(), {"input_ids": torch.randint(0, 256, (2, 16))}
