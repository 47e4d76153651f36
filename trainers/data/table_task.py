"""The task of a user's data in any format: its keys, its checks, its split and its problem."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import (
    central_choice,
    column_choice,
    embeddings,
    episodes,
    partition_choice,
    table_episodes,
    table_validation,
)
from trainers.data.column_choice import CLIENT, choose_names
from trainers.data.columns import Names
from trainers.data.data_source import AUTO, DataSource, find, formats
from trainers.data.episodes import Episodes
from trainers.data.federated import (
    PARTITION_DOC,
    Federated,
    FederatedKeys,
    Pool,
    choose_model,
    divide,
    examples,
)
from trainers.data.folder import VARIABLE
from trainers.data.partitions import ClientRows, Rows
from trainers.data.remote import changed
from trainers.data.scaling import SCALES, fit
from trainers.data.table import Labelling, SideNames, Table
from trainers.data.table_cache import forget, in_order, load
from trainers.data.table_notes import class_notes, input_notes
from trainers.data.table_sequences import KEYS_OF_SEQUENCES, LONGEST, MOST_WORDS, NEXT, sequences_of
from trainers.data.table_split import held_out_clients, server_population, server_rows
from trainers.data.table_targets import (
    KEYS_OF_TAGS,
    TABLE_KINDS,
    TableKind,
    at_of,
    classes_of,
    kind_of,
    labelling,
    refuse_keys_of_others,
    require_tags,
    require_words,
)
from trainers.data.url_prefixes import is_url
from trainers.data.validation_split import followed, joined, of_populations
from trainers.data.words import OTHERS
from trainers.errors import MissingDataError, SpecError
from trainers.hyperparameters import check, join, tunable
from trainers.problem import WHOLE, Examples, Problem, Regulariser
from trainers.registry import model_named
from trainers.target_kinds import KINDS
from trainers.values import shown

_NOT_OF_WORDS = ("test_bits_per_byte",)  # unknown words have no length in bytes


@dataclass(frozen=True)
class TableKeys(FederatedKeys):
    """The keys of a document."""

    path: str = tunable(doc=f"the file or folder, from the current directory or ${VARIABLE}")
    inputs: Any = tunable(
        None, kind="any", doc="column of inputs, or a list of columns; null is x, image or pixels, or all other columns"
    )
    targets: str | None = tunable(None, doc="column of labels, or of numbers for models of numbers; null is y or label")
    kind: str | None = tunable(
        None,
        choices=TABLE_KINDS,
        doc="of the targets: classes, numbers, tags (any number of labels an example), tokens (the words of inputs of "
        "text, each from those before), or pairs (an item of a client, and those before it); null is what the model "
        "learns",
    )
    words: int | None = tunable(
        None, low=1, high=MOST_WORDS, unit="words", doc="to know of inputs of text, the most frequent; null is no text"
    )
    context: int | None = tunable(
        None, low=1, high=LONGEST, doc="words of a sentence, for tokens; items before the next one, for pairs"
    )
    order: str | None = tunable(None, doc="column that orders a client's items, for pairs; null is the data's order")
    embeddings: Any = tunable(
        None,
        kind="any",
        doc='width of the vectors that mlp learns for categories, of all columns of strings or {"city": 8}; null is '
        "one-hot",
    )
    separator: str | None = tunable(None, doc="between the tags of a text; null if they are lists or a matrix")
    tags: int | None = tunable(None, low=1, doc="how many tags to keep, the most frequent; null is all")
    at: int | None = tunable(None, low=1, unit="tags", doc="k of precision and recall at k; null is 5, or all if fewer")
    client: str | None = tunable(CLIENT, doc="column that says whose each example is")
    test: Any = tunable(
        None, kind="any", doc='true/false column; or {"path": ..}, {"clients": 0.2 or names}, or names of columns'
    )
    test_fraction: float | None = tunable(
        None, low=0, high=1, high_open=True, doc="held out where no test is given; 0.2"
    )
    scale: str = tunable(
        "none", choices=SCALES, doc="of inputs, fitted to the training clients: standardise, unit ([0, 1])"
    )
    labels: Any = tunable(
        None,
        kind="any",
        doc="labels in the order of their classes or tags; null is 0, 1, 2 .. as they are, others ascending",
    )
    classes: int | None = tunable(None, low=2, doc="number of classes; null is that of the labels")
    validation: Any = tunable(
        None,
        kind="any",
        doc='examples to choose by: a share of each client\'s, a true/false column, {"clients": 0.1 or names}, or '
        '{"path": ..}',
    )
    sha256: str | None = tunable(None, doc="of the file; another file is refused")
    clients: int | None = tunable(None, low=1, unit="clients", doc="size of the population; null is the natural one")
    partition: Any = tunable("natural", kind="any", doc=PARTITION_DOC)
    central: Any = tunable(
        None,
        kind="any",
        doc='of the server, for mixed federated learning: {"fraction": 0.1}, {"classes": [..]}, {"clients": [..]} or '
        '{"path": ..}, its examples; or {"spreadout": 0.001}, its loss without data, for dual_encoder',
    )
    episodes: Any = tunable(
        None, kind="any", doc='{"ways": 5, "shots": 1, "queries": 15}: clients are few-shot tasks, drawn by split_seed'
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class TableTask(Federated):
    """A checked task.

    Args:
        source: the data.
        names: names of the columns.
        sides: names of the columns of other sides, in separate columns or other files.
        classes: number of classes; None for other targets.
        given: what the document says about the classes or tags; None for a regression.
        scale: how inputs are scaled.
        sha256: hash of the data.
        path: dotted path of the task.
        episodes: how classes become clients; None without few-shot tasks.
        regulariser: the server's loss without data; None without one. `central` is then one unused row.
        server_test: rows of the server's own file for testing; None without any.
    """

    source: DataSource
    names: Names
    sides: SideNames
    classes: int | None
    given: Labelling
    scale: str
    sha256: str
    path: str
    episodes: Episodes | None = None
    regulariser: Regulariser | None = None
    server_test: Rows | None = None


def parse(document: Mapping[str, Any], path: str, keys: type[TableKeys]) -> TableTask:
    """The task that a document describes, with its split; reads and checks all of its data.

    Args:
        document: {"name": ..., "path": ..., ...}; the name is that of a format, or the format is a key.
        path: dotted path of the document, as "task".
        keys: the keys of the document.

    Raises:
        SpecError: unknown keys, wrong types or ranges, or columns that are missing or invalid.
        MissingDataError: there is no such file.
    """
    values = check(keys, document, path, other_keys=("name",))
    model, model_settings, values["model"] = choose_model(values["model"], join(path, "model"), TABLE_KINDS)
    kind = values["kind"] = kind_of(values["kind"], model, join(path, "kind"))
    values["validation"] = table_validation.checked(values["validation"], join(path, "validation"))
    source = find(values["path"], _format(document), path, _other_paths(document))
    if "format" in values:
        values["format"] = source.name
    few_shot = table_episodes.asked(values, document, kind, path)
    names, sides, given = _to_read(values, source, model, kind, path)
    table = load(source, names, sides, given, path)
    _check_digest(values, document, table, path)
    values = _completed(values, table, kind, path)
    formula = central_choice.regulariser(values["central"], model, join(path, "central"))
    elsewhere = formula is not None or table.server is not None
    split = _split(values, table, few_shot, elsewhere, kind, path)
    outputs = _outputs(table, values["classes"], few_shot, kind)
    if kind in ("tags", "pairs"):
        values["at"] = at_of(values["at"], outputs, kind, path)
    if kind == "tags":
        require_tags(table, ClientRows.of(split.parts).rows, split.test, path)
    sentences = kind == "tokens"
    if sentences and len(split.test):
        require_words(table, split.test, path)
    metrics = [name for name in KINDS[kind].metrics if not (sentences and name in _NOT_OF_WORDS)]
    return TableTask(
        document={"name": document["name"], **values},
        model=model,
        model_settings={
            **({"vocabulary": table.tokens + (kind == "pairs")} if table.tokens else {}),  # 0 stands for no item
            **({"first_word": OTHERS} if sentences else {}),
            **({"at": values["at"]} if "at" in values else {}),
            **({"embedded": table.embedded} if table.embedded else {}),
            **model_settings,
        },
        parts=split.parts,
        test=split.test,
        central=split.central,
        metrics=tuple(metrics) if split.test else (),
        shape=table.main.inputs.shape[1:],
        whole=values["scale"] == "none" and table.main.inputs.dtype.kind in WHOLE,
        notes=tuple(_notes(values, table, few_shot, split, elsewhere, path)),
        kind=kind,
        outputs=outputs,
        tokens=table.main.targets.shape[1] if sentences else 0,
        source=source,
        names=names,
        sides=sides,
        classes=values["classes"],
        given=given,
        scale=values["scale"],
        sha256=table.sha256,
        path=path,
        episodes=few_shot,
        regulariser=formula,
        apart=split.apart,
        aside=split.aside,
        server_test=split.server_test,
    )


def stamp(document: Mapping[str, Any]) -> Hashable:
    """A value that changes when the document's data change; None if there are none.

    Args:
        document: {"name": ..., "path": ..., ...}, not checked yet.
    """
    try:
        return find(document["path"], _format(document), "", _other_paths(document)).stamp()
    except (KeyError, TypeError, OSError, SpecError):  # which `parse` reports
        return None


def build(settings: TableTask, dtype: str) -> Problem:
    """The problem to train on; inputs have the same shape as in the file.

    Args:
        settings: from `parse`.
        dtype: type of inputs that are not whole numbers, "float32" or "float64".

    Raises:
        SpecError: the file has changed since `parse`.
    """
    title = settings.source.path.name
    try:
        table = load(settings.source, settings.names, settings.sides, settings.given, settings.path)
    except OSError as error:
        raise MissingDataError(f"{settings.path}.path: no file {title} any more", settings.path) from error
    if table.sha256 != settings.sha256:
        raise SpecError(f"{settings.path}.path must not change, got another {title}: start again")
    classes = settings.classes if settings.episodes is None else settings.episodes.ways
    classes = table.tokens if settings.kind in NEXT else classes
    counts = {"classes": classes} if classes else {}
    rows = ClientRows.of(settings.parts).rows
    scale = fit(settings.scale, table.main.inputs, rows, table.kept)
    if settings.central is not None and table.server is None and settings.regulariser is None:
        rows = np.concatenate([rows, settings.central])
    unseen = embeddings.UnseenCategories(table.embedded, table.main.inputs, rows)

    def of(side: str, groups: Sequence[Rows], central_classes: Sequence[int] = ()) -> Examples:
        part = table.side(side)
        whole = part.inputs.dtype.kind in WHOLE

        def some(rows: Rows) -> NDArray[Any]:
            if scale is not None:
                return unseen.without(scale.scaled(part.inputs, rows, dtype))
            return part.inputs[rows] if whole else unseen.without(part.inputs[rows].astype(dtype, copy=False))

        as_they_are = scale is None and not unseen and (whole or part.inputs.dtype == dtype)
        change = None if as_they_are else [dtype, None if scale is None else scale.digest, unseen.digest]

        def inputs(rows: Rows) -> NDArray[Any]:
            return in_order(table, side, rows, some, change)

        if settings.episodes is not None:
            return episodes.examples(groups, inputs, settings.episodes)
        return examples(groups, inputs, part.targets, settings.kind, central_classes)

    tested = "main" if table.test is None else "test"
    central: Examples | Regulariser | None = settings.regulariser
    if central is None and settings.central is not None:
        central = of("main" if table.server is None else "server", (settings.central,))
    test = None
    if settings.test:
        test = of_populations(of(tested, settings.test, settings.central_classes), settings.apart)
        if settings.server_test is not None:
            server_examples = of_populations(of("server", [settings.server_test]), (True,))
            test = replace(joined(test, server_examples), people=test.clients)
    validation = None
    if settings.validation is not None:
        side = "main" if table.validation is None else "validation"
        validation = of(side, settings.validation, settings.central_classes)
    problem = Problem(
        model=settings.model,
        train=of("main", settings.parts),
        test=None if test is None else followed(test, validation),
        central=central,
        model_settings={**counts, **settings.model_settings},
    )
    forget(table)
    return problem


def _to_read(
    values: dict[str, Any], source: DataSource, model: str, kind: TableKind, path: str
) -> tuple[Names, SideNames, Labelling]:
    """(columns to read, those of other sides, what the document says about classes or tags).

    Args:
        values: checked values of the document; those of embeddings are overwritten with their resolved values.
        source: the data.
        model: name of the model.
        kind: what the targets are.
        path: dotted path of the task.

    Raises:
        SpecError: a column is missing, or a key is for another kind of targets.
    """
    sequences = sequences_of(values, kind, path)
    names, test_names = choose_names(values, source, path)
    refuse_keys_of_others(values, kind, path)
    given = labelling(values, kind, path)
    groups = partition_choice.group_column(values["partition"]) if kind == "classes" else None
    names = replace(names, groups=groups, sequences=sequences)
    test_names = None if test_names is None else replace(test_names, sequences=sequences)
    names, test_names = column_choice.with_embeddings(values, model, names, test_names, path)
    names = replace(names, validation=table_validation.column_of(values["validation"]))
    return names, column_choice.other_names(values, source, names, test_names, path), given


def _check_digest(values: dict[str, Any], document: Mapping[str, Any], table: Table, path: str) -> None:
    """Fills in the hash of the data; raises a SpecError if the document has another one."""
    if values["sha256"] not in (None, table.sha256):
        key_path = join(path, "sha256")
        if any(map(is_url, (values["path"], *_other_paths(document).values()))):
            raise changed(join(path, "path"), values["sha256"], table.sha256)
        raise SpecError(f"{key_path} must be that of the file, {table.sha256}, got {shown(values['sha256'])}", key_path)
    values["sha256"] = table.sha256


def _completed(values: Mapping[str, Any], table: Table, kind: TableKind, path: str) -> dict[str, Any]:
    """The values with what the data say about their classes, and without the keys of other targets.

    Raises:
        SpecError: there are other classes than the document says, or strings would be scaled.
    """
    classes = classes_of(table, values["classes"], path) if kind == "classes" else None
    hidden = {key for key in KEYS_OF_TAGS if kind != "tags" and (kind, key) != ("pairs", "at")}
    hidden |= set(KEYS_OF_SEQUENCES) if values["words"] is None and kind not in NEXT else set()
    hidden |= {"episodes"} if values["episodes"] is None else set()
    labels = None if table.labels is None else list(table.labels)
    values = {**values, "classes": classes, "labels": labels}
    values = {key: value for key, value in values.items() if key not in hidden}
    if table.tokens and values["scale"] != "none":
        key_path = join(path, "scale")
        raise SpecError(f"{key_path} must be none for strings, got scale={shown(values['scale'])}", key_path)
    if table.groups is not None:
        groups = partition_choice.grouped_classes(table.main.targets, table.groups, join(path, "partition.groups"))
        values["partition"] = {**values["partition"], "groups": groups}
    return values


@dataclass(frozen=True)
class _Split:
    """Which examples are whose; the fields are those of `TableTask`."""

    parts: ClientRows
    test: Sequence[Rows]
    central: Rows | None = None
    aside: Sequence[Rows] | None = None
    apart: tuple[bool, ...] = ()
    server_test: Rows | None = None


def _split(
    values: dict[str, Any], table: Table, few_shot: Episodes | None, elsewhere: bool, kind: TableKind, path: str
) -> _Split:
    """Divides the examples; overwrites the values of the split with their resolved values.

    If the server has a formula or a file of its own (`elsewhere`), `divide` leaves it one unused row.
    """
    if few_shot is not None:
        return _Split(*table_episodes.split(values, table, few_shot, path))
    labels = table.main.targets if kind == "classes" else None
    rows, test = held_out_clients(values, table, labels, path)
    rows, aside = table_validation.set_apart(values, table, rows, path)
    names = None if labels is None else table.labels
    people = None if table.main.clients is None else table.main.people.tolist()
    server = np.zeros(1, np.int64) if elsewhere else None
    pool = Pool(labels, rows, table.main.clients, "data without a client column", names, people, server)
    parts, central = divide(values, pool, path)
    if table.server is None:
        return _Split(parts, test, central, aside, server_population(values["central"], table, central, test))
    central, server_test = server_rows(values, table, kind == "classes", path)
    return _Split(parts, test, central, aside, (False,) * len(test) if server_test is not None else (), server_test)


def _notes(
    values: Mapping[str, Any], table: Table, few_shot: Episodes | None, split: _Split, elsewhere: bool, path: str
) -> Iterator[str]:
    """Probable mistakes in the data."""
    if values["scale"] == "none":
        yield from input_notes(table, model_named(values["model"]), join(path, "inputs"))
    if few_shot is not None:
        yield from table_episodes.notes(table, few_shot, path)
    elif values["classes"] is not None:
        rows = split.parts.rows
        if split.central is not None and not elsewhere:
            rows = np.concatenate([rows, split.central])
        yield from class_notes(table, values["classes"], rows, split.test, path)


def _outputs(table: Table, classes: int | None, few_shot: Episodes | None, kind: str) -> int:
    """The number of classes, tags, tokens or items, or of numbers to predict for one example."""
    if kind in NEXT:
        return table.tokens
    return few_shot.ways if few_shot is not None else classes or math.prod(table.main.targets.shape[1:])


def _format(document: Mapping[str, Any]) -> Any:
    """The name of the format: the task's name, else the key `format`, else `AUTO`."""
    return document["name"] if document["name"] in formats() else document.get("format", AUTO)


def _other_paths(document: Mapping[str, Any]) -> dict[str, str]:
    """The paths of separate files for testing, of the server and for validation, by key."""
    sides = {key: document.get(key) for key in ("test", "central", "validation")}
    paths = {key: side.get("path") for key, side in sides.items() if isinstance(side, Mapping)}
    return {key: path for key, path in paths.items() if isinstance(path, str)}
