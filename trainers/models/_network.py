"""Any torch module as a model: its data on a device, its oracles, its evaluation.

A model is one file in trainers/models (or an installed package's entry point) with

    Settings                             a frozen dataclass of the model's settings in a task's document
    build(problem, dtype, device)        returns Network(problem, make, dtype, device, ...)

where `make` returns a new torch.nn.Module from inputs (examples, ...) to scores (examples, classes). The module may
contain torch.nn.Dropout, whose masks are drawn from (seed, round, client, step), but no batch normalisation, which
would mix examples and keep state besides the parameters; group or layer normalisation is fine.

Parameters start with PyTorch's default initialisation of each layer, drawn in single precision on the CPU by torch's
generator, seeded from the trial's seed alone: equal for all types, all devices and all methods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from trainers.engine import randomness
from trainers.engine.batches.examples import ExampleSource
from trainers.engine.layout import Layout
from trainers.engine.memory import owned
from trainers.engine.oracles.autograd import Autograd
from trainers.engine.oracles.one_by_one import Loop
from trainers.engine.oracles.oracle import Batch, Oracle, PassEnd, client_major, example_weights
from trainers.engine.oracles.vmapped import Vmap
from trainers.errors import SpecError
from trainers.hyperparameters import check, describe
from trainers.models._accuracy import client_accuracy, client_shares, row_weights, sampled
from trainers.models._augmentation import moved
from trainers.models._dropout import dropout_keys, keyed, own_dropout
from trainers.problem import WHOLE, Examples, Problem

_EVALUATED = 256  # examples computed at once in an evaluation; more do not fit the cache
_TRIED = 2  # examples on which a module is tried

SettingsT = TypeVar("SettingsT")


class Network:
    """A torch module for classification, and its data on a device.

    Args:
        problem: a problem with labelled Examples. Inputs of whole numbers, such as word ids, reach the module as int64
            if it takes them, else as floats.
        make: returns a new module, initialised by torch's generator; called again for every initial model.
        dtype: type of all floating-point tensors. With bfloat16 they are float32, and the module runs in bfloat16 for
            gradients.
        device: device of all tensors.
        crop: largest random shift of training images, in pixels; 0 is none.
        flip: whether training images are mirrored at random.
    """

    explosion = 1e3

    def __init__(
        self,
        problem: Problem,
        make: Callable[[], nn.Module],
        dtype: torch.dtype,
        device: torch.device,
        *,
        crop: int = 0,
        flip: bool = False,
    ) -> None:
        train = examples_of(problem)
        self.rounding = dtype if dtype == torch.bfloat16 else None
        self.like = torch.empty(0, dtype=torch.float32 if self.rounding else dtype, device=device)
        self.make = make
        self.module = self._made(0).to(self.like)
        self.dropouts = own_dropout(self.module)
        _refuse_batch_normalisation(self.module)
        self.layout = Layout.of({name: tuple(held.shape) for name, held in self.module.named_parameters()})
        self.crop, self.flip = crop, flip
        self.clients = train.clients
        self.examples: NDArray[np.int64] | None = train.sizes
        self.offsets, self.sizes = train.offsets, train.sizes
        weights = problem.client_weights
        self.client_weights = np.full(self.clients, 1 / self.clients) if weights is None else np.asarray(weights)
        self.pictures = train.inputs.ndim == 4
        self.whole = train.inputs.dtype.kind in WHOLE and self._takes_whole(train)
        self.inputs, self.targets = self._held(train)
        self.test = problem.test
        self.held_out = None if problem.test is None else self._held(problem.test)
        self.oracles: Mapping[str, Oracle] = {
            "loop": Loop(self.layout, self.module, self._losses),
            "vmap": Vmap(self.layout, self._functional_losses),
            "autograd": Autograd(self.layout, self._functional_losses),
        }

    def start(self, init: Sequence[float] | None, seed: int) -> Tensor:
        """The (P,) initial model; without `init` it is PyTorch's default initialisation with the trial's seed."""
        if init is not None:
            return self.layout.row(torch.tensor(init, dtype=torch.float64).to(self.like))
        parameters = dict(self._made(seed).named_parameters())
        row = self.like.new_zeros(self.layout.size)
        for name, view in self.layout.views(row).items():
            view.copy_(parameters[name].detach())
        return row

    def torch_module(self, params: Tensor) -> nn.Module:
        """A new module with these parameters (P,), in evaluation mode, on the CPU."""
        module = self._made(0).to(self.like.dtype)
        module.load_state_dict({name: view.cpu() for name, view in self.layout.views(params).items()})
        return module.eval()

    def source(self, seed: int, batch_size: int | None, batching: str, end: PassEnd = "joined") -> ExampleSource:
        """The batches of a trial."""
        chance = bool(self.dropouts) or self.crop > 0 or self.flip
        vary = self.vary if chance else None
        return ExampleSource(self.gather, self.offsets, self.sizes, seed, batch_size, batching, self.like, vary, end)

    def gather(self, rows: Tensor) -> dict[str, Tensor]:
        """The inputs (m, examples, ...), images channels last in memory, and targets of rows (m, examples)."""
        flat = rows.reshape(-1)
        inputs = self.inputs.index_select(0, flat)
        return {
            "inputs": self._shown(inputs.view(*rows.shape, *inputs.shape[1:])),
            "targets": self.targets.index_select(0, flat).view(rows.shape),
        }

    def vary(self, data: Mapping[str, Tensor], words: Tensor) -> dict[str, Tensor]:
        """The data of one step: augmented images, and the keys of dropout.

        Args:
            data: from `gather`.
            words: (m, examples) int64 random bits.
        """
        varied = dict(data)
        if self.crop or self.flip:
            varied["inputs"] = moved(data["inputs"], words, self.crop, self.flip)
        if self.dropouts:
            varied["keys"] = dropout_keys(words)
        return varied

    def evaluate(
        self, params: Tensor, reports: Collection[str] = (), drawn: NDArray[np.int64] | None = None
    ) -> dict[str, Tensor]:
        """test_loss and test_accuracy over all test examples, (T,) each.

        Args:
            params: (T, 1, P).
            reports: "client_accuracy" adds statistics of the accuracy over the test clients.
            drawn: indices of the test clients to measure; None is all of them.
        """
        if self.test is None or self.held_out is None:
            return {}
        tensors, offsets, sizes = self.held_out, self.test.offsets, self.test.sizes
        if drawn is not None:
            rows, offsets, sizes = sampled(self.test, drawn)
            tensors = self.held_out[0][rows], self.held_out[1][rows]
        loss, right = self._answers(params, *tensors)
        metrics = {"test_loss": loss.mean(1), "test_accuracy": right.mean(1)}
        if "client_accuracy" in reports:
            metrics.update(client_accuracy(client_shares(right, offsets, sizes)))
        return metrics

    def full_loss(self, params: Tensor, weights: NDArray[np.float64]) -> Tensor:
        """(T,) weighted mean over all clients of their mean losses, without dropout or augmentation.

        Args:
            params: (T, 1, P).
            weights: (clients,) weights with sum 1.
        """
        rows = row_weights(len(self.inputs), self.offsets, self.sizes, weights)
        loss, _ = self._answers(params, self.inputs, self.targets)
        return loss @ torch.as_tensor(rows, device=loss.device)

    def accuracy(self, params: Tensor, batch: Batch) -> Tensor | None:
        """(T, M) accuracies on batches."""
        accuracies = self.like.new_empty((params.shape[0], batch[-1].stop))
        with torch.no_grad():
            for group in batch:
                models = self.layout.views(client_major(params, group))
                weights = example_weights(group, group.data["targets"].shape[1], self.like)
                for place in range(group.stop - group.start):
                    data = {name: held[place] for name, held in group.data.items()}
                    for trial in range(params.shape[0]):
                        tensors = {name: view[place, trial] for name, view in models.items()}
                        scores = self._functional_scores(tensors, data)
                        right = (scores.argmax(1) == data["targets"]).to(self.like)
                        accuracies[trial, group.start + place] = right @ weights[place]
        return accuracies

    def _answers(self, params: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """(losses, 1 for correct predictions) of all examples, (T, rows) float64 each."""
        losses = torch.empty((params.shape[0], len(inputs)), dtype=torch.float64, device=params.device)
        right = torch.empty_like(losses)
        with torch.no_grad():
            for trial, row in enumerate(params[:, 0]):
                tensors = self.layout.views(row)
                for start in range(0, len(inputs), _EVALUATED):
                    some = slice(start, start + _EVALUATED)
                    scores = self._functional_scores(tensors, {"inputs": self._shown(inputs[some])})
                    losses[trial, some] = F.cross_entropy(scores, targets[some], reduction="none")
                    right[trial, some] = scores.argmax(1) == targets[some]
        return losses, right

    def _losses(self, data: Mapping[str, Tensor]) -> Tensor:
        if self.rounding is not None:
            return self._functional_losses(dict(self.module.named_parameters()), data)
        with keyed(self.dropouts, data.get("keys")):
            scores = self.module(data["inputs"])
        return F.cross_entropy(scores, data["targets"], reduction="none")

    def _functional_losses(self, tensors: Mapping[str, Tensor], data: Mapping[str, Tensor]) -> Tensor:
        if self.rounding is not None:
            tensors = {name: self._rounded(held) for name, held in (*self.module.named_buffers(), *tensors.items())}
            data = {**data, "inputs": self._rounded(data["inputs"])}
        scores = self._functional_scores(tensors, data).to(self.like.dtype)
        return F.cross_entropy(scores, data["targets"], reduction="none")

    def _rounded(self, held: Tensor) -> Tensor:
        return held.to(self.rounding) if held.is_floating_point() else held

    def _functional_scores(self, tensors: Mapping[str, Tensor], data: Mapping[str, Tensor]) -> Tensor:
        with keyed(self.dropouts, data.get("keys")):
            scores: Tensor = torch.func.functional_call(self.module, dict(tensors), (data["inputs"],))
        return scores

    def _shown(self, inputs: Tensor) -> Tensor:
        """Inputs as the module takes them: images (..., channels, height, width), without a copy."""
        return inputs.movedim(-1, -3) if self.pictures else inputs

    def _made(self, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(randomness.key(seed, 0, randomness.Purpose.START))
            return self.make()

    def _takes_whole(self, examples: Examples) -> bool:
        """Whether the module takes whole numbers, such as word ids: False if it computes with floats only.

        A module that takes neither keeps them whole, so that training ends with the error that they cause.
        """
        targets = torch.as_tensor(examples.targets[:_TRIED], device=self.like.device)
        for whole in (True, False):
            like = self.like.long() if whole else self.like
            data = {"inputs": owned(examples.inputs[:_TRIED], like), "targets": targets.long()}
            try:
                with torch.no_grad(), torch.random.fork_rng(devices=[]):
                    self._functional_losses(dict(self.module.named_parameters()), data)
            except Exception:  # of any kind, from code of others
                continue
            return whole
        return True

    def _held(self, examples: Examples) -> tuple[Tensor, Tensor]:
        """(inputs, targets) on the device; images are channels last. Copies only if it must.

        Raises:
            SpecError: the module takes whole numbers, and int64 cannot hold the inputs.
        """
        if self.whole and (examples.inputs.dtype.kind not in WHOLE or int(examples.inputs.max()) >= 2**63):
            raise SpecError(
                "task: inputs must be whole numbers below 2^63, as the first ones for training are, got "
                f"{examples.inputs.dtype} up to {examples.inputs.max()}",
                "task",
            )
        inputs = owned(examples.inputs, self.like.long() if self.whole else self.like)
        if self.pictures:
            count, channels, height, width = inputs.shape
            # A view for one channel: its stride must be 1, or torch treats the images as channels first.
            one = channels == 1
            inputs = inputs.view(count, height, width, 1) if one else inputs.permute(0, 2, 3, 1).contiguous()
        return inputs, torch.as_tensor(examples.targets, dtype=torch.int64, device=self.like.device)


def examples_of(problem: Problem) -> Examples:
    """The clients' examples of a problem; TypeError if it has none."""
    if not isinstance(problem.train, Examples):
        raise TypeError(f"a network must get Examples, got {type(problem.train).__name__}")
    return problem.train


