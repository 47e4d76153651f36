"""Prints docs/methods.md: all methods, optimizers and schedules, from their docstrings and hyperparameters.

python -m trainers.catalogue > docs/methods.md
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable

from trainers.contracts import Method, Optimizer
from trainers.hyperparameters import Hyperparameter, withdrawals
from trainers.plugins import Configured
from trainers.registry import Registry, methods, optimizers, schedules
from trainers.trial.parts import offered
from trainers.trial.roles import ANY, ROLES, STATE, lacks, serving, taken

_HEAD = """# Methods, optimizers and schedules

<!-- Made by `python -m trainers.catalogue > docs/methods.md`; do not edit. -->

This page lists every method, optimizer and schedule with its hyperparameters. `driftline methods`
prints the list, and with a name the update equations, the ranges and the default search space:

```text
$ driftline methods fedprox
fedprox

FedProx: FedAvg with a pull of every local model to the broadcast one.

    y_1 = x,   g_k = grad f_i(y_k; batch k) + prox (y_k - x),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    q = mean over the cohort of g_1 + ... + g_K;   the server optimizer steps along q with server_lr
...
Default search space:
  client_lr: {float: [0.001, 10.0], log: true, also: [0.0]}
  server_lr: {float: [0.001, 10.0], log: true, points: 9}
  local_steps: {choice: [1, 2, 4, 8, 16, 32]}
  prox: {float: [0.001, 10.0], log: true}
```

