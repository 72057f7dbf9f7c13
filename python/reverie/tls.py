"""Certificates and keys for encrypted connections."""

from __future__ import annotations

from os import fspath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from os import PathLike


# Where commands find the token of peers.
TOKEN = "REVERIE_TOKEN"
# What a command's options --tls-NAME are for, of a PeerTls.
TLS_FILES = {
    "certificate": "this peer's certificate and those that signed it",
    "key": "the key to it",
    "authorities": "certificates of those who signed the certificates of all peers",
}


class ServerTls(NamedTuple):
    """How a server encrypts.

    Attributes:
        certificate: file with the server's certificate and its chain of issuers, PEM.
        key: file with its private key, PEM.
        client_authorities: file with the certificates of the authorities that sign client
            certificates; then only clients with such a certificate are accepted.
    """

    certificate: str | PathLike[str]
    key: str | PathLike[str]
    client_authorities: str | PathLike[str] | None = None

    def _options(self) -> tuple[str, str, str]:
        return _read(self.certificate), _read(self.key), _read(self.client_authorities)


class ClientTls(NamedTuple):
    """How a client encrypts.

    Attributes:
        authorities: file with the certificates of the authorities that may sign the server's, PEM;
            None for those that the system trusts.
        certificate: file with the client's own certificate, for a server that requires one.
        key: file with the private key of that certificate.
        server_name: the name that the server's certificate must have, if it is not the address.
    """

    authorities: str | PathLike[str] | None = None
    certificate: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None
    server_name: str = ""

    def _options(self) -> tuple[str, str, str, str]:
        return (
            _read(self.authorities),
            _read(self.certificate),
            _read(self.key),
            self.server_name,
        )


class PeerTls(NamedTuple):
    """How peers encrypt what they send to each other by TCP; see ``reverie.Rpc``.

    Each presents its certificate to the other, whichever of them connects. Peers on one machine
    still use Unix sockets or shared memory, which never leave it.

    Attributes:
        certificate: file with this peer's certificate and its chain of issuers, PEM.
        key: file with its private key, PEM.
        authorities: file with the certificates of the authorities that sign all peers'
            certificates.
        server_name: the name in the certificate of a peer that this one connects to, if it is not
            its address. One name serves peers that share a certificate.
    """

    certificate: str | PathLike[str]
    key: str | PathLike[str]
    authorities: str | PathLike[str]
    server_name: str = ""

    def _options(self) -> tuple[str, str, str, str]:
        return (
            _read(self.certificate),
            _read(self.key),
            _read(self.authorities),
            self.server_name,
        )


def _read(path: str | PathLike[str] | None) -> str:
    # Text around the certificates, such as the names in them, may have any encoding; it is ignored.
    if path is None:
        return ""
    with open(fspath(path), encoding="utf-8", errors="replace") as file:  # never a descriptor
        return file.read()
