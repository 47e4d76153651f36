"""Proxies and certificates from the environment, decided once for the one address that a connection speaks to.

| variable | meaning |
|---|---|
| HTTP_PROXY, HTTPS_PROXY, ALL_PROXY | proxy for http, for https, for both; lower case wins |
| NO_PROXY | hosts, domains and networks that are reached without a proxy, separated by commas; `*` for all |
| SSL_CERT_FILE, SSL_CERT_DIR | certificates to trust instead of those of certifi |

This machine is always reached without a proxy.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.request import getproxies, proxy_bypass

import httpx

from driftline.client.environment import has_host
from driftline.errors import InvalidSpec

_SCHEMES = ("http", "https", "socks5", "socks5h")


@dataclass(frozen=True)
class Proxy:
    """A proxy that the environment names.

    Attributes:
        variable: The variable that names it.
        address: Its address, with a scheme.
    """

    variable: str
    address: str

    def __str__(self) -> str:
        """The address without an account, and the variable."""
        return f"{httpx.URL(self.address).copy_with(username=None, password=None)} ({self.variable})"


def proxy_for(url: httpx.URL, environ: Mapping[str, str] | None = None) -> Proxy | None:
    """The proxy through which an address is reached; None without one.

    Args:
        url: The address.
        environ: The environment; by default that of this process, or macOS's settings if it names no proxy.

    Raises:
        InvalidSpec: The variable does not hold the address of a proxy.

    Examples:
        >>> names = {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "10.0.0.0/8,example.org"}
        >>> print(proxy_for(httpx.URL("https://tuner.example.com"), names))
        http://proxy:3128 (HTTPS_PROXY)
        >>> proxy_for(httpx.URL("https://tuner.example.org"), names), proxy_for(httpx.URL("https://10.1.2.3"), names)
        (None, None)
    """
    environ = os.environ if environ is None else environ
    if is_loopback(url.host) or _excluded(url.host, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    variables = [f"{url.scheme}_proxy", f"{url.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY"]
    named = next(((name, environ[name].strip()) for name in variables if environ.get(name, "").strip()), None)
    if named is None:
        system = getproxies() if environ is os.environ else {}
        if url.scheme not in system or proxy_bypass(url.host):
            return None
        named = ("the system's settings", system[url.scheme])
    variable, value = named
    address = value if "://" in value else f"http://{value}"
    if address.partition("://")[0] not in _SCHEMES or not has_host(address):
        form = "must be the address of a proxy, such as http://proxy:3128"
        raise InvalidSpec(variable, f"{form}, got {_hidden(value)!r}")
    return Proxy(variable, address)


def transport(url: httpx.URL, proxy: Proxy | None) -> httpx.HTTPTransport:
    """The HTTP transport for one address.

    Raises:
        InvalidSpec: SSL_CERT_FILE or SSL_CERT_DIR names no certificates, or the proxy needs a package.
    """
    encrypted = url.scheme == "https" or (proxy is not None and proxy.address.startswith("https:"))
    try:
        verify = httpx.create_ssl_context() if encrypted else False  # reading certificates takes 10 ms
    except OSError as error:  # includes ssl.SSLError
        problem = f"must name certificates in PEM format, got {os.environ.get('SSL_CERT_FILE')!r}: {error}"
        raise InvalidSpec("SSL_CERT_FILE", problem) from error
    try:
        return httpx.HTTPTransport(verify=verify, proxy=proxy.address if proxy else None)
    except ImportError as error:
        name = proxy.variable if proxy else "proxy"
        raise InvalidSpec(name, 'a SOCKS proxy needs the package socksio: pip install "httpx[socks]"') from error


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _excluded(host: str, no_proxy: str) -> bool:
    """Whether NO_PROXY names a host: as a domain, an address in or without brackets, or a network."""
    host = host.strip("[]").lower()
    for entry in (part.strip().lower() for part in no_proxy.split(",")):
        name = entry.lstrip("*").lstrip(".") if entry != "*" else entry
        bare = name.strip("[]") if name.count(":") != 1 else name.partition(":")[0]
        if entry == "*" or (bare and (host == bare or host.endswith(f".{bare}"))):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(bare, strict=False):
                return True
        except (ValueError, TypeError):  # the host is a name, or the network has the other IP version
            continue
    return False


def _hidden(address: str) -> str:
    """The address without its account, which may hold a password."""
    scheme, mark, rest = address.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"
