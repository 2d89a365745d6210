"""Finite MDPs from the transition tables of Gymnasium's toy-text environments.

The table ``env.unwrapped.P[state][action]`` is a list of outcomes (probability, next state, reward,
terminated). Gymnasium itself is imported only where an environment is made from its id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.checks import integer
from dmq_fast.environments.arrays import as_float64

__all__ = ["Tables", "has_table", "import_gymnasium", "make_environment", "read_tables", "scalar_arguments"]

Array = NDArray[np.float64]


class Tables(NamedTuple):
    """Arguments of `scaled_mdp`: a finite MDP whose rewards are shifted, but not yet scaled."""

    P: list[Array]
    R: list[Array]
    features: list[Array]
    start: Array
    reward_shift: float
    name: str
    parameters: dict[str, Any]


class _Table(NamedTuple):
    """Transition table of a Gymnasium environment, in Python's own number types."""

    outcomes: list[list[list[tuple[float, int, float, bool]]]]
    initial: Array


class _Model(NamedTuple):
    """One level of the MDP: rows are the kept states, the absorbing state, and copies of either.

    ``origin[i]`` is the row that state i is a copy of. Rewards (S, K, S) are raw.
    """

    transitions: Array
    rewards: Array
    origin: NDArray[np.intp]


def import_gymnasium(what: str = "this") -> Any:
    """Import Gymnasium; raise ImportError with the install command where it is missing. `what` needs it."""
    try:
        import gymnasium
    except ImportError as error:
        raise ImportError(f'env: {what} needs Gymnasium; install it with pip install "dmq_fast[gym]"') from error
    return gymnasium


def make_environment(identifier: str, **arguments: Any) -> Any:
    """Make a Gymnasium environment from its id.

    Parameters
    ----------
    identifier : str
        Such as ``"FrozenLake-v1"``.
    **arguments
        Passed on to ``gymnasium.make``.

    Returns
    -------
    gymnasium.Env

    Raises
    ------
    ImportError
        If Gymnasium is not installed.
    ValueError
        If Gymnasium does not know the id, or refuses an argument.
    """
    gymnasium = import_gymnasium(f"making {identifier!r}")
    try:
        return gymnasium.make(identifier, **arguments)
    except Exception as error:  # environments raise exceptions of any type for wrong arguments
        raise ValueError(f"env: gymnasium.make({identifier!r}) failed: {error}") from error


def read_tables(
    env: Any,
    horizon: int,
    *,
    features: ArrayLike | Callable[[int], ArrayLike] | None = None,
    name: str | None = None,
) -> Tables:
    """Read the tables of `FiniteMDP.from_gymnasium`, where arguments and errors are described.

    The states of every level are the Gymnasium states that can be reached within the horizon, in increasing order, then
    one absorbing state for ended episodes. Where one action can lead to the same state with different rewards, that
    state has a copy for each of them (after the absorbing state), which goes on in the same way and has the same
    features: the joint law of reward and next state is the environment's own. A step limit that wraps the environment
    is ignored: the horizon takes its place.
    """
    horizon = integer("horizon", horizon, 1)
    if isinstance(env, str):
        env = make_environment(env)
    table = _read_table(env)
    kept = _reached(table, horizon)
    model = _model(table, kept)
    support = model.transitions > 0
    shift = max(0.0, -float(model.rewards[support].min()))
    rewards = np.where(support, model.rewards + shift, 0.0)
    depends_on_target = _varies(rewards, support)
    phi = _features(features, table, kept, pays_when_absorbed=shift > 0)[model.origin]
    start = np.zeros(len(model.origin))
    start[: len(kept)] = table.initial[kept]
    spec = getattr(env, "spec", None)
    identifier = spec.id if spec is not None else type(_bare(env)).__name__
    return Tables(
        P=[model.transitions] * (horizon if depends_on_target else horizon - 1),
        R=[rewards if depends_on_target else rewards.max(axis=2)] * horizon,
        features=[phi] * horizon,
        start=start,
        reward_shift=shift,
        name=name if name is not None else identifier,
        parameters={"env": identifier, "horizon": horizon, **scalar_arguments(spec)},
    )


def scalar_arguments(spec: Any) -> dict[str, Any]:
    """Return those arguments an environment was made with that are bools, numbers or strings."""
    arguments = spec.kwargs if spec is not None else {}
    return {key: value for key, value in arguments.items() if isinstance(value, (bool, int, float, str))}


def _bare(env: Any) -> Any:
    """Return the environment inside any wrappers."""
    return getattr(env, "unwrapped", env)


# Where an environment keeps its transitions and where it starts.
TABLE = ("P", "initial_state_distrib")


def has_table(env: Any) -> bool:
    """Whether an environment has a transition table, so that it can be turned into a FiniteMDP."""
    return all(hasattr(_bare(env), name) for name in TABLE)


def _read_table(env: Any) -> _Table:
    """Read the transition table; TypeError where there is none, ValueError where it has another form."""
    bare = _bare(env)
    missing = [name for name in TABLE if not hasattr(bare, name)]
    if missing:
        raise TypeError(
            "env: expected an environment with a transition table (P and initial_state_distrib, as "
            f"FrozenLake, CliffWalking and Taxi have), got {type(bare).__name__} without "
            f"{' and '.join(missing)}; an environment that can only step cannot be turned into a FiniteMDP"
        )
    initial = as_float64("env: initial_state_distrib", bare.initial_state_distrib, ("state",))
    if initial.ndim != 1 or not initial.any():
        raise ValueError("env: expected a distribution over the states in initial_state_distrib")
    n_states = len(initial)
    try:
        outcomes = [[_outcomes(bare.P[state][action]) for action in sorted(bare.P[state])] for state in range(n_states)]
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"env: expected P[state][action] for the {n_states} states from 0 on to list outcomes "
            f"(probability, next state, reward, terminated), got a table where that fails with {error!r}"
        ) from error
    _check_table(outcomes)
    return _Table(outcomes, initial)


