"""Precompiles torch's C++ headers for later builds, by building a trivial module exactly as those are built."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import BuildContext
from bakeoff.backends.headers import precompiled_headers
from bakeoff.machine.header_cache import HeaderFile, describe_header
from bakeoff.process.jobs import BackendStep, HeadersJob, HeadersResult
from bakeoff.variant import options_of
from bakeoff.worker.reporter import Report
from bakeoff.worker.torch_flags import flags


class _Trivial(nn.Module):
    """One generated kernel, no library call."""

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (x.sin() + 1,)


def make_headers(job: HeadersJob, report: Report) -> HeadersResult:
    """Move the headers into the folder of the job; those that it has already are replaced by equal ones.

    Each comes to its place in one step, so a worker that is killed leaves no part of one there.
    """
    inputs = {"x": torch.zeros(64, 64)}
    report("headers", job.step.backend)
    with flags("fp32", job.threads):
        _build(job.step, inputs, job.threads)
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    return HeadersResult(tuple(_keep(file, folder) for file in precompiled_headers()))


def _build(step: BackendStep, inputs: Mapping[str, Tensor], threads: int) -> None:
    backend = resolve_backend(step.backend)
    assert backend.build is not None, "only a backend that builds has headers"
    folder = Path(step.backend.replace(":", "-"))
    for inner in (folder / "work", folder / "cache"):
        inner.mkdir(parents=True, exist_ok=True)
    context = BuildContext(
        variant=backend.name,
        device="cpu",
        dtype="fp32",
        threads=threads,
        work_dir=(folder / "work").absolute(),
        cache_dir=(folder / "cache").absolute(),
        draw=lambda _seed: inputs,
    )
    engine = backend.build(_Trivial(), inputs, options_of(backend, step.options), context)
    engine.bind(inputs)()
    engine.close()


def _keep(file: Path, folder: Path) -> HeaderFile:
    part = folder / f".{file.name}.part"
    shutil.move(file, part)
    part.chmod(0o444)
    return describe_header(part.rename(folder / file.name))
