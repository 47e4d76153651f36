"""Prints docs/python.md: what `driftline` offers in Python, from its docstrings.

python -m docs.python_reference > docs/python.md

Not from griffe: it reads sources, where a study's constructor has `...` for what pydantic fills in, and would replace
only the splitting of docstrings and the signatures; headings, tables, chapters and wrapping would stay here.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import driftline
from driftline import errors
from driftline.client.admin_client import AdminClient
from driftline.results.modelled_time import Time
from driftline.sdk import shortcuts
from driftline.sdk.asynchronous import AsyncClient, AsyncJob
from driftline.sdk.client import Client
from driftline.sdk.frames import CurvesByTrial, TrialRecords
from driftline.sdk.frontier import Frontier, Recommendation
from driftline.sdk.job import Job, StudyFailed
from driftline.sdk.offline import OfflineService
from driftline.sdk.tuning import tune
from driftline.study.examples import examples
from driftline.study.spec import Study
from driftline.wire.access import MadeToken, NewToken, ProjectQuota, Quota, TokenRecord, Use, Whoami
from driftline.wire.budgets import CheckedStudy, StudyEstimate
from driftline.wire.logs import LogLine
from driftline.wire.records import Event, LabelProgress, StudyRecord, TrialRecord, Values
from search_spaces.parameters import Choice, Float, Int

_HEAD = """# Python

<!-- Made by `python -m docs.python_reference > docs/python.md`; do not edit. -->

Everything that `driftline` offers in Python, from its docstrings. The same code runs a study in
this process or, with an address, in a service:

```python
from driftline import Client, Study

study = Study.from_yaml("study.yaml")     # `driftline init` writes one
with Client() as client:                  # or Client("https://driftline.example", token="...")
    job = client.submit(study).wait(progress=True)
    best = job.best(cost=24)              # what to run with up to 24 rounds
    print(best.label, best.hyperparameters, best.rounds, best.quality)
    job.frontier().plot("frontier.html")
    trials = job.trials().to_frame()      # a pandas DataFrame
```

`best.trial(study)` is a trial document: written to a file as JSON, `python -m trainers.run FILE`
runs it.

The commands in Python:

