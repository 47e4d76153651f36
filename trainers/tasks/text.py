"""Text to predict, token by token: your own, or Shakespeare's plays with their roles as clients.

    {"name": "text", "path": null, "vocabulary": "characters", "context": 64, "model": "transformer"}

An example is a window: `context` tokens, at each of which the model predicts the next one. Windows lie next to one
another, so a pass over them sees every token once. `path` is a text file in UTF-8, or a folder, whose .txt files are
the natural clients; by default they are the roles of Shakespeare's plays, in $DATA_DIR/shakespeare. The partition "iid"
spreads the same windows evenly over `clients`. In both, the last `test_fraction` of each source's windows is held out.

`vocabulary` is "bytes", "characters" (all that occur), or "bpe": `vocabulary_size` byte pairs, trained on the training
part of each source. Metrics are test_loss in nats a token, test_perplexity, test_accuracy, and test_bits_per_byte, by
which vocabularies can be compared. For mixed federated learning, `"central": {"fraction": 0.1}` gives the server that
share of the windows, and `"central": {"path": "wiki.txt"}` texts of its own, with the same vocabulary, split and
held-out share; test_loss_federated, test_loss_central and so on measure clients and server separately.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import partitions
from trainers.data.central_choice import DOC
from trainers.data.federated import (
    Federated,
    FederatedKeys,
    Pool,
    choose_model,
    divide,
    examples,
    held_out,
    settings_of,
)
from trainers.data.folder import VARIABLE, readable
from trainers.data.partitions import ClientRows, Rows
from trainers.data.remote import changed
from trainers.data.text_sources import TextPlace, text_place
from trainers.data.tokens import VOCABULARIES, EncodedTexts, Windows, load
from trainers.data.url_prefixes import is_url
from trainers.errors import MissingDataError, SpecError
from trainers.hyperparameters import check, join, tunable
from trainers.problem import Examples, Problem

DTYPE = "float32"
BATCHING = "shuffled"
QUALITY = "test_loss"
MODEL = "transformer"
METRICS = ("test_loss", "test_accuracy", "test_perplexity", "test_bits_per_byte")
_MOST_TOKENS = 2**20  # of a vocabulary
_BYTE_PAIRS = 512  # tokens, by default


@dataclass(frozen=True)
class _TextKeys(FederatedKeys):
    """The keys of a document."""

    path: str | None = tunable(
        None,
        doc=f"a text file or a folder of .txt files, from the current directory or ${VARIABLE}; null is Shakespeare",
    )
    vocabulary: str = tunable("characters", choices=VOCABULARIES, doc="what a token is")
    vocabulary_size: int | None = tunable(
        None, low=257, high=_MOST_TOKENS, unit="tokens", doc=f"of byte pairs, {_BYTE_PAIRS} by default; null for others"
    )
    context: int = tunable(64, low=1, high=2**16, unit="tokens", doc="of a window: how far the model looks back")
    sources: int | None = tunable(None, low=1, doc="roles or files to draw by split_seed; null is all")
    test_fraction: float = tunable(0.1, low=0, high=1, high_open=True, doc="of each source's windows, held out")
    test_windows: int | None = tunable(
        None, low=1, unit="windows", doc="to evaluate, drawn from the held-out ones by split_seed; null is all"
    )
    sha256: str | None = tunable(None, doc="of the tokens; other texts are refused")
    central: Any = tunable(None, kind="any", doc=f'{DOC}; or {{"path": ..}}, texts of its own')
    clients: int | None = tunable(None, low=1, unit="clients", doc="size of the population; null is one a source")
    partition: Any = tunable("natural", kind="any", doc="how windows are spread over clients: natural or iid")
    model: Any = tunable(MODEL, kind="any", doc="name of a model of tokens, or an object of its name and settings")


SETTINGS = settings_of(_TextKeys)


@dataclass(frozen=True, eq=False, kw_only=True)
class _TextTask(Federated):
    """A checked task.

    Args:
        texts: where the texts are.
        server: where the server's own texts are; None if it has none.
        windows: all windows, the server's own last.
    """

    texts: TextPlace
    server: TextPlace | None
    windows: Windows


def parse(document: Mapping[str, Any], path: str) -> _TextTask:
    """The task that a document describes, with its split; reads and encodes all of its texts.

    Args:
        document: {"name": "text", ...}.
        path: dotted path of the document, as "task".

    Raises:
        SpecError: unknown keys, wrong types or ranges, or texts that cannot be used.
        MissingDataError: the texts are not there.
    """
    values = check(_TextKeys, document, path, other_keys=("name",))
    model, model_settings, values["model"] = choose_model(values["model"], join(path, "model"), ("tokens",))
    _fill_size(values, path)
    with readable(path):
        texts = text_place(values["path"], join(path, "path"))
        elsewhere = _elsewhere(values["central"])
        server = None if elsewhere is None else text_place(elsewhere, join(path, "central.path"))
    tokens = _tokens(texts, server, values, path)
    if values["sha256"] not in (None, tokens.sha256):
        key_path = join(path, "sha256")
        if any(is_url(name or "") for name in (values["path"], elsewhere)):
            raise changed(join(path, "path"), values["sha256"], tokens.sha256)
        raise SpecError(f"{key_path} must be that of the tokens, {tokens.sha256}, got {values['sha256']!r}", key_path)
    values["sha256"] = tokens.sha256
    windows = Windows.of(tokens.offsets, values["context"], values["test_fraction"])
    of_server = windows.owners >= tokens.server
    rows, test = _chosen(windows, of_server, tokens, values, path)
    owners = None if texts.single else windows.owners
    central = rows[of_server[rows]] if server else None
    pool = Pool(None, rows[~of_server[rows]], owners, unnatural="a single file", server=central)
    parts, central = divide(values, pool, path)
    tested = partitions.natural(windows.owners[test]).within(test) if len(test) else ()
    apart = tuple(bool(of_server[part[0]]) for part in tested)
    return _TextTask(
        {"name": "text", **values},
        model,
        {
            "bytes_per_token": _bytes_per_token(tokens, windows, test),
            "vocabulary": len(tokens.lengths),
            **model_settings,
        },
        parts,
        tested,
        central,
        metrics=METRICS if len(test) else (),
        shape=(values["context"],),
        outputs=len(tokens.lengths),
        whole=True,
        tokens=values["context"],
        kind="tokens",
        notes=tuple(_notes(tokens, windows, texts, path)),
        apart=apart if len(set(apart)) == 2 else (),
        texts=texts,
        server=server,
        windows=windows,
    )


def build(settings: _TextTask, dtype: str) -> Problem:
    """The problem to train on; inputs and targets are (context,) tokens, in their stored type.

    Args:
        settings: from `parse`.
        dtype: not used, because tokens are whole numbers.

    Raises:
        SpecError: the texts have changed since `parse`.
    """
    values, path = settings.document, settings.texts.place.rpartition(".")[0]
    try:
        tokens = _tokens(settings.texts, settings.server, values, path)
    except OSError as error:
        key_path = settings.texts.place
        raise MissingDataError(f"{key_path}: no {settings.texts.path.name} any more", key_path) from error
    if tokens.sha256 != values["sha256"]:
        raise SpecError(f"{settings.texts.place} must not change, got other texts: start again", settings.texts.place)

    windows = settings.windows
    targets = windows.targets(tokens, np.arange(len(windows.starts)))

    def of(parts: Sequence[Rows]) -> Examples:
        return examples(parts, lambda rows: windows.inputs(tokens, rows), targets, "tokens")

    to_validate = {}
    if settings.validation is not None:
        rows = ClientRows.of(settings.validation).rows
        to_validate["bytes_to_validate"] = _bytes_per_token(tokens, windows, rows)
    test = held_out(settings, lambda rows: windows.inputs(tokens, rows), targets, "tokens")
    if test is not None and settings.apart:
        test = replace(test, people=settings.apart.count(False))
    return Problem(
        model=settings.model,
        train=of(settings.parts),
        test=test,
        central=None if settings.central is None else of([settings.central]),
        model_settings={"classes": settings.outputs, **settings.model_settings, **to_validate},
    )


def stamp(document: Mapping[str, Any]) -> Hashable:
    """A value that changes when a text of the document changes; None if there is no text.

    Args:
        document: {"name": "text", ...}, not checked yet.
    """
    name, elsewhere = document.get("path"), _elsewhere(document.get("central"))
    try:
        names = (name,) if elsewhere is None else (name, elsewhere)
        return tuple(text_place(path, "path").stamp() for path in names) if isinstance(name, str | None) else None
    except SpecError:
        return None


def _elsewhere(central: Any) -> str | None:
    """The path of the server's own texts in a document; None if it has none."""
    path = central.get("path") if isinstance(central, Mapping) and len(central) == 1 else None
    return path if isinstance(path, str) else None


