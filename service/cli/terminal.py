"""Prints lines with text that others wrote: a service, a worker, the author of a study."""

from __future__ import annotations

import typer

from driftline.results.show.escaped_text import escaped_lines


def echo(text: str, *, err: bool = False) -> None:
    """Prints text, or JSON, in which every character is visible; on stderr if `err` is True."""
    typer.echo(escaped_lines(text), err=err)


def confirm(text: str) -> bool:
    """Asks on stderr whether to go on."""
    return typer.confirm(escaped_lines(text), err=True)
