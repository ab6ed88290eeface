"""`Tuned`: a module's function that calls programs if a call fits one. `find_place`: finds that of an artifact."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Never

import msgspec
import torch
from torch import Tensor, nn
from torch.jit import ScriptModule

from bakeoff.export.manifest import Manifest
from bakeoff.models.errors import BakeoffError, a_type
from bakeoff.models.weights import fingerprint, plain_tensors
from bakeoff.models.words import some_of
from bakeoff.tuned.program import TunedProgram, Unfit

_ABSENT = object()
"""The attribute of a module whose function comes from its class."""


class Tuned:
    """Replacement for `forward` or another method of one module, set as an attribute of the module itself.

    The module stays the object that it was: its class, config, weights and hooks are untouched.
    """

    def __init__(
        self, place: "Place", artifacts: tuple[str, ...], programs: Sequence[TunedProgram], strict: bool
    ) -> None:
        """Prepare to replace the function at `place`; with `strict`, calls that fit no program raise."""
        self.place, self.artifacts, self.strict = place, artifacts, strict
        self.original = getattr(place.owner, place.name)
        functools.update_wrapper(self, self.original, updated=())
        if hasattr(self.original, "__code__"):
            self.__code__ = self.original.__code__  # torch.export asks the forward of a module for it
        self.programs = tuple(programs)
        self.tuned = 0
        """Calls that a program computed."""
        self.original_calls = 0
        """Calls that ran the original, those included that were compared with it."""
        self._before = vars(place.owner).get(place.name, _ABSENT)
        self._module, self._weights = place.module, _Weights(place.module)

    @property
    def outside(self) -> int | None:
        """Calls of programs outside of what was checked; None if they are not counted."""
        counters = [one.program.outside for one in self.programs if one.program.outside is not None]
        return sum(map(int, counters)) if counters else None

    def install(self) -> None:
        """Set the attribute, bypassing the module's `__setattr__`, which may do more than set it."""
        vars(self.place.owner)[self.place.name] = self

    def remove(self) -> bool:
        """Restore the function and release the programs; return False if other code has replaced it meanwhile."""
        self.programs = ()
        own = vars(self.place.owner)
        current = own.get(self.place.name, _ABSENT)
        if current is not self:
            return current is self._before
        if self._before is _ABSENT:
            del own[self.place.name]
        else:
            own[self.place.name] = self._before
        return True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute a call by the program that it fits, else by the original.

        Raises BakeoffError if no program fits and `strict` is set, and whatever the original raises.
        """
        if not self.programs or torch.compiler.is_compiling() or torch._C._get_tracing_state():
            return self.original(*args, **kwargs)  # undone, or the caller is compiled or exported as a whole
        try:
            self._check_module()
            program, tensors = self._fitting(args, kwargs)
            autocast = torch.get_autocast_dtype(program.device) if torch.is_autocast_enabled(program.device) else None
            kind = (*(tensor.dtype for tensor in tensors.values()), autocast)
            first = program.first_calls.get(kind)
            if first is not None and first.refusal:
                raise Unfit(first.refusal)
        except Unfit as unfit:
            reason = str(unfit)
        else:
            if first is not None:
                result = program.run(tensors, first)
                self.tuned += 1
                return result
            result, first = program.compare(
                tensors, self._epsilon(kind), lambda: self.original(*args, **kwargs), args, kwargs
            )
            if first.refusal and (self._module._forward_hooks or self._module._forward_pre_hooks):
                first = replace(
                    first,
                    refusal=f"{first.refusal}; hooks that were on the module are in the program, and run around it "
                    "too; do in forward() what they do",
                )
            program.first_calls[kind] = first
            if first.refusal and self.strict:
                raise BakeoffError(f"the program is not used: {first.refusal}", "wrong-output")
            self.original_calls += 1
            return result
        if self.strict:
            raise BakeoffError(
                f"a call does not fit what was exported: {reason}; call it as it was recorded", "bad-input"
            )
        self.original_calls += 1
        return self.original(*args, **kwargs)

    def _check_module(self) -> None:
        """Raise Unfit if the module is in training mode or its weights were changed since `apply`."""
        if self._module.training:
            raise Unfit("the module is in training mode")
        if self._weights.changed():
            raise Unfit("the weights were changed since apply()")

    def _fitting(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[TunedProgram, dict[str, Tensor]]:
        """Return the first program that a call fits, and the call's tensors.

        Raises Unfit, with the first program's reason.
        """
        reasons = []
        for program in self.programs:
            try:
                tensors = program.fit(args, kwargs)
            except Unfit as unfit:
                reasons.append(unfit)
                continue
            if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors.values()):
                raise Unfit("an input needs a gradient, which programs do not compute")
            return program, tensors
        raise reasons[0]

    def _epsilon(self, kind: Sequence[torch.dtype | None]) -> float:
        """Return the epsilon of the coarsest dtype that the original computes in."""
        used = {*kind, *(parameter.dtype for parameter in self._module.parameters())}
        return max((torch.finfo(dtype).eps for dtype in used if dtype and dtype.is_floating_point), default=0.0)

    def __deepcopy__(self, _memo: object) -> Never:
        raise BakeoffError(
            "a tuned module cannot be copied, since its copy would compute with these weights; undo() first"
        )

    def __reduce__(self) -> Never:
        raise BakeoffError("a tuned module cannot be pickled; undo() first, and apply again where it is loaded")


class _Weights:
    """Detects that a module's parameters, buffers or submodules were replaced or written to.

    A check looks at each of them once, which costs much less than a call of the module. `.data = x` is detected, writes
    into memory through `.data`, as `.data.copy_(x)`, are not.
    """

    def __init__(self, module: nn.Module) -> None:
        layers = list(module.modules())
        self._tables: list[tuple[Mapping[str, object], dict[str, object]]] = [
            (table, dict(table))
            for layer in layers
            for table in (layer._parameters, layer._buffers, layer._modules)
            if table
        ]
        held = (*module.parameters(), *module.buffers())
        self._versioned = [one for one in held if not one.is_inference()]
        self._plain = [part for one in held for _, part in plain_tensors("", one) if part.layout == torch.strided]
        self._state = self._now()

    def changed(self) -> bool:
        return self._now() != self._state or any(
            len(now) != len(then) or any(now.get(name) is not one for name, one in then.items())
            for now, then in self._tables
        )

    def _now(self) -> tuple[int, list[int]]:
        """Return the number of writes that torch counted, and the addresses of all values."""
        return sum(one._version for one in self._versioned), [one.data_ptr() for one in self._plain]


_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Place:
    """A function of a module in the user's object."""

    path: str
    """Path in the object, such as `unet` or `vae.decode`; "" for the object itself."""
    owner: nn.Module
    name: str
    """Name of the function: `forward`, or the method's."""

    @property
    def module(self) -> nn.Module:
        """The module with the weights: the owner, or the module inside it if the owner is a torch.compile wrapper."""
        found = getattr(self.owner, "_orig_mod", self.owner)
        assert isinstance(found, nn.Module)
        return found

    def __str__(self) -> str:
        return self.path or type(self.module).__name__


