"""What DRIFTLINE_OIDC may hold, from the file to a running service and `driftline whoami`."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from driftline.client.api_client import ApiClient
from driftline.errors import InvalidSpec, Unavailable
from service.api.auth.issuer_answers import require_safe
from service.api.auth.oidc import Oidc
from service.api.auth.oidc_keys import IssuerKeys
from service.server import compose
from service.settings import read_service

from .oidc_setup import Issuer, Key, always

GOOD: dict[str, Any] = {
    "issuer": "https://login.example/realm",
    "audience": "driftline",
    "grants": [{"group": "vision", "project": "vision", "scopes": ["read"]}],
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"issuer": None}, "issuer: must be given"),
        ({"issuer": ""}, "issuer: must be the issuer's URL"),
        ({"issuer": "http://login.example"}, r"issuer: must start with https:// .*got 'http://login.example'"),
        ({"issuer": "ftp://127.0.0.1"}, "issuer: must start with https"),
        ({"issuer": "https://"}, "issuer: must start with https"),
        ({"issuer": "https://[::1"}, "issuer: must start with https"),
        ({"issuer": "http://127.0.0.1.evil.example"}, "issuer: must start with https"),
        ({"jwks_url": "http://login.example/keys"}, "jwks_url: must start with https"),
        ({"audience": None}, "audience: must be given"),
        ({"audience": ["a", "b"]}, "audience: must be a string"),
        ({"audiance": "a"}, "audience"),
        ({"grants": None}, "grants: must be given"),
        ({"grants": []}, "grants: must not be empty"),
        ({"grants": [{"group": "g", "scopes": ["driver"]}]}, r"grants\[0\].scopes\[0\]: must be read, write or admin"),
        ({"grants": [{"group": "g", "scopes": []}]}, r"grants\[0\].scopes: must not be empty"),
        ({"grants": [{"group": "g", "project": "a/b"}]}, r"grants\[0\].project"),
        ({"grants": [{"project": "a"}]}, r"grants\[0\].group: must be given"),
        ({"algorithms": ["HS256"]}, "algorithms: must be among RS256.*got 'HS256'"),
        ({"algorithms": ["none"]}, "algorithms: must be among RS256.*got 'none'"),
    ],
)
def test_invalid_settings_are_refused_with_their_path(changes: dict[str, Any], words: str) -> None:
    document = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    with pytest.raises(InvalidSpec, match=f"^DRIFTLINE_OIDC: .*{words}"):
        Oidc.from_json(document)


def test_all_errors_are_reported() -> None:
    with pytest.raises(InvalidSpec, match=r"^DRIFTLINE_OIDC: audience: .*\nDRIFTLINE_OIDC: grants: must not be empty"):
        Oidc.from_json({**GOOD, "audience": "", "grants": []})
    rest = {name: value for name, value in GOOD.items() if name not in ("issuer", "grants")}
    with pytest.raises(InvalidSpec) as found:
        Oidc.from_json({**rest, "isuer": "http://x", "grants": [{"clam": "x", "scope": "foo"}, 3], "sign_in": 5})
    named = [line.split(": ")[1] for line in str(found.value).splitlines()]
    grant = [f"grants[0].{name}" for name in ("clam", "group", "scope", "scopes")]
    assert sorted(named) == [*grant, "grants[1]", "issuer", "isuer", "sign_in"]
    with pytest.raises(InvalidSpec, match=r"^DRIFTLINE_API_URL: .*\nDRIFTLINE_TRUSTED_PROXIES: "):
        read_service({"DRIFTLINE_API_URL": "tuner:8080", "DRIFTLINE_TRUSTED_PROXIES": "10.0.0.7,x"})


def test_invalid_settings_are_reported_before_anything_is_opened(tmp_path: Path) -> None:
    file = tmp_path / "oidc.yaml"
    file.write_text(yaml.safe_dump({**GOOD, "issuer": "http://login.example"}))
    values = {"DRIFTLINE_HOME": str(tmp_path / "home"), "DRIFTLINE_OIDC": str(file), "DRIFTLINE_MLFLOW_URL": "none"}
    with pytest.raises(InvalidSpec, match="DRIFTLINE_OIDC: issuer: must start with https"):
        compose.Service(read_service(values), host="127.0.0.1", port=0, only="api")
    assert not (tmp_path / "home").exists()
    file.unlink()
    with pytest.raises(InvalidSpec, match="DRIFTLINE_OIDC: must name a YAML file"):
        compose.Service(read_service(values), host="127.0.0.1", port=0)
    scheduler = compose.Service(read_service(values), host="127.0.0.1", port=0, only="scheduler")
    scheduler.close()  # it knows nobody but its drivers


def test_a_service_knows_who_signed_in(tmp_path: Path, issuer: Issuer) -> None:
    file = tmp_path / "oidc.json"
    file.write_text(json.dumps(issuer.config(jwks_url=f"{issuer.url}/keys", name_claim="preferred_username")))
    values = {"DRIFTLINE_HOME": str(tmp_path / "home"), "DRIFTLINE_OIDC": str(file), "DRIFTLINE_MLFLOW_URL": "none"}
    with closing(compose.Service(read_service(values), host="127.0.0.1", port=0, only="api")) as service:
        admin = (tmp_path / "home" / "admin-token").read_text().strip()
        signed = issuer.token(preferred_username="ann")
        for token, named in ((signed, ("ann", "vision")), (admin, ("admin token", "default"))):
            with ApiClient(service.url, token) as client:
                who = client.whoami()
            assert (who.name, who.project) == named


def test_a_service_without_it_loads_no_cryptography() -> None:
    code = "import sys, service.server.compose; sys.exit('jwt' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_keys_that_are_none(issuer: Issuer) -> None:
    bad: list[dict[str, Any]] = [
        {**issuer.keys[0].listed(), "use": "enc"},
        {**issuer.keys[0].listed(), "alg": "RS256"},
        {**issuer.keys[0].listed(), "crv": "P-384"},
        {"kty": "oct", "kid": "first", "k": "c2VjcmV0"},
        {"kty": "EC", "kid": "first"},
        {},
    ]
    good = issuer.keys[0].listed()
    issuer.answer = always(200, {"keys": [*bad, "text", good]})
    assert IssuerKeys(issuer.url, f"{issuer.url}/keys").find("first", "ES256").key_id == "first"
    short = Key("first", "RS256")
    for body in ({"keys": "none"}, {}):
        issuer.answer = always(200, body)
        with pytest.raises(Unavailable, match="must hold a list of keys"):
            IssuerKeys(issuer.url, f"{issuer.url}/keys").find(short.kid, "RS256")
    with pytest.raises(Unavailable, match="ConnectError"):
        IssuerKeys("http://127.0.0.1:9", "http://127.0.0.1:9/keys").find("first", "ES256")


def test_what_an_answer_may_be(issuer: Issuer) -> None:
    issuer.answer = always(200, {"keys": [], "padding": "x" * (1 << 20)})
    with pytest.raises(Unavailable, match="must answer within 5 s and 1048576 bytes"):
        IssuerKeys(issuer.url, f"{issuer.url}/keys").find("first", "ES256")
    issuer.answer = always(302, {})
    with pytest.raises(Unavailable, match="status 302"):
        IssuerKeys(issuer.url).find("first", "ES256")
    found = {"issuer": issuer.url, "jwks_uri": "http://elsewhere.example/keys"}
    issuer.answer = always(200, found)
    with pytest.raises(Unavailable, match="jwks_uri: must start with https"):
        IssuerKeys(issuer.url).find("first", "ES256")
    require_safe("jwks_uri", "http://[::1]:8080/keys")
