"""Backends with faults that are harder to detect, written without knowledge of the checks.

The comment above each names the fault and where real compilers or runtimes have it.
"""

import hashlib
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import BuildContext, Call, Engine, ModuleEngine, NoOptions, Outputs, Proof
from bakeoff.selftest.faulty import BoundEngine, Inputs, canary

if TYPE_CHECKING:
    from torch import Tensor, nn


def _capture(module: "nn.Module", tensors: "tuple[Tensor, ...]") -> Any:
    """Return the module as one flat graph of ATen operators with its weights inside."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad():
        return make_fx(lambda *given: module(*given))(*(tensor.clone() for tensor in tensors))


def _operators(graph: Any) -> int:
    return sum(node.op == "call_function" for node in graph.graph.nodes)


# Fault: most of the work is done in bind, which is not timed; the call runs only the last nodes.
# Seen in: XLA, OpenVINO and inductor's freezing, which fold whatever does not depend on a parameter: arrays bound
# before compilation count as constants, and folding goes through the whole model. The inputs are cloned, so later
# writes to them have no effect (which the interface allows), every output is correct, and the call still runs a kernel
# (on `picture` the last convolution), so that it may stay above the floor.
def _fold_into_bind(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
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


# Fault: the call computes nothing; it returns a tensor that is computed when it is read.
# Seen in: lazy tensors (torch/XLA, MLX, tinygrad, JAX's asynchronous arrays): without eval() or block_until_ready() the
# clock measures only the enqueueing. Every read (clone, numpy, isfinite, data_ptr) gives correct values, so parity
# passes, and making the wrapper takes microseconds, which may be above the toy's floor.
@cache
def _lazy_class() -> Any:
    import torch

    class Lazy(torch.Tensor):
        @staticmethod
        def __new__(cls: Any, shape: Any, dtype: Any, _compute: Any) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype)

        def __init__(self, _shape: Any, _dtype: Any, compute: Any) -> None:
            self.__dict__["compute"], self.__dict__["known"] = compute, None

        def known_value(self) -> Any:
            if self.__dict__["known"] is None:
                self.__dict__["known"] = self.__dict__["compute"]()
            return self.__dict__["known"]

        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            def computed(value: Any) -> Any:
                if type(value) is Lazy:
                    return value.known_value()
                if isinstance(value, (tuple, list)):
                    return type(value)(computed(one) for one in value)
                return value

            return function(*computed(args), **{name: computed(value) for name, value in (kwargs or {}).items()})

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
            def computed(value: Any) -> Any:
                return value.known_value() if type(value) is Lazy else value

            return function(
                *(computed(one) for one in args), **{name: computed(one) for name, one in (kwargs or {}).items()}
            )

    return Lazy


def _return_lazy_tensors(module: "nn.Module", inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    with torch.no_grad():
        described = [(output.shape, output.dtype) for output in module(*inputs.values())]
    lazy = _lazy_class()

    def bind(inputs: Inputs) -> Call:
        tensors = tuple(inputs.values())

        def compute(number: int) -> "Tensor":
            with torch.no_grad():
                output: Tensor = module(*tensors)[number]
            return output

        return lambda: tuple(
            lazy(shape, dtype, lambda number=number: compute(number)) for number, (shape, dtype) in enumerate(described)
        )

    return BoundEngine(bind)


# Fault: when the first input is within 5 % of the one it last computed with, the call returns the stored outputs.
# Seen in: step caches of diffusion runtimes (TeaCache, FBCache), on by default. They compare one input only, so a new
# t, a new KV cache or a small change of x is ignored, while a different x is computed. Inputs are read at each call,
# so it differs from an engine that copied its inputs only after a large change.
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


# Fault: one call in 61 returns what that slot of a ring buffer held one round before: a complete and finite output of
# another set of inputs.
# Seen in: rings of output slots with an off-by-one at the wrap, or a missing fence on the last slot. 61 is prime, so
# each of the four sets is hit in turn. The first round is correct, and so is every call if sets do not alternate. A
# check of only the last output of each set would find it in 4 of 61 runs.
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


# Fault: the weights change a little every 64 calls, so that outputs are correct at first and wrong later.
# Seen in: repacking or re-quantising from packed weights instead of the originals, a scale applied again at each
# eviction, LoRA merged and unmerged, running statistics left on. The first 63 calls are bit-exact; the error exceeds
# the limit of 1e-4 right after them on `picture`, and after some hundreds of calls on `world`.
def _change_weights(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
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


# Fault: the captured graph runs for 100 calls, then eager for all later ones; the proof is always correct.
# Seen in: dynamo's recompile limit: guards fail, the limit is reached, and from then on the frame runs eagerly, with a
# line in a log. The proof after the first call shows nothing, and no compile counter moves, because nothing compiles.
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


# Fault: only the traced build is compiled; the timed engine runs the module eagerly and states the same proof.
# Seen in: runtimes whose profiling options change how a session is made (ONNX Runtime, OpenVINO, TensorRT), where the
# plain session fails to load its plan and runs the framework's fallback. The hash and the statistics are those of the
# captured graph, not of what runs, so both builds state the same.
def _compile_only_traced(module: "nn.Module", inputs: Inputs, _options: NoOptions, context: BuildContext) -> Engine:
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


# Fault: outputs are written into the caller's input tensors.
# Seen in: buffer donation (XLA's donate_argnums, memory planners that alias outputs with dead inputs). It computes
# from a copy made in bind, so its own outputs stay correct; only the caller's inputs are overwritten, and whatever is
# bound to them later, a second bind of the same engine included.
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


# Fault: every output is kept: calls are correct and fast, and memory grows with each.
# Seen in: caches keyed by identity that are never emptied, the event list of a profiler left on, autograd's saved
# tensors. 2 KiB a call on `world`, 12 KiB on `picture`; a peak over a few calls does not show it.
def _keep_outputs(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    kept: list[Outputs] = []

    def call(*tensors: "Tensor") -> Outputs:
        kept.append(module(*tensors))
        return kept[-1]

    return ModuleEngine(call)


FOLDS_INPUTS = canary("folds-inputs", "does most of the work in bind", _fold_into_bind)
LAZY = canary("lazy", "computes when its output is read", _return_lazy_tensors)
STEP_CACHE = canary("step-cache", "reuses outputs while its first input is nearly the same", _cache_steps)
RING_WRAP = canary("ring-wrap", "returns another set's output once in 61 calls", _wrap_ring)
CHANGES_WEIGHTS = canary("changes-weights", "changes its weights a little every 64 calls", _change_weights)
LATE_FALLBACK = canary(
    "late-fallback", "becomes eager after 100 calls, and its proof states so from then on", _fall_back_late, False
)
TRACED_ONLY = canary("traced-only", "compiles only the traced build", _compile_only_traced, False)
DONATES_INPUT = canary("donates-input", "writes its outputs over the caller's inputs", _donate)
KEEPS_OUTPUTS = canary("keeps-outputs", "keeps every output", _keep_outputs)


# Fault: a product reads a pad that nothing has written; its weights there are zero.
# Seen in: kernels that round a size up to their tile (pytorch#195582). Zero times what lies in fresh memory is zero,
# until that is not a number. The pad is behind the workspace's scratch, which small blocks do not reach.
def _read_a_pad(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    scratch, pad = 2**20, 32

    def product(layer: Any, x: "Tensor") -> "Tensor":
        rows, columns = x.numel() // x.shape[-1], layer.in_features
        workspace = torch.empty(scratch + (columns + pad) * rows)
        padded = workspace[scratch:].view(columns + pad, rows)
        padded[:columns] = x.reshape(rows, columns).T
        return (padded.T @ torch.nn.functional.pad(layer.weight, (0, pad)).T).view(*x.shape[:-1], -1)

    for layer in module.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.forward = partial(product, layer)  # type: ignore[method-assign]
    return ModuleEngine(module)


UNWRITTEN_PAD = canary("unwritten-pad", "reads memory that nothing has written, times zero", _read_a_pad)
