"""A module's function that calls an artifact's programs where a call fits one, and the original where none does."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Never

import torch
from torch import Tensor, nn

from bakeoff.models.errors import BakeoffError
from bakeoff.tuned.arguments import Unfit
from bakeoff.tuned.program import FirstCall, TunedProgram

COMPARED = "first call of its kind, compared with the original"
_MOST_REASONS, _OTHER = 32, "other reasons"


class Tuned:
    """Stands for `forward` or another method of one module, as an attribute of the module itself.

    The module stays the object that it was: its class, config, weights and hooks are untouched.
    """

    def __init__(
        self, original: Callable[..., Any], module: nn.Module, programs: Sequence[TunedProgram], strict: bool
    ) -> None:
        """`original` is bound to `module`, or to what torch.compile made of it."""
        functools.update_wrapper(self, original, updated=())
        if hasattr(original, "__code__"):
            self.__code__ = original.__code__  # torch.export asks the forward of a module for it
        self.original, self.programs, self.strict = original, tuple(programs), strict
        self.tuned = 0
        """Calls that a program computed."""
        self.reasons: Counter[str] = Counter()
        """Why calls ran the original, to their number."""
        self._module, self._weights = module, _Weights(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises BakeoffError where no program fits and `strict` was asked, and what the original raises."""
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
            result, program.first_calls[kind] = program.compare(
                tensors, self._epsilon(kind), lambda: self.original(*args, **kwargs), args, kwargs
            )
            self._count(program.first_calls[kind])
            return result
        if self.strict:
            raise BakeoffError(
                f"a call does not fit what was exported: {reason}; call it as it was recorded", "bad-input"
            )
        self._count_reason(reason)
        return self.original(*args, **kwargs)

    def _check_module(self) -> None:
        """Raise Unfit where the module does not compute what was exported any more."""
        if self._module.training:
            raise Unfit("the module is in training mode")
        if self._weights.changed():
            raise Unfit("the weights were changed since apply()")

    def _fitting(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[TunedProgram, dict[str, Tensor]]:
        """The program that a call fits, and its tensors. Raises Unfit, with the first program's reason."""
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
        """Of the coarsest dtype that the original computes in."""
        used = {*kind, *(parameter.dtype for parameter in self._module.parameters())}
        return max((torch.finfo(dtype).eps for dtype in used if dtype and dtype.is_floating_point), default=0.0)

    def _count(self, first: FirstCall) -> None:
        if first.refusal and self.strict:
            raise BakeoffError(f"the program is not used: {first.refusal}", "wrong-output")
        self._count_reason(first.refusal or COMPARED)

    def _count_reason(self, reason: str) -> None:
        known = reason in self.reasons or len(self.reasons) < _MOST_REASONS
        self.reasons[reason if known else _OTHER] += 1

    def __deepcopy__(self, _memo: object) -> Never:
        raise BakeoffError(
            "a tuned module cannot be copied, since its copy would compute with these weights; undo() first"
        )

    def __reduce__(self) -> Never:
        raise BakeoffError("a tuned module cannot be pickled; undo() first, and apply again where it is loaded")


class _Weights:
    """Notices that a module's parameters or submodules were replaced, or parameters written to.

    Looks at each once, much less than the module's own call does. Writes through `.data` are not noticed.
    """

    def __init__(self, module: nn.Module) -> None:
        layers = list(module.modules())
        self._tables: list[tuple[Mapping[str, object], dict[str, object]]] = [
            (table, dict(table)) for layer in layers for table in (layer._parameters, layer._modules) if table
        ]
        self._parameters = [one for one in module.parameters() if not one.is_inference()]
        self._version = self._versions()

    def changed(self) -> bool:
        return self._versions() != self._version or any(
            len(now) != len(then) or any(now.get(name) is not one for name, one in then.items())
            for now, then in self._tables
        )

    def _versions(self) -> int:
        return sum(one._version for one in self._parameters)
