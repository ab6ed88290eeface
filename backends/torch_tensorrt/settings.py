"""Settings of torch_tensorrt for both of its backends, by its version, and what it needs of a host.

Its runtime reads the tensors given to each call, or with CUDA graphs copies them into buffers of its own, and returns
new memory at each call, also where preallocated outputs are the caller's (core/runtime/execute_engine.cpp,
setup_input_tensors, create_output_tensors and the copies after a replay, 2.11 to 2.13). A graph is captured again for
other shapes, not for other addresses. So a loop may bind other tensors before each call (`Engine.rebinds`).

2.11 and 2.12 have `use_explicit_typing` and `enabled_precisions`; 2.13 has neither and ignores both. The module is cast
to the variant's dtype before the build, and TensorRT keeps its dtypes (strong typing).

`import torch_tensorrt` needs a GPU and TensorRT's libraries. Without them it prints to stdout and raises a plain
Exception (torch_tensorrt/__init__.py), so only workers import it.
"""

import contextlib
import sys
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import version
from typing import Any

from bakeoff.backends.backend import BuildContext, Requirement, Unavailable, Unsupported
from bakeoff.backends.install import tensorrt_command

LEVELS = range(6)
"""Optimisation levels of TensorRT's builder."""
QUANTISED_ADVICE = (
    "it converts modelopt's quantize operators, not torchao's scaled_mm; "
    "quantise with modelopt, or use inductor after int8 or fp8"
)
QUANTISE_OPERATORS = ("tensorrt.quantize_op", "tensorrt.dynamic_block_quantize_op")
"""modelopt's operators that have a converter (2.13: dynamo/conversion/aten_ops_converters.py, 837 to 900)."""
INSTALL = f"run on a host with an NVIDIA GPU: {tensorrt_command()}"
REQUIRES = (Requirement("torch_tensorrt", INSTALL), Requirement("tensorrt", INSTALL))


def settings(wanted: Mapping[str, Any], known: Collection[str], context: BuildContext) -> dict[str, Any]:
    """Return the settings for torch_tensorrt: the `wanted` ones, and those that every build here uses.

    `known` are the settings that this version has. torch_tensorrt drops unknown settings without an error
    (dynamo/utils.py, parse_dynamo_kwargs; dynamo/_compiler.py takes any keyword), so they raise Unsupported here.
    """
    chosen: dict[str, Any] = {
        **wanted,
        "pass_through_build_failures": True,  # otherwise a failed build returns PyTorch's own graph without an error
        "disable_tf32": context.dtype != "tf32",
        "timing_cache_path": str(context.cache_dir / "timing.bin"),
        "attn_bias_is_causal": False,  # by default any mask of efficient attention becomes a causal one
    }
    if "use_explicit_typing" in known:
        # Before 2.13, the default decomposition of attention has operators that TensorRT cannot convert.
        chosen |= {"use_explicit_typing": True, "decompose_attention": True}
    unknown = sorted(chosen.keys() - set(known))
    if unknown:
        raise Unsupported(
            f"torch_tensorrt {version('torch_tensorrt')} has no setting {', '.join(unknown)}; install 2.11 to 2.14"
        )
    return chosen


def check_symbols() -> None:
    """Raise Unsupported for a version whose torch.compile backend cannot accept a range of sizes here.

    2.11 asks a size for the name of its parameter, which a size of an input of `forward(*tensors)` does not have, and
    raises an AttributeError (dynamo/lowering/passes/remove_sym_nodes.py, 58); 2.12 and later do not.
    """
    found = version("torch_tensorrt")
    if tuple(int(part) for part in found.split(".")[:2]) < (2, 12):
        raise Unsupported(
            f"torch_tensorrt {found} finds no range of sizes under torch.compile; use tensorrt-aot, or 2.12 to 2.14"
        )


def one_size_only(cudagraphs: bool, external: str) -> str | None:
    """Return why engines with these options accept only one size; None if they accept a range.

    The runtime captures a CUDA graph again whenever a shape changes (core/runtime/TRTEngine.h, set_runtime_states; 54
    in 2.11.0, 74 in 2.13.0). An external operator is a graph that was exported with one size.
    """
    if cudagraphs:
        return "cudagraphs captures a graph for one size, and anew at each change of it; leave it or --sizes out"
    if external:
        return "external makes an operator of a submodule for one size; leave it or --sizes out"
    return None


def unsupported_settings(level: int, min_block_size: int) -> str | None:
    """Return why the optimisation level or block size is not valid; None if both are."""
    if level not in LEVELS:
        return f"TensorRT has no optimization_level={level}; give {LEVELS[0]} to {LEVELS[-1]}"
    return None if min_block_size >= 1 else f"min_block_size={min_block_size} is less than 1; give 1 or more operators"


def check_outside(asked: Mapping[str, str], unconverted: Collection[str]) -> None:
    """Raise Unsupported for an external operator that is not among those that PyTorch runs, given as `unconverted`.

    `asked` has the operators' qualified names by the options that ask for them.
    """
    running = {qualified(name) for name in unconverted}
    for option, name in asked.items():
        if name not in running:
            have = ", ".join(sorted(unconverted)) or "no operator"
            raise Unsupported(
                f"{option}: the graph that torch_tensorrt lowered has no such operator, so nothing would change "
                f"(PyTorch runs {have}); leave it out"
            )


def qualified(name: str) -> str:
    """Return the qualified name of an operator by its name in a PartitionLog: `aten.cumsum` is its default overload."""
    return f"torch.ops.{name}" if name.count(".") > 1 else f"torch.ops.{name}.default"


def load_library() -> Any:
    """Import torch_tensorrt and return it. Raises Unavailable with the library's own reason if it does not load."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            import torch_tensorrt
    except Exception as error:  # torch_tensorrt raises plain Exception
        found = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unavailable(f"torch_tensorrt {version('torch_tensorrt')} does not load: {found}; {INSTALL}") from error
    return torch_tensorrt


def in_own_mode(library: Any, cudagraphs: bool, run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `run` so that each call has its own CUDA-graph mode, which the process keeps afterwards.

    torch_tensorrt keeps one mode for the whole process. Its runtime reads it at every call of every engine, and a call
    without graphs drops the graph that the engine had captured (core/runtime/execute_engine.cpp, 246, and TRTEngine.h,
    set_runtime_states, in 2.13.0; 219 in 2.11.0). Reading it is cheap; setting it calls an operator and logs
    (runtime/_cudagraphs.py), so a call sets it only after a call in the other mode, as in a mix of both, and never in
    the timed window of a row. Concurrent calls of both modes, from several threads, are not supported.

    With `cudagraphs` the first call runs twice: without a graph, then captured. TensorRT asks for an execution before a
    capture, since the first one may allocate memory (NVIDIA/TensorRT#2603).
    """
    runtime, ran = library.runtime, not cudagraphs

    def call_in(mode: bool, *given: Any) -> Any:
        if runtime.get_cudagraphs_mode() != mode:
            runtime.set_cudagraphs_mode(mode)
        return run(*given)

    def call(*given: Any) -> Any:
        nonlocal ran
        if not ran:
            call_in(False, *given)
            ran = True
        return call_in(cudagraphs, *given)

    return call