| `driftline` | in Python |
|---|---|
| `validate` | `client.validate(study)` |
| `run`, `submit` | `client.submit(study)`; `driftline.run(study)` runs it in this process and waits |
| `watch` | `job.wait(progress=True)` |
| `list` | `client.records()`, `client.owners()`; `client.job(name)` finds one |
| `pause`, `resume`, `retry`, `cancel`, `extend`, `delete`, `logs` | the method of `Job` with this name |
| `frontier` | `job.best()`, `job.frontier()`, `driftline.frontier(folder)`; `--at` is `frontier.advice(cost)` |
| `frontier --importance` | `frontier.importance()` |
| `compare` | `job.compare(first, second)`, `driftline.compare(folder, first, second)` |
| `compare --with` | `job.first_difference(other)` |
| `models` | `driftline.log_models(folder)` |
| `export` | `driftline.results.recorded_table.write(job.table(), path)` |
| `theory` | `trainers.theory` |
| `papers` | `driftline.study.papers.presets()` |
| `init` | `driftline.examples()` |
| `methods`, `tasks` | `trainers.registry.methods()`, `.tasks()`; `search_spaces.spaces.default("methods", "fedprox")` |
| `data describe` | `trainers.data_description.describe(path, {"targets": "outcome"})` |
| `replay` | `service.replay.simulation.Replay` |
| `whoami`, `quota`, `token` | `driftline.AdminClient(url, token)`: `whoami()`, `quota()`, `make_token()`, ... |
| `ui`, `serve`, `migrate`, `doctor` | only as commands: they start or maintain servers |
| `open` | `job.frontier().plot("frontier.html")` |
"""


@dataclass(frozen=True)
class _Section:
    """Classes and functions under one heading.

    Attributes:
        title: The heading.
        about: Text below the heading.
        members: The classes and functions.
        made: Whether users make these objects themselves, so that arguments are shown.
        methods: Whether methods are shown.
    """

    title: str
    about: str
    members: tuple[Any, ...]
    made: bool = True
    methods: bool = True


_SECTIONS = (
    _Section("Studies", "[studies.md](studies.md) describes every key.", (Study,)),
    _Section("Search spaces", "In place of the forms of a study file.", (Float, Int, Choice), methods=False),
    _Section(
        "Clients",
        "Whatever asks a service may also raise `Unauthorized`, `Forbidden` or `Unavailable`.",
        (Client,),
    ),
    _Section("Jobs", "`Client.submit` and `Client.job` return them.", (Job, StudyFailed), made=False),
    _Section(
        "Results",
        "[results.md](results.md) defines every number.",
        (Frontier, Recommendation, TrialRecords, CurvesByTrial),
        made=False,
    ),
    _Section("Modelled time", "", (Time,), methods=False),
    _Section(
        "Functions", "", (shortcuts.run, tune, shortcuts.frontier, shortcuts.compare, shortcuts.log_models, examples)
    ),
    _Section(
        "asyncio",
        "`AsyncClient` and `AsyncJob` have the methods of `Client` and `Job`, awaited: `await job.wait()`,\n"
        "`(await job.record()).state`. `logs` and `events` are iterators: `async for line in job.logs()`.",
        (AsyncClient, AsyncJob),
        methods=False,
    ),
    _Section(
        "Tokens and quotas",
        "`NewToken` and `Quota` come from `driftline.wire.access`.",
        (AdminClient, NewToken, MadeToken, TokenRecord, Whoami, Quota, ProjectQuota, Use),
        made=False,
    ),
    _Section("Tests of your own", "", (OfflineService,), methods=False),
    _Section(
        "Records",
        "What jobs and clients return.",
        (StudyRecord, LabelProgress, TrialRecord, Values, CheckedStudy, StudyEstimate, Event, LogLine),
        made=False,
        methods=False,
    ),
)

_PARTS = ("Args", "Attributes", "Returns", "Raises", "Examples")


class _Annotation(str):
    """An annotation that a signature shows as it is written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def page() -> str:
    """The whole page, ending with a newline."""
    names = ", ".join(f"`{name}`" for name in driftline.__all__)
    parts = [_HEAD, *_contents(), _filled(f"These names are imported from `driftline`, with their types: {names}."), ""]
    for section in _SECTIONS:
        parts += [f"## {section.title}", "", *([section.about, ""] if section.about else [])]
        for member in section.members:
            parts += _class(member, section) if inspect.isclass(member) else _function(member, "driftline.", "###")
    parts += ["## Errors", "", f"```text\n{inspect.cleandoc(errors.__doc__ or '')}\n```"]
    return "\n".join(parts) + "\n"


