"""Makes a brought model's component from its description."""

from dataclasses import dataclass, replace
from pathlib import Path

from bakeoff.models.brought.about import OWN_WEIGHTS, About, batch_name, read_about
from bakeoff.models.component import Carry, Component, Preset, Stream, Workload
from bakeoff.models.errors import BakeoffError


@dataclass(frozen=True, slots=True)
class Config:
    """Facts that decide a brought model's outputs."""

    content: str
    """Hash of its code, weights and inputs (`About.hash`)."""
    source: str
    """File (and function) that the model came from, so that models of two files differ even under one name."""


def component_of(folder: Path) -> Component:
    """Return the component that a folder describes. Raises BakeoffError if it has no description."""
    about = read_about(folder)
    names, shown = tuple(one.name for one in about.sets), about.source.shown
    return Component(
        name=about.name,
        summary=about.summary,
        credit="",
        presets=(
            Preset(
                about.preset,
                Config(about.hash, shown),
                about.parameters,
                f"{shown}, {about.summary.partition(',')[0]}",
            ),
        ),
        default_preset={"cpu": about.preset, "cuda": about.preset},
        default_workloads={"cpu": names, "cuda": names},
        workload_names=lambda _config: names,
        workload=lambda _config, name, batch: _workload(about, name, batch),
        stream=lambda _config, name: _stream(about, name),
        tolerance_fp32=about.tolerance_fp32,
        fp64=about.fp64,
        network="bakeoff.worker.brought.network",
        folder=str(folder),
        weights=f"{OWN_WEIGHTS}, sha256 {about.weights[:16]}",
        source_hash=about.hash,
        place=about.place,
        runs_on_host=False,
        layers=about.layers,
        dtypes=("given",) if about.mixed else (),
        keep_fp32=about.keep_fp32,
        compiles=about.compiles,
    )


def _workload(about: About, name: str, batch: int) -> Workload:
    """Return an input set as a workload. Raises BakeoffError for an unknown name or a batch that was not described."""
    one = about.input_set(name)
    usual = Workload(
        name,
        about.summary,
        one.inputs,
        one.outputs,
        one.work,
        calls_per_frame=None,
        axes=one.axes,
        usual=one.usual,
        sizes=one.sizes,
        call=one.call,
        result=one.result,
    )
    if batch == 1:
        return usual
    for size in one.batches:
        if size.name == batch_name(batch):
            return replace(usual, inputs=size.inputs, outputs=size.outputs, work=size.work)
    text = f"--batch {batch}: {about.name} was not run with it; name the model by its file or folder"
    raise BakeoffError(text, "bad-option")


def _stream(about: About, name: str) -> Stream | None:
    """Return the stream of an input set whose outputs become inputs of its next call; None if it carries no state."""
    one = about.input_set(name)
    inputs, outputs = ({spec.name for spec in specs} for specs in (one.inputs, one.outputs))
    carried = {output: to for output, to in about.state.items() if output in outputs and to in inputs}
    return Stream((name,), tuple(Carry(name, output, name, to) for output, to in carried.items())) if carried else None
