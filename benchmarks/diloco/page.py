"""What is printed, and docs/diloco.md: the text of page.md with tables made of outcomes, "not run" without any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.diloco.cells import PARAMETERS, Cell
from benchmarks.diloco.finished import Finished, pieces
from benchmarks.diloco.outcomes import Outcomes, Setting
from benchmarks.diloco.statements import STATEMENTS, Decided, Statement, decide
from driftline.results.curves import Array
from driftline.results.paired_tests import LEVEL, paired

TEMPLATE = Path(__file__).with_name("page.md")
NOT_RUN = "not run"


def planned(cells: Iterable[Cell]) -> list[Setting]:
    """The settings of all configurations of these cells."""
    return [Setting.of(cell, configuration) for cell in cells for configuration in cell.configurations()]


def decided(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    """A table of every statement: its verdict, and the claims that decide it."""
    settings = planned(cells)
    rows = ["| statement | verdict | claim | mean (95 % interval) | p | of the claim |", "|---" * 6 + "|"]
    for each in STATEMENTS:
        decision = decide(each, outcomes, settings)
        claims = [_claim(claim) for claim in decision.claims] or [[f"`--only {_words(cells, each)}`", *[NOT_RUN] * 3]]
        verdict = f"**{decision.verdict}**, {decision.seeds} seeds" if decision.claims else NOT_RUN
        for number, claim in enumerate(claims):
            first = ["", ""] if number else [f"{each.name}: {each.text} ({each.source})", verdict]
            rows.append(f"| {' | '.join([*first, *claim])} |")
    return "\n".join(rows)


def _words(cells: Sequence[Cell], statement: Statement) -> str:
    """What --only takes to run all that a statement needs."""
    workers: dict[str, set[int]] = {}
    for cell in cells:
        if statement.needed(planned([cell])):
            workers.setdefault(f"{cell.part}-{cell.width}", set()).add(cell.workers)
    return " ".join(name + (f"-m{min(found)}-" if len(found) == 1 else "") for name, found in workers.items())


def _claim(each: Decided) -> list[str]:
    numbers = f"{each.test.mean:+.3g} ({each.low:.3g} to {each.high:.3g})"
    seen = f"{each.test.detectable(LEVEL):.2g} is found with 80 %" if each.test.error else "all seeds are equal"
    open_ = f"undecided; {seen}"
    return [each.claim.text, numbers, f"{each.test.p:.2g}", open_ if each.verdict == "undecided" else each.verdict]


def best_rates(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    """A table of the best outer rate of each cell and number of local steps."""
    rows = [
        "| parameters | workers | tokens | local steps | best outer rate | at an end of the grid |",
        "|---" * 6 + "|",
    ]
    for cell in cells:
        if cell.label != "diloco" or cell.part == "batches":
            continue
        own = [Setting.of(cell, configuration) for configuration in cell.configurations()]
        for steps in sorted({setting.local_steps for setting in own}):
            used = outcomes.whole([setting for setting in own if setting.local_steps == steps])
            ends = f"{used.at_edge('delta_lr'):.0%} of seeds" if used.seeds > 1 else NOT_RUN
            rate = _geometric(used.best("delta_lr")) if used.seeds > 1 else NOT_RUN
            facts = f"{PARAMETERS[cell.width]:,}", cell.workers, f"{cell.tokens:,}", steps
            rows.append(f"| {' | '.join(map(str, facts))} | {rate} | {ends} |")
    return "\n".join(rows)


def least_losses(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    """A table of the loss of each cell, its rates chosen on the seed of the search."""
    rows = ["| cell | local steps | loss, nats a token | rates | seeds | diverged |", "|---" * 6 + "|"]
    for cell in cells:
        own = [Setting.of(cell, configuration) for configuration in cell.configurations()]
        for steps in sorted({setting.local_steps for setting in own}):
            used = outcomes.whole([setting for setting in own if setting.local_steps == steps])
            number = used.seeds
            loss = _interval(np.exp(used.least()), ".4g") if number > 1 else NOT_RUN
            diverged = f"{used.diverged()} of {number * len(used.runs)}" if number else NOT_RUN
            best = used.best_setting() if number > 1 else None
            rates = NOT_RUN if best is None else f"{best.client_lr:g}, {best.delta_lr:g}"
            rows.append(f"| `{cell.name}` | {steps} | {loss} | {rates} | {number or NOT_RUN} | {diverged} |")
    return "\n".join(rows)


def _geometric(octaves: Array) -> str:
    test = paired(octaves.tolist())
    assert test is not None
    low, high = test.interval(LEVEL)
    return f"{2**test.mean:.2g} ({2**low:.2g} to {2**high:.2g})"


def _interval(values: Array, form: str) -> str:
    test = paired(values.tolist())
    assert test is not None
    low, high = test.interval(LEVEL)
    return f"{test.mean:{form}} ({low:{form}} to {high:{form}})"


def minutes(
    cells: Sequence[Cell], found: Mapping[str, Finished], estimates: Mapping[str, float], processes: int
) -> str:
    """A table of the minutes that each row takes with so many processes: estimated, and measured where it is done.

    Args:
        cells: The cells.
        found: Pieces that are finished, by name.
        estimates: Minutes of a core by row.
        processes: Each on a core of its own.
    """
    rows = ["| `--only` | pieces | runs | estimated, min | measured, min |", "|---" * 5 + "|"]
    total = [0.0, 0.0]
    for name in dict.fromkeys(map(row, cells)):
        own = [cell for cell in cells if row(cell) == name]
        runs = sum(len(cell.configurations()) * len(cell.seeds) for cell in own)
        names = [piece.name for piece in pieces(own)]
        done = [found[each].seconds / 60 / processes for each in names if each in found]
        guess = estimates.get(name, np.nan) / processes
        total = [total[0] + guess, total[1] + sum(done)]
        measured = _measured(len(done), len(names), sum(done))
        rows.append(f"| `{name}` | {len(names)} | {runs} | {_whole(guess)} | {measured} |")
    every = [piece.name for piece in pieces(cells)]
    measured = _measured(sum(name in found for name in every), len(every), total[1])
    rows.append(f"| all | {len(every)} | | {_whole(total[0])} | {measured} |")
    return "\n".join(rows)


def _measured(done: int, every: int, spent: float) -> str:
    """The minutes spent, if all of the pieces are done."""
    return f"{spent:.0f}" if done == every else f"{done} of {every} pieces" if done else NOT_RUN


def _whole(number: float) -> str:
    return "not estimated" if np.isnan(number) else f"{number:.0f}"


def row(cell: Cell) -> str:
    """What runs in less than an hour: a part, or of the sizes the smallest, or another width with so many workers."""
    if cell.part != "sizes":
        return cell.part
    return f"sizes-{cell.width}" + (f"-m{cell.workers}" if cell.width > min(PARAMETERS) else "")


def page(cells: Sequence[Cell], outcomes: Outcomes, times: str) -> str:
    """The text of docs/diloco.md."""
    text = TEMPLATE.read_text(encoding="utf-8")
    tables = {
        "decided": decided(cells, outcomes),
        "rates": best_rates(cells, outcomes),
        "losses": least_losses(cells, outcomes),
        "times": times,
    }
    for name, table in tables.items():
        text = text.replace(f"{{{{{name}}}}}", table)
    return text
