"""Whatever is sent: an answer below 500 that says what is wrong, no trace of the inside, and nothing stored."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.errors import InvalidRequest, InvalidSpec
from service.api import study_checks
from service.api.allowed_files import only_under
from service.api.pagination import token
from service.api.request_bodies import parse
from service.store.store import Store

from .api_setup import POINTS, Service, running
from .conftest import SPEC

HEADERS = {"Content-Type": "application/json"}
HUGE = "1" + "0" * 400


@pytest.fixture
def service(store: Store) -> Iterator[Service]:
    with running(store, check=study_checks.check) as started:
        yield started


def refused(response: httpx.Response, what: str = "") -> None:
    assert 400 <= response.status_code < 500, (what, response.status_code, response.text)
    assert response.headers["content-type"] == "application/problem+json", what
    for inside in ("Traceback", 'File "', "sqlalchemy", "psycopg", "site-packages"):
        assert inside not in response.text, what


def changed(path: list[Any], value: str) -> bytes:
    """POINTS as JSON with other text in one place."""
    document = json.loads(json.dumps(POINTS))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = "@here@"
    return json.dumps(document).replace('"@here@"', value).encode()


BODIES: list[bytes] = [
    b"", b"{", b"null", b"[]", b'"x"', b"1", b"\xff\xfe{}", b'{"name": "\xc3\x28"}', b'{"name": "a', b"{}" * 3,
    b"[" * 100_000, b'{"a":' * 5000 + b"1" + b"}" * 5000, b'{"name": NaN}', b'{"name": -Infinity}',
    b'"' + b'\\"' * 100_000, b"\x00",
    changed(["name"], '"a\\u0000b"'), changed(["name"], '"\\ud800"'), changed(["name"], "[]"),
    changed(["task"], '{"name": "quadratic", "hessians": [[[NaN]]], "centers": [[0]]}'),
    changed(["task", "name"], '"\\u0000"'), changed(["methods"], "[]"), changed(["methods", 0, "label"], '"../x"'),
    *(
        changed(path, value)
        for path in (
            ["budget", "rounds"], ["budget", "trials_per_method"], ["budget", "seeds"], ["budget", "confirm"], ["seed"],
            ["batch_size"], ["clients_per_round"], ["eval_every"],
        )
        for value in ("1e23", HUGE, "-1", "1.5", "1e400", '"1e23"', "true", "[]")
    ),
    changed(["budget", "rounds"], "9" * 5000),
    changed(["task"], '{"name": "quadratic", "problem": "random", "clients": 1000000000, "dimension": 100}'),
    changed(["task"], '{"name": "quadratic", "problem": "random", "clients": 1e30, "dimension": 1e30}'),
    changed(["methods", 0, "space", "local_steps"], json.dumps({"choice": list(range(1, 20_000))})),
    changed(["methods", 0, "space", "client_lr"], '{"float": [0.1, 1], "points": 1e12}'),
    changed(["resources"], '{"cpus": 1e300}'), changed(["resources"], '{"packs": 1e300}'),
]  # fmt: skip


def test_bodies_that_cannot_be(sqlite_store: Store) -> None:
    with running(sqlite_store, check=study_checks.check) as service, service.http() as http:
        for body in BODIES:
            refused(http.post("/v1/studies", content=body, headers=HEADERS), body[:200].decode(errors="replace"))
        assert http.get("/v1/studies").json()["studies"] == []
        good = http.post("/v1/studies", json=POINTS)
        assert good.status_code == 201, good.text  # nothing above was refused for another reason


def test_numbers_that_no_estimate_can_hold(service: Service) -> None:
    with service.http() as http:
        for path, value in (
            (["methods", 0, "space", "local_steps"], '{"choice": [1, 1e308]}'),
            (["methods", 0, "space", "local_steps"], '{"int": [1, 1000000000000000]}'),
            (["budget"], '{"trials_per_method": 1000000, "rounds": 1000000000, "seeds": 10000, "confirm": 1000000}'),
        ):
            body = changed(list(path), value)
            response = http.post("/v1/studies", content=body, headers=HEADERS, params={"validate_only": "true"})
            assert response.status_code in (200, 422), response.text
            assert response.status_code == 422 or response.json()["estimate"]["trials"] > 0


def test_addresses_and_headers_that_no_database_can_hold(service: Service) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    with service.http() as http:
        for path in ("studies/%00", "studies/%ff%fe", f"studies/{study}/trials?label=%00", "audit?project=%00"):
            refused(http.get(f"/v1/{path}"), path)
        refused(http.post("/v1/studies", json=POINTS, headers={"Idempotency-Key": "x" * 300}))


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner) | st.dictionaries(st.text(CHARACTERS), inner)


def test_what_a_body_may_be() -> None:
    assert parse('{"text": "\u00e9 \\ud83d\\ude00 \\\\u0000"}'.encode()) == {"text": "\u00e9 \U0001f600 \\u0000"}
    assert parse(b'{"a": "[[[[" }') == {"a": "[[[["}
    deep = b"[" * 201 + b"]" * 201
    parse(deep)
    for wrong in (b"[" + deep + b"]", b'"\\u0000"', b'"\\\\\\u0000"', b'"\\ude00"', b"1e", b"NaN"):
        with pytest.raises(InvalidRequest, match="the body must"):
            parse(wrong)


@given(st.recursive(st.none() | st.booleans() | st.integers() | FLOATS | st.text(CHARACTERS), nested, max_leaves=30))
def test_values_are_read_as_by_python(value: Any) -> None:
    for body in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert parse(body.encode()) == value


# ---- files


def npz(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    path = folder / "mine.npz"
    np.savez(path, x=rng.normal(size=(40, 3)), y=np.arange(40) % 2, client=np.arange(40) % 4)
    return path


def test_files_outside_the_allowed_folders_are_not_looked_at(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed, outside = tmp_path / "data", tmp_path / "data-of-others"
    allowed.mkdir()
    outside.mkdir()
    inside, secret = npz(allowed), npz(outside)
    (allowed / "link.npz").symlink_to(secret)
    monkeypatch.setenv("DATA_DIR", str(allowed))
    document = POINTS | {"task": {"name": "npz", "path": str(inside), "model": "softmax"}}
    with running(sqlite_store, check=only_under([allowed], study_checks.check)) as service, service.http() as http:

        def ask(path: Any) -> httpx.Response:
            task = {"name": "npz", "path": path, "model": "softmax"}
            body = json.dumps(document | {"task": task})
            return http.post("/v1/studies", content=body, headers=HEADERS, params={"validate_only": "true"})

        for good in (str(inside), "mine.npz"):
            assert ask(good).status_code == 200, ask(good).text
        answers = set()
        for bad in (
            str(secret), "/etc/passwd", "/nowhere/at/all.npz", "../data-of-others/mine.npz", str(allowed / "link.npz"),
            "link.npz", f"{allowed}/../data-of-others/mine.npz", "~/x.npz\x01/../../../etc/passwd",
            "x" * 5000, "x" * 300 + ".npz", "a/" * 3000, f"{allowed}/../{'x' * 300}",
            [str(secret)], ["mine.npz", [str(secret)]],
        ):  # fmt: skip
            response = ask(bad)
            refused(response, repr(bad)[:80])
            assert response.status_code == 422
            assert response.json()["path"].startswith("task.path")
            answers.add(response.json()["problem"].partition(", got ")[0])
        assert len(answers) == 1, "the answer does not say whether the file is there"
        assert ask(5).status_code == 422
        for missing in (
            "a\0b.npz",
            f"{inside}\0",
            "\ud800.npz",
            "not-there.npz",
            "~root/x.npz",
            "~nobody-of-this-name",
            f"{inside}/x",
            f"{allowed}/{'x' * 300}",
            "",
        ):
            refused(ask(missing), missing)
    for name in ("a\0b.npz", "\ud800.npz"):  # which the API refuses before
        with pytest.raises(InvalidSpec, match="must name a file"):
            only_under([allowed], study_checks.check)({"task": {"path": name}})
    for module in ("net.py:make", "os:system"):
        with pytest.raises(
            InvalidSpec, match=r"^task\.model\.module: must name a module that an installed package decl"
        ):
            only_under([allowed], study_checks.check)({"task": {"name": "digits", "model": {"module": module}}})
    with running(sqlite_store, check=study_checks.check) as service, service.http() as http:
        response = http.post("/v1/studies", json=document | {"task": document["task"] | {"path": str(secret)}})
        assert response.status_code == 201  # a service of the person who starts it may look everywhere


def forged(listing: tuple[Any, ...], position: str) -> str:
    """A page token with the mark of a listing, which is no secret, and any JSON as its position."""
    mark = json.loads(base64.urlsafe_b64decode(token(listing, None) + "=="))[0]
    return base64.urlsafe_b64encode(f'["{mark}",{position}]'.encode()).decode().rstrip("=")


POSITIONS = [
    "null", "true", "1.5", "-1", "[]", "{}", "[1]", '["a"]', '["a","search"]', '["a","sprint",1]', '[1,"search",1]',
    '["a","search","1"]', '["a","search",1,1]', '["a","search",4294967296]', '["a",{},1]', "NaN", "1e999", HUGE,
    '"a\\u0000"', '"\\ud800"', f'"{"x" * 300}"', "[" * 600 + "]" * 600, "1,2",
]  # fmt: skip


def test_forged_page_tokens_are_refused(service: Service) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    listings = [
        ("/v1/studies", ("studies", "default"), "1"),
        ("/v1/tokens", ("tokens",), "1"),
        ("/v1/audit", ("audit", None, None), '"x"'),
        (f"/v1/studies/{study}/trials", ("trials", study, None, None, None), '"x"'),
        (f"/v1/studies/{study}/curves", ("curves", study), '"x"'),
        (f"/v1/studies/{study}/logs", ("logs", study), '"x"'),
    ]
    with service.http() as http:
        for path, listing, other in listings:
            for position in [*POSITIONS, other]:
                response = http.get(path, params={"page_token": forged(listing, position)})
                refused(response, f"{path} {position}")
                assert response.json()["path"] == "page_token"
