"""Ten public models of different kinds with random weights, as a user brings them.

.venv/bin/pip install -e '.[zoo]' -c constraints.txt
.venv/bin/bakeoff sweep examples/bring/zoo.py:resnet50
"""

import torch
from torch import Tensor, nn

Brought = tuple[nn.Module, dict[str, Tensor | bool]]


def resnet50() -> Brought:
    """Convolutions with BatchNorm."""
    from torchvision.models import resnet50

    return resnet50().eval(), {"x": torch.randn(1, 3, 224, 224)}


def vit() -> Brought:
    """A vision transformer."""
    import timm

    return timm.create_model("vit_small_patch16_224").eval(), {"x": torch.rand(1, 3, 224, 224)}


def gpt2() -> Brought:
    """A language model: integer inputs, a mask, and an output of a class of its own."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=6, use_cache=False)).eval()
    ids = torch.randint(0, 50257, (1, 64))
    return model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def unet() -> Brought:
    """A diffusion UNet: a timestep, keyword inputs, an output that is a dataclass."""
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        block_out_channels=(64, 128), layers_per_block=1, cross_attention_dim=64, attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    return model.eval(), {
        "sample": torch.randn(1, 4, 32, 32),
        "timestep": torch.tensor([500]),
        "encoder_hidden_states": torch.randn(1, 8, 64),
    }


def dit() -> Brought:
    """A diffusion transformer."""
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(num_attention_heads=4, attention_head_dim=32, num_layers=4, sample_size=16)
    return model.eval(), {
        "hidden_states": torch.randn(1, 4, 16, 16),
        "timestep": torch.tensor([500]),
        "class_labels": torch.tensor([7]),
    }


def wav2vec() -> Brought:
    """Audio: strided one-dimensional convolutions, then a transformer."""
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)
    return Wav2Vec2Model(config).eval(), {"input_values": torch.randn(1, 16000)}


def deeplab() -> Brought:
    """Dictionary outputs."""
    from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large

    model = deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, aux_loss=True).eval()
    return model, {"x": torch.randn(1, 3, 224, 224)}


def regnet() -> Brought:
    """A constructor that reads values, which tensors on the meta device do not have."""
    from torchvision.models import regnet_y_400mf

    return regnet_y_400mf().eval(), {"x": torch.randn(1, 3, 224, 224)}


def autoencoder() -> Brought:
    """A random output: it draws its latent."""
    from diffusers import AutoencoderKL

    model = AutoencoderKL(block_out_channels=(32,), norm_num_groups=8).eval()
    return model, {"sample": torch.randn(1, 3, 64, 64), "sample_posterior": True}


def longformer() -> Brought:
    """Control flow that depends on values: it cannot be exported as one graph."""
    from transformers import LongformerConfig, LongformerModel

    config = LongformerConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, attention_window=64
    )
    ids = torch.randint(0, 30522, (1, 256))
    return LongformerModel(config).eval(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
