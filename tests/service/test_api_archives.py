"""Files of programs over the API: who may send and fetch them, and how much a project may keep."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driftline.archive import packed
from driftline.errors import Forbidden, InvalidRequest, InvalidSpec, NotFound, QuotaExceeded
from service.api.allowed_programs import AllowedPrograms
from service.api.rate_limits import Limits
from service.store.store import Store

from .api_setup import Service, check, problem, running


@pytest.fixture
def serving(sqlite_store: Store) -> Iterator[Service]:
    limits = Limits(archive_bytes=2000)
    with running(sqlite_store, limits=limits, programs=AllowedPrograms(enabled=True), check=check) as service:
        yield service


@pytest.fixture
def files(tmp_path: Path) -> tuple[bytes, str]:
    (tmp_path / "train.py").write_text("print()")
    return packed({"train.py": tmp_path / "train.py"})


def spec(digest: str) -> dict[str, object]:
    program = {"command": ["python", "train.py"], "files": ["train.py"], "archive": digest}
    return {"name": "own", "methods": [], "budget": {"trials_per_method": 1, "rounds": 1}, "program": program}


def test_a_driver_fetches_the_files_of_its_study_alone(serving: Service, files: tuple[bytes, str]) -> None:
    data, digest = files
    with serving.client("writer") as client:
        with pytest.raises(InvalidSpec, match=r"^program\.files: must be sent before the study"):
            client.create(spec(digest))
        client.put_archive(digest, data)
        client.put_archive(digest, data)
        own, other = client.create(spec(digest)), client.create({**spec(digest), "program": None})
        with pytest.raises(Forbidden):
            client.archive(own.id)
    with serving.client(serving.tokens.driver(own.id)) as driver:
        assert driver.archive(own.id) == data
        with pytest.raises(Forbidden):
            driver.archive(other.id)
        with pytest.raises(Forbidden):
            driver.put_archive(digest, data)
    with serving.client(serving.tokens.driver(other.id)) as driver, pytest.raises(NotFound, match="has no files"):
        driver.archive(other.id)
    with serving.client("stranger") as client, pytest.raises(InvalidSpec, match="must be sent before the study"):
        client.create(spec(digest))  # another project's files are not its own
    with serving.client("reader") as client, pytest.raises(Forbidden):
        client.put_archive(digest, data)


def test_what_may_not_be_stored_is_refused(serving: Service, files: tuple[bytes, str], sqlite_store: Store) -> None:
    data, digest = files
    with serving.client() as client:
        with pytest.raises(InvalidRequest, match="the archive must have the digest bbb"):
            client.put_archive("b" * 64, data)
        with pytest.raises(InvalidRequest, match="the archive must be a tar that gzip has compressed"):
            client.put_archive(digest, b"no gzip")
        for changed in ({"archive": None}, {"files": []}):
            with pytest.raises(InvalidSpec, match=r"^program\.files: must travel with the study"):
                client.create({**spec(digest), "program": {**spec(digest)["program"], **changed}})  # type: ignore[dict-item]
    with serving.http() as http:
        problem(http.put(f"/v1/archives/{'B' * 64}", content=data), 400, "invalid-request")
        assert http.put(f"/v1/archives/{digest}", content=bytes(2**25 + 1)).status_code == 413
    many = [packed({f"{number}.py": Path(__file__)}) for number in range(2)]
    assert all(1000 < len(part) < 2000 for part, _ in many)
    with serving.client() as client:
        client.put_archive(many[0][1], many[0][0])
        with pytest.raises(QuotaExceeded, match="may have 2000 bytes of packed files, and has"):
            client.put_archive(many[1][1], many[1][0])
    with (
        running(sqlite_store, programs=AllowedPrograms()) as service,
        service.client() as client,
        pytest.raises(InvalidSpec, match=r"^program: this service runs no programs"),
    ):
        client.put_archive(digest, data)


@pytest.mark.parametrize(
    ("key", "good", "bad", "said"),
    [
        (
            "secrets",
            ["WANDB_KEY"],
            ["WANDB_KEY", "AWS_KEY"],
            'must match what this service allows: WANDB_*, got "AWS_KEY"',
        ),
        ("image", "ghcr.io/team/a:1", "ghcr.io/team2/a:1", "must match what this service allows: ghcr.io/team/*, got"),
    ],
)
def test_secrets_and_images_must_match_what_the_operator_allows(key: str, good: Any, bad: Any, said: str) -> None:
    def body(value: Any) -> dict[str, Any]:
        return {"name": "own", "program": {"command": ["train"], key: value}}

    checked = AllowedPrograms(True, ("WANDB_*",), ("ghcr.io/team/*",)).before(check)
    assert checked(body(good)).spec == {"name": "own", "program": {"command": ["train"], key: good, "folder": ""}}
    for allowed, words in ((checked, said), (AllowedPrograms(True).before(check), "allows: none, got")):
        with pytest.raises(InvalidSpec, match=f"^program.{key}: ") as caught:
            allowed(body(bad))
        assert words in str(caught.value)
