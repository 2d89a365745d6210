"""Finite MDPs from the transition tables of Gymnasium's toy-text environments.

The table ``env.unwrapped.P[state][action]`` is a list of outcomes (probability, next state, reward,
terminated). Gymnasium itself is imported only where an environment is made from its id.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from math import isfinite
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.checks import integer
from dmq_fast._support.names import suggestion
from dmq_fast.environments.arrays import as_float64, as_table
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.grids import grid_of
from dmq_fast.kernels import is_sparse
from dmq_fast.rewards import ValueRange

if TYPE_CHECKING:
    from dmq_fast._support.arrays import AnySparse, Sparse

__all__ = ["from_gymnasium", "has_table", "import_gymnasium", "make_environment", "scalar_arguments"]

Array = NDArray[np.float64]

MOST_DENSE = 2**22
"""Number of entries up to which transitions and features are dense; they take 32 MB."""


class _Table(NamedTuple):
    """Transition table of a Gymnasium environment, in Python's own number types."""

    outcomes: list[list[list[tuple[float, int, float, bool]]]]
    initial: Array


class _Model(NamedTuple):
    """The transitions of one level of the MDP: states are the kept ones, the absorbing state, and copies of either.

    ``origin[i]`` is the state that state i is a copy of. The other arrays have an entry for each transition, those of a
    state together; rewards are raw.
    """

    origin: NDArray[np.intp]
    states: NDArray[np.intp]
    actions: NDArray[np.intp]
    targets: NDArray[np.intp]
    probabilities: Array
    rewards: Array

    def table(self, values: Array, n_actions: int) -> Array:
        """Return a value of every transition as an array (S, K, S), 0 elsewhere."""
        out = np.zeros((len(self.origin), n_actions, len(self.origin)))
        out[self.states, self.actions, self.targets] = values
        return out


def import_gymnasium(what: str = "this") -> Any:
    """Import Gymnasium; raise ImportError with the install command where it is missing. `what` needs it."""
    try:
        import gymnasium
    except ImportError as error:
        raise ImportError(f'env: {what} needs Gymnasium; install it with pip install "dmq-fast[gym]"') from error
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
        hint = meant(gymnasium, identifier, arguments)
        if isinstance(error, gymnasium.error.NameNotFound) and ":" not in identifier:
            hint = f" The package that registers it comes first, as in 'minigrid:MiniGrid-Empty-5x5-v0'.{hint}"
        raise ValueError(f"env: gymnasium.make({identifier!r}) failed: {error}{hint}") from error


def meant(gymnasium: Any, identifier: str, arguments: Mapping[str, Any]) -> str:
    """Return a suggestion for the first argument that neither Gymnasium nor the environment has, if there is any."""
    try:
        creator = gymnasium.spec(identifier).entry_point
        creator = creator if callable(creator) else gymnasium.envs.registration.load_env_creator(creator)
        known = {*inspect.signature(creator).parameters, *inspect.signature(gymnasium.make).parameters}
    except Exception:  # of any type: the environment may be the reason why it cannot be made
        return ""
    return next((suggestion(given, known) for given in arguments if given not in known), "")


