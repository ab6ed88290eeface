"""Lies that are harder to see, written by someone who had not read what looks for them.

Above each stands how it happens in a real compiler or runtime.
"""

import hashlib
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import BuildContext, Call, Engine, ModuleEngine, NoOptions, Outputs, Proof
from bakeoff.selftest.faulty import BoundEngine, Inputs, canary

if TYPE_CHECKING:
    from torch import Tensor, nn


def _capture(module: "nn.Module", tensors: "tuple[Tensor, ...]") -> Any:
    """The module as one flat graph of ATen operators with its weights inside."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad():
        return make_fx(lambda *given: module(*given))(*(tensor.clone() for tensor in tensors))


def _operators(graph: Any) -> int:
    return sum(node.op == "call_function" for node in graph.graph.nodes)


# LIE: most of the work is done in bind, which nobody times; the call runs only what is left.
# REAL: XLA, OpenVINO and inductor's freezing fold what does not depend on a parameter; arrays closed over or bound
# before compilation count as constants, and folding goes right through the model. A size rule leaves the last nodes.
# The inputs are cloned, so later writes to them change nothing (as the interface allows), every output is right, and
# the call still runs a real kernel: on `picture` the last convolution, so it need not fall below a floor.
def _fold(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    def bind(inputs: Inputs) -> Call:
        import torch

        tensors = tuple(tensor.clone() for tensor in inputs.values())
        graph = _capture(module, tensors)
        values: dict[str, Any] = {}

        class Recorder(torch.fx.Interpreter):
            def run_node(self, node: Any) -> Any:
                values[node.name] = super().run_node(node)
                return values[node.name]

        with torch.no_grad():
            Recorder(graph).run(*tensors)
        nodes = [node for node in graph.graph.nodes if node.op in ("placeholder", "call_function")]
        for number, node in enumerate(nodes[:-2]):
            value = values[node.name]
            if isinstance(value, torch.Tensor):
                graph.register_buffer(f"folded_{number}", value.detach().contiguous())
                with graph.graph.inserting_after(node):
                    constant = graph.graph.get_attr(f"folded_{number}")
                node.replace_all_uses_with(constant)
        graph.graph.eliminate_dead_code()
        graph.recompile()
        run = graph.forward

        def call() -> Outputs:
            with torch.no_grad():
                return tuple(run(*tensors))

        return call

    return BoundEngine(bind)


# LIE: the call computes nothing; it returns a tensor that computes itself when somebody looks.
# REAL: lazy tensors (torch/XLA, MLX, tinygrad, JAX's asynchronous arrays): without eval()/block_until_ready() the clock
# sees the enqueueing alone. Every look (clone, numpy, isfinite, data_ptr) gives the right values, so parity passes,
# and making the wrapper costs microseconds, which may be above the toy's floor.
@cache
def _lazy_class() -> Any:
    import torch

    class Lazy(torch.Tensor):
        @staticmethod
        def __new__(cls: Any, shape: Any, dtype: Any, _think: Any) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype)

        def __init__(self, _shape: Any, _dtype: Any, think: Any) -> None:
            self.__dict__["think"], self.__dict__["known"] = think, None

        def known_value(self) -> Any:
            if self.__dict__["known"] is None:
                self.__dict__["known"] = self.__dict__["think"]()
            return self.__dict__["known"]

        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            def look(value: Any) -> Any:
                if type(value) is Lazy:
                    return value.known_value()
                if isinstance(value, (tuple, list)):
                    return type(value)(look(one) for one in value)
                return value

            return function(*look(args), **{name: look(value) for name, value in (kwargs or {}).items()})

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
            def look(value: Any) -> Any:
                return value.known_value() if type(value) is Lazy else value

            return function(*(look(one) for one in args), **{name: look(one) for name, one in (kwargs or {}).items()})

    return Lazy


def _be_lazy(module: "nn.Module", inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    with torch.no_grad():
        forms = [(output.shape, output.dtype) for output in module(*inputs.values())]
    lazy = _lazy_class()

    def bind(inputs: Inputs) -> Call:
        tensors = tuple(inputs.values())

        def think(number: int) -> "Tensor":
            with torch.no_grad():
                output: Tensor = module(*tensors)[number]
            return output

        return lambda: tuple(
            lazy(shape, dtype, lambda number=number: think(number)) for number, (shape, dtype) in enumerate(forms)
        )

    return BoundEngine(bind)


# LIE: when the first input is within 5 % of the one it saw last in this set, it returns what it had.
# REAL: step caches of diffusion runtimes (TeaCache, FBCache), on by default. They look at one input and at no other,
# so a new t, KV cache or a small change of x is ignored; a wholly new x is computed properly. It reads its inputs
# live, so it answers a small change with the old answer (like an engine that copied) and a large one with the new.
# FOUND BY: a change of t or the caches alone, or of one element, in place; on `picture` a change of a few per cent.
def _cache_steps(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    def bind(inputs: Inputs) -> Call:
        import torch

        tensors = tuple(inputs.values())
        seen: list[Tensor] = []
        kept: list[Tensor] = []

        def call() -> Outputs:
            with torch.no_grad():
                first = tensors[0]
                if not kept or float(torch.dist(first, seen[0])) > 0.05 * float(torch.linalg.vector_norm(seen[0])):
                    kept[:] = module(*tensors)
                    seen[:] = [first.clone()]
                return tuple(output.clone() for output in kept)

        return call

    return BoundEngine(bind)


# LIE: one call in 61 returns what that slot of its ring held one turn before: another set's output, whole and finite.
# REAL: a ring of output slots with an off-by-one at the wrap, or a fence that is missed on the last slot. 61 is prime,
# so the four sets take turns at being hit; the first turn of the ring is clean, and if sets do not take turns the old
# value is the right one. A check of the last output of each set meets it in 4 cases out of 61.
def _wrap_ring(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    slots = 61
    ring: list[Outputs] = []
    turn = [0]

    def call(*tensors: "Tensor") -> Outputs:
        number = turn[0]
        turn[0] += 1
        slot = number % slots
        if number < slots:
            ring.append(module(*tensors))
        elif slot != slots - 1:
            ring[slot] = module(*tensors)
        else:
            outputs = ring[slot]
            ring[slot] = module(*tensors)
            return outputs
        return ring[slot]

    return ModuleEngine(call)


# LIE: its weights drift: right at first, a little wrong after hundreds of calls, never by a jump.
# REAL: repacking or re-quantising from the packed weights instead of the originals, a scale applied again at each
# eviction, LoRA merged and unmerged, running statistics left on. The first 63 calls are bit-exact; it leaves the
# budget of 1e-4 at once after them on `picture`, and after some hundreds of calls on `world`.
def _creep(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import copy

    import torch

    own = copy.deepcopy(module)
    made = [0]

    def call(*tensors: "Tensor") -> Outputs:
        made[0] += 1
        if made[0] % 64 == 0:
            with torch.no_grad():
                for weight in own.parameters():
                    weight.mul_(1.0002)
        outputs: Outputs = own(*tensors)
        return outputs

    return ModuleEngine(call)


# LIE: its captured graph does the work for 100 calls, then eager does, for good; the proof is honest whenever asked.
# REAL: dynamo's recompile limit: guards fail, the limit is reached, and from then on the frame runs eagerly, with a
# line in a log. A proof asked for after the first call is clean; no compile counter moves, as nothing compiles.
def _fall_back_late(module: "nn.Module", inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    graph = _capture(module, tuple(inputs.values()))
    made = [0]

    def call(*tensors: "Tensor") -> Outputs:
        made[0] += 1
        return tuple(graph(*tensors)) if made[0] <= 100 else tuple(module(*tensors))

    def prove() -> Proof:
        late = "eager: the recompile limit was reached" if made[0] > 100 else ""
        return Proof(fell_back=late, graphs=1, graph_breaks=0, operators_inside={"aten": _operators(graph)})

    return ModuleEngine(call, prove, lambda: {"compiles": 1})


# LIE: only the twin is compiled; what is timed is the module as it was written, with the twin's proof.
# REAL: profiling options change how a session is made (ONNX Runtime, OpenVINO and TensorRT all build differently), and
# a plain session that fails to load its plan runs the framework's fallback. The hash is of the captured graph, not of
# what runs, and the statistics are those of the capture: so both builds state the same, and both honestly captured.
# FOUND BY: the module's own forward being run by the timed engine (a hook, a poisoned module), or profiling it too.
def _compile_twin_only(module: "nn.Module", inputs: Inputs, _options: NoOptions, context: BuildContext) -> Engine:
    import torch

    graph = _capture(module, tuple(inputs.values()))

    def compiled(*tensors: "Tensor") -> Outputs:
        with torch.profiler.record_function("graph_0_fused"):
            return tuple(graph(*tensors))

    def prove() -> Proof:
        return Proof(
            graphs=1,
            graph_breaks=0,
            operators_inside={"aten": _operators(graph)},
            graph_hash=hashlib.sha256(graph.code.encode()).hexdigest(),
        )

    return ModuleEngine(compiled if context.trace else module, prove, lambda: {"compiles": 1})


# LIE: its output is its input: what the caller gave is overwritten, and the returned tensor lies in it.
# REAL: buffer donation (XLA's donate_argnums, a memory planner that aliases outputs with dead inputs). It works from a
# staged copy that it made in bind, so its own outputs are right for ever; only the caller's inputs are ruined, and
# whatever is bound to them afterwards, its own second bind included.
def _donate(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    def bind(inputs: Inputs) -> Call:
        import torch

        given = tuple(inputs.values())
        staged = tuple(tensor.clone() for tensor in given)

        def donate(output: "Tensor") -> "Tensor":
            for tensor in given:
                if tensor.is_contiguous() and tensor.dtype == output.dtype and tensor.numel() >= output.numel():
                    return tensor.view(-1)[: output.numel()].view(output.shape).copy_(output)
            return output

        def call() -> Outputs:
            with torch.inference_mode():
                outputs: Outputs = module(*staged)
                return (donate(outputs[0]), *outputs[1:])

        return call

    return BoundEngine(bind)


# LIE: from its fifth call on it runs on another number of threads than the record says.
# REAL: a runtime that sets OpenMP's thread number for the whole process when its pool starts, lazily. `threads` is a
# fact of the context; a look at build time or after the first call finds it kept.
def _change_threads(module: "nn.Module", _inputs: Inputs, _options: NoOptions, context: BuildContext) -> Engine:
    made = [0]

    def call(*tensors: "Tensor") -> Outputs:
        import torch

        made[0] += 1
        if made[0] == 5:
            torch.set_num_threads(1 if context.threads > 1 else max(2, os.cpu_count() or 2))
        outputs: Outputs = module(*tensors)
        return outputs

    return ModuleEngine(call)


# LIE (an eleventh): it never lets go of an output: right and quick, and it grows for as long as it is called.
# REAL: a cache keyed by identity that nobody empties, an event list of a profiler left on, autograd's saved tensors.
# 2 KiB a call on `world`, 12 KiB on `picture`; a peak measured over few calls sees nothing.
def _hoard(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    kept: list[Outputs] = []

    def call(*tensors: "Tensor") -> Outputs:
        kept.append(module(*tensors))
        return kept[-1]

    return ModuleEngine(call)


FOLDS_INPUTS = canary("folds-inputs", "does most of the work in bind", _fold)
LAZY = canary("lazy", "computes when looked at", _be_lazy)
STEP_CACHE = canary("step-cache", "reuses outputs while its first input is nearly the same", _cache_steps)
RING_WRAP = canary("ring-wrap", "gives another set's output once in 61 calls", _wrap_ring)
CREEPS = canary("creeps", "has weights that creep away", _creep)
LATE_FALLBACK = canary("late-fallback", "becomes eager after 100 calls, and then proves it", _fall_back_late, False)
TWIN_ONLY = canary("twin-only", "compiles the twin alone", _compile_twin_only, False)
DONATES_INPUT = canary("donates-input", "writes its outputs over the caller's inputs", _donate)
THREADS_DRIFT = canary("threads-drift", "changes the number of threads at its fifth call", _change_threads)
HOARDS = canary("hoards", "keeps every output", _hoard)