def _tokens(texts: TextPlace, server: TextPlace | None, values: Mapping[str, Any], path: str) -> EncodedTexts:
    return load(texts, server, values["vocabulary"], values["vocabulary_size"], 1 - values["test_fraction"], path)


def _fill_size(values: dict[str, Any], path: str) -> None:
    """Fills in the default size of a byte-pair vocabulary; raises a SpecError for a size of another vocabulary."""
    if values["vocabulary"] == "bpe":
        values["vocabulary_size"] = values["vocabulary_size"] or _BYTE_PAIRS
    elif values["vocabulary_size"] is not None:
        key_path = join(path, "vocabulary_size")
        raise SpecError(
            f"{key_path} must be left out for the vocabulary {values['vocabulary']}, got "
            f"vocabulary_size={values['vocabulary_size']}: it is for bpe",
            key_path,
        )


def _chosen(
    windows: Windows, of_server: NDArray[np.bool_], tokens: EncodedTexts, values: Mapping[str, Any], path: str
) -> tuple[Rows, Rows]:
    """(windows for training, windows for testing) of the drawn sources."""
    key_path, context, seed = join(path, "context"), values["context"], values["split_seed"]
    lengths = np.diff(tokens.offsets)
    for owner, group, mask in (
        ("", lengths[: tokens.server], ~of_server),
        (" of the server's", lengths[tokens.server :], of_server),
    ):
        if len(group) and not mask.any():
            raise SpecError(
                f"{key_path} must be at most {max(int(group.max()) - 1, 0)}, all tokens but one of the longest source"
                f"{owner}, got context={context}",
                key_path,
            )
    rows, present = np.arange(len(windows.starts)), np.unique(windows.owners[~of_server])
    if (count := values["sources"]) is not None:
        if count > len(present):
            key_path = join(path, "sources")
            raise SpecError(
                f"{key_path} must be at most {len(present)}, those with a window of {context} tokens, "
                f"got sources={count}",
                key_path,
            )
        rows = rows[of_server | np.isin(windows.owners, partitions.choose(present, count, seed))]
    train, test = rows[~windows.held_out[rows]], rows[windows.held_out[rows]]
    if values["test_fraction"] and not len(test):
        key_path = join(path, "test_fraction")
        raise SpecError(
            f"{key_path} must hold a window out, got test_fraction={values['test_fraction']:g} of at most "
            f"{int(np.bincount(windows.owners[rows]).max())} windows of {context} tokens in a source",
            key_path,
        )
    if (test_count := values["test_windows"]) is not None:
        if test_count > len(test):
            key_path = join(path, "test_windows")
            raise SpecError(
                f"{key_path} must be at most {len(test)}, the windows held out, got test_windows={test_count}", key_path
            )
        test = partitions.choose(test, test_count, seed)
    return train, test


def _bytes_per_token(tokens: EncodedTexts, windows: Windows, rows: Rows) -> float:
    """Mean number of bytes of a target token in some windows; 1 without windows."""
    return float(tokens.lengths[windows.targets(tokens, rows)].mean()) if len(rows) else 1.0


def _notes(tokens: EncodedTexts, windows: Windows, texts: TextPlace, path: str) -> Iterator[str]:
    """A note on files that are too short for a window; roles get no note, because many are short."""
    short = np.setdiff1d(np.arange(len(tokens.names)), windows.owners)
    if len(short) and not texts.roles:
        first, count = tokens.names[int(short[0])], len(tokens.names)
        yield (
            f"{join(path, 'context')}: {len(short)} of {count} files are left out, shorter than a window of "
            f"{windows.context} tokens and the next: {first}"
        )
