"""DMQ on Gymnasium environments that nobody here wrote, some seeds each, against exact dynamic programming."""

import pytest
from flat import flat

from dmq_fast.environments import from_gymnasium

gymnasium = pytest.importorskip("gymnasium")


def shares(env, n=5, **settings):
    results = [flat(env, rng=seed, **settings).learn() for seed in range(n)]
    assert all(result.status == "ended" for result in results)
    return [env.value(result.policy) / env.optimal_value for result in results]


def test_frozen_lake_without_slipping_is_solved():
    env = from_gymnasium(gymnasium.make("FrozenLake-v1", is_slippery=False), horizon=20)
    assert shares(env, n=2) == pytest.approx([1.0] * 2, abs=1e-12)


@pytest.mark.slow
def test_cliff_walking_is_solved():
    env = from_gymnasium("CliffWalking-v1", horizon=20)
    assert shares(env, n_samples=20) == pytest.approx([1.0] * 5, abs=1e-12)
    assert env.original_value(env.optimal_value) == pytest.approx(-13)


@pytest.mark.slow
def test_slippery_frozen_lake_is_nearly_solved():
    """A hard one: the minimum gap is 3e-5, so that most wrong actions cost next to nothing."""
    env = from_gymnasium(gymnasium.make("FrozenLake-v1"), horizon=20)
    assert min(shares(env, n_samples=20_000, eps_r=1e-3, ridge=1e-4)) > 0.9
