"""What of a foreign exception a log may carry: enough to mend the tool, nothing like a credential."""

from pathlib import Path

import pytest
from sqlalchemy import exc, text

from activities import log_redaction
from activities.storage.store import open_store

HIDDEN = "hunter2"


MESSAGES = [
    *(f"password={HIDDEN}", f"password: {HIDDEN}", f"the password {HIDDEN} is wrong", f'{{"password": "{HIDDEN}"}}'),
    *(f"{{'password': '{HIDDEN}'}}", f"{{'api_key': '{HIDDEN}', 'x': 1}}", f"access_token={HIDDEN}&x=1"),
    *(f"client_secret: {HIDDEN}", f"X-Api-Key: {HIDDEN}", f"Authorization: Bearer {HIDDEN}", f"bearer {HIDDEN}"),
    *(f"Authorization: Basic {HIDDEN}", f"Cookie: session={HIDDEN}", f"Set-Cookie: {HIDDEN}; Path=/"),
    *(f"https://me:{HIDDEN}@shop.example/x", f"postgresql+asyncpg://me:{HIDDEN}@db/x"),
    *(f"GET https://shop.example/x?sig={HIDDEN}", f"GET https://shop.example/x=?{HIDDEN}"),
    *(f"GET https://shop.example/x?),{HIDDEN} WHERE id = ?", f"key = ?{HIDDEN}", f"sk-{HIDDEN} is no key"),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_credential_is_not_logged(message: str) -> None:
    """However it is named and quoted."""
    assert HIDDEN not in log_redaction.scrubbed(ValueError(message))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("sku"), "KeyError: 'sku'"),
        (ValueError("A-17 has no price"), "ValueError: A-17 has no price"),
        (
            ValueError("UPDATE t SET key = ?, day=? WHERE id = ?]"),
            "ValueError: UPDATE t SET key = ?, day=? WHERE id = ?]",
        ),
        (ValueError("INSERT INTO t VALUES (?,?, ?)\nx"), "ValueError: INSERT INTO t VALUES (?,?, ?)\nx"),
        (ValueError(), "ValueError: "),
        (ValueError("x y " * 1000), "ValueError: " + ("x y " * 1000)[: log_redaction.MAX_WORDS]),
    ],
    ids=["key", "words", "update", "insert", "nothing", "long"],
)
def test_what_helps_to_mend_is_logged(error: Exception, said: str) -> None:
    """Class and message, cut."""
    assert log_redaction.scrubbed(error) == said


def test_the_frames_name_files_and_no_folders() -> None:
    """Where it was raised, the innermost last."""
    with pytest.raises(ZeroDivisionError) as raised:
        _ = 1 / (len(HIDDEN) - 7)

    assert log_redaction.raised_at(raised.value)[-1].startswith("test_scrub.py:")


async def test_the_store_keeps_parameters_out_of_messages(tmp_path: Path) -> None:
    """SQLAlchemy would write them into its exception; a library that raises deep inside does not push out our line."""
    engine = await open_store(f"sqlite+aiosqlite:///{tmp_path / 'store.db'}")
    with pytest.raises(exc.OperationalError) as raised:
        async with engine.begin() as connection:
            await connection.execute(text("SELECT * FROM nowhere WHERE name = :name"), {"name": HIDDEN})
    await engine.dispose()

    assert HIDDEN not in log_redaction.scrubbed(raised.value)
    assert [frame for frame in log_redaction.raised_at(raised.value) if frame.startswith("test_scrub.py:")]
