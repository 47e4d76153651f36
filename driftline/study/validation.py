"""Base of a study's parts: a pydantic model whose errors name the keys as the user wrote them."""

from __future__ import annotations

import contextlib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Annotated, Any, NoReturn, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from driftline.errors import DriftlineError, InvalidSpec
from trainers import Changes, SpecError, StandIns, Steps, every_error, hint, integer, number, shown, step

_SURROGATE = re.compile("[\ud800-\udfff]")
_DEEPEST = 64  # the API's limit for request bodies
_STEPS = 12  # most steps of a path in a message
_MOST_ERRORS = 20  # most that are listed
_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}
_KINDS = {
    "missing": "must be given",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "too_short": "must not be empty",
    "too_long": "must have fewer items",
}
_ONE_READING = ContextVar("one_reading", default=False)


class Section(BaseModel):
    """Base of a study's parts: immutable; refuses unknown keys; raises `InvalidSpec` with the key's path."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, validate_default=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Removes types from the signature, because `help` would show their validators; puts own keys first."""
        signature = inspect.signature(cls)
        plain = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
        plain.sort(key=lambda parameter: parameter.name not in cls.__annotations__)
        cls.__signature__ = signature.replace(parameters=plain, return_annotation=signature.empty)

    def __init__(self, **values: Any) -> None:
        """Checks the values.

        Raises:
            InvalidSpec: A line for each error, with the key, what must hold, and what was given.
        """
        if reading_once():
            self._read(values)
            return
        try:
            with one_reading():
                self._read(values)
        except InvalidSpec as error:
            raise all_errors(values, error, lambda mended: type(self)(**mended), self._stand_ins) from None

    def _read(self, values: dict[str, Any]) -> None:
        _refuse_strange(values)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise_invalid(error, type(self))

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Builds the object from a JSON value.

        Args:
            document: A mapping, from JSON or YAML.

        Raises:
            InvalidSpec: A line for each error, with the key, what must hold, and what was given.
        """
        if not isinstance(document, dict):
            raise InvalidSpec("", f"must be a mapping of keys to values, got {shown(document)}")
        _refuse_strange(document)
        return cls(**document)

    @classmethod
    def _stand_ins(cls, document: Any, steps: Steps) -> tuple[Sequence[Changes], Sequence[Changes]]:
        """Replacements for an invalid value at a place; see `trainers.every_error`."""
        return [], []


def reading_once() -> bool:
    """Whether the caller will read an invalid part again, so that its first errors are enough."""
    return _ONE_READING.get()


@contextlib.contextmanager
def one_reading() -> Iterator[None]:
    """Within the block, a part is read once and may raise only some of its errors: the caller reads it again."""
    token = _ONE_READING.set(True)
    try:
        yield
    finally:
        _ONE_READING.reset(token)


def all_errors(
    document: Mapping[str, Any],
    error: InvalidSpec,
    read: Callable[[dict[str, Any]], Any],
    stand_ins: StandIns,
) -> InvalidSpec:
    """An error of a document, together with all other errors of the document.

    Args:
        document: The document; stays as it is.
        error: The error that reading the document raised.
        read: Raises an InvalidSpec for a document that is invalid.
        stand_ins: Returns replacements for an invalid value at a place; see `trainers.every_error`.
    """

    def errors(mended: dict[str, Any]) -> tuple[tuple[str, str], ...]:
        try:
            with one_reading():
                read(mended)
        except InvalidSpec as further:
            return further.errors
        except (DriftlineError, MemoryError, OverflowError, RuntimeError, TypeError, ValueError):
            pass  # its check is not installed here, or fails on its numbers
        return ()

    if len(error.errors) > _MOST_ERRORS:
        return error
    combined = Errors()
    for path, problem in every_error(document, errors, stand_ins) or error.errors:
        combined.add(InvalidSpec(path, problem))
    return combined.whole() or error


def _refuse_strange(document: Any) -> None:
    """Refuses keys that are not strings, unpaired surrogates, and nesting deeper than the API allows."""
    level: list[tuple[str, Any]] = [("", document)]
    for _ in range(_DEEPEST):
        below: list[tuple[str, Any]] = []
        for path, value in level:
            if isinstance(value, dict):
                if strange := [key for key in value if not isinstance(key, str)]:
                    raise InvalidSpec(join(path, step(strange[0])), "keys must be strings")
                below += [(path or step(key), inner) for key, inner in value.items()]
                below += [(path or step(key), key) for key in value]
            elif isinstance(value, list | tuple):
                below += [(path, inner) for inner in value]
            elif isinstance(value, str) and not value.isascii() and _SURROGATE.search(value):
                raise InvalidSpec(path, f"must not hold half a character (\\ud800 to \\udfff), got {shown(value)}")
        level = below
    if level:
        raise InvalidSpec(level[0][0], f"must be nested at most {_DEEPEST} deep, got more")


def raise_invalid(error: ValidationError, model: type[BaseModel]) -> NoReturn:
    """Raises pydantic's errors (unknown keys before others) as one `InvalidSpec`.

    Keys that are missing beside an unknown key are not reported: the unknown key may be one of them, misspelt.

    Args:
        error: The error from pydantic.
        model: The model that was validated.
    """
    mistakes = sorted(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden")
    misspelled = {item["loc"][:-1] for item in mistakes if item["type"] == "extra_forbidden"}
    mistakes = [item for item in mistakes if item["type"] != "missing" or item["loc"][:-1] not in misspelled]
    errors = Errors()
    for item in mistakes[:_MOST_ERRORS]:
        errors.add(_invalid(item, model))
    errors.skipped += len(mistakes[_MOST_ERRORS:])
    errors.raise_any()
    raise AssertionError("pydantic's error has no errors")


def _invalid(item: ErrorDetails, model: type[BaseModel]) -> InvalidSpec:
    """One of pydantic's errors as an `InvalidSpec`."""
    steps: tuple[int | str, ...] = item["loc"]
    kind = item["type"]
    context = item.get("ctx", {})
    cause = context.get("error")
    path = dotted(steps)
    if isinstance(cause, InvalidSpec):
        return cause.moved(lambda rest: join(path, rest))
    name = str(steps[-1]) if steps else ""
    came = f", got {f'{step(name)}=' if name and not name.isdigit() else ''}{shown(item['input'])}"
    if kind == "extra_forbidden":
        return InvalidSpec(path, f"unknown key: {hint(name, model.model_fields)}")
    if isinstance(cause, ValueError):
        return InvalidSpec(path, str(cause))
    if kind == "missing":
        return InvalidSpec(path, _KINDS[kind])
    if kind in _LIMITS:
        words, key = _LIMITS[kind]
        return InvalidSpec(path, f"must be {words} {shown(context[key])}{came}")
    if kind == "literal_error":
        expected = str(context["expected"]).replace("'", "")
        return InvalidSpec(path, f"must be {expected}{came}")
    text = _KINDS.get(kind, item["msg"].replace("Input should", "must").replace("String should", "must"))
    return InvalidSpec(path, f"{text}{came}")


