"""Measure the DSEC oracle beside NumPy and SciPy: the methods of ``dmq-fast bench oracle``, alone and interleaved.

pytest bench/test_oracle.py
"""

from functools import partial

import numpy as np
import pytest

from dmq_fast.experiments import oracle_bench
from dmq_fast.kernels import ShiftScan, dsec_decision, dsec_value

ROUNDS = 9
NAMES = [method.name for method in oracle_bench.methods(2)]


@pytest.mark.parametrize("d", oracle_bench.DIMENSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_method(benchmark, d, name):
    (method,) = (method for method in oracle_bench.methods(d) if method.name == name)
    benchmark.group = f"oracle, d = {d}"
    rounds, repeats = ROUNDS, 1
    if benchmark.enabled:
        repeats = max(1, int(oracle_bench.SAMPLE / oracle_bench.timed(method.call, 3)))

    answer = benchmark.pedantic(method.call, rounds=rounds, iterations=repeats, warmup_rounds=1)

    assert method.check(answer)
    benchmark.extra_info["answers a call"] = method.calls


@pytest.mark.parametrize("d", oracle_bench.DIMENSIONS)
def test_ratios_to_the_best_alternative(benchmark, d):
    rounds = ROUNDS if benchmark.enabled else 1
    benchmark.group = "oracle, all methods in turn"

    result = benchmark.pedantic(oracle_bench.measure, args=([d], rounds), rounds=1)

    ratios = {row["method"]: row["ratio"] for row in result["measurements"]}
    assert set(ratios) == {method.name for method in oracle_bench.methods(d)}
    for row in result["measurements"]:
        benchmark.extra_info[row["method"]] = f"{row['median_us']:.3g} us, x{row['ratio']:.3g}"
    benchmark.extra_info["warnings"] = result["warnings"]


@pytest.mark.parametrize("d", oracle_bench.DIMENSIONS)
def test_decision_kernel_against_dpotrf(benchmark, d):
    """Compare the kernel without Python, many decisions a call on the same moments, with dpotrf on a given matrix.

    A level is 2 d^2 doubles. The levels are so few that they stay in the cache, as the matrix of dpotrf does.
    """
    by_name = {method.name: method for method in oracle_bench.methods(d)}
    m1, m2 = oracle_bench.instance(d)
    levels = max(1, min(100, 2**15 // (d * d)))
    cover = np.repeat((m1 - oracle_bench.REGULARISER * np.eye(d))[None], levels, axis=0)
    grams = np.repeat(m2[None], levels, axis=0)
    scan = ShiftScan(d, 1.0, by_name[oracle_bench.FALSE].call.args[3], oracle_bench.REGULARISER, False)
    arguments = cover, grams, 1.0, 0, levels - 1, 0
    kernel = oracle_bench.Method(
        "kernel", oracle_bench.OURS, lambda: scan.scan(*arguments), lambda answer: answer[0] == -1, levels
    )
    compared = [kernel, by_name[oracle_bench.POTRF]]
    benchmark.group = "decision kernel and dpotrf in turn"

    samples = benchmark.pedantic(oracle_bench.interleaved, args=(compared, 25 if benchmark.enabled else 1, d), rounds=1)

    ours, floor = map(np.median, samples)
    assert scan.n_marginal == 0
    benchmark.extra_info["kernel us"] = round(float(ours) * 1e6, 3)
    benchmark.extra_info["dpotrf us"] = round(float(floor) * 1e6, 3)
    benchmark.extra_info["kernel / dpotrf"] = round(float(ours / floor), 2)


@pytest.mark.parametrize("d", [64, 256, 1000])
def test_decisions_near_the_threshold(benchmark, d):
    """Time decisions at relative distances of 1e-9 and 1e-12 from the threshold, and at a hundredth, in turn."""
    m1, m2 = oracle_bench.instance(d)
    v = dsec_value(m1, m2, 1.0)
    compared = [
        oracle_bench.Method(
            f"{decision}, {distance:g}", oracle_bench.OURS,
            partial(dsec_decision, m1, m2, 1.0, v * (1 - distance if decision else 1 + distance)),
            oracle_bench.is_true if decision else oracle_bench.is_false,
        )
        for distance in (1e-2, 1e-9, 1e-12)
        for decision in (True, False)
    ]  # fmt: skip
    benchmark.group = "decisions near the threshold in turn"
    rounds = 1 if not benchmark.enabled else 3 if d > 500 else ROUNDS

    samples = benchmark.pedantic(oracle_bench.interleaved, args=(compared, rounds, d), rounds=1)

    for method, times in zip(compared, samples, strict=True):
        benchmark.extra_info[method.name] = f"{np.median(times) * 1e6:.4g} us"
