"""Proxies and certificates of the environment: which connection uses them, and the line when they are wrong."""

import sys
from collections.abc import Iterator

import httpx
import pytest

from driftline.client.connection import Connection
from driftline.client.driver_client import DriverClient
from driftline.client.network_settings import proxy_for
from driftline.errors import InvalidSpec, Unavailable
from tests.web_server import QuietHandler, port_of

VARIABLES = [f"{name}_PROXY" for name in ("HTTP", "HTTPS", "ALL", "NO")] + ["SSL_CERT_FILE", "SSL_CERT_DIR"]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class Refuses(QuietHandler):
    """A proxy that lets nobody through."""

    status = 407

    def do_GET(self) -> None:
        self.send_error(self.status)


@pytest.fixture
def proxy() -> Iterator[str]:
    with port_of(Refuses) as port:
        yield f"127.0.0.1:{port}"


def used(url: str, **environ: str) -> str:
    proxy = proxy_for(httpx.URL(url), environ)
    return "" if proxy is None else f"{proxy.variable} {proxy.address}"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "LOCALHOST.", "a.localhost", "[::1]"])
def test_this_machine_is_reached_without_a_proxy(host: str) -> None:
    everything = dict.fromkeys(VARIABLES[:3], "http://proxy:1")
    assert used(f"http://{host}:8080", **everything) == used(f"https://{host}", **everything) == ""
    assert used("http://tuner", **everything) == "HTTP_PROXY http://proxy:1"


@pytest.mark.parametrize(
    ("no_proxy", "excluded"),
    [
        ("*", {"tuner.example.org", "10.1.2.3", "fe80::1"}),
        ("example.org", {"tuner.example.org"}),
        (".example.org, [::1]", {"tuner.example.org"}),
        ("*.example.org", {"tuner.example.org"}),
        ("tuner.example.org:8080", {"tuner.example.org"}),
        ("ample.org,,", set()),
        ("10.0.0.0/8", {"10.1.2.3"}),
        ("10.1.2.3", {"10.1.2.3"}),
        ("fe80::/10", {"fe80::1"}),
        ("[fe80::1]", {"fe80::1"}),
    ],
)
def test_no_proxy_takes_names_addresses_and_networks(no_proxy: str, excluded: set[str]) -> None:
    hosts = {"tuner.example.org": "tuner.example.org", "10.1.2.3": "10.1.2.3", "fe80::1": "[fe80::1]"}
    settings = {"ALL_PROXY": "proxy:1", "no_proxy": no_proxy}
    assert {name for name, host in hosts.items() if not used(f"http://{host}:8080", **settings)} == excluded


def test_the_narrower_variable_and_lower_case_win() -> None:
    settings = {"all_proxy": "a:1", "HTTPS_PROXY": "b:2", "https_proxy": "http://c:3"}
    assert used("https://tuner", **settings) == "https_proxy http://c:3"
    assert used("http://tuner", **settings) == "all_proxy http://a:1"
    assert used("http://tuner", HTTP_PROXY=" ", NO_PROXY="x") == ""


@pytest.mark.parametrize("value", ["http://", "http://me:secret@proxy:x", "ftp://proxy", "http://::1:8080", "a b\n"])
def test_a_malformed_proxy_is_one_line_with_its_variable(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", value)
    with pytest.raises(InvalidSpec, match=r"^HTTP_PROXY: must be the address of a proxy") as refused:
        Connection("http://tuner")
    assert "secret" not in refused.value.message
    assert "\n" not in refused.value.message
    DriverClient("http://tuner").close()  # a driver uses none
    Connection("http://127.0.0.1:1").close()


@pytest.mark.parametrize("file", ["/nonexistent/ca.pem", __file__])
def test_missing_certificates_are_one_line_with_their_variable(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", file)
    with pytest.raises(InvalidSpec, match=f"^SSL_CERT_FILE: must name certificates in PEM format, got '{file}'"):
        Connection("https://tuner")
    Connection("http://tuner").close()


def test_an_error_names_the_proxy_that_refused(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"me:secret@{proxy}")
    with Connection("http://tuner", patience_s=0) as connection:
        with pytest.raises(InvalidSpec, match=f"through the proxy http://{proxy} .http_proxy., got 407"):
            connection.whoami()
        monkeypatch.setattr(Refuses, "status", 502)
        with pytest.raises(Unavailable, match="got 502"):
            connection.whoami()
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    said = r"no answer from https://tuner through the proxy http://127.0.0.1:1 \(HTTPS_PROXY\): "
    with Connection("https://tuner", patience_s=0) as connection, pytest.raises(Unavailable, match=said):
        connection.whoami()


@pytest.mark.parametrize("url", ["http://::1:1", "http://:8080", "http://tuner:x", "http://a b", "http://a?b"])
def test_an_address_has_a_host(url: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^url: must be http\(s\)://HOST:PORT"):
        Connection(url)


def test_a_socks_proxy_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://proxy:1080")
    monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises(InvalidSpec, match=r"^ALL_PROXY: a SOCKS proxy needs the package socksio"):
        Connection("http://tuner")
