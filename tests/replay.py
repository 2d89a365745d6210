"""Runs the literal reference on the moments a `DMQ` run saw, call by call."""

import itertools

import numpy as np
import reference

from dmq_fast import DMQ, Policy
from dmq_fast.environments import FiniteMDP
from dmq_fast.kernels import Fixed, Greedy, Uniform
from dmq_fast.samplers.streams import OWN_CALLS


def to_package(policy):
    kinds = {"uniform": Uniform, "fixed": Fixed, "greedy": Greedy}
    return Policy([kinds[kind](*arguments) for kind, *arguments in policy])


def to_reference(policy):
    def rule(rule):
        if isinstance(rule, Uniform):
            return ("uniform",)
        return ("fixed", rule.action) if isinstance(rule, Fixed) else ("greedy", rule.theta)

    return tuple(rule(r) for r in policy.rules)


def replay(algorithm: DMQ) -> reference.ReferenceDMQ:
    """The reference, after `learn`, fed by the sampler and streams of `algorithm`."""
    sampler, stream, parameters = algorithm.sampler, algorithm.stream, algorithm.parameters
    counters = {"call": 0, "mixture": 0}

    def collect(policy, n, levels, returns_from):
        counters["call"] += 1
        moments = sampler.collect(
            to_package(policy),
            n,
            stream=stream.at(counters["call"]),
            levels=levels,
            returns_from=returns_from,
        )
        returns = {h: (returns.moment, returns.n) for h, returns in moments.returns.items()}
        return reference.Batch(moments.gram, returns)

    def mixture(total, size):
        counters["mixture"] += 1
        generator = stream.at(OWN_CALLS + counters["mixture"]).generator()
        counts = []
        for others in range(size, 1, -1):
            counts.append(int(generator.binomial(total - sum(counts), 1 / others)))
        return [*counts, total - sum(counts)]

    return reference.ReferenceDMQ(
        collect,
        sampler.horizon,
        sampler.n_actions,
        sampler.dimension,
        n_samples=parameters.n_samples,
        eps_s=parameters.eps_s,
        eps_t=parameters.eps_t,
        eps_r=parameters.eps_r,
        ridge=parameters.ridge,
        initial=[to_reference(policy) for policy in algorithm.initial],
        recheck=algorithm.options.recheck,
        accumulate=algorithm.options.accumulate,
        reuse=algorithm.options.reuse,
        memo=algorithm.options.memo,
        features=sampler.env.features if isinstance(sampler.env, FiniteMDP) else None,
        mixture=mixture if algorithm.options.mixture == "multinomial" else None,
    ).learn()


def same_policy(mine, theirs, atol):
    mine = to_reference(mine)
    return len(mine) == len(theirs) and all(
        a[0] == b[0] and (len(a) == 1 or np.allclose(a[1], b[1], rtol=0, atol=atol))
        for a, b in zip(mine, theirs, strict=True)
    )


def assert_agrees(algorithm, atol=1e-10):
    """Check that a run and the reference agree in each decision, the cover, theta and the counts; return the result."""
    result, reference = algorithm.learn(), replay(algorithm)
    mine = [(call.level, call.target, call.action, call.decision) for call in result.history]
    assert mine == [entry[:4] for entry in reference.history]
    assert result.counts["trajectories"] == dict(reference.counts)
    np.testing.assert_allclose(result.theta, reference.theta, rtol=0, atol=atol)
    assert result.cover_sizes == tuple(map(len, reference.cover))
    pairs = zip(itertools.chain(*result.cover), itertools.chain(*reference.cover), strict=True)
    assert all(same_policy(a, b, atol) for a, b in pairs)
    if algorithm.options.oracle == "value":
        values = [call.value for call in result.history]
        np.testing.assert_allclose(values, [entry[4] for entry in reference.history], rtol=1e-8, atol=1e-12)
    return result
