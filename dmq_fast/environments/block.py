"""Block MDPs: finite MDPs behind noisy observations, and the locks of this kind from the literature.

The latent MDP (Du et al., 2019, "Provably efficient RL with rich observations via latent state decoding") has exact
values, which are upper bounds for the policies of the observations.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmq_fast._support.arrays import once_each
from dmq_fast._support.checks import Seed, integer, number, one_of, seeded
from dmq_fast.environments.arrays import as_dense, as_float64
from dmq_fast.environments.classic import deep_sea
from dmq_fast.environments.compiled import CompiledEnv
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.locks import orthonormal_rows
from dmq_fast.environments.ranges import unit_sums
from dmq_fast.environments.registry import register
from dmq_fast.kernels import BlockModel, FiniteModel

__all__ = ["block_mdp", "diabolical_lock", "lock_bernoulli", "lock_gaussian", "noisy_deep_sea"]

Array = NDArray[np.float64]

A, B, C = range(3)
"""States of the locks: two live ones and the dead one."""

FALL = 0.1
"""Diabolical lock with anti-shaping: the reward for falling, paid with probability 1/2."""

END = 5.0
"""Diabolical lock with live costs: the reward of the last good action; the costs before it add up to 1."""

MARGIN = 3.0
"""Gaussian noise: how far beyond its typical norm √d observations of the largest row still fit the unit ball, in units
of sigma."""

LARGEST = 1e6
"""Upper limit for sigma; larger values are taken for mistakes."""


def block_mdp(
    latent: FiniteMDP,
    *,
    noise: str = "none",
    n_coins: int = 0,
    sigma: float = 0.0,
    embedding: ArrayLike | Sequence[ArrayLike] | None = None,
    dimension: int | None = None,
    rotation: str | None = None,
    rng: Seed = None,
    numbered: bool = True,
    name: str = "block-mdp",
    parameters: Mapping[str, Any] | None = None,
) -> CompiledEnv:
    """Hide a finite MDP behind observations.

    In state s of level h one observes φ = c (x_h(s) + noise), drawn anew at every visit. The rows x are the embedding,
    rotated if `dimension` or `rotation` is given. The noise is

    - ``"none"``: φ is the row. So any finite MDP becomes a compiled environment, whose features cost no uniform;
    - ``"coins"``: `n_coins` fair bits, 0 or 1, are appended to the row. φ stays linear in the row, so a function that
      is linear in the features of `latent` is linear in the observations;
    - ``"gaussian"``: independent N(0, sigma²) in every coordinate. Rotating the rows is enough, as a rotation leaves
      this noise as it is. The noise is part of the features: no Q* of `latent` that differs between states is an exact
      linear function of them.

    The factor is c = 1 / max(1, r), where r is the largest norm of a row with all its coins, or for Gaussian noise in
    dimension d the largest norm of a row plus sigma (√d + 3). Longer observations are projected back onto the unit
    ball. That happens with probability at most 7e-5, which is how often the noise alone is longer than sigma (√d + 3)
    for d = 1, and bounds it for every d.

    Parameters
    ----------
    latent : FiniteMDP
        Transitions and rewards. Its features are the rows where no embedding is given.
    noise : {"none", "coins", "gaussian"}, optional
    n_coins : int, optional
        Number of coins, >= 1 with coins, else 0.
    sigma : float, optional
        Standard deviation of Gaussian noise, before scaling; else 0.
    embedding : array_like, optional
        The rows: one array (S, m) for all levels, or H arrays (S_h, m).
    dimension : int, optional
        Rotate the rows into this dimension d >= m by a matrix with orthonormal rows, the same at every level. Not with
        coins.
    rotation : {"random", "hadamard"}, optional
        ``"random"`` (the default where `dimension` is given, and d = m where it is not): uniformly random.
        ``"hadamard"``: Sylvester's matrix over √d, where d is a power of 2, by default the next from m on.
    rng : None, int, SeedSequence or Generator, optional
        Draws the random rotation.
    numbered : bool, optional
        Whether algorithms with tables may see the number of the latent state; with False they refuse the environment.
    name : str, optional
        Name of the environment.
    parameters : mapping, optional
        The generator's arguments, JSON-able. Default: the arguments above, and name and parameters of
        `latent`.

    Returns
    -------
    CompiledEnv
        With `latent` as its hidden MDP, whose rewards it pays.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type, shape or range.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> latent = dmq.environments.chain(horizon=4)
    >>> block_mdp(latent, noise="gaussian", sigma=0.1, dimension=8, rng=0)
    CompiledEnv('block-mdp', horizon=4, n_actions=3, dimension=8)
    """
    if not isinstance(latent, FiniteMDP):
        raise TypeError(f"latent: expected a FiniteMDP, got {type(latent).__name__}")
    n_coins, sigma = integer("n_coins", n_coins, 0), number("sigma", sigma, 0.0, LARGEST)
    dimension = None if dimension is None else integer("dimension", dimension, 1)
    rows = _rows(latent, embedding)
    seed: int | str | None = None
    if dimension is not None or rotation is not None:
        if noise == "coins":
            raise ValueError("dimension, rotation: expected None with coins, which are coordinates of their own")
        if rotation is not None:
            one_of("rotation", rotation, ("random", "hadamard"))
        m = rows[0].shape[1]
        if rotation == "hadamard":
            rows = _mapped(rows, _hadamard_rows(m, dimension))
        else:
            generator, seed = seeded(rng)
            d = m if dimension is None else integer("dimension", dimension, m)
            rows = _mapped(rows, orthonormal_rows(m, d, generator))
    largest = max(float(np.linalg.norm(array, axis=1).max()) for array in rows)
    reach = np.sqrt(largest**2 + n_coins) + sigma * (np.sqrt(rows[0].shape[1]) + MARGIN)
    if parameters is None:
        parameters = {
            "latent": {"name": latent.name, **latent.parameters},
            "noise": noise,
            "n_coins": n_coins,
            "sigma": sigma,
            "dimension": dimension,
            "rotation": rotation,
            "rotation_rng": seed,
        }
    scale = float(1 / max(1.0, reach))
    return _environment(latent, rows, noise, n_coins, sigma, scale, numbered, name, dict(parameters))


@register("lock-bernoulli")
def lock_bernoulli(
    horizon: int, switch: float = 0.0, *, n_actions: int = 4, observation: str = "latent", rng: Seed = None
) -> FiniteMDP | CompiledEnv:
    """Build the combination lock with coins (microsoft/StateDecoding, LockBernoulli).

    States A (where episodes start), B and C. At each level A has one secret action that stays, and the next action
    (modulo K) that goes to B; B likewise has one that stays and a next one that goes to A. All four end up in the other
    of A and B with probability `switch`. Everything else leads to C, for good. At the last level these actions pay 1
    with probability 1/2; nothing else pays.

    Parameters
    ----------
    horizon : int
        Number of levels H >= 1.
    switch : float, optional
        Probability in [0, 1] of ending up in the other live state; the field uses 0 and 0.1.
    n_actions : int, optional
        Number of actions K >= 2.
    observation : str, optional
        "latent": one-hot features of the state, as a finite MDP; "coins": these and H fair bits, scaled by 1/√(1 + H).
    rng : None, int, SeedSequence or Generator, optional
        Draws the secret actions.

    Returns
    -------
    FiniteMDP or CompiledEnv
        With optimal value 1/2.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.
    """
    one_of("observation", observation, ("latent", "coins"))
    latent = _decoding_lock("lock-bernoulli", horizon, switch, n_actions, rng, observation=observation)
    if observation == "latent":
        return latent
    return block_mdp(latent, noise="coins", n_coins=latent.horizon, name=latent.name, parameters=latent.parameters)


@register("lock-gaussian")
def lock_gaussian(
    horizon: int, switch: float = 0.0, sigma: float = 0.1, *, n_actions: int = 4, rng: Seed = None
) -> CompiledEnv:
    """Build the combination lock with Gaussian noise (microsoft/StateDecoding, LockGaussian).

    The lock of `lock_bernoulli`. What is observed is the one-hot state, padded to 3 + H coordinates, plus
    N(0, sigma²) in each, scaled as by `block_mdp`.

    Parameters
    ----------
    horizon : int
        Number of levels H >= 1.
    switch : float, optional
        Probability in [0, 1] of ending up in the other live state; the field uses 0 and 0.1.
    sigma : float, optional
        Standard deviation of the noise before scaling; the field uses 0.1, 0.2 and 0.3.
    n_actions : int, optional
        Number of actions K >= 2.
    rng : None, int, SeedSequence or Generator, optional
        Draws the secret actions.

    Returns
    -------
    CompiledEnv
        With optimal value 1/2.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.

    Examples
    --------
    >>> env = lock_gaussian(5, rng=0)
    >>> env.horizon, env.n_actions, env.dimension
    (5, 4, 8)
    """
    sigma = number("sigma", sigma, 0.0, LARGEST)
    latent = _decoding_lock("lock-gaussian", horizon, switch, n_actions, rng, sigma=sigma)
    return block_mdp(
        latent,
        noise="gaussian",
        sigma=sigma,
        embedding=np.eye(3, 3 + latent.horizon),
        name=latent.name,
        parameters=latent.parameters,
    )


@register("diabolical-lock")
def diabolical_lock(
    horizon: int,
    n_actions: int = 10,
    *,
    swap: float = 0.0,
    shaping: str = "live-cost",
    sigma: float = 0.1,
    observation: str = "latent",
    rng: Seed = None,
) -> FiniteMDP | CompiledEnv:
    """Build the diabolical combination lock (microsoft/Intrepid; yudasong/briee for anti-shaping).

    Two live states, A and B, and a dead one. At each level each live state has one secret action that keeps alive: the
    next state is the same, or with probability `swap` the other. All other actions fall into the dead state. Episodes
    start in A, or with probability `swap` in B.

    Parameters
    ----------
    horizon : int
        Number of levels H >= 1; the field uses 20 and 100.
    n_actions : int, optional
        Number of actions K >= 2.
    swap : float, optional
        Probability in [0, 1] of ending up in the other live state; 0 (Intrepid) or 0.5 (briee). With 0.5 the Low
        Variance constant is exponential in the horizon: `frugal` with N = 1000, eps_r = 3e-4 solves 5 of 5 up to
        H = 6, and none from H = 10 on (docs/benchmarks.md).
    shaping : str, optional
        "live-cost": secret actions cost 1/(H-1) each, but for the last one, which pays 5. "anti-shaping": falling pays
        0.1 with probability 1/2, and the last secret action pays 1.
    sigma : float, optional
        Standard deviation of the noise before scaling.
    observation : str, optional
        "latent": one-hot features of the state, as a finite MDP. "noisy": one-hot state and one-hot level (of H + 1),
        rotated by a Hadamard matrix into the next power of 2, plus N(0, sigma²) in every coordinate. The field's code
        has no noise in the coordinates that the rotation adds.
    rng : None, int, SeedSequence or Generator, optional
        Draws the secret actions.

    Returns
    -------
    FiniteMDP or CompiledEnv
        With optimal value 1. With live costs, the cost of a secret action is added to every reward and the sum divided
        by the largest of a path, so that rewards are as in the paper.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.
    """
    horizon, n_actions = integer("horizon", horizon, 1), integer("n_actions", n_actions, 2)
    swap, sigma = number("swap", swap), number("sigma", sigma, 0.0, LARGEST)
    one_of("shaping", shaping, ("live-cost", "anti-shaping"))
    one_of("observation", observation, ("latent", "noisy"))
    generator, seed = seeded(rng)
    secrets = generator.integers(n_actions, size=(horizon, 2))
    own = {
        "horizon": horizon,
        "n_actions": n_actions,
        "swap": swap,
        "shaping": shaping,
        "sigma": sigma,
        "observation": observation,
        "rng": seed,
    }
    build = _live_cost if shaping == "live-cost" else _anti_shaping
    latent = build(secrets, n_actions, swap, own)
    if observation == "latent":
        return latent
    state, level = np.eye(3), np.eye(horizon + 1)
    return block_mdp(
        latent,
        noise="gaussian",
        sigma=sigma,
        embedding=[np.hstack([state, np.tile(level[h], (3, 1))]) for h in range(horizon)],
        rotation="hadamard",
        name=latent.name,
        parameters=latent.parameters,
    )


@register("noisy-deep-sea")
def noisy_deep_sea(
    size: int, *, sigma: float = 0.1, dimension: int | None = None, stochastic: bool = False, rng: Seed = None
) -> CompiledEnv:
    """Build deep sea (see `deep_sea`) with noisy observations of the column.

    Parameters
    ----------
    size : int
        N >= 1: horizon and number of columns.
    sigma : float, optional
        Standard deviation of the noise in every coordinate, before scaling.
    dimension : int, optional
        Rotate the one-hot columns into this dimension d >= N by a random matrix with orthonormal rows. Default: plain
        one-hot columns, d = N.
    stochastic : bool, optional
        Right moves stay in their column with probability 1/N.
    rng : None, int, SeedSequence or Generator, optional
        Draws which action is right in each cell, and the rotation. None is the fixed map of bsuite's sweep, and the
        rotation drawn from seed 0.

    Returns
    -------
    CompiledEnv
        With rewards shifted by 0.01/N; in original units the optimum of the deterministic form is 0.99.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type or out of range.

    Examples
    --------
    >>> env = noisy_deep_sea(5, rng=0)
    >>> env.horizon, env.n_actions, env.dimension
    (5, 2, 5)
    """
    sigma = number("sigma", sigma, 0.0, LARGEST)
    dimension = None if dimension is None else integer("dimension", dimension, 1)
    generator, seed = seeded(0 if rng is None else rng)
    latent = deep_sea(size, rng=None if rng is None else generator, stochastic=stochastic)
    return block_mdp(
        latent,
        noise="gaussian",
        sigma=sigma,
        dimension=dimension,
        rng=generator,
        name="noisy-deep-sea",
        parameters={
            **latent.parameters,
            "sigma": sigma,
            "dimension": dimension,
            "rng": None if rng is None else seed,
        },
    )


def _environment(
    latent: FiniteMDP,
    rows: tuple[Array, ...],
    noise: str,
    n_coins: int,
    sigma: float,
    scale: float,
    numbered: bool,
    name: str,
    parameters: dict[str, Any],
) -> CompiledEnv:
    """Compile a block MDP from arguments that are drawn already, so that another process makes the same one."""
    arguments = (latent, rows, noise, n_coins, sigma, scale, numbered, name, parameters)
    model = FiniteModel(latent.P, latent.R, latent.features, latent.start, latent.caps)
    return CompiledEnv(
        BlockModel(model, rows, noise=noise, n_coins=n_coins, sigma=sigma, scale=scale),
        name=name,
        parameters=parameters,
        factory=functools.partial(_environment, *arguments),
        latent=latent,
        numbered=numbered,
        data=rows,
    )


def _rows(latent: FiniteMDP, embedding: ArrayLike | Sequence[ArrayLike] | None) -> tuple[Array, ...]:
    """Return H arrays (S_h, m), shared where the arrays given are."""
    if embedding is None:
        purpose = "what a compiled environment shows of them"
        label = f"features of {latent.name}"
        return tuple(once_each(lambda rows: as_dense(label, rows, purpose), latent.features))
    try:
        given: list[Any] = list(embedding)  # type: ignore[arg-type]
    except TypeError as error:
        raise TypeError(f"embedding: expected an array, got {type(embedding).__name__}") from error
    if given and np.ndim(given[0]) == 1:
        given = [given] * latent.horizon
    if len(given) != latent.horizon:
        raise ValueError(f"embedding: expected one array, or {latent.horizon}, one a level, got {len(given)}")
    axes = ("state", "feature")
    rows = once_each(lambda item, level: as_float64(f"embedding: level {level}", item, axes), given, range(len(given)))
    for level, array in enumerate(rows):
        if array.ndim != 2 or array.shape != (latent.n_states[level], *rows[0].shape[1:]):
            width = rows[0].shape[1] if rows[0].ndim == 2 else "m"
            raise ValueError(
                f"embedding: level {level}: expected shape ({latent.n_states[level]}, {width}), got {array.shape}"
            )
    return tuple(rows)


def _mapped(rows: tuple[Array, ...], rotation: Array) -> tuple[Array, ...]:
    """Multiply every array by a matrix; arrays shared by levels stay shared."""
    return tuple(once_each(lambda array: array @ rotation, rows))


def _hadamard_rows(m: int, dimension: int | None) -> Array:
    """Return the first m rows of Sylvester's matrix over √d, (m, d)."""
    d = 1 << (m - 1).bit_length() if dimension is None else integer("dimension", dimension, m)
    if d & (d - 1):
        raise ValueError(f"dimension: expected a power of 2 for a Hadamard matrix, got {d}")
    matrix: Array = np.ones((1, 1))
    while len(matrix) < d:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    rows: Array = matrix[:m] / np.sqrt(d)
    return rows


