"""Public data sets that `driftline data fetch` knows: where they are, their checksums, and what to write in a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TFF = "https://storage.googleapis.com/tff-datasets-public/"
_TORONTO = "https://www.cs.toronto.edu/~kriz/"


@dataclass(frozen=True)
class PublicFile:
    """A file of a data set.

    Args:
        name: Name of the file.
        checksum: Algorithm and hexadecimal digest, as in "sha256:..".
        members: Prefix of the names of the files to unpack, if it is an archive.
    """

    name: str
    checksum: str
    members: str = ""


@dataclass(frozen=True)
class PublicData:
    """A data set.

    Args:
        about: What the data set holds, in a line.
        terms: Its licence, or what to cite.
        address: Address of the folder with its files.
        files: Its files; those that end in .tar.gz, .tar.bz2 or .zip are unpacked.
        task: Keys of the task `data` beside the path.
    """

    about: str
    terms: str
    address: str
    files: tuple[PublicFile, ...]
    task: Mapping[str, Any]


def _idx(*digests: str) -> tuple[PublicFile, ...]:
    sides = [f"{side}-{kind}-ubyte.gz" for side in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    return tuple(PublicFile(name, f"md5:{digest}") for name, digest in zip(sides, digests, strict=True))


def _emnist(split: str, about: str) -> PublicData:
    return PublicData(
        f"EMNIST {split}: {about}, 28 x 28, stored transposed",
        "Cohen, Afshar, Tapson, van Schaik 2017, from NIST SD-19",
        "https://biometrics.nist.gov/cs_links/EMNIST/",
        (PublicFile("gzip.zip", "md5:58c8d27c78d21e728a6bc7b3cc06412e", f"emnist-{split}-"),),
        _IID,
    )


_IID = {"partition": {"dirichlet": 0.3}, "clients": 100, "scale": "unit"}

PUBLIC: Mapping[str, PublicData] = {
    "mnist": PublicData(
        "MNIST: 60,000 and 10,000 handwritten digits, 28 x 28",
        "LeCun, Cortes, Burges; no single clear licence, often given as CC BY-SA 3.0",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        _idx(
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
        _IID,
    ),
    "fashion_mnist": PublicData(
        "Fashion-MNIST: 60,000 and 10,000 articles of clothing, 28 x 28",
        "Xiao, Rasul, Vollgraf 2017; MIT, Zalando SE",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        _idx(
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
        _IID,
    ),
    "cifar10": PublicData(
        "CIFAR-10: 50,000 and 10,000 photographs of 10 classes, 3 x 32 x 32",
        "Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009; no formal licence",
        _TORONTO,
        (
            PublicFile(
                "cifar-10-python.tar.gz", "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
            ),
        ),
        _IID,
    ),
    "cifar100": PublicData(
        "CIFAR-100: 50,000 and 10,000 photographs of 100 classes in 20 groups, 3 x 32 x 32",
        "Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009; no formal licence",
        _TORONTO,
        (
            PublicFile(
                "cifar-100-python.tar.gz", "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"
            ),
        ),
        {"partition": {"dirichlet": [0.1, 10.0], "groups": "coarse_label"}, "clients": 500, "scale": "unit"},
    ),
    "emnist_byclass": _emnist("byclass", "697,932 and 116,323 letters and digits of 62 classes"),
    "emnist_balanced": _emnist("balanced", "112,800 and 18,800 letters and digits of 47 classes"),
    "emnist_letters": _emnist("letters", "124,800 and 20,800 letters of 26 classes"),
    "fed_emnist": PublicData(
        "EMNIST by writer, as in TensorFlow Federated: letters and digits of 62 classes, 3,400 clients, 28 x 28",
        "Cohen, Afshar, Tapson, van Schaik 2017, from NIST SD-19; grouped as in LEAF (Caldas et al. 2018)",
        _TFF,
        (PublicFile("fed_emnist.tar.bz2", "sha256:fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0"),),
        {},
    ),
    "fed_emnist_digits": PublicData(
        "Digits of EMNIST by writer, as in TensorFlow Federated: 10 classes, 3,383 clients, 28 x 28",
        "Cohen, Afshar, Tapson, van Schaik 2017, from NIST SD-19; grouped as in LEAF (Caldas et al. 2018)",
        _TFF,
        (
            PublicFile(
                "fed_emnist_digitsonly.tar.bz2",
                "sha256:55333deb8546765427c385710ca5e7301e16f4ed8b60c1dc5ae224b42bd5b14b",
            ),
        ),
        {},
    ),
    "fed_cifar100": PublicData(
        "CIFAR-100 as TensorFlow Federated groups it: 500 clients of 100 photographs, 3 x 32 x 32",
        "Krizhevsky 2009; grouped by Pachinko allocation (Reddi et al. 2021)",
        _TFF,
        (
            PublicFile(
                "fed_cifar100.tar.bz2", "sha256:e8575e22c038ecef1ce6c7d492d7abee7da13b1e1ba9b70a7fc18531ba7590de"
            ),
        ),
        {"scale": "unit"},
    ),
}