def from_gymnasium(
    env: Any,
    horizon: int,
    *,
    features: ArrayLike | AnySparse | Callable[[int], ArrayLike] | None = None,
    value_range: ValueRange = None,
    name: str | None = None,
) -> FiniteMDP:
    """Read a tabular Gymnasium environment (FrozenLake, CliffWalking, Taxi) from its transition table.

    Parameters
    ----------
    env : gymnasium.Env or str
        An environment with ``env.unwrapped.P`` and ``env.unwrapped.initial_state_distrib``, or its id. A copy of it
        plays 2,000 random steps, which the table must have; where it cannot be copied, it plays them itself.
    horizon : int
        Number of levels H >= 1. Episodes that end earlier stay in an absorbing state. A step limit that wraps the
        environment is ignored: the horizon takes its place.
    features : array_like, SciPy sparse matrix or array, or callable, optional
        Shape (number of Gymnasium states, d), or a function from a Gymnasium state to a vector of length
        d. Default: one-hot over the states that can be reached within the horizon. The absorbing state
        has features 0. One-hot features of 2,048 states or more are sparse, and so are transitions of 2^22 entries or
        more unless rewards depend on the next state.
    value_range : pair of float or array_like of shape (H, 2), optional
        As for `FiniteMDP`; by default what the tables can pay.
    name : str, optional
        Default: the environment's id.

    Returns
    -------
    FiniteMDP
        With the environment's own rewards. Its `value_range` is (0, 1) where that holds all that can be earned, as in
        FrozenLake, and otherwise the tightest by level.

    Raises
    ------
    ImportError
        If `env` is an id and Gymnasium is not installed.
    TypeError
        If the environment has no transition table.
    ValueError
        If the horizon or the features are out of range, the table is malformed, a wrapper may change the
        environment, or a step has probability 0 in the table.

    Notes
    -----
    The states of every level are the Gymnasium states that can be reached within the horizon, in increasing order, then
    one absorbing state for ended episodes. Where one action can lead to the same state with different rewards, that
    state has a copy for each of them (after the absorbing state), which goes on in the same way and has the same
    features: the joint law of reward and next state is the environment's own.
    """
    horizon = integer("horizon", horizon, 1)
    if isinstance(env, str):
        env = make_environment(env)
    table = _read_table(env)
    if (wrapper := _changing_wrapper(env)) is not None:
        raise ValueError(
            f"env: expected no wrapper that may change the environment, got {wrapper}, which the table inside does not "
            f"know; {INSTEAD}"
        )
    if (difference := _disagreement(env, table)) is not None:
        raise ValueError(f"env: expected a table that is the environment's own, but {difference}; {INSTEAD}")
    kept = _reached(table, horizon)
    model = _model(table, kept)
    n_actions, possible = len(table.outcomes[0]), model.probabilities > 0
    rewards = np.where(possible, model.rewards, 0.0)
    sole, depends_on_target = _by_action(model, possible, n_actions)
    phi = _features(features, table, kept)[model.origin]
    P: Array | Sparse
    if depends_on_target or len(model.origin) ** 2 * n_actions <= MOST_DENSE:
        P = model.table(model.probabilities, n_actions)
    else:
        from scipy.sparse import coo_array

        pairs = model.states * n_actions + model.actions
        shape = (len(model.origin) * n_actions, len(model.origin))
        P = coo_array((model.probabilities, (pairs, model.targets)), shape=shape).tocsr()
    start = np.zeros(len(model.origin))
    start[: len(kept)] = table.initial[kept]
    spec = getattr(env, "spec", None)
    identifier = spec.id if spec is not None else type(_bare(env)).__name__
    mdp = FiniteMDP(
        P=[P] * (horizon if depends_on_target else horizon - 1),
        R=[model.table(rewards, n_actions) if depends_on_target else sole] * horizon,
        features=[phi] * horizon,
        start=start,
        value_range=value_range,
        name=name if name is not None else identifier,
        parameters={"env": identifier, "horizon": horizon, **scalar_arguments(spec)},
    )
    mdp.state_numbers = np.array(kept)
    mdp.row_numbers = np.array([*kept, -1])[model.origin]
    mdp.grid = grid_of(env, n_actions)
    return mdp


def scalar_arguments(spec: Any) -> dict[str, Any]:
    """Return those arguments an environment was made with that are bools, numbers or strings."""
    arguments = spec.kwargs if spec is not None else {}
    return {key: value for key, value in arguments.items() if isinstance(value, (bool, int, float, str))}


def _bare(env: Any) -> Any:
    """Return the environment inside any wrappers."""
    return getattr(env, "unwrapped", env)


# Where an environment keeps its transitions and where it starts.
TABLE = ("P", "initial_state_distrib")

# Wrappers of Gymnasium that leave states, actions, rewards and ends alone, and step limits, which the horizon replaces.
HARMLESS = (
    "HumanRendering",
    "OrderEnforcing",
    "PassiveEnvChecker",
    "RecordEpisodeStatistics",
    "RecordVideo",
    "RenderCollection",
    "TimeLimit",
)

