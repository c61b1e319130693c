"""What must stand nowhere: a key in no history and on no screen; keys, prompts and documents in no line of a log."""

from pathlib import Path

import pytest

from evals.fakes.model_api import KEY
from evals.fakes.script import (
    ModelCall,
    ModelError,
    ModelReply,
    ReceivedRequest,
    Response,
    calls,
    finishes,
    proposes,
    step,
)
from runtime.dev_server import DevServer
from tests.processes import Processes
from tests.providers.planning import quickly_one
from tests.providers.test_worker import PROMPT, done, environment, held, prepared

DOCUMENT, SAID = "planted-document-7c2d", "planted-answer-55aa"
QUOTING = ModelError(529, "overloaded_error", f"no room for {PROMPT} and {DOCUMENT} of {KEY}")
DENIED = ModelError(
    400, "invalid_request_error", f"prompt is too long: {PROMPT} {DOCUMENT} {KEY}", "context_length_exceeded"
)
READ = {"name": "planted.md"}
ASKED = [
    ModelCall("summarise", {"text": f"{DOCUMENT}. It rains.", "sentences": 1}),
    ModelCall("compose", {"what": PROMPT, "results": {"page": DOCUMENT}}),
    ModelCall("read_document", {"name": f"{DOCUMENT}.md"}),  # there is none: the refusal names it
]


PLAN = [
    step(f"s{number}", call.name, **call.args) for number, call in enumerate(ASKED) if not isinstance(call.args, str)
]
SECRETS: dict[str, list[Response]] = {
    "plan": [proposes(step("page", "read_document", **READ)), proposes(*PLAN), ModelReply(text=DOCUMENT)],
    "react": [calls(ModelCall("read_document", READ)), calls(*ASKED), calls(ModelCall("nothing", {"of": DOCUMENT}))],
}
"""It reads, has things summarised and composed, is refused, and makes a mistake; then its provider fails twice."""
ENDS: dict[str, Response] = {"plan": finishes(SAID), "react": ModelReply(text=SAID)}


class Talkative:
    """A model that says these things in turn, and something else where it is asked by a step, or for a summary."""

    def __init__(self, provider: str, strategy: str) -> None:
        """Begin."""
        # OpenAI's APIs are asked a second time, without the limit of the reply, which may be what is too long.
        denied = [DENIED] * (1 if provider == "anthropic" else 2)
        self._moves = [*SECRETS[strategy], QUOTING, *denied, ENDS[strategy]]

    def __call__(self, heard: ReceivedRequest) -> Response:
        """Say the next thing."""
        return self._moves.pop(0) if heard.tools else ModelReply(text=f"{SAID}: {DOCUMENT}")


@pytest.mark.parametrize("strategy", [pytest.param("plan", marks=pytest.mark.full), "react"])
@quickly_one
@pytest.mark.timeout(180)
async def test_no_secret_leaves_its_place(server: DevServer, tmp_path: Path, provider: str, strategy: str) -> None:
    """Over documents, steps that ask a model, refusals, mistakes, summaries, failures that quote, and all screens."""
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "planted.md").write_text(f"# Planted\n\n{DOCUMENT}. It rains.\n")
    name = f"secret-{provider}-{strategy}"
    async with prepared(provider, Talkative(provider, strategy)) as api:
        processes = Processes(server.address, tmp_path, environment(provider, api))
        with processes.worker("--dev", "--documents", str(tmp_path / "documents"), "--queue", name):
            run = await done(processes, "--task", PROMPT, "--id", name, "--queue", name, "--strategy", strategy)
            shown = [await done(processes, word, name) for word in ("show", "explain")]
            shown += [await done(processes, "transcript", name, "--full", "--queue", name)]
            history = tmp_path / "history.json"
            await done(processes, "export", name, str(history))
    log, screens = (tmp_path / "worker.log").read_text(), run.stdout + "".join(one.stdout for one in shown)

    assert (run.returncode, api.violations) == (0, []), run.stdout + run.stderr
    assert not [secret for secret in (KEY, PROMPT, DOCUMENT, SAID) if secret in log]
    assert DOCUMENT in held(history) and KEY not in held(history) + screens + run.stderr
    assert DOCUMENT in screens and all(f'"role": "{role}"' in log for role in ("planner", "step", "compaction"))
