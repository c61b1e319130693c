"""Reach: which addresses are public, and what a person can allow besides."""

from ipaddress import ip_address

import pytest

from activities.toolbox.http.network import Reach, is_public

INSIDE = [
    "0.0.0.0",  # noqa: S104  # nobody binds it
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::8.8.8.8",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::",
    "2002:c0a8:101::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%lo",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]

OUTSIDE = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.215.14",
    "100.63.255.255",
    "100.128.0.1",
    "126.255.255.255",
    "172.15.255.255",
    "172.32.0.1",
    "192.167.255.255",
    "223.255.255.254",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2001:4860:4860::8888",
    "2002:808:808::1",
    "2606:4700::1111",
    "2a00:1450:4001::1",
]


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_inside_a_network_is_not_public(address: str) -> None:
    """Private, loopback, link-local, group, reserved, carrier, documentation, metadata, and IPv6 that wraps them."""
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", OUTSIDE)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    """Neighbours of the closed networks too, and IPv6 that wraps a public address."""
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    ("allowed", "host", "address", "may"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "any.example", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", "127.0.0.2", False),
        ("127.0.0.1", "a", "::ffff:127.0.0.1", True),
        ("127.0.0.1", "a", "::1", False),
        ("::1", "a", "::1", True),
        ("[::1]", "a", "::1", True),
        ("10.0.0.0/8", "a", "10.9.8.7", True),
        ("10.1.2.3/8", "a", "10.9.8.7", True),
        ("10.0.0.0/8", "a", "11.0.0.1", True),
        ("10.0.0.0/8", "a", "172.16.0.1", False),
        ("10.0.0.0/8", "a", "64:ff9b::10.0.0.1", True),
        ("fd00::/8", "a", "fd12::1", True),
        ("fd00::/8", "a", "10.0.0.1", False),
        ("intranet.example", "intranet.example", "10.0.0.1", True),
        ("Intranet.Example.", "intranet.example", "10.0.0.1", True),
        ("intranet.example", "INTRANET.example.", "10.0.0.1", True),
        ("intranet.example", "www.intranet.example", "10.0.0.1", False),
        ("intranet.example", "notintranet.example", "10.0.0.1", False),
        ("intranet.example", "other.example", "10.0.0.1", False),
        ("localhost", "localhost", "::1", True),
        ("localhost", "127.0.0.1", "127.0.0.1", False),
        ("0.0.0.0/0", "a", "169.254.169.254", True),
    ],
)
def test_what_is_allowed_may_be_reached(allowed: str, host: str, address: str, may: bool) -> None:
    """A name stands for all its addresses and for no other name; an address or a network for whatever leads there."""
    assert Reach.of([allowed]).allows(host, address) is may


@pytest.mark.parametrize("allowed", [(), ("127.0.0.1", "intranet.example")])
def test_the_internet_may_always_be_reached(allowed: tuple[str, ...]) -> None:
    """What is allowed is allowed besides."""
    assert Reach.of(allowed).allows("a.example", "8.8.8.8")


@pytest.mark.parametrize(
    "entry",
    [
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
        "-",
        ".",
    ],
)
def test_what_is_no_host_is_refused_by_name(entry: str) -> None:
    """A typing error must not silently allow nothing: the sentence quotes it and shows what would do."""
    with pytest.raises(ValueError, match="is no host, address or network, such as") as wrong:
        Reach.of([entry])

    assert repr(entry) in str(wrong.value)
