"""A diffusers pipeline of random weights as a loop: bakeoff pipeline examples/pipelines/diffusion.py:Loop

Needs `pip install diffusers transformers`.
"""

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel

from bakeoff import Pipeline

torch.manual_seed(0)
WIDTHS, CONTEXT = (32, 64), 32
unet = UNet2DConditionModel(
    sample_size=16,
    block_out_channels=WIDTHS,
    layers_per_block=1,
    cross_attention_dim=CONTEXT,
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
    up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
)
vae = AutoencoderKL(
    block_out_channels=WIDTHS,
    down_block_types=("DownEncoderBlock2D",) * 2,
    up_block_types=("UpDecoderBlock2D",) * 2,
    latent_channels=4,
)
pipe = StableDiffusionPipeline(
    vae.eval(), None, None, unet.eval(), DDIMScheduler(), None, None, requires_safety_checker=False
)
pipe.set_progress_bar_config(disable=True)


class Loop(Pipeline):
    signals = {"image": "picture"}

    def modules(self):
        return {"unet": pipe.unet, "vae.decode": pipe.vae}

    def given(self, unit, draw):
        return {"latents": draw("latents", (1, 4, 16, 16)), "prompt": draw("prompt", (1, 8, CONTEXT))}

    def step(self, state, given, run):
        with run.in_place():
            made = pipe(
                prompt_embeds=given["prompt"],
                latents=given["latents"],
                num_inference_steps=4,
                guidance_scale=1,
                output_type="pt",
            )
        return state, {"image": made.images}
