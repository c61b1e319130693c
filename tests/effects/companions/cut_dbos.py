"""A step of DBOS that is retried, since the answer of its first attempt was lost."""

import os

import mail_service
from dbos import DBOS

from replan.effects import Effects

effects = Effects("sqlite:///agent.db", session="order-17")
lost = [TimeoutError()]


@effects.unkeyed(reconcile=lambda to: None if lost else mail_service.find_mail(to, "receipt"))
def send(to: str) -> str:
    mail = mail_service.send(to, "receipt")
    raise lost.pop() if lost else AssertionError(mail)


@DBOS.step(retries_allowed=True, max_attempts=4, interval_seconds=0.1)
def mail(to):
    with effects.scope(session=DBOS.workflow_id, key=str(DBOS.step_id)):
        return send(to)


@DBOS.workflow()
def order():
    return mail("ann")


DBOS(config={"name": "shop", "system_database_url": "sqlite:///shop.sqlite"})
DBOS.launch()
print(order(), flush=True)
effects.close()
os._exit(0)
