"""The state of a circuit breaker in words, for the terminal and the page."""

from workflows.inspect import BreakerCard


def state(card: BreakerCard) -> str:
    """The state of a breaker in a few words."""
    words = [card.state.replace("_", "-")]
    words += [f"since {card.since:%Y-%m-%d %H:%M:%S} UTC"] if card.since else []
    failures = "1 failure" if card.failures == 1 else f"{card.failures} failures in a row"
    last = f", the newest {card.code}" if card.code else ""
    words += [f"after {failures}{last}"] if card.failures else []
    if card.state == "open":
        words += [f"a trial call in {card.trial_in:g} s" if card.trial_in else "the next call is a trial"]
    elif card.state == "half_open":
        runs = "a trial call runs" if card.trials == 1 else f"{card.trials} trial calls run"
        words += [runs if card.trials else "the next call is a trial"]
    words += [f"at most {card.limit} calls"] * bool(card.limit)
    words += [f"{card.waiting} calls wait for their turn" if card.waiting > 1 else "1 call waits for its turn"] * bool(
        card.waiting
    )
    return ", ".join(words)
