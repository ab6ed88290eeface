"""Loads the module and inputs of a source: a function in a Python file, an archive, or a live module's folder."""

import contextlib
import copy
import inspect
import io
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from bakeoff.backends.pt2_files import check_program
from bakeoff.models.brought.about import Source
from bakeoff.models.brought.model import Call, InputSets, Model
from bakeoff.models.errors import BakeoffError, a_type
from bakeoff.models.lookup import as_script, one_line, take_from_file
from bakeoff.models.signature import Signature, flatten_call
from bakeoff.models.weights import refuse_unusable
from bakeoff.worker.failures import users_code


def load_module(source: Source, seed: int) -> tuple[Model, InputSets]:
    """Load a model and its inputs by running its factory, or by reading its archive or folder.

    The global generators of torch, numpy and Python are seeded for a factory, and restored afterwards. The module is in
    the mode that the user left it in (training or evaluation), on the CPU, without gradients; parameters that the first
    call creates (`nn.LazyLinear`) exist. Raises BakeoffError (`bad-user-code`, `bad-artifact` or `cannot-travel`)
    saying what is wrong with the source.
    """
    path = Path(source.path)
    with _own_generators():
        match source.kind:
            case "function":
                model, sets = _from_function(path, source.function, source.working_folder, seed)
            case "archive":
                model, sets = _from_archive(path)
            case "live":
                from bakeoff.models.brought.live_read import read_live

                model, sets = read_live(path)
        what = f"{path.name}:{source.function}" if source.function else path.name
        with users_code(what):
            _check_weights(what, model.module)
            _without_inference_mode(model.module)
            _prepare(model.module, sets)
    return model, sets


def _without_inference_mode(module: nn.Module) -> None:
    """Copy weights that were made under torch.inference_mode(): such tensors cannot be watched or changed here."""
    tensors = (*module.parameters(), *module.buffers())
    made = {id(one): one.clone() for one in tensors if not is_lazy(one) and one.is_inference()}  # tied stays tied
    if made:
        module._apply(lambda tensor: made.get(id(tensor), tensor))


@contextlib.contextmanager
def _own_generators() -> Iterator[None]:
    """Restore the global generators of torch, numpy and Python when the block ends."""
    of_python, of_numpy = random.getstate(), np.random.get_state()  # what users' code draws from
    try:
        with torch.random.fork_rng(devices=()):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def seed_all(seed: int) -> None:
    """Seed the global generators of torch, numpy and Python."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def _check_weights(what: str, module: nn.Module) -> None:
    for kind, named in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
        for name, tensor in named:
            refuse_unusable(tensor, f"{what}: the {kind} {name}", "bad-user-code")


def given_tensors(name: str, signature: Signature, call: Call) -> dict[str, torch.Tensor]:
    """Return a call's tensors by name, as given. Raises BakeoffError for a tensor that no engine can be given."""
    found = flatten_call(signature, *call)
    for key, tensor in found.items():
        refuse_unusable(tensor, f"{name}: the input {key}", "bad-user-code")
    return found


def _prepare(module: nn.Module, sets: InputSets) -> None:
    """Move the module to the CPU, create lazy parameters, disable gradients. Raises whatever the user's code raises."""
    module.cpu()
    for each in module.modules():
        if isinstance(each, torch.jit.ScriptModule) and not hasattr(each, "training"):
            each.training = False  # torch.jit.freeze takes the attribute away, which every module has
    if any(map(is_lazy, [*module.parameters(), *module.buffers()])):
        args, kwargs = copy.deepcopy(next(iter(sets.values()))[0])
        with torch.no_grad():
            module(*args, **kwargs)
    for one in module.parameters():
        one.requires_grad_(False)


