"""Columns of measures of all examples: trial by trial on a CPU, where a few examples fit the cache; at once elsewhere.

On an accelerator the scores of all trials for as many examples as its memory holds are one call. A module that vmap
does not take, such as one that branches on its data, is called trial by trial there too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from trainers.engine.layout import Layout
from trainers.engine.memory import ran_out, room
from trainers.models._targets import ClassTargets


class ScoredExamples:
    """Measures a module on examples.

    Args:
        module: the module.
        layout: layout of its parameters.
        kind: what the targets are.
        shown: converts inputs to those that the module takes.
        examples: examples that are computed at once for one trial on a CPU.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        kind: ClassTargets,
        shown: Callable[[Tensor], Tensor],
        examples: int,
    ) -> None:
        self.module = module
        self.layout = layout
        self.kind = kind
        self.shown = shown
        self.examples = examples
        self._together = True
        self._bytes: int | None = None

    def columns(self, params: Tensor, inputs: Tensor, targets: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
        """Columns of measures, (T, examples) float64 each.

        Args:
            params: (T, 1, P).
            inputs: (examples, ...).
            targets: (examples, ...).
            names: names of the columns.
        """
        self.module.eval()
        with torch.no_grad():
            if params.is_cpu or not self._together:
                return self._trial_by_trial(params, inputs, targets, names)
            try:
                return self._at_once(params, inputs, targets, names)
            except Exception as error:  # any error of other people's code
                if ran_out(error):
                    raise
                self._together = False
                return self._trial_by_trial(params, inputs, targets, names)

    def bytes_of_example(self, inputs: Tensor) -> int:
        """Bytes of all tensors that a forward pass on an example makes, an upper bound of what it needs at a time."""
        if self._bytes is None:
            tensors = {name: parameter.detach() for name, parameter in self.module.named_parameters()}
            with torch.no_grad(), _made_bytes() as counter:
                self._scores(tensors, inputs[:1])
            self._bytes = max(1, counter.total)
        return self._bytes

    def _scores(self, tensors: dict[str, Tensor], inputs: Tensor) -> Tensor:
        scores: Tensor = torch.func.functional_call(self.module, tensors, (self.shown(inputs),))
        return scores

    def _trial_by_trial(
        self, params: Tensor, inputs: Tensor, targets: Tensor, names: Sequence[str]
    ) -> dict[str, Tensor]:
        columns = _unset(params, len(inputs), names)
        size = self.examples if params.is_cpu else max(1, room(params.device) // self.bytes_of_example(inputs))
        for trial, row in enumerate(params[:, 0]):
            tensors = self.layout.views(row)
            for start in range(0, len(inputs), size):
                chunk = slice(start, start + size)
                scores = self._scores(tensors, inputs[chunk])
                some_targets = self.kind.wanted(targets[chunk])
                for name, column in columns.items():
                    column[trial, chunk] = self.kind.column(name, scores, some_targets)
        return columns

    def _at_once(self, params: Tensor, inputs: Tensor, targets: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
        columns = _unset(params, len(inputs), names)
        size = max(1, room(params.device) // (len(params) * self.bytes_of_example(inputs)))
        tensors = self.layout.views(params[:, 0])

        def measured(trial_tensors: dict[str, Tensor], some_inputs: Tensor, some_targets: Tensor) -> tuple[Tensor, ...]:
            scores = self._scores(trial_tensors, some_inputs)
            return tuple(self.kind.column(name, scores, some_targets) for name in names)

        of_trials = torch.func.vmap(measured, in_dims=(0, None, None))
        for start in range(0, len(inputs), size):
            chunk = slice(start, start + size)
            values = of_trials(tensors, inputs[chunk], self.kind.wanted(targets[chunk]))
            for name, column in zip(names, values, strict=True):
                columns[name][:, chunk] = column
        return columns


def _unset(params: Tensor, examples: int, names: Sequence[str]) -> dict[str, Tensor]:
    shape = (len(params), examples)
    return {name: torch.empty(shape, dtype=torch.float64, device=params.device) for name in names}


class _MadeBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not annotate it
    """Adds up the bytes of the tensors that operations return, except views."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = (leaf for leaf in _leaves(result) if isinstance(leaf, Tensor))
            self.total += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return result


def _leaves(result: Any) -> Iterator[Any]:
    """What an operation returns: a tensor, or several, which may be in lists."""
    if isinstance(result, list | tuple):
        for part in result:
            yield from _leaves(part)
    else:
        yield result


@contextmanager
def _made_bytes() -> Iterator[_MadeBytes]:
    with _MadeBytes() as counter:  # type: ignore[no-untyped-call]
        yield counter
