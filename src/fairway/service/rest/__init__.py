"""The REST API of a service node, compatible with nwaku's: `RestServer` over a running `ServiceNode`."""

from fairway.extras import needing

with needing("node", "the REST API of a node"):
    from fairway.service.rest.options import RestOptions
    from fairway.service.rest.server import RestServer

__all__ = ["RestOptions", "RestServer"]
