"""Artifacts of small modules, written in the test's own process, and modules to put them into."""

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import BuildContext
from bakeoff.backends.format import WriteRequest
from bakeoff.export import requirements
from bakeoff.export.folder import hash_file
from bakeoff.export.manifest import MANIFEST, SAMPLE, Manifest, Port, Program, Sample, Weights, encode, seal
from bakeoff.export.sample import key
from bakeoff.models.signature import describe_call, describe_output, flatten, flatten_call
from bakeoff.models.weights import fingerprint
from bakeoff.worker.brought.network import Flat
from bakeoff.worker.torch_flags import TORCH_DTYPES

LIMIT = 1e-3


@dataclass
class Cache:
    k: Tensor
    v: Tensor


@dataclass
class Out:
    sample: Tensor
    present: Cache | None = None


class Denoiser(nn.Module):
    """Takes a picture, labels and a constant; returns a dataclass, or a tuple."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.config = {"width": width}
        self.layer = nn.Linear(width, width)
        self.labels = nn.Embedding(16, width)

    @property
    def dtype(self) -> torch.dtype:
        return self.layer.weight.dtype

    def forward(self, x: Tensor, label: Tensor, scale: float = 1.0, *, return_dict: bool = True) -> Any:
        sample = torch.tanh(self.layer(x)) * scale + self.labels(label)[:, None]
        return Out(sample) if return_dict else (sample,)


class Coder(nn.Module):
    """Has methods beside its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(x)["picture"]

    def decode(self, z: Tensor, gain: float = 1.0) -> dict[str, Any]:
        made = torch.tanh(self.layer(z) * gain)
        return {"picture": made, "scale": gain, "parts": [made[:, :2], (made.mean(-1),)]}


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


@dataclass
class Output(OrderedDict[str, Any]):
    """Like the outputs of transformers: a dataclass that is a mapping of its fields that are not None."""

    logits: Tensor | None = None
    loss: Tensor | None = None

    def __post_init__(self) -> None:
        self.update({name: value for name, value in vars(self).items() if value is not None})


class Mixed(nn.Module):
    """Returns mappings of classes of their own, and a named tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> OrderedDict[str, Any]:
        made = self.layer(x)
        return OrderedDict(out=Output(logits=made), pair=Pair(made + 1, made - 1))


class Method(nn.Module):
    """A method of a module as the module that is exported."""

    def __init__(self, inner: nn.Module, name: str) -> None:
        super().__init__()
        self.inner, self.name = inner, name

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.inner, self.name)(*args, **kwargs)


class Attending(nn.Module):
    """Keeps a cache of keys and values that its caller holds."""

    def __init__(self, in_place: bool = False) -> None:
        super().__init__()
        self.in_place = in_place
        self.keys, self.values = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor, *, past: Cache) -> Out:
        k, v = torch.cat((past.k[:, 1:], self.keys(x)), 1), torch.cat((past.v[:, 1:], self.values(x)), 1)
        if self.in_place and not torch.compiler.is_exporting():
            past.k, past.v = k, v
        return Out(torch.softmax(x @ k.transpose(1, 2), -1) @ v, Cache(k, v))


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make().eval()


def write_artifact(
    module: nn.Module,
    folder: Path,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    names: Sequence[str] = (),
    backend: str = "torch.export",
    dtype: str = "fp32",
    limit: float = LIMIT,
    method: str = "",
    **changes: Any,
) -> Manifest:
    """An artifact of one call of a module or of its method, as an export writes it; `changes` are of its manifest."""
    kwargs = dict(kwargs or {})
    whole = Method(module, method) if method else module
    call = describe_call(args, kwargs, names)
    with torch.no_grad():
        returned = whole(*args, **kwargs)
    result = describe_output(returned)
    inputs, outputs = flatten_call(call, args, kwargs), dict[str, Tensor]()
    flatten(result, returned, outputs)
    folder.mkdir(parents=True)
    work = folder.parent / f"{folder.name}-work"
    work.mkdir()
    target, prints = TORCH_DTYPES[dtype], fingerprint(module)
    cast = {name: tensor.to(target) if tensor.is_floating_point() else tensor for name, tensor in inputs.items()}
    flat = Flat(copy.deepcopy(whole), call, result).to(target).requires_grad_(False)
    chosen = resolve_backend(backend)
    assert chosen.artifact is not None
    context = BuildContext("test", "cpu", dtype, 1, work, work, lambda _seed: cast)
    options = chosen.options()
    written = chosen.artifact.write(WriteRequest(flat, cast, options, context, folder, "call"))
    tensors = {key(0, "call", "in", name): tensor.contiguous().clone() for name, tensor in inputs.items()}
    tensors |= {key(0, "call", "out", name): tensor.contiguous().clone() for name, tensor in outputs.items()}
    save_file(tensors, folder / SAMPLE)
    program = Program(
        name="call",
        summary="a test",
        file=written.file,
        constants=written.constants,
        inputs=_ports(inputs, target),
        outputs=_ports(outputs, target),
        frames_per_call=1,
        call=call,
        result=result,
    )
    manifest = Manifest(
        schema=2,
        artifact=chosen.artifact.name,
        variant=f"test:mine.call/{backend}/{dtype}@cpu",
        component=type(module).__name__.lower(),
        preset="mine",
        label="",
        config={},
        credit="",
        backend=backend,
        options=msgspec.to_builtins(options),
        device="cpu",
        dtype=dtype,  # type: ignore[arg-type]
        quantisation="",
        batch=1,
        threads=1,
        main="call",
        programs=(program,),
        stream=None,
        files={path.name: hash_file(folder, path.name) for path in sorted(folder.iterdir())},
        needs=requirements.with_host_values(written.needs, requirements.facts()),
        built_on={},
        versions={},
        created="2026-01-01T00:00:00+00:00",
        commit="",
        command="a test",
        weights=Weights("a test", prints),
        measured=None,
        sample=Sample(SAMPLE, 1, "fp32", {}, {f"call/{name}": limit for name in outputs}),
        parity=(),
        export_peak_bytes=0,
    )
    manifest = seal(replace(manifest, **changes))
    (folder / MANIFEST).write_bytes(encode(manifest))
    return manifest


def change_program(folder: Path, **changes: Any) -> None:
    """Another call or result in the manifest of a folder, with a correct hash."""
    from artifacts import manifest_of, rewrite

    (program,) = manifest_of(folder).programs
    rewrite(folder, programs=(replace(program, **changes),))


def _ports(tensors: Mapping[str, Tensor], target: torch.dtype) -> tuple[Port, ...]:
    dtypes = {name: target if one.is_floating_point() else one.dtype for name, one in tensors.items()}
    return tuple(
        Port(name, str(dtypes[name]).removeprefix("torch."), tuple(one.shape), "")  # type: ignore[arg-type]
        for name, one in tensors.items()
    )
