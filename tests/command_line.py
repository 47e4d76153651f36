"""The command line, run in this process."""

from typer.testing import CliRunner

from service.cli.main import app


def printed(*words: str) -> str:
    """What a command that succeeds prints to stdout."""
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refusal(*words: str) -> BaseException | None:
    """The error with which a command ends."""
    return CliRunner().invoke(app, words).exception
