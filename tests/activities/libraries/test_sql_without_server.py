"""MySQL and Oracle, without a server: what the drivers make of an answer, of none, and of a lost connection."""

import asyncio
import importlib
from typing import Any

import pytest
from sqlalchemy import exc

from activities.borders.table import Proof
from runtime.dev_server import free_port
from tests.activities.libraries.verdicts import (
    HIDDEN,
    NOT_SENT,
    REFUSED,
    UNKNOWN,
    Outcome,
    failing,
    judged,
    outcome,
    raised,
)
from workflows.faults.fault import Code

for name in ("pymysql", "oracledb"):
    pytest.importorskip(name)

pymysql: Any = importlib.import_module("pymysql")
oracledb: Any = importlib.import_module("oracledb")
oracledb_errors: Any = importlib.import_module("oracledb.errors")

pytestmark = pytest.mark.full

# --- Oracle -----------------------------------------------------------------------------------------------------------


def oracle_error(message: str, number: int = 0) -> Any:
    """What the driver of Oracle makes of an answer, or of a mistake of its own."""
    made = oracledb_errors._Error(message, code=number)
    return made.exc_type(made)


def under_sqlalchemy(error: Any, dialect: str, *, is_invalidated: bool = False) -> BaseException:
    """The exception as SQLAlchemy wraps it."""
    base = next(one for one in type(error).__mro__ if one.__name__ == "Error")
    spoken = importlib.import_module(f"sqlalchemy.dialects.{dialect}").dialect()
    made: BaseException = exc.DBAPIError.instance(
        f"SELECT '{HIDDEN}'", {}, error, base, connection_invalidated=is_invalidated, dialect=spoken
    )
    return made


@pytest.mark.parametrize(
    ("message", "number", "code", "proves"),
    [
        ("ORA-01017: invalid username/password", 1017, Code.UNAUTHORIZED, NOT_SENT),
        ("ORA-28000: the account is locked", 28000, Code.UNAUTHORIZED, NOT_SENT),
        ("ORA-00001: unique constraint violated", 1, Code.CONFLICT, REFUSED),
        ("ORA-00054: resource busy", 54, Code.BUSY, REFUSED),
        ("ORA-00942: table or view does not exist", 942, Code.BUG, REFUSED),
        ("ORA-01722: invalid number", 1722, Code.INVALID_INPUT, REFUSED),
        ("ORA-03113: end-of-file on communication channel", 3113, Code.UNREACHABLE, UNKNOWN),
        ("ORA-01013: user requested cancel", 1013, Code.TIMEOUT, UNKNOWN),
        ("ORA-20001: of the database's own code", 20001, Code.BUG, UNKNOWN),
    ],
)
def test_what_oracle_answers(message: str, number: int, code: Code, proves: Proof) -> None:
    """The code decides, and not the class: 1017 is an OperationalError in one version, a DatabaseError in another."""
    error = oracle_error(message, number)
    several = [error, under_sqlalchemy(error, "oracle.oracledb")]
    if number == 1017:
        several.append(oracledb.OperationalError(oracledb_errors._Error(message, code=number)))

    assert [outcome(one) for one in several] == [(code, proves)] * len(several)


@pytest.mark.parametrize(
    ("statement", "proves"),
    [
        ("INSERT INTO orders VALUES (1)", REFUSED),
        ("begin pay(1); end;", UNKNOWN),
        ("DECLARE n NUMBER; BEGIN pay(n); END;", UNKNOWN),
    ],
)
def test_a_block_of_oracle_may_have_committed_a_part(statement: str, proves: Proof) -> None:
    """Directly, where only the function of the driver knows the statement, and under SQLAlchemy."""
    error = oracle_error("ORA-00001: unique constraint violated", 1)
    space: dict[str, Any] = {"__name__": "oracledb.cursor"}
    exec("def execute(statement, error): raise error", space)  # noqa: S102
    direct = raised(lambda: space["execute"](statement, error))
    wrapped = exc.IntegrityError(statement, {}, oracle_error("ORA-00001: unique constraint violated", 1))

    assert [outcome(one) for one in (direct, wrapped)] == [(Code.CONFLICT, proves)] * 2


async def test_an_oracle_that_cannot_be_reached_was_sent_nothing() -> None:
    """The code of the driver says so."""
    refused = await failing(oracledb.connect, user="x", password=HIDDEN, dsn=f"127.0.0.1:{free_port()}/orders")

    assert outcome(refused) == (Code.UNREACHABLE, NOT_SENT)


# --- MySQL ------------------------------------------------------------------------------------------------------------

