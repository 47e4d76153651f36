"""`driftline theory`: trainers.theory with readable output; `python -m trainers.theory` prints JSON."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from driftline.errors import InvalidSpec
from service.cli.terminal import echo
from trainers import SpecError

app = typer.Typer(
    name="theory",
    help="Closed-form theory: rate and suboptimality of a setting, the papers' figures, counterexamples.",
    no_args_is_help=True,
)

Mu = Annotated[float, typer.Option("--mu", help="Smallest curvature of all clients.")]
Smoothness = Annotated[float, typer.Option("--L", help="Largest curvature of all clients.")]
ClientLr = Annotated[float, typer.Option("--client-lr", help="Client rate; 0 is large-batch SGD.")]
Prox = Annotated[float, typer.Option("--prox", help="Proximal strength; 0 is none.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")]


@app.command()
def point(
    mu: Mu,
    smoothness: Smoothness,
    client_lr: ClientLr,
    weights: Annotated[str, typer.Option(help="Gradient weights: 1:K, K (only step K counts) or a comma list.")],
    prox: Prox = 0.0,
    server: Annotated[str, typer.Option(help="sgd, nesterov or heavy_ball, with its best parameters.")] = "sgd",
    json_: AsJson = False,
) -> None:
    """Rate and suboptimality of a setting, in the worst case over clients of this curvature."""
    _check_weights(weights)
    if json_:
        options = [*_curvature_options(mu, smoothness, client_lr, prox), f"--weights={weights}", f"--server={server}"]
        _delegate("point", *options)
        return
    with _our_errors():
        _print_point(mu, smoothness, client_lr, weights, prox, server)


@app.command()
def cusp(mu: Mu, smoothness: Smoothness, client_lr: ClientLr, prox: Prox = 0.0, json_: AsJson = False) -> None:
    """Landmarks of the MAML curve at a fixed client rate: where it leaves FedAvg's, its cusp, its last phase."""
    if json_:
        _delegate("cusp", *_curvature_options(mu, smoothness, client_lr, prox))
        return
    from trainers.theory.cusp import cusp as landmarks
    from trainers.theory.interval import Curvature

    with _our_errors():
        at = landmarks(Curvature(mu, smoothness), client_lr, prox)
    rows = [
        ("leaves FedAvg's curve", f"{at.leaves_at:.6g} steps", ""),
        ("cusp", f"{at.cusp_at:.6g} steps", ""),
        ("  condition number there", f"{math.exp(at.log_condition_number):.6g}", "kappa"),
        ("  suboptimality there", f"{at.suboptimality:.6g}", "delta, that of one-shot averaging"),
        ("last phase", f"{at.last_phase_at:.6g} steps", ""),
    ]
    _print_rows(rows)


@app.command()
def figure(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A1 to A5, A7 to A10, B1, or all.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write to.")] = Path("out/figures"),
) -> None:
    """Write a figure of the papers: its data (CSV) and images (PNG, SVG)."""
    _delegate("figure", name, "--out", str(out))


@app.command()
def counterexample(
    name: Annotated[str, typer.Argument(metavar="NAME", help="lemma5, corollary22, prox, momentum, or all.")],
) -> None:
    """Show why a statement of the papers does not hold, and what holds instead."""
    _delegate("counterexample", name)


def _delegate(*arguments: str) -> None:
    """Runs a command of trainers.theory."""
    from trainers.theory.__main__ import run

    with _our_errors():
        run(arguments)


@contextlib.contextmanager
def _our_errors() -> Iterator[None]:
    try:
        yield
    except SpecError as error:
        from driftline.study.validation import from_spec_error

        raise from_spec_error(error) from error


def _curvature_options(mu: float, smoothness: float, client_lr: float, prox: float) -> list[str]:
    return [f"--mu={mu!r}", f"--L={smoothness!r}", f"--client-lr={client_lr!r}", f"--prox={prox!r}"]


def _check_weights(text: str) -> None:
    from trainers.theory.weights import as_weights

    try:
        as_weights(text)
    except SpecError as error:
        problem = str(error).removeprefix("gradient_weights").lstrip(": ").replace("gradient_weights=", "")
        raise InvalidSpec("--weights", f"{problem} (1:K, K, or numbers separated by commas)") from error


def _print_point(mu: float, smoothness: float, client_lr: float, weights: str, prox: float, server: str) -> None:
    from trainers.theory.interval import Curvature
    from trainers.theory.rates import rate
    from trainers.theory.tradeoff import one_shot_suboptimality, tradeoff_point
    from trainers.theory.weights import as_weights

    curvature = Curvature(mu, smoothness)
    point = tradeoff_point(curvature, client_lr, as_weights(weights), server, prox)
    plain = curvature.smoothness / curvature.strong_convexity
    echo(
        f"curvature {mu:g} to {smoothness:g}, client_lr {client_lr:g}, prox {prox:g}, gradient weights {weights}, "
        f"server {server} at its best\n"
    )
    _print_rows(
        [
            ("condition number of the surrogate", _value(point.condition_number), f"kappa; the loss has {plain:.6g}"),
            (
                "linear rate of a round",
                f"{point.rate:.6g}",
                f"rho; training without local work has {float(rate(server, plain)):.6g}",
            ),
            ("rounds to a tenth of the error", _rounds(point.rate), "ln 10 / -ln rho"),
            (
                "suboptimality",
                _value(point.suboptimality),
                f"delta, of 1; one-shot averaging has {one_shot_suboptimality(curvature):.6g}",
            ),
        ]
    )
    for message in point.messages:
        echo(f"warning: {message}", err=True)


def _value(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "undefined"


def _rounds(rate: float) -> str:
    if rate >= 1:
        return "never"
    return f"{math.log(10) / -math.log(rate):.4g}" if rate > 0 else "1"


def _print_rows(rows: Sequence[tuple[str, str, str]]) -> None:
    widths = [max(len(row[index]) for row in rows) for index in range(2)]
    for name, value, remark in rows:
        echo(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {remark}".rstrip())
