"""Loading a user's tools file: what cannot be loaded is a sentence, and nothing of the user's gets in our way."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.toolbox.registry import Registry, ToolMistakes, load, load_all, load_module

ROOT = Path(__file__).parents[2]

TOOL = '''
from pydantic import BaseModel
from replan import tool


class Word(BaseModel):
    word: str


@tool.read
async def echo(args: Word) -> Word:
    """Say it again."""
    return args
'''


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test imports is not there for the next one."""
    path, modules = [*sys.path], {*sys.modules}
    yield
    sys.path[:] = path
    for name in {*sys.modules} - modules:
        del sys.modules[name]


def written(file: Path, source: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return file


def mistakes_of(file: Path) -> list[str]:
    """What is said of a file that cannot be loaded."""
    with pytest.raises(ToolMistakes) as wrong:
        load(file)
    return wrong.value.mistakes


UNUSABLE = {
    "raise RuntimeError('no luck\\nat all')": "mine.py:1 cannot be imported (RuntimeError: no luck): correct it there.",
    "raise ValueError": "mine.py:1 cannot be imported (ValueError): correct it there.",
    "import nowhere_at_all": "(ModuleNotFoundError: No module named 'nowhere_at_all'): install it for ",
    "x = 1\ndef broken(:": "mine.py:2 cannot be imported (SyntaxError: invalid syntax): correct it there.",
    "import sys\nsys.exit(3)": "mine.py:2 cannot be imported (SystemExit: 3): correct it there.",
    "x = 1": "mine.py defines no tool: decorate a function, e.g. with @tool.read.",
    "from tests.crash.tools import note": "mine.py defines no tool",
}


@pytest.mark.parametrize("source", UNUSABLE)
def test_a_file_that_cannot_be_used_is_a_sentence(tmp_path: Path, source: str) -> None:
    """Whatever a user's file does at import: one sentence, on one line, with the file's name."""
    (mistake,) = mistakes_of(written(tmp_path / "mine.py", source))

    assert UNUSABLE[source] in mistake and str(tmp_path) in mistake and "\n" not in mistake


def test_the_line_is_the_one_of_the_file_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a neighbour raises, and a path relative to here: the line is still one that its author finds."""
    written(tmp_path / "neighbour.py", "def fail():\n    raise KeyError('x')")
    written(tmp_path / "mine.py", "import neighbour\n\nneighbour.fail()")
    monkeypatch.chdir(tmp_path)

    assert mistakes_of(Path("mine.py")) == ["mine.py:3 cannot be imported (KeyError: 'x'): correct it there."]


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    """The folder of a tools file is searched, last of all."""
    written(tmp_path / "my_prices.py", "EUR = 24.5")

    assert load(written(tmp_path / "mine.py", f"from my_prices import EUR\n{TOOL}"))[0].__name__ == "echo"
    assert sys.path[-1] == str(tmp_path)


IN_PROCESSES = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pydantic import BaseModel
from replan import tool


class How(BaseModel):
    how: str


def square(how: How) -> int:
    return len(how.how) ** 2


@tool.read
def compute(args: How) -> int:
    \"\"\"Compute elsewhere.\"\"\"
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(args.how)) as pool:
        return pool.submit(square, args).result(60)
"""
IN_WORKER = """
import sys
from pathlib import Path
from activities.toolbox.registry import load

[compute] = load(Path(sys.argv[1]))
How = sys.modules[compute.function.__module__].How
print(*(compute.function(How(how=how)) for how in ("spawn", "forkserver", "fork")))
"""


@pytest.mark.parametrize("name", ["my_tools.py", pytest.param("json.py", marks=pytest.mark.full)])
def test_functions_of_a_file_can_be_sent_to_other_processes(tmp_path: Path, name: str) -> None:
    """However these are started, and whatever other module has the file's name."""
    file = written(tmp_path / name, IN_PROCESSES)
    command = [sys.executable, "-c", IN_WORKER, str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)

    assert done.stdout.split() == ["25", "100", "16"], done.stderr


def test_the_tools_of_a_file_are_those_it_defines_in_their_order(tmp_path: Path) -> None:
    """Not what it imported, not the same one twice under two names."""
    more = TOOL.replace("echo", "again").partition("@tool")[2]
    file = written(tmp_path / "mine.py", f"from tests.crash.tools import note\n{TOOL}\nalias = echo\n\n@tool{more}")

    assert [tool.__name__ for tool in load(file)] == ["echo", "again"]


def test_two_files_of_one_name_are_two_files_and_the_same_file_twice_is_a_mistake(tmp_path: Path) -> None:
    """`a/tools.py` and `b/tools.py` do not get in each other's way."""
    first = written(tmp_path / "a" / "tools.py", TOOL)
    second = written(tmp_path / "b" / "tools.py", TOOL.replace("echo", "other"))

    assert set(Registry([*load(first), *load(second)])) == {"echo", "other"}
    with pytest.raises(ToolMistakes, match="echo: another tool has this name already"):
        Registry([*load(first), *load(first)])


def test_all_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """One run says everything that is to be mended: an empty file, a missing one, a folder, another kind of file."""
    written(tmp_path / "empty.py", "")
    written(tmp_path / "mine.txt", TOOL)
    with pytest.raises(ToolMistakes) as wrong:
        load_all([str(tmp_path / name) for name in ("empty.py", "nowhere.py")])

    assert [mistake.split(":")[0] for mistake in wrong.value.mistakes] == [
        f"{tmp_path / 'empty.py'} defines no tool",
        f"There is no tools file {tmp_path / 'nowhere.py'}",
    ]
    assert mistakes_of(tmp_path)[0].startswith("There is no tools file")
    assert "is not a Python file: --tools takes files that end in .py" in mistakes_of(tmp_path / "mine.txt")[0]


def test_a_module_below_the_current_directory_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Last of all, so nothing there hides what is installed; a package has the tools that it imports from within."""
    written(tmp_path / "myshop" / "tools.py", TOOL)
    written(tmp_path / "myshop" / "__init__.py", "from tests.crash.tools import note\nfrom myshop.tools import echo")
    written(tmp_path / "json.py", "raise RuntimeError('the wrong one')")
    monkeypatch.chdir(tmp_path)

    assert [tool.__name__ for tool in load_all(["myshop.tools", "myshop.tools"])] == ["echo"]
    assert [tool.__name__ for tool in load_module("myshop")] == ["echo"]
    assert sys.path[-1] == str(tmp_path)


MODULES = {
    "nowhere": "There is no module nowhere, neither installed nor in {}: check --tools, or start the worker in",
    "nowhere.tools": "There is no module nowhere, neither installed nor in {}: check --tools",
    "myshop.tolls": "There is no module myshop.tolls in myshop: check --tools",
    "my-shop": "'my-shop' is neither a file that ends in .py nor the name of a module such as shop.tools.",
    "myshop": "myshop (myshop/__init__.py) defines no tool: decorate a function, e.g. with @tool.read, or name",
    "myshop.needy": "myshop/needy.py:2 cannot be imported (ModuleNotFoundError: No module named 'not_here'): install",
    "myshop.broken": "myshop/broken.py:1 cannot be imported (SyntaxError: invalid syntax): correct it there.",
    "notes.txt": "notes.txt is not a Python file: --tools takes files that end in .py",
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_cannot_be_used_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """What is missing and where it was looked for, or the place of the mistake."""
    written(tmp_path / "myshop" / "__init__.py", "")
    written(tmp_path / "myshop" / "needy.py", "import json\nimport not_here")
    written(tmp_path / "myshop" / "broken.py", "def (")
    written(tmp_path / "notes.txt", TOOL)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ToolMistakes) as wrong:
        load_all([name])

    assert str(wrong.value).startswith(MODULES[name].format(tmp_path))


def test_an_installed_package_brings_its_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its entry point; `--check` names the package, and what it cannot load is a mistake."""
    written(tmp_path / "site" / "myshop_tools.py", TOOL)
    info = tmp_path / "site" / "myshop-1.2.dist-info"
    written(info / "METADATA", "Metadata-Version: 2.1\nName: myshop\nVersion: 1.2\n")
    points = written(info / "entry_points.txt", "[replan.tools]\nx = myshop_tools\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)

    assert "echo  read           site/myshop_tools.py:10 (myshop 1.2)" in Registry(load_all([])).catalogue()
    assert list(load_all(["myshop_tools"]).values()) == [""]

    points.write_text("[replan.tools]\nx = not_here\n")
    with pytest.raises(ToolMistakes, match=r"^replan\.tools of myshop 1.2: There is no module not_here"):
        load_all([])
