"""`exam`: the rows of algorithms on environments."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmq_fast._support.checks import integer
from dmq_fast._support.imported import imported, one_line
from dmq_fast._support.names import suggestion
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.experiments.exam.contestants import CONTESTANTS, NEVER_STOP
from dmq_fast.experiments.exam.protocol import Algorithm, Answer, NotApplicable, Over, Tally, Terms, alarm
from dmq_fast.experiments.exam.tasks import TASKS, Task
from dmq_fast.kernels import as_positive
from dmq_fast.policy import Policy
from dmq_fast.results.score import ROUNDING, score

__all__ = ["Row", "algorithms_of", "exam", "names_of"]


@dataclass
class Row:
    """An algorithm on an environment, with one seed.

    Attributes
    ----------
    environment, algorithm : str
    seed : int
    stopped : bool
        Whether the algorithm stopped by a rule of its own.
    within : bool or None
        Whether the loss is at most epsilon; None without a policy.
    loss : float or None
        The optimum less the value of the policy, in points; None without a policy.
    loss_error : float or None
        Half the width of its 95 % interval; 0 where it is exact.
    share : float or None
        The loss as a share of the width of the range of returns.
    score : float or None
        (V - V_uniform) / (V* - V_uniform), where there are tables.
    value, optimum, epsilon : float or None
    episodes, steps : int
        As the exam counted them.
    cpu_seconds : float
        Of the algorithm, without those of judging its policy.
    error : str or None
        What went wrong, or why the environment was not run.
    traceback : str or None
        Of an error of the algorithm.
    ran : bool
        False where the environment, or this algorithm on it, was not run.
    """

    environment: str
    algorithm: str
    seed: int
    stopped: bool = False
    within: bool | None = None
    loss: float | None = None
    loss_error: float | None = None
    share: float | None = None
    score: float | None = None
    value: float | None = None
    optimum: float | None = None
    epsilon: float | None = None
    episodes: int = 0
    steps: int = 0
    cpu_seconds: float = 0.0
    error: str | None = None
    traceback: str | None = None
    ran: bool = True


def exam(
    algorithms: Sequence[str | Algorithm] = ("self-stopping",),
    only: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    *,
    epsilon: float = 0.05,
    delta: float = 0.05,
    max_episodes: int = 10_000,
    max_seconds: float = 150.0,
    n_evaluation: int = 300,
    report: Callable[[Row], object] | None = None,
) -> list[Row]:
    """Let algorithms that stop by themselves take the exam.

    Parameters
    ----------
    algorithms : sequence of str or callable
        Names of `CONTESTANTS`, "module:function", or functions from an environment and `Terms` to an `Answer`. Those
        of the package that never stop are granted as many episodes as the first of the list used.
    only : sequence of str, optional
        Names of `TASKS`. Default: all.
    seeds : sequence of int, default (0,)
    epsilon : float, default 0.05
        The loss that is allowed, as a share of the width of the range of returns, in (0, 1).
    delta : float, default 0.05
    max_episodes : int, default 10,000
        Of each run.
    max_seconds : float, default 150
        CPU seconds of each run; where it ends depends on the machine.
    n_evaluation : int, default 300
        Episodes of an estimate of the value, where there are no tables; >= 2.
    report : callable, optional
        Called with each row as soon as it is there. What it raises ends the exam.

    Returns
    -------
    list of Row
        By environment, seed and algorithm. An environment whose extra is missing has one row, which says so.

    Raises
    ------
    TypeError, ValueError
        If an argument is of a wrong type or out of range; the message names it. Errors of algorithms are in their rows.

    Examples
    --------
    An algorithm of one's own, which does not look:

    >>> from dmq_fast.experiments.exam import exam
    >>> def first(env, terms):
    ...     env.reset(seed=terms.seed)
    ...     for _ in range(3):
    ...         env.step(0)
    ...     return lambda level, observation: 0
    >>> [row] = exam([first], ["river-swim"])
    >>> row.algorithm, row.episodes, row.stopped, row.within
    ('first', 1, False, False)
    """
    chosen = algorithms_of(algorithms)
    names = names_of(only)
    seeds = [integer("seeds", seed, 0) for seed in seeds]
    if not (isinstance(epsilon, int | float) and 0.0 < epsilon < 1.0):
        raise ValueError(f"epsilon: expected a share of the range of returns in (0, 1), got {epsilon!r}")
    if not (isinstance(delta, int | float) and 0.0 < delta < 1.0):
        raise ValueError(f"delta: expected a number in (0, 1), got {delta!r}")
    limits = integer("max_episodes", max_episodes, 1), as_positive("max_seconds", max_seconds)
    sitting = Sitting(float(epsilon), float(delta), *limits, integer("n_evaluation", n_evaluation, 2))
    rows: list[Row] = []
    for name in names:
        for row in sitting.rows(name, TASKS[name], chosen, seeds):
            rows.append(row)
            if report is not None:
                report(row)
    return rows


def algorithms_of(given: Sequence[str | Algorithm]) -> dict[str, Algorithm]:
    """Return algorithms by name; ValueError for a name that stands for none."""
    found: dict[str, Algorithm] = {}
    for one in given:
        if isinstance(one, str):
            if one not in CONTESTANTS and ":" not in one:
                raise ValueError(
                    f"algorithms: expected {', '.join(CONTESTANTS)} or MODULE:FUNCTION, got {one!r}"
                    f"{suggestion(one, CONTESTANTS)}"
                )
            found[one] = CONTESTANTS[one] if one in CONTESTANTS else imported("algorithms", one)
        elif callable(one):
            found[getattr(one, "__name__", type(one).__name__)] = one
        else:
            raise TypeError(f"algorithms: expected names or functions, got {one!r:.80}")
    if len(found) < len(given) or not found:
        raise ValueError(f"algorithms: expected at least one, each once, got {len(given)} with {len(found)} names")
    return found


def names_of(only: Sequence[str] | None) -> list[str]:
    """Return the names of the environments to run; ValueError for one that there is not."""
    for name in only or ():
        if name not in TASKS:
            raise ValueError(f"only: expected some of {', '.join(TASKS)}, got {name!r}{suggestion(str(name), TASKS)}")
    return list(TASKS if only is None else dict.fromkeys(only))


@dataclass
class Sitting:
    """One exam: what all runs have in common."""

    epsilon: float
    delta: float
    max_episodes: int
    max_seconds: float
    n_evaluation: int

    def rows(self, name: str, task: Task, algorithms: Mapping[str, Algorithm], seeds: Sequence[int]) -> Iterator[Row]:
        """Yield the rows of one environment."""
        error, mdp = task.missing(), None
        if error is None:
            try:
                made = task.make()
            except Exception as wrong:  # a version of a library that has no such environment
                error = one_line(wrong)
            else:
                if isinstance(made, FiniteMDP):
                    mdp = made
                else:
                    made.close()
        if error is not None:
            yield Row(name, "", 0, error=error, ran=False)
            return
        for seed in seeds:
            granted = self.max_episodes
            for i, (algorithm, function) in enumerate(algorithms.items()):
                row = Row(name, algorithm, seed)
                self.take(row, task, mdp, function, granted if algorithm in NEVER_STOP else self.max_episodes)
                if i == 0 and row.episodes > 0:
                    granted = row.episodes
                yield row

    def take(self, row: Row, task: Task, mdp: FiniteMDP | None, algorithm: Algorithm, max_episodes: int) -> None:
        """Let an algorithm take the exam on one environment; fill in its row."""
        from dmq_fast.experiments.exam import judging, playing

        low, high = bounds = range_of(task, mdp)
        row.epsilon = self.epsilon * (high - low)
        homogeneous = mdp is None or mdp.homogeneous is True
        terms = Terms(
            task.horizon, bounds, row.epsilon, self.delta, max_episodes, self.max_seconds, row.seed, homogeneous
        )
        tally = Tally(max_episodes, self.max_seconds)
        answer: Answer | None = None
        try:
            env: Any = (
                playing.Stepped(task.make(), terms, tally) if mdp is None else playing.TableEnv(mdp, terms, tally)
            )
            with alarm(1.25 * self.max_seconds + 1.0):
                answer = as_answer(algorithm(env, terms))
        except NotApplicable as reason:
            row.ran, row.error = False, one_line(reason)
        except Over as over:
            row.error = f"no policy: out of {over}"
        except (Exception, SystemExit) as wrong:  # whatever an algorithm does, the exam goes on
            self.note(row, wrong)
        row.cpu_seconds, row.episodes, row.steps = tally.seconds, tally.episodes, tally.steps
        if answer is None:
            return
        row.stopped = answer.stopped and not tally.over
        try:
            act = judging.policy_of(answer.act)
            with alarm(max(60.0, 2.0 * self.max_seconds)):
                if mdp is not None:
                    value = judging.value_on_tables(mdp, act)
                else:
                    value = judging.value_by_play(task.make(), act, task.horizon, self.n_evaluation, row.seed)
        except (Exception, SystemExit) as wrong:
            self.note(row, wrong)
            return
        optimum = float(mdp.optimal_value) if mdp is not None else task.optimum
        assert optimum is not None
        row.value, row.optimum, row.loss, row.loss_error = value.value, optimum, optimum - value.value, value.half_width
        row.share, row.within = row.loss / (high - low), row.loss <= row.epsilon + ROUNDING * (high - low)
        if mdp is not None:
            row.score = score(value.value, float(mdp.value(Policy.uniform(mdp.horizon))), optimum)

    def note(self, row: Row, wrong: BaseException) -> None:
        """Record an error of an algorithm in its row."""
        row.error, row.traceback = one_line(wrong), "".join(traceback.format_exception(wrong))


def range_of(task: Task, mdp: FiniteMDP | None) -> tuple[float, float]:
    """Return the range of what can be earned from any step on."""
    if task.value_range is not None:
        return task.value_range
    assert mdp is not None
    return float(mdp.value_range.min()), float(mdp.value_range.max())


def as_answer(given: Any) -> Answer:
    """Return what an algorithm returned as an `Answer`."""
    if isinstance(given, tuple) and len(given) == 2:
        return Answer(given[0], bool(given[1]))
    return Answer(given)
