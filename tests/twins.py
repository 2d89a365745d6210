"""Plain NumPy twins of the compiled kernels: the same numbers, written for reading.

Nothing is validated here. The twin of `FiniteModel.rollout` follows every trajectory on its own and adds the
outer products of what it saw, where the kernel counts states; both read the same uniforms in the same order.
"""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import scipy.linalg

from dmq_fast.kernels import Fixed, Greedy, Uniform, alias_tables

BLOCK = 512
"""Trajectories whose uniforms are drawn together."""


def uniforms(key, call, chunk, n):
    return philox(key, (0, 0, chunk, call)).random(n)


def philox(key, counter):
    """NumPy's generator; plain lists of large integers would pass through float64."""
    key, counter = np.array(key, dtype=np.uint64), np.array(counter, dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


TURNS = [(10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20)]
"""Rotations of the rounds of Threefry4x32."""


def threefry(counters, key=(0, 0, 0, 0), rounds=20):
    """The blocks of Threefry4x32 for counters (4, n): words (4, n)."""
    x = np.array(counters, dtype=np.uint32)
    key = [*np.array(key, dtype=np.uint32), np.bitwise_xor.reduce([*key, 0x1BD11BDA]).astype(np.uint32)]
    x = x + np.array(key[:4])[:, None]
    for done in range(rounds):
        for (a, b), turn in zip(((0, 1), (2, 3)) if done % 2 == 0 else ((0, 3), (2, 1)), TURNS[done % 8], strict=True):
            x[a] += x[b]
            x[b] = (x[b] << np.uint32(turn) | x[b] >> np.uint32(32 - turn)) ^ x[a]
        if done % 4 == 3:
            added = done // 4 + 1
            x += np.array([key[(added + i) % 5] for i in range(4)])[:, None]
            x[3] += np.uint32(added)
    return x


def noise_words(u, m):
    """The words (n, 4, m) of the m blocks of observations whose uniforms are u (n, 2)."""
    digits = np.ldexp(u, 53).astype(object)
    counters = [[int(a) + (int(b) << 53) + (j << 106) for j in range(m)] for a, b in digits]
    counters = np.array(counters, dtype=object).reshape(len(u), 1, m) >> np.array([0, 32, 64, 96]).reshape(1, 4, 1)
    words = (counters & 0xFFFFFFFF).astype(np.uint32)
    return threefry(words.swapaxes(0, 1).reshape(4, -1)).reshape(4, len(u), m).swapaxes(0, 1)


def second_moment(rows, weights=None):
    rows = np.asarray(rows, dtype=np.float64)
    weights = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    return (rows * weights[:, None]).T @ rows


def ridge_fit(gram, moment, n, ridge):
    return np.linalg.solve(gram / n + ridge * np.eye(len(gram)), moment / n)


def greedy_actions(features, theta):
    scores = np.array([[sum_of_products(phi, weights) for weights in theta] for phi in features])
    scores = scores.reshape(len(features), len(theta))
    return scores.argmax(axis=1), scores.max(axis=1)


def sum_of_products(x, y):
    """Inner product summed from the left, as the kernel does, so that ties are ties in both."""
    total = 0.0
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        total += a * b
    return total


def is_definite(matrix):
    """Whether a symmetric matrix of fractions, of which the upper triangle is read, is positive definite (Bareiss)."""
    common = math.lcm(*(x.denominator for i, row in enumerate(matrix) for x in row[i:]))
    rows = [[int(x * common) for x in row[i:]] for i, row in enumerate(matrix)]
    previous = 1
    for k, pivots in enumerate(rows):
        pivot = pivots[0]
        if pivot <= 0:
            return False
        for i in range(k + 1, len(rows)):
            row, factor = rows[i], pivots[i - k]
            for j in range(i, len(rows)):
                row[j - i] = (row[j - i] * pivot - factor * pivots[j - k]) // previous
        previous = pivot
    return True


def fractions(matrix):
    """The entries of a matrix of floats, as they are."""
    return [[Fraction(x) for x in row] for row in np.asarray(matrix, dtype=np.float64).tolist()]


def is_shift(first, second, a, b):
    """Whether a X - b Y, for matrices of fractions, is not positive definite."""
    pairs = [zip(*rows, strict=True) for rows in zip(first, second, strict=True)]
    return not is_definite([[a * x - b * y for x, y in row] for row in pairs])


def dsec(m1, m2, eps1, eps2):
    """Decision, value and witness from the generalised symmetric eigenproblem M2 x = lambda M1 x."""
    values, vectors = scipy.linalg.eigh(m2, m1)
    value = eps1 * values[-1]
    return value >= eps2, value, np.sqrt(eps1) * vectors[:, -1]


def dsec_value(m1, m2, eps1):
    """The same value by the paper's formula, eps1 lambda_max(M1^{-1/2} M2 M1^{-1/2})."""
    values, vectors = np.linalg.eigh(m1)
    root = vectors / np.sqrt(values) @ vectors.T
    whitened = root @ m2 @ root
    return eps1 * np.linalg.eigvalsh((whitened + whitened.T) / 2)[-1]


def scan(cover, grams, n, base, top, bottom, ratio, eps_r):
    """First level from the top whose oracle says True, or -1, and the eigenvalues on the way."""
    values = []
    for level in range(top, bottom - 1, -1):
        m1 = cover[level] + eps_r * np.eye(cover.shape[1])
        values.append(scipy.linalg.eigvalsh(grams[level - base] / n, m1)[-1])
        if values[-1] >= ratio:
            return level, values
    return -1, values


def alias_probabilities(threshold, alias):
    """The distribution an alias table draws from."""
    m = len(threshold)
    out = np.array(threshold)
    np.add.at(out, alias, 1.0 - threshold)
    return out / m


def alias_draw(threshold, alias, u):
    """Outcome of one uniform."""
    x = u * len(threshold)
    k = int(x)
    return k if x - k < threshold[k] else int(alias[k])


class Model:
    """Transition rows with their alias tables, for `rollout`."""

    def __init__(self, transitions, rewards, features, start, caps):
        self.transitions, self.rewards, self.features, self.caps = transitions, rewards, features, caps
        self.n_actions = rewards[0].shape[1]
        self.start = self.table(start)
        self.tables = [
            [[self.table(distribution) for distribution in state] for state in level] for level in transitions
        ]
        self.stochastic = [any(len(support) > 1 for state in level for support, *_ in state) for level in self.tables]

    @staticmethod
    def table(distribution):
        support = np.flatnonzero(distribution)
        return (support, *alias_tables(distribution[support]))

    @staticmethod
    def draw(table, u):
        support, threshold, alias = table
        return int(support[alias_draw(threshold, alias, u)])

    def is_bernoulli(self, h):
        reward, cap = self.rewards[h], self.caps[h]
        return cap > 0 and bool(((reward != 0) & (reward != cap)).any())

    def next_states(self, h, states, actions, rng):
        rows = [self.tables[h][s][a] for s, a in zip(states, actions, strict=True)]
        if not self.stochastic[h]:
            return [int(support[0]) for support, *_ in rows]
        return [self.draw(row, u) for row, u in zip(rows, rng.random(len(rows)), strict=True)]

    def trajectories(self, rules, size, rng, last, first_return, stop):
        """States of levels 0 .. last and rewards of a block; with `stop` no action follows the last level."""
        if len(self.start[0]) == 1:
            states = [int(self.start[0][0])] * size
        else:
            states = [self.draw(self.start, u) for u in rng.random(size)]
        visited, paid = [], []
        for h in range(last + 1):
            visited.append(states)
            if h == last and stop:
                break
            rule = rules[h]
            if isinstance(rule, Uniform):
                actions = [int(u * self.n_actions) for u in rng.random(size)]
            elif isinstance(rule, Fixed):
                actions = [rule.action] * size
            else:
                assert isinstance(rule, Greedy)
                best = greedy_actions(self.features[h], rule.theta)[0]
                actions = [int(best[s]) for s in states]
            reward, paying = self.rewards[h], h >= first_return
            by_edge = reward.ndim == 3 and bool(reward.any())
            amounts = [0.0] * size
            if paying and not by_edge:
                pairs = zip(states, actions, strict=True)
                amounts = means = [float(reward[pair]) if reward.ndim == 2 else 0.0 for pair in pairs]
                if self.is_bernoulli(h):
                    cap = float(self.caps[h])
                    draws = zip(rng.random(size), means, strict=True)
                    amounts = [cap if u < mean / cap else 0.0 for u, mean in draws]
            if h < last or (paying and by_edge):
                following = self.next_states(h, states, actions, rng)
                if paying and by_edge:
                    amounts = [float(reward[step]) for step in zip(states, actions, following, strict=True)]
                states = following
            paid.append(amounts)
        return np.array(visited), np.array(paid)


def rollout(model, rules, n, stream, levels, returns_from=()):
    """Twin of `FiniteModel.rollout`: grams, moments and squares of n trajectories."""
    d = model.features[0].shape[1]
    horizon = len(model.rewards)
    grams = np.zeros((len(levels), d, d))
    moments = np.zeros((len(returns_from), d))
    squares = np.zeros(len(returns_from))
    last = horizon - 1 if len(returns_from) else max(levels, default=-1)
    first_return = min(returns_from, default=horizon)
    rng = stream.generator()
    for done in range(0, n, BLOCK):
        size = min(BLOCK, n - done)
        visited, paid = model.trajectories(rules, size, rng, last, first_return, not len(returns_from))
        for i, h in enumerate(levels):
            phi = model.features[h][visited[h]]
            grams[i] += phi.T @ phi
        for i, h in enumerate(returns_from):
            to_go = paid[h:].sum(axis=0)
            moments[i] += to_go @ model.features[h][visited[h]]
            squares[i] += to_go @ to_go
    return grams, moments, squares


# Ways to hand over the same numbers, and things that are no numbers; every kernel treats them alike.


def layouts(array):
    """The same values as arrays of other types and memory layouts; `array` holds small integers."""
    array = np.asarray(array, dtype=np.float64)
    spread = np.zeros(tuple(2 * size for size in array.shape))
    view = spread[(..., *(slice(None, None, 2) for _ in array.shape))]
    view[...] = array
    turned = (..., *(slice(None, None, -1) for _ in array.shape))
    backwards = array[turned].copy()
    locked = array.copy()
    locked.flags.writeable = False
    alternatives = {
        "fortran": np.asfortranarray(array),
        "strided": view,
        "negative strides": backwards[turned],
        "read-only": locked,
        "list": array.tolist(),
        "byte-swapped": array.astype(">f8"),
        **{name: array.astype(name) for name in ("float32", "float16", "int8", "int32", "int64")},
    }
    if (array >= 0).all():
        alternatives["uint64"] = array.astype(np.uint64)
    if ((array == 0) | (array == 1)).all():
        alternatives["bool"] = array.astype(bool)
    if array.ndim == 2:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PendingDeprecationWarning)
            alternatives["matrix"] = np.matrix(array)
    return alternatives


def integer_layouts(array):
    """The same small integers, none negative, in other types and memory layouts."""
    array = np.asarray(array, dtype=np.int64)
    kinds = {name: array.astype(name) for name in ("int8", "uint8", "int32", "uint64", ">i8")}
    raw = np.frombuffer(b"-" + array.tobytes(), dtype=np.int64, offset=1).reshape(array.shape)
    return kinds | {"list": array.tolist(), "strided": np.repeat(array, 2, axis=-1)[..., ::2], "unaligned": raw}


def no_numbers(array):
    """Arrays of the same shape whose entries are not real numbers that float64 holds; and None."""
    array = np.asarray(array, dtype=np.float64)
    names = ("complex64", "complex128", "longdouble", "object", "str", "bytes", "datetime64[s]")
    return {"none": None, **{name: array.astype(np.int64).astype(name) for name in names}}


def not_finite(array):
    """The same array with one entry replaced, the last and the first."""
    for value in (np.nan, np.inf, -np.inf):
        for index in (-1, 0):
            out = np.array(array, dtype=np.float64)
            out.reshape(-1)[index] = value
            yield out
