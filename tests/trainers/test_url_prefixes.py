"""Which URLs begin with a prefix: whatever could be read in another way is refused."""

import pytest

from trainers.data.url_prefixes import UrlPrefix, allowing, refuse_address

PREFIXES = ("https://data.example.org/public/", "http://lab.example.org:8080/one.csv", "s3://bucket/sets")


@pytest.mark.parametrize(
    "url",
    [
        "https://data.example.org/public/a.csv",
        "https://data.example.org/public/deep/er/a.csv?download=1",
        "https://data.example.org:443/public/a.csv",
        "https://DATA.example.org/public/a.csv",
        "https://data.example.org/public/with%20space%2b%C3%A9.csv",
        "https://data.example.org/public/",
        "http://lab.example.org:8080/one.csv",
        "http://lab.example.org:8080/one.csv?version=2",
        "s3://bucket/sets/a.parquet",
        "s3://bucket/sets",
    ],
)
def test_what_is_below_a_prefix_is_allowed(url: str) -> None:
    assert allowing(url, PREFIXES).text in PREFIXES


@pytest.mark.parametrize(
    "url",
    [
        "http://data.example.org/public/a.csv",
        "https://data.example.org:8443/public/a.csv",
        "https://data.example.org/",
        "https://data.example.org/public-evil/a.csv",
        "https://data.example.org/Public/a.csv",
        "https://data.example.org.evil.org/public/a.csv",
        "https://evil.data.example.org/public/a.csv",
        "https://evil.org/data.example.org/public/a.csv",
        "https://evil.org?https%3A//data.example.org/public/",
        "https://data.example.org/%70ublic/a.csv",
        "http://lab.example.org:8080/one.csv.bak",
        "http://lab.example.org/one.csv",
        "s3://bucket-evil/sets/a.csv",
        "s3://Bucket/sets/a.csv",
        "s3://bucket/sets2/a.csv",
        "gs://bucket/sets/a.csv",
        "file:///etc/passwd",
        "memory://bucket/sets/a.csv",
    ],
)
def test_what_is_elsewhere_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"^must begin with one of those that are allowed \(https://data.example"):
        allowing(url, PREFIXES)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://data.example.org@evil.org/public/a.csv", "no user or password"),
        ("https://data.example.org:pass@evil.org/public/a.csv", "no user or password"),
        ("https://evil.org\\@data.example.org/public/a.csv", "backslashes"),
        ("https://data.example.org\\.evil.org/public/a.csv", "backslashes"),
        ("https://data.example.org/public/../private/a.csv", r"no empty part, \. or \.\."),
        ("https://data.example.org/public/./a.csv", r"no empty part, \. or \.\."),
        ("https://data.example.org/public/..;x=1/private", r"no empty part, \. or \.\."),
        ("https://data.example.org/public//a.csv", r"no empty part, \. or \.\."),
        ("https://data.example.org/public/..", r"no empty part, \. or \.\."),
        ("https://data.example.org/public/%2e%2e/private/a.csv", "escape with %"),
        ("https://data.example.org/public/%2E./private/a.csv", "escape with %"),
        ("https://data.example.org/public/..%2fprivate", "escape with %"),
        ("https://data.example.org/public/%252e%252e/private", "escape with %"),
        ("https://data.example.org/public/%5c..%5cprivate", "escape with %"),
        ("https://data.example.org/public/a%00.csv", "escape with %"),
        ("https://data.example.org/public/a%0d%0aHost:evil.org", "escape with %"),
        ("https://data.example.org/public/a%zz.csv", "escape with %"),
        ("https://data.example.org/public/a%2", "escape with %"),
        ("https://data.example.org/public/%C0%AE%c0%ae/private", "bytes of UTF-8"),
        ("https://data.example.org/public/%E0%80%AF..", "bytes of UTF-8"),
        ("https://data.example.org/public/a.csv#b", "no # in it"),
        ("https://data.example.org/public/a b.csv", "ASCII"),
        ("https://data.example.org/public/a\r\nHost: evil.org", "ASCII"),
        ("https://data.example.org/public/\t../a", "ASCII"),
        ("https://d\u0430ta.example.org/public/a.csv", "ASCII"),
        ("https://data.example.org\u3002evil.org/public/", "ASCII"),
        ("HTTPS://data.example.org/public/a.csv", "one URL"),
        (" https://data.example.org/public/a.csv", "ASCII"),
        ("https:data.example.org/public/a.csv", "one URL"),
        ("https:///data.example.org/public/a.csv", "name a host"),
        ("https://data.example.org./public/a.csv", "name a host"),
        ("https://data.example.org:/public/a.csv", "name a host"),
        ("https://data.example.org:port/public/a.csv", "name a host"),
        ("https://[data.example.org]/public/a.csv", "name a host"),
        ("https://data.example.org/public/https://evil.org", "one URL"),
        ("zip://a.csv::https://data.example.org/public/a.zip", "one URL"),
        ("s3://bucket/sets/a.csv::file:", "one URL"),
        ("s3://bucket/sets/../other", r"no empty part, \. or \.\."),
        ("s3://bucket/sets/a?versionId=1", r"a \? for http"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused_whatever_is_allowed(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        allowing(url, (*PREFIXES, "https://evil.org"))
    assert "pass@" not in str(caught.value)


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ("data.example.org/public", "one URL"),
        ("https://user@data.example.org/", "no user"),
        ("https://data.example.org/?a=1", "no query"),
        ("https://*.example.org/", "name a host"),
        ("file:///data", "put local files into the data folder"),
        ("private:s3://bucket/", "before http and https only"),
        ("https://data.example.org/a/../", r"\. or \.\."),
    ],
)
def test_a_prefix_is_one_url(prefix: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UrlPrefix.of(prefix)


def test_a_prefix_that_says_so_allows_private_addresses() -> None:
    both = ("https://a.org/", "private:https://a.org/own/")
    assert [allowing(f"https://a.org/{path}", both).private for path in ("own/x", "x")] == [True, False]
    with pytest.raises(ValueError, match=r"allowed \(https://a.org/, https://a.org/own/\), got"):
        allowing("https://b.org/", both)
    assert UrlPrefix.of("https://a.org").covers("https://a.org/x")
    assert UrlPrefix.of("private:http://[::1]:80/x").covers("http://[::1]/x/y")


PRIVATE = """
127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 100.64.0.1 169.254.169.254 0.0.0.0 192.0.0.192 192.88.99.1 168.63.129.16
224.0.0.1 255.255.255.255 ::ffff:192.0.0.192 ::ffff:127.0.0.1 ::127.0.0.1 ::1 :: fe80::1 fec0::1 fd00::1 ff02::1
64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 2002:7f00:1:: 2001:db8::1
"""


@pytest.mark.parametrize("address", PRIVATE.split())
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="must have a public address"):
        refuse_address(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_a_public_address_is_taken(address: str) -> None:
    refuse_address(address)
