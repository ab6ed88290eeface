"""Engines of the real libraries for the toy component, built in the test's process by the code of the worker."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from shared_headers import share_headers
from torch import Tensor, nn

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import Engine, Outputs, Proof, Unsupported, by_options
from bakeoff.backends.inductor import missing_compiler
from bakeoff.models.options import options_of
from bakeoff.process.jobs import BackendStep, MeasureJob, Subject
from bakeoff.record.policy import Policy
from bakeoff.variant import parse_variant
from bakeoff.worker.build import BuiltEngine, build_engine
from bakeoff.worker.subject import cast_subject, load_subject
from bakeoff.worker.torch_flags import flags

LIBRARY_WARNINGS = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)
"""Warnings of the libraries about each other."""
NEEDS_COMPILER = pytest.mark.skipif(missing_compiler(None, "cpu") is not None, reason="inductor needs a C++ compiler")


@dataclass(frozen=True)
class Toy:
    """A built toy, its inputs, and eager's outputs for them."""

    built: BuiltEngine
    module: nn.Module
    dtype: str
    sets: tuple[dict[str, Tensor], ...]
    expected: tuple[Outputs, ...]

    @property
    def engine(self) -> Engine:
        return self.built.engine

    @property
    def proof(self) -> Proof:
        return self.engine.prove()

    def error(self) -> float:
        """Largest relative L2 error of an output of any set; all sets are bound before the first call."""
        with flags(self.dtype, 1):  # dynamo guards on them
            found = [call() for call in self.built.calls]
        return max(
            relative(mine, theirs)
            for outputs, expected in zip(found, self.expected, strict=True)
            for mine, theirs in zip(outputs, expected, strict=True)
        )


def relative(found: Tensor, wanted: Tensor) -> float:
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def build_toy(
    text: str,
    folder: Path,
    trace: bool = False,
    seed: int = 0,
    change: Callable[[nn.Module], None] | None = None,
    engine: str = "",
    opens: bool = False,
) -> Toy:
    """Build `WORKLOAD/BACKENDS/DTYPE` on a CPU with one thread, its caches in `folder`; raises StageError.

    `seed` is of the weights, and `change` does something to the module before it is built. `engine` and `opens` are as
    in `MeasureJob`.
    """
    variant = parse_variant(f"toy:tiny.{text}@cpu")
    backends = [(resolve_backend(use.name), use) for use in variant.backends]
    last, use = backends[-1]
    target = by_options(last.builds_for, options_of(last, dict(use.options)))
    classes = (by_options(backend.quantises, options_of(backend, dict(use.options))) for backend, use in backends)
    quantisation = next(filter(None, classes), "")
    subject = Subject("toy", "tiny", variant.workload, 1, seed, 0, "", "cpu", 1)
    steps = tuple(BackendStep(use.name, dict(use.options)) for use in variant.backends)
    job = MeasureJob(
        subject,
        str(variant),
        steps,
        variant.dtype,
        Policy(),
        "",
        str(folder / "cache"),
        quantisation=quantisation,
        engine=engine,
        opens=opens,
        target=target,
    )
    with pytest.MonkeyPatch.context() as patch, flags(variant.dtype, 1):
        patch.setenv("BAKEOFF_CACHE", str(folder / "lab"))
        share_headers([text])
        loaded = load_subject(subject)
        if change is not None:
            change(loaded.module)
        sets = cast_subject(loaded, variant.dtype, subject.device)
        expected = tuple(loaded.module(*inputs.values()) for inputs in sets)
        built = build_engine(job, loaded, sets, trace)
    return Toy(built, loaded.module, variant.dtype, sets, expected)


def misfits(inputs: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The inputs with a wrong first one; `how` names the error."""
    name, right = next(iter(inputs.items()))
    wrong = {
        "shape": torch.zeros(*right.shape[:-1], right.shape[-1] + 1, dtype=right.dtype),
        "size": right[:, :1].contiguous(),
        "dtype": right.to(torch.float64),
        "integers": right.to(torch.int64),
        "strides": right.transpose(-1, -2).contiguous().transpose(-1, -2),
    }
    cases = {how: {**inputs, name: tensor} for how, tensor in wrong.items()}
    cases["order"] = dict(reversed(inputs.items()))
    cases["number"] = dict(list(inputs.items())[1:])
    return cases


def check_misfits(toy: Toy) -> None:
    """The toy's engine refuses each of them when it is bound; the layouts themselves are tested in test_graphs.py."""
    for wrong in misfits(dict(toy.sets[0])).values():
        with pytest.raises(Unsupported):
            toy.engine.bind(wrong)