MYSQL: dict[Outcome, str] = {
    (Code.BUSY, REFUSED): "1213-40001 1205-HY000 3572-HY000",
    (Code.BUSY, NOT_SENT): "1040-08004",
    (Code.CONFLICT, REFUSED): "1062-23000 1048-23000 1451-23000 1452-23000 3819-HY000 4025-23000",
    (Code.UNAUTHORIZED, NOT_SENT): "1045-28000 1698-28000",
    (Code.FORBIDDEN, REFUSED): "1044-42000 1142-42000 1290-HY000 1836-HY000",
    (Code.TIMEOUT, UNKNOWN): "1317-70100",
    (Code.TIMEOUT, REFUSED): "3024-HY000",
    (Code.INVALID_INPUT, REFUSED): "1406-22001 1264-22003 1366-HY000",
    (Code.REFUSED, REFUSED): "1644-45000",
    (Code.BUG, REFUSED): "1146-42S02 1054-42S22 1064-42000",
    (Code.NEEDS_PERSON, REFUSED): "1049-42000",
    (Code.QUOTA_EXHAUSTED, REFUSED): "1114-HY000",
    # Of an errno that no table has, the SQLSTATE decides.
    (Code.UNREACHABLE, UNKNOWN): "1053-08S01 9999-08S01",
    (Code.BUG, UNKNOWN): "9999-HY000",
}
"""By what they become, MySQL's answers: errno and SQLSTATE."""


def answered(answer: str) -> Any:
    """What PyMySQL makes of an error packet."""
    number, _, state = answer.partition("-")
    packet = b"\xff" + int(number).to_bytes(2, "little") + f"#{state}{HIDDEN}".encode()
    return raised(lambda: pymysql.err.raise_mysql_exception(packet))


@pytest.mark.parametrize(
    ("expected", "answers"), MYSQL.items(), ids=lambda value: " ".join(value) if value in MYSQL else None
)
def test_what_mysql_answers(expected: Outcome, answers: str) -> None:
    """The errno decides, and the SQLSTATE where no table has the errno; directly, and under SQLAlchemy."""
    errors = {answer: answered(answer) for answer in answers.split()}

    assert {answer: outcome(error) for answer, error in errors.items()} == dict.fromkeys(errors, expected)
    assert {
        answer: outcome(under_sqlalchemy(error, "mysql.pymysql")) for answer, error in errors.items()
    } == dict.fromkeys(errors, expected)


async def test_a_mysql_that_cannot_be_reached_was_sent_nothing() -> None:
    """Refused, unknown, or cut while the connection was made, where PyMySQL does not say how far it came."""
    cutting = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    ports = {"127.0.0.1": free_port(), "nowhere.invalid": 3306, "localhost": cutting.sockets[0].getsockname()[1]}
    found = {
        host: outcome(await failing(pymysql.connect, host=host, port=port, user="x", connect_timeout=3))
        for host, port in ports.items()
    }
    cutting.close()

    assert found == {
        "127.0.0.1": (Code.UNREACHABLE, NOT_SENT),
        "nowhere.invalid": (Code.UNREACHABLE, NOT_SENT),
        "localhost": (Code.UNREACHABLE, UNKNOWN),
    }


@pytest.mark.parametrize(
    "error",
    [
        pymysql.err.OperationalError(2006, f"MySQL server has gone away ({HIDDEN})"),
        pymysql.err.OperationalError(2013, f"Lost connection to MySQL server during query ({HIDDEN})"),
        pymysql.err.InterfaceError(0, ""),
        pymysql.err.Error("Already closed"),
        pymysql.err.InternalError("Packet sequence number wrong - got 2 expected 1"),
    ],
)
def test_a_connection_to_mysql_that_is_lost(error: Exception) -> None:
    """Directly, and under SQLAlchemy."""
    wrapped = [under_sqlalchemy(error, "mysql.pymysql", is_invalidated=known) for known in (False, True)]

    assert {outcome(one) for one in (error, *wrapped)} == {(Code.UNREACHABLE, UNKNOWN)}


@pytest.mark.parametrize(("number", "code"), [(1213, Code.BUSY), (1062, Code.CONFLICT), (2013, Code.UNREACHABLE)])
def test_other_drivers_of_mysql_are_read_by_their_errno(number: int, code: Code) -> None:
    """Under SQLAlchemy, as mysqlclient gives it: the first argument."""
    of_a_driver = type("DriverError", (Exception,), {"__module__": "MySQLdb._exceptions"})

    assert judged(exc.DBAPIError(HIDDEN, {}, of_a_driver(number, HIDDEN))).fault.code is code