def classes_of(problem: Problem) -> int:
    """The number of classes: as given by the task, else the largest class plus one."""
    return int(problem.model_settings.get("classes") or examples_of(problem).targets.max() + 1)


def picture_shape(problem: Problem, model: str) -> tuple[int, int, int]:
    """(channels, height, width) of the images of a problem.

    Args:
        problem: a problem with Examples.
        model: name of the model, for the error.

    Raises:
        SpecError: the inputs are not images.
    """
    shape = examples_of(problem).inputs.shape[1:]
    if len(shape) != 3:
        raise SpecError(
            f"task.model: {model} must get images (examples, channels, height, width), got inputs "
            f"(examples, {', '.join(map(str, shape))}): use mlp or softmax",
            "task.model",
        )
    return (int(shape[0]), int(shape[1]), int(shape[2]))


def settings_from(cls: type[SettingsT], problem: Problem) -> SettingsT:
    """The settings of a model in a problem, with defaults filled in.

    Args:
        cls: Settings of the model's module.
        problem: a problem whose model_settings include them.
    """
    kind: type = cls
    known = {item.name for item in describe(kind)}
    given: dict[str, Any] = {name: value for name, value in problem.model_settings.items() if name in known}
    return cls(**check(cls, given, "task.model"))


def _refuse_batch_normalisation(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm):
            raise TypeError(f"a model must be without batch normalisation, got {layer} as {name}: use GroupNorm")
