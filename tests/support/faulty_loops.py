"""The toy loop with one fault, `faulty_loops:PIPELINE`; without options it is the toy loop itself."""

from dataclasses import dataclass, replace

from bakeoff.models.pipelines.pipeline import Call, Given, Glue, Loop, Operation, Pipeline, PipelinePreset, Shift
from bakeoff.models.pipelines.toy.spec import PIPELINE as TOY


@dataclass(frozen=True, slots=True)
class Options:
    fault: str = ""
    """not-shifted, shifted-by-a-token, stale-latent, frame-before, nan; or short: sessions of 8 units, full after 2."""


def _loop(preset: PipelinePreset, options: Options) -> Loop:
    right = replace(TOY.loop(preset, TOY.options()), glue="faulty_loops_glue")
    steady, given = right.steady, right.given
    match options.fault:
        case "":
            return right
        case "short":
            return replace(right, max_units=8, filling=2)
        case "not-shifted":
            return replace(right, steady=tuple(op for op in steady if not _shifts(op, "cache_k")))
        case "shifted-by-a-token":
            roll = Glue("roll", ("x",), ("x.rolled",))
            wrong = [replace(op, new="x.rolled") if _shifts(op, "cache_k") else op for op in steady]  # type: ignore[arg-type]
            at = next(index for index, op in enumerate(steady) if isinstance(op, Shift))
            return replace(right, steady=(*wrong[:at], roll, *wrong[at:]))
        case "stale-latent":
            stale = tuple(_renamed(op, "noise", "noise.before") for op in steady)
            keep = Glue("same", ("noise",), ("noise.before",))
            return replace(right, steady=(*stale, keep), given=(*given, _before(right, "noise")))
        case "frame-before":
            late = tuple(_renamed(op, "z", "z.before") if isinstance(op, Call) else op for op in steady)
            keep = Glue("same", ("z",), ("z.before",))
            z = Given("z.before", (1, 1, 32, 16, 16), "stream", "session")
            return replace(right, steady=(*late, keep), given=(*given, z))
        case "nan":
            nan = tuple(replace(one, function="noise_or_nan") if one.name == "noise" else one for one in given)
            return replace(right, given=nan)
    raise ValueError(options.fault)


def _shifts(op: Operation, window: str) -> bool:
    return isinstance(op, Shift) and op.window == window


def _renamed(op: Operation, old: str, new: str) -> Operation:
    """The operation with another value in the place of one that it reads."""
    if isinstance(op, Call):
        return replace(op, inputs={name: new if value == old else value for name, value in op.inputs.items()})
    if isinstance(op, Glue):
        return replace(op, inputs=tuple(new if value == old else value for value in op.inputs))
    return op


def _before(loop: Loop, name: str) -> Given:
    given = next(one for one in loop.given if one.name == name)
    return replace(given, name=f"{name}.before", per="session")


PIPELINE = Pipeline(
    name="toy",
    summary="the toy loop with a fault",
    credit="this project",
    unit="frame",
    slots=TOY.slots,
    presets=TOY.presets,
    default_preset=TOY.default_preset,
    options=Options,
    loop=_loop,
)