def _contents() -> Iterator[str]:
    """A link to each chapter, with the names that it describes."""
    for section in (*_SECTIONS, _Section("Errors", "", ())):
        names = ", ".join(f"`{member.__name__}`" for member in section.members)
        line = f"- [{section.title}](#{section.title.lower().replace(' ', '-')}){': ' if names else ''}{names}"
        yield textwrap.fill(line, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    yield ""


def _class(member: type, section: _Section) -> Iterator[str]:
    yield from (f"### {member.__name__}", "")
    if section.made:
        yield from (f"```python\n{_signature(member, member.__name__)}\n```", "")
    yield from _described(member, leave_out=() if section.made else ("Args",))
    if section.methods:
        for name, attribute in _public(member).items():
            owner = member.__name__ if isinstance(attribute, classmethod) else _instance(member)
            if isinstance(attribute, property | cached_property):
                getter: Any = attribute.fget if isinstance(attribute, property) else attribute.func
                shown = f"{owner}.{name}: {getter.__annotations__['return']}"
                yield from (f"#### {owner}.{name}", "", f"```python\n{shown}\n```", "", *_described(attribute))
            else:
                yield from _function(getattr(member, name), f"{owner}.", "####")


def _function(member: Callable[..., Any], owner: str, heading: str) -> Iterator[str]:
    name = f"{owner}{member.__name__}"
    waited = "await " if inspect.iscoroutinefunction(member) else ""
    yield from (f"{heading} {name}", "", f"```python\n{waited}{_signature(member, name)}\n```", "")
    yield from _described(member)


def _public(member: type) -> dict[str, Any]:
    """The methods and properties of a class and of those of its bases that are Driftline's, bases first."""
    owners = [owner for owner in reversed(member.__mro__) if owner.__module__.startswith("driftline.")]
    return {
        name: attribute
        for owner in owners
        for name, attribute in vars(owner).items()
        if not name.startswith("_")
        and (inspect.isfunction(attribute) or isinstance(attribute, property | cached_property | classmethod))
    }


def _instance(member: type) -> str:
    """What headings call an object of the class."""
    returned: dict[type, str] = {AdminClient: "admin", TrialRecords: "job.trials()", CurvesByTrial: "job.curves()"}
    return returned.get(member) or re.split("(?=[A-Z])", member.__name__)[-1].lower()


def _signature(member: Callable[..., Any], name: str) -> str:
    """The signature without `self`, on one line or with a line for each parameter."""
    signature = inspect.signature(member)
    parameters = [
        parameter.replace(annotation=_annotation(parameter.annotation))
        for key, parameter in signature.parameters.items()
        if key != "self"
    ]
    returned = signature.empty if inspect.isclass(member) else _annotation(signature.return_annotation)
    text = str(signature.replace(parameters=parameters, return_annotation=returned))
    if len(name + text) <= 100:
        return name + text
    closing = text.rpartition(")")[2]
    listed = [str(inspect.Signature([parameter]))[1:-1] for parameter in parameters]
    stars = [index for index, parameter in enumerate(parameters) if parameter.kind is parameter.KEYWORD_ONLY]
    if stars and not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        listed = [line.removeprefix("*, ") for line in listed]
        listed.insert(stars[0], "*")
    return f"{name}(\n" + "".join(f"    {line},\n" for line in listed) + f"){closing}"


def _annotation(annotation: Any) -> Any:
    return _Annotation(annotation) if isinstance(annotation, str) else annotation


def _described(member: Any, leave_out: tuple[str, ...] = ()) -> Iterator[str]:
    """A docstring as Markdown: its text, then tables of arguments, attributes and errors."""
    text, *rest = re.split(rf"^({'|'.join(_PARTS)}):\n", inspect.getdoc(member) or "", flags=re.MULTILINE)
    for paragraph in text.strip().split("\n\n"):
        indented = all(line.startswith(" ") for line in paragraph.splitlines())
        yield from (f"```python\n{textwrap.dedent(paragraph)}\n```" if indented else _filled(paragraph), "")
    for part, body in zip(rest[::2], rest[1::2], strict=True):
        if part in leave_out:
            continue
        lines = textwrap.dedent(body).strip()
        if part == "Examples":
            yield from (f"```python\n{lines.replace('  # doctest: +SKIP', '')}\n```", "")
        elif part == "Returns":
            yield from (_filled(f"Returns: {lines}"), "")
        else:
            heads = {"Args": "argument", "Attributes": "attribute", "Raises": "raises"}
            yield from (f"| {heads[part]} | |", "|---|---|")
            for item in re.split(r"\n(?=\S)", lines):
                name, _, said = " ".join(item.split()).partition(": ")
                yield f"| `{name}` | {_plain(said).replace('|', chr(92) + '|')} |"
            yield ""


def _filled(text: str) -> str:
    """A paragraph in lines of at most 100 columns."""
    return textwrap.fill(_plain(" ".join(text.split())), 100, break_long_words=False, break_on_hyphens=False)


def _plain(text: str) -> str:
    """Code in single quotes, as Markdown has it."""
    return text.replace("``", "`")


if __name__ == "__main__":
    print(page(), end="")
