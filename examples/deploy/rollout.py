"""Computes frames of a game with artifacts of the world model, image decoder and audio decoder, and times each part.

    python rollout.py --wm DIR --image DIR --audio DIR [--frames 30] [--steps 4] [--plot frames.png]

The world model's `context` fills the window once. Each frame is then denoised in `--steps` steps, its keys and values
are appended to the window, and it is decoded to a picture and to sound. With artifacts of random weights the pictures
are noise, but the times are valid. The first frame is cold, so its times are apart from the medians of the others.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from bakeoff.export import Artifact, Program, load

Times = dict[str, list[float]]


@contextmanager
def clocked(times: Times, part: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    times.setdefault(part, []).append((time.perf_counter() - started) * 1000)


def drawer(program: Program) -> Callable[[str], Tensor]:
    """Return a function from the name of an input to random values for it."""
    ports = {port.name: port for port in program.about.inputs}

    def draw(name: str) -> Tensor:
        port = ports[name]
        return torch.randn(port.shape).to(program.device, getattr(torch, port.dtype))

    return draw


def check_shapes(wm: Artifact, image: Artifact, audio: Artifact) -> None:
    """Raise SystemExit if the latents of the world model do not have the shape that a decoder takes."""
    latents = {port.name: port.shape for port in wm.program(wm.manifest.main).about.outputs}
    picture, sound = (one.program(one.manifest.main).about.inputs[0].shape for one in (image, audio))
    for decoder, takes, returns in ((image, picture[1:], latents["video"][2:]), (audio, sound[1], latents["audio"][2])):
        if takes != returns:
            raise SystemExit(
                f"{decoder.folder.name} takes latents of {takes}, but {wm.folder.name} returns {returns}; "
                "use artifacts of presets that fit"
            )


def follow(wm: Artifact, image: Artifact, audio: Artifact, frames: int, steps: int) -> Times:
    """Compute frames; return the times in ms of each part, one for each frame."""
    times: Times = {}
    step = wm.program(wm.manifest.main)
    draw = drawer(step)
    sound = next(port for port in audio.program(audio.manifest.main).about.inputs if port.name == "z")
    heard = torch.zeros(sound.shape, dtype=getattr(torch, sound.dtype), device=step.device)
    contract = wm.manifest.stream
    assert contract is not None
    for name in contract.workloads:
        wm.program(name)  # opens it now, so that its first call is not slower
    stream = wm.stream()
    (context,), (_, append) = contract.opening, contract.each
    first = drawer(wm.program(context))
    with clocked(times, "opening"):
        stream.begin(**{name: first(name) for name in ("x", "audio", "t", "mouse", "btn")})
    wm.close(context)  # only used once
    for _ in range(frames):
        x, a, mouse, btn = draw("x"), draw("audio"), draw("mouse"), draw("btn").gt(0).to(draw("btn").dtype)
        with clocked(times, "denoise"):
            for index in range(steps):  # rectified flow: the velocity points from data to noise
                t = torch.full_like(draw("t"), 1 - index / steps)
                out = stream.call(wm.manifest.main, x=x, audio=a, t=t, mouse=mouse, btn=btn)
                x, a = x - out["video"] / steps, a - out["audio"] / steps
        with clocked(times, "append"):
            stream.call(append, x=x, audio=a, t=torch.zeros_like(draw("t")), mouse=mouse, btn=btn)
        with clocked(times, "picture"):
            image(z=x[:, 0].to(getattr(torch, image.program("decode").about.inputs[0].dtype)))
        heard = torch.cat((heard[..., 1:], a.reshape(*heard.shape[:-1], 1).to(heard.dtype)), -1)
        with clocked(times, "sound"):
            audio(z=heard)
    return times


def in_words(taken: list[float]) -> str:
    """The first time apart, since it is cold, and the median of the others."""
    first, *warm = taken
    text = f"first {first:.1f} ms"
    return f"{text}, median of {len(warm)} warm ones {statistics.median(warm):.1f} ms" if warm else text


def plot(times: Times, path: Path) -> None:
    """Write the time of each frame's parts as bars on one another, a PNG."""
    import vl_convert

    parts = ("denoise", "append", "picture", "sound")
    values = [
        {"frame": frame, "part": part, "order": order, "ms": ms}
        for order, part in enumerate(parts)
        for frame, ms in enumerate(times[part], start=1)
    ]
    spec = {
        "title": "Time of each frame",
        "width": 800,
        "data": {"values": values},
        "mark": "bar",
        "encoding": {
            "x": {"field": "frame", "type": "ordinal", "axis": {"labelAngle": 0}},
            "y": {"field": "ms", "type": "quantitative"},
            "color": {"field": "part", "type": "nominal", "sort": parts, "title": None},
            "order": {"field": "order"},
        },
    }
    path.write_bytes(vl_convert.vegalite_to_png(spec, scale=1.5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("wm", "image", "audio"):
        parser.add_argument(f"--{name}", type=Path, required=True, metavar="DIR")
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--steps", type=int, default=4, help="denoising steps of a frame")
    parser.add_argument("--plot", type=Path, default=Path("frames.png"))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    artifacts = [load(folder) for folder in (arguments.wm, arguments.image, arguments.audio)]
    check_shapes(*artifacts)
    with torch.no_grad():
        times = follow(*artifacts, arguments.frames, arguments.steps)
    for part, taken in times.items():
        print(f"{part:8} {in_words(taken)}")
    whole = [sum(taken) for taken in zip(*(times[part] for part in times if part != "opening"), strict=True)]
    warm = whole[1:]
    rate = f", {1000 / statistics.median(warm):.2f} frames/s" if warm else ""
    print(f"{'frame':8} {in_words(whole)}{rate}")
    plot(times, arguments.plot)
    print(f"plot: {arguments.plot}")


if __name__ == "__main__":
    main()
