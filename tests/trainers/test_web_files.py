"""Files of web servers on a service: nothing but what a prefix allows, from the address that was checked, in bounds."""

import datetime
import http.server
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.web_server import WebServer, serving
from trainers import disk_cache
from trainers.data import remote, web_files
from trainers.data.remote import local_copy, reading_only
from trainers.errors import MissingDataError, SpecError


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remote._copied.cache_clear()
    with serving() as found:
        found.put("/public/a.csv", b"a,b\n1,2\n", ETag='"1"')
        found.put("/secret.csv", b"secret")
        yield found
    remote._copied.cache_clear()


def read(url: str, *prefixes: str) -> bytes:
    remote._copied.cache_clear()
    with reading_only(prefixes):
        return local_copy(url, "task.path").read_bytes()


def own(server: WebServer, path: str = "/public/") -> str:
    return f"private:{server.url(path)}"


def test_a_version_is_fetched_once_and_another_one_again(server: WebServer, tmp_path: Path) -> None:
    url = server.url("/public/a.csv")
    assert [read(url, own(server)) for _ in range(2)] == [b"a,b\n1,2\n"] * 2
    assert len(list((tmp_path / "cache").rglob("a.csv"))) == 1
    server.put("/public/a.csv", b"a,b\n3,4\n", ETag='"2"')
    assert read(url, own(server)) == b"a,b\n3,4\n"
    assert server.asked == ["/public/a.csv"] * 3


def test_a_server_that_names_no_version_is_asked_for_the_content(server: WebServer, tmp_path: Path) -> None:
    copies = []
    for content in (b"secret", b"change", b"secret"):
        server.put("/secret.csv", content)
        copies.append(read(server.url("/secret.csv"), own(server, "/")))
    assert copies == [b"secret", b"change", b"secret"]
    assert len(list((tmp_path / "cache").rglob("secret.csv"))) == 2


def test_on_a_computer_of_ones_own_another_version_is_fetched_too(server: WebServer) -> None:
    copies = []
    for number in (1, 2):
        server.put("/own.csv", b"%d" % number, ETag=f'"{number}"')
        remote._copied.cache_clear()
        copies.append(local_copy(server.url("/own.csv"), "task.path").read_bytes())
    assert copies == [b"1", b"2"]


@pytest.mark.parametrize("prefixes", [(), ("https://data.example.org/",)])
def test_nothing_else_is_asked_for(server: WebServer, prefixes: tuple[str, ...]) -> None:
    with pytest.raises(SpecError, match=r"^task.path must begin with one of those that are allowed"):
        read(server.url("/secret.csv"), *prefixes)
    with pytest.raises(SpecError, match=r"^task.path must begin with one of those that are allowed"):
        read("memory://bucket/a.csv", *prefixes)
    assert not server.asked


def test_redirects_are_followed_within_the_prefixes(server: WebServer) -> None:
    server.redirect("/public/old.csv", "/public/newer.csv", 308)
    server.redirect("/public/newer.csv", "a.csv")
    assert read(server.url("/public/old.csv"), own(server)) == b"a,b\n1,2\n"
    server.redirect("/public/loop", "/public/loop")
    with pytest.raises(MissingDataError, match="redirect at most 5 times"):
        read(server.url("/public/loop"), own(server))


@pytest.mark.parametrize(
    "target",
    [
        *("/secret.csv", "../secret.csv", "/public/..%2fsecret.csv", "//127.0.0.2/public/a.csv", "file:///etc/passwd"),
        *("http://localhost/public/a.csv", "https://127.0.0.1/public/a.csv", "http://169.254.169.254/latest/meta-data"),
    ],
)
def test_a_redirect_out_of_the_prefixes_is_refused(server: WebServer, target: str) -> None:
    server.redirect("/public/x.csv", target)
    with pytest.raises(MissingDataError, match=r"cannot read .* \(ValueError: must "):
        read(server.url("/public/x.csv"), own(server))
    assert server.asked == ["/public/x.csv"]


def test_a_private_address_is_refused_unless_its_prefix_says_so(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingDataError, match=r'"127.0.0.1" must have a public address, got 127.0.0.1: only a prefix'):
        read(server.url("/public/a.csv"), server.url("/public/"))
    resolve(monkeypatch, [["8.8.8.8", "10.0.0.1"]])
    with pytest.raises(MissingDataError, match=r"got 10.0.0.1"):
        read("http://data.example.org/a.csv", "http://data.example.org/")
    assert not server.asked


