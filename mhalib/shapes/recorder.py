"""Run a layer and write down each operation, from below autograd: what torch really does, not what was meant."""

from __future__ import annotations

import inspect
import linecache
import os
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from .._validate import require_count
from .arguments import axes_of_arguments, is_compiled, modules_of, own_sizes, tensor_arguments, unwrapped
from .axes import Axes, Names, unknown
from .axis_rules import SOFTMAX, follow, is_fused, meetings, tensors_in, weight_axes
from .flops import flops, moved
from .ledger import Ledger
from .steps import DIVIDES, SILENT, Operation, Source, group

WEIGHT = "a weight"  # of a layer that is called inside a function
COMPOSITE = "CompositeImplicitAutograd"  # torch's word for operations that are made of others
TORCH = os.path.dirname(torch.__file__)
DISPATCH = tuple(os.path.join(TORCH, part) for part in ("utils", "_ops", "_compile", "_dynamo"))
HERE = os.path.join(os.path.dirname(__file__), "")


def ledger(
    layer: Callable[..., Any],
    /,
    *args: Any,
    axes: Mapping[str, str] | None = None,
    num_heads: int | None = None,
    **kwargs: Any,
) -> Ledger:
    """Run `layer(*args, **kwargs)` and list each step: operation, shape, names of axes, strides, view or copy, bytes.

    What a step computes and moves is written down, too, and `print(ledger(...).costs)` shows it: see `Step`.

    It works for every layer or function that computes with torch: this book's, `torch.nn.MultiheadAttention`, your
    own; with gradients or without, on any device. The layer computes what it would compute without the ledger, on
    the same path but for one thing: under any observer, torch avoids some additions in place, such as that of the
    bias to a linear layer of a tensor that is not contiguous. A compiled layer runs as its code before compilation.
    All memory of the run is kept until it ends, so that no place in it is used twice.

    Args:
        layer: a module or a function.
        args, kwargs: what it is called with.
        axes: names for the axes of tensor arguments: `{"x": "B N D"}`. Without it, the first tensor of three axes
            is (B, Q, D) and the next ones (B, K, D), or all are (B, N, D) if the first stands there twice, with the
            batch second if the layer says `batch_first=False`; with four axes (B, h, Q, d) and (B, h, K, d);
            integers are (B) or (B, Q); a boolean mask ends in (Q, K), or is (B, K) if its size says so.
        num_heads: h. Without it, the layer is asked; else the first cut of D into two tells it.

    Returns:
        A `Ledger`. An axis is named by where it comes from, not by its size: of `reshape(B, h, N, d)` it says that
        tokens and channels are mixed, although the shape is right. Only an axis that comes from nowhere, such as that
        of `arange`, takes the name of its size, if there is one such name; where nothing is known stands a number.

    Raises:
        TypeError: `layer` cannot be called, or `axes` is no mapping.
        ValueError: `num_heads` is less than 1, `axes` names an argument that is not there, or another number of axes
            than the tensor has.
    """
    if not callable(layer):
        raise TypeError(f"layer must be a module or a function, got {type(layer).__name__}: {layer!r:.80}")
    if num_heads is not None:
        require_count("num_heads", num_heads)
    called, (layer, args, kwargs) = layer, unwrapped(layer, args, kwargs)
    modules = modules_of(layer)
    compiled = is_compiled([called, *modules.values()])
    sizes = own_sizes([layer, *modules.values()]) | ({} if num_heads is None else {"h": num_heads})
    recorder = _Recorder(Names(sizes))
    recorder.know_arguments(tensor_arguments(layer, args, kwargs), axes, getattr(layer, "batch_first", True))
    recorder.know_weights(modules)
    try:
        with recorder:
            output = layer(*args, **kwargs)
    finally:
        recorder.forget()
    notes = ["the layer is compiled: these are the steps of its code before compilation"] if compiled else []
    if recorder.names.inferred:
        notes.append(f"h = {sizes['h']} and d = {sizes['d']} are taken from the first cut of D")
    if not recorder.operations:
        notes.append("torch did nothing during the call")
    steps, found = group(recorder.operations, recorder.weights)
    return Ledger(steps, (*notes, *found, *recorder.unseen), output)


