"""`compare`: several results side by side, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dmq_fast._support.frames import data_frame
from dmq_fast._support.words import four_digits, table_lines
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.plotting.canvas import WIDTH
from dmq_fast.results.appraisal import uniform_value
from dmq_fast.results.pictures import trajectories_by_purpose
from dmq_fast.results.result import BaselineResult, DMQResult, Result
from dmq_fast.results.score import score

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Comparison", "compare"]


class Comparison:
    """Results side by side, which print and notebooks show as a table. `compare` makes it.

    Parameters
    ----------
    results : mapping of str to Result
        By name.
    mdp : FiniteMDP, optional
        The environment of all of them.

    Attributes
    ----------
    columns : dict of str to list
        "name", "algorithm", "status", "trajectories", with `mdp` or of baselines "value", with `mdp` "loss" and
        "score", which is 0 for uniform play and 1 for the best policy, and "oracle_calls", "largest_cover", "seconds"
        and "warnings", the number of them. None where a result has no such number. Values and losses are in points.
    """

    def __init__(self, results: Mapping[str, Result], mdp: FiniteMDP | None = None) -> None:
        self.results = dict(results)
        uniform = None if mdp is None else uniform_value(mdp)
        table = [row_of(name, result, mdp, uniform) for name, result in self.results.items()]
        names = [name for name in table[0] if any(row[name] is not None for row in table)]
        self.columns: dict[str, list[Any]] = {name: [row[name] for row in table] for name in names}

    def to_dataframe(self) -> Any:
        """Return the table as a `pandas.DataFrame`.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        return data_frame(self.columns)

    def plot(self, *, width: float = WIDTH) -> Figure:
        """Draw the trajectories of each result by purpose, `width` inches wide.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        return trajectories_by_purpose({name: one.trajectories for name, one in self.results.items()}, width=width)

    def __repr__(self) -> str:
        """Return the table as text."""
        heads = [name.replace("_", " ") for name in self.columns]
        lines = [[four_digits(value) for value in row] for row in zip(*self.columns.values(), strict=True)]
        numbers = [i for i, values in enumerate(self.columns.values()) if not any(isinstance(v, str) for v in values)]
        return "\n".join(table_lines(heads, lines, right=numbers))


def compare(results: Iterable[Result] | Mapping[str, Result], mdp: FiniteMDP | None = None) -> Comparison:
    """Put results side by side, of any learners.

    Parameters
    ----------
    results : iterable of results, or mapping of str to result
        A mapping names them. Otherwise they have the names of algorithms and variants, numbered where these repeat.
    mdp : FiniteMDP, optional
        The environment of all of them, which adds exact values, losses and scores.

    Returns
    -------
    Comparison

    Raises
    ------
    TypeError
        If something is not a result, or `mdp` not a FiniteMDP.
    ValueError
        If there are no results, or the MDP does not fit one.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.combination_lock(horizon=5, n_actions=3, rng=0)
    >>> runs = {f"N = {n}": dmq.DMQ(env, n_samples=n, rng=1).learn() for n in (10, 20)}
    >>> dmq.compare(runs, env).columns["trajectories"]
    [940, 1880]
    """
    if mdp is not None and not isinstance(mdp, FiniteMDP):
        raise TypeError(f"mdp: expected a FiniteMDP, got {type(mdp).__name__}")
    if not isinstance(results, Mapping | Iterable):
        raise TypeError(f"results: expected several results, got {type(results).__name__}")
    given = list(results.values() if isinstance(results, Mapping) else results)
    for one in given:
        if not isinstance(one, Result):
            raise TypeError(f"results: expected results of runs, got {type(one).__name__}")
    if not given:
        raise ValueError("results: expected at least one, got none")
    names = list(map(str, results)) if isinstance(results, Mapping) else different(one.name for one in given)
    return Comparison(dict(zip(names, given, strict=True)), mdp)


def different(names: Iterable[str]) -> list[str]:
    """Return names that are different: repeated ones have a number.

    >>> different(["a", "b", "a"])
    ['a 1', 'b', 'a 2']
    """
    every = list(names)
    return [f"{name} {every[: i + 1].count(name)}" if every.count(name) > 1 else name for i, name in enumerate(every)]


def row_of(name: str, result: Result, mdp: FiniteMDP | None, uniform: float | None) -> dict[str, Any]:
    """Return the row of a result; `uniform` is the value of uniform play in the MDP."""
    estimate = result.value if isinstance(result, BaselineResult) else None
    value, loss, share = estimate, None, None
    if mdp is not None and uniform is not None:
        value = float(mdp.value(result.policy))
        loss, share = float(mdp.optimal_value) - value, score(value, uniform, float(mdp.optimal_value))
    return {
        "name": name,
        "algorithm": result.name,
        "status": result.status,
        "trajectories": result.n_trajectories,
        "value": value,
        "loss": loss,
        "score": share,
        "oracle_calls": result.counts.get("oracle_calls"),
        "largest_cover": max(result.cover_sizes) if isinstance(result, DMQResult) else None,
        "seconds": result.seconds["total"],
        "warnings": len(result.warnings),
    }