# Steps with random actions that are compared with a table, and after how many of them an episode is cut.
STEPS, CUT = 2000, 200

INSTEAD = "GymnasiumBatch plays the environment itself (through='step' in a shell)"


def has_table(env: Any) -> bool:
    """Return whether an environment has a transition table of its own, from which a FiniteMDP can be made.

    Wrappers that may change the environment speak against it, and so does a random step that the table has not.
    """
    if not all(hasattr(_bare(env), name) for name in TABLE) or _changing_wrapper(env) is not None:
        return False
    try:
        table = _read_table(env)
    except ValueError:  # a table, but a wrong one: reading it raises an error that explains the fault
        return True
    return _disagreement(env, table) is None


def _changing_wrapper(env: Any) -> str | None:
    """Return the name of the outermost wrapper that is not known to leave the environment alone."""
    bare = _bare(env)
    while env is not bare:
        kind = type(env)
        if kind.__name__ not in HARMLESS or not kind.__module__.startswith("gymnasium.wrappers"):
            return kind.__name__
        env = env.env
    return None


def _disagreement(env: Any, table: _Table) -> str | None:
    """Play a copy of the environment with random actions; return what it did that the table has not, or None."""
    bare = _bare(env)
    if not hasattr(bare, "step"):
        return None
    try:
        bare = deepcopy(bare)
    except Exception:  # it holds a window, say: then it is played itself
        pass
    rng, state = np.random.default_rng(0), None
    for i in range(STEPS):
        if state is None:
            state = _state(bare.reset(seed=i)[0], table)
            if state is None or not table.initial[state]:
                return "reset leads to a state that initial_state_distrib gives no probability"
        action = int(rng.integers(len(table.outcomes[state])))
        observed, reward, ended, _, _ = bare.step(action)
        following = _state(observed, table)
        step = following, float(reward), bool(ended)
        if not any((s, r, e) == step for _, s, r, e in table.outcomes[state][action]):
            return (
                f"action {action} in state {state} led to {observed!r} with reward {reward!r}"
                f"{', the end' if ended else ''}, which P gives no probability"
            )
        state = None if ended or (i + 1) % CUT == 0 else following
    return None


def _state(observed: Any, table: _Table) -> int | None:
    """Return the number of a state; None if it is none."""
    try:
        state = index(observed)
    except TypeError:
        return None
    return state if 0 <= state < len(table.outcomes) else None


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
    states = _numbered("P", bare.P, len(initial))
    outcomes = [
        [
            _outcomes(f"P[{state}][{action}]", entries)
            for action, entries in enumerate(_numbered(f"P[{state}]", actions))
        ]
        for state, actions in enumerate(states)
    ]
    _check_table(outcomes)
    return _Table(outcomes, initial)


def _numbered(name: str, entries: Any, n: int | None = None) -> list[Any]:
    """Return the entries 0, 1, ... of a mapping or a sequence; keys may be numerals, as in JSON."""
    if isinstance(entries, Mapping):
        try:
            found = {int(key) if isinstance(key, str) else index(key): entry for key, entry in entries.items()}
        except (TypeError, ValueError):
            found = {}
        if len(found) != len(entries):
            raise ValueError(f"env: expected numbers as keys of {name}, each once, got {list(entries)!r}")
    elif isinstance(entries, Sequence) and not isinstance(entries, str | bytes):
        found = dict(enumerate(entries))
    else:
        raise ValueError(f"env: expected a mapping or a list in {name}, got {type(entries).__name__}")
    n = len(found) if n is None else n
    if missing := [i for i in range(n) if i not in found]:
        raise ValueError(f"env: expected {name}[0] to {name}[{n - 1}], got none for {missing[0]}")
    return [found[i] for i in range(n)]


def _check_table(outcomes: list[list[list[tuple[float, int, float, bool]]]]) -> None:
    n_actions = {len(actions) for actions in outcomes}
    if len(n_actions) > 1:
        raise ValueError(f"env: expected as many actions in every state of P, got {sorted(n_actions)}")
    targets = {following for actions in outcomes for action in actions for _, following, _, _ in action}
    strays = targets.difference(range(len(outcomes)))
    if strays:
        raise ValueError(f"env: expected next states in [0, {len(outcomes)}) in P, got {min(strays)}")