class Errors:
    """Collects the errors of a study, to report them together.

    Examples:
        >>> errors = Errors()
        >>> for place in ("seed", "budget.rounds", "seed"):
        ...     with errors.collected():
        ...         raise InvalidSpec(place, "must be given")
        >>> errors.raise_any()
        Traceback (most recent call last):
        driftline.errors.InvalidSpec: seed: must be given
        budget.rounds: must be given
    """

    def __init__(self) -> None:
        self._errors: dict[tuple[str, str], None] = {}
        self.skipped = 0

    def add(self, error: InvalidSpec) -> None:
        """Adds all errors that `error` holds, each once."""
        self._errors |= dict.fromkeys(error.errors)

    def add_all(self, errors: Iterable[InvalidSpec]) -> None:
        """Adds errors."""
        for error in errors:
            self.add(error)

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Adds an `InvalidSpec` that is raised inside, instead of letting it through."""
        try:
            yield
        except InvalidSpec as error:
            self.add(error)

    def raise_any(self) -> None:
        """Raises the errors as one; does nothing if there are none.

        Raises:
            InvalidSpec: The first error, with all others.
        """
        if (whole := self.whole()) is not None:
            raise whole from None

    def whole(self) -> InvalidSpec | None:
        """The errors as one, the first 20 of them; None if there are none."""
        if not self._errors:
            return None
        first, *others = self._errors
        skipped = self.skipped + len(others[_MOST_ERRORS - 1 :])
        more = [("", f"and {skipped} more")] if skipped else []
        return InvalidSpec(*first, [*others[: _MOST_ERRORS - 1], *more])


def from_spec_error(error: SpecError, path: str | None = None) -> InvalidSpec:
    """Converts the trainers' error to an `InvalidSpec`, with the path once, in front.

    Args:
        error: An error whose message begins with its path, or does not name it.
        path: Path in the user's document; the error's own path by default.

    Examples:
        >>> error = SpecError("method.prox must be at least 0, got prox=-1", "method.prox")
        >>> print(from_spec_error(error, "space.prox"))
        space.prox: must be at least 0, got prox=-1
    """
    text = str(error)
    if error.path and text.startswith(error.path):
        text = text.removeprefix(error.path).lstrip(": ")
    text = re.sub(r'^unknown key "[^"]*"( in [^:]+)?: ', "unknown key: ", text)
    return InvalidSpec(error.path if path is None else path, text)


def dotted(steps: Sequence[int | str]) -> str:
    """A path as users read it.

    Examples:
        >>> dotted(["methods", 0, "space", "client_lr"])
        'methods[0].space.client_lr'
    """
    text = ""
    for item in steps[:_STEPS]:
        text = f"{text}[{item}]" if isinstance(item, int) else join(text, step(item))
    return text if len(steps) <= _STEPS else f"{text} ..."


def join(path: str, rest: str) -> str:
    """Two paths as one; either may be empty."""
    if not path or not rest:
        return path or rest
    return f"{path}{rest}" if rest.startswith("[") else f"{path}.{rest}"


def _whole(value: Any) -> int:
    try:
        return integer(value, "", math.inf)  # the field checks the upper limit
    except SpecError as error:
        raise ValueError(str(error)) from None


def _real(value: Any) -> float:
    try:
        return number(value, "")
    except SpecError:
        raise ValueError(f"must be a finite number, got {shown(value)}") from None


def auto_or_number(least: float, most: float, whole: bool = False) -> BeforeValidator:
    """A validator that accepts "auto", None, or a number in a range (a whole number if `whole`)."""

    def check(value: Any) -> Any:
        if value is None or value == "auto":
            return value
        kind = "a whole number" if whole else "a number"
        try:
            checked = number(value, "")
            if whole and checked <= most:
                checked = integer(value, "")
        except SpecError:
            checked = least - 1
        if checked < least:
            raise ValueError(f"must be auto or {kind} of at least {shown(least)}, got {shown(value)}")
        if checked > most:
            raise ValueError(f"must be auto or {kind} of at most {shown(most)}, got {shown(value)}")
        return checked

    return BeforeValidator(check)


Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number; 10.0 and "10" count, true does not."""
Real = Annotated[float, BeforeValidator(_real)]
"""A finite number; "1e-3" counts, true does not."""
