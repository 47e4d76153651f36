"""Notes on a user's data: what is probably a mistake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trainers.data.class_labels import different
from trainers.data.partitions import ClientRows, Rows, taken
from trainers.data.table import Table
from trainers.hyperparameters import join
from trainers.registry import models

_IMAGE_AXES = 4  # axes
_SHOWN = 5  # classes in a note
_HALF_BYTE, _BYTE = 128, 255
_SMALL = 10  # images of whole numbers up to this, such as one-hot planes, count as scaled
_LOOKED_AT = 1000  # examples


def class_notes(table: Table, classes: int, rows: Rows, test: Sequence[Rows], path: str) -> Iterator[str]:
    """Notes on the order of labels, on classes without examples, and on classes that are tested and never trained."""
    if table.labels is not None:
        order = [*map(str, table.labels[:_SHOWN]), *(["..."] if len(table.labels) > _SHOWN else [])]
        yield f"{join(path, 'labels')}: class numbers are in the order of the labels {', '.join(order)}"
    held_out = table.main if table.test is None else table.test
    tested = different(taken(held_out.targets, ClientRows.of(test).rows))
    trained = different(taken(table.main.targets, rows))
    if table.server is not None:
        trained = np.union1d(trained, different(table.server.targets))
    everywhere = np.union1d(trained, tested)
    empty = classes - len(everywhere)
    if empty:
        first = int(everywhere[0])
        why = f"the classes begin at {first}" if first else f"{len(everywhere)} of {classes} classes have examples"
        named = np.setdiff1d(np.arange(min(classes, len(everywhere) + _SHOWN)), everywhere)  # the first empty ones
        which = _listed(named, empty)
        yield f"{join(path, 'targets')}: {why}: no example of class {which}; number them from 0 without gaps"
    unseen = np.setdiff1d(tested, trained)
    if len(unseen):
        yield f"{join(path, 'test')}: class {_listed(unseen, len(unseen))} is tested and never trained"


def _listed(first: Rows, count: int) -> str:
    """The first few of `count` classes by number."""
    more = "" if count <= _SHOWN else f" and {count - _SHOWN} more"
    return ", ".join(map(str, first[:_SHOWN].tolist())) + more


def input_notes(table: Table, model: str, key_path: str) -> Iterator[str]:
    """A note if a built-in model computes with the numbers of strings, or if images or bytes are not scaled."""
    inputs = table.main.inputs
    by_id = ("any", "tokens", "pairs")  # targets of models that may look numbers up instead of computing with them
    built_in = models().built_in(model) and models()[model].TARGETS not in by_id
    if table.tokens:
        if built_in:
            yield f"{key_path}: strings are numbered in 0..{table.tokens - 1}, and {model} computes with these numbers"
        return
    images = inputs.ndim > 2 if built_in else inputs.ndim == _IMAGE_AXES
    if not (images or built_in) or table.lowest < 0:
        return
    largest = table.highest
    of_bytes = _HALF_BYTE <= largest <= _BYTE
    if (of_bytes or (images and largest > _SMALL)) and bool((inputs[:_LOOKED_AT] % 1 == 0).all()):
        what, end = "images" if images else "inputs", _BYTE if of_bytes else largest
        yield f"{key_path}: {what} are whole numbers in 0..{end:g}, which no model scales: set scale to unit"
