"""Errors: their tree, and the way over HTTP and back."""

import json
import re

import pytest

from driftline import errors
from driftline.errors import DriftlineError, InvalidSpec, from_problem, problem
from tests.error_messages import messages

TABLE = [
    (DriftlineError("x"), "error", 500, 1),
    (InvalidSpec("a.b", "x"), "invalid-spec", 422, 2),
    (errors.InvalidRequest("page_token", "x"), "invalid-request", 400, 2),
    (errors.Unauthorized("x"), "unauthorized", 401, 3),
    (errors.Forbidden("x"), "forbidden", 403, 3),
    (errors.QuotaExceeded("x"), "quota-exceeded", 403, 3),
    (errors.NotFound("x"), "not-found", 404, 4),
    (errors.Conflict("x"), "conflict", 409, 5),
    (errors.StaleDriver("x"), "stale-driver", 409, 5),
    (errors.Unavailable("x"), "unavailable", 503, 6),
    (errors.RateLimited("x", retry_after=2), "rate-limited", 429, 6),
]


def test_the_table_is_complete():
    def tree(kind):
        return {kind}.union(*(tree(child) for child in kind.__subclasses__() if child.__module__ == errors.__name__))

    assert tree(DriftlineError) == {type(row[0]) for row in TABLE}


@pytest.mark.parametrize(("error", "code", "status", "exit_code"), TABLE)
def test_code_status_and_exit(error, code, status, exit_code):
    assert (error.code, error.status, error.exit_code) == (code, status, exit_code)
    assert f"{status}   exit {exit_code}" in errors.__doc__
    assert type(error).__name__ in errors.__doc__


@pytest.mark.parametrize("error", [row[0] for row in TABLE])
def test_over_http_and_back(error):
    body = json.loads(json.dumps(problem(error)))
    assert body["status"] == error.status
    back = from_problem(error.status, body)
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert problem(back) == problem(error)


def test_path_and_details_travel():
    back = from_problem(422, problem(InvalidSpec("budget.rounds", "must be at least 1, got rounds=0", line=3)))
    assert isinstance(back, InvalidSpec)
    assert (back.path, back.problem, back.details) == ("budget.rounds", "must be at least 1, got rounds=0", {"line": 3})
    assert str(back) == "budget.rounds: must be at least 1, got rounds=0"


def test_several_errors_travel():
    others = [("seed", "must be a whole number, got seed=x"), ("", "and 3 more")]
    error = InvalidSpec("budget.rounds", "must be given", others, line=3)
    assert str(error).splitlines() == [
        "budget.rounds: must be given",
        "seed: must be a whole number, got seed=x",
        "and 3 more",
    ]
    back = from_problem(422, json.loads(json.dumps(problem(error))))
    assert isinstance(back, InvalidSpec)
    assert back.errors == error.errors == (("budget.rounds", "must be given"), *others)
    assert back.details == {"line": 3}
    assert "errors" not in problem(InvalidSpec("seed", "x"))


@pytest.mark.parametrize("listed", ["x", [], [1, "x"], {"a": 1}])
def test_errors_in_another_shape_are_left_out(listed):
    back = from_problem(422, {"path": "seed", "problem": "x", "errors": listed})
    assert isinstance(back, InvalidSpec)
    assert back.errors == (("seed", "x"),)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, errors.Unauthorized),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (422, InvalidSpec),
        (502, errors.Unavailable),
        (500, DriftlineError),
    ],
)
def test_foreign_answers_fall_back_on_the_status(status, kind):
    back = from_problem(status, {"detail": "from a proxy", "type": "about:blank"})
    assert type(back) is kind
    assert "from a proxy" in str(back)
    assert str(status) in str(from_problem(status, {}))


def test_they_are_what_python_users_catch():
    assert isinstance(InvalidSpec("", "x"), ValueError)
    assert isinstance(errors.NotFound("x"), LookupError)
    assert str(errors.NotFound("no study 'abc'")) == "no study 'abc'"


def test_a_class_of_another_module_takes_no_place_of_ours():
    class Elsewhere(DriftlineError):
        """Has no code of its own."""

    assert type(from_problem(500, problem(Elsewhere("x")))) is DriftlineError


def test_no_message_has_an_idiom_that_a_stranger_would_stumble_over():
    found = list(messages())
    assert len(found) > 500
    idioms = r"cannot be right|must be right|is right|is none|so many|let go|can be had|have it|known no longer|\.'\)$"
    assert [f"{place} {message}" for place, message in found if re.search(idioms, message)] == []
