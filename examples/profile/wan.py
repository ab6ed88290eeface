"""Wan 2.1 of diffusers with random weights, profiled from outside: no line of the pipeline is changed.

    pip install diffusers transformers
    python examples/profile/wan.py [--videos 4] [--size 64] [--frames 9] [--device cuda:0]

Needs torch, diffusers and transformers, which diffusers imports; none of them is a dependency of bakeoff. It was run
with diffusers 0.42.1. Nothing is downloaded: weights are random, the network is small, and text embeddings are drawn in
place of an encoder's. With weights of your own, replace `make_pipeline` by `WanPipeline.from_pretrained(...)`; the
lines marked `# +` stay.

One unit is one video. Wan decodes latent frame by latent frame, each a range within `decode`. With guidance a step is
two passes of the transformer, so each index is counted twice a video.
"""

import argparse
from typing import Any

import torch
from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanPipeline, WanTransformer3DModel

from bakeoff.profile import Profiler, Settings, phase, stage, step  # +

TEXT_WIDTH, TOKENS = 64, 32


def make_pipeline(device: str) -> Any:
    """Wan's classes with few and narrow layers."""
    torch.manual_seed(0)
    transformer = WanTransformer3DModel(
        num_attention_heads=4,
        attention_head_dim=24,
        in_channels=16,
        out_channels=16,
        text_dim=TEXT_WIDTH,
        freq_dim=64,
        ffn_dim=256,
        num_layers=4,
        rope_max_seq_len=64,
    )
    decoder = AutoencoderKLWan(base_dim=16, z_dim=16, num_res_blocks=1)
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    made = WanPipeline(tokenizer=None, text_encoder=None, vae=decoder, scheduler=scheduler, transformer=transformer)
    made.set_progress_bar_config(disable=True)
    return made.to(device)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--videos", type=int, default=4)
    parser.add_argument("--size", type=int, default=64, help="height and width, a multiple of 16")
    parser.add_argument("--frames", type=int, default=9, help="one more than a multiple of 4")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--settings", default="", help="TOML file; without it the defaults")
    asked = parser.parse_args()

    settings = Settings.load(asked.settings) if asked.settings else Settings(enabled=True)
    profiler = Profiler(settings, device=asked.device).install()  # +
    with profiler.stage("build"):  # +
        pipe = make_pipeline(asked.device)
    passes = step(lambda _: pipe.scheduler.step_index or 0, "timestep")(pipe.transformer.forward)  # +
    pipe.transformer.forward = phase("transformer")(passes)  # +
    pipe.scheduler.step = phase("scheduler")(pipe.scheduler.step)  # +
    pipe.vae.decode = phase("decode")(pipe.vae.decode)  # +
    pipe.vae.decoder.forward = stage("latent frame")(pipe.vae.decoder.forward)  # +
    pipe.video_processor.postprocess_video = phase("present")(pipe.video_processor.postprocess_video)  # +

    text = torch.randn(1, TOKENS, TEXT_WIDTH, device=asked.device)
    with profiler.session("wan", tags={"steps": asked.steps, "size": asked.size}) as session:  # +
        session.parameters("transformer", pipe.transformer)  # +
        for _ in range(asked.videos):
            with session.unit(frames=asked.frames):  # +
                pipe(
                    prompt_embeds=text,
                    negative_prompt_embeds=torch.zeros_like(text),
                    height=asked.size,
                    width=asked.size,
                    num_frames=asked.frames,
                    num_inference_steps=asked.steps,
                    output_type="pt",
                )
    print(*session.files, sep="\n")


if __name__ == "__main__":
    main()
