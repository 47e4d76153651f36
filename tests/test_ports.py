"""Ports that tests give to servers stay theirs."""

import socket

import pytest

from tests.ports import free_port


def test_a_server_listens_again_and_again_where_nobody_else_may() -> None:
    port = free_port()
    for _ in range(2):
        with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            pass
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind(("127.0.0.1", port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_a_port_is_given_once() -> None:
    assert len({free_port() for _ in range(200)}) == 200
