"""Where in a user's object an artifact belongs: a module, or a method of one."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from torch import nn
from torch.jit import ScriptModule

from bakeoff.export.manifest import Manifest
from bakeoff.models.errors import BakeoffError, a_type
from bakeoff.models.weights import fingerprint
from bakeoff.tuned.module import Tuned

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Place:
    """A function of a module in the user's object."""

    path: str
    """From the object, as in `unet` or `vae.decode`; "" for the object itself."""
    owner: nn.Module
    name: str
    """Of the function: `forward`, or the method's."""

    @property
    def module(self) -> nn.Module:
        """The module that holds the weights: within what torch.compile made of it, if it was compiled."""
        found = getattr(self.owner, "_orig_mod", self.owner)
        assert isinstance(found, nn.Module)
        return found

    def __str__(self) -> str:
        return self.path or type(self.module).__name__


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds places in one object; a module's fingerprint is computed once."""

    root: object
    _fingerprints: dict[int, str] = field(default_factory=dict)

    def place(self, folder: str, manifest: Manifest, asked: str | None, any_weights: bool) -> Place:
        """The place of an artifact: the asked one, else the manifest's, else the only module with its weights.

        Raises BakeoffError where there is none or several, or the module has other weights than the artifact.
        """
        if asked is None and manifest.place:
            asked = manifest.place
        if asked is None:
            return self._with_weights(folder, manifest)
        found = self._at(folder, asked)
        own, wanted = self._fingerprint(found.module), manifest.weights.fingerprint
        if own != wanted and not any_weights:
            raise BakeoffError(
                f"{found} has other weights than {folder}: fingerprint {own[:12]} instead of {wanted[:12]}; "
                "export it with these weights, or pass any_weights=True if they differ by rounding alone",
                "other-weights",
            )
        return found

    def _at(self, folder: str, path: str) -> Place:
        owner, value, name = None, self.root, ""
        for name in path.split(".") if path else ():
            owner, value = value, self._part(value, name, path, folder)
        if isinstance(value, nn.Module):
            return _checked(Place(path, value, "forward"))
        if isinstance(owner, nn.Module) and callable(value):
            return _checked(Place(path, owner, name))
        raise BakeoffError(
            f"'{path}' is {a_type(type(value))}, neither a module nor a module's method; "
            f"say where {folder} belongs, as in {_where(folder, _known(self.root))}",
            "unknown-name",
        )

    def _part(self, value: Any, name: str, path: str, folder: str) -> Any:
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

    def _with_weights(self, folder: str, manifest: Manifest) -> Place:
        candidates: dict[int, tuple[str, nn.Module]] = {}
        for path, module in _candidates(self.root, manifest.component):
            candidates.setdefault(id(module), (path, module))
        places = [Place(path, module, "forward") for path, module in candidates.values()]
        found = [one for one in places if self._fingerprint(one.module) == manifest.weights.fingerprint]
        if len(found) == 1:
            return _checked(found[0])
        known = [one.path for one in found or places]
        if found:
            text = f"{folder} has the weights of {_listed(known)}; say which one it is for"
            raise BakeoffError(f"{text}, as in {_where(folder, known)}", "bad-option")
        looked = f"none of {_listed(known)} has its weights" if known else "the object holds no modules"
        raise BakeoffError(
            f"{folder} does not say where it belongs, and {looked} ({manifest.weights.fingerprint[:12]}); "
            f"say where, as in {_where(folder, known)}",
            "other-weights",
        )

    def _fingerprint(self, module: nn.Module) -> str:
        if id(module) not in self._fingerprints:
            self._fingerprints[id(module)] = fingerprint(module)
        return self._fingerprints[id(module)]


def _checked(place: Place) -> Place:
    """The place itself. Raises BakeoffError where its function cannot be replaced."""
    if isinstance(place.owner, ScriptModule):
        raise BakeoffError(
            f"{place} is a ScriptModule, whose methods cannot be replaced; load it as a module", "unsupported"
        )
    if isinstance(vars(place.owner).get(place.name), Tuned):
        raise BakeoffError(f"{place} is tuned already; call undo() of what was applied first", "bad-option")
    return place


def _candidates(root: object, component: str) -> Iterator[tuple[str, nn.Module]]:
    """Modules to look at, by path: the object's own, and any within them whose class has the component's name."""
    for path, module in _modules(root):
        yield path, module
        for inner, child in module.named_modules():
            if inner and type(child).__name__.lower() == component:
                yield f"{path}.{inner}" if path else inner, child


def _modules(root: object) -> Iterable[tuple[str, nn.Module]]:
    if isinstance(root, nn.Module):
        return (("", root), *root.named_children())
    held = root if isinstance(root, Mapping) else getattr(root, "__dict__", {})
    return tuple((str(name), value) for name, value in held.items() if isinstance(value, nn.Module))


def _known(value: object) -> list[str]:
    return [path for path, _ in _modules(value) if path and not path.startswith("_")]


def _listed(names: list[str]) -> str:
    shown = ", ".join(name or "the object itself" for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown or "none"


def _where(folder: str, known: list[str]) -> str:
    return "where=" + msgspec.json.encode({folder: known[0] if known else "unet"}).decode()
