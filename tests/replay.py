"""Runs the literal reference on the moments a `DMQ` run saw, call by call."""

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