class _Recorder(TorchDispatchMode):
    """Writes `operations`. Tensors are known by their place in memory, because autograd wraps them anew."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self.names = names
        self.operations: list[Operation] = []
        self.weights: set[Source | None] = {WEIGHT}
        self.unseen: dict[str, None] = {}
        self._axes: dict[tuple[Any, ...], Axes] = {}
        self._sources: dict[tuple[Any, ...], Source] = {}
        self._parts: dict[tuple[Any, ...], int] = {}  # of several results that one operation gave
        self._owners: dict[int, Source] = {}  # of storages
        self._alive: list[Any] = []  # so that no place in memory is used twice
        self._autocasts = [f"Autocast{kind.upper()}" for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
        self._site: tuple[FrameType | None, int] = (None, -1)
        self._sites = 0

    def know_arguments(
        self, arguments: Mapping[str, Tensor], axes: Mapping[str, str] | None, batch_first: bool
    ) -> None:
        for name, known in axes_of_arguments(self.names, arguments, axes, batch_first).items():
            self._axes.setdefault(_place(arguments[name]), known)
        self.names.learn_head_width()
        for name, tensor in arguments.items():
            twin, owner = self._sources.get(_place(tensor)), self._owners.get(_storage(tensor))
            self._own(tensor, name if twin is None else f"{twin}={name}")
            if owner is not None and twin is None:
                self._owners[_storage(tensor)] = f"{owner}, {name}"

    def know_weights(self, modules: Mapping[str, nn.Module]) -> None:
        for path, module in modules.items():
            projects = isinstance(module, (nn.Linear, nn.MultiheadAttention))
            for name, weight in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
                if tensors_in(weight) and self._sources.get(_place(weight)) not in self.weights:
                    self._know_weight(weight, f"{path}.{name}".replace("_orig_mod.", "").removeprefix("."), projects)

    def _know_weight(self, weight: Tensor, name: str, projects: bool = False) -> None:
        width = self.names.sizes.get("D")
        is_sure = projects or list(self.names.sizes.values()).count(width or 1) == 1
        self._axes[_place(weight)] = weight_axes(weight.shape, width if is_sure else None, projects, self.names.sizes)
        self.weights.add(name)
        self._own(weight, name)

    def forget(self) -> None:
        """Let go of the layer's memory and of the code that used it."""
        self._alive.clear()
        self._site = (None, -1)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled() and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE):
            with self, self._as_above():  # no autograd has taken it apart
                return func._op_dk(getattr(torch._C.DispatchKey, COMPOSITE), *args, **kwargs)
        name = func._schema.name.split("::")[1]
        given = [argument.name for argument in func._schema.arguments if argument.is_out]  # memory for the results
        inputs = tensors_in((args, {key: value for key, value in kwargs.items() if key not in given}))
        for tensor in inputs:
            if isinstance(tensor, nn.Parameter) and _place(tensor) not in self._sources:
                self._know_weight(tensor, WEIGHT)
        operands = [self._axes_of(tensor) for tensor in inputs]
        result = func(*args, **kwargs)
        outputs = tensors_in((result,))
        if name == "_local_scalar_dense":
            self.unseen["the code looks at values, for which the processor waits for a GPU"] = None
        if is_fused(name) or func.namespace != "aten":
            self.unseen[f"{name} is one fused kernel: what happens inside it cannot be seen"] = None
        if outputs and name not in SILENT:
            in_place = name.endswith("_") or bool(given)
            costs = flops(func, args, kwargs, result), moved(func, name, inputs, outputs, in_place)
            self._write(func, name, args, inputs, operands, outputs, in_place, costs)
        return result

    def _as_above(self) -> Any:
        """Opens the ways that torch closes below a dispatch mode, but a composite operation takes without one."""
        closed = torch._C._dispatch_tls_local_exclude_set()
        for key in ("ADInplaceOrView", *self._autocasts):
            closed = closed.remove(getattr(torch._C.DispatchKey, key))
        return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), closed)

    def _write(
        self,
        func: Any,
        name: str,
        args: Any,
        inputs: list[Tensor],
        operands: list[Axes],
        outputs: list[Tensor],
        in_place: bool,
        costs: tuple[int, int],
    ) -> None:
        pointwise = torch.Tag.pointwise in func.tags
        reads = [self._sources.get(_place(x), self._owners.get(_storage(x))) for x in inputs]
        pairs = [
            " with ".join(self.names.of_axis(axis, 1) for axis in pair) for pair in meetings(name, operands, pointwise)
        ]
        followed = follow(name, args, inputs, outputs, operands, pointwise)
        if name in ("view", "_unsafe_view"):
            self.names.learn_heads(followed[0])
        new = {_storage(x): x.untyped_storage().nbytes() for x in outputs if _storage(x) not in self._owners}
        code = self._find_site()
        self.operations.append(
            Operation(
                name=name,
                over=self.names.of_axis(operands[0][args[1]], 1) if name in SOFTMAX else "",
                reads=reads,
                parts_read=[self._parts.get(_place(x)) for x in inputs],
                shape=tuple(outputs[0].shape),
                axes=self.names.of_axes(followed[0], outputs[0].shape),
                strides=outputs[0].stride(),
                in_place=in_place,
                parts=len(outputs),
                bytes=sum(new.values()),
                flops=costs[0],
                moved=costs[1],
                memory_of=None if _storage(outputs[0]) in new else self._owners[_storage(outputs[0])],
                pairs=pairs,
                site=self._sites,
                code=code,
            )
        )
        for part, (tensor, axes) in enumerate(zip(outputs, followed, strict=True)):
            self._axes[_place(tensor)] = axes
            self._own(tensor, len(self.operations) - 1)
            if name in DIVIDES:
                self._parts[_place(tensor)] = part
            else:
                self._parts.pop(_place(tensor), None)

    def _own(self, tensor: Tensor, source: Source) -> None:
        self._alive.append(tensor.untyped_storage())
        if isinstance(source, str) or _storage(tensor) not in self._owners:
            self._owners[_storage(tensor)] = source
        self._sources[_place(tensor)] = source

    def _axes_of(self, tensor: Tensor) -> Axes:
        return self._axes.get(_place(tensor)) or unknown(tensor.shape)

    def _find_site(self) -> str:
        """Counts places in the code: innermost Python frame and instruction. Returns the line that is not torch's."""
        frame, inner, author = inspect.currentframe(), None, None
        while frame is not None and author is None:
            file = frame.f_code.co_filename
            if not file.startswith((HERE, *DISPATCH)):
                inner = inner or frame
                author = None if file.startswith(TORCH) else frame
            frame = frame.f_back
        site = (inner, inner.f_lasti if inner else -1)
        in_backward = torch._C._current_graph_task_id() != -1  # all of it comes from one place in the code
        self._sites += in_backward or inner is None or site != self._site
        self._site = site  # held until the end, so that no other frame takes its identity
        return linecache.getline(author.f_code.co_filename, author.f_lineno).strip() if author else ""


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return _storage(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