def _outcomes(name: str, entries: Any) -> list[tuple[float, int, float, bool]]:
    """Return the outcomes of positive probability, in Python's own number types."""
    if not isinstance(entries, Sequence) or isinstance(entries, str | bytes):
        raise ValueError(f"env: expected a list of outcomes in {name}, got {type(entries).__name__}")
    found = []
    for i, entry in enumerate(entries):
        if (one := _outcome(entry)) is None:
            raise ValueError(
                f"env: expected (probability, next state, reward, terminated) in {name}[{i}], finite numbers and a "
                f"bool, got {entry!r}"
            )
        if one[0] != 0:
            found.append(one)
    return found


def _outcome(entry: Any) -> tuple[float, int, float, bool] | None:
    """Return one outcome in Python's own number types; None if it is none."""
    try:
        chance, following, reward, ended = entry
    except (TypeError, ValueError):
        return None
    numbers = all(isinstance(value, Real) and isfinite(value) for value in (chance, following, reward))
    if (
        not numbers
        or not float(following).is_integer()
        or not isinstance(ended, Real | np.bool_)
        or ended not in (0, 1)
    ):
        return None
    return float(chance), int(following), float(reward), bool(ended)


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
    edges = [
        (row, action, place, probability, reward)
        for (row, action), targets in merged.items()
        for target, chances in targets.items()
        for place, (reward, probability) in zip(places[target], sorted(chances.items()), strict=False)
    ]
    edges += [(absorbing, action, absorbing, 1.0, 0.0) for action in range(n_actions)]
    rows, choices, onwards, probabilities, rewards = map(np.array, zip(*edges, strict=True))
    # A copy has the transitions of its origin.
    counts = np.bincount(rows, minlength=n_kept + 1)
    own = counts[origin]
    index = np.arange(own.sum()) + np.repeat((counts.cumsum() - counts)[origin] - (own.cumsum() - own), own)
    states = np.repeat(np.arange(len(origin)), own)
    return _Model(origin, states, choices[index], onwards[index], probabilities[index], rewards[index])


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


def _by_action(model: _Model, possible: NDArray[np.bool_], n_actions: int) -> tuple[Array, bool]:
    """Return the reward of each action, (S, K), and whether some action has several: then it is one of them."""
    largest = np.full((len(model.origin), n_actions), -np.inf)
    smallest = -largest
    pairs = model.states[possible], model.actions[possible]
    np.maximum.at(largest, pairs, model.rewards[possible])
    np.minimum.at(smallest, pairs, model.rewards[possible])
    largest[np.isinf(largest)] = 0.0  # an action without outcomes, which is refused with its probabilities
    return largest, bool((largest > smallest).any())


def _features(features: Any, table: _Table, kept: Sequence[int]) -> Any:
    """Features of the kept states and, in the last row, of the absorbing state; one-hot ones of many states sparse."""
    if features is None:
        shape = len(kept) + 1, len(kept)
        if shape[0] * shape[1] <= MOST_DENSE:
            return np.eye(*shape)
        from scipy.sparse import eye_array

        return eye_array(*shape, format="csr")
    phi: Any
    if callable(features):
        rows = [as_float64(f"features: state {state}", features(state), ("feature",)) for state in kept]
        if len({row.shape for row in rows}) > 1:
            raise ValueError("features: expected vectors of one length d for every state, got several")
        phi = np.array(rows)
    else:
        phi = as_table("features", features, ("state", "feature"))
        if phi.shape[0] != len(table.outcomes):
            raise ValueError(
                f"features: expected {len(table.outcomes)} rows, one for each state, got shape {phi.shape}"
            )
        phi = phi[kept]
    if is_sparse(phi):
        from scipy.sparse import csr_array, vstack

        return vstack([phi, csr_array((1, phi.shape[1]))], format="csr")
    if phi.ndim != 2:
        raise ValueError(f"features: expected vectors of one length d, got shape {phi.shape}")
    return np.vstack([phi, np.zeros(phi.shape[1])])
