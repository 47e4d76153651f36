"""Loads plug-ins: modules that are checked against the contract of their kind.

The contract is a Protocol. Attributes without a value and abstract functions are required; the others are optional, and
default to the value or body in the Protocol. Other public names are refused, so that a misspelt option is not ignored,
unless the module lists them in `__all__`.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from symtable import symtable
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from trainers.errors import PluginError
from trainers.spelling import hint, nearest


@runtime_checkable
class Configured(Protocol):
    """A plug-in with hyperparameters: a method, an optimizer or a schedule.

    Attributes:
        Hyper: dataclass of its hyperparameters, with fields declared by `trainers.hyperparameters.tunable`.
        SPACE: its default search space as in a study: hyperparameter -> range or choices. A literal, because it is read
            without importing the module; None: studies must give a space.
    """

    Hyper: type
    SPACE: Mapping[str, Any] | None = None

    def complete(self, values: dict[str, Any]) -> dict[str, Any]:
        """Checks one trial's values together, and fills in values that follow from others.

        Args:
            values: name -> value, one for each field of Hyper.
        """
        return values


def load(kind: type, word: str, module: ModuleType) -> Any:
    """Turns a module into a plug-in: an object of the kind with the module's attributes, and defaults for the rest.

    Functions of the module become static methods, so calls have no overhead.

    Args:
        kind: the Protocol.
        word: name of the kind for errors, such as "method".
        module: the module.

    Raises:
        PluginError: the module has an unknown public name, lacks a required one, or has one with the wrong type or
            signature.
    """
    file = module.__name__.replace(".", "/") + ("/__init__.py" if hasattr(module, "__path__") else ".py")
    contract = _contract(kind)
    for name in _defined(module):
        if name not in contract:
            right = "" if nearest(name, contract) else "; begin the name with _, or list it in __all__"
            raise PluginError(f"{file}: {name} is not part of {_a(word)}: {hint(name, contract)}{right}")
    body: dict[str, Any] = {"__doc__": module.__doc__, "__module__": module.__name__}
    attributes = vars(module)
    for name, (required, check) in contract.items():
        if name in attributes:
            check(attributes[name], f"{file}: {name}")
            body[name] = staticmethod(attributes[name]) if inspect.isroutine(attributes[name]) else attributes[name]
        elif required:
            raise PluginError(f"{file}: {name} is missing: {_a(word)} must define {_required(contract)}")
    return types.new_class(
        module.__name__.rpartition(".")[2], (kind,), exec_body=lambda namespace: namespace.update(body)
    )()


_Check = Callable[[Any, str], None]


@cache
def _contract(kind: type) -> Mapping[str, tuple[bool, _Check]]:
    """Name -> (whether it is required, its check)."""
    contract: dict[str, tuple[bool, _Check]] = {}
    for name, hinted in typing.get_type_hints(kind).items():
        contract[name] = (not hasattr(kind, name), _type_check(hinted))
    for base in kind.__mro__:
        for name, value in vars(base).items():
            if inspect.isfunction(value) and not name.startswith("_") and name not in contract:
                contract[name] = (getattr(value, "__isabstractmethod__", False), _signature_check(value))
    return contract


def _required(contract: Mapping[str, tuple[bool, _Check]]) -> str:
    return ", ".join(name for name, (required, _) in contract.items() if required)


def _defined(module: ModuleType) -> Iterator[str]:
    """The public names that a module defines, without imported names and those in `__all__`."""
    listed = getattr(module, "__all__", ())
    for symbol in symtable(inspect.getsource(module), module.__name__, "exec").get_symbols():
        name = symbol.get_name()
        if symbol.is_assigned() and not symbol.is_imported() and not name.startswith("_") and name not in listed:
            yield name


def _type_check(hinted: Any) -> _Check:
    inner = typing.get_args(hinted)
    contract = inner[0] if typing.get_origin(hinted) is type and getattr(inner[0], "_is_protocol", False) else None

    def check(value: Any, location: str) -> None:
        if not _fits(value, hinted):
            raise PluginError(f"{location} must be of type {_shown(hinted)}, got {value!r}")
        if contract is not None:
            _check_class(contract, value, location)

    return check


def _check_class(contract: type, cls: type, location: str) -> None:
    """Checks that a class has the methods of its contract; it may have others."""
    _signature_check(vars(contract)["__init__"])(cls, location)
    for name, (required, check) in _contract(contract).items():
        method = getattr(cls, name, None)
        if method is not None and not getattr(method, "__isabstractmethod__", False):
            check(types.MethodType(method, cls), f"{location}.{name}")
        elif required:
            raise PluginError(f"{location}.{name} is missing: it must define {_required(_contract(contract))}")


def _signature_check(function: Callable[..., Any]) -> _Check:
    """A check of a function's signature. Positional parameters may have any names, keyword-only ones may not."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    names = {item.name: None for item in parameters if item.kind is item.KEYWORD_ONLY}
    shown = inspect.Signature([item.replace(annotation=item.empty) for item in parameters])

    def check(value: Any, location: str) -> None:
        if not callable(value):
            raise PluginError(f"{location} must be a function of {shown}, got {value!r}")
        signature = inspect.signature(value)
        if not _takes(signature, len(parameters) - len(names), names):
            plain = [item.replace(annotation=item.empty) for item in signature.parameters.values()]
            raise PluginError(f"{location} must take {shown}, got {inspect.Signature(plain)}")

    return check


def _takes(signature: inspect.Signature, positional: int, names: Mapping[str, None]) -> bool:
    try:
        signature.bind(*[None] * positional, **names)
    except TypeError:
        return False
    return True


def _fits(value: Any, hinted: Any) -> bool:
    """Whether a value is of a type; supports the types that contracts use."""
    origin, inner = typing.get_origin(hinted), typing.get_args(hinted)
    if hinted is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, member) for member in inner)
    if origin is typing.Literal:
        return value in inner
    if origin is type:
        base = object if inner[0] is Any or getattr(inner[0], "_is_protocol", False) else inner[0]
        return isinstance(value, type) and issubclass(value, base)
    if origin is Callable:
        return callable(value) and _takes(inspect.signature(value), len(inner[0]), {})
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, inner[0]) for item in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
        return isinstance(value, Mapping) and all(_fits(key, inner[0]) and _fits(item, inner[1]) for key, item in pairs)
    if hinted is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hinted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or hinted)


def _shown(hinted: Any) -> str:
    """A type as written in the contract, without module names."""
    return re.sub(r"\b(\w+\.)+(?=\w)", "", inspect.formatannotation(hinted))


def _a(word: str) -> str:
    return f"an {word}" if word[0] in "aeio" else f"a {word}"