def _from_function(path: Path, name: str, folder: str, seed: int) -> tuple[Model, InputSets]:
    what = f"{path.name}:{name}"
    seed_all(seed)
    function = take_from_file(path, name)
    if not callable(function) or isinstance(function, nn.Module):
        text = f"{what} is {a_type(type(function))}; write a function that returns (module, inputs)"
        raise BakeoffError(text, "bad-user-code")
    try:
        needed = [one.name for one in inspect.signature(function).parameters.values() if one.default is one.empty]
        needed = [one for one in needed if one not in ("args", "kwargs")]
    except (TypeError, ValueError):
        needed = []
    if needed:
        raise BakeoffError(f"{what} needs the arguments {', '.join(needed)}; give them defaults", "bad-user-code")
    seed_all(seed)  # again: a process that has imported the file draws nothing for that
    with users_code(what), contextlib.chdir(folder), as_script(path):
        made = function()
    if isinstance(made, tuple) and len(made) == 2:
        made = Model(made[0], made[1])
    if not isinstance(made, Model):
        text = f"{what} returned {a_type(type(made))}; return (module, inputs) or bakeoff.Model(module, inputs, ...)"
        raise BakeoffError(text, "bad-user-code")
    if not isinstance(made.module, nn.Module):
        text = f"{what} gave {a_type(type(made.module))} as the module; give a torch.nn.Module"
        raise BakeoffError(text, "bad-user-code")
    sets = made.calls(what)
    for calls in sets.values():
        for args, kwargs in calls:
            _check_arguments(what, made.module, args, kwargs)
    return made, sets


def _check_arguments(what: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise BakeoffError if `forward` does not take these arguments; not checked if hooks before it may change them."""
    if module._forward_pre_hooks or type(module).__call__ is not nn.Module.__call__:
        return
    try:
        signature = inspect.signature(module.forward, follow_wrapped=False)  # a decorator may take more
    except (TypeError, ValueError):
        return
    try:
        signature.bind_partial(*args, **kwargs)  # names an unknown argument before one that is missing
        signature.bind(*args, **kwargs)
    except TypeError as error:
        taken = ", ".join(signature.parameters)
        text = f"{what}: inputs: {error}; it takes ({taken}): name them so, or give a tuple for inputs by position"
        raise BakeoffError(text, "bad-user-code") from error


def _from_archive(path: Path) -> tuple[Model, InputSets]:
    """Load a torch.export program without unpickling code; example inputs are read as plain tensors (weights only)."""
    member = "data/sample_inputs/model.pt"
    examples: Any = None
    safe = io.BytesIO()
    try:
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(safe, "w", zipfile.ZIP_STORED) as copy:
            for entry in archive.infolist():
                data = archive.read(entry)
                if entry.filename.partition("/")[2] == member:
                    examples, data = _plain(path, data), b""
                copy.writestr(entry, data)
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError) as error:
        raise BakeoffError(
            f"{path.name} is not a complete archive: {error}; export it again", "bad-artifact"
        ) from error
    stripped = Path.cwd() / "brought.pt2"
    stripped.write_bytes(safe.getvalue())
    try:
        check_program(stripped)
        program = torch.export.load(stripped)
    except BakeoffError as error:
        raise BakeoffError(str(error).replace(stripped.name, path.name), error.code) from error
    except Exception as error:
        text = f"{path.name} cannot be opened by torch {torch.__version__}: {one_line(error)}"
        raise BakeoffError(text, "bad-artifact") from error
    finally:
        stripped.unlink(missing_ok=True)
    if examples is None:
        text = f"{path.name} has no example inputs; export it with them, or give a factory: bakeoff sweep mine.py:model"
        raise BakeoffError(text, "bad-artifact")
    args, kwargs = examples
    module = program.module()
    return Model(module), {"call": [(tuple(args), dict(kwargs))]}


def _plain(path: Path, data: bytes) -> Any:
    """Return example inputs without unpickling code; None without any. Raises BakeoffError if they need code."""
    if not data:
        return None
    try:
        return torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:
        text = f"{path.name}: its example inputs are no plain tensors, and are not opened; give a factory instead"
        raise BakeoffError(text, "bad-artifact") from error
