"""Measure each hot path beside the part of its work that no implementation can avoid.

    python bench/roofline.py

The bound of a path is that part alone, by the best code at hand: the uniforms that a rollout draws, dsyrk and dgemm,
one factorisation, one pass over a factor in memory. Path and bound take turns. Prints the fastest of both and the share
of the time of the path that its bound takes. A share above 1 means that the bound carries more of the cost of a call
from Python than the path.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from common import ROUNDS, heading, line
from scipy.linalg import blas, lapack
from test_compiled_rollouts import BLOCK, HORIZON, N, bare_blas, job
from test_samplers import policy_of, random_mdp

import dmq_fast as dmq
from dmq_fast import environments, kernels
from dmq_fast.experiments import oracle_bench
from dmq_fast.samplers import FlowSampler, RolloutSampler

CHUNK = 16_384


class Path(NamedTuple):
    """A hot path, and what bounds it. One call of either is `size` units of work."""

    name: str
    unit: str
    size: int
    call: Callable[[], Any]
    bound: str
    floor: Callable[[], Any]


def main() -> None:
    """Print the table."""
    heading(("path", "unit", "ns a unit", "bound", "ns a unit", "share"))
    for path in paths():
        methods = [oracle_bench.Method(path.name, "", call, lambda _: True) for call in (path.call, path.floor)]
        ours, bound = (min(times) * 1e9 / path.size for times in oracle_bench.interleaved(methods, ROUNDS, 0))
        line((path.name, path.unit, f"{ours:.3g}", path.bound, f"{bound:.3g}", f"{bound / ours:.2f}"))


def paths() -> Iterator[Path]:
    """Yield the paths, in the order of a run: rollouts, moments, oracle, regression, and the sampler of counts."""
    yield from finite_rollouts()
    yield from compiled_rollouts()
    for d in (16, 64, 256):
        rows = np.random.default_rng(d).normal(size=(256, d))
        moment, total = kernels.SecondMoment(d), np.zeros((d, d), order="F")
        dsyrk = partial(blas.dsyrk, 1.0, rows.T, beta=1.0, c=total, overwrite_c=1)
        yield Path(f"second moment, d = {d}", "row", 256, partial(moment.add_rows, rows), "dsyrk", dsyrk)
    for d in (16, 64, 256):
        yield from decisions(d)
    for d in (64, 256):
        yield from decisions_by_rank(d)
    for d in (32, 128):
        m1, m2 = map(np.asfortranarray, oracle_bench.instance(d))
        value = partial(kernels.dsec_value, m1, m2, 1.0)
        yield Path(f"value, d = {d}", "call", 1, value, "dpotrf, dsygst, dsytrd", partial(tridiagonal, m1, m2))
    for d in (64, 256):
        row, ridge = np.random.default_rng(d).normal(size=d), kernels.Ridge(d, 1.0)
        factor = np.ones(d * (d + 1) // 2)
        scale = partial(np.multiply, factor, 1.0, out=factor)
        yield Path(f"ridge update, d = {d}", "row", 1, partial(ridge.update, row, 1.0), "one pass over a factor", scale)
    yield from flow()


def finite_rollouts() -> Iterator[Path]:
    """Rollouts of finite MDPs with all moments, beside the uniforms that they draw."""
    for name, env, rule, draws in (
        ("chain 20, greedy", environments.chain(20), "greedy", 19),
        ("deep sea 20, uniform", environments.deep_sea(20), "uniform", 19),
        ("lock 100, uniform", environments.combination_lock(100, rng=0), "uniform", 99),
    ):
        sampler, stream, levels = RolloutSampler(env), dmq.Stream(0), range(env.horizon)
        collect = partial(sampler.collect, policy_of(env, rule), CHUNK, stream=stream, levels=levels)
        uniforms = partial(repeated, draws, partial(stream.uniforms, CHUNK))
        yield Path(f"rollouts, {name}", "step", CHUNK * draws, collect, "uniforms", uniforms)


def compiled_rollouts() -> Iterator[Path]:
    """Rollouts of block MDPs, beside the dgemm of the scores and the dsyrk of the moments."""
    for name in ("coins 32", "rotated 64", "rotated 128", "gaussian 64", "gaussian 128"):
        env, theta, policy = job(name)
        stream, steps = dmq.Stream(0), N * HORIZON
        collect = partial(RolloutSampler(env).collect, policy, N, stream=stream, levels=range(env.horizon))
        phi = np.random.default_rng(0).normal(size=(BLOCK, env.dimension))
        floor = partial(bare_blas, phi, theta[0], env.horizon)
        yield Path(f"rollouts, {name}", "step", steps, collect, "dgemm, dsyrk", floor)


def decisions(d: int) -> Iterator[Path]:
    """A decision that is False, alone and in a batch, beside one factorisation."""
    found = {method.name: method for method in oracle_bench.methods(d)}
    factor = found[oracle_bench.POTRF].call
    alone, batch = found[oracle_bench.FALSE], found[oracle_bench.BATCH]
    yield Path(f"decision, d = {d}", "call", 1, alone.call, "dpotrf", factor)
    factors = partial(repeated, batch.calls, factor)
    yield Path(f"decision in a batch, d = {d}", "level", batch.calls, batch.call, "dpotrf", factors)


def decisions_by_rank(d: int) -> Iterator[Path]:
    """The answers of 100 levels for one dense row each, beside as many products of a symmetric matrix and a vector."""
    rng = np.random.default_rng(0)
    rows = kernels.LevelRows.of([rng.normal(size=(1, d)) / np.sqrt(d) for _ in range(100)])
    oracles = [kernels.RowOracle(d, 0.01) for _ in range(100)]
    for h, oracle in enumerate(oracles):
        oracle.add(rng.normal(size=(2 * d, d)) / np.sqrt(d))
        oracle.decision(rows, 1.0, 2.0, h)
    answers = partial(kernels.RowScan(1.0, 100.0).scan, oracles, rows, 1, 0, 99, 0)
    inverses, vector = [np.asfortranarray(oracle.matrix()) for oracle in oracles], np.ones(d)

    def products() -> None:
        for inverse in inverses:
            blas.dsymv(1.0, inverse, vector)

    yield Path(f"decision on a row, d = {d}", "level", 100, answers, "dsymv", products)


def tridiagonal(m1: np.ndarray, m2: np.ndarray) -> None:
    """Do what a direct method of the value cannot avoid: reduce the pencil to a tridiagonal matrix."""
    factor = lapack.dpotrf(m1, lower=1, clean=0)[0]
    reduced = lapack.dsygst(m2, factor, lower=1)[0]
    lapack.dsytrd(reduced, lower=1)


def flow() -> Iterator[Path]:
    """Counts instead of trajectories, beside as many binomials of NumPy as the counts need."""
    states, support, horizon = 40, 4, 20
    env = random_mdp(support, horizon, states)
    draws = (horizon - 2) * states * (support - 1)
    sampler, stream, policy = FlowSampler(env), dmq.Stream(0), policy_of(env, "greedy")
    collect = partial(sampler.collect, policy, 10**6, stream=stream, levels=range(horizon))
    generator, n = np.random.default_rng(0), np.full(states * (support - 1), 10**6 // states)
    binomials = partial(repeated, horizon - 2, partial(generator.binomial, n, 0.3))
    yield Path("flow, 40 states", "binomial", draws, collect, "binomials of NumPy", binomials)


def repeated(times: int, call: Callable[[], Any]) -> None:
    """Call a function several times."""
    for _ in range(times):
        call()


if __name__ == "__main__":
    main()
