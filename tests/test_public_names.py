"""The names that users import: tracebacks and pickles call them what users call them."""

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import replan
from replan import Step
from tests.processes import ROOT

TRACEBACK = """
from replan import Client
from client.problem import Problem

print(Client)
raise Problem("code", "It is down", "start it")
"""
PROGRAM = """
from replan import AllowedEffect, Limits, Step, Term

steps = [
    Step(id="a", kind="look", args={"sku": "A-17"}),
    Step(id="b", kind="pay", needs=["a"], args={"amount": {"$from": "a", "path": "amount"}, "to": ["ann", None, 1.5]}),
    Step(id="c", kind="pay", needs=("a", "b")),
]
limits = Limits(tool_calls=3)
wrong = Step(id="d", kind="pay", needs=7)
"""


def test_every_class_is_named_by_the_module_that_users_import() -> None:
    """Where Replan defines it is nobody else's business, and may change."""
    ours = [thing for thing in (getattr(replan, name) for name in replan.__all__) if isinstance(thing, type)]
    others = {cls.__module__ for cls in ours if cls.__module__ != "replan"}

    assert {package.partition(".")[0] for package in others} <= {"sqlalchemy"}
    assert pickle.loads(pickle.dumps(Step(id="a", kind="b"))) == Step(id="a", kind="b")  # noqa: S301  # our own


def test_a_traceback_names_the_public_class() -> None:
    """Also of an exception that nobody imported, such as one that the client raises."""
    command = [sys.executable, "-c", TRACEBACK]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    assert done.stdout == "<class 'replan.Client'>\n"
    assert done.stderr.splitlines()[-1].startswith("replan.Problem: ")


@pytest.mark.full  # the quick gate checks the types of the tests, which have such plans, too
@pytest.mark.parametrize("plugin", [False, True], ids=["plain", "pydantic's plugin"])
def test_a_plan_in_a_program_is_type_checked(tmp_path: Path, plugin: bool) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text("[mypy]\nplugins = pydantic.mypy\n" if plugin else "[mypy]\n")
    cache = ROOT / ".mypy_cache" / "programs"
    words = ["--strict", "--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(cache / str(plugin))]
    command = [sys.executable, "-m", "mypy", *words, str(tmp_path / "program.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)

    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert len(errors) == 1 and 'Argument "needs" to "Step" has incompatible type "int"' in errors[0], done.stdout


def test_the_checked_arguments_of_a_step_are_its_fields() -> None:
    classes = ast.parse((ROOT / "workflows/plans/proposal.py").read_text()).body
    written = next(node for node in classes if isinstance(node, ast.ClassDef) and node.name == "Step")
    [init] = [node for node in ast.walk(written) if isinstance(node, ast.FunctionDef) and node.name == "__init__"]

    assert [argument.arg for argument in init.args.kwonlyargs] == list(Step.model_fields)
