"""`--allow-request` and `--http-header`: what they may say, and the sentence for what they may not."""

from pathlib import Path

import pytest

from activities.toolbox.http.network import BadReach
from activities.toolbox.http.services import AllowedHost, Services


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("api.example", AllowedHost("api.example", None)),
        ("API.Example.", AllowedHost("api.example", None)),
        ("api.example:8443", AllowedHost("api.example", 8443)),
        ("localhost", AllowedHost("localhost", None)),
        ("127.0.0.1:80", AllowedHost("127.0.0.1", 80)),
        ("::1", AllowedHost("::1", None)),
        ("[::1]", AllowedHost("::1", None)),
        ("[::1]:8080", AllowedHost("::1", 8080)),
    ],
)
def test_a_host_may_have_a_port(text: str, place: AllowedHost) -> None:
    """Names and addresses, as they are written in an address."""
    assert Services.of([text], (), {}).places == {place}


NO_HOSTS = ["http://api.example", "api.example/", "api.example:", "a:0", "a:65536", "a:b", "*", "*.example", "a b"]


@pytest.mark.parametrize("text", ["", " ", *NO_HOSTS, "10.0.0.0/8", "1.2.3", "[::1", "a@b"])
def test_what_is_no_host_is_refused_by_name(text: str) -> None:
    """A typing error must not silently allow nothing: the sentence quotes it and shows what would do."""
    with pytest.raises(BadReach, match="is no host, such as") as wrong:
        Services.of([text], (), {})

    assert repr(text) in str(wrong.value)


MISTAKES = {
    "no host": ("Authorization:SHOP", "is not HOST=NAME:VARIABLE, such as"),
    "no variable": ("api.example=Authorization", "is not HOST=NAME:VARIABLE, such as"),
    "no name": ("api.example=:SHOP", "is not HOST=NAME:VARIABLE, such as"),
    "a name in two lines": ("api.example=a\nb:SHOP", "is not HOST=NAME:VARIABLE, such as"),
    "another host": ("other.example=Authorization:SHOP", "give --allow-request other.example, too"),
    "not set": ("api.example=Authorization:SHOPP", "the environment has no SHOPP: set it"),
    "empty": ("api.example=Authorization:EMPTY", "the environment has no EMPTY: set it"),
    "two lines": ("api.example=Authorization:LINES", "LINES is no header value"),
    "an end of line": ("api.example=Authorization:ENDED", "ENDED is no header value"),
}
ENVIRONMENT = {"SHOP": "hunter2", "EMPTY": "", "LINES": "hunter2\r\nx: y", "ENDED": "hunter2\n"}


@pytest.mark.parametrize(("text", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_header_that_cannot_be_sent_is_refused_when_the_worker_starts(text: str, words: str) -> None:
    """The sentence has the remedy, and never the secret."""
    with pytest.raises(BadReach) as wrong:
        Services.of(["api.example"], [text], ENVIRONMENT)

    assert words in str(wrong.value) and "hunter2" not in str(wrong.value)


def test_a_header_is_read_from_the_environment_or_a_file(tmp_path: Path) -> None:
    """Under its name in small letters, so that none stands twice; the end of a file's line belongs to the file."""
    (tmp_path / "secret").write_text("hunter2\n")
    named = {"SHOP_FILE": str(tmp_path / "secret")}
    for host, environment in (("api.example:8443", ENVIRONMENT), ("api.example", named)):
        given = Services.of([host], ["API.example=Authorization:SHOP"], environment)
        assert given.headers == {"api.example": {"authorization": "hunter2"}}
    with pytest.raises(BadReach, match="'/no/such/file' cannot be read"):
        Services.of(["api.example"], ["api.example=Authorization:SHOP"], {"SHOP_FILE": "/no/such/file"})
