"""What broke an evaluation off."""


def first_problem(problems: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first exception in nested groups that is no group itself."""
    first = problems.exceptions[0]
    return first_problem(first) if isinstance(first, BaseExceptionGroup) else first
