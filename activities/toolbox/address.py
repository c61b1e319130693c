"""An address of the web that somebody else chose: whether it can be asked at all."""

import httpx2

from activities.toolbox.errors import Refused, unsent

MAX_URL = 2000
"""Characters of an address, which is what browsers and servers agree on."""


def joined(here: httpx2.URL, location: str) -> httpx2.URL:
    """Where a redirect leads, which is often said as seen from `here`."""
    try:
        return here.join(location)
    except ValueError:  # the standard library's, on brackets
        raise Refused("The address redirects to none: use another one.", code="unexpected_result") from None


def checked(url: httpx2.URL) -> httpx2.URL:
    """An address that can be asked at all.

    Raises:
        Refused: it is none of the web, is too long, or carries a name and password.
    """
    if url.scheme not in ("http", "https") or not url.raw_host:
        reason = "The address must begin with http:// or https:// and name a host."
    elif url.userinfo:
        reason = "The address has something before an @: give it without a user's name and password."
    elif url.port is not None and not 0 < url.port < 65536:
        reason = "The port of the address is none: leave it out, or give one from 1 to 65535."
    elif len(str(url)) > MAX_URL:
        reason = f"The address has more than {MAX_URL} characters: use a shorter one."
    else:
        return url
    raise unsent(Refused(reason, code="invalid_input"))
