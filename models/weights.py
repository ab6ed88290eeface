"""Random weights for benchmarks and tests, and a fingerprint of a module's weights."""

import contextlib
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch.masked import MaskedTensor

from bakeoff.models.errors import BakeoffError, ErrorCode
from bakeoff.models.words import some_of

InitialStd = Callable[[str, tuple[int, ...]], float | None]
_HEAD_ELEMENTS = 1024
_SHOWN = 5
"""Most names that an error lists."""
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)
_NORM_NAME = re.compile(r"Norm(\dd)?$")
"""Class names of libraries' norm layers: timm's RmsNorm, diffusers' RMSNorm, batch norms under other names."""


def randomize(module: nn.Module, seed: int, initial_std: InitialStd | None = None) -> None:
    """Fill every parameter in place with random values; buffers stay as they are.

    A parameter's values depend only on `seed`, its name and its shape. They are drawn in fp32 on the CPU, so that the
    order of the parameters and the module's device and dtype do not matter. All are normal. Mean and standard
    deviation are 0 and 1 / sqrt(fan_in) for matrices and kernels, 1 and 0.1 for gains, 0 and 0.1 for other vectors.
    Gains are parameters named `gamma`, and `weight` of a layer that normalises: with gains around 0 the outputs of a
    deep network hardly depend on its inputs (a ResNet-50's for two pictures differ by 6e-7, relative L2; with gains
    around 1 by 0.025).
    `initial_std(name, shape)` may return another standard deviation for a parameter of mean 0, else None.
    Raises BakeoffError for a parameter that `why_unusable` rejects.
    """
    parameters = list(module.named_parameters())
    for name, parameter in parameters:
        refuse_unusable(parameter, f"weights cannot be drawn: {name}", "meta-tensors")
    gains = _gains(module)

    def fill(named: tuple[str, nn.Parameter]) -> None:
        name, parameter = named
        shape = tuple(parameter.shape)
        mean, std = (1.0, 0.1) if name in gains else _distribution(name, shape, initial_std)
        generator = torch.Generator().manual_seed(_seed(seed, name))
        with torch.no_grad():
            if parameter.device.type == "cpu" and parameter.dtype == torch.float32 and parameter.is_contiguous():
                parameter.normal_(mean, std, generator=generator)
            else:
                parameter.copy_(torch.empty(shape, dtype=torch.float32).normal_(mean, std, generator=generator))

    # A generator fills a tensor serially and releases the GIL: each thread takes one parameter at a time.
    with ThreadPoolExecutor(max_workers=min(8, torch.get_num_threads())) as pool:
        list(pool.map(fill, sorted(parameters, key=lambda named: -named[1].numel())))


def fingerprint(module: nn.Module) -> str:
    """Return a hex digest of the state's keys, shapes and fp32 values: equal weights give equal digests on every host.

    It does not protect against forgery: it hashes a CRC-32 of each tensor's bytes and its first 1024 values.
    Compute it before a cast to half precision, which changes the values. For a quantised tensor, the plain tensors in
    it are digested. Raises BakeoffError for a tensor that `why_unusable` rejects.
    """
    return state_digest(state_of(module))


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a module's state by name, including packed ones and constants of frozen TorchScript."""
    found: dict[str, object] = {}
    for key, value in module.state_dict().items():
        found |= {f"{key}.{i}": one for i, one in enumerate(value)} if isinstance(value, tuple) else {key: value}
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            with contextlib.suppress(RuntimeError):  # it has no forward
                graph: Any = part.graph
                nodes = enumerate(graph.findAllNodes("prim::Constant"))
                found |= {f"{name}.constants.{i}": node.output().toIValue() for i, node in nodes}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def state_digest(state: Mapping[str, Tensor]) -> str:
    """Return the digest of `fingerprint` for tensors by name. Raises BakeoffError if `why_unusable` rejects one."""
    for key, tensor in state.items():
        refuse_unusable(tensor, f"weights have no fingerprint: {key}", "meta-tensors")
    plain = [part for key, tensor in state.items() for part in plain_tensors(key, tensor)]
    digest = sha256()
    for key, tensor in sorted(plain, key=lambda named: named[0]):
        tensor = tensor.detach().dequantize() if tensor.is_quantized else tensor.detach()
        real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        values = real.to("cpu", torch.float32).contiguous().view(-1).numpy()
        digest.update(f"{key}:{tuple(tensor.shape)}:{zlib.crc32(values.data):08x}".encode())
        digest.update(values[:_HEAD_ELEMENTS].tobytes())
    return digest.hexdigest()


