"""The tools file with MCP servers: each mistake has its file and line, and no message has a secret."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from activities.toolbox.declare.tool import Tool
from activities.toolbox.mcp import tools_file, writing
from activities.toolbox.mcp.config import CannotOpen, Config
from activities.toolbox.mcp.loading import load_servers
from activities.toolbox.registry import ToolMistakes
from replan import tool
from tests.mcp.foreign import loaded, table, written
from workflows.plans.catalogue import Effect

SHOP = '[servers.shop]\ncommand = ["x"]\n'
WEB = '[servers.shop]\nurl = "https://shop.example/mcp"\n'
DO = f"{SHOP}[servers.shop.tools.do]\n"
TEXTS = f"{SHOP}[servers.shop.errors]\n"
WHOLE = """
[servers.shop]
command = ["uvx", "shop"]
env = { KEY = "SHOP_KEY", OTHER = "file:secrets/other" }
cwd = "below"
trusted = false
trusted_results = true
roots = ["data"]
only = ["do"]
reads = ["look", "count_*"]
default = "unkeyed"
timeout = 5
limit = "10/s"
credential = "SHOP_KEY"
[servers.shop.tools.do]
effect = "keyed"
key = "request"
reviewed = "abc"
mark = "text"
description = "Does it."
observe = { kind = "shop.look", using = { text = "args.text" } }
reconcile = { kind = "shop.count", using = { text = "args.text" }, applied_if = "result.count > 0", result = "count" }
errors = "before"
settle = 1.5
undo = { kind = "shop.undo" }
fallback = "shop.other"
ensure = "result.done"
approve = "always"
retry = "once"
timeout = 1
untrusted = false
authority = ["text"]
content = []
service = "shop"
credential = "OTHER"
limit = "1/s"
[servers.shop.errors]
"sold out" = { code = "conflict", applied = "none", in_success = true }
[servers.far]
url = "https://shop.example/mcp"
headers = { X-Key = "SHOP_KEY" }
oauth = { client_id = "ID", client_secret = "file:secret", issuer = "https://id.example", scope = "all" }
"""


def mistakes_of(folder: Path, text: str | bytes) -> list[str]:
    """What is said of a file, with its folder left out."""
    file = folder / "shop.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(tools_file.BadToolsFile) as bad:
        tools_file.read(file)
    return [mistake.replace(f"{folder}/", "") for mistake in bad.value.mistakes]


def test_a_file_may_have_every_word(tmp_path: Path) -> None:
    """And nothing of it is lost: each field of each table is set, and read as it was written."""
    read = tools_file.read(written(tmp_path, WHOLE))
    shop, far = read.servers["shop"], read.servers["far"]
    do, row, oauth = shop.tools["do"], shop.errors["sold out"], far.oauth

    assert oauth is not None and do.reconcile is not None and do.effect is Effect.KEYED and do.authority == ("text",)
    assert {*type(shop).model_fields} == {*shop.model_fields_set, *far.model_fields_set}
    for filled in (do, row, oauth, do.reconcile):
        assert {*type(filled).model_fields} == {*filled.model_fields_set}


MISTAKES: dict[str, tuple[str | bytes, str]] = {
    "no such table": (f"{SHOP}[server.x]\n", "shop.toml:3: server is no setting: did you mean servers?"),
    "no such setting": (f"{SHOP}trustd = true\n", "shop.toml:3: servers.shop.trustd is no setting: did you mean trust"),
    "nothing like it": (f"{SHOP}zzz = 1\n", "shop.toml:3: servers.shop.zzz is no setting: there are command, url, env"),
    "of a tool": (
        f'{DO}effekt = "read"\n',
        "shop.toml:4: servers.shop.tools.do.effekt is no setting: did you mean eff",
    ),
    "of a companion": (
        f'{DO}observe = {{ kind = "a", usin = {{}} }}\n',
        "shop.toml:4: servers.shop.tools.do.observe.usin is no setting: did you mean using?",
    ),
    "of a reconcile": (
        f'{SHOP}[servers.shop.tools.do.reconcile]\nkind = "a"\napplied_when = "x"\n',
        "shop.toml:5: servers.shop.tools.do.reconcile.applied_when is no setting: did you mean applied_if?",
    ),
    "of oauth": (
        f'{WEB}[servers.shop.oauth]\nclient_id = "A"\nclient_secret = "B"\nscop = "x"\n',
        "shop.toml:6: servers.shop.oauth.scop is no setting: did you mean scope?",
    ),
    "of a text": (
        f'{TEXTS}"a = b" = {{ code = "busy", aplied = "none" }}\n',
        "shop.toml:4: servers.shop.errors.a = b.aplied is no setting: did you mean applied?",
    ),
    "no kind": (f"{DO}undo = {{ using = {{}} }}\n", "shop.toml:4: servers.shop.tools.do.undo.kind is missing"),
    "no code": (f'{TEXTS}"x" = {{ applied = "none" }}\n', "shop.toml:4: servers.shop.errors.x.code is missing"),
    "neither": ("\n[servers.shop]\n", 'shop.toml:2: servers.shop needs either command = [...] or url = "..."'),
    "both": (f'{SHOP}url = "https://x"\n', "shop.toml:1: servers.shop needs either command"),
    "headers": (f'{SHOP}headers = {{ A = "B" }}\n', "shop.toml:1: servers.shop has headers, which is for a url"),
    "env": (f'{WEB}env = {{ A = "B" }}\n', "shop.toml:1: servers.shop has env, which is for a command"),
    "capitals": ('[servers.Shop]\ncommand = ["x"]\n', "shop.toml:1: servers.Shop is no name of a server: use small"),
    "a blank": ('\n[servers."a b"]\ncommand = ["x"]\n', "shop.toml:2: servers.a b is no name of a server: use small"),
    "code": (
        f'{TEXTS}"x" = {{ code = "conflikt" }}\n',
        "shop.toml:4: servers.shop.errors.x.code is no code: did you mean conflict?: use one of bug, busy",
    ),
    "a code of Replan": (
        f'{TEXTS}"x" = {{ code = "worker_lost" }}\n',
        "shop.toml:4: servers.shop.errors.x.code is no code",
    ),
    "applied": (
        f'{TEXTS}"x" = {{ code = "busy", applied = "all" }}\n',
        "shop.toml:4: servers.shop.errors.x.applied cannot be 'all': input should be 'none' or 'unknown'",
    ),
    "effect": (
        f'{DO}effect = "reads"\n',
        "shop.toml:4: servers.shop.tools.do.effect cannot be 'reads': input should be 'read', 'idempotent'",
    ),
    "a text for a list": (
        '[servers.shop]\ncommand = "uvx x"\n',
        "shop.toml:2: servers.shop.command cannot be 'uvx x': write a list",
    ),
    "an empty list": ("[servers.shop]\ncommand = []\n", "shop.toml:2: servers.shop.command cannot be '[]': write at"),
    "a text for a table": ('servers.shop = "x"\n', "shop.toml:1: servers.shop cannot be 'x': write a table"),
    "a number for a text": (
        f"{SHOP}env = {{ A = 5 }}\n",
        "shop.toml:3: servers.shop.env.A cannot be '5': write a text",
    ),
    "no number": (f"{SHOP}timeout = nan\n", "shop.toml:3: servers.shop.timeout cannot be 'nan': input should be a fin"),
    "a number as a text": (
        f'{SHOP}timeout = "5"\n',
        "shop.toml:3: servers.shop.timeout cannot be '5': input should",
    ),
    "a word for true or false": (
        f'{SHOP}trusted = "no"\n',
        "shop.toml:3: servers.shop.trusted cannot be 'no': input should be a valid boolean",
    ),
    "another scheme": ('[servers.shop]\nurl = "ftp://x"\n', "shop.toml:2: servers.shop.url is no address: begin with"),
    "a password": (
        '[servers.shop]\nurl = "https://me:hidden@x"\n',
        "shop.toml:2: servers.shop.url is no address: begin with http:// or https://, and put user and password",
    ),
    "nothing": ("", "shop.toml: servers is missing: begin with [servers.NAME]"),
    "no server": ("[servers]\n", "shop.toml:1: servers cannot be '{}'"),
    "no TOML": ("a = \n", "shop.toml is no TOML (Invalid value (at line 1, column 5)): correct it"),
    "twice": (SHOP + SHOP, "shop.toml is no TOML (Cannot declare ('servers', 'shop') twice (at line 3"),
    "no UTF-8": (b"a = '\xe9'", "shop.toml is no TOML ('utf-8' codec can't decode byte 0xe9"),
    "too deep": (f"a = {'[' * 5_000}", "shop.toml is no TOML (maximum recursion depth"),
    "too long a number": (f"a = {'9' * 5_000}", "shop.toml is no TOML (Exceeds the limit"),
    "too large": ("#" * (tools_file.MAX_FILE + 1), "shop.toml has more than 1048576 bytes"),
}


@pytest.mark.parametrize(("text", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_has_its_line_and_what_to_do(tmp_path: Path, text: str | bytes, words: str) -> None:
    """One sentence each, without a password that somebody wrote into it."""
    [mistake] = mistakes_of(tmp_path, text)

    assert mistake.startswith(words) and "\n" not in mistake and "hidden" not in mistake


LINES: dict[str, tuple[str, int]] = {
    "quoted": (f"{SHOP}[ servers . \"shop\" . 'tools' . 'do' ] # x = y\n  effect = \"bad\"\n", 4),
    "quoted name with signs": (f'{SHOP}[servers.shop.tools."a]\\"b = c"] \neffect = "bad"\n', 4),
    "dotted": ('servers.shop.command = ["x"]\n\nservers . shop.tools."do".effect = "bad"\n', 3),
    "list of lines": (
        '[servers.shop]\ncommand = [\n  "x", # [y]\n  "effect = 1",\n]\n[servers.shop.tools.do]\neffect = "bad"\n',
        7,
    ),
    "text of lines": (f'{DO}description = """\n[servers.shop.tools.do]\neffect = "x"\n"""\neffect = "bad"\n', 8),
    "inline tables": (f'{SHOP}tools = {{ do = {{ effect = "bad" }} }}\n', 3),
    "comments": (f'{SHOP}# [servers.shop.tools.do]\n# effect = "bad"\n[servers.shop.tools.do]\neffect = "bad"\n', 6),
    "other line ends": (f'{DO}effect = "bad"\n'.replace("\n", "\r\n"), 4),
    "signs that are line ends elsewhere": (f'{SHOP}# \u2028 \x85\n[servers.shop.tools.do]\neffect = "bad"\n', 5),
    "a mark at the beginning": (f'\ufeff{DO}effect = "bad"\n', 4),
    "another server before": (f'{SHOP.replace("shop", "far")}{DO}effect = "bad"\n', 6),
}


@pytest.mark.parametrize(("text", "line"), LINES.values(), ids=LINES)
def test_the_line_is_that_of_the_mistake(tmp_path: Path, text: str, line: int) -> None:
    """However TOML is written."""
    [mistake] = mistakes_of(tmp_path, text)

    assert mistake.startswith(f"shop.toml:{line}: servers.shop.tools.")


def test_all_mistakes_come_at_once(tmp_path: Path) -> None:
    """Nobody corrects a file mistake by mistake."""
    text = f'{DO}effect = "bad"\n[servers.far]\nurl = 5\nwrong = 1\n[servers.shop.errors]\nx = {{ code = "y" }}\n'

    assert [mistake.partition(": ")[0] for mistake in mistakes_of(tmp_path, text)] == [
        f"shop.toml:{line}" for line in (4, 9, 6, 7)
    ]


@pytest.mark.parametrize(("name", "words"), [("no.toml", "There is no tools file"), (".", "Is a directory")])
def test_what_is_no_file_is_a_sentence(tmp_path: Path, name: str, words: str) -> None:
    """With the option that names it."""
    with pytest.raises(tools_file.BadToolsFile, match=f"{words}.*: check --tools"):
        tools_file.read(tmp_path / name)


ENVIRONMENT = {"SHOP_KEY": "hidden-1", "ID": "me", "TOKEN": "hidden-2", "BASIC": "Basic hidden-3"}


def config_of(folder: Path, server: str, environment: Mapping[str, str] = ENVIRONMENT) -> Config:
    read = tools_file.read(written(folder, WHOLE))
    return Config.of(server, read.servers[server], environment, folder)


def test_values_are_looked_up_and_not_shown(tmp_path: Path) -> None:
    """Files and folders are beside the tools file, wherever the worker was started."""
    (tmp_path / "secrets").mkdir()
    written(tmp_path, "hidden-4\n", "secrets/other")
    written(tmp_path, " hidden-5 ", "secret")
    shop, far = config_of(tmp_path, "shop"), config_of(tmp_path, "far")

    assert shop.env == {"KEY": "hidden-1", "OTHER": "hidden-4"} and far.headers == {"X-Key": "hidden-1"}
    assert (far.client_id, far.client_secret, far.issuer, far.scope) == ("me", "hidden-5", "https://id.example", "all")
    assert (shop.cwd, shop.roots) == (str(tmp_path / "below"), [str((tmp_path / "data").resolve())])
    assert "hidden" not in f"{shop!r} {far!r}"


@pytest.mark.parametrize(("name", "sent"), [("TOKEN", "Bearer hidden-2"), ("BASIC", "Basic hidden-3")])
@pytest.mark.parametrize("header", ["Authorization", "authorization"])
def test_a_value_without_a_blank_is_a_token(tmp_path: Path, header: str, name: str, sent: str) -> None:
    """Most people keep the token alone in a variable."""
    server = tools_file.read(written(tmp_path, f'{WEB}headers = {{ {header} = "{name}" }}\n')).servers["shop"]

    assert Config.of("shop", server, ENVIRONMENT, tmp_path).headers == {header: sent}


@pytest.mark.parametrize(
    ("server", "words"),
    [("shop", "the variable SHOP_KEY is not set"), ("far", "the file {folder}/secret cannot be read")],
)
def test_what_is_missing_is_named(tmp_path: Path, server: str, words: str) -> None:
    """By the name in the file, never with a value of another."""
    environment = {} if server == "shop" else ENVIRONMENT
    with pytest.raises(CannotOpen) as missing:
        config_of(tmp_path, server, environment)

    assert str(missing.value) == words.format(folder=tmp_path)


class Text(BaseModel):
    """A text."""

    text: str = ""


@tool.read
async def look(args: Text) -> Text:
    """Look."""
    return args


async def named_like_a_servers(args: Text) -> Text:
    """Do it."""
    return args


named_like_a_servers.__name__ = "shop.do"
TAKEN: Tool[..., Any] = tool.read(named_like_a_servers)

OK = table()
COUNTING = "[servers.shop.tools.do]\nreconcile = {{ kind = 'shop.count', applied_if = {} }}\n"
WRONG: dict[str, tuple[str, list[tuple[int, str]]]] = {
    "tools that it has not": (
        f"{OK}only = ['look', 'cont']\n[servers.shop.tools.doo]\n",
        [(4, "shop has no tool 'doo': did you mean do?"), (3, "shop has no tool 'cont': did you mean count?")],
    ),
    "kinds that there are not": (
        f"{OK}[servers.shop.tools.do]\nobserve = {{ kind = 'shop.lok' }}\nundo = {{ kind = 'nothing' }}\n"
        "fallback = 'shop.plian'\nreconcile = { kind = 'shop.cuont' }\n",
        [
            (3, "shop.do: observe names 'shop.lok', which is in no tools file: did you mean shop.look"),
            (3, "shop.do: undo names 'nothing', which is in no tools file: load it."),
            (3, "shop.do: fallback names 'shop.plian', which is in no tools file: did you mean shop.plain"),
            (3, "shop.do: reconcile names 'shop.cuont', which is in no tools file: did you mean shop.count"),
        ],
    ),
    "paths that are none": (
        f"{OK}[servers.shop.tools.do]\nobserve = {{ kind = 'shop.look', using = {{ text = 5 }} }}\n",
        [(3, "shop.do: observe takes 'text' from no path: write e.g. using = { text = \"args.text\" }")],
    ),
    "keyed without a key": (
        f"{OK}[servers.shop.tools.do]\neffect = 'keyed'\n",
        [(3, 'shop.do: effect = "keyed" needs key = "ARGUMENT"')],
    ),
    "a key without keyed": (
        f"{OK}[servers.shop.tools.do]\nkey = 'text'\n",
        [(3, 'shop.do: key has a meaning only with effect = "keyed": leave it out.')],
    ),
    "a key that is no argument": (
        f"{OK}[servers.shop.tools.do]\neffect = 'keyed'\nkey = 'txt'\n",
        [(3, "shop.do: has no argument 'txt': did you mean text?: key names one of ['text']")],
    ),
    "transactional": (
        f"{OK}[servers.shop.tools.do]\neffect = 'transactional'\n",
        [(3, 'shop.do: effect = "transactional" is for Python tools')],
    ),
    "a condition by no read": (
        f"{OK}[servers.shop.tools.do]\nreconcile = {{ kind = 'shop.plain', applied_if = '1 == 1' }}\n",
        [(3, "shop.do: reconcile = shop.plain with applied_if must be a read of a server in a tools file")],
    ),
    "a condition by a Python tool": (
        f"{OK}[servers.shop.tools.do]\nreconcile = {{ kind = 'look', applied_if = '1 == 1' }}\n",
        [(3, "shop.do: reconcile = look with applied_if must be a read of a server in a tools file")],
    ),
    "no condition": (OK + COUNTING.format("'result.count >'"), [(3, "shop.do: reconcile: shop.do: applied_if=")]),
    "names of no value": (
        OK + COUNTING.format("'args.txt == call.at'"),
        [
            (3, "shop.do: reconcile: shop.do: applied_if reads 'args.txt': did you mean text?"),
            (3, "shop.do: reconcile: shop.do: applied_if reads 'call.at': did you mean claimed_at?"),
        ],
    ),
    "arguments of the read": (
        f"{OK}[servers.shop.tools.do.reconcile]\nkind = 'shop.count'\napplied_if = 'result.count > 0'\n"
        "using = { txt = 'args.text', since = 'call.at', text = 'args.txt' }\n",
        [
            (3, "shop.do: reconcile: shop.count has no argument 'txt': did you mean text?"),
            (3, "shop.do: reconcile: since = 'call.at' leads nowhere"),
            (3, "shop.do: reconcile: text = 'args.txt' leads nowhere: did you mean text?"),
        ],
    ),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_the_server_has_its_line(tmp_path: Path, text: str, expected: list[tuple[int, str]]) -> None:
    """All of it at once, before a worker takes a task."""
    with pytest.raises(ToolMistakes) as wrong:
        loaded(tmp_path, text, others=(look,))

    assert len(wrong.value.mistakes) == len(expected), wrong.value.mistakes
    for mistake, (line, words) in zip(wrong.value.mistakes, expected, strict=True):
        assert mistake.startswith(f"{tmp_path}/shop.toml:{line}: {words}")


def test_a_name_of_a_python_tool_is_taken(tmp_path: Path) -> None:
    """Else one of them would hide the other."""
    with pytest.raises(ToolMistakes, match=r"shop.toml:1: shop.do: another tool has this name already"):
        loaded(tmp_path, OK, others=(TAKEN,))


def test_a_server_has_one_table(tmp_path: Path) -> None:
    """Of all files of a worker; and every file's mistakes come at once, before a server is started."""
    first, second = written(tmp_path, SHOP, "a.toml"), written(tmp_path, f"\n{SHOP}", "b.toml")
    third = written(tmp_path, '[servers.far]\nurl = "https://x"\nheaders = { A = "MISSING" }\n', "c.toml")
    with pytest.raises(ToolMistakes) as wrong:
        load_servers([str(first), str(second), str(third), str(tmp_path / "d.toml")], {}, ())

    assert wrong.value.mistakes == [
        f"{second}:2: the server shop is in {first}:1, too: rename one.",
        f"{third}:1: far: the variable MISSING is not set: set it, or correct the file.",
        f"There is no tools file {tmp_path}/d.toml: check --tools.",
    ]


