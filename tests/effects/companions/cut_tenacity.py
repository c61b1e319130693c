"""A call that tenacity repeats, since its answer was lost."""

import mail_service
from tenacity import retry, stop_after_attempt, wait_fixed

from replan.effects import Effects

effects = Effects("sqlite:///agent.db", session="order-17")


@retry(stop=stop_after_attempt(4), wait=wait_fixed(0.1), reraise=True)
@effects.unkeyed
def send(to: str) -> str:
    """Mail somebody; the answer is lost."""
    mail_service.send(to, "receipt")
    raise TimeoutError


try:
    send("ann")
except Exception as error:
    print(type(error).__name__)
