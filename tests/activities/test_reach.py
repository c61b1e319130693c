"""Reach: which addresses are public, and what a person can allow besides."""

from ipaddress import ip_address

import pytest

from activities.toolbox.http.network import Reach, is_public

INSIDE = {
    "this host": "0.0.0.0 0.1.2.3 :: 127.0.0.1 127.255.255.254 ::1 ::7f00:1",
    "private": "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 fc00::1 fd00:ec2::254 fec0::1",
    "of a carrier": "100.64.0.1 100.100.100.200",
    "link-local, and metadata": "169.254.0.1 169.254.169.254 168.63.129.16 fe80::1 fe80::1%lo",
    "of protocols": "192.0.0.1 192.0.0.192 192.88.99.1 198.18.0.1 240.0.0.1 100::1 2001::1 5f00::1",
    "of documentation": "192.0.2.1 198.51.100.1 203.0.113.1 2001:db8::1 3fff::1",
    "of groups": "224.0.0.1 239.255.255.250 255.255.255.255 ff02::1 ff0e::1",
    "IPv4 in IPv6": "::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1",
    "IPv4 behind a translator": "64:ff9b::127.0.0.1 64:ff9b::169.254.169.254 64:ff9b:1::8.8.8.8",
    "IPv4 in a tunnel": "2002:7f00:1:: 2002:a9fe:a9fe:: 2002:c0a8:101::1",
}
OUTSIDE = {
    "of the internet": "1.1.1.1 8.8.8.8 93.184.215.14 2001:4860:4860::8888 2606:4700::1111 2a00:1450:4001::1",
    "beside what is closed": "100.63.255.255 100.128.0.1 126.255.255.255 172.15.255.255 172.32.0.1 192.167.255.255 "
    "223.255.255.254",
    "IPv4 in IPv6": "::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1",
}


@pytest.mark.parametrize("kind", INSIDE)
def test_an_address_inside_a_network_is_not_public(kind: str) -> None:
    """Neither is IPv6 that wraps one."""
    assert [address for address in INSIDE[kind].split() if is_public(ip_address(address))] == []


@pytest.mark.parametrize("kind", OUTSIDE)
def test_an_address_of_the_internet_is_public(kind: str) -> None:
    """And reached whatever is allowed besides."""
    addresses = OUTSIDE[kind].split()

    assert [address for address in addresses if not is_public(ip_address(address))] == []
    for allowed in ((), ("127.0.0.1", "intranet.example")):
        assert [address for address in addresses if not Reach.of(allowed).allows("a.example", address)] == []


ALLOWED = {
    "127.0.0.1": ("127.0.0.1=127.0.0.1 any.example=127.0.0.1 a=::ffff:127.0.0.1", "127.0.0.2=127.0.0.2 a=::1"),
    "::1": ("a=::1", "a=127.0.0.1"),
    "[::1]": ("a=::1", "a=127.0.0.1"),
    "10.0.0.0/8": ("a=10.9.8.7 a=64:ff9b::10.0.0.1 a=11.0.0.1", "a=172.16.0.1"),
    "10.1.2.3/8": ("a=10.9.8.7", "a=172.16.0.1"),
    "fd00::/8": ("a=fd12::1", "a=10.0.0.1"),
    "intranet.example": (
        "intranet.example=10.0.0.1 INTRANET.example.=10.0.0.1",
        "www.intranet.example=10.0.0.1 notintranet.example=10.0.0.1 other.example=10.0.0.1",
    ),
    "Intranet.Example.": ("intranet.example=10.0.0.1", "other.example=10.0.0.1"),
    "localhost": ("localhost=::1", "127.0.0.1=127.0.0.1"),
    "0.0.0.0/0": ("a=169.254.169.254", "a=::1"),
}
"""What is allowed; then names with addresses that may be reached, and those that may not."""


@pytest.mark.parametrize("allowed", ALLOWED)
def test_what_is_allowed_may_be_reached(allowed: str) -> None:
    """A name stands for all its addresses and for no other name; an address or a network for whatever leads there."""
    reach, (reached, closed) = Reach.of([allowed]), ALLOWED[allowed]

    assert [pair for pair in reached.split() if not reach.allows(*pair.split("="))] == []
    assert [pair for pair in closed.split() if reach.allows(*pair.split("="))] == []


NO_HOSTS = [
    "",
    " ",
    "10.0.0.0/33",
    "300.1.1.1",
    "1.2.3",
    "http://a/",
    "a:80",
    "a b",
    "*.example",
    "m\u00fcller.example",
]


@pytest.mark.parametrize("entry", [*NO_HOSTS, "-", "."])
def test_what_is_no_host_is_refused_by_name(entry: str) -> None:
    """A typing error must not silently allow nothing: the sentence quotes it and shows what would do."""
    with pytest.raises(ValueError, match="is no host, address or network, such as") as wrong:
        Reach.of([entry])

    assert repr(entry) in str(wrong.value)