def test_a_server_that_cannot_be_started_has_its_line(tmp_path: Path) -> None:
    """With the reason; all such servers at once."""
    text = f"{table('exit-at-start', server='ends')}[servers.none]\ncommand = {json.dumps(['/nowhere/server'])}\n"
    with pytest.raises(ToolMistakes) as wrong:
        loaded(tmp_path, text)
    ends, none = wrong.value.mistakes

    assert ends.startswith(f"{tmp_path}/shop.toml:1: the server ends cannot be asked for its tools: ")
    assert none.startswith(f"{tmp_path}/shop.toml:3: the server none cannot be asked for its tools: ")


def test_only_some_tools_may_be_offered(tmp_path: Path) -> None:
    """In the order of the server."""
    found = loaded(tmp_path, f"{OK}only = ['look', 'do']\n")

    assert [made.__name__ for made in found.tools] == ["shop.do", "shop.look"]


def test_a_person_gets_a_file_to_classify_the_tools_in(tmp_path: Path) -> None:
    """It has what was written before, also of a server of which no tool is offered, and a table for each other tool."""
    files = [written(tmp_path, table()), written(tmp_path, f"{table(server='other')}only = []\n", "other.toml")]
    foreign = load_servers([str(file) for file in files], {}, ())
    whole = tmp_path / "whole.toml"

    said = writing.write(whole, foreign.files, foreign.classified)
    again = load_servers([str(whole)], {}, ())

    assert f"{len(foreign.classified)} of them new" in said
    assert (set(again.configs), all(found.is_in_file for found in again.classified)) == ({"shop", "other"}, True)
    assert {tool.__name__ for tool in again.tools} == {tool.__name__ for tool in foreign.tools}
    assert all(found.unread == "new" for found in foreign.classified)
    assert not any(found.unread for found in again.classified)
    with pytest.raises(ToolMistakes, match="exists already"):
        writing.write(whole, foreign.files, foreign.classified)