def _decoding_lock(name: str, horizon: int, switch: float, n_actions: int, rng: Seed, **others: Any) -> FiniteMDP:
    """Return the lock of StateDecoding with one-hot features; `others` are further arguments to note down."""
    horizon, n_actions = integer("horizon", horizon, 1), integer("n_actions", n_actions, 2)
    switch = number("switch", switch)
    generator, seed = seeded(rng)
    secrets = generator.integers(n_actions, size=(horizon, 2))
    last = np.zeros((3, n_actions))
    for state in (A, B):
        last[state, [secrets[-1, state], (secrets[-1, state] + 1) % n_actions]] = 0.5
    return FiniteMDP(
        P=_live_transitions(secrets[:-1], n_actions, switch, crossing=True),
        R=[np.zeros((3, n_actions))] * (horizon - 1) + [last],
        features=[np.eye(3)] * horizon,
        caps=[0.0] * (horizon - 1) + [1.0],
        name=name,
        parameters={"horizon": horizon, "switch": switch, "n_actions": n_actions, **others, "rng": seed},
    )


def _live_transitions(secrets: NDArray[np.int64], n_actions: int, switch: float, *, crossing: bool) -> list[Array]:
    """Transitions (3, K, 3) for secret actions (H - 1, 2) of A and B; levels with the same secrets share them.

    A secret action stays, and with `crossing` the next one changes over; either ends up in the other live state with
    probability `switch`.
    """

    @functools.cache
    def build(of_a: int, of_b: int) -> Array:
        transitions = np.zeros((3, n_actions, 3))
        transitions[:, :, C] = 1
        for state, other, secret in ((A, B, of_a), (B, A, of_b)):
            transitions[state, secret, [state, other, C]] = 1 - switch, switch, 0
            if crossing:
                transitions[state, (secret + 1) % n_actions, [state, other, C]] = switch, 1 - switch, 0
        return transitions

    return [build(of_a, of_b) for of_a, of_b in secrets.tolist()]


