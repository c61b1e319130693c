"""A transactional function may write into the database of the store itself, if that is PostgreSQL."""

from sqlalchemy import Connection, create_engine, make_url, text

from evals.fakes.postgresql import Cluster
from replan.effects import Effects


def test_a_transactional_function_may_use_the_database_of_the_store(postgresql: Cluster) -> None:
    """Its row there is another one than that of the call, and is listed with no session."""
    name = postgresql.create()
    url = make_url(postgresql.url(name)).set(drivername="postgresql+psycopg")
    engine = create_engine(url)
    with engine.begin() as tx:
        tx.execute(text("CREATE TABLE moved (amount int)"))
    effects = Effects(url.render_as_string(hide_password=False), session="s")

    @effects.transactional(engine)
    def move(amount: int, tx: Connection) -> int:
        tx.execute(text("INSERT INTO moved VALUES (:amount)"), {"amount": amount})
        return amount

    with effects.scope(key="1"):
        results = [move(3), move(3)]
    with engine.begin() as tx:
        moved = tx.execute(text("SELECT amount FROM moved")).scalars().all()
    calls = effects.calls()
    effects.close()
    engine.dispose()
    postgresql.drop(name)

    assert (results, moved, [call.state for call in calls]) == ([3, 3], [3], ["applied"])