def find_place(root: object, folder: str, manifest: Manifest, asked: str | None, known: dict[int, str] | None) -> Place:
    """Return the place of an artifact in an object: the asked one, else the manifest's, else the object itself.

    `known` has fingerprints by the ids of modules, and gets those that are computed; None accepts any weights. Raises
    BakeoffError if there is no module or method, or if the module has other weights than the artifact.
    """
    found = _at(root, folder, (manifest.place or "") if asked is None else asked)
    if known is None:
        return found
    if id(found.module) not in known:
        known[id(found.module)] = fingerprint(found.module)
    own, wanted = known[id(found.module)], manifest.weights.fingerprint
    if own != wanted:
        raise BakeoffError(
            f"{found} has other weights than {folder}: fingerprint {own[:12]} instead of {wanted[:12]}; "
            "export it with these weights, or pass any_weights=True if they differ by rounding alone",
            "other-weights",
        )
    return found


def _at(root: object, folder: str, path: str) -> Place:
    owner, value, name = None, root, ""
    for name in path.split(".") if path else ():
        owner, value = value, _part(value, name, path, folder)
    if isinstance(value, nn.Module):
        return _checked(Place(path, value, "forward"))
    if isinstance(owner, nn.Module) and callable(value):
        return _checked(Place(path, owner, name))
    raise BakeoffError(
        f"{repr(path) if path else 'the object'} is {a_type(type(value))}, neither a module nor a module's method; "
        f"say where {folder} belongs, as in {_where(folder, _known(root))}",
        "unknown-name",
    )


def _part(value: Any, name: str, path: str, folder: str) -> Any:
    if not name.startswith("_"):  # a manifest names no private attribute of a user's object
        if isinstance(value, Mapping) and name in value:
            return value[name]
        if isinstance(value, list | tuple) and name.isdecimal() and int(name) < len(value):
            return value[int(name)]
        if hasattr(value, name):
            return getattr(value, name)
    known = _known(value)
    raise BakeoffError(
        f"{type(value).__name__} has no '{name}' (of '{path}'); it has the modules {_listed(known)}; "
        f"say where {folder} belongs, as in {_where(folder, known)}",
        "unknown-name",
    )


def _checked(place: Place) -> Place:
    """Return the place unchanged. Raises BakeoffError if its function cannot be replaced or is tuned already."""
    if isinstance(place.owner, ScriptModule):
        raise BakeoffError(
            f"{place} is a ScriptModule, whose methods cannot be replaced; load it as a module", "unsupported"
        )
    if isinstance(vars(place.owner).get(place.name), Tuned):
        raise BakeoffError(f"{place} is tuned already; call undo() of what was applied first", "bad-option")
    return place


def _modules(root: object) -> Iterable[tuple[str, nn.Module]]:
    if isinstance(root, nn.Module):
        return (("", root), *root.named_children())
    held = root if isinstance(root, Mapping) else getattr(root, "__dict__", {})
    return tuple((str(name), value) for name, value in held.items() if isinstance(value, nn.Module))


def _known(value: object) -> list[str]:
    return [path for path, _ in _modules(value) if path and not path.startswith("_")]


def _listed(names: list[str]) -> str:
    return some_of(names, _SHOWN) or "none"


def _where(folder: str, known: list[str]) -> str:
    return "where=" + msgspec.json.encode({folder: known[0] if known else "unet"}).decode()