A trial has one method, an optimizer in every role that the method has (plain SGD unless the trial
names another) and one schedule (constant rates unless it names another). The roles are `client`
(local steps), `server`, and in mixed federated learning `central` (the server's branch) and
`merge`; settings have dotted names, such as `client.beta1` and `server.momentum`.

FedAvgM, FedAdam, FedYogi and FedAdagrad are `fedavg` with `sgd` (with momentum), `adam`, `yogi` and
`adagrad` on the server; in a study `preset: fedadam` is such an entry, with the settings of the
paper: its server steps along the mean change of the clients' models (`along: change`), so that
`epsilon` is the paper's tau, without bias correction and from `epsilon^2` on.

A hyperparameter without a default must be given. `server_lr` multiplies the mean pseudo-gradient, a
sum of gradients, or its direction. `delta_lr` multiplies the mean change of the clients' models, or
the direction that an adaptive server finds along it. Give exactly one of `server_lr`, `delta_lr`
and `tied`, and one of `local_steps` and `local_epochs`. All members of a pack have the same value
of a hyperparameter that is marked *.

`local_epochs: E` takes E ceil(n / `batch_size`) steps on a client of n examples, in place of
`local_steps` in the formulas.

The *mean* of the clients is weighted in the same way in all methods of a study, and so are
`train_loss`, `full_loss` and the reports. On federated data clients count by their numbers of
examples, as in the papers of FedAvg, FedProx and FedNova and in other frameworks. On `quadratic`
and `linear_regression`, as in their papers, clients have equal weights or those of the task.

`weighting: uniform` or `examples` of a study chooses for all its entries. An entry with a
`weighting` of its own trains with it, and is measured like the others.
"""

_HEADS = ("hyperparameter", "what it is", "range", "unit", "default", "limit case")


def page() -> str:
    """The whole page, ending with a newline."""
    parts = [_HEAD, *_section("Methods", methods(), exchanges=True)]
    parts += _section("Optimizers", optimizers(), exchanges=False)
    parts += _section("Schedules", schedules(), exchanges=False)
    return "\n".join(parts)


def range_of(item: Hyperparameter) -> str:
    """The range of a hyperparameter in words.

    Args:
        item: the hyperparameter.

    Examples:
        >>> range_of(Hyperparameter(name="local_steps", kind="int", default=1, low=1))
        'whole number at least 1'
    """
    if item.choices:
        return "one of " + ", ".join(str(choice) for choice in item.choices)
    lists = {"floats": "numbers", "ints": "whole numbers"}
    words = {"bool": "true or false", "str": "string", "any": "see the text"}
    if item.kind in lists:
        return f"{lists[item.kind]}, each {item.range_text()}"
    if item.kind in words:
        return words[item.kind]
    return ("whole number " if item.kind == "int" else "") + item.range_text()


def roles(module: object) -> str:
    """The roles that a method has, or in which an optimizer serves; "" for a schedule.

    Args:
        module: a plug-in.
    """
    if isinstance(module, Optimizer):
        return ", ".join(role for role in ROLES if role not in module.REFUSED)
    if not isinstance(module, Method):
        return ""
    taking = {role: takes for role, takes in taken(module).items() if lacks(module, role) is None}
    named = {
        role: "" if takes == ANY else f" ({takes}: {', '.join(serving(role, takes))})" for role, takes in taking.items()
    }
    texts = [f"{role}{named[role]}" for role in ROLES if role in named]
    reason = lacks(module, "client")
    return ", ".join(texts) + (f"; no client optimizer, because {reason}" if reason else "")


def default_of(item: Hyperparameter, module: object) -> str:
    """The default of a hyperparameter in words, for an optimizer in every role; "" if it must be given.

    Args:
        item: the hyperparameter.
        module: the plug-in that has it.
    """
    if not isinstance(module, Optimizer):
        return "" if item.required else json.dumps(item.default, default=str)
    defaults = {
        role: {setting.name: setting.default for setting in offered(module, role)} for role in roles(module).split(", ")
    }
    texts = {
        role: json.dumps(values[item.name]) if item.name in values else "none" for role, values in defaults.items()
    }
    usual = texts.get("server") or texts["client"]
    others = [f"{role}: {text}" for role, text in texts.items() if text != usual]
    return f"{usual} ({', '.join(others)})" if others else usual


def source(module: object) -> str:
    """The text after "Source:" in a module's docstring; "" if there is none."""
    return _after("Source", module, r"(?:\n\n|\Z)").rstrip(".")


def exchanges(module: object) -> str:
    """The sentence after "Exchanges:" in a module's docstring; "" if there is none."""
    return _after("Exchanges", module, r"\.(?=\s|\Z)")


def summary(module: object) -> str:
    """The first paragraph of a module's docstring, on one line."""
    first = inspect.cleandoc(module.__doc__ or "").partition("\n\n")[0]
    return " ".join(first.split()).rstrip(".")


def _after(word: str, module: object, end: str) -> str:
    match = re.search(rf"\b{word}:\s*(.*?){end}", inspect.cleandoc(module.__doc__ or ""), re.DOTALL)
    return " ".join(match[1].split()) if match else ""


def _section(title: str, registry: Registry[Configured], *, exchanges: bool) -> Iterable[str]:
    yield f"## {title}\n"
    heads = ("name", "what it does", "paper", *(("exchanges",) if exchanges else ()))
    yield from _table(heads, (_overview(name, registry[name], exchanges) for name in registry))
    for name in registry:
        described = all_of(registry[name])
        yield f"### {name}\n"
        if role_text := roles(registry[name]):
            yield f"{'Serves as' if isinstance(registry[name], Optimizer) else 'Optimizers'}: {role_text}.\n"
        if not described:
            yield "Nothing to set.\n"
            continue
        yield from _table(_HEADS, (_row(item, registry[name]) for item in described))
        for setting, reason in withdrawals(registry[name].Hyper).items():
            yield f"No `{setting}`: {reason}.\n"


def all_of(module: Configured) -> tuple[Hyperparameter, ...]:
    """All settings; of an optimizer, the settings on the server and the clients' setting `state`.

    Args:
        module: a plug-in.
    """
    if not isinstance(module, Optimizer):
        return offered(module)
    settings = {role: offered(module, role) for role in ("server", "client") if role not in module.REFUSED}
    first = settings.get("server", settings.get("client", ()))
    return (*first, *(item for item in settings.get("client", ()) if item is STATE and item not in first))


def _overview(name: str, module: object, with_exchanges: bool) -> tuple[str, ...]:
    facts = (f"[{name}](#{name})", summary(module), source(module))
    return (*facts, exchanges(module)) if with_exchanges else facts


def _row(item: Hyperparameter, module: object) -> tuple[str, ...]:
    mark = "" if item.traced else " *"
    return f"`{item.name}`{mark}", item.doc, range_of(item), item.unit, default_of(item, module), item.limit


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterable[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


if __name__ == "__main__":
    print(page(), end="")
