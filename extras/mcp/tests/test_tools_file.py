"""The tools file with MCP servers: each mistake has its file and line, and no message has a secret."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from activities.toolbox.declare.tool import Tool
from activities.toolbox.registry import ToolMistakes
from extras.mcp import tools_file, writing
from extras.mcp.config import CannotOpen, Config
from extras.mcp.loading import load_servers
from extras.mcp.tests.foreign import loaded, table, written
from replan import tool
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
approve = { when = "always", by = "role:a", count = 2, not_starter = true, after = "4h escalate role:b" }
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

    assert isinstance(do.approve, tools_file.ApproveTable) and oauth is not None
    assert do.reconcile is not None and do.effect is Effect.KEYED and do.authority == ("text",)
    assert {*type(shop).model_fields} == {*shop.model_fields_set, *far.model_fields_set}
    for filled in (do, row, oauth, do.reconcile, do.approve):
        assert {*type(filled).model_fields} == {*filled.model_fields_set}


MISTAKES: list[tuple[str, int, str]] = [
    (f"{SHOP}[server.x]\n", 3, "server is no setting: did you mean servers?"),
    (f"{SHOP}trustd = true\n", 3, "_.trustd is no setting: did you mean trust"),
    (f"{SHOP}zzz = 1\n", 3, "_.zzz is no setting: there are command, url, env"),
    (f'{DO}effekt = "read"\n', 4, "_.tools.do.effekt is no setting: did you mean eff"),
    (f'{DO}undo = {{ kind = "a", usin = {{}} }}\n', 4, "_.tools.do.undo.usin is no setting: did you mean using?"),
    (
        f'{DO}reconcile.kind = "a"\nreconcile.applied_when = "x"\n',
        5,
        "_.tools.do.reconcile.applied_when is no setting: did you mean applied_if?",
    ),
    (
        f'{WEB}[servers.shop.oauth]\nclient_id = "A"\nclient_secret = "B"\nscop = "x"\n',
        6,
        "_.oauth.scop is no setting: did you mean scope?",
    ),
    (
        f'{TEXTS}"a = b" = {{ code = "busy", aplied = "none" }}\n',
        4,
        "_.errors.a = b.aplied is no setting: did you mean applied?",
    ),
    (
        f'{DO}approve = {{ by = "role:a", cuont = 2 }}\n',
        4,
        "_.tools.do.approve.cuont is no setting: did you mean count?",
    ),
    (
        f'{DO}approve = {{ count = "2" }}\n',
        4,
        "_.tools.do.approve.count cannot be '2': input should be a valid integer",
    ),
    (f"{DO}approve = 5\n", 4, "_.tools.do.approve cannot be '5': write a table"),
    (f"{DO}undo = {{ using = {{}} }}\n", 4, "_.tools.do.undo.kind is missing"),
    (f'{TEXTS}"x" = {{ applied = "none" }}\n', 4, "_.errors.x.code is missing"),
    ("\n[servers.shop]\n", 2, '_ needs either command = [...] or url = "..."'),
    (f'{SHOP}url = "https://x"\n', 1, "_ needs either command"),
    (f'{SHOP}headers = {{ A = "B" }}\n', 1, "_ has headers, which is for a url"),
    (f'{WEB}env = {{ A = "B" }}\n', 1, "_ has env, which is for a command"),
    ('[servers.Shop]\ncommand = ["x"]\n', 1, "servers.Shop is no name of a server: use small"),
    ('\n[servers."a b"]\ncommand = ["x"]\n', 2, "servers.a b is no name of a server: use small"),
    (
        f'{TEXTS}"x" = {{ code = "conflikt" }}\n',
        4,
        "_.errors.x.code is no code: did you mean conflict?: use one of bug, busy",
    ),
    (f'{TEXTS}"x" = {{ code = "worker_lost" }}\n', 4, "_.errors.x.code is no code"),
    (
        f'{TEXTS}"x" = {{ code = "busy", applied = "all" }}\n',
        4,
        "_.errors.x.applied cannot be 'all': input should be 'none' or 'unknown'",
    ),
    (f'{DO}effect = "reads"\n', 4, "_.tools.do.effect cannot be 'reads': input should be 'read', 'idempotent'"),
    ('[servers.shop]\ncommand = "uvx x"\n', 2, "_.command cannot be 'uvx x': write a list"),
    ("[servers.shop]\ncommand = []\n", 2, "_.command cannot be '[]': write at"),
    ('servers.shop = "x"\n', 1, "_ cannot be 'x': write a table"),
    (f"{SHOP}env = {{ A = 5 }}\n", 3, "_.env.A cannot be '5': write a text"),
    (f"{SHOP}timeout = nan\n", 3, "_.timeout cannot be 'nan': input should be a fin"),
    (f'{SHOP}timeout = "5"\n', 3, "_.timeout cannot be '5': input should"),
    (f'{SHOP}trusted = "no"\n', 3, "_.trusted cannot be 'no': input should be a valid boolean"),
    ('[servers.shop]\nurl = "ftp://x"\n', 2, "_.url is no address: begin with"),
    (
        '[servers.shop]\nurl = "https://me:hidden@x"\n',
        2,
        "_.url is no address: begin with http:// or https://, and put user and password",
    ),
    ("[servers]\n", 1, "servers cannot be '{}'"),
]
"""Files, the line of their only mistake, and the words for it, where `_` stands for `servers.shop`."""
UNREADABLE: list[tuple[str | bytes, str]] = [
    ("", ": servers is missing: begin with [servers.NAME]"),
    ("a = \n", " is no TOML (Invalid value (at line 1, column 5)): correct it"),
    (SHOP + SHOP, " is no TOML (Cannot declare ('servers', 'shop') twice (at line 3"),
    (b"a = '\xe9'", " is no TOML ('utf-8' codec can't decode byte 0xe9"),
    (f"a = {'[' * 5_000}", " is no TOML (maximum recursion depth"),
    (f"a = {'9' * 5_000}", " is no TOML (Exceeds the limit"),
    ("#" * (tools_file.MAX_FILE + 1), " has more than 1048576 bytes"),
]


def test_a_mistake_has_its_line_and_what_to_do(tmp_path: Path) -> None:
    """One sentence each, without a password that somebody wrote into it."""
    wrong, placed = (
        list[str](),
        [(text, f":{line}: {words.replace('_', 'servers.shop', words[0] == '_')}") for text, line, words in MISTAKES],
    )
    for text, words in [*placed, *UNREADABLE]:
        mistakes = mistakes_of(tmp_path, text)
        is_right = len(mistakes) == 1 and mistakes[0].startswith(f"shop.toml{words}")
        if not is_right or "\n" in mistakes[0] or "hidden" in mistakes[0]:
            wrong.append(f"{text[:100]!r}: {mistakes}")

    assert wrong == []


LINES: list[tuple[str, int]] = [
    (f"{SHOP}[ servers . \"shop\" . 'tools' . 'do' ] # x = y\n  effect = \"bad\"\n", 4),
    (f'{SHOP}[servers.shop.tools."a]\\"b = c"] \neffect = "bad"\n', 4),
    ('servers.shop.command = ["x"]\n\nservers . shop.tools."do".effect = "bad"\n', 3),
    ('[servers.shop]\ncommand = [\n  "x", # [y]\n  "effect = 1",\n]\n[servers.shop.tools.do]\neffect = "bad"\n', 7),
    (f'{DO}description = """\n[servers.shop.tools.do]\neffect = "x"\n"""\neffect = "bad"\n', 8),
    (f'{SHOP}tools = {{ do = {{ effect = "bad" }} }}\n', 3),
    (f'{SHOP}# [servers.shop.tools.do]\n# effect = "bad"\n[servers.shop.tools.do]\neffect = "bad"\n', 6),
    (f'{DO}effect = "bad"\n'.replace("\n", "\r\n"), 4),
    (f'{SHOP}# \u2028 \x85\n[servers.shop.tools.do]\neffect = "bad"\n', 5),
    (f'\ufeff{DO}effect = "bad"\n', 4),
    (f'{SHOP.replace("shop", "far")}{DO}effect = "bad"\n', 6),
]


def test_the_line_is_that_of_the_mistake(tmp_path: Path) -> None:
    """However TOML is written."""
    for text, line in LINES:
        [mistake] = mistakes_of(tmp_path, text)
        assert mistake.startswith(f"shop.toml:{line}: servers.shop.tools."), text


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
OF_DO = f"{OK}[servers.shop.tools.do]\n"
COUNTING = "reconcile = {{ kind = 'shop.count', applied_if = {} }}\n"
BY_READ = "reconcile = {kind} with applied_if must be a read of a server in a tools file"
WRONG: dict[str, tuple[str, list[str]]] = {
    "kinds that there are not": (
        "observe = { kind = 'shop.lok' }\nundo = { kind = 'nothing' }\nfallback = 'shop.plian'\n"
        "reconcile = { kind = 'shop.cuont' }\n",
        [
            "observe names 'shop.lok', which is in no tools file: did you mean shop.look",
            "undo names 'nothing', which is in no tools file: load it.",
            "fallback names 'shop.plian', which is in no tools file: did you mean shop.plain",
            "reconcile names 'shop.cuont', which is in no tools file: did you mean shop.count",
        ],
    ),
    "paths that are none": (
        "observe = { kind = 'shop.look', using = { text = 5 } }\n",
        ["observe takes 'text' from no path: write e.g. using = { text = \"args.text\" }"],
    ),
    "keyed without a key": ("effect = 'keyed'\n", ['effect = "keyed" needs key = "ARGUMENT"']),
    "a key without keyed": ("key = 'text'\n", ['key has a meaning only with effect = "keyed": leave it out.']),
    "a key that is no argument": (
        "effect = 'keyed'\nkey = 'txt'\n",
        ["has no argument 'txt': did you mean text?: key names one of ['text']"],
    ),
    "transactional": ("effect = 'transactional'\n", ['effect = "transactional" is for Python tools']),
    "a condition by no read": (
        "reconcile = { kind = 'shop.plain', applied_if = '1 == 1' }\n",
        [BY_READ.format(kind="shop.plain")],
    ),
    "a condition by a Python tool": (
        "reconcile = { kind = 'look', applied_if = '1 == 1' }\n",
        [BY_READ.format(kind="look")],
    ),
    "no condition": (COUNTING.format("'result.count >'"), ["reconcile: shop.do: applied_if="]),
    "names of no value": (
        COUNTING.format("'args.txt == call.at'"),
        [
            "reconcile: shop.do: applied_if reads 'args.txt': did you mean text?",
            "reconcile: shop.do: applied_if reads 'call.at': did you mean claimed_at?",
        ],
    ),
    "arguments of the read": (
        "[servers.shop.tools.do.reconcile]\nkind = 'shop.count'\napplied_if = 'result.count > 0'\n"
        "using = { txt = 'args.text', since = 'call.at', text = 'args.txt' }\n",
        [
            "reconcile: shop.count has no argument 'txt': did you mean text?",
            "reconcile: since = 'call.at' leads nowhere",
            "reconcile: text = 'args.txt' leads nowhere: did you mean text?",
        ],
    ),
}
"""By name, the table of the tool `do`, and the words for its mistakes, which are on line 3."""


def wrong_in(folder: Path, text: str, *others: Tool[..., Any]) -> list[str]:
    """What is wrong with a file, without the name of the file."""
    with pytest.raises(ToolMistakes) as wrong:
        loaded(folder, text, others=others)
    return [mistake.removeprefix(f"{folder}/shop.toml:") for mistake in wrong.value.mistakes]


@pytest.mark.parametrize(("row", "expected"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_the_server_has_its_line(tmp_path: Path, row: str, expected: list[str]) -> None:
    """All of it at once, before a worker takes a task."""
    found = wrong_in(tmp_path, OF_DO + row, look)

    assert [one.startswith(f"3: shop.do: {words}") for one, words in zip(found, expected, strict=True)] == [True] * len(
        expected
    ), found


def test_tools_that_a_server_has_not_have_their_lines(tmp_path: Path) -> None:
    """With the nearest one."""
    found = wrong_in(tmp_path, f"{OK}only = ['look', 'cont']\n[servers.shop.tools.doo]\n")
    expected = ["4: shop has no tool 'doo': did you mean do?", "3: shop has no tool 'cont': did you mean count?"]

    assert [one[: len(words)] for one, words in zip(found, expected, strict=True)] == expected


def test_a_name_of_a_python_tool_is_taken(tmp_path: Path) -> None:
    """Else one of them would hide the other."""
    [mistake] = wrong_in(tmp_path, OK, TAKEN)

    assert mistake.startswith("1: shop.do: another tool has this name already")


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
    ends, none = wrong_in(tmp_path, text)

    assert ends.startswith("1: the server ends cannot be asked for its tools: ")
    assert none.startswith("3: the server none cannot be asked for its tools: ")


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
