"""`driftline doctor`: checks of the systems that Driftline runs on."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftline.errors import InvalidSpec, NotFound
from driftline.extras import optional_packages
from driftline.results.show.escaped_text import escaped
from service.cli.options import Json
from service.cli.terminal import echo

if TYPE_CHECKING:
    from service.launchers.kubernetes.doctor import ChartRelease

app = typer.Typer(name="doctor", help="Check what Driftline runs on, and say what to do.", no_args_is_help=True)


@app.callback()
def _doctor() -> None:
    """Check what Driftline runs on, and say what to do."""


@app.command()
def kubernetes(
    manifest: Annotated[
        str | None,
        typer.Argument(metavar="MANIFEST", help="Output of helm template or helm get manifest; - reads stdin."),
    ] = None,
    kubeconfig: Annotated[
        str | None, typer.Option(help="A kubeconfig; by default the pod's own access, or the usual kubeconfig.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context in the kubeconfig; the current one by default.")] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Namespace of objects that name none; the context's by default."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a Kubernetes cluster for the chart; changes nothing.

    One line for each check: ok, problem, or unknown where the cluster does not show it.
    Exit code 1 if there is a problem.
    Without a manifest, only what does not depend on the chart's values is checked.
    """
    with optional_packages():
        from service.launchers.kubernetes.api_server import Api
        from service.launchers.kubernetes.doctor import diagnose

    release = _release(manifest)
    api = Api.connect(kubeconfig, context, namespace)
    findings = []
    try:
        for finding in diagnose(api, release):
            findings.append(finding)
            if not as_json:
                advice = f" -> {finding.advice}" if finding.advice else ""
                echo(f"{finding.status:<8} {finding.check}: {escaped(finding.text)}{escaped(advice)}")
    finally:
        api.close()
    if as_json:
        echo(json.dumps([vars(finding) for finding in findings], indent=2))
    if any(finding.status == "problem" for finding in findings):
        raise typer.Exit(1)


def _release(manifest: str | None) -> ChartRelease:
    """The release of a manifest; without one, with the settings of the scheduler's pod if this process runs in it."""
    from service.launchers.kubernetes.doctor import ChartRelease, read_manifest, read_settings

    if manifest is not None:
        return read_manifest(sys.stdin.read() if manifest == "-" else _text("MANIFEST", manifest))
    if path := os.environ.get("DRIFTLINE_LAUNCHER_CONFIG"):
        return ChartRelease(settings=read_settings(_text("DRIFTLINE_LAUNCHER_CONFIG", path), path))
    return ChartRelease()


def _text(option: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"{option}: no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec(option, f"must be a file that can be read, got {path}: {error}") from error
