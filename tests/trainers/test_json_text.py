"""JSON that is read piece by piece and block by block, against Python's own reader and against reading it at once."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.data import json_text
from trainers.data.json_text import JsonText

ODD = ["\\", '"', "]", "}", ",", "\u00e9", "\U0001f600", "\ud83d", "\u2028", "\n", "e", " " * 40]
STRINGS = st.lists(st.sampled_from(ODD), max_size=4).map("".join)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | STRINGS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=3),
    max_leaves=12,
)
SPACES = st.sampled_from(["", " ", "\n\t", " " * 40])
SIZES = st.tuples(st.integers(1, 64), st.integers(1, 64))


@contextmanager
def sized(sizes: tuple[int, int]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "_PIECE", sizes[0])
        patch.setattr(json_text, "_BLOCK", sizes[1])
        yield


def read(text: str) -> Any:
    """A document of lists, these by blocks."""
    document, found = JsonText(io.StringIO(text)), {}
    for key in document.members():
        found[key] = [row for block in document.elements() for row in block]
    document.end()
    return found


def outcome(text: str, sizes: tuple[int, int]) -> str:
    with sized(sizes):
        try:
            return repr(read(text))
        except ValueError as error:
            return f"error: {error}"


@st.composite
def documents(draw: st.DrawFn) -> tuple[dict[str, list[Any]], str]:
    """(values, their text with spaces in odd places)."""
    values = draw(st.dictionaries(STRINGS, st.lists(VALUES, max_size=6), max_size=3))
    space, ascii_only = draw(SPACES), draw(st.booleans())
    separators = (f"{space},{space}", f"{space}:{space}")
    return values, space + json.dumps(values, ensure_ascii=ascii_only, separators=separators) + space


@given(documents(), SIZES)
def test_pieces_and_blocks_of_any_size_give_the_values_of_python(document: tuple[Any, str], sizes: Any) -> None:
    values, text = document
    assert outcome(text, sizes) == repr(values)


@given(documents(), SIZES, st.integers(0), st.sampled_from(["", *'{}[]",:\\0e-. ']), st.booleans(), st.booleans())
def test_a_damaged_document_is_refused_in_the_same_words(
    document: tuple[Any, str], sizes: Any, at: int, put: str, over: bool, cut: bool
) -> None:
    text = document[1]
    at %= len(text)
    damaged = text[:at] + put + ("" if cut else text[at + over :])
    whole = outcome(damaged, (2**20, 2**18))
    assert outcome(damaged, sizes) == whole
    try:
        json.loads(damaged)
    except ValueError:
        assert whole.startswith("error")


@given(VALUES, NUMBERS, SIZES)
def test_what_is_skipped_ends_where_it_ends(skipped: Any, number: Any, sizes: Any) -> None:
    with sized(sizes):
        document, found = JsonText(io.StringIO(json.dumps({"a": skipped, "b": number}))), {}
        for key in document.members():
            found[key] = document.value() if key == "b" else document.skip()
        document.end()
    assert repr(found) == repr({"a": None, "b": number})


@pytest.mark.parametrize("text", ["5", "-1.5e3 ", "true", '"a"', "[1, 2]"])
def test_a_document_may_be_one_value(text: str) -> None:
    document = JsonText(io.StringIO(text))
    assert document.value() == json.loads(text)
    document.end()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": ["b', "Unterminated string starting at character 7"),
        ('{"a": ["b\tc"]}', "Invalid control character at character 9"),
        ('{"a": ["\\x"]}', r"Invalid \\escape at character 8"),
        ('{"a": [1 2]}', "Expecting , or ] at character 9"),
    ],
)
def test_the_words_about_damage(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        read(text)
