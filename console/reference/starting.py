"""The words for whatever keeps a worker from starting, by the class of the exception."""

from collections.abc import Mapping

from console.problem import Exit
from console.reference.entry import Entry

STARTING: Mapping[str, tuple[Exit, Entry]] = {
    "ToolMistakes": (
        Exit.BAD_USAGE,
        Entry("a tools file has mistakes, all named at once", "mend them; `--check` looks without a server"),
    ),
    "BadBreak": (Exit.BAD_USAGE, Entry("`--break` names no tool or no fault", "[tools.md](tools.md#break-it)")),
    "BadReach": (Exit.BAD_USAGE, Entry("`--allow-host` is no host and no network", "write a name or `10.0.0.0/8`")),
    "BadSetting": (Exit.BAD_USAGE, Entry("a folder cannot be used, or an option needs `--dev`", "choose another")),
    "BadSettings": (
        Exit.BAD_USAGE,
        Entry("the settings file cannot be read, or says what is no setting", "[models.md](models.md#budgets)"),
    ),
    "StoreUnavailable": (
        Exit.BAD_USAGE,
        Entry("the store cannot be opened", "check `--store`, `REPLAN_STORE`, `--state`, and that its driver is there"),
    ),
    "UnknownPlanner": (
        Exit.BAD_USAGE,
        Entry("`--planner` names none, or its key is missing", "[models.md](models.md)"),
    ),
    "NotConnected": (
        Exit.UNREACHABLE,
        Entry("no server answers, or it refuses the namespace or the credentials", "`python starter.py doctor`"),
    ),
    "ServerUnavailable": (
        Exit.UNREACHABLE,
        Entry("`--dev` cannot start a server: no program, its port is taken, its database in use", "as it says"),
    ),
    "RPCError": (Exit.UNREACHABLE, Entry("the server broke off while the worker started", "start the worker again")),
}
