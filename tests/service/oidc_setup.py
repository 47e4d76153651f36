"""An OpenID Connect issuer on a port of this machine, with keys made here."""

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.web_server import QuietHandler, port_of

AUDIENCE = "driftline"
GRANTS = [
    {"group": "vision-leads", "project": "vision", "scopes": ["read", "write"]},
    {"group": "everybody", "project": "shared", "scopes": ["read"]},
    {"group": "vision-viewers", "project": "vision", "scopes": ["read"]},
    {"group": "operators", "project": "default", "scopes": ["admin"]},
]
Answer = Callable[[str], tuple[int, dict[str, Any]]]
"""Status and body for the path that was asked for."""
_LISTED = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


class Key:
    """A key pair with its id."""

    def __init__(self, kid: str, algorithm: str = "ES256") -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.private: Any = {
            "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "RS256": lambda: rsa.generate_private_key(65537, 2048),
            "EdDSA": ed25519.Ed25519PrivateKey.generate,
        }[algorithm]()

    def listed(self) -> dict[str, Any]:
        """How the issuer lists it: without an alg, as several issuers do."""
        kind = _LISTED[self.algorithm]
        return {**json.loads(kind.to_jwk(self.private.public_key())), "kid": self.kid, "use": "sig"}

    def sign(self, claims: dict[str, Any], **header: Any) -> str:
        return jwt.encode(claims, self.private, self.algorithm, {"kid": self.kid, **header})


class Issuer:
    """What the issuer's server answers, and how often it was asked.

    Attributes:
        keys: What it lists.
        status: With which it answers.
        let: It answers while this is set.
        fetches: How often its keys were asked for.
        answer: What it answers; its configuration and its keys, unless a test has it say something else.
        codes: The ID token's changes and the code challenge of every code that it has given and nobody has used.
        exchanges: The forms and headers with which codes were exchanged.
    """

    def __init__(self) -> None:
        self.keys = [Key("first")]
        self.status = 200
        self.let = threading.Event()
        self.let.set()
        self.fetches = 0
        self.url = ""
        self.claimed: str | None = None  # the issuer that its configuration names
        self.answer: Answer = self._answer
        self.codes: dict[str, tuple[str, dict[str, Any]]] = {}
        self.exchanges: list[tuple[dict[str, str], str | None]] = []

    def config(self, **more: Any) -> dict[str, Any]:
        """What DRIFTLINE_OIDC would hold."""
        return {"issuer": self.url, "audience": AUDIENCE, "grants": GRANTS, **more}

    def token(self, key: Key | None = None, /, **changes: Any) -> str:
        """A good token, but for the changes; a claim of None is left out."""
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "4711",
            "iat": now,
            "exp": now + 300,
            "email": "ann@example.org",
            "groups": ["vision-leads"],
            **changes,
        }
        return (key or self.keys[0]).sign({name: value for name, value in claims.items() if value is not None})

    def signed_in(self, address: str, **changes: Any) -> str:
        """Where the issuer sends a person who has signed in on the page with this address.

        Args:
            address: Of the issuer's page, with its query.
            changes: Of the ID token's claims.
        """
        query = dict(parse_qsl(urlsplit(address).query))
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        code = f"code-{len(self.codes)}"
        claims = {"aud": query["client_id"], "nonce": query["nonce"], **changes}
        self.codes[code] = (query["code_challenge"], claims)
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def exchange(self, form: dict[str, str], authorization: str | None) -> tuple[int, dict[str, Any]]:
        """An ID token for a code; 400 if the verifier is not that of the challenge, or the code was used."""
        self.exchanges.append((form, authorization))
        challenge, claims = self.codes.pop(form["code"], ("", {}))
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != challenge:
            return 400, {"error": "invalid_grant"}
        return self.status, {"id_token": self.token(**claims), "access_token": "unused", "token_type": "Bearer"}

    def _answer(self, path: str) -> tuple[int, dict[str, Any]]:
        assert self.let.wait(120)
        if path == "/.well-known/openid-configuration":
            return self.status, {
                "issuer": self.claimed or self.url,
                "jwks_uri": f"{self.url}/keys",
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
            }
        self.fetches += 1
        return self.status, {"keys": [key.listed() for key in self.keys]}


def always(status: int, body: dict[str, Any]) -> Answer:
    """The same answer, whatever is asked for."""
    return lambda path: (status, body)


@contextmanager
def issuing() -> Iterator[Issuer]:
    """An issuer, until the block ends."""
    issuer = Issuer()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self._send(*issuer.answer(self.path))

        def do_POST(self) -> None:
            assert self.path == "/token"
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._send(*issuer.exchange(dict(parse_qsl(text)), self.headers["Authorization"]))

        def _send(self, status: int, body: dict[str, Any]) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    with port_of(Handler) as port:
        issuer.url = f"http://127.0.0.1:{port}"
        yield issuer
