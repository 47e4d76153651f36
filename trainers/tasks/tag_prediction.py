"""Synthetic questions with tags, in the form of Stack Overflow's tag prediction.

    {"name": "tag_prediction", "clients": 100, "words": 1000, "tags": 50, "examples": 60, "length": 20, "own": 0.5,
     "skew": 0.1, "data_seed": 0, "at": 5, "model": "logistic"}

A question is a bag of words: the share of each of `words` words in it. It has 1 to 5 tags: 1 plus a binomial number of
4 with mean 1.9 are drawn, and equal tags count once. Word and tag number j = 0, 1, .. are drawn with probability
proportional to 1 / (j + 1). A tag has 20 words of its own, drawn in this way. A question has 1 + Poisson(`length`)
words: each is, with probability `own`, a word of one of its tags, and otherwise any word, drawn in this way.

Client i draws tags with its own probabilities, from a Dirichlet distribution with the common ones as mean and
concentration `tags` x `skew`: the smaller, the more clients differ. It has 2 + Poisson(`examples` - 2) questions, of
which a tenth, rounded up, is for testing. Questions depend on data_seed and the client, tags' words on data_seed alone.

The shape is that of the 10,000 words, 500 tags and normalized bags of "On the Outsized Importance of Learning Rates in
Local Update Methods" (Charles, Konecny 2020), section 8.1; the distributions are our own. The loss is the sum of the
tags' sigmoid cross-entropies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.federated import Federated, choose_model, examples, held_out
from trainers.data.partitions import ClientRows
from trainers.data.table_targets import at_of
from trainers.errors import SpecError
from trainers.hyperparameters import check, describe, tunable
from trainers.problem import MOST_CLIENTS, MOST_DRAWN, Problem
from trainers.target_kinds import KINDS

DTYPE = "float32"
BATCHING = "shuffled"
WEIGHTING = "examples"
METRICS = KINDS["tags"].metrics
QUALITY = "test_loss"

_OWN_WORDS = 20
_MORE_TAGS, _MORE_TAGS_MEAN = 4, 1.9
_MEANINGS, _CLIENT = 0x7A, 0x7B  # second seeds, next to the seed of the data


@dataclass(frozen=True)
class _TagKeys:
    """The keys of a document."""

    clients: int = tunable(100, low=1, high=MOST_CLIENTS, unit="clients", doc="size of the population")
    words: int = tunable(1000, low=2, high=100_000, doc="size of the vocabulary")
    tags: int = tunable(50, low=2, high=10_000, doc="number of tags")
    examples: int = tunable(60, low=2, unit="examples", doc="mean number of a client's questions")
    length: int = tunable(20, low=0, high=1000, unit="words", doc="mean number of a question's words, less 1")
    own: float = tunable(0.5, low=0, high=1, doc="probability that a word is one of a tag of its question")
    skew: float = tunable(0.1, low=0, low_open=True, doc="concentration of the clients' tags, over the number of tags")
    data_seed: int = tunable(0, low=0, doc="of the tags' words and of the questions")
    at: int | None = tunable(None, low=1, unit="tags", doc="k of precision and recall at k; null is 5, or all if fewer")
    model: Any = tunable("logistic", kind="any", doc="name of a model, or an object of its name and settings")


SETTINGS = describe(_TagKeys)


def parse(document: Mapping[str, Any], path: str) -> Federated:
    """The task that a document describes.

    Args:
        document: {"name": "tag_prediction", ...}.
        path: dotted path of the document, as "task".

    Raises:
        SpecError: unknown keys, wrong types, sizes or ranges.
    """
    values = check(_TagKeys, document, path, other_keys=("name",))
    model, model_settings, values["model"] = choose_model(values["model"], f"{path}.model", ("tags",))
    values["at"] = at_of(values["at"], values["tags"], "tags", path)
    drawn = values["clients"] * values["examples"] * values["words"]
    if drawn > MOST_DRAWN:
        raise SpecError(
            f"{path} must be smaller: clients x examples x words must be at most {MOST_DRAWN}, got {drawn}", path
        )
    sizes = np.array([_size(values, _generator(values, client)) for client in range(values["clients"])])
    rows, train = ClientRows(np.arange(sizes.sum()), sizes), 9 * sizes // 10
    return Federated(
        {"name": "tag_prediction", **values},
        model,
        {"at": values["at"], **model_settings},
        parts=[rows[client][: train[client]] for client in range(len(sizes))],
        test=[rows[client][train[client] :] for client in range(len(sizes))],
        central=None,
        metrics=METRICS,
        shape=(values["words"],),
        outputs=values["tags"],
        kind="tags",
    )


def build(settings: Federated, dtype: str) -> Problem:
    """The problem to train on; inputs are (examples, words), shares with sum 1, and targets (examples, tags).

    Args:
        settings: from `parse`.
        dtype: type of the inputs, "float32" or "float64".
    """
    document = settings.document
    meanings = np.random.default_rng([document["data_seed"], _MEANINGS])
    words = _shares(document["words"])
    tag_words = meanings.choice(len(words), (document["tags"], _OWN_WORDS), p=words)
    drawn = [_questions(document, client, words, tag_words, dtype) for client in range(document["clients"])]
    inputs, targets = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    return Problem(
        model=settings.model,
        train=examples(settings.parts, lambda rows: inputs[rows], targets, "tags"),
        test=held_out(settings, lambda rows: inputs[rows], targets, "tags"),
        model_settings=settings.model_settings,
    )


def _shares(count: int) -> NDArray[np.float64]:
    """(count,) shares of words or tags, most frequent first."""
    shares = 1 / np.arange(1.0, count + 1)
    return shares / shares.sum()  # type: ignore[no-any-return]


def _generator(document: Mapping[str, Any], client: int) -> np.random.Generator:
    return np.random.default_rng([document["data_seed"], _CLIENT, client])


def _size(document: Mapping[str, Any], generator: np.random.Generator) -> int:
    """Number of a client's questions, the first draw of its generator."""
    return 2 + int(generator.poisson(document["examples"] - 2))


def _questions(
    document: Mapping[str, Any], client: int, words: NDArray[np.float64], tag_words: NDArray[np.int64], dtype: str
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """(questions, words) shares and (questions, tags) of a client."""
    generator = _generator(document, client)
    size = _size(document, generator)
    popular = _shares(document["tags"])
    shares = generator.dirichlet(popular * document["tags"] * document["skew"])
    counts = 1 + generator.binomial(_MORE_TAGS, _MORE_TAGS_MEAN / _MORE_TAGS, size)
    drawn = generator.choice(len(shares), (size, 1 + _MORE_TAGS), p=shares)
    targets = np.zeros((size, len(shares)), np.bool_)
    kept = np.arange(1 + _MORE_TAGS) < counts[:, None]
    targets[np.nonzero(kept)[0], drawn[kept]] = True
    lengths = 1 + generator.poisson(document["length"], size)
    question = np.repeat(np.arange(size), lengths)
    tag = drawn[question, generator.integers(0, counts[question])]
    of_tag = tag_words[tag, generator.integers(0, _OWN_WORDS, len(question))]
    any_word = generator.choice(len(words), len(question), p=words)
    word = np.where(generator.random(len(question)) < document["own"], of_tag, any_word)
    bags = np.zeros((size, len(words)), dtype)
    np.add.at(bags, (question, word), 1)
    return bags / lengths[:, None].astype(dtype), targets
