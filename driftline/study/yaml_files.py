"""Reads and writes YAML files, of studies and of settings: numbers as in YAML 1.2, and no duplicate keys."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from driftline.errors import InvalidSpec, NotFound
from trainers import SpecError, digits, shown

_LONGEST = 300  # most characters of a parser's message


class _Loader(yaml.SafeLoader):
    """Reads YAML 1.2's core types: 1e-3 is a number; ``no``, ``on`` and 1:30 are strings."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Any, Any] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a string", key_node.start_mark)
            if key in seen:
                problem = f"key {shown(key)} is given twice (first in line {seen[key].line + 1}): keep one"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen[key] = key_node.start_mark
        return super().construct_mapping(node, deep)


_PLAIN = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
)


class _Dumper(yaml.SafeDumper):
    """Quotes a string that YAML 1.1 or `_Loader` would read as something else."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in _PLAIN:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), list(_first))


def _int(loader: _Loader, node: yaml.ScalarNode) -> int:
    try:
        return digits(loader.construct_scalar(node))  # decimal: 010 is ten
    except SpecError as error:
        raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error


_Loader.add_constructor("tag:yaml.org,2002:int", _int)


def parse(text: str, origin: str = "") -> Any:
    """Parses a YAML string.

    Args:
        text: One YAML document.
        origin: Name of the file, for errors.

    Raises:
        InvalidSpec: Invalid YAML or a duplicate key; the message gives line and column.

    Examples:
        >>> parse("{client_lr: 1e-3, server_lr: [1, 1.5E+2], label: no}")
        {'client_lr': 0.001, 'server_lr': [1, 150.0], 'label': 'no'}
    """
    prefix = f"{origin}: " if origin else ""
    try:
        return yaml.load(text, Loader=_Loader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else "somewhere"
        problem = " ".join(str(error.problem or error.context)[:_LONGEST].split())
        raise InvalidSpec("", f"{prefix}{position}: {problem}") from error
    except yaml.YAMLError as error:
        raise InvalidSpec("", f"{prefix}{' '.join(str(error)[:_LONGEST].split())}") from error
    except RecursionError as error:
        raise InvalidSpec("", f"{prefix}is nested too deeply") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # from PyYAML, for a tag such as !!int on a word
        raise InvalidSpec("", f"{prefix}a tag (!!) must suit its value, got {shown(str(error))}") from error


def dumped(document: Any, **options: Any) -> str:
    """A document as YAML, which `parse` reads as the same document.

    Args:
        document: JSON values.
        options: As for `yaml.dump`.

    Examples:
        >>> print(dumped({"label": "1e3", "client_lr": 0.001, "no": ["no", "1_000", "1:30"]}), end="")
        label: '1e3'
        client_lr: 0.001
        'no':
        - 'no'
        - '1_000'
        - '1:30'
    """
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, **options)
    return text


def read(source: str | Path) -> Any:
    """Reads a YAML file or string.

    Args:
        source: A path, or a YAML string, which must have a line break.

    Raises:
        InvalidSpec: The file cannot be read as text, or for the reasons of `parse`.
        NotFound: There is no such file.
    """
    if isinstance(source, str) and "\n" in source:
        return parse(source)
    path = Path(source)
    try:
        return parse(path.read_text(encoding="utf-8"), path.name)
    except FileNotFoundError as error:
        raise NotFound(f"no study file {str(path)!r}") from error
    except UnicodeDecodeError as error:
        raise InvalidSpec("", f"a study file must be text (YAML, in UTF-8), got {str(path)!r}") from error
    except OSError as error:
        raise InvalidSpec("", f"cannot read study file {str(path)!r}: {error}") from error
