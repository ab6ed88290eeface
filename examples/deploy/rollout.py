"""A player's frames: world model, image decoder and audio decoder as artifacts, the state carried from frame to frame.

    python rollout.py --wm DIR --image DIR --audio DIR [--frames 30] [--steps 4] [--plot frames.png]

Each frame is denoised in some steps, its keys and values join the window, and it is decoded to a picture and to sound.
Weights are whatever the artifacts were exported with: of random ones the pictures are noise, the times are real.
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
    """Noise for an input, by its name."""
    ports = {port.name: port for port in program.about.inputs}

    def draw(name: str) -> Tensor:
        port = ports[name]
        return torch.randn(port.shape).to(program.device, getattr(torch, port.dtype))

    return draw


def refuse_misfits(wm: Artifact, image: Artifact, audio: Artifact) -> None:
    """Raises SystemExit where a decoder does not take what the world model gives."""
    gives = {port.name: port.shape for port in wm.program(wm.manifest.main).about.outputs}
    picture, sound = (one.program(one.manifest.main).about.inputs[0].shape for one in (image, audio))
    if gives["video"][2:] != picture[1:]:
        raise SystemExit(
            f"{image.folder.name} takes latents of {picture[1:]}, {wm.folder.name} gives {gives['video'][2:]}"
        )
    if gives["audio"][2] != sound[1]:
        raise SystemExit(f"{audio.folder.name} takes latents of {sound[1]}, {wm.folder.name} gives {gives['audio'][2]}")


def follow(wm: Artifact, image: Artifact, audio: Artifact, frames: int, steps: int) -> Times:
    """Milliseconds of each part of each frame."""
    times: Times = {}
    step = wm.program(wm.manifest.main)
    draw = drawer(step)
    sound = next(port for port in audio.program(audio.manifest.main).about.inputs if port.name == "z")
    heard = torch.zeros(sound.shape, dtype=getattr(torch, sound.dtype), device=step.device)
    contract = wm.manifest.stream
    assert contract is not None
    for name in contract.each:
        wm.program(name)  # opened now, not in the first frame
    stream = wm.stream()
    first = drawer(wm.program(contract.prime))
    with clocked(times, "prime"):
        stream.begin(**{name: first(name) for name in ("x", "audio", "t", "mouse", "btn")})
    wm.close(contract.prime)  # it is not needed again
    append = contract.each[-1]
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


def plot(times: Times, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    below = [0.0] * len(times["append"])
    for part in ("denoise", "append", "picture", "sound"):
        axes.bar(range(1, len(below) + 1), times[part], bottom=below, label=part)
        below = [under + taken for under, taken in zip(below, times[part], strict=True)]
    axes.set(xlabel="frame", ylabel="ms", title="Time of each frame")
    axes.legend(loc="lower right", ncols=4)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("wm", "image", "audio"):
        parser.add_argument(f"--{name}", type=Path, required=True, metavar="DIR")
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--steps", type=int, default=4, help="denoising steps of a frame")
    parser.add_argument("--plot", type=Path, default=Path("frames.png"))
    asked = parser.parse_args()
    torch.manual_seed(0)
    opened = [load(folder) for folder in (asked.wm, asked.image, asked.audio)]
    refuse_misfits(*opened)
    with torch.no_grad():
        times = follow(*opened, asked.frames, asked.steps)
    for part, taken in times.items():
        print(f"{part:8} {len(taken)} times, median {statistics.median(taken):.1f} ms")
    whole = [sum(taken) for taken in zip(*(times[part] for part in times if part != "prime"), strict=True)]
    print(
        f"{len(whole)} frames, median {statistics.median(whole):.1f} ms, {1000 / statistics.median(whole):.2f} frames/s"
    )
    plot(times, asked.plot)
    print(f"plot: {asked.plot}")


if __name__ == "__main__":
    main()
