"""The results of runs: a small base, and one class for each kind of learner."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import integer, one_of
from dmq_fast._support.frames import data_frame
from dmq_fast._support.names import suggestion
from dmq_fast._support.words import number_of, rounded
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.grids import Grid
from dmq_fast.observing import observer_of
from dmq_fast.plotting.canvas import WIDTH
from dmq_fast.policy import Policy
from dmq_fast.results import pictures, saved
from dmq_fast.results.history import Curve, History, Looks
from dmq_fast.results.learned import Decisions, PolicyTable, decisions, observer_for, tabulate
from dmq_fast.results.policy_pictures import on_a_grid, over_a_box, state_table
from dmq_fast.table_policy import TablePolicy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COMPLETE", "BaselineResult", "DMQResult", "Result", "SelfStoppingResult", "load"]

COMPLETE = ("finished", "ended", "tested")
"""Statuses of runs that came to their own end: by a rule that promises something, or without one."""

MOST_STATES = 500
"""Number of states up to which a page has a table of a policy."""

LARGEST_LOG = 700.0
"""Largest x whose exp(x) is computed; float64 overflows at 709."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Result:
    """The fields that the results of all learners have. Results are compared by identity.

    Attributes
    ----------
    policy : Policy or TablePolicy
        The learned policy. A `Policy` has the features of the environment inside, and acts on its observations:
        ``policy.act_on(level, observation)``, also from a file where the features are one-hot or a `FeatureMap`.
    theta : numpy.ndarray of shape (H, K, d), or None
        Estimates theta_h^a of Q*, on which the policy is greedy; None of algorithms that learn a table.
    status : str
        "finished": the run stopped by its own rule, and the result has what this rule promises. "ended": the run came
        to its end, which promises nothing. Else the budget that was used up ("max_trajectories", "max_policies",
        "max_seconds", "n_samples"), "contradiction" (docs/adaptive.md), "interrupted" by Ctrl-C, "failed" by an
        exception, or "running".
    parameters : dict
        Numbers that the run was given, JSON-able.
    counts : dict
        Counts of the run, JSON-able.
    seconds : dict
        Wall-clock time by phase, and "total".
    key : tuple of two int
        The run's 128-bit key; ``rng=Stream.from_key(key)`` repeats it.
    warnings : tuple of str
        Reasons to doubt the result.
    """

    policy: Policy | TablePolicy
    theta: NDArray[np.float64] | None
    status: str
    parameters: dict[str, Any]
    counts: dict[str, Any]
    seconds: dict[str, float]
    key: tuple[int, int]
    warnings: tuple[str, ...]

    PICTURES: ClassVar[tuple[str, ...]] = ("policy", "value", "curve", "trajectories", "visits")
    """Names of the pictures that `plot` draws."""

    @property
    def name(self) -> str:
        """Name of the algorithm, with its variant."""
        raise NotImplementedError

    @property
    def trajectories(self) -> Mapping[str, int]:
        """Numbers of trajectories by purpose."""
        by_purpose: dict[str, int] = self.counts["trajectories"]
        return by_purpose

    @property
    def n_trajectories(self) -> int:
        """Number of trajectories that were learned from, of all purposes."""
        return sum(self.trajectories.values())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to `path` (.npz, no pickles): first to a temporary file, which then replaces `path`.

        Raises
        ------
        OSError
            If the file cannot be written; an earlier file at `path` is unharmed.
        """
        saved.write(path, KIND_OF[type(self)], {field.name: getattr(self, field.name) for field in fields(self)})

    def seen_in(self, env: Any) -> Self:
        """Return the result whose policy has the features of an environment inside, if it shows any."""
        if not isinstance(self.policy, Policy) or observer_of(env) is None:
            return self
        return replace(self, policy=self.policy.bind(env))

    def policy_table(self, mdp: FiniteMDP | None = None) -> PolicyTable:
        """Return what the policy does in every state at every level, and what that is worth, as arrays.

        Parameters
        ----------
        mdp : FiniteMDP, optional
            The environment, for exact values, visits and what can be reached. Without it, values are those by which the
            run chose its actions: estimates, where the policy is greedy on any.

        Returns
        -------
        PolicyTable

        Raises
        ------
        TypeError, ValueError
            If it is not known which states there are, or the MDP does not fit.

        Examples
        --------
        >>> import dmq_fast as dmq
        >>> env = dmq.environments.from_gymnasium("FrozenLake-v1", horizon=20)
        >>> table = dmq.learn(env, rng=0).policy_table(env)
        >>> table.actions.shape, table.states[-1], int(table.actions[5, -1])  # down, beside the goal
        ((20, 11), 14, 1)
        """
        mdp = as_mdp(mdp)
        q = self.table_q() if mdp is None or isinstance(self.policy, TablePolicy) else None
        return tabulate(self.policy, mdp, self.points, q)

    def to_dataframe(self, what: str = "policy", mdp: FiniteMDP | None = None) -> Any:
        """Return the policy, or the history of the run, as a `pandas.DataFrame`.

        Parameters
        ----------
        what : {"policy", "history"}, default "policy"
            "policy": a row for each level and state, with the columns of `PolicyTable`: level, state, action, value,
            decided, and with `mdp` the probability of a visit. "history": a row for each oracle call of a `DMQResult`,
            each look of a `SelfStoppingResult`, each checkpoint of a `BaselineResult`.
        mdp : FiniteMDP, optional
            As that of `policy_table`.

        Raises
        ------
        ImportError
            If pandas is not installed.
        TypeError, ValueError
            As `policy_table`.
        """
        one_of("what", what, ("policy", "history"))
        return data_frame(self.policy_table(mdp).columns() if what == "policy" else self.history_columns())

    def history_columns(self) -> dict[str, Any]:
        """Return the history of the run as columns of equal length."""
        raise NotImplementedError

    def table_q(self) -> tuple[NDArray[np.float64], ...] | None:
        """Return estimates of Q in a table, H arrays (S_h, K), if there are any."""
        return None

    def points(self, level: int, estimates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return estimates of a level, phi^T theta, in points; NaN where nobody knows their units."""
        return estimates

    def plot(
        self,
        what: str | None = None,
        *,
        mdp: FiniteMDP | None = None,
        level: int | None = None,
        shape: tuple[int, int] | None = None,
        arrows: str | None = None,
        width: float = WIDTH,
    ) -> Figure:
        """Draw a picture of the run, which notebooks show; ``result.plot().savefig("run.pdf")`` saves it.

        Parameters
        ----------
        what : str, optional
            One of `PICTURES`. "policy": what was learned. On a grid the greedy action of each cell as an arrow and its
            value as a colour; over two observed numbers the value and the action; otherwise states by levels, a colour
            for each action. "value": the value alone. "curve": what a self-stopping run knew over its episodes and the
            value that was tested, the values at the checkpoints of a `BaselineResult`, and of a `DMQResult`, whose
            policy has no value before the first level is learned, how it went back through the levels. "trajectories":
            their numbers by purpose. "visits": where the returned policy goes in `mdp`. Of a `DMQResult` also "cover",
            the policies by level and the potential of Lemma A.5, and "oracle", the value of every call of a run with
            the option ``oracle="value"``. Default: "policy" on a grid or over two numbers, else "cover" or "curve".
        mdp : FiniteMDP, optional
            The environment, for "visits", for exact values, and for states that nothing reaches; a "curve" shows its
            optimum and uniform play.
        level : int, optional
            Of "policy" and "value": the level that a grid or a box shows. Default: each state of a grid at the first
            level at which anything was learned of it, and a box at level 0.
        shape : tuple of two int, optional
            (rows, columns) of a grid whose states are numbered row by row, or are pairs (row, column). Default: what
            the environment says: `desc` or `shape` of Gymnasium's or one's own, the grids of gym_classics, Taxi.
        arrows : str, optional
            A letter for each action, such as "<v>^": these four are arrows, others stand for themselves. Default: what
            the environment says (an attribute `arrows`, or names LEFT, DOWN, RIGHT and UP in its module), else the
            numbers of actions.
        width : float, default 3.3
            Width in inches.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        TypeError, ValueError
            If there is no such picture, or it cannot be drawn of this run; the message says which there are.
        """
        mdp = as_mdp(mdp)
        what = self.first_picture(mdp, shape) if what is None else what
        if what not in self.PICTURES:
            raise ValueError(
                f"what: expected one of {', '.join(self.PICTURES)}, got {what!r}{suggestion(what, self.PICTURES)}"
            )
        if what in ("policy", "value"):
            return self.draw_policy(what == "policy", mdp, level, shape, arrows, width)
        for name, given in (("level", level), ("shape", shape), ("arrows", arrows)):
            if given is not None:
                raise ValueError(f"{name}: expected none with {what!r}, got {given!r}; 'policy' and 'value' take it")
        if what == "visits":
            if mdp is None:
                raise ValueError("mdp: expected the environment of the run for its visits, got none")
            return pictures.visits(mdp, self.policy, width=width)
        if what == "trajectories":
            return pictures.trajectories_by_purpose({self.name: self.trajectories}, width=width)
        return self.draw(what, mdp, width)

    def draw_policy(
        self,
        actions: bool,
        mdp: FiniteMDP | None,
        level: int | None,
        shape: tuple[int, int] | None,
        arrows: str | None,
        width: float,
    ) -> Figure:
        """Draw the policy, or its value alone, in the form that fits."""
        observer = observer_for(self.policy, mdp)
        if level is not None and integer("level", level, 0) >= self.policy.horizon:
            raise ValueError(f"level: expected an integer < {self.policy.horizon}, got {level}")
        box = None if observer is None or shape is not None else observer.box()
        if observer is not None and box is not None and len(box.low) == 2:
            if arrows is not None:
                raise ValueError(f"arrows: expected none over two observed numbers, got {arrows!r}")
            at, rules = level or 0, self.policy.rules

            def decide(observations: NDArray[np.float64]) -> Decisions:
                return decisions(rules[at], observer.see(at, observations).features, at, self.points)

            return over_a_box(decide, box, observer.n_actions, level=at, actions=actions, width=width)
        table = self.policy_table(mdp)
        assert observer is not None
        grid = Grid.of_shape(shape) if shape is not None else observer.grid
        if grid is None:
            for name, given in (("level", level), ("arrows", arrows)):
                if given is not None:
                    raise ValueError(f"{name}: expected none without a grid, got {given!r}; shape=(rows, columns)")
            return state_table(table, observer.n_actions, actions=actions, width=width)
        if shape is not None and observer.grid is not None:
            grid = grid.with_arrows(observer.grid.arrows)
        if arrows is not None:
            grid = grid.with_arrows(arrows)
        return on_a_grid(table, grid, observer.n_actions, level=level, actions=actions, width=width)

    def shows_policy(self, mdp: FiniteMDP | None = None) -> bool:
        """Return whether "policy" can be drawn, of at most 500 states where they stand in no grid."""
        observer = observer_for(self.policy, mdp)
        if observer is None:
            return False
        if self.first_picture(mdp, None) == "policy":
            return True
        states = observer.states(0)
        return states is not None and 1 < len(states.labels) <= MOST_STATES

    def first_picture(self, mdp: FiniteMDP | None, shape: tuple[int, int] | None) -> str:
        """Return the name of the picture that `plot` draws by default."""
        observer = observer_for(self.policy, mdp)
        if shape is not None:
            return "policy"
        if observer is None:
            return self.own_picture()
        box = observer.box()
        return "policy" if observer.grid is not None or (box is not None and len(box.low) == 2) else self.own_picture()

    def own_picture(self) -> str:
        """Return the name of the picture that `plot` draws where states have no place in a picture."""
        return "trajectories"

    def draw(self, what: str, mdp: FiniteMDP | None, width: float) -> Figure:
        """Draw a picture that this class alone has."""
        raise NotImplementedError

    def in_short(self) -> str:
        """Return the part of `repr` between the number of trajectories and that of the warnings."""
        return ""

    def __repr__(self) -> str:
        parts = [self.status, number_of(self.n_trajectories, "trajectory"), self.in_short()]
        parts.append(number_of(len(self.warnings), "warning"))
        return f"<{type(self).__name__}: {self.name}, {', '.join(filter(None, parts))}>"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DMQResult(Result):
    """Result of `DMQ.learn`.

    The policy is greedy on theta; at levels that a budget left unlearned, it is the initial policy. theta is zero
    there. Of a run in extended precision theta is rounded to float64; the rules of the policy, see
    `rules.ExactGreedy`, hold it exactly, in memory and in a file.

    Attributes
    ----------
    variant : str
        Name of the variant, "custom" of options that no variant has.
    options : dict
        The fields of `covers.options.Options`.
    parameters : dict
        The fields of `covers.options.RunParameters`, and R as "ratio".
    function_class : dict
        Description of the function class by its method `describe`: "name", and whatever else identifies it.
    cover : tuple of H tuples of Policy
        Policy cover Pi_h by level.
    history : History
        Every oracle call.
    counts : dict
        "trajectories" by purpose (check: Algorithm 3; regression, states: Algorithm 2; final: test of the returned
        policy), "oracle_calls", "trues", "algorithm_2_runs", "sampler_calls".

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.combination_lock(horizon=5, n_actions=3, rng=0)
    >>> result = dmq.DMQ(env, n_samples=20, rng=1).learn()
    >>> result.status, result.cover_sizes, result.warnings
    ('ended', (1, 2, 2, 2, 2), ())
    >>> env.value(result.policy) == env.optimal_value
    True
    """

    policy: Policy
    theta: NDArray[np.float64]
    variant: str
    options: dict[str, Any]
    function_class: dict[str, Any]
    cover: tuple[tuple[Policy, ...], ...]
    history: History

    PICTURES: ClassVar[tuple[str, ...]] = ("cover", "oracle", *Result.PICTURES)

    @property
    def name(self) -> str:
        """The variant, as in "dmq sound"."""
        return f"dmq {self.variant}"

    @property
    def cover_sizes(self) -> tuple[int, ...]:
        """Number of policies |Pi_h| by level."""
        return tuple(len(policies) for policies in self.cover)

    @property
    def is_plain_linear(self) -> bool:
        """Whether the functions are those of section 6, with the identity as regulariser and penalty."""
        given = self.function_class
        return bool(given["name"] == "linear" and given.get("regularizer") is None and given.get("penalty") is None)

    @property
    def has_potential(self) -> bool:
        """Whether the potential of Lemma A.5 can be drawn: of linear functions, if it was recorded at any True."""
        potentials = self.history.potentials
        return self.is_plain_linear and not (potentials.size > 0 and bool(np.isnan(potentials).all()))

    @property
    def n_initial(self) -> int:
        """Number of initial policies of every cover."""
        columns = self.history.columns()
        raised = columns["level"][columns["decision"]]
        if self.status == "max_policies":
            raised = raised[:-1]  # The budget refused the policy of the last True.
        trues = np.bincount(raised, minlength=len(self.cover))
        # An interrupt between a True and its policy leaves one level short.
        return int((np.array(self.cover_sizes) - trues).max())

    def levels(self) -> Iterator[dict[str, Any]]:
        """Yield the record of each level: its cover, its oracle calls and their Trues; see `theory.certificate`."""
        columns = self.history.columns()
        trues = np.flatnonzero(columns["decision"])
        raised: list[list[dict[str, Any]]] = [[] for _ in self.cover]
        for call, (before, after) in zip(trues.tolist(), self.history.potentials.tolist(), strict=True):
            factor = math.exp(min(after - before, LARGEST_LOG))
            step = {"call": call, "before": before, "after": after, "factor": factor}
            raised[columns["level"][call]].append(step)
        initial = self.n_initial
        for steps in raised:
            for i, step in enumerate(steps):
                step["policies"] = initial + i + 1
        with_value = ~columns["decision"] & ~np.isnan(columns["value"])
        for level, policies in enumerate(self.cover):
            here = columns["level"] == level
            v = columns["value"][here & with_value]
            yield {
                "level": level,
                "cover_size": len(policies),
                "oracle_calls": int(here.sum()),
                "trues": len(raised[level]),
                "nearest_false": float(v.max() / self.parameters["eps_t"]) if v.size else None,
                "raises": raised[level],
            }

    def history_columns(self) -> dict[str, Any]:
        """Return the fields of every `OracleCall`."""
        return dict(self.history.columns())

    def own_picture(self) -> str:
        """Return "cover", or "trajectories" of a run whose potential was not recorded."""
        return "cover" if self.has_potential else "trajectories"

    def draw(self, what: str, mdp: FiniteMDP | None, width: float) -> Figure:
        """Draw the cover, the values of the oracle, or the way through the levels."""
        given = self.parameters
        if what == "curve":
            return pictures.levels_by_call(self.history, self.policy.horizon, given["n_samples"], width=width)
        if what == "oracle":
            return pictures.oracle_values(self.history, given["eps_t"], width=width)
        if not self.is_plain_linear:
            raise ValueError(f"what: expected a run of the linear class without matrices, got {self.function_class}")
        return pictures.cover_and_potential(
            list(self.levels()), self.n_initial, self.theta.shape[2], given["ratio"], given["eps_r"], width=width
        )

    def in_short(self) -> str:
        """Return the size of the largest cover."""
        return f"|Pi_h| <= {max(self.cover_sizes)}"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SelfStoppingResult(Result):
    """Result of `SelfStopping.learn`. The policy is greedy on theta.

    Attributes
    ----------
    parameters : dict
        "epsilon", "delta", "p_min" and "log_confidence", of `stopping.aim.Aim`, and numbers of a `Tuning` that are not
        the default ones.
    counts : dict
        "trajectories" by purpose: explore, refine (the noise), test.
    stopping : dict
        "promise", the sentence; "reason" why the run stopped, "tests_made", "test_size" (fresh trajectories of the
        final test, 0 if none was passed), their "mean_return" and an "interval" of confidence 1 - delta for the value,
        "upsides" by level (W - F, the mean gain that one unseen outcome may add), "largest_v" by level (largest v of
        the oracle on one state of the test), "loss_quantile" of the bootstrap, "rare_transitions" (Z - F at the start,
        what may lie behind transitions that are as frequent as their visits allow), "binding", the part with the
        largest of these limits, "p_min", the chance of the rarest outcome that was looked for, and "disagreements": the
        rows where returns and fit differ by more than chance. In the mode "tested": the promise, the reason, the test
        and the interval; and as diagnostics "predicted", the value by the newest fit, "upside", what unseen outcomes
        may add at the start by the last plan, "candidates", the number of policies that were tried, and "look_ahead",
        the levels that the last fit looked ahead.
    looks : Looks
        What the run knew over its episodes; empty in files of older versions.
    units : numpy.ndarray of shape (H, 3), or None
        By level low, width and top: estimates of Q* in points are low + width phi^T theta_h^a, clipped to [low, top].
        None in files of older versions.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.combination_lock(horizon=10, n_actions=3, rng=0)
    >>> result = dmq.learn(env, epsilon=0.1, rng=1)
    >>> result.status, result.epsilon, result.mode
    ('finished', 0.1, 'strict')
    >>> low, high = result.interval
    >>> low < env.value(result.policy) < high
    True
    """

    policy: Policy
    theta: NDArray[np.float64]
    stopping: dict[str, Any]
    looks: Looks = field(default_factory=Looks)
    units: NDArray[np.float64] | None = None

    @property
    def name(self) -> str:
        """Return "self-stopping"."""
        return "self-stopping"

    @property
    def epsilon(self) -> float:
        """Accuracy that the run was to reach."""
        return float(self.parameters["epsilon"])

    @property
    def delta(self) -> float:
        """Probability with which the run may fail."""
        return float(self.parameters["delta"])

    @property
    def mode(self) -> str:
        """Return "quick" of a run that excluded outcomes by fewer visits, "many", "tested" or "strict" of another."""
        if "tested" in self.parameters:
            return "tested"
        if "imagined" in self.parameters:
            return "many"
        quick = np.isclose(self.parameters["log_confidence"], -np.log(self.delta))
        return "quick" if quick else "strict"

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of confidence 1 - delta for the value of the policy."""
        low, high = self.stopping["interval"]
        return low, high

    def history_columns(self) -> dict[str, Any]:
        """Return the fields of every `Look`."""
        return self.looks.columns()

    def points(self, level: int, estimates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return estimates of a level in points."""
        if self.units is None:
            return np.full_like(estimates, np.nan)
        low, width, top = self.units[level].tolist()
        points: NDArray[np.float64] = np.clip(low + width * estimates, low, top)
        return points

    def own_picture(self) -> str:
        """Return "curve", or "trajectories" of a file of an older version."""
        return "curve" if len(self.looks) else "trajectories"

    def draw(self, what: str, mdp: FiniteMDP | None, width: float) -> Figure:
        """Draw what the run knew over its episodes."""
        mean, ends = self.stopping["mean_return"], self.interval
        tested = None if mean is None else (mean, *ends)
        return pictures.looks_of_a_run(self.looks, self.epsilon, tested, references(mdp)[0], width=width)

    def in_short(self) -> str:
        """Return the interval for the value of the policy."""
        low, high = self.interval
        return f"value in [{rounded(low, 3)}, {rounded(high, 3)}]"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class BaselineResult(Result):
    """Result of `Baseline.learn`. The policy is greedy on the estimates, without exploration.

    Attributes
    ----------
    algorithm : str
        Its name in the registry.
    theta : numpy.ndarray of shape (H, K, d), or None
        The estimates, for algorithms whose Q functions are linear in the features.
    table : tuple of H numpy.ndarray (S_h, K), or None
        The estimates, for tabular algorithms.
    curve : Curve
    returns : numpy.ndarray, shape (n_trajectories,)
        Sum of rewards of each episode.
    status : str
        "max_trajectories" where an algorithm that has a rule when to stop learned from all its episodes and did not
        meet it; else as in `Result`.
    counts : dict
        "episodes", "transitions", "evaluation_trajectories", and further counts of the algorithm.
    seconds : dict
        Wall-clock time "learning", "evaluation" and "total".
    """

    algorithm: str
    table: tuple[NDArray[np.float64], ...] | None
    curve: Curve
    returns: NDArray[np.float64]

    @property
    def name(self) -> str:
        """The algorithm."""
        return self.algorithm

    @property
    def trajectories(self) -> Mapping[str, int]:
        """Number of episodes learned from, as "episodes"."""
        return {"episodes": len(self.returns)}

    @property
    def value(self) -> float:
        """Value of the policy, as at the last checkpoint; see `Curve`."""
        return float(self.curve.value[-1])

    def first_above(self, mean: float, every: int = 100) -> int | None:
        """Return the first multiple of `every` episodes whose returns so far average more than `mean`, or None."""
        ends = np.arange(integer("every", every, 1), self.n_trajectories + 1, every)
        above = np.cumsum(self.returns)[ends - 1] > mean * ends
        return int(ends[above.argmax()]) if above.any() else None

    def draw(self, what: str, mdp: FiniteMDP | None, width: float) -> Figure:
        """Draw the learning curve."""
        return pictures.learning_curve(*self.curve[:3], *references(mdp), width=width)

    def history_columns(self) -> dict[str, Any]:
        """Return the fields of the `Curve` at every checkpoint."""
        return self.curve._asdict()

    def table_q(self) -> tuple[NDArray[np.float64], ...] | None:
        """Return the estimates of a tabular algorithm."""
        return self.table

    def points(self, level: int, estimates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return estimates of a level in points."""
        bounds = self.parameters.get("value_range")
        if bounds is None:  # (0, 1)
            return estimates
        low, high = float(np.min(bounds)), float(np.max(bounds))
        return low + (high - low) * estimates

    def own_picture(self) -> str:
        """Return "curve"."""
        return "curve"

    def in_short(self) -> str:
        """Return the value of the policy."""
        return f"value {rounded(self.value, 6)}"


def references(mdp: FiniteMDP | None) -> tuple[float | None, float | None]:
    """Return the values of the best policy and of uniform play, None without tables."""
    if mdp is None:
        return None, None
    return float(mdp.optimal_value), float(mdp.value(Policy.uniform(mdp.horizon)))


def as_mdp(mdp: Any) -> FiniteMDP | None:
    """Return tables; TypeError if something else was given."""
    if mdp is not None and not isinstance(mdp, FiniteMDP):
        raise TypeError(f"mdp: expected a FiniteMDP, got {type(mdp).__name__}")
    return mdp


KINDS: dict[str, type[Result]] = {
    "dmq": DMQResult,
    "self-stopping": SelfStoppingResult,
    "baseline": BaselineResult,
}
"""Classes of results by their kind in a file."""

KIND_OF = {made: kind for kind, made in KINDS.items()}


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result written by `Result.save`, of any kind.

    Raises
    ------
    OSError
        If the file cannot be opened.
    FileError
        If it is not a saved result, is damaged, or was written in a newer format.

    Examples
    --------
    >>> import tempfile
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.combination_lock(horizon=5, n_actions=3, rng=0)
    >>> result = dmq.DMQ(env, n_samples=20, rng=1).learn()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.save(f"{folder}/lock.npz")
    ...     again = load(f"{folder}/lock.npz")
    >>> again.policy == result.policy, again.history == result.history
    (True, True)
    """
    kind, contents = saved.read(path)
    return KINDS[kind](**contents)
