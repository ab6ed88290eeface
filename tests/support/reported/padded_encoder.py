"""`nn.TransformerEncoder` with padded sequences, which takes another path in eager inference (pytorch#97111).

That path packs the sequences into nested tensors and gives zeros where they are padded; traced programs compute
something there. Expected: eager is `ok`; a difference at padded places alone is a true statement on the compiler.
"""

from typing import Any

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.embed, self.body = nn.Embedding(100, 64), nn.TransformerEncoder(layer, 2)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        padding = torch.arange(ids.shape[1], device=ids.device) >= lengths[:, None]
        made: Tensor = self.body(self.embed(ids), src_key_padding_mask=padding)
        return made


def model() -> Any:
    return Encoder().eval(), {"ids": torch.randint(0, 100, (3, 24)), "lengths": torch.tensor([20, 7, 16])}
