"""`RestServer`: serves the REST API of a node in the node's event loop.

Invariant: when `RestServer.start` returns, the port is known and accepts requests. When `RestServer.close` returns, all
tasks and connections of the server have ended, also event streams, and the node continues.
"""

from __future__ import annotations

from ipaddress import ip_address
from types import TracebackType
from typing import Final, Self

from fairway.libp2p.reachable import interface_addresses
from fairway.libp2p.transports.certificate import ServerCertificate
from fairway.service.node import ServiceNode
from fairway.service.rest.app import make_app
from fairway.service.rest.context import RestContext
from fairway.service.rest.http_server import HttpServer
from fairway.service.rest.options import RestOptions


class RestServer:
    """An async context manager for a running node. Made by `RestServer.start`."""

    def __init__(self, context: RestContext, server: HttpServer) -> None:
        """Use `start`."""
        self.context: Final = context
        self._server: Final = server

    @classmethod
    async def start(cls, node: ServiceNode, options: RestOptions | None = None) -> Self:
        """Listen and serve.

        Raises `OSError` if the address is in use or not of this machine, `ConfigurationError` for a certificate that
        cannot be used.
        """
        chosen = options or RestOptions()
        certificate = None
        if chosen.tls_cert is not None and chosen.tls_key is not None:
            certificate = ServerCertificate(chosen.tls_cert, chosen.tls_key)
        context = RestContext(node, chosen, certificate)
        try:
            server = await HttpServer.start(make_app(context), chosen.host, chosen.port, certificate=certificate)
        except BaseException:
            await context.close()
            raise
        return cls(context, server)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._server.port

    @property
    def url(self) -> str:
        """The URL of the API; for 0.0.0.0 and :: one that others can use."""
        address = ip_address(self._server.host)
        host = interface_addresses(address.version)[0] if address.is_unspecified else self._server.host
        scheme = "http" if self.context.certificate is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._server.connections

    async def close(self) -> None:
        """Stop serving. Can be called twice."""
        self.context.closing.set()
        await self._server.close()
        await self.context.close()

    async def __aenter__(self) -> Self:
        """Return the server itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the server."""
        await self.close()