def share_weights(source: nn.Module, target: nn.Module) -> int:
    """Replace the parameters of `target` by those of `source`, by name; return the number of bytes that they share.

    It serves modules of several programs of one component, such as context, step and append of a world model: `target`
    is usually built on the meta device. Buffers and fixed tables of `target` stay its own.

    Cast or move `source` first, and the buffers of `target`, then share. Both modules hold the same `nn.Parameter`
    objects, so a later `.to()` of either casts the parameters of both and they stay shared, but not the buffers of the
    other one. Replacing a parameter of one module by another tensor, as quantising or freeing its weights does, leaves
    the other module unchanged.
    Raises BakeoffError naming the parameters that only one module has or whose shapes differ; nothing is shared then.
    """
    given, wanted = (dict(module.named_parameters(remove_duplicate=False)) for module in (source, target))
    differing = sorted(
        name
        for name in given.keys() | wanted.keys()
        if name not in given or name not in wanted or given[name].shape != wanted[name].shape
    )
    if differing:
        text = f"{some_of(differing, _SHOWN)} differ or are missing in one of them. Build both modules from one config."
        raise BakeoffError(f"Two programs cannot share their weights: {text}", code="bad-input")
    for name, parameter in given.items():
        owner, _, leaf = name.rpartition(".")
        target.get_submodule(owner)._parameters[leaf] = parameter
    return sum(part.nbytes for key, held in source.named_parameters() for _, part in plain_tensors(key, held))


def plain_tensors(key: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the plain tensors, by name, inside a tensor subclass such as torchao's; a plain tensor yields itself.

    The values of such a subclass can often not be read directly.
    """
    if not hasattr(tensor, "__tensor_flatten__"):
        yield key, tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        yield from plain_tensors(f"{key}.{name}", getattr(tensor, name))


def why_unusable(tensor: Tensor) -> str:
    """Return why engines cannot take a tensor and what to give instead, as the end of a sentence; "" if they can.

    Engines take tensors with values and strides, and subclasses made of these, such as torchao's quantised weights.
    """
    if isinstance(tensor, FakeTensor):
        return "is a FakeTensor and has no values; make it outside of FakeTensorMode"
    if tensor.is_meta:
        return "is on the meta device and has no values; make it on the CPU, and load or draw its values"
    if isinstance(tensor, MaskedTensor):
        return "is a masked tensor, and engines take dense ones; give its to_tensor(0.0)"
    if tensor.is_nested:
        return "is a nested tensor, and engines take dense ones; give its to_padded_tensor(0.0)"
    if tensor.layout != torch.strided:
        return f"has the layout {tensor.layout}, and engines take dense tensors; give its to_dense()"
    return next(
        (why for _, part in plain_tensors("", tensor) if part is not tensor and (why := why_unusable(part))), ""
    )


def refuse_unusable(tensor: Tensor, what: str, code: ErrorCode) -> None:
    """Raise BakeoffError for a tensor that `why_unusable` rejects; `what` begins the message."""
    why = why_unusable(tensor)
    if why:
        raise BakeoffError(f"{what} {why}", code)


def _gains(module: nn.Module) -> set[str]:
    """Return the names of the parameters that scale normalised values, known by the layer's class or its name."""
    found = {name for name, _ in module.named_parameters() if name.rpartition(".")[2] == "gamma"}
    for name, layer in module.named_modules():
        if isinstance(layer, _NORMS) or _NORM_NAME.search(type(layer).__name__):
            found.add(f"{name}.weight" if name else "weight")
    return found


def _distribution(name: str, shape: tuple[int, ...], initial_std: InitialStd | None) -> tuple[float, float]:
    override = None if initial_std is None else initial_std(name, shape)
    if override is not None:
        return 0.0, override
    if len(shape) < 2:
        return 0.0, 0.1
    fan_in = 1
    for size in shape[1:]:
        fan_in *= size
    return 0.0, float(max(fan_in, 1) ** -0.5)


def _seed(seed: int, name: str) -> int:
    return int.from_bytes(sha256(f"{seed}:{name}".encode()).digest()[:8], "little", signed=True)
