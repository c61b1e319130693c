"""The program of the recipe for DBOS: mails in a workflow, which is recovered when it starts again."""

import os

import with_dbos
from dbos import DBOS, SetWorkflowID


@DBOS.workflow()
def order():
    """Mail three times, twice the same."""
    return [with_dbos.mail(to, "receipt") for to in ("ann", "bob", "ann")]


DBOS(config={"name": "shop", "system_database_url": "sqlite:///shop.sqlite"})
DBOS.launch()
with SetWorkflowID("order-17"):
    print(*DBOS.start_workflow(order).get_result(), sep="\n", flush=True)
with_dbos.effects.close()
os._exit(0)  # its threads would go on