def test_the_address_that_was_checked_is_the_one_that_is_asked(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = resolve(monkeypatch, [["8.8.8.8"], ["127.0.0.1"]])
    reached: list[Any] = []

    def connect(where: Any, *_: Any) -> socket.socket:
        reached.append(where)
        raise OSError("not here")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(MissingDataError, match="not here"):
        read(f"http://data.example.org:{server.port}/public/a.csv", f"http://data.example.org:{server.port}/")
    assert reached == [("8.8.8.8", server.port)]
    assert looked_up == ["data.example.org"]
    assert not server.asked


def test_a_host_is_asked_under_its_name(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, [["127.0.0.1"]])
    hosts: list[str | None] = []
    server.answers["/a.csv"] = lambda handler: hosts.append(handler.headers["Host"])
    with pytest.raises(MissingDataError):
        read(f"http://data.example.org:{server.port}/a.csv", f"private:http://data.example.org:{server.port}/")
    assert hosts == [f"data.example.org:{server.port}"]


def test_too_large_too_slow_cut_and_missing_files_leave_nothing(
    server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def drip(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not released.wait(0.02):
            handler.wfile.write(b"x")

    def silent(_: http.server.BaseHTTPRequestHandler) -> None:
        released.wait()

    def endless(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(bytes(2**16))

    server.answers |= {"/drip": drip, "/endless": endless, "/silent": silent}
    server.put("/large", bytes(10), **{"Content-Length": str(2**40)})
    server.put("/cut", bytes(10), **{"Content-Length": "11"})
    server.put("/packed", bytes(10), **{"Content-Encoding": "gzip"})
    monkeypatch.setenv(disk_cache.VARIABLE, "0.01")
    try:
        for path, message in (
            ("/large", r"must have at most 0\.01 GiB"),
            ("/endless", r"must have at most 0\.01 GiB"),
            ("/cut", "must send 11 bytes, got 10"),
            ("/packed", 'must send the file as it is, got Content-Encoding "gzip"'),
            ("/none", "must answer 200, got 404"),
        ):
            with pytest.raises(MissingDataError, match=message):
                read(server.url(path), own(server, "/"))
        monkeypatch.setattr(web_files, "SILENT_S", 0.2)
        with pytest.raises(MissingDataError, match="must send something every 0 s"):
            read(server.url("/silent"), own(server, "/"))
        monkeypatch.setattr(web_files, "WHOLE_S", 0.5)
        with pytest.raises(MissingDataError, match="must send the file within"):
            read(server.url("/drip"), own(server, "/"))
    finally:
        released.set()
    entries = tmp_path / "cache" / "driftline" / "data"
    assert [entry.name for entry in entries.iterdir() if not entry.name.endswith(".lock")] == []


def test_other_protocols_have_the_same_bounds(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    files = fsspec.filesystem("memory")
    for name, size in (("small/a.csv", 10), ("large/a.csv", 2**20), ("large/b.csv", 2**20)):
        files.pipe(f"/bounds/{name}", bytes(size))
    try:
        monkeypatch.setenv(disk_cache.VARIABLE, str(1.5 * 2**-10))
        assert read("memory://bounds/small/a.csv", "memory://bounds/small") == bytes(10)
        with pytest.raises(SpecError, match="must begin with one of those"):
            read("memory://bounds/large/a.csv", "memory://bounds/small")
        with reading_only(["memory://bounds/"]), pytest.raises(MissingDataError, match=r"at most 0\.00146 GiB"):
            local_copy("memory://bounds/large", "task.path")
        monkeypatch.setattr(remote, "WHOLE_S", -1.0)
        with pytest.raises(MissingDataError, match="must be read within"):
            read("memory://bounds/large/a.csv", "memory://bounds")
    finally:
        files.rm("/bounds", recursive=True)


def test_a_certificate_that_nobody_knows_is_refused(server: WebServer, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "data.example.org")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
    file = tmp_path / "certificate.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(secret + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with serving(context) as secure, pytest.MonkeyPatch.context() as patch:
        secure.put("/a.csv", b"1")
        url, prefix = secure.url("/a.csv", "https"), f"private:{secure.url('/', 'https')}"
        with pytest.raises(MissingDataError, match="CERTIFICATE_VERIFY_FAILED"):
            read(url, prefix)
        assert not secure.asked
        patch.setenv("SSL_CERT_FILE", str(file))
        assert read(url, prefix) == b"1"
        resolve(patch, [["127.0.0.1"]])
        other = f"https://other.example.org:{secure.port}/"
        with pytest.raises(MissingDataError, match=r"CERTIFICATE_VERIFY_FAILED.*Hostname mismatch"):
            read(f"{other}a.csv", f"private:{other}")


def resolve(monkeypatch: pytest.MonkeyPatch, answers: list[list[str]]) -> list[str]:
    """Gives names these addresses, one list after the other; returns the names that are looked up."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def found(host: str, port: int, *arguments: Any, **options: Any) -> list[Any]:
        if not host[-1].isalpha():
            return real(host, port, *arguments, **options)
        asked.append(host)
        addresses = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return asked
