"""Evaluation after adaptation: held-out clients take a few local steps and are measured on the rest of their examples.

    y_0 = x,   y_{s+1} = y_s - client_lr grad f_support(y_s);   adapted_loss_s = mean over clients of f_query(y_s)

All clients have equal weight. They are the clients of the task's test set with at least 2 examples (with `shots`, with
more than `shots` examples of each of their classes). The examples that a client adapts on are drawn once, the same for
all trials, methods and seeds. Every step uses all support examples,
without dropout or augmentation. Quadratics have no held-out data: there the task's own clients adapt on their exact
losses, with the weights of the task. With 1 step and the method's client_lr, adapted_loss_1 is then the objective of
MAML. No counter counts this work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.evaluation.client_chunks import client_chunks
from trainers.engine.oracles.oracle import Model, replicas
from trainers.problem import Examples, Problem
from trainers.trial.adaptation import Adaptation

_LEFT_OUT = "left_out"  # weight of the clients without an accuracy


class Adapted:
    """Held-out clients, ready to adapt.

    Args:
        support: model whose clients are the held-out clients, with the examples that they adapt on.
        query: the same clients with the examples that they are measured on.
        oracle: name of the oracle.
        settings: settings of the adaptation.
    """

    def __init__(self, support: Model, query: Model, oracle: str, settings: Adaptation) -> None:
        self._support, self._query = support, query
        self._oracle = support.oracles[oracle]
        self._measure = query.oracles[oracle]
        self._settings = settings

    @property
    def examples(self) -> int:
        """Examples that an evaluation computes, as a measure of work. An example in a gradient counts three times."""
        support, query = self._support.examples, self._query.examples
        if support is None or query is None:
            return 0
        return int(3 * max(self._settings.steps) * support.sum() + len(self._settings.steps) * query.sum())

    def evaluate(self, params: Tensor, client_lr: Tensor) -> dict[str, Tensor]:
        """The metrics, (T,) float64 each.

        Args:
            params: (T, 1, P), the broadcast models.
            client_lr: (T, 1, 1) rates of the trials; used if the adaptation sets none.
        """
        lr = self._settings.client_lr
        rate = client_lr if lr is None else torch.as_tensor(np.float64(lr)).to(client_lr).expand_as(client_lr)
        means: dict[str, Tensor] = {}
        for clients in self._chunks(params):
            for name, values in self._adapt(params, rate, clients).items():
                means[name] = means[name] + values if name in means else values
        left_out = means.pop(_LEFT_OUT, None)
        if left_out is None:
            return means
        return {name: value / (1 - left_out) if "accuracy" in name else value for name, value in means.items()}

    def _adapt(self, params: Tensor, rate: Tensor, clients: NDArray[np.int64]) -> Mapping[str, Tensor]:
        """The contribution of some clients to the means."""
        support = self._support.source(0, None, "with_replacement").round(0, clients)
        query = self._query.source(0, None, "with_replacement").round(0, clients)
        indices = {client: index for index, client in enumerate(support.clients.tolist())}
        order = torch.as_tensor([indices[client] for client in query.clients.tolist()], device=params.device)
        weights = torch.as_tensor(self._support.client_weights[query.clients], device=params.device)
        models = replicas(params, params.shape[0], len(clients), params.shape[-1])
        slopes = torch.empty_like(models)
        models += params
        means: dict[str, Tensor] = {}
        for step in range(max(self._settings.steps) + 1):
            if step in self._settings.steps:
                adapted = models[:, order]
                means[f"adapted_loss_{step}"] = self._measure.value(adapted, query.full()).double() @ weights
                accuracy = self._query.accuracy(adapted, query.full())
                if accuracy is not None:
                    means[f"adapted_accuracy_{step}"] = accuracy.double().nan_to_num() @ weights
                    means[_LEFT_OUT] = accuracy.isnan().double() @ weights
            if step < max(self._settings.steps):
                self._oracle.add_gradient_(models, support.full(), slopes.zero_())
                models.sub_(slopes.mul_(rate))
        return means

    def _chunks(self, params: Tensor) -> list[NDArray[np.int64]]:
        """All clients, sorted by number of examples, in parts that fit into memory."""
        trials, _, size = params.shape
        examples = self._support.examples
        order = range(self._support.clients) if examples is None else np.argsort(-examples, kind="stable").tolist()
        return client_chunks(order, examples, trials, 2 * trials * size * params.element_size())


def split(problem: Problem, support: float, shots: int | None = None) -> tuple[Problem, Problem]:
    """(support, query): two problems whose clients are the held-out clients of this one.

    Args:
        problem: has test examples grouped by client. Without test examples (quadratics) both results are the problem.
        support: share of a client's examples that it adapts on; each side gets at least one example.
        shots: examples of each of a client's classes that it adapts on, in place of a share; clients without further
            examples of each class are left out.
    """
    alone = replace(problem, central=None, optimum=None)
    if problem.test is None:
        return alone, alone
    test, train = problem.test, problem.train
    chosen: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
    offsets, sizes = test.offsets[test.held_out], test.sizes[test.held_out]
    for client, (offset, size) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
        if size < 2:
            continue
        rows = offset + np.random.default_rng([client, size]).permutation(size)
        if shots is None:
            first = np.arange(size) < min(max(round(support * size), 1), size - 1)
        elif (first := _first_of_each(test.targets[rows], shots)) is None:
            continue
        chosen[0].append(np.sort(rows[first]))
        chosen[1].append(np.sort(rows[~first]))
    settings = dict(problem.model_settings)
    assert isinstance(train, Examples)
    if train.kind == "classes" and train.targets.ndim == 1 and "classes" not in settings:
        settings["classes"] = int(train.targets.max()) + 1  # a share of the examples may lack the last class
    problems = []
    for parts in chosen:
        sizes = np.array([len(part) for part in parts], np.int64)
        rows = np.concatenate(parts)
        examples = Examples(test.inputs[rows], test.targets[rows], np.cumsum(sizes) - sizes, sizes, test.kind)
        problems.append(replace(alone, train=examples, test=None, client_weights=None, model_settings=settings))
    return problems[0], problems[1]


def _first_of_each(classes: NDArray[Any], shots: int) -> NDArray[np.bool_] | None:
    """Mask of the first `shots` examples of each class; None unless every class has more than `shots` examples."""
    order = np.argsort(classes, kind="stable")
    _, begins, counts = np.unique(classes[order], return_index=True, return_counts=True)
    if counts.min() <= shots:
        return None
    first = np.zeros(len(classes), bool)
    first[order] = np.arange(len(classes)) - np.repeat(begins, counts) < shots
    return first
