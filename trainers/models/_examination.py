"""Examines a module when it is built, and refuses one on which gradients and evaluations could not rely.

A module must be a function of its parameters, its constants, the mode and one example: no running statistics, no
counter, no mixing of examples, and no randomness in evaluations. In training, it may draw from the process's generators
(`_generators`), which `Network` seeds by (seed, round, client, step). Anything else would give other numbers in a pack,
after a restart, or with other reports.

The module is called with two examples, twice in either mode, then with each of them alone and with both in the other
order: a fraction of one step's time. Calls of all its layers are recorded, so that an error names the layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from trainers.engine.memory import ran_out
from trainers.errors import SpecError
from trainers.models._dropout import Dropout, keyed
from trainers.models._generators import GlobalGenerator, generators, seeded
from trainers.models._layer_calls import LayerCall, close, differing, mixing, recorded
from trainers.models._module_state import attributes_of, first_difference, tensors_of
from trainers.models._preparation import owner, refusal, shape_text
from trainers.models._targets import ClassTargets

EXAMPLES = 2
"""Number of examples with which a module is called."""

_SEED = 1
_KEYS = (0x2545F491, -0x61C88647)  # of dropout, one for each example
_OTHER_KERNELS = 3.0  # times the root of rounding: tolerance if one example takes other kernels, where numbers cancel
_REPEATED = 100  # roundings by which numbers may differ in a second call; on a GPU, sums may be in another order
_DRAW_FOR_SOME = frozenset({"rrelu", "rrelu_", "poisson", "binomial"})


class _Watched(TorchFunctionMode):
    """Notices functions of torch that draw for some numbers only, such as rrelu for negative ones."""

    noticed = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.noticed = self.noticed or getattr(func, "__name__", "") in _DRAW_FOR_SOME
        return func(*args, **(kwargs or {}))


@dataclass
class _Pass:
    """One call of the module: its scores, the calls of its layers, and the generators from which it drew."""

    scores: Any = None
    calls: list[LayerCall] = field(default_factory=list)
    drawn: tuple[GlobalGenerator, ...] = ()


@dataclass(frozen=True)
class Examination:
    """Examines one module.

    Args:
        module: the module, with its own Dropout; its mode and its gradients' flags are left as they are.
        again: the same module made anew from the same seed, as `make` returns it; converted to the module's type.
        dropouts: its layers that drop units.
        inputs: (2, ...) of two examples, as the module gets them.
        kind: what the targets are; more scores than it has outputs are accepted of a classifier.
    """

    module: nn.Module
    again: nn.Module
    dropouts: tuple[Dropout, ...]
    inputs: Tensor
    kind: ClassTargets

    def draws(self) -> tuple[GlobalGenerator, ...]:
        """The generators from which the module draws in training mode.

        Raises:
            SpecError: the module cannot be trained; the error names the layer.
        """
        mode = self.module.training
        tensors = tensors_of(self.module)
        self._check_constructions(tensors)
        sources = generators(self.inputs.device)
        with seeded(sources, _SEED):
            try:
                self._examine(tensors, sources, training=False)
                return self._examine(tensors, sources, training=True)
            finally:
                self.module.train(mode)

    def _examine(
        self, tensors: Mapping[str, Tensor], sources: Sequence[GlobalGenerator], training: bool
    ) -> tuple[GlobalGenerator, ...]:
        """The generators from which the module draws in a mode."""
        self.module.train(training)
        when = "training" if training else "evaluation"
        first = self._call(self.inputs, sources)
        self._check_scores(first.scores, EXAMPLES, training)
        if first.drawn and not training:
            raise self._error(
                self._drawing(first.drawn[0]),
                f"draws from {first.drawn[0].name}'s random generator in evaluation mode: it must draw in training "
                "mode only, as nn.Dropout does",
            )
        if (changed := first_difference(tensors, tensors_of(self.module))) is not None:
            layer, name = owner(changed)
            raise self._error(
                layer,
                f"changes its {name} when it is called in {when} mode, but a model must keep nothing besides its "
                "parameters, no running statistics either: use another layer, such as GroupNorm or weight_norm",
            )
        attributes = attributes_of(self.module)
        second = self._call(self.inputs, sources, backward=training)
        if (differing_layer := differing(first.calls, second.calls, _REPEATED * self._rounding)) is not None:
            raise self._error(
                differing_layer,
                f"gives other numbers when it is called again with the same examples in {when} mode: it must keep "
                "nothing between calls, and draw with torch, numpy.random or random, which are seeded",
            )
        if (changed := first_difference(attributes, attributes_of(self.module))) is not None:
            layer, name = owner(changed)
            raise self._error(
                layer, f"changes its attribute {name} at every call, but a model must keep nothing between calls"
            )
        if not first.drawn:
            self._check_examples_alone(second, sources, training)
            self._check_no_look_ahead(second, sources)
        return first.drawn

    def _call(
        self,
        inputs: Tensor,
        sources: Sequence[GlobalGenerator],
        examples: Sequence[int] = range(EXAMPLES),
        backward: bool = False,
    ) -> _Pass:
        """Calls the module with recorded layers, from the same state of all generators every time.

        Args:
            inputs: inputs of some examples.
            sources: all generators.
            examples: indices of these examples.
            backward: whether gradients are computed too.

        Raises:
            SpecError: the module raises an error, changes its inputs, or draws in the backward pass.
        """
        done, watched = _Pass(), _Watched()
        running: list[str] = []
        shown = inputs.clone()
        example_keys = [_KEYS[number] for number in examples]
        keys = torch.tensor(example_keys, dtype=torch.int32, device=inputs.device) if self.module.training else None
        for source in sources:
            source.seed(_SEED)
        marks = [source.mark() for source in sources]
        try:
            record = recorded(self.module, running, done.calls)
            with record, watched, keyed(self.dropouts, keys), torch.set_grad_enabled(self.module.training):
                done.scores = self.module(shown)
                forward_calls, drawn = len(done.calls), [source.mark() for source in sources]
                if backward:
                    trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
                    torch.autograd.grad(done.scores.sum(), trained, allow_unused=True)
        except Exception as error:  # any error of other people's code
            if ran_out(error) or isinstance(error, SpecError):
                raise
            cause = f"{type(error).__name__}: {error}"
            kind = str(inputs.dtype).removeprefix("torch.")
            layer = running[-1] if running else ""
            raise self._error(
                layer, f"fails when the module gets inputs {shape_text(inputs)} of {kind}: {cause}"
            ) from error
        if not close(shown, inputs, 0.0):
            layer = self._changing(shown.copy_(inputs), lambda: shown.cpu().numpy().tobytes())
            raise self._error(layer, "changes the module's inputs in place, which are data that others use: copy them")
        hidden = watched.noticed and self.module.training
        done.drawn = tuple(
            source
            for source, before, after in zip(sources, marks, drawn, strict=True)
            if before != after or (hidden and source.name == "torch")
        )
        again, done.calls = done.calls[forward_calls:], done.calls[:forward_calls]
        if again and (done.drawn or self.dropouts):
            raise self._error(
                again[0].layer,
                "is called again in the backward pass, where random numbers would be others: do without "
                "torch.utils.checkpoint or without dropout",
            )
        for source, mark in zip(sources, drawn, strict=True):
            if source.mark() != mark:
                reason = f"draws from {source.name}'s random generator in the backward pass: draw in `forward` alone"
                raise self._error("", reason)
        return done

    def _check_constructions(self, tensors: Mapping[str, Tensor]) -> None:
        """Two modules of one seed must be equal and share nothing; at least one parameter must be trained."""
        if not any(parameter.requires_grad for parameter in self.module.parameters()):
            raise self._error("", "has no parameter to train: at least one must require a gradient")
        self.again.to(next(self.module.parameters()))
        again = tensors_of(self.again)
        if self.again is self.module or any(
            first is second for first, second in zip(self.module.parameters(), self.again.parameters(), strict=False)
        ):
            raise self._error("", "is returned by `make` twice, but `make` must return a new module at every call")
        if (different := first_difference(tensors, again)) is not None or tensors.keys() != again.keys():
            layer, name = owner(different or "")
            raise self._error(
                layer,
                f"starts with another {name or 'layer'} when it is made again from the same seed: draw with torch, "
                "numpy.random or random, which are seeded, not from a generator of your own",
            )

    def _check_scores(self, scores: Any, examples: int, training: bool) -> None:
        if not isinstance(scores, Tensor):
            raise self._error("", f"must return a tensor of scores, got {type(scores).__name__}")
        shape, axes = tuple(scores.shape), (examples, *[self.kind.positions] * (self.kind.positions > 0))
        fits = len(shape) == len(axes) + 1 and shape[:-1] == axes
        if not fits or (shape[-1] < self.kind.outputs if self.kind.classifies else shape[-1] != self.kind.outputs):
            raise self._error(
                "", f"must return scores (examples, {', '.join(self.kind.axes)}) = "
                f"({', '.join(map(str, (*axes, self.kind.outputs)))}) for {examples} "
                f"example{'s' * (examples > 1)}, got {shape}"
            )  # fmt: skip
        if not scores.is_floating_point():
            raise self._error("", f"must return scores of floating-point type, got {scores.dtype}")
        if training and not scores.requires_grad:
            raise self._error("", "must return scores that depend on a parameter to train, got none that does")

    def _check_examples_alone(self, reference: _Pass, sources: Sequence[GlobalGenerator], training: bool) -> None:
        """The scores of an example must not depend on its neighbours in a batch, on their number, nor on its place."""
        tolerance = _OTHER_KERNELS * self._rounding**0.5
        for examples in ([0], [1], [1, 0]):
            others = self._call(self.inputs[examples], sources, examples)
            self._check_scores(others.scores, len(examples), training)
            if not close(reference.scores[examples], others.scores, tolerance):
                raise self._error(
                    mixing(reference.calls, others.calls, examples, tolerance),
                    "mixes examples: the scores of an example depend on another one in the batch, or on their order: "
                    "the first dimension must be the examples in all layers (batch_first), without batch statistics",
                )

    def _check_no_look_ahead(self, reference: _Pass, sources: Sequence[GlobalGenerator]) -> None:
        """The scores of a position, which predict the next token, must not depend on a later token."""
        if self.kind.positions < 2:
            return
        changed = self.inputs.clone()
        for example in range(EXAMPLES):
            others = self.inputs[self.inputs != self.inputs[example, -1]]
            if not len(others):  # all tokens are the same
                return
            changed[example, -1] = others[0]
        scores = self._call(changed, sources).scores
        if not close(reference.scores[:, :-1], scores[:, :-1], _OTHER_KERNELS * self._rounding**0.5):
            raise self._error(
                "",
                "looks ahead: the scores of a position depend on a later token, which they are to predict: mask "
                "attention (is_causal=True), pad convolutions on the left, and use layers of one direction",
            )

    def _drawing(self, source: GlobalGenerator) -> str:
        return self._changing(self.inputs.clone(), source.mark)

    def _changing(self, inputs: Tensor, mark: Callable[[], bytes]) -> str:
        """The innermost layer during whose call a mark changes."""
        names: list[str] = []
        before: list[bytes] = []

        def entering(*_: Any) -> None:
            before.append(mark())

        def leaving(name: str) -> Callable[..., None]:
            def after(*_: Any) -> None:
                if mark() != before.pop():
                    names.append(name)

            return after

        handles = []
        for name, layer in self.module.named_modules():
            handles += [layer.register_forward_pre_hook(entering), layer.register_forward_hook(leaving(name))]
        try:
            with torch.no_grad():
                self.module(inputs)
        finally:
            for handle in handles:
                handle.remove()
        return names[0] if names else ""

    @property
    def _rounding(self) -> float:
        return torch.finfo(next(self.module.parameters()).dtype).eps

    def _error(self, layer: str, reason: str) -> SpecError:
        return refusal(self.module, layer, reason)


def check_type(module: nn.Module, loss: Callable[[], Tensor], dtype: torch.dtype) -> None:
    """Raises a SpecError if the module cannot compute with numbers of a type.

    Args:
        module: the module.
        loss: computes a loss with the module; its gradient is computed too.
        dtype: the type, for the error.
    """
    try:
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        with torch.enable_grad():
            torch.autograd.grad(loss(), trained, allow_unused=True)
    except Exception as error:  # any error of other people's code
        if ran_out(error):
            raise
        reason = f"fails in {str(dtype).removeprefix('torch.')}: {type(error).__name__}: {error}: make tensors of the "
        raise refusal(module, "", reason + "type of the inputs") from error
