"""The partition of a document: every form is kept as it is written, and every mistake has an answer."""

from typing import Any

import numpy as np
import pytest

from trainers.data import partition_choice
from trainers.data.client_shares import power_law
from trainers.data.partitions import ClientRows
from trainers.errors import SpecError

LABELS = np.arange(200) % 4
GROUPS = [[0, 1], [2, 3]]
PLACE = "task.partition"


def checked(value: Any, labels: Any = LABELS, natural: bool = False) -> Any:
    return partition_choice.checked(value, labels, natural, "data without a client column", PLACE)


FORMS: list[tuple[Any, Any]] = [
    # written, kept
    ("iid", "iid"),
    ("by_label", "by_label"),
    ({"dirichlet": "1e-1"}, {"dirichlet": 0.1}),
    ({"dirichlet": 1, "sizes": "equal"}, {"dirichlet": 1.0}),
    ({"dirichlet": 1, "sizes": "unequal"}, {"dirichlet": 1.0, "sizes": "unequal"}),
    ({"dirichlet": 1, "sizes": {"power_law": 2}}, {"dirichlet": 1.0, "sizes": {"power_law": 2.0}}),
    ({"dirichlet": (0.1, 10), "groups": GROUPS}, {"dirichlet": [0.1, 10.0], "groups": GROUPS}),
    (
        {"dirichlet": [0.1, 10], "groups": GROUPS, "sizes": {"dirichlet": 1}},
        {"dirichlet": [0.1, 10.0], "groups": GROUPS, "sizes": {"dirichlet": 1.0}},
    ),
    ({"shards": 2}, {"shards": 2}),
    ({"classes_per_client": 2.0, "sizes": {"power_law": 1}}, {"classes_per_client": 2, "sizes": {"power_law": 1.0}}),
    ({"sizes": {"power_law": 1.5}}, {"sizes": {"power_law": 1.5}}),
    ({"sizes": "equal"}, "iid"),
]


@pytest.mark.parametrize(("written", "kept"), FORMS, ids=range(len(FORMS)))
def test_every_form_is_kept_and_covers_all_examples(written: Any, kept: Any) -> None:
    partition = checked(written)
    assert partition == kept == checked(kept)
    parts = ClientRows.of(partition_choice.spread(partition, LABELS, 8, 0))
    assert np.array_equal(np.sort(parts.rows), np.arange(len(LABELS)))
    unequal = isinstance(kept, dict) and "sizes" in kept
    assert (np.ptp(parts.sizes) > 2) == unequal


def test_sizes_need_no_labels() -> None:
    partition = checked({"sizes": {"power_law": 1.0}}, labels=None)
    parts = ClientRows.of(partition_choice.spread(partition, np.zeros(200, np.int64), 8, 5))
    assert np.argmax(parts.sizes) == np.argmax(power_law(8, 1.0, 5))


WRONG: list[tuple[Any, str]] = [
    ("natural", "must not be natural for data without a client column: use iid, by_label, "),
    ("dirichlet", 'must be one of iid, by_label, {"dirichlet": concentration}'),
    ("idd", 'no partition "idd": did you mean iid?'),
    ({}, "must be one of iid"),
    ({"dirichlt": 1}, 'unknown key "dirichlt" in task.partition: did you mean dirichlet?'),
    ({"dirichlet": 1, "shards": 2}, "must have one of dirichlet, classes_per_client, shards, got dirichlet and shards"),
    ({"dirichlet": 0}, ".dirichlet must be above 0, got dirichlet=0"),
    ({"dirichlet": [1, 2]}, ".dirichlet must be a number"),
    ({"dirichlet": 1, "groups": GROUPS}, ".dirichlet must be two concentrations with groups"),
    ({"dirichlet": [1, -1], "groups": GROUPS}, ".dirichlet must be above 0, got dirichlet=-1"),
    ({"dirichlet": [1, 1], "groups": [[0, 1]]}, ".groups must hold every class once, got none for class 2"),
    ({"dirichlet": [1, 1], "groups": [[0, 1], [1, 2, 3]]}, ".groups must hold every class once, got a class twice"),
    ({"dirichlet": [1, 1], "groups": "coarse"}, ".groups must be lists of class numbers"),
    ({"shards": 2, "groups": GROUPS}, 'unknown key "groups"'),
    ({"shards": 0}, ".shards must be at least 1, got shards=0"),
    ({"shards": 2, "sizes": {"power_law": 1}}, ".sizes must be left out with shards"),
    ({"shards": 2, "sizes": "unequal"}, ".sizes must be unequal only with one concentration dirichlet"),
    ({"classes_per_client": 5}, "must be in [1, 4], got classes_per_client=5"),
    ({"sizes": "large"}, ".sizes must be equal, unequal, {"),
    ({"sizes": {"power_law": 0}}, ".sizes.power_law must be above 0, got power_law=0"),
    ({"sizes": {"power": 1}}, 'unknown key "power" in task.partition.sizes: did you mean power_law?'),
]


@pytest.mark.parametrize(("value", "message"), WRONG, ids=range(len(WRONG)))
def test_every_mistake_has_an_answer(value: Any, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        checked(value)
    assert message in str(caught.value)
    assert str(caught.value).startswith((PLACE, "unknown key"))


def test_without_labels_only_sizes_differ() -> None:
    for value in ("by_label", {"dirichlet": 1}, {"sizes": "equal", "shards": 2}):
        with pytest.raises(SpecError, match=r'must be natural, iid, \{"sizes": \.\.\} without labels'):
            checked(value, labels=None, natural=True)


def test_a_class_in_two_groups_is_refused() -> None:
    with pytest.raises(SpecError, match="must be the same for all examples of a class, got 2 for class 1"):
        partition_choice.grouped_classes(np.array([0, 1, 1]), np.array([0, 0, 1]), "task.partition.groups")
