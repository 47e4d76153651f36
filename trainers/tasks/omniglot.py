"""Omniglot's few-shot tasks: each client tells a few handwritten characters apart, from one or a few drawings of each.

    {"name": "omniglot", "episodes": {"ways": 5, "shots": 1, "queries": 15, "test_clients": 100}, "clients": 1000,
     "characters": 1200, "rotations": true, "split_seed": 0, "model": {"name": "cnn", "preset": "omniglot"}}

1623 characters of 50 alphabets, each drawn by 20 people, are in $DATA_DIR/omniglot. `characters` of them, drawn by
split_seed, are for training, and the others for testing. With rotations, a character turned by 90, 180 or 270 degrees
is a further class. Images are reduced from 105 x 105 to 28 x 28 by the mean over each pixel's area; ink is 1, paper 0.
A client has shots + queries drawings of each of its classes (trainers/data/episodes.py).

Source: section 5.2 of "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks" (Finn, Abbeel, Levine 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import archive, episodes, partitions
from trainers.data.episodes import Episodes
from trainers.data.federated import Federated, choose_model
from trainers.data.folder import find, readable
from trainers.data.partitions import Rows
from trainers.errors import MissingDataError
from trainers.hyperparameters import check, describe, join, tunable
from trainers.problem import MOST_CLIENTS, Problem

__all__ = ["Settings"]

DTYPE = "float32"
BATCHING = "shuffled"
WEIGHTING = "uniform"
METRICS = ("test_loss", "test_accuracy")

_FILES = (("omniglot/images_background.npz", 964), ("omniglot/images_evaluation.npz", 659))
_CHARACTERS, _DRAWINGS, _SIDE = sum(count for _, count in _FILES), 20, 105
_SHAPE = (1, 28, 28)
_TURNS = 4
_AT_ONCE = 1024  # drawings


@dataclass(frozen=True)
class _OmniglotKeys:
    """The keys of a document."""

    clients: int = tunable(episodes.CLIENTS, low=1, high=MOST_CLIENTS, unit="tasks", doc="for training")
    episodes: Any = tunable(None, kind="any", doc='null is {"ways": 5, "shots": 1, "queries": 15, "test_clients": 100}')
    characters: int = tunable(1200, low=1, high=_CHARACTERS - 1, doc="for training; the others are for testing")
    rotations: bool = tunable(True, doc="whether characters turned by 90, 180 and 270 degrees are classes too")
    split_seed: int = tunable(0, low=0, doc="of the characters and of the tasks")
    model: Any = tunable(None, kind="any", doc='null is {"name": "cnn", "preset": "omniglot"}')


SETTINGS = describe(_OmniglotKeys)


@dataclass(frozen=True, eq=False, kw_only=True)
class Settings(Federated):
    """A checked task.

    Args:
        episodes: classes and examples of a client's few-shot task.
    """

    episodes: Episodes


def parse(document: Mapping[str, Any], path: str) -> Settings:
    """The task that a document describes, with its split.

    Args:
        document: {"name": "omniglot", ...}.
        path: dotted path of the document, as "task".

    Raises:
        SpecError: unknown keys, wrong types or ranges, or too few drawings or classes.
        MissingDataError: the data is not there.
    """
    values = check(_OmniglotKeys, document, path, other_keys=("name",))
    chosen = values["model"] or {"name": "cnn", "preset": "omniglot"}
    model, model_settings, values["model"] = choose_model(chosen, join(path, "model"))
    key_path = join(path, "episodes")
    few_shot = episodes.checked(values["episodes"] or {}, key_path)
    values["episodes"] = few_shot.to_json()
    episodes.require_room(few_shot, values["clients"], _SHAPE, path)
    with readable(path):
        for name, _ in _FILES:
            find(name)
    turns = _TURNS if values["rotations"] else 1
    labels = np.repeat(np.arange(_CHARACTERS * turns), _DRAWINGS)
    trained = partitions.choose(np.arange(_CHARACTERS), values["characters"], values["split_seed"])
    trains = np.isin(labels // turns, trained)
    train_seed, test_seed = episodes.seeds(values["split_seed"])
    return Settings(
        document={"name": "omniglot", **values},
        model=model,
        model_settings=model_settings,
        parts=episodes.draw(labels, np.flatnonzero(trains), few_shot, values["clients"], train_seed, key_path),
        test=episodes.draw(labels, np.flatnonzero(~trains), few_shot, few_shot.test_clients, test_seed, key_path),
        central=None,
        shape=_SHAPE,
        outputs=few_shot.ways,
        episodes=few_shot,
    )


def build(settings: Settings, dtype: str) -> Problem:
    """The problem to train on; images are (1, 28, 28).

    Args:
        settings: from `parse`.
        dtype: type of the inputs, "float32" or "float64".
    """
    turns = _TURNS if settings.document["rotations"] else 1

    def inputs(rows: Rows) -> NDArray[Any]:
        classes, drawings = np.divmod(rows, _DRAWINGS)
        characters, turned = np.divmod(classes, turns)
        distinct, places = np.unique(characters * _DRAWINGS + drawings, return_inverse=True)
        images = _reduced(distinct, dtype)
        result = np.empty((len(rows), *_SHAPE), dtype)
        for turn in range(turns):
            mask = turned == turn
            result[mask, 0] = np.rot90(images[places[mask]], turn, (1, 2))
        return result

    return Problem(
        model=settings.model,
        train=episodes.examples(settings.parts, inputs, settings.episodes),
        test=episodes.examples(settings.test, inputs, settings.episodes),
        model_settings={"classes": settings.outputs, **settings.model_settings},
    )


def _reduced(drawings: Rows, dtype: str) -> NDArray[np.floating]:
    """(drawings, 28, 28) shares of ink.

    Args:
        drawings: numbers of drawings, ascending, 20 of each character.
        dtype: type of the result.
    """
    result = np.empty((len(drawings), *_SHAPE[1:]), dtype)
    area = _areas().astype(dtype)
    first = 0
    for name, characters in _FILES:
        paper = _paper(find(name).resolve(), characters)
        rows = np.flatnonzero((drawings >= first) & (drawings < first + len(paper)))
        for start in range(0, len(rows), _AT_ONCE):
            batch = rows[start : start + _AT_ONCE]
            result[batch] = area @ (1 - paper[drawings[batch] - first].astype(dtype)) @ area.T
        first += len(paper)
    return result


def _areas() -> NDArray[np.float64]:
    """(28, 105) the share of each original pixel in the area of each reduced pixel."""
    edges = np.linspace(0, _SIDE, _SHAPE[1] + 1)
    pixels = np.arange(_SIDE)
    covered = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.asarray(np.clip(covered, 0, 1) * _SHAPE[1] / _SIDE)


@lru_cache(maxsize=len(_FILES))
def _paper(path: Path, characters: int) -> NDArray[np.bool_]:
    """(characters x 20, 105, 105) True where there is no ink."""
    shape = (characters, _DRAWINGS, _SIDE, _SIDE)
    try:
        images = archive.read(path, "images")
    except archive.DAMAGE as error:
        raise MissingDataError(
            f"the data file {path.name} must be readable, got {type(error).__name__}: put it there again"
        ) from error
    if images.shape != shape:
        raise MissingDataError(f"the array images of {path.name} must have shape {shape}, got {images.shape}")
    return images.reshape(-1, _SIDE, _SIDE)
