"""Forms of your own: how people write requests for your tools where no model plans (docs/offline-planner.md).

A tool has them in its decorator, `@tool.read(forms=[Form(...)])`. Most need `Form` alone; the rest is for the function
of a form, which makes its calls: what a call is, what pronouns stand for, and how texts, days and times are read.
"""

from activities.offline.forms import CONTENT, IT, NAME, NUMBER, QUOTED, TEXT, THEM, pronoun
from activities.offline.grammar import WEEKDAYS, format_time, parse_day, parse_time, read_name, read_words, unquote
from activities.toolbox.declare.form import CallResult, Calls, Form, PlannedCall, Pronoun, Read, Referent, Things, Value

__all__ = [
    "CONTENT",
    "IT",
    "NAME",
    "NUMBER",
    "QUOTED",
    "TEXT",
    "THEM",
    "WEEKDAYS",
    "CallResult",
    "Calls",
    "Form",
    "PlannedCall",
    "Pronoun",
    "Read",
    "Referent",
    "Things",
    "Value",
    "format_time",
    "parse_day",
    "parse_time",
    "pronoun",
    "read_name",
    "read_words",
    "unquote",
]