def _check_table(outcomes: list[list[list[tuple[float, int, float, bool]]]]) -> None:
    n_actions = {len(actions) for actions in outcomes}
    if len(n_actions) > 1:
        raise ValueError(f"env: expected as many actions in every state of P, got {sorted(n_actions)}")
    targets = {following for actions in outcomes for action in actions for _, following, _, _ in action}
    strays = targets.difference(range(len(outcomes)))
    if strays:
        raise ValueError(f"env: expected next states in [0, {len(outcomes)}) in P, got {min(strays)}")


def _outcomes(entries: Sequence[tuple[float, int, float, bool]]) -> list[tuple[float, int, float, bool]]:
    """Return the outcomes of positive probability, in Python's own number types."""
    outcomes = [(float(p), int(s), float(r), bool(ended)) for p, s, r, ended in entries]
    if not all(isfinite(p) and isfinite(r) for p, _, r, _ in outcomes):
        raise ValueError(f"an outcome is not finite: {outcomes}")
    return [outcome for outcome in outcomes if outcome[0] != 0]


def _reached(table: _Table, horizon: int) -> list[int]:
    """Find the states in which an episode can be at levels 0, ..., horizon - 1 without having ended."""
    reached = {int(state) for state in np.flatnonzero(table.initial)}
    frontier = reached
    for _ in range(horizon - 1):
        frontier = {
            following
            for state in frontier
            for action in table.outcomes[state]
            for _, following, _, ended in action
            if not ended
        } - reached
        reached |= frontier
    return sorted(reached)


def _model(table: _Table, kept: Sequence[int]) -> _Model:
    """Lay the table out over the kept states, the absorbing state and the copies.

    Outcomes that end the episode lead to the absorbing state. So do those that leave the kept states, which
    an episode can only do at the last level, where the next state no longer matters.
    """
    n_kept, n_actions = len(kept), len(table.outcomes[kept[0]])
    absorbing = n_kept
    row_of = {state: row for row, state in enumerate(kept)}
    merged: dict[tuple[int, int], dict[int, dict[float, float]]] = {}
    for row, state in enumerate(kept):
        for action, outcomes in enumerate(table.outcomes[state]):
            targets: dict[int, dict[float, float]] = defaultdict(lambda: defaultdict(float))
            for probability, following, reward, ended in outcomes:
                target = absorbing if ended else row_of.get(following, absorbing)
                targets[target][reward] += probability
            merged[row, action] = targets
    places, origin = _copies(merged, n_kept + 1)
    transitions = np.zeros((n_kept + 1, n_actions, len(origin)))
    rewards = np.zeros_like(transitions)
    for (row, action), targets in merged.items():
        for target, chances in targets.items():
            for place, (reward, probability) in zip(places[target], sorted(chances.items()), strict=False):
                transitions[row, action, place] = probability
                rewards[row, action, place] = reward
    transitions[absorbing, :, absorbing] = 1
    return _Model(transitions[origin], rewards[origin], origin)


def _copies(
    merged: dict[tuple[int, int], dict[int, dict[float, float]]], n_rows: int
) -> tuple[list[list[int]], NDArray[np.intp]]:
    """Give each row as many states as some action has rewards for leading there.

    Returns the states of each row, the row itself first, and the row of each state.
    """
    places = [[row] for row in range(n_rows)]
    origin = list(range(n_rows))
    for targets in merged.values():
        for target, chances in targets.items():
            while len(places[target]) < len(chances):
                places[target].append(len(origin))
                origin.append(target)
    return places, np.array(origin)


def _varies(rewards: Array, support: NDArray[np.bool_]) -> bool:
    """Whether some action has rewards that depend on where it leads."""
    largest = rewards.max(axis=2)
    smallest = np.where(support, rewards, np.inf).min(axis=2)
    return bool((largest > smallest).any())


def _features(
    features: ArrayLike | Callable[[int], ArrayLike] | None,
    table: _Table,
    kept: Sequence[int],
    pays_when_absorbed: bool,
) -> Array:
    """Features of the kept states and, in the last row, of the absorbing state."""
    if features is None:
        return np.eye(len(kept) + 1, len(kept) + pays_when_absorbed)
    if callable(features):
        rows = [as_float64(f"features: state {state}", features(state), ("feature",)) for state in kept]
        if len({row.shape for row in rows}) > 1:
            raise ValueError("features: expected vectors of one length d for every state, got several")
        phi = np.array(rows)
    else:
        phi = as_float64("features", features, ("state", "feature"))
        if len(phi) != len(table.outcomes):
            raise ValueError(
                f"features: expected {len(table.outcomes)} rows, one for each state, got shape {phi.shape}"
            )
        phi = phi[kept]
    if phi.ndim != 2:
        raise ValueError(f"features: expected vectors of one length d, got shape {phi.shape}")
    return np.vstack([phi, np.zeros(phi.shape[1])])