def _live_cost(secrets: NDArray[np.int64], n_actions: int, swap: float, own: dict[str, Any]) -> FiniteMDP:
    """Diabolical lock whose secret actions cost 1/(H-1) and at last pay END."""
    horizon = len(secrets)
    cost = 1 / (horizon - 1) if horizon > 1 else 0.0
    rewards = np.full((horizon, 3, n_actions), cost)
    rewards[np.arange(horizon)[:, None], [A, B], secrets] -= cost
    rewards[-1, [A, B], secrets[-1]] = END + cost
    P, start = _live_transitions(secrets[:-1], n_actions, swap, crossing=False), np.array([1 - swap, swap, 0])
    return FiniteMDP(
        P=P,
        R=unit_sums(P, list(rewards), start),
        features=[np.eye(3)] * horizon,
        start=start,
        name="diabolical-lock",
        parameters=own,
    )


def _anti_shaping(secrets: NDArray[np.int64], n_actions: int, swap: float, own: dict[str, Any]) -> FiniteMDP:
    """Diabolical lock in which falling pays FALL half the time, and the last secret action 1.

    At the last level one reward is certain and one is not, so the reward depends on the next state: paid or not.
    """
    horizon, live = len(secrets), [A, B]
    falls = np.zeros((horizon, 3, n_actions))
    falls[:, live] = FALL / 2
    falls[np.arange(horizon)[:, None], live, secrets] = 0
    ending = np.zeros((3, n_actions, 2))
    ending[live] = 0.5
    ending[C, :, 0] = 1
    ending[live, secrets[-1]] = 0, 1
    last = np.zeros((3, n_actions, 2))
    last[live, :, 1] = FALL
    last[live, secrets[-1], 1] = 1
    return FiniteMDP(
        P=[*_live_transitions(secrets[:-1], n_actions, swap, crossing=False), ending],
        R=[*falls[:-1], last],
        features=[np.eye(3)] * horizon,
        start=[1 - swap, swap, 0],
        caps=[FALL] * (horizon - 1) + [0.0],
        name="diabolical-lock",
        parameters=own,
    )
