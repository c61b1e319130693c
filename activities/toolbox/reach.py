"""Reach: where on the network a call may go when somebody else, a planner or a web page, chose the address."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

_NAME = re.compile(r"(?:[a-z0-9_][a-z0-9_-]*\.)*(?![0-9]+$)[a-z0-9_][a-z0-9_-]*")
"""A host name in small letters whose last part is no number, so that a mistyped address is none."""

_UNICAST = IPv6Network("2000::/3")
"""All of IPv6 that is given out for use between networks (IANA, IPv6 Global Unicast Address Assignments)."""
_NAT64 = IPv6Network("64:ff9b::/96")
"""IPv6 addresses that a translator turns into the IPv4 address in their last 32 bits (RFC 6052)."""
_CLOSED = (
    ip_network("168.63.129.16/32"),  # Azure's services for its own machines, at an address that looks public
    ip_network("192.0.0.0/24"),  # for protocols (RFC 6890), of which some clouds use parts
    ip_network("192.88.99.0/24"),  # the nearest 6to4 relay, whoever runs it (RFC 7526)
    ip_network("3fff::/20"),  # for documentation (RFC 9637), which Python's table does not know yet
)


class BadReach(ValueError):
    """An entry of the allow-list cannot be used; the message says which."""


@dataclass(frozen=True)
class Reach:
    """Public addresses, and what the person who started the worker allowed besides."""

    names: frozenset[str] = frozenset()
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, allowed: Iterable[str]) -> "Reach":
        """Read what is allowed: names, addresses and networks.

        Raises:
            ValueError: one of them is none of these; its message is for the person who wrote it.
        """
        names, networks = set[str](), list[IPv4Network | IPv6Network]()
        for entry in allowed:
            name = plain(entry)
            try:
                networks.append(ip_network(name.strip("[]"), strict=False))
            except ValueError:
                if not _NAME.fullmatch(name):
                    examples = "intranet.example, 10.0.0.7 or 10.0.0.0/8"
                    raise BadReach(
                        f"--allow-host: {entry!r} is no host, address or network, such as {examples}."
                    ) from None
                names.add(name)
        return cls(frozenset(names), tuple(networks))

    def allows(self, host: str, address: str) -> bool:
        """Whether a call of `host` may connect to `address`, one of those that the name stands for."""
        if plain(host) in self.names:
            return True
        found = _reached(ip_address(address))
        return is_public(found) or any(found in network for network in self.networks)


def read_host(text: str) -> str | None:
    """The name or the address of one host, as it is compared; None when it is neither."""
    name = plain(text)
    try:
        return str(ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name))
    except ValueError:
        return name if _NAME.fullmatch(name) else None


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address belongs to the public internet: nobody's own network, machine, group or cloud metadata."""
    found = _reached(address)
    if found.version == 6 and found not in _UNICAST:
        return False
    return found.is_global and not found.is_multicast and not any(found in network for network in _CLOSED)


def _reached(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 address is only a wrapping of: mapped, 6to4, NAT64; else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def plain(name: str) -> str:
    """A host's name as it is compared."""
    return name.strip().lower().removesuffix(".")
