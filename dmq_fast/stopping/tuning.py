"""The numbers of a self-stopping run besides its aim, by the step that uses them (docs/adaptive.md).

Every number has a role:

- PROMISE: another value changes how often a run is wrong. It changes only with a new attack run
  (bench/adaptive_tuning.py).
- COST: another value changes how many episodes or seconds a run takes.
- GIVE UP: when a run that cannot succeed ends.
- DIAGNOSIS: when a warning is given.

Lengths on the scale of values are in units of epsilon, so no number depends on the aim.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from dmq_fast._support.checks import integer
from dmq_fast.kernels import as_positive

__all__ = ["COST", "DIAGNOSIS", "GIVE_UP", "PROMISE", "TUNING", "Tuning"]

PROMISE, COST, GIVE_UP, DIAGNOSIS = "PROMISE", "COST", "GIVE UP", "DIAGNOSIS"


def number(default: float, role: str, unit: str, least: float = 0) -> Any:
    """Return a field with a role and a unit: a float > 0, or >= `least` if that is positive, or an int >= `least`."""
    return field(default=default, metadata={"role": role, "unit": unit, "least": least})


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The numbers of a self-stopping run.

    Attributes
    ----------
    ridge : float, default 1e-12
        PROMISE, a squared length of features. Added to the sums of squares of the fits. Parts of features outside the
        span of the data that are shorter than its root, 1e-6, count as known: a larger ridge hides longer ones. With a
        smaller one, rounding moves the values of unseen directions: by 1e-16 sqrt(episodes) / ridge.
    noise : float, default 0.1
        PROMISE, epsilon / H. Residuals up to it count as rounding: they move no value by more than 0.1 epsilon. After a
        larger one the run settles the noise.
    impatience : float, default 1e-3
        COST, a share. Of an imagined value, lost by a step on the way to it that was tried once: near outcomes are
        looked for first. Exploration ends without it.
    rows_per_episode : int, default 512
        COST, feature rows. A plan takes time in proportion to the distinct rows of a level, so one more episode is
        played between two plans for each so many.
    episodes_per_plan : int, default 500
        COST, episodes. One more episode is played between two plans of exploration for each so many so far, as one more
        changes a plan by less and less.
    pooled_episodes_per_plan : int, default 50
        COST, episodes. The same where levels share their data, and episodes plan again on their way.
    large_table : int, default 20000000
        COST, levels times pairs squared. Where levels share the data of a larger table, exploration looks at outcomes
        hidden at one visit first, then at those hidden at every visit where a pair was visited often since the last
        look, and at all of them in the end.
    most_values : int, default 2000000
        COST, levels times pairs. Where levels share data, each has values of all rows. If rows hardly ever repeat that
        is too much, so beyond it every level gets data of its own.
    refits : int, default 40
        PROMISE, refits. Of 40, the 0.95 quantile is the second largest. Of fewer it is left to chance where about as
        many object.
    first_sample : int, default 8
        COST, episodes. Of a candidate, whose states the refits judge before its test.
    growth : float, default 0.2
        COST, a share of the episodes so far. The most that refits play at once; 0.05 to 0.2 make no clear difference.
    equal_part : float, default 0.5
        COST, a share of these. Played by all refits equally. Without it, refits that doubt an action would only play
        the alternatives they know, and the doubt would never be resolved. Most refits agree with the candidate, so with
        a half both sides of a comparison get episodes.
    asks : int, default 2
        PROMISE, samples of refits. So many must agree one after the other. The quantile of one sample is off by a
        third of a standard deviation, and of many looks the luckiest would end a run.
    margin : float, default 1.2
        PROMISE, epsilon. What may lie behind a rare transition. Exploration ends at 1 where all transitions are as
        frequent as they were seen, so a smaller number costs episodes wherever anything is random.
    looks : float, default 4
        PROMISE, a number of looks. Frequencies may be off by a limit of the level delta divided by it, besides the half
        of the strict mode: so the limit of a chance is below it in any of the first 3,000 visits with a probability of
        0.99 delta for delta = 0.05.
    episodes_per_episode : int, default 200
        COST, episodes. A look behind rare transitions that objects plays one episode, and one more for each so many so
        far.
    first_piece : int, default 4
        COST, episodes. The first piece of a test. Pieces double, so a candidate that fails, fails early.
    kept_loss : float, default 0.25
        PROMISE, epsilon. What a candidate may lose by the newest fit before another takes its place: less makes more
        tests, more leaves less of epsilon for what is unseen.
    untried : float, default 0.1
        PROMISE, epsilon. What was never tried and may add so much is compared with the least that a candidate may be
        worth, given its returns.
    most_tests : int, default 100
        GIVE UP, tests. A table in which rare traps come to light one by one takes up to 30.
    duels : int, default 3
        COST, tests. The most that policies play which returns favour and fits do not.
    near : float, default 0.5
        PROMISE, epsilon. Returns continue through actions that are worth at most so much less than the greedy one.
    lead : float, default 0.5
        PROMISE, epsilon. A rival must earn so much more than the candidate.
    errors : float, default 2
        PROMISE, standard errors. By which returns must favour a rival, before its test and after.
    contradiction_errors : float, default 3
        PROMISE, standard errors. By which predicted value and mean return may differ beyond epsilon: 1 in 370 do so
        by chance.
    least_share : float, default 0.125
        GIVE UP, epsilon. The smallest p_min after contradictions.
    linearity_refits : int, default 40
        DIAGNOSIS, refits. Their spread is the standard error of a difference between returns and fit.
    least_visits : int, default 20
        DIAGNOSIS, visits. Of a row with an action, for a warning: the law of fewer returns is far from normal.
    level_delta : float, default 0.01
        DIAGNOSIS, a probability. Of a false alarm that levels which share data differ: it costs episodes, no promise.
    level_visits : int, default 24
        DIAGNOSIS, visits. Of a row with an action, at all levels, for a comparison of early and late ones.
    least_disagreement : float, default 0.1
        DIAGNOSIS, epsilon. Smaller differences between returns and fit are no reason for a warning.

    Raises
    ------
    TypeError, ValueError
        If a number is of a wrong type or out of range.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.combination_lock(horizon=5, n_actions=3, rng=0)
    >>> result = dmq.SelfStopping(env, tuning=dmq.Tuning(refits=60), rng=1).learn()
    >>> result.status, env.value(result.policy)
    ('finished', 0.7)
    """

    # ---- Fits
    ridge: float = number(1e-12, PROMISE, "squared length of features")
    noise: float = number(0.1, PROMISE, "epsilon / H")
    # ---- Exploration
    impatience: float = number(1e-3, COST, "share of an imagined value")
    rows_per_episode: int = number(512, COST, "feature rows", 1)
    episodes_per_plan: int = number(500, COST, "episodes", 1)
    pooled_episodes_per_plan: int = number(50, COST, "episodes", 1)
    most_values: int = number(2_000_000, COST, "levels times pairs", 1)
    large_table: int = number(20_000_000, COST, "levels times pairs squared", 0)
    # ---- Noise
    refits: int = number(40, PROMISE, "refits", 2)
    first_sample: int = number(8, COST, "episodes", 1)
    growth: float = number(0.2, COST, "share of the episodes so far")
    equal_part: float = number(0.5, COST, "share of these")
    asks: int = number(2, PROMISE, "samples of refits", 1)
    # ---- Behind rare transitions
    margin: float = number(1.2, PROMISE, "epsilon")
    looks: float = number(4.0, PROMISE, "looks")
    episodes_per_episode: int = number(200, COST, "episodes", 1)
    # ---- The test
    first_piece: int = number(4, COST, "episodes", 1)
    kept_loss: float = number(0.25, PROMISE, "epsilon")
    untried: float = number(0.1, PROMISE, "epsilon")
    most_tests: int = number(100, GIVE_UP, "tests", 1)
    # ---- The second opinion
    duels: int = number(3, COST, "tests", 0)
    near: float = number(0.5, PROMISE, "epsilon")
    lead: float = number(0.5, PROMISE, "epsilon")
    errors: float = number(2.0, PROMISE, "standard errors")
    contradiction_errors: float = number(3.0, PROMISE, "standard errors")
    least_share: float = number(0.125, GIVE_UP, "epsilon")
    # ---- Is Q* linear?
    linearity_refits: int = number(40, DIAGNOSIS, "refits", 2)
    least_visits: int = number(20, DIAGNOSIS, "visits", 1)
    least_disagreement: float = number(0.1, DIAGNOSIS, "epsilon")
    # ---- Are levels the same?
    level_delta: float = number(0.01, DIAGNOSIS, "probability")
    level_visits: int = number(24, DIAGNOSIS, "visits", 8)

    def __post_init__(self) -> None:
        for one in fields(self):
            name, value = f"tuning.{one.name}", getattr(self, one.name)
            whole = isinstance(one.default, int)
            checked = integer(name, value, one.metadata["least"]) if whole else as_positive(name, value)
            object.__setattr__(self, one.name, checked)
        if self.equal_part > 1.0:
            raise ValueError(f"tuning.equal_part: expected a number in (0, 1], got {self.equal_part!r}")

    def changes(self) -> dict[str, float]:
        """Return the numbers that are not the default ones, by name: a journal's header has them.

        Examples
        --------
        >>> Tuning(margin=1.5).changes(), Tuning().changes()
        ({'margin': 1.5}, {})
        """
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) != one.default}

    @classmethod
    def of_role(cls, role: str) -> dict[str, float]:
        """Return the default numbers of one role, by name.

        Examples
        --------
        >>> Tuning.of_role("GIVE UP")
        {'most_tests': 100, 'least_share': 0.125}
        """
        return {one.name: getattr(TUNING, one.name) for one in fields(cls) if one.metadata["role"] == role}


TUNING = Tuning()