FORMS: dict[str, str] = {
    "tables": f"{OK}[servers.shop.tools.do]  # mine\neffect = 'keyed'\nkey = 'text'\n\n# the end\n",
    "a stale digest": f"{OK}[servers.shop.tools.do]\n reviewed = 'gone'  # by ann\neffect = 'read'\n",
    "dotted": f"{OK}tools.do.effect = 'read'  # mine\n",
    "only a part": f"{OK}[servers.shop.tools.do.observe]\nkind = 'shop.look'\nusing = {{ text = 'args.text' }}\n",
    "no table": f"{OK}# the end\n",
    "no last line end": f"{OK}trusted = false",
    "a text of several lines": f"{OK}[servers.shop.tools.do]\ndescription = '''\n[servers.x]\n'''\n",
    "windows": f"{OK}[servers.shop.tools.do]\neffect = 'read'\n".replace("\n", "\r\n"),
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_a_file_keeps_what_a_person_wrote_when_it_is_reviewed(tmp_path: Path, text: str) -> None:
    """Each line of it is there, in its order; then a second run changes nothing."""
    file = tmp_path / "shop.toml"
    file.write_bytes(text.encode())
    foreign = load_servers([str(file)], {}, ())
    writing.write(file, foreign.files, foreign.classified)
    whole = file.read_bytes().decode()
    again = load_servers([str(file)], {}, ())

    kept = iter(whole.splitlines())
    assert all(line in kept for line in text.replace("reviewed = 'gone'", again.classified[0].entry).splitlines())
    assert not any(found.unread for found in again.classified) and ("\r\n" in whole) is ("\r\n" in text)
    assert "nothing was changed" in writing.write(file, again.files, again.classified)
    assert file.read_bytes().decode() == whole and [*tmp_path.iterdir()] == [file]


def test_a_table_that_has_no_line_is_named(tmp_path: Path) -> None:
    """And the file stays as it was."""
    file = written(tmp_path, f"{OK}tools = {{ do = {{ effect = 'read' }} }}\n")
    foreign, before = load_servers([str(file)], {}, ()), file.read_bytes()

    with pytest.raises(ToolMistakes, match=r"shop\.toml.*tables of their own"):
        writing.write(file, foreign.files, foreign.classified)

    assert file.read_bytes() == before and [*tmp_path.iterdir()] == [file]


def test_what_is_reviewed_is_shown_whole(tmp_path: Path) -> None:
    """Nobody has read what is not shown: above a new table, and to who runs the command."""
    file = written(tmp_path, OK)
    foreign = load_servers([str(file)], {}, ())
    said = writing.write(file, foreign.files, foreign.classified)
    comments = {line.removeprefix("# ") for line in file.read_text().splitlines() if line.startswith("# ")}

    for words in (line for found in foreign.classified for line in found.words()):
        assert f"    {words}\n" in said and any(words.startswith(comment) for comment in comments)


def test_only_the_servers_of_the_file_are_reviewed(tmp_path: Path) -> None:
    """Another tools file has its own command; `--check` names both."""
    files = [written(tmp_path, table()), written(tmp_path, table(server="other"), "other.toml")]
    names = [str(file) for file in files]
    foreign = load_servers(names, {}, ())
    before = [*writing.unread_lines(foreign.classified, ["my tools.py", *names])]
    writing.write(files[0], foreign.files, foreign.classified)
    left = load_servers(names, {}, ()).classified

    assert {found.kind.partition(".")[0] for found in left if found.unread} == {"other"}
    assert [line.endswith(f"--tools {names[1]} --write-tools {name}") for line, name in zip(before, names, strict=True)]
    assert "worker.py --check --tools 'my tools.py'" in before[0]
    assert len([*writing.unread_lines(left, names)]) == 1


def listing(*tools: tuple[str, tuple[str, ...] | None, bool]) -> str:
    """A list of tools: by name, the fields of its output schema, and whether the server says that it only reads."""
    return json.dumps(
        {
            "tools": [
                {
                    "name": name,
                    "inputSchema": {"type": "object"},
                    "annotations": {"readOnlyHint": is_read},
                    **({"outputSchema": {"type": "object", "properties": {key: {} for key in out}}} if out else {}),
                }
                for name, out, is_read in tools
            ]
        }
    )


TOOLS = listing(
    ("shop_pay", ("id", "message", "status"), False),
    ("shop_get_order", None, False),
    ("shop_now", None, True),
    ("shop_get_user", None, False),
    ("shop_frobnicate", ("error",), False),
    ("shop_search", None, False),
    ("shop_weigh", ("ok",), True),
    ("shop_buy", ("id",), False),
)


def classified_in(folder: Path, tools: str, more: str = "") -> tuple[str, str]:
    """What `--write-tools` prints, and writes into a new file, of a server with these tools."""
    (folder / "list.json").write_text(tools)
    file = written(folder, table("listed", "--contents", folder / "list.json") + more)
    foreign = load_servers([str(file)], {}, ())
    said = writing.write(folder / "new.toml", foreign.files, foreign.classified)
    load_servers([str(folder / "new.toml")], {}, ())
    return said, (folder / "new.toml").read_text()


def test_likely_reads_come_first_and_stay_what_they_are(tmp_path: Path) -> None:
    """A guess by a name is a comment; what the server says of its tool is not."""
    _, file = classified_in(tmp_path, TOOLS)
    effects = {name: row.effect for name, row in tools_file.read(tmp_path / "new.toml").servers["shop"].tools.items()}
    first = '# reads = ["shop_get_*", "shop_search"]  # 3 tools look like reads by the name: check'

    assert [*effects] == [
        *("shop_now", "shop_weigh", "shop_get_order", "shop_get_user", "shop_search"),
        *("shop_pay", "shop_buy", "shop_frobnicate"),
    ]
    assert {name for name, effect in effects.items() if effect is Effect.READ} == {"shop_now", "shop_weigh"}
    assert file.count("# ---- ") == 4 and file.split("[servers.shop]\n")[1].startswith(first)


def test_a_proposed_pattern_fits_no_other_tool(tmp_path: Path) -> None:
    """And it goes on with the patterns that the file has."""
    tools = listing(*((name, None, False) for name in ("get_a", "get_b", "get_or_create", "listOne", "listTwo", "do")))
    _, file = classified_in(tmp_path, tools, 'reads = ["see_*"]\n')

    assert '# reads = ["see_*", "get_a", "get_b", "list[A-Z]*"]  # 4 tools' in file


def test_what_of_a_success_is_an_error_is_said(tmp_path: Path) -> None:
    """Of tools that may change something; of those without an output schema together."""
    said, _ = classified_in(tmp_path, TOOLS)
    lines = said.split("\nA success may be an error (docs/mcp.md#what-errors-mean):\n")[1].splitlines()

    assert lines[0].startswith('  shop.shop_pay failed if its result has status = "error" or ')
    assert lines[0].endswith("and message: any other result counts as a success.")
    assert lines[1] == "  shop.shop_frobnicate returns error, which alone counts as a success."
    assert lines[2].startswith("  shop has tools that are no reads and have no output schema (3).")
    assert len(lines) == 3
