"""Any torch module as a model: its data on a device, its oracles, its evaluation.

A model is one file in trainers/models (or an installed package's entry point) with

    Settings                             a frozen dataclass of the model's settings in a task's document
    build(problem, dtype, device)        returns Network(problem, make, dtype, device, ...)

where `make` returns a new torch.nn.Module from inputs (examples, ...) to scores, whose shape and loss follow from the
targets (`Examples.kind`): (examples, classes) with cross-entropy, (examples, numbers) with half the squared error,
(examples, tags) with the sum of the tags' sigmoid cross-entropies, (examples, positions, tokens) with the mean of the
positions' cross-entropies, or (examples, items) with the hinge of the example's item.

Gradients are computed in training mode, evaluations in evaluation mode. What a module draws in training comes from
(seed, round, client, step): the masks of torch.nn.Dropout from each example's own key, anything else from the
process's generators, which are seeded for each batch of a client. Such a module has one oracle, one by one; it draws
other numbers on a GPU. `_examination` refuses modules that keep state besides the parameters, such as batch
normalisation, or mix examples; group or layer normalisation is fine.

Parameters start with PyTorch's default initialisation of each layer, drawn in single precision on the CPU by torch's
generator, seeded from the trial's seed alone: equal for all types, all devices and all methods. Buffers and frozen
parameters (`requires_grad_(False)`, or not named by the model setting `train`) are constants, the same in all trials:
as `make` leaves them with seed 0. They are neither sent nor counted, nor kept in checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainers.engine import randomness
from trainers.engine.batches.examples import ExampleSource
from trainers.engine.layout import Layout
from trainers.engine.memory import owned, room
from trainers.engine.oracles.autograd import Autograd
from trainers.engine.oracles.one_by_one import EXAMPLES as LOOP_EXAMPLES
from trainers.engine.oracles.one_by_one import Loop
from trainers.engine.oracles.oracle import Batch, Matrices, Oracle, client_major, example_weights
from trainers.engine.oracles.vmapped import EXAMPLES as VMAP_EXAMPLES
from trainers.engine.oracles.vmapped import Vmap
from trainers.errors import SpecError
from trainers.models._augmentation import moved
from trainers.models._dropout import dropout_keys, keyed, own_dropout
from trainers.models._evaluation import Evaluation, row_weights
from trainers.models._examination import EXAMPLES, Examination, check_type
from trainers.models._example_space import InnerProducts
from trainers.models._generators import GlobalGenerator, generators, seeded
from trainers.models._layer_calls import end_parameters
from trainers.models._preparation import dense, freeze_others, give_shapes, refuse_unsuited
from trainers.models._problem import examples_of
from trainers.models._scored_examples import ScoredExamples
from trainers.models._stack_oracles import Stack
from trainers.models._stacks import stack_of
from trainers.models._targets import ClassTargets, NumberTargets, TagTargets, held_whole, targets_of
from trainers.models._two_examples import two_examples
from trainers.problem import WHOLE, Examples, Problem
from trainers.trial.passes import PassEnd

_EVALUATED = 256  # examples computed at once in an evaluation; more do not fit the cache
_EVALUATED_TOKENS, _LOOP_TOKENS, _VMAP_TOKENS = 4096, 8192, 65536  # at once: scores are as long as a vocabulary
_BY_HAND = (ClassTargets, NumberTargets, TagTargets)  # targets with a loss whose derivatives are known
_PASSES = 3  # memory of a gradient, in forward passes


class Network:
    """A torch module for classification or regression, and its data on a device.

    Args:
        problem: a problem with Examples. Inputs of whole numbers, such as word ids, reach the module as int64
            if it takes them, else as floats.
        make: returns a new module, initialised by torch's, numpy's or Python's generator; called again for every
            initial model. Layers without a shape, such as LazyLinear, get it from a call with one example.
        dtype: type of all floating-point tensors. With bfloat16 they are float32, and the module runs in bfloat16 for
            gradients.
        device: device of all tensors.
        targets: what the targets mean; None derives it from their kind.
        crop: largest random shift of training images, in pixels; 0 is none.
        flip: whether training images are mirrored at random.
        by_item: whether, for gradients, the module also takes each example's item and scores only that, (examples,).

    Raises:
        SpecError: the module does not fit the data, or cannot be trained (`_examination`).
    """

    explosion = 1e3

    def __init__(
        self,
        problem: Problem,
        make: Callable[[], nn.Module],
        dtype: torch.dtype,
        device: torch.device,
        targets: ClassTargets | None = None,
        *,
        crop: int = 0,
        flip: bool = False,
        by_item: bool = False,
    ) -> None:
        train = examples_of(problem)
        self.rounding = dtype if dtype == torch.bfloat16 else None
        self.like = torch.empty(0, dtype=torch.float32 if self.rounding else dtype, device=device)
        self.make = make
        self.patterns: Sequence[str] = problem.model_settings.get("train", ())
        self.example = train.inputs[:1].copy()
        self.kind = targets_of(problem, train) if targets is None else targets
        self.classifies = self.kind.classifies
        self.generators = generators(device)
        self.draws: tuple[GlobalGenerator, ...] = ()
        self.module = self._made(0)
        refuse_unsuited(self.module)
        self.module.to(self.like)
        dense(self.module)
        self.dropouts = own_dropout(self.module)
        trained = {name: parameter for name, parameter in self.module.named_parameters() if parameter.requires_grad}
        self.layout = Layout.of({name: tuple(parameter.shape) for name, parameter in trained.items()})
        self.crop, self.flip = crop, flip
        self.by_item = by_item
        self.clients = train.clients
        self.examples: NDArray[np.int64] | None = train.sizes
        self.offsets, self.sizes = train.offsets, train.sizes
        self.labels = train.targets
        weights = problem.client_weights
        self.client_weights = np.full(self.clients, 1 / self.clients) if weights is None else np.asarray(weights)
        self.images = train.inputs.ndim == 4
        without_memory = device.type == "meta"  # tensors have shapes only, and a first call costs seconds of imports
        self.whole = train.inputs.dtype.kind in WHOLE and (without_memory or self._takes_whole(train))
        self.inputs, self.targets = self._held(train)
        self.test = problem.test
        self.held_out = None if problem.test is None else self._held(problem.test)
        if not without_memory:
            self.draws = Examination(self.module, self._made(0), self.dropouts, self._two_examples(), self.kind).draws()
            if self.rounding is not None:
                data = self._two_labelled()
                check_type(self.module, lambda: self._functional_losses({}, data).sum(), self.rounding)
        evaluated = self._at_once(_EVALUATED, _EVALUATED_TOKENS)
        self.scored = ScoredExamples(self.module, self.layout, self.kind, self._shown, evaluated)
        loop = self._at_once(LOOP_EXAMPLES, _LOOP_TOKENS)
        single = Loop(self.layout, self.module, self._losses, loop, sparse=self.rounding is None)
        self.oracles: Mapping[str, Oracle] = {"loop": single}
        if not self.draws:
            self.oracles = {
                **self.oracles,
                "vmap": Vmap(self.layout, self._functional_losses, self._vmapped),
                "autograd": Autograd(self.layout, self._functional_losses),
            }
            with seeded(self.generators, 0):  # without memory, it is not known whether a module draws
                self.oracles = {**self._by_hand(single), **self.oracles}

    def _by_hand(self, loop: Loop) -> dict[str, Oracle]:
        """The oracles by hand, if the module is a stack of layers that have them."""
        layers = stack_of(self.module) if type(self.kind) in _BY_HAND else None
        if layers is None:
            return {}
        stack = Stack(self.layout, layers, self.kind.loss, loop)
        if not self.like.is_meta:
            exact = Autograd(self.layout, self._unrounded_losses)
            if not stack.agrees(exact, self._row(self.module), self._two_labelled()):
                return {}
        products = None
        if not self.dropouts and self.rounding is None and stack.takes_rows(self.inputs.ndim):
            products = InnerProducts(self.inputs, self.offsets, self.sizes)
        bytes_each = 1 if self.like.is_meta else self.scored.bytes_of_example(self.inputs)
        most = stack.most_examples(bytes_each) if self.like.is_cpu else self._vmapped()
        return stack.oracles(self.rounding, most, products, accelerated=not self.like.is_cpu)

    def _row(self, module: nn.Module) -> Tensor:
        """A module's parameters as a row (P,)."""
        parameters = dict(module.named_parameters())
        row = self.like.new_zeros(self.layout.size)
        for name, view in self.layout.views(row).items():
            view.copy_(parameters[name].detach())
        return row

    def start(self, init: Sequence[float] | None, seed: int) -> Tensor:
        """The (P,) initial model; without `init` it is PyTorch's default initialisation with the trial's seed."""
        if init is not None:
            return self.layout.row(torch.tensor(init, dtype=torch.float64).to(self.like))
        return self._row(self._made(seed))

    def torch_module(self, params: Tensor) -> nn.Module:
        """A new module with these parameters (P,), in evaluation mode, on the CPU."""
        module = self._made(0).to(self.like.dtype)
        parameters = dict(module.named_parameters())
        with torch.no_grad():
            for name, view in self.layout.views(params).items():
                parameters[name].copy_(view)
        return module.cpu().eval()

    def hidden_matrices(self) -> Matrices:
        """Its tensors as in HasMatrices; a call with two examples finds the layers at the inputs and at the scores."""
        with seeded(self.generators, 0):
            ends = end_parameters(self.module, self._two_examples())
        inner = [entry for entry in self.layout.entries if len(entry.shape) > 1 and entry.name not in ends]
        return tuple((slice(entry.offset, entry.offset + entry.extent), entry.shape[0]) for entry in inner)

    def source(
        self,
        seed: int,
        batch_size: int | None,
        batching: str,
        end: PassEnd = "joined",
        round_batches: int | None = None,
    ) -> ExampleSource:
        """The batches of a trial."""
        chance = bool(self.dropouts) or bool(self.draws) or self.crop > 0 or self.flip
        vary = self.vary if chance else None
        data = self.gather, self.offsets, self.sizes
        return ExampleSource(*data, seed, batch_size, batching, self.like, vary, end, self.labels, round_batches)

    def gather(self, rows: Tensor) -> dict[str, Tensor]:
        """The inputs (m, examples, ...), images channels last in memory, and targets (m, examples, ...) of rows."""
        flat = rows.reshape(-1)
        inputs = self.inputs.index_select(0, flat)
        return {
            "inputs": self._shown(inputs.view(*rows.shape, *inputs.shape[1:])),
            "targets": self.kind.wanted(self.targets.index_select(0, flat)).view(*rows.shape, *self.targets.shape[1:]),
        }

    def vary(self, data: Mapping[str, Tensor], words: Tensor) -> dict[str, Tensor]:
        """The data of one step: augmented images, the keys of dropout, and the words that seed other draws.

        Args:
            data: from `gather`.
            words: (m, examples) int64 random bits.
        """
        varied = dict(data)
        if self.crop or self.flip:
            varied["inputs"] = moved(data["inputs"], words, self.crop, self.flip)
        if self.dropouts:
            varied["keys"] = dropout_keys(words)
        if self.draws:
            varied["words"] = words
        return varied

    def evaluate(
        self, params: Tensor, reports: Collection[str] = (), drawn: NDArray[np.int64] | None = None
    ) -> dict[str, Tensor]:
        """The measures of the targets' kind (`trainers.target_kinds`) over all test examples, (T,) each.

        Args:
            params: (T, 1, P).
            reports: those of `trainers.target_kinds.REPORTS` add their metrics.
            drawn: indices of the test clients to measure; None is all of them.
        """
        if self.test is None or self.held_out is None:
            return {}
        compute = partial(self.scored.columns, params)
        return Evaluation(self.kind, reports).metrics(self.test, self.held_out, drawn, compute)

    def full_loss(self, params: Tensor, weights: NDArray[np.float64]) -> Tensor:
        """(T,) weighted mean over all clients of their mean losses, without dropout or augmentation.

        Args:
            params: (T, 1, P).
            weights: (clients,) weights with sum 1.
        """
        rows = row_weights(len(self.inputs), self.offsets, self.sizes, weights)
        loss = self.scored.columns(params, self.inputs, self.targets, ("loss",))["loss"]
        return loss @ torch.as_tensor(rows, device=loss.device)

    def accuracy(self, params: Tensor, batch: Batch) -> Tensor | None:
        """(T, M) accuracies on batches, as the kind's measure defines them; None for a regression."""
        if not self.classifies:
            return None
        means = [self._mean(column, params, batch) for column in self.kind.measures["accuracy"].columns]
        return means[0] if len(means) == 1 else means[0] / means[1]

    def _mean(self, column: str, params: Tensor, batch: Batch) -> Tensor:
        """(T, M) weighted means of a column of a measure on batches."""

        def values(tensors: Mapping[str, Tensor], data: Mapping[str, Tensor]) -> Tensor:
            return self.kind.column(column, self._functional_scores(tensors, data), data["targets"]).to(self.like)

        if not self.like.is_cpu and not self.draws:
            return Vmap(self.layout, values, self._vmapped).value(params, batch)
        means = self.like.new_empty((params.shape[0], batch[-1].stop))
        with torch.no_grad():
            for group in batch:
                models = self.layout.views(client_major(params, group))
                weights = example_weights(group, group.data["targets"].shape[1], self.like)
                for index in range(group.stop - group.start):
                    data = {name: tensor[index] for name, tensor in group.data.items()}
                    for trial in range(params.shape[0]):
                        tensors = {name: view[index, trial] for name, view in models.items()}
                        means[trial, group.start + index] = values(tensors, data) @ weights[index]
        return means

    def _at_once(self, examples: int, tokens: int) -> int:
        """Examples to compute at once: `examples`, or as many as have `tokens` tokens."""
        return max(1, tokens // self.kind.positions) if self.kind.positions else examples

    def _vmapped(self) -> int:
        """Examples of all replicas that vmap computes at once; a gradient keeps the forward pass and repeats it."""
        if self.like.is_cpu:
            return self._at_once(VMAP_EXAMPLES, _VMAP_TOKENS)
        return max(1, room(self.like.device) // (_PASSES * self.scored.bytes_of_example(self.inputs)))

    def _losses(self, data: Mapping[str, Tensor]) -> Tensor:
        if self.rounding is not None:
            return self._functional_losses(dict(self.module.named_parameters()), data)
        return self.kind.losses(self._called(lambda: self.module(*self._arguments(data)), data), data["targets"])

    def _functional_losses(self, tensors: Mapping[str, Tensor], data: Mapping[str, Tensor]) -> Tensor:
        if self.rounding is not None:
            constants = (*self.module.named_buffers(), *self.module.named_parameters())
            tensors = {name: self._rounded(tensor) for name, tensor in (*constants, *tensors.items())}
            data = {**data, "inputs": self._rounded(data["inputs"])}
        return self._unrounded_losses(tensors, data)

    def _unrounded_losses(self, tensors: Mapping[str, Tensor], data: Mapping[str, Tensor]) -> Tensor:
        return self.kind.losses(self._functional_scores(tensors, data), data["targets"])

    def _rounded(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.rounding) if tensor.is_floating_point() else tensor

    def _functional_scores(self, tensors: Mapping[str, Tensor], data: Mapping[str, Tensor]) -> Tensor:
        return self._called(lambda: torch.func.functional_call(self.module, dict(tensors), self._arguments(data)), data)

    def _arguments(self, data: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The arguments of the module."""
        return (data["inputs"], data["targets"]) if self.by_item else (data["inputs"],)

    def _called(self, call: Callable[[], Tensor], data: Mapping[str, Tensor]) -> Tensor:
        """The scores of a call of the module in training mode, as the trial's type, with the random numbers of data.

        On data without random numbers, such as all data of a client, a module that draws is in evaluation mode.
        """
        words = data.get("words")
        training = words is not None or "keys" in data or not (self.draws or self.dropouts)
        if self.module.training is not training:
            self.module.train(training)
        with keyed(self.dropouts, data.get("keys")):
            if words is None:
                return call().to(self.like.dtype)
            with seeded(self.draws, int(words[0])):
                return call().to(self.like.dtype)

    def _shown(self, inputs: Tensor) -> Tensor:
        """Inputs as the module takes them: images (..., channels, height, width), without a copy; word ids as int64."""
        inputs = inputs.long() if self.whole else inputs
        return inputs.movedim(-1, -3) if self.images else inputs

    def _made(self, seed: int) -> nn.Module:
        with seeded(self.generators, randomness.key(seed, 0, randomness.Purpose.START)):
            module = self.make()
            give_shapes(module, self.example)
        if self.patterns:
            freeze_others(module, self.patterns)
        return module

    def _two_examples(self) -> Tensor:
        """(2, ...) inputs with which the module is examined."""
        parts = [self.inputs] if self.held_out is None else [self.inputs, self.held_out[0]]
        return self._shown(two_examples(parts, self.whole))

    def _two_labelled(self) -> dict[str, Tensor]:
        """The inputs of `_two_examples`, both with the target of the first example."""
        targets = self.kind.wanted(self.targets[:1].repeat_interleave(EXAMPLES, 0))
        return {"inputs": self._two_examples(), "targets": targets}

    def _takes_whole(self, examples: Examples) -> bool:
        """Whether the module takes whole numbers, such as word ids: False if it computes with floats only.

        True for a module that takes neither, so that training ends with the error that whole numbers cause.
        """
        named_tensors = (*self.module.named_buffers(), *self.module.named_parameters())
        tensors = {name: tensor.detach().clone() for name, tensor in named_tensors}  # the module may change them
        for whole in (True, False):
            like = self.like.long() if whole else self.like
            data = {
                "inputs": owned(examples.inputs[:EXAMPLES], like),
                "targets": self.kind.wanted(self.kind.held(examples.targets[:EXAMPLES], self.like)),
            }
            try:
                with torch.no_grad(), seeded(self.generators, 0):
                    self._functional_losses(tensors, data)
            except Exception:  # any error of other people's code
                continue
            return whole
        return True

    def _held(self, examples: Examples) -> tuple[Tensor, Tensor]:
        """(inputs, targets) on the device; images are channels last. Copies only if it must.

        Raises:
            SpecError: the module takes whole numbers, and int64 cannot hold the inputs.
        """
        kind = examples.inputs.dtype
        if self.whole and (kind.kind not in WHOLE or (kind == np.uint64 and int(examples.inputs.max()) >= 2**63)):
            raise SpecError(
                "task: inputs must be whole numbers below 2^63, as the first ones for training are, got "
                f"{examples.inputs.dtype} up to {examples.inputs.max()}",
                "task",
            )
        inputs = held_whole(examples.inputs, self.like) if self.whole else owned(examples.inputs, self.like)
        if self.images:
            count, channels, height, width = inputs.shape
            # A view for one channel: its stride must be 1, or torch treats the images as channels first.
            single_channel = channels == 1
            inputs = inputs.view(count, height, width, 1) if single_channel else inputs.permute(0, 2, 3, 1).contiguous()
        return inputs, self.kind.held(examples.targets, self.like)
