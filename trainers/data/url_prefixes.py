"""Which URLs may be read: those below prefixes that an operator allows, compared part by part.

A prefix is the URL of a folder, `https://data.example.org/public/`, or of one file. A URL that this code and a
server could parse differently is refused. `private:` before a prefix says that its host is in the operator's own
network.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit

from trainers.values import shown

MARK = "://"

WEB = {"http": 80, "https": 443}
"""The protocols of web servers, with their ports."""

_PRIVATE = "private:"
_PLAIN = re.compile(r"[!-~]+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_ESCAPE = re.compile("%(.{0,2})")
_LEADING = re.compile(r"[\x00-\x1f\x7f/\\%.;]")
_HERE = ("file", "local")  # protocols of files on this machine
_RESERVED = ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")
"""Networks that older versions of Python count as public, and on which clouds serve their own machines."""


def is_url(name: str) -> bool:
    """Whether a path is a URL."""
    return MARK in name


@dataclass(frozen=True)
class UrlPrefix:
    """A prefix of allowed URLs.

    Args:
        text: the prefix as given.
        scheme: in lower case.
        host: in lower case for the web; a bucket, or "", for others.
        port: of a web server; None for others.
        path: "" or with a slash in front.
        private: whether the host may have an address that is not public.
    """

    text: str
    scheme: str
    host: str
    port: int | None
    path: str
    private: bool = False

    @classmethod
    def of(cls, text: str) -> Self:
        """The prefix in a setting.

        Raises:
            ValueError: the text is not the URL of a folder or file elsewhere; the message says what it must be.
        """
        private = text.startswith(_PRIVATE)
        parts = _parts(text.removeprefix(_PRIVATE))
        if parts.query:
            raise ValueError(f"must have no query, got {shown(text)}")
        if parts.scheme in _HERE:
            raise ValueError(f"must be elsewhere, got {shown(text)}: put local files into the data folder")
        if private and parts.scheme not in WEB:
            raise ValueError(f"must have private: before http and https only, got {shown(text)}")
        return cls(text, parts.scheme, *_host(parts), parts.path, private)

    def covers(self, url: str) -> bool:
        """Whether a URL begins with this prefix, and its path ends there or continues at a slash.

        Examples:
            >>> prefix = UrlPrefix.of("https://example.org/public")
            >>> [prefix.covers(f"https://{rest}") for rest in ("example.org:443/public/a", "example.org/publicity")]
            [True, False]

        Raises:
            ValueError: the URL could be parsed in two ways; the message says what it must not have.
        """
        parts = _parts(url)
        if (parts.scheme, *_host(parts)) != (self.scheme, self.host, self.port):
            return False
        folder = self.path.removesuffix("/")
        return parts.path.startswith(f"{folder}/") or parts.path == self.path


def allowing(url: str, prefixes: Sequence[str]) -> UrlPrefix:
    """The first prefix that covers a URL; prefixes that allow private addresses come before others.

    Raises:
        ValueError: no prefix covers the URL, or it could be parsed in two ways; the message says what it must be.
    """
    covering = [prefix for prefix in map(UrlPrefix.of, prefixes) if prefix.covers(url)]
    if not covering:
        shared = ", ".join(text.removeprefix(_PRIVATE) for text in prefixes) or "none"
        raise ValueError(f"must begin with one of those that are allowed ({shared}), got {shown(url)}")
    return max(covering, key=lambda prefix: prefix.private)


def refuse_address(address: str) -> None:
    """Refuses an address that is not public: of this machine, of a private network, of a cloud's metadata, ...

    Raises:
        ValueError: the address is not public.
    """
    ip = ipaddress.ip_address(address)
    meant = ip
    if isinstance(ip, ipaddress.IPv6Address):
        inside = ip in ipaddress.ip_network("64:ff9b::/96") or ip.ipv4_mapped is not None
        meant = ipaddress.IPv4Address(ip.packed[-4:]) if inside else ip
    reserved = isinstance(meant, ipaddress.IPv4Address) and any(meant in ipaddress.ip_network(n) for n in _RESERVED)
    public = meant.is_global and not meant.is_multicast and not reserved
    if isinstance(meant, ipaddress.IPv6Address):  # excludes addresses that embed an IPv4 address: ::/96, 6to4
        public = public and meant in ipaddress.ip_network("2000::/3") and meant.sixtofour is None
    if not public:
        raise ValueError(f"must have a public address, got {address}")


def _parts(url: str) -> SplitResult:
    """The parts of a URL; refuses a URL that could be parsed in two ways."""
    scheme, mark, rest = url.partition(MARK)
    account, at, _ = re.split(r"[/?#\\]", rest, maxsplit=1)[0].rpartition("@")
    if at:
        raise ValueError(f"must have no user or password in it, got {shown(url.replace(account, '...'))}")
    came = f"got {shown(url)}"
    if not _PLAIN.fullmatch(url) or "\\" in url:
        raise ValueError(f"must be of ASCII characters without spaces and backslashes, {came}")
    chained = MARK in rest.partition("?")[0] or (scheme not in WEB and "::" in rest)
    if not mark or not _SCHEME.fullmatch(scheme) or chained:
        raise ValueError(f"must be one URL, with its protocol in lower case, {came}")
    if "#" in url or (scheme not in WEB and "?" in url):
        raise ValueError(f"must have no # in it, and a ? for http and https only, {came}")
    try:
        parts = urlsplit(url)
        _host(parts)
    except ValueError:
        raise ValueError(f"must name a host, and its port if at all, {came}") from None
    for escape in _ESCAPE.findall(parts.path):
        if not re.fullmatch("[0-9A-Fa-f]{2}", escape) or _LEADING.search(unquote(f"%{escape}")):
            raise ValueError(f"must escape with % no character that may lead elsewhere, {came}")
    try:
        unquote(parts.path, errors="strict")  # some servers decode other bytes to a dot or a slash
    except UnicodeError:
        raise ValueError(f"must escape with % the bytes of UTF-8, {came}") from None
    _, *segments = parts.path.split("/")
    if any(name.partition(";")[0] in (".", "..") for name in segments) or "" in segments[:-1]:
        raise ValueError(f"must have no empty part, . or .. in its path, {came}")
    return parts._replace(path=_ESCAPE.sub(lambda escape: escape[0].upper(), parts.path))


def _host(parts: SplitResult) -> tuple[str, int | None]:
    """(host, port) of a URL; the default port of http and https if it names none.

    Raises:
        ValueError: an http or https URL has no valid host, or no valid port.
    """
    if parts.scheme not in WEB:
        return parts.netloc, None
    host = parts.hostname or ""
    if parts.netloc.endswith(":") or not (_HOST.fullmatch(host) or (":" in host and ipaddress.IPv6Address(host))):
        raise ValueError
    return host, WEB[parts.scheme] if parts.port is None else parts.port
