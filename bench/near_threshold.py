"""Decisions of the oracle near its threshold, against exact arithmetic: a table of docs/benchmarks.md.

    python bench/near_threshold.py --decisions 100000 --seed 0

Half of the decisions have a threshold within a relative 1e-12 of v, the others one that is off by 1e-12 to 1e-2. The
dense form is asked by four functions, the rank form by two, the square-root form by one, each the same number of
decisions. Moments have dimensions 1 to 16 and condition numbers of 1 to 1e40; some are singular, some made of small
integers or dyadic numbers. An unflagged answer must be right: the last column is the exact upper 95 % confidence limit
(Clopper and Pearson, 1934) of the chance that it is wrong. Needs nothing but the package.

Exact arithmetic is Python's integers, to which float64 numbers are scaled. v >= eps2 iff A = eps2 M1 - eps1 M2 is not
positive semidefinite, or is so with a direction in which A is 0 and M1 is not: rank A < rank (M1 + M2).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common import heading, line, options
from numpy.typing import NDArray
from scipy.stats import beta

from dmq_fast.kernels import LevelRows, RowOracle, RowScan, ShiftScan, dsec, dsec_decision, dsec_rows

Matrix = NDArray[np.float64]
# A function's answer, whether it is flagged, and the truth.
Case = tuple[str, bool, bool, bool]

NEAR = 1e-12
STEPS = 4


# ---- Exact arithmetic


def integers(matrix: Any) -> tuple[Any, int]:
    """Return integers, as an object array, and the exponent of their unit: matrix = integers 2^exponent."""
    mantissas, exponents = np.frexp(np.asarray(matrix, dtype=float))
    numbers = (mantissas * 2.0**53).astype(np.int64).astype(object)
    unit = int(exponents[mantissas != 0].min(initial=0)) - 53
    return numbers * 2 ** np.maximum(exponents - 53 - unit, 0).astype(object), unit


def rank(rows: list[list[int]]) -> int | None:
    """Return the rank of a symmetric matrix of integers, upper triangle in rows, or None if it has x^T A x < 0.

    Elimination by Bareiss, in which all divisions are exact. A zero on the diagonal of a positive semidefinite matrix
    is in a row of zeros. `rows` is overwritten.
    """
    previous, found, d = 1, 0, len(rows)
    for k, row in enumerate(rows):
        pivot = row[0]
        if pivot < 0 or (pivot == 0 and any(row)):
            return None
        if pivot == 0:
            continue
        for i in range(k + 1, d):
            below, factor = rows[i], row[i - k]
            rows[i] = [(x * pivot - factor * y) // previous for x, y in zip(below, row[i - k :], strict=True)]
        previous, found = pivot, found + 1
    return found


def shifted(first: Any, second: Any) -> bool:
    """Return whether lambda_max(first^-1 second) >= 1, for positive semidefinite object arrays of integers (d, d)."""

    def upper(matrix: Any) -> list[list[int]]:
        return [row[i:].tolist() for i, row in enumerate(matrix)]

    of_a = rank(upper(first - second))
    return of_a is None or (of_a < len(first) and of_a != rank(upper(first + second)))


def common(*parts: tuple[Any, int]) -> list[Any]:
    """Return matrices of integers in one unit."""
    least = min(unit for _, unit in parts)
    return [numbers * (1 << (unit - least)) for numbers, unit in parts]


def times(part: tuple[Any, int], *factors: float) -> tuple[Any, int]:
    """Return a matrix of integers times numbers, exactly."""
    numbers, unit = part
    for factor in factors:
        (integer, power) = integers(factor)
        numbers, unit = numbers * int(integer), unit + power
    return numbers, unit


def total(*parts: tuple[Any, int]) -> tuple[Any, int]:
    """Return the sum of matrices of integers."""
    return sum(common(*parts)), min(unit for _, unit in parts)


def gram(rows: Matrix, weights: Any) -> tuple[Any, int]:
    """Return sum_r w_r phi_r phi_r^T, exactly."""
    numbers, unit = integers(rows)
    scaled, shift = integers(weights)
    return (numbers.T * scaled) @ numbers, 2 * unit + shift


def ridged(part: tuple[Any, int], eps_r: float) -> tuple[Any, int]:
    """Return a matrix plus eps_r I, exactly."""
    return total(part, integers(eps_r * np.eye(len(part[0]))))


# ---- Instances


def bounded(rng: np.random.Generator, n: int, d: int) -> Matrix:
    """Return n Gaussian rows, those longer than 1 scaled to length 1."""
    rows = rng.normal(size=(n, d))
    return rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))


def small(rng: np.random.Generator, n: int, d: int) -> Matrix:
    """Return n rows of small integers, times a power of two."""
    return rng.integers(-3, 4, size=(n, d)) * 2.0 ** -int(rng.integers(0, 4))


def moment(rows: Matrix) -> Matrix:
    """Return the second moment of some rows, symmetric."""
    out = rows.T @ rows / len(rows)
    return (out + out.T) / 2


def rotated(rng: np.random.Generator, spectrum: Matrix) -> Matrix:
    """Return a symmetric matrix with these eigenvalues, up to rounding."""
    turn = np.linalg.qr(rng.normal(size=(len(spectrum), len(spectrum))))[0]
    out = turn * spectrum @ turn.T
    return (out + out.T) / 2


def graded(rng: np.random.Generator, m1: Matrix, m2: Matrix) -> tuple[Matrix, Matrix]:
    """Return both moments in other units, a power of two for each coordinate."""
    units = 2.0 ** rng.integers(-40, 41, size=len(m1))
    return m1 * units * units[:, None], m2 * units * units[:, None]


def ill(rng: np.random.Generator, d: int, least: float, most: float) -> tuple[Matrix, Matrix]:
    """Return an M1 with a condition number of 10^least to 10^most, and the moment of a few rows."""
    spectrum = 10.0 ** np.linspace(-rng.uniform(least, most), 0, d)
    return rotated(rng, spectrum), moment(bounded(rng, int(rng.integers(1, 2 * d + 1)), d))


def regularised(rng: np.random.Generator, d: int) -> tuple[Matrix, Matrix]:
    """Return the moment of few rows plus a ridge of 1e-16 to 1, and the moment of other rows."""
    few, other = bounded(rng, int(rng.integers(1, d + 1)), d), bounded(rng, int(rng.integers(1, 2 * d + 1)), d)
    return moment(few) + 10.0 ** -rng.uniform(0, 16) * np.eye(d), moment(other)


def singular(rng: np.random.Generator, d: int) -> tuple[Matrix, Matrix]:
    """Return an exact Gram matrix of fewer rows than columns, and one of combinations of them, or of other rows."""
    rows = small(rng, max(1, d - int(rng.integers(1, 3))), d)
    inside = rng.integers(-2, 3, size=(2, len(rows))) @ rows
    other = small(rng, 2, d)
    return rows.T @ rows, [inside.T @ inside, other.T @ other][int(rng.integers(4) == 0)]


def whole(rng: np.random.Generator, d: int) -> tuple[Matrix, Matrix]:
    """Return exact Gram matrices of small numbers, where ties and rows of zeros are common."""
    first, second = small(rng, int(rng.integers(1, 2 * d + 2)), d), small(rng, int(rng.integers(1, d + 2)), d)
    return first.T @ first, second.T @ second


DENSE: dict[str, Callable[[np.random.Generator, int], tuple[Matrix, Matrix]]] = {
    "condition to 1e8": lambda rng, d: ill(rng, d, 0, 8),
    "condition 1e8 to 1e15": lambda rng, d: ill(rng, d, 8, 15),
    "condition 1e15 to 1e40, graded": lambda rng, d: graded(rng, *ill(rng, d, 15, 40)),
    "tiny ridge": regularised,
    "singular": singular,
    "integers": whole,
}


def rows_of(rng: np.random.Generator, kind: str, n: int, d: int) -> Matrix:
    """Return n feature rows of a kind."""
    if kind == "one-hot":
        return np.eye(d)[rng.integers(d, size=n)]
    if kind == "integers":
        return small(rng, n, d)
    if kind == "sparse":
        return bounded(rng, n, d) * (rng.random(size=(n, d)) < 0.3)
    if kind == "alike":
        rows = rng.normal(size=d) + 10.0 ** rng.uniform(-9, -3) * rng.normal(size=(n, d))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return bounded(rng, n, d)


ROWS = ("dense", "one-hot", "sparse", "alike", "integers")


# ---- Thresholds


def threshold(true_at: Callable[[float], bool]) -> float | None:
    """Return the largest float at which the answer is True, by bisection; None if it is True or False at all."""
    low, high = 0, int(np.float64(1e300).view(np.int64))
    if true_at(1e300) or not true_at(5e-324):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if true_at(float(np.int64(middle).view(np.float64))) else (low, middle)
    return float(np.int64(low).view(np.float64))


def ratios(rng: np.random.Generator, at: float | None) -> Iterator[tuple[float, bool]]:
    """Yield thresholds for eps1 = 1, near v and farther away, and whether they are near."""
    if at is None:
        yield from ((float(ratio), False) for ratio in 10.0 ** rng.uniform(-20, 20, size=STEPS))
        return
    yield from ((at, True), (float(np.nextafter(at, np.inf)), True))
    for _ in range(STEPS - 1):
        for sign in (-1, 1):
            yield at * (1 + sign * 10.0 ** rng.uniform(-16, -12)), True
            yield at * (1 + sign * 10.0 ** rng.uniform(-12, -2)), False
    for sign in (-1, 1):
        yield at * (1 + sign * 10.0 ** rng.uniform(-12, -2)), False


# ---- The forms, each a generator of cases without end


def dense(rng: np.random.Generator) -> Iterator[tuple[bool, list[Case]]]:
    """Yield the answers for moments in matrices."""
    while True:
        kind = list(DENSE)[int(rng.integers(len(DENSE)))]
        d = int(rng.integers(1, 17))
        m1, m2 = DENSE[kind](rng, d)
        plain, zero = [np.ascontiguousarray(m)[None] for m in (m1, m2)], np.zeros((d, d))

        def scan(n: int, eps1: float, eps2: float, plain: Any = plain, zero: Any = zero) -> tuple[bool, bool]:
            scan = ShiftScan(len(zero), eps1, eps2, 1.0, False, regularizer=zero)
            return scan.scan(*plain, n, 0, 0, 0)[0] == 0, scan.n_marginal == 1

        at = threshold(lambda ratio, scan=scan: scan(1, 1.0, ratio)[0])
        found = list(ratios(rng, at))
        eps1 = float(2.0 ** rng.uniform(-3, 3)) if rng.random() < 0.5 else 1.0
        eps2 = np.array([ratio for ratio, _ in found]) * eps1
        decisions, flags = dsec_decision(m1, m2, eps1, eps2, return_marginal=True)
        first, second = integers(m1), integers(m2)
        for i, (_, near) in enumerate(found):
            n = int(rng.integers(1, 30))
            share = float(eps2[i] / n)  # n times it, exactly, is the threshold of a sum over n states
            truth = shifted(*common(times(first, eps2[i]), times(second, eps1)))
            of_sum = shifted(*common(times(first, share, n), times(second, eps1)))
            alone = dsec_decision(m1, m2, eps1, eps2[i], return_marginal=True)
            answer = dsec(m1, m2, eps1, eps2[i])
            yield (
                near,
                [
                    ("`dsec_decision`", *alone, truth),
                    ("`dsec_decision`, a stack", bool(decisions[i]), bool(flags[i]), truth),
                    ("`dsec`", answer.decision, answer.marginal, truth),
                    ("`ShiftScan`", *scan(n, eps1, share), of_sum),
                ],
            )


def rank_form(rng: np.random.Generator) -> Iterator[tuple[bool, list[Case]]]:
    """Yield the answers for rows beside a sum of rows."""
    while True:
        kind, d = ROWS[int(rng.integers(len(ROWS)))], int(rng.integers(1, 17))
        eps_r = float(rng.choice([1.0, 2.0**-7, 1e-2, 1e-6, 1e-12, 1e-15]))
        oracle = RowOracle(d, eps_r)
        for _ in range(int(rng.integers(0, 9))):
            n = int(rng.integers(1, 6))
            oracle.add(LevelRows.of([rows_of(rng, kind, n, d)]), divisor=float(n))
            if rng.random() < 0.5:
                oracle.decision(np.zeros((1, d)), 1.0, 1.0)  # the inverse is kept from here on
        block = rows_of(rng, kind, int(rng.integers(1, 9)), d)
        weights = rng.integers(1, 4, size=len(block)).astype(float)
        rows, n = LevelRows.of([block], [weights]), float(weights.sum())
        s, sums = oracle.matrix(), rows.gram(0)

        def dense_answer(ratio: float, s: Any = s, sums: Any = sums, eps_r: float = eps_r, n: float = n) -> bool:
            return ShiftScan(len(s), 1.0, ratio, eps_r, False).scan(s[None], sums[None], n, 0, 0, 0)[0] == 0

        first, second = ridged(integers(s), eps_r), gram(block, weights)
        for ratio, near in ratios(rng, threshold(dense_answer)):
            scan = RowScan(1.0, ratio)
            answer = scan.scan([oracle], rows, n, 0, 0, 0)[0] == 0, scan.n_marginal == 1
            truth = shifted(*common(times(first, ratio, n), second))
            how = "factorised" if scan.n_exact else "by the kept inverse"
            yield (
                near,
                [
                    (f"`RowScan`, {how}", *answer, truth),
                    ("`RowOracle.decision`", *oracle.decision(rows, 1.0, ratio, n=n, return_marginal=True), truth),
                ],
            )


def square_root(rng: np.random.Generator) -> Iterator[tuple[bool, list[Case]]]:
    """Yield the answers for raw rows on both sides."""
    while True:
        kind, d = ROWS[int(rng.integers(len(ROWS)))], int(rng.integers(1, 17))
        eps_r = float(rng.choice([0.0, 1.0, 1e-2, 1e-6, 1e-12]))
        one, two = (rows_of(rng, kind, int(rng.integers(1, 2 * d + 3)), d) for _ in range(2))
        first = ridged(gram(one, np.ones(len(one))), 0.0)
        second = gram(two, np.full(len(two), float(len(one))))
        first = total(first, times(integers(np.eye(d)), eps_r, float(len(one)))) if eps_r else first
        first = times(first, float(len(two)))
        value = float(dsec_rows(one, two, 1.0, 1.0, eps_r=eps_r).value)
        for ratio, near in ratios(rng, value if 0.0 < value < np.inf else None):
            answer = dsec_rows(one, two, 1.0, ratio, eps_r=eps_r)
            truth = shifted(*common(times(first, ratio), second))
            yield near, [("`dsec_rows`", answer.decision, answer.marginal, truth)]


def main() -> None:
    """Print the table."""
    given = options(__doc__, decisions=100_000, seed=0)
    heading(("function", "decisions", "flagged", "flagged and wrong", "unflagged and wrong", "at most"))
    for number, form in enumerate((dense, rank_form, square_root)):
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        wanted = {True: given.decisions // 2, False: given.decisions - given.decisions // 2}
        for near, cases in form(np.random.default_rng([given.seed, number])):
            if wanted[near]:
                wanted[near] -= 1
                for name, decision, flagged, truth in cases:
                    wrong = decision is not truth
                    counts[name].update(all=1, flagged=flagged, bad=wrong and flagged, unflagged=wrong and not flagged)
            if not any(wanted.values()):
                break
        for name, count in counts.items():
            certain = count["all"] - count["flagged"]
            most = beta.ppf(0.95, count["unflagged"] + 1, certain - count["unflagged"])
            numbers = (count[what] for what in ("all", "flagged", "bad", "unflagged"))
            line([name, *(f"{number:,}" for number in numbers), f"{most:.1e}"])


if __name__ == "__main__":
    main()
