"""The protection of a page for people: its policy, and the check that a request is from the page of this server.

A browser sends requests of any web page to any address that it reaches, also on this machine. The policy of a page,
its Content-Security-Policy, forbids loading from other sources and running other scripts. So a name from the network
cannot become a script.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from importlib import resources
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse

_PART: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def page_response(package: str, *path: str) -> HTMLResponse:
    """Return a page, one file of a package, with the headers that protect it."""
    html = resources.files(package).joinpath(*path).read_text(encoding="utf-8")
    sources = {"script": "", "style": ""}
    for kind, text in _PART.findall(html):
        sources[kind] += f" 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    headers = {
        "Content-Security-Policy": f"default-src 'none'; script-src{sources['script']}; "
        f"style-src{sources['style']}; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return HTMLResponse(html, headers=headers)


def is_from_own_page(headers: Headers, *, has_tls: bool = False, is_local: bool = True) -> bool:
    """Return whether a request is from a page of this server, from its user, or from a program.

    ``is_local`` says that the server listens on a loopback address, ``has_tls`` that it has a certificate.
    """
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None:
        page = urlsplit(origin)
        # With TLS the certificate shows the browser that the page's name is that of this server.
        return page.netloc == host and ((has_tls and page.scheme == "https") or _is_address(host))
    # Browsers send no origin for images and links of other sites; a GET of messages would remove them.
    if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        return False
    # They send none for requests to the page's own site either, whose name may point to this machine by now (DNS
    # rebinding).
    return not host or _is_address(host) or not is_local


def _is_address(host: str) -> bool:
    """Return whether a Host header is an address or local name, which DNS rebinding cannot use."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False
