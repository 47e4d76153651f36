"""Which columns of a user's data are inputs, targets and clients, for training and for testing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainers.data import embeddings
from trainers.data.columns import Names
from trainers.data.data_source import DataSource
from trainers.data.sides import SERVER, TEST, VALIDATION, ClientsKeys, FileKeys
from trainers.data.table import SideNames
from trainers.data.table_sequences import NEXT
from trainers.errors import SpecError
from trainers.hyperparameters import check, join, tunable
from trainers.values import shown

CLIENT = "client"
"""Column of the clients, by default."""

INPUTS = ("x", "image", "images", "img", "pixels")
TARGETS = ("y", "label", "labels", "target", "class", "fine_label", "tags")


@dataclass(frozen=True)
class _HeldOutKeys:
    """Names of separate columns for testing."""

    inputs: Any = tunable(kind="any", doc="column of inputs, or a list of columns")
    targets: str | None = tunable(None, doc="column of targets; null for tokens and pairs alone")
    client: str | None = tunable(None, doc="column that says whose each example is")
    order: str | None = tunable(None, doc="column that orders a client's items, for pairs alone")


@dataclass(frozen=True)
class _TestClassesKeys:
    """Classes for testing, beside episodes."""

    classes: Any = tunable(kind="any", doc="labels of the held-out classes")


def choose_columns(values: dict[str, Any], columns: Sequence[str], marks: Sequence[Any], path: str) -> None:
    """Sets `inputs` and `targets` of a task where they are None.

    Targets are the first column in `TARGETS`; inputs the first in `INPUTS`, or else all columns without another role.

    Args:
        values: the task's keys; inputs and targets are overwritten.
        columns: names of the columns; () if they are not known, which stands for x and y.
        marks: values that may be names of columns which mark examples for testing or validation.
        path: dotted path of the task.

    Raises:
        SpecError: no column has one of these names.
    """
    names = columns or (INPUTS[0], TARGETS[0])
    if values["targets"] is None:
        key_path = join(path, "targets")
        values["targets"] = next((name for name in TARGETS if name in names), None)
        if values["targets"] is None:
            raise SpecError(f"{key_path} must be given, one of the columns {', '.join(names)}", key_path)
    if values["inputs"] is None:
        used = [values["targets"], values["client"], *marks]
        values["inputs"] = next((name for name in INPUTS if name in names and name not in used), None)
        if values["inputs"] is None:
            values["inputs"] = [name for name in names if name not in used]
        if not values["inputs"]:
            key_path = join(path, "inputs")
            raise SpecError(f"{key_path} must be given: no column beside {shown(values['targets'])} is left", key_path)


def choose_names(values: dict[str, Any], source: DataSource, path: str) -> tuple[Names, Names | None]:
    """(names of the columns, names of the test columns or None); only some partitions require a client column.

    Args:
        values: the task's keys; inputs, targets and test are overwritten with their resolved values.
        source: the data.
        path: dotted path of the task.

    Raises:
        SpecError: a key does not name columns, or columns cannot be chosen.
    """
    test, key_path = values["test"], join(path, "test")
    columns = source.names(path)
    same = values["kind"] in NEXT  # kinds whose targets are taken from the inputs
    if not same and (values["inputs"] is None or values["targets"] is None):
        choose_columns(values, columns, (test, values["validation"]), path)
    inputs = _listed(values["inputs"], join(path, "inputs"))
    targets = str(inputs) if same else values["targets"]
    client, order = values["client"], values["order"]
    optional = client == CLIENT and values["partition"] != "natural"
    if test is None and source.has_test:
        with_client = client is not None and (client in columns or not columns)
        keys = {"inputs": values["inputs"], "targets": values["targets"], "client": client if with_client else None}
        keys |= {"order": order}
        values["test"] = test = {key: _ended(name) for key, name in keys.items() if name is not None}
    if test is not None and values["test_fraction"] is not None:
        raise SpecError(f"{path}.test_fraction must not be given beside test, got both: leave one out", key_path)
    if test is None or isinstance(test, str):
        return Names(inputs, targets, client, optional, test, order=order), None
    if not isinstance(test, Mapping):
        raise SpecError(
            f"{key_path} must be the name of an array or an object of names, got test={shown(test)}", key_path
        )
    names = Names(inputs, targets, client, optional, order=order)
    if "classes" in test and values["episodes"] is not None:
        values["test"] = check(_TestClassesKeys, test, key_path)
        return names, None
    if "clients" in test:
        values["test"] = check(ClientsKeys, test, key_path)
        return names, None
    if "path" in test:
        values["test"] = check(FileKeys, test, key_path)
        return names, replace(_of_side(names, TEST), client_optional=True)
    keys = values["test"] = check(_HeldOutKeys, test, key_path)
    inputs = _listed(keys["inputs"], join(key_path, "inputs"))
    if (keys["targets"] is None) != same:
        key_path, kind = join(key_path, "targets"), values["kind"]
        rule = f"be left out for {kind}, which are {NEXT[kind]}" if same else "be given, a column"
        raise SpecError(f"{key_path} must {rule}, got targets={shown(keys['targets'])}", key_path)
    if (keys["order"] is None) != (order is None):
        key_path, got = join(key_path, "order"), f"got order={shown(keys['order'])}"
        rule = "be left out without order of the task" if order is None else "be given, as order of the task is"
        raise SpecError(f"{key_path} must {rule}, {got}", key_path)
    if order is None:
        del keys["order"]
    return names, Names(inputs, str(inputs) if same else keys["targets"], keys["client"], order=keys.get("order"))


def with_embeddings(
    values: dict[str, Any], model: str, names: Names, test: Names | None, path: str
) -> tuple[Names, Names | None]:
    """Adds the widths of embedded columns to the names.

    Args:
        values: the task's keys; `embeddings` is removed if it is None.
        model: name of the model.
        names: names of the columns.
        test: names of separate columns for testing; None without them.
        path: dotted path of the task.

    Raises:
        SpecError: the widths are invalid or not of columns of inputs, or the model or the inputs take none.
    """
    key_path = join(path, "embeddings")
    if values["embeddings"] is None:
        del values["embeddings"]
        return names, test
    widths = embeddings.checked(values["embeddings"], model, key_path)
    if names.sequences is not None:
        raise SpecError(
            f"{key_path} must be left out for texts, got embeddings={shown(values['embeddings'])}", key_path
        )
    embeddings.require_columns(widths, names.features, key_path)
    names = replace(names, inputs=names.features, embeddings=widths)
    return names, None if test is None else replace(test, inputs=test.features)


def other_names(
    values: Mapping[str, Any], source: DataSource, names: Names, test: Names | None, path: str
) -> SideNames:
    """Names of the columns of all other sides; the server's and the validation file have the columns of the data.

    Args:
        values: the task's keys.
        source: the data.
        names: of the clients' columns.
        test: names of separate columns for testing; None without them.
        path: dotted path of the task.

    Raises:
        SpecError: the server has a file for pairs, but histories are of clients.
    """
    sides = [] if test is None else [("test", test)]
    if isinstance(values["central"], Mapping) and "path" in values["central"]:
        check(FileKeys, values["central"], join(path, "central"))
        if values["kind"] == "pairs":
            key_path = join(path, "central.path")
            raise SpecError(f"{key_path} must be left out for pairs, whose histories are clients'", key_path)
        server_names = _of_side(names, SERVER)
        sides.append(("server", replace(server_names, client=None, client_optional=False)))
    if source.validation is not None:
        sides.append(("validation", replace(_of_side(names, VALIDATION), client_optional=True)))
    return tuple(sides)


def _of_side(names: Names, ending: str) -> Names:
    """The names of the same columns in another file, with its ending."""
    order = None if names.order is None else _ended(names.order, ending)
    client = None if names.client is None else _ended(names.client, ending)
    return Names(
        _ended(names.inputs, ending), _ended(names.targets, ending), client, order=order, sequences=names.sequences
    )


def _listed(inputs: Any, key_path: str) -> str | tuple[str, ...]:
    """The name of a column, or several names."""
    if isinstance(inputs, str):
        return inputs
    several = isinstance(inputs, Sequence) and all(isinstance(name, str) for name in inputs)
    if not several or not inputs or len(set(inputs)) < len(inputs):
        raise SpecError(
            f"{key_path} must be a column or a list of different columns, got inputs={shown(inputs)}", key_path
        )
    return tuple(inputs)


def _ended(name: Any, ending: str = TEST) -> Any:
    """The name of a column with the ending of another side, or several names."""
    return f"{name}{ending}" if isinstance(name, str) else type(name)(f"{column}{ending}" for column in name)
