"""Targets of tests/fuzz.py: everything that `dmq_fast.kernels` exports, its methods, and sequences of calls of them.

Arguments are drawn right and then spoilt, one thing at a time, as garbage would be refused at the first check. Compiled
code that reads out of bounds is what the sanitizers see; here results are compared with NumPy where that is cheap.
"""

import contextlib
import copy
import inspect
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from fuzz import REFUSALS, Target

from dmq_fast import kernels

# Integers at which types end.
EDGES = (
    -(2**63),
    -(2**31),
    -2,
    -1,
    0,
    1,
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    10**40,
)


class Odd(np.ndarray):
    """A subclass of ndarray, as pandas and units have."""


class Input:
    """Draws the arguments of one input. Each is spoilt with a probability that is drawn first, often 0."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.rate = (0.0, 0.0, 0.0, 0.03, 0.1, 0.3)[rng.integers(6)]

    def spoils(self) -> bool:
        return bool(self.rng.random() < self.rate)

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, *options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def size(self, most: int = 5) -> int:
        return int(self.rng.integers(1, most + 1))

    def junk(self) -> Any:
        """Something of another type."""
        return self.pick(
            None, "x", b"x", 1j, object(), [], {}, [[1.0], [1.0, 2.0]], np.array("x"), np.array(None), np.longdouble(1),
            np.ma.masked_array([1.0, 2.0], [True, False]), np.datetime64("2020"), (), [[]], float, np.nan, "1.0",
        )  # fmt: skip

    def integer(self, least: int, most: int) -> Any:
        """An integer in [least, most]."""
        if self.spoils():
            return self.pick(least - 1, most + 1, *EDGES, 1.5, True, np.nan, np.inf, np.array([0]), self.junk())
        value = int(self.rng.integers(least, most + 1))
        return self.pick(
            value, value, value, np.int64(value), np.uint64(value) if value >= 0 else value, np.array(value)
        )

    def count(self, least: int, most: int) -> Any:
        """A number of things to make: an integer in [least, most], or none at all."""
        if self.spoils():
            return self.pick(least - 1, -(2**31), -(2**63), 2**63, 2**64, 10**40, 1.5, np.nan, self.junk())
        return self.pick(int, np.int64)(self.rng.integers(least, most + 1))

    def positive(self, zero: bool = False) -> Any:
        """A number > 0, or >= 0."""
        if self.spoils():
            return self.pick(
                0.0, -0.0, -1.0, np.nan, np.inf, -np.inf, 10**400, -(10**400), 1e308, 5e-324, 1e-310, True, self.junk()
            )
        value = float(self.rng.random() + 0.01)
        if self.chance(0.1):
            value = float(10.0 ** self.rng.integers(-200, 200))
        if zero and self.chance(0.2):
            return 0.0
        return self.pick(
            value, value, value, np.float64(value), np.float32(min(value, 1e30)) if value > 1e-30 else 1, 1
        )

    def numbers(self, shape: tuple[int, ...], mild: bool = False) -> Any:
        """Finite numbers, of which some sets are rank deficient, tiny or huge."""
        x = self.rng.standard_normal(shape)
        kind = self.rng.integers(5 if mild else 12)
        if kind == 1:
            x = np.round(x)
        elif kind == 2:
            x[self.rng.random(shape) < 0.6] = 0.0
        elif kind == 3:
            x *= 0.0
        elif kind == 4 and len(shape) == 2 and shape[0] > 1:
            x[-1] = x[0]
        elif kind > 4:
            x *= self.pick(1e-100, 1e-160, 1e-310, 1e100, 1e150, 1e300, 1.0)
        return x

    def laid(self, x: Any) -> Any:
        """An array of numbers in some layout, or as lists; anything else as it is."""
        if not isinstance(x, np.ndarray):
            return x
        kind = self.rng.integers(16)
        if kind == 0 and x.ndim:
            return np.asfortranarray(x)
        if kind == 1 and x.ndim:
            return x[::-1].copy()[::-1]
        if kind == 2 and x.ndim:
            wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), np.nan)
            wide[..., ::2] = x
            return wide[..., ::2]
        if kind == 3:
            x.flags.writeable = False
        elif kind == 4:
            return x.tolist()
        elif kind == 5:
            return x.astype(">f8")
        elif kind == 6:
            return x.view(Odd)
        elif kind == 7:
            raw = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float64).reshape(x.shape)
            raw[...] = x
            return raw
        elif kind == 8:
            with np.errstate(all="ignore"):
                return np.nan_to_num(x.astype(np.float32))
        elif kind == 9:
            return np.clip(np.round(np.nan_to_num(x)), -100, 100).astype(self.pick(np.int8, np.int64, np.int16))
        elif kind == 10 and x.ndim:
            return np.broadcast_to(x[:1], x.shape) if len(x) else x
        return x

    def array(self, shape: tuple[int, ...], mild: bool = False) -> Any:
        """An array of finite numbers of a shape."""
        x = self.numbers(shape, mild)
        return self.spoilt(x) if self.spoils() else self.laid(x)

    def spoilt(self, x: Any) -> Any:
        """An array with one thing wrong."""
        kind = self.rng.integers(8)
        if kind < 2 and x.size:
            x = x.copy()
            x.flat[self.rng.integers(x.size)] = self.pick(np.nan, np.inf, -np.inf, 1e308, 5e-324)
            return x
        if kind == 2 and x.ndim:
            axis = int(self.rng.integers(x.ndim))
            return self.pick(np.delete(x, -1, axis), np.concatenate([x, x], axis), x[:0], np.moveaxis(x, 0, -1))
        if kind == 3:
            return self.pick(x[None], x[..., None], x.reshape(-1), x.sum(), x[..., :0])
        if kind == 4:
            return x.astype(self.pick(complex, object, str, np.longdouble, "S8", bool))
        if kind == 5:
            return self.pick(np.ma.masked_array(x), scipy.sparse.coo_array(np.atleast_2d(x)), memoryview(x.copy()))
        return self.junk() if kind == 6 else x * 1e308

    def gram(self, d: int) -> Any:
        """A positive semidefinite matrix, perhaps singular, with whatever below its diagonal."""
        x = self.numbers((self.size(2 * d), d))
        with np.errstate(all="ignore"):
            out = x.T @ x
        if self.chance(0.5):
            out += np.eye(d) * float(self.pick(1.0, 1e-3, 1e-12))
        if not np.isfinite(out).all():
            out = np.eye(d)
        if self.chance(0.1):
            out[np.tril_indices(d, -1)] = self.pick(np.nan, np.inf, 7.0)
        if self.chance(0.05):
            out -= 2.0 * np.eye(d)
        return self.spoilt(out) if self.spoils() else self.laid(out)

    def indices(self, n: int, most: int) -> Any:
        """n integers in [0, most)."""
        x = self.rng.integers(0, most, n)
        if self.spoils():
            if self.chance(0.5) and n:
                x = x.astype(object)
                x[self.rng.integers(n)] = self.pick(most, *EDGES)
                try:
                    return np.array(x.tolist())
                except OverflowError:
                    return x
            return self.pick(x.astype(float), x[:-1], x[None], self.junk())
        return self.pick(x, x, x.astype(np.int32), x.astype(np.uint8), x.tolist(), x[::-1], x.astype(">i8"))

    def sparse(self, n: int, d: int) -> Any:
        """A sparse array, whose index arrays were perhaps changed afterwards."""
        x = self.numbers((n, d), mild=True) * (self.rng.random((n, d)) < 0.5)
        out = self.pick(scipy.sparse.csr_array, scipy.sparse.csr_matrix, scipy.sparse.coo_array)(x)
        out = out.asformat(self.pick("csr", "csr", "csr", "coo", "csc", "lil", "dok", "bsr", "dia"))
        if out.format in ("csr", "csc", "bsr") and self.chance(0.2):
            out = type(out)((out.data, out.indices.astype(np.int64), out.indptr.astype(np.int64)), shape=out.shape)
        if self.spoils():
            self.corrupt(out)
        return out

    def corrupt(self, out: Any) -> None:
        if out.format == "lil":
            row = out.rows[self.rng.integers(out.shape[0])]
            row.append(self.pick(out.shape[1], 2**31, 0, -1))
            return
        arrays = [
            a for a in (getattr(out, name, None) for name in ("data", "indices", "indptr", "offsets")) if a is not None
        ]
        arrays += list(out.coords) if out.format == "coo" else []
        arrays = [a for a in arrays if isinstance(a, np.ndarray) and a.size and a.flags.writeable]
        if arrays:
            array = self.pick(*arrays)
            values = (
                (np.nan, np.inf, 0.0) if array.dtype.kind == "f" else (-1, out.shape[0], out.shape[1], 2**31 - 1, 1)
            )
            array.flat[self.rng.integers(array.size)] = self.pick(*values)

    def rows(self, n: int, d: int, mild: bool = False) -> Any:
        """Rows (n, d), dense or sparse."""
        return self.sparse(n, d) if self.chance(0.3) else self.array((n, d), mild)

    def stream(self) -> Any:
        return (
            self.junk()
            if self.spoils()
            else kernels.Stream(int(self.rng.integers(100)), call=int(self.rng.integers(9)))
        )

    def levels(self, horizon: int) -> Any:
        """Ascending levels."""
        found = [h for h in range(horizon) if self.chance(0.5)]
        if self.spoils():
            return self.pick([0, 0], [1, 0], [-1], [horizon], [2**31], [2**63], ["x"], [0.5], self.junk())
        return self.pick(found, tuple(found), np.array(found, int), range(self.size(horizon)), ())

    def rules(self, horizon: int, n_actions: int, d: int) -> Any:
        """A policy."""
        out = []
        for _ in range(horizon):
            kind = self.rng.integers(3)
            if kind == 0:
                out.append(kernels.Uniform())
            elif kind == 1:
                out.append(kernels.Fixed(int(self.rng.integers(n_actions))))
            else:
                out.append(kernels.Greedy(self.numbers((n_actions, d), mild=True)))
        if self.spoils():
            out[self.rng.integers(horizon)] = self.pick(
                kernels.Fixed(n_actions), kernels.Fixed(2**31 - 1), kernels.Greedy([[1.0] * (d + 1)] * n_actions),
                kernels.Interpreted(), kernels.Greedy(np.full((n_actions, d), 1e308)), self.junk(),
            )  # fmt: skip
        if self.spoils():
            return self.pick(tuple(out[:-1]), (*out, out[0]), out, (), self.junk())
        return tuple(out)


def floats(x: Any) -> Any:
    return np.array(x.toarray() if hasattr(x, "toarray") else x, np.float64)


def mild(*arrays: Any) -> bool:
    """Whether products of the entries are far from the ends of float64."""
    return all(((np.abs(a) < 1e60) & ((a == 0.0) | (np.abs(a) > 1e-60))).all() for a in map(floats, arrays))


@contextlib.contextmanager
def fails(kind: type[Exception], text: str) -> Iterator[None]:
    """Raises an error that is documented, but not among REFUSALS, as a ValueError."""
    try:
        yield
    except kind as error:
        if type(error) is not kind or text not in str(error):
            raise
        raise ValueError(str(error)) from error


def walk(given: Input, calls: Sequence[Callable[[], Any]], check: Callable[[], Any], steps: int = 8) -> None:
    """Makes calls in any order. A call that is refused must leave what `check` returns as it was."""
    refused = None
    for _ in range(given.size(steps)):
        before = check()
        try:
            given.pick(*calls)()
        except REFUSALS as error:
            assert str(error), "a refusal without a text"
            refused = error
            assert check() == before, f"changed by a call that raised {error!r}"
    check()
    if refused is not None:
        raise refused


# The oracle


def dsec(rng: np.random.Generator) -> None:
    given = Input(rng)
    d = given.size(given.pick(4, 4, 20)) if rng.random() < 0.99 else 192
    m1, m2, eps1, eps2 = given.gram(d), given.gram(d), given.positive(), given.positive()
    exact = given.pick(True, True, False, given.junk()) if given.spoils() else True
    decision, marginal = kernels.dsec_decision(m1, m2, eps1, eps2, return_marginal=True, exact=exact)
    assert kernels.dsec_decision(floats(m1), floats(m2), eps1, eps2, return_marginal=True, exact=exact) == (
        decision,
        marginal,
    )
    value = kernels.dsec_value(m1, m2, eps1)
    assert not np.isnan(value)
    whole = kernels.dsec(m1, m2, eps1, eps2)
    assert np.isfinite(whole.witness).all() and not np.isnan(whole.value)
    if exact is True and not marginal and not whole.marginal:
        assert whole.decision == decision


def dsec_stack(rng: np.random.Generator) -> None:
    given = Input(rng)
    d, shape = given.size(3), given.pick((2,), (3, 1), (1, 2), (), (0,))
    m1, m2 = (np.stack([floats(given.gram(d)) for _ in range(max(1, given.size(2)))]) for _ in range(2))
    m1, m2 = (given.laid(np.broadcast_to(m[0], (*shape, d, d)).copy()) for m in (m1, m2))
    eps1 = given.pick(given.positive(), np.full(shape, 0.5), given.laid(rng.random(given.pick((2,), (3, 1))) + 0.1))
    eps2 = given.positive()
    answer = kernels.dsec_decision(m1, m2, eps1, eps2)
    value = kernels.dsec_value(m1, m2, eps1)
    whole = kernels.dsec(m1, m2, eps1, eps2)
    assert np.shape(answer) == np.shape(whole.decision) == np.shape(whole.marginal)
    assert np.shape(whole.witness) == (*np.shape(answer), d)
    if np.ndim(value) and np.size(value):
        first = (0,) * np.ndim(value)
        one = np.broadcast_to(floats(m1), (*np.shape(value), d, d))[first]
        two = np.broadcast_to(floats(m2), (*np.shape(value), d, d))[first]
        assert kernels.dsec_value(one, two, float(np.broadcast_to(eps1, np.shape(value))[first])) == value[first]


def dsec_rows(rng: np.random.Generator) -> None:
    given = Input(rng)
    d = given.size()
    rows1, rows2 = given.array((given.size(8), d)), given.array((given.size(8), d))
    answer = kernels.dsec_rows(rows1, rows2, given.positive(), given.positive(), eps_r=given.positive(zero=True))
    assert answer.value >= 0.0 and np.isfinite(answer.witness).all() and len(answer.witness) == d


def shift_scan(rng: np.random.Generator) -> None:
    given = Input(rng)
    d, horizon = given.size(4), given.size(4)
    if given.spoils():
        d = given.pick(0, -1, 2**24, 2**62)
    regularizer = given.gram(min(max(d, 1), 4)) if given.chance(0.3) else None
    scan = kernels.ShiftScan(d, given.positive(), given.positive(), given.positive(), given.chance(0.5), regularizer)
    if given.chance(0.2):
        scan = given.pick(copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)))(scan)
    for _ in range(given.size(3)):
        base = int(rng.integers(horizon))
        sizes = [(horizon, d, d), (horizon - base, d, d)]
        if given.spoils():
            sizes[rng.integers(2)] = given.pick((0, d, d), (horizon, d, d + 1), (1, d, d), (horizon, 0, 0))
        with np.errstate(all="ignore"):
            cover, grams = (given.numbers(size) for size in sizes)
            cover, grams = (np.nan_to_num(np.ascontiguousarray(a @ a.transpose(0, 2, 1))) for a in (cover, grams))
        if given.spoils():
            cover = given.pick(given.spoilt(cover), np.asfortranarray(cover), None)
        else:
            cover.flags.writeable = given.chance(0.5)
        bounds = [base, horizon - 1, base]
        if given.spoils():
            bounds[rng.integers(3)] = given.pick(-1, horizon, base + 1, *EDGES)
        level, values = scan.scan(cover, grams, given.positive(), *bounds)
        assert -1 <= level < horizon and len(values) in (0, *range(horizon + 1))


# Moments


def moment_of(given: Input, d: int) -> Any:
    if given.chance(0.3):
        x = given.numbers((3, d), mild=True)
        return kernels.SecondMoment.from_matrix(given.laid(x.T @ x), given.integer(1, 9))
    if given.spoils():
        return kernels.SecondMoment(given.pick(0, *EDGES, given.junk()))
    return kernels.SecondMoment(d)


def moments(rng: np.random.Generator) -> None:
    given = Input(rng)
    d = given.pick(given.size(6), given.size(70))
    moment = moment_of(given, d)
    d = moment.dimension

    def weights(n: int) -> Any:
        return None if given.chance(0.6) else np.abs(given.numbers((n,))) if not given.spoils() else given.array((n,))

    def add_rows() -> None:
        n = given.pick(0, 1, 2, 5, 40)
        rows, scale = given.rows(n, d), weights(n)
        before = moment.matrix
        moment.add_rows(rows, scale)
        if n and mild(rows, before) and (scale is None or mild(scale)):
            x = floats(rows)
            more = (x.T * (1.0 if scale is None else floats(scale))) @ x
            assert np.allclose(moment.matrix, before + more, rtol=1e-9, atol=1e-9 * (np.trace(before + more) + 1e-300))

    def add_csr() -> None:
        n, nnz = given.size(4), given.size(6)
        indptr = np.sort(np.concatenate([[0, nnz], rng.integers(0, nnz + 1, n - 1)]))
        if given.spoils():
            indptr = given.pick(
                indptr[::-1], indptr[1:], indptr[:0], indptr.astype(float), indptr * 2**60, given.junk()
            )
        moment.add_csr(given.array((nnz,)), given.indices(nnz, d), given.laid(indptr), weights(n))

    def merge() -> None:
        moment.merge(given.pick(moment, moment_of(given, d), given.junk()) if given.spoils() else moment_of(given, d))

    def again() -> None:
        other = given.pick(copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)))(moment)
        assert (other.matrix == moment.matrix).all() and other.n == moment.n

    def restore() -> None:
        moment.__setstate__(corrupted(given, moment.__reduce__()[2]))

    def check() -> Any:
        matrix = moment.matrix
        assert np.isfinite(matrix).all() and (matrix == matrix.T).all() and moment.n >= 0
        return matrix.tobytes(), moment.n

    def mean() -> None:
        assert np.isfinite(moment.mean).all()

    n = given.size(5)
    calls = [
        lambda: moment.add(given.array((d,))), add_rows, add_rows, add_csr, merge, again, restore, mean,
        lambda: moment.add_indices(given.indices(n, d), weights(n)), lambda: moment.scale(given.positive(zero=True)),
    ]  # fmt: skip
    walk(given, calls, check)


def corrupted(given: Input, state: Any) -> Any:
    """The state of a pickle with one thing changed."""
    if not isinstance(state, dict) or given.chance(0.05):
        return given.junk()
    state = dict(state)
    key = given.pick(*state)
    kind = given.rng.integers(4)
    if kind == 0:
        del state[key]
    elif kind == 1:
        state[key] = given.pick(given.junk(), *EDGES)
    elif kind == 2 and isinstance(state[key], np.ndarray):
        state[key] = given.spoilt(state[key].astype(np.float64)) if given.chance(0.5) else given.laid(state[key] * 1.0)
    return state


# Regression


def points(given: Input, d: int) -> Any:
    return given.pick(given.array((d,)), given.rows(given.size(4), d))


def ridge(rng: np.random.Generator) -> None:
    given = Input(rng)
    d, targets = given.pick(given.size(5), given.size(5), given.size(140)), given.pick(None, None, 1, 2)
    if given.spoils():
        kernels.Ridge(given.pick(0, -1, 2**28 + 1, given.junk()), 1.0, targets=given.pick(0, -1, 2**62, given.junk()))
    model = kernels.Ridge(d, given.positive(), targets)

    def y(*shape: int) -> Any:
        full = shape if targets is None else (*shape, targets)
        return given.array(full, mild=True) if full else given.pick(1.0, -2, np.float64(0.5), given.positive())

    def weights(n: int) -> Any:
        return None if given.chance(0.6) else np.abs(given.numbers((n,), mild=True))

    def update_rows() -> None:
        n = given.pick(1, 2, 5, 70)
        model.update_rows(given.rows(n, d, mild=True), y(n), weights(n))

    def aliased() -> None:
        n, before, u = min(d, 3), model.gram, np.array(model.factor)
        model.update_rows(model.factor[:n], np.zeros((n,) if targets is None else (n, targets)))
        want = before + u[:n].T @ u[:n]
        assert np.allclose(model.gram, want, rtol=1e-9, atol=1e-9 * (np.trace(want) + 1e-300))

    def update() -> None:
        x, target = given.array((d,)), y()
        model.update(x, target)
        rows.append((x, target))

    def downdate() -> None:
        model.downdate(*(rows.pop() if rows and not given.spoils() else (given.array((d,)), y())))

    def merge() -> None:
        other = kernels.Ridge(d, model.regularization, targets)
        other.update(given.numbers((d,), mild=True), y())
        model.merge(given.pick(other, other, other, model, given.junk()) if given.spoils() else other)

    def queries() -> None:
        x = points(given, d)
        for value in (model.predict(x), model.leverage(x), model.theta, model.factor, model.gram, model.logdet):
            assert np.isfinite(value).all()
        assert (np.asarray(model.leverage(x)) >= 0.0).all()

    def sample() -> None:
        source = given.pick(rng, given.stream())
        shape = (d,) if targets is None else (d, targets)
        assert model.sample(source, given.positive(zero=True)).shape == shape
        m = given.count(0, 3)
        assert model.sample_many(source, m).shape == (int(m), *shape)

    def again() -> None:
        other = given.pick(copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)))(model)
        assert (other.theta == model.theta).all() and other.n == model.n

    def restore() -> None:
        # The state of another object: a corrupt one that is taken may make any results, but no harm.
        other = copy.copy(model)
        other.__setstate__(corrupted(given, model.__reduce__()[2]))
        other.update(np.ones(d), np.ones(targets) if targets else 1.0)
        assert other.factor.shape == (d, d)

    def from_moments() -> None:
        x = given.numbers((given.size(6), d), mild=True)
        other = kernels.Ridge.from_moments(given.laid(x.T @ x), y(d), given.integer(1, 9), model.regularization)
        assert np.isfinite(other.theta).all()

    def check() -> Any:
        gram, trace = model.gram, model.dimension * model.regularization
        assert np.isfinite(gram).all() and (gram == gram.T).all()
        if mild(gram):
            u = np.array(model.factor)
            full = gram + model.regularization * np.eye(d)
            assert (np.diag(u) > 0.0).all() and (np.tril(u, -1) == 0.0).all()
            assert np.allclose(u.T @ u, full, rtol=1e-6, atol=1e-6 * (np.trace(gram) + trace + largest[0]))
        largest[0] = max(largest[0], float(np.trace(gram)))
        return model.n, model.moment.tobytes(), model.regularization

    rows: list[tuple[Any, Any]] = []
    largest = [0.0]
    index = min(3, d)
    calls = [
        lambda: model.update(given.array((d,)), y(), given.positive(zero=True)),
        lambda: model.update_sparse(given.indices(index, d), given.array((index,), mild=True), y()),
        update, update, update_rows, update_rows, aliased, downdate, merge, queries, queries, sample, again, restore,
        from_moments,
        lambda: model.discount(given.pick(0.5, 1.0, 1e-3, given.positive()), given.chance(0.5)),
        lambda: model.regularize(given.positive()), lambda: model.refactor(),
        lambda: model.solve(given.pick(given.array((d,)), given.array((d, 3)))),
    ]  # fmt: skip
    walk(given, calls, check)


def arms(rng: np.random.Generator) -> None:
    given = Input(rng)
    n_arms, d = given.size(given.pick(4, 30)), given.pick(given.size(5), given.size(40))
    if given.spoils():
        kernels.RidgeArms(given.pick(0, *EDGES[:9], given.junk()), given.pick(0, 2**28, given.junk()), given.positive())
    model = kernels.RidgeArms(n_arms, d, given.positive())

    def phi() -> Any:
        return given.pick(given.array((d,)), given.array((n_arms, d)), model.factor[0][0], model.theta)

    def update() -> None:
        arm = given.integer(0, n_arms - 1)
        before = model.n
        x = given.pick(given.array((d,)), model.factor[int(rng.integers(n_arms))][0])
        model.update(arm, x, given.pick(1.0, -2.0, given.positive()), given.positive(zero=True))
        before[int(arm)] += 1
        assert (model.n == before).all()

    def queries() -> None:
        x, alpha = phi(), given.positive(zero=True)
        upper = model.upper(x, alpha)
        assert np.isfinite(upper).all() and model.select(x, alpha) == int(upper.argmax())
        assert (model.leverage(x) >= 0.0).all() and np.isfinite(model.predict(x)).all()

    def sample() -> None:
        assert model.sample(given.pick(rng, given.stream()), given.positive(zero=True)).shape == (n_arms, d)

    def again() -> None:
        other = given.pick(copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)))(model)
        assert (other.factor == model.factor).all() and (other.n == model.n).all()

    def restore() -> None:
        other = copy.copy(model)
        other.__setstate__(corrupted(given, model.__reduce__()[2]))
        other.update(0, np.ones(d), 1.0)

    def check() -> Any:
        assert np.isfinite(model.factor).all()
        return model.factor.tobytes(), model.n.tolist()

    walk(given, [update, update, queries, queries, sample, again, restore], check)


def ridge_fit(rng: np.random.Generator) -> None:
    given = Input(rng)
    d = given.pick(given.size(5), given.size(20))
    gram, moment, n, penalty = given.gram(d), given.array((d,)), given.positive(), given.positive(zero=True)
    theta = kernels.ridge_fit(gram, moment, n, penalty)
    assert theta.shape == (d,) and np.isfinite(theta).all()
    fit = kernels.RidgeFit(d, penalty)
    if given.chance(0.2):
        fit = given.pick(copy.copy, lambda x: pickle.loads(pickle.dumps(x)))(fit)
    assert (fit(gram, moment, n) == theta).all()
    if given.spoils():
        kernels.RidgeFit(given.pick(0, -1, *EDGES, given.junk()), given.positive())(gram, moment, n)


def greedy(rng: np.random.Generator) -> None:
    given = Input(rng)
    n, n_actions, d = int(rng.integers(0, 9)), given.size(6), given.pick(given.size(5), given.size(30))
    features, theta = given.rows(n, d), given.array((n_actions, d))
    actions, values = kernels.greedy_actions(features, theta, return_values=True)
    assert (actions == kernels.greedy_actions(features, theta)).all()
    assert actions.shape == values.shape
    n = len(actions)
    if n and mild(features, theta):
        scores = floats(features) @ floats(theta).T
        assert np.allclose(values, scores.max(axis=1), rtol=1e-9, atol=1e-9 * np.abs(scores).max())
        assert np.allclose(scores[np.arange(n), actions], values, rtol=1e-9, atol=1e-9 * np.abs(scores).max())


# Rows, and the oracle for them


def level_rows_of(given: Input, n_levels: int, d: int) -> Any:
    blocks, weights = [], []
    for _ in range(n_levels):
        n = int(given.rng.integers(0, 5))
        x = given.rows(n, d, mild=True)
        blocks.append(x)
        weights.append(given.spoilt(np.ones(n)) if given.spoils() else given.laid(given.rng.random(n) + 0.5))
    return kernels.LevelRows.of(blocks, weights if given.chance(0.5) else None)


def level_rows(rng: np.random.Generator) -> None:
    given = Input(rng)
    n_levels, d = given.size(3), given.pick(given.size(4), given.size(60))
    rows = level_rows_of(given, n_levels, d)
    d = rows.dimension  # another one, where all levels were spoilt alike
    level = given.integer(0, n_levels - 1)
    gram = rows.gram(level)
    if not np.isfinite(gram).all():
        raise OverflowError("entries as large as these have no sum")
    support, part = rows.compressed(level)
    whole = np.zeros((d, d))
    whole[np.ix_(support, support)] = part
    assert (gram == gram.T).all() and np.allclose(whole, gram, rtol=1e-12, atol=0.0)
    data, indices, indptr, weights = rows.arrays(level)
    x = scipy.sparse.csr_array((data, indices, indptr), shape=(len(weights), d)).toarray()
    assert np.allclose((x.T * weights) @ x, gram, rtol=1e-9, atol=1e-9 * (np.trace(gram) + 1e-300))
    other = level_rows_of(given, given.pick(n_levels, n_levels, 1), given.pick(d, d, d, d + 1))
    both = rows + other
    assert both.nbytes > 0 and len(both.n_rows) == n_levels
    total = both.gram(0)
    if np.isfinite(np.trace(total)):
        assert np.allclose(total, rows.gram(0) + other.gram(0), rtol=1e-9, atol=1e-9 * (np.trace(total) + 1e-300))
    places = [given.integer(0, n_levels - 1) for _ in range(given.size(3))]
    assert rows.pick(places).n_levels == len(places)
    parts = [given.pick(rows, both) if not given.spoils() else given.junk() for _ in places]
    assert kernels.LevelRows.total(parts, places[:-1] if given.spoils() else places).n_levels == 1
    assert pickle.loads(pickle.dumps(rows)).n_rows == copy.deepcopy(rows).n_rows == rows.n_rows
    make, (version, dimension, arrays) = rows.__reduce__()
    if given.rate:
        arrays = [list(level) for level in arrays]
        entry = arrays[rng.integers(n_levels)]
        i = int(rng.integers(4))
        entry[i] = given.spoilt(entry[i].astype(float)) if given.chance(0.5) else entry[i].astype(float)
        if given.chance(0.5):
            x = entry[i] = given.pick(entry[i], np.array([-1, 2, 2**31 - 1, 7]), np.array([0, 10**6]))
            entry[i] = (
                x.astype(given.pick(np.int32, np.int64)) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
            )
        dimension = given.pick(dimension, dimension, 0, 1, *EDGES) if given.chance(0.2) else dimension
    made = make(given.pick(version, version, 99, None) if given.spoils() else version, dimension, arrays)
    for level in range(made.n_levels):
        if made.dimension < 1000:
            made.gram(level)
        made.compressed(level)


def row_oracle(rng: np.random.Generator) -> None:
    given = Input(rng)
    d = given.pick(given.size(4), given.size(50))
    if given.spoils():
        kernels.RowOracle(given.pick(0, -1, 2**31, *EDGES[:6], given.junk()), given.positive())
    eps_r = given.positive()
    oracle = kernels.RowOracle(d, eps_r)

    def some() -> Any:
        if given.spoils():
            return given.pick(level_rows_of(given, 1, d + 1), given.spoilt(given.numbers((2, d))), given.junk())
        return given.pick(level_rows_of(given, 1, d), given.rows(given.size(4), d))

    def level() -> Any:
        return given.integer(0, 0)

    def add_gram() -> None:
        k = given.size(min(d, 4))
        support = rng.permutation(d)[:k]
        if given.spoils():
            support = given.pick(
                np.append(support, support[:1]), given.indices(k, d), support[None], support + 0.5, support * 2**32
            )
        gram = given.gram(k)
        if isinstance(gram, np.ndarray) and gram.dtype == np.float64 and gram.shape == (k, k):
            gram = np.triu(gram) + np.triu(gram, 1).T
        oracle.add_gram(support, gram)

    def decide() -> None:
        rows, eps1, eps2 = some(), given.positive(), given.positive()
        n = given.pick(None, given.positive())
        decision, marginal = oracle.decision(rows, eps1, eps2, level(), n=n, return_marginal=True)
        if not isinstance(rows, kernels.LevelRows) and n is None and not marginal:
            x, s = floats(rows), oracle.matrix() + oracle.eps_r * np.eye(d)
            if mild(x, s, [eps1, eps2]) and len(x) and np.linalg.cond(s) < 1e6:
                want, close = kernels.dsec_decision(s, x.T @ x / len(x), eps1, eps2, return_marginal=True)
                value = kernels.dsec_value(s, x.T @ x / len(x), eps1)
                assert close or want == decision or abs(value - eps2) < 1e-6 * eps2

    def leverages() -> None:
        rows = some()
        found = oracle.leverages(rows, level())
        assert (found >= -1e-9).all()
        if not isinstance(rows, kernels.LevelRows):
            x, s = floats(rows), oracle.matrix() + oracle.eps_r * np.eye(d)
            if mild(x, s) and np.linalg.cond(s) < 1e6:
                want = np.einsum("ij,ji->i", x, np.linalg.solve(s, x.T))
                assert np.allclose(found, want, rtol=1e-5, atol=1e-9 * (np.abs(want).max(initial=0.0)))

    def again() -> None:
        other = given.pick(copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)))(oracle)
        assert (other.matrix() == oracle.matrix()).all()
        make, state = oracle.__reduce__()
        state = list(state)
        if given.rate:
            i = int(rng.integers(len(state)))
            state[i] = (
                given.spoilt(state[i].astype(float))
                if isinstance(state[i], np.ndarray)
                else given.pick(given.junk(), 0, 1, -1, 7)
            )
        make(*state)

    def log_det() -> None:
        rows = given.pick(None, level_rows_of(given, 1, d))
        assert not np.isinf(oracle.log_det(rows, level(), given.positive()))

    def check() -> Any:
        assert oracle.order == len(oracle.support) <= d and oracle.gram.shape == (oracle.order, oracle.order)
        return oracle.matrix().tobytes()

    add = [lambda: oracle.add(some(), level(), given.positive())] * 2
    walk(given, [*add, add_gram, decide, decide, leverages, again, log_det], check)


def row_scan(rng: np.random.Generator) -> None:
    given = Input(rng)
    d, horizon = given.pick(given.size(4), given.size(40)), given.size(4)
    oracles = []
    for _ in range(horizon):
        oracle = kernels.RowOracle(d, 0.5)
        oracle.add(given.numbers((given.size(3), d), mild=True))
        oracles.append(oracle)
    scan = kernels.RowScan(given.positive(), given.positive(), given.chance(0.5))
    if given.chance(0.1):
        scan = pickle.loads(pickle.dumps(scan))
    for _ in range(given.size(3)):
        base = int(rng.integers(horizon))
        rows = level_rows_of(given, horizon - base, d)
        bounds = [base, horizon - 1, base]
        if given.spoils():
            bounds[rng.integers(3)] = given.pick(-1, horizon, base + 1, *EDGES)
        if given.spoils():
            oracles[rng.integers(horizon)] = given.pick(None, given.junk(), kernels.RowOracle(d + 1, 1.0))
        if given.spoils():
            rows = given.pick(None, kernels.LevelRows.__new__(kernels.LevelRows), given.junk())
        chosen = given.pick(tuple(oracles), oracles[:-1], None, given.junk()) if given.spoils() else oracles
        level, values = scan.scan(chosen, rows, given.positive(), *bounds)
        assert -1 <= level < horizon and scan.n_exact >= 0 and not np.isnan(values).any()


# Streams and rules


def stream(rng: np.random.Generator) -> None:
    given = Input(rng)
    edges = (0, 1, 2**63, 2**64 - 1)

    def word() -> Any:
        return given.pick(*EDGES, 1.5, True, given.junk()) if given.spoils() else given.pick(*edges, np.uint64(7))

    seed = given.pick(0, 10**30, [1, 2], np.random.SeedSequence(3), rng, None, np.int64(4))
    if given.spoils():
        seed = given.pick(-1, True, 1.5, "x", [-1], [[1]], given.junk())
    one = kernels.Stream(seed, word(), word())
    two = kernels.Stream.from_key(
        given.pick([word(), word()], np.array([1, 2], np.uint64), given.junk() if given.rate else (3, 4))
    )
    for x in (one, two, one.at(word(), word()), copy.copy(one), pickle.loads(pickle.dumps(two))):
        n = given.count(0, 20)
        assert (x.uniforms(n) == x.generator().random(int(n))).all()
    assert one == kernels.Stream.from_key(one.key, one.call, one.chunk) and hash(one) == hash(copy.copy(one))
    assert one != given.junk()


def rules(rng: np.random.Generator) -> None:
    given = Input(rng)
    n_actions, d = given.size(3), given.size(3)
    made = [kernels.Uniform(), kernels.Fixed(given.integer(0, 2**31 - 1)), kernels.Greedy(given.array((n_actions, d)))]
    for rule in made:
        for other in (copy.copy(rule), copy.deepcopy(rule), pickle.loads(pickle.dumps(rule))):
            assert other == rule and hash(other) == hash(rule) and other.digest == rule.digest
            assert len(rule.digest) >= 16
        assert rule != given.junk()
    if given.spoils():
        given.pick(kernels.Rule, lambda: type("Own", (kernels.Uniform,), {})(), lambda: kernels.Uniform(given.junk()))()
        raise AssertionError("a rule of another kind was made")


# Models and rollouts


def distribution(given: Input, shape: tuple[int, ...]) -> Any:
    p = given.rng.random(shape) * (given.rng.random(shape) < 0.6)
    p[..., 0] += p.sum(axis=-1) == 0.0
    if given.chance(0.3):
        p = np.eye(shape[-1])[given.rng.integers(0, shape[-1], shape[:-1])]
    return p / p.sum(axis=-1, keepdims=True)


def finite_parts(given: Input, horizon: int, n_actions: int, d: int) -> list[Any]:
    """The arguments of a FiniteModel."""
    rng, sizes = given.rng, [given.size(4) for _ in range(horizon + 1)]
    transitions, rewards, features = [], [], []
    for h in range(horizon - int(rng.integers(2))):
        p = distribution(given, (sizes[h], n_actions, sizes[h + 1]))
        transitions.append(scipy.sparse.csr_array(p.reshape(-1, sizes[h + 1])) if given.chance(0.3) else p)
    for h in range(horizon):
        dense = h < len(transitions) and not scipy.sparse.issparse(transitions[h])
        shape = (sizes[h], n_actions, *([sizes[h + 1]] if dense and given.chance(0.3) else []))
        rewards.append(rng.random(shape) / horizon * float(given.pick(0.0, 1.0)))
        x = rng.standard_normal((sizes[h], d)) * (rng.random((sizes[h], d)) < given.pick(0.2, 1.0))
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True)) * (1.0 + 1e-12)
        features.append(scipy.sparse.csr_array(x) if given.chance(0.3) else x)
    parts = [transitions, rewards, features, distribution(given, (sizes[0],)), np.full(horizon, 1.0 / horizon)]
    if given.spoils():
        i = int(rng.integers(5))
        if i < 3 and parts[i] and given.chance(0.7):
            j = int(rng.integers(len(parts[i])))
            x = parts[i][j]
            if scipy.sparse.issparse(x):
                given.corrupt(x)
            else:
                parts[i][j] = given.pick(given.spoilt(x), -x, x * 0.0, x.tolist(), np.asfortranarray(x), given.junk())
        elif i < 3:
            parts[i] = given.pick(parts[i][:-1], parts[i] * 2, given.junk())
        else:
            parts[i] = given.pick(given.spoilt(parts[i]), -parts[i], parts[i] * 0.0, parts[i].tolist())
    return parts


def run_model(given: Input, model: Any) -> None:
    horizon, n_actions, d = model.horizon, model.n_actions, model.dimension
    with fails(ArithmeticError, "a greedy score is not finite"):
        policy, source = given.rules(horizon, n_actions, d), given.stream()
        n = given.count(0, given.pick(5, 5, 600))
        levels, returns_from = given.levels(horizon), given.levels(horizon)
        sums, moments, squares = model.rollout(policy, n, source, levels, returns_from)
        assert sums.shape == (len(levels), d, d) and moments.shape == (len(returns_from), d)
        # Features and rewards that FiniteMDP refuses are taken here, and may overflow.
        assert given.rate or (np.isfinite(sums).all() and np.isfinite(moments).all() and (squares >= 0.0).all())
        rows, again, _ = model.rollout(policy, n, source, levels, returns_from, in_rows=True)
        assert rows.n_levels == len(levels) and np.array_equal(again, moments, equal_nan=True)
        for i in range(len(levels)):
            assert given.rate or np.allclose(rows.gram(i), sums[i], rtol=1e-9, atol=1e-9 * max(1, int(n)))
        earned = model.returns(policy, n, source)
        _, actions, paid = model.trajectories(policy, n, source)
        assert earned.shape == (n,) and actions.shape == paid.shape == (n, horizon)
        assert ((actions >= 0) & (actions < n_actions)).all()


def finite(rng: np.random.Generator) -> None:
    given = Input(rng)
    run_model(given, kernels.FiniteModel(*finite_parts(given, given.size(4), given.size(3), given.size(4))))


def alias(rng: np.random.Generator) -> None:
    given = Input(rng)
    m = given.size(9)
    p = rng.random(m) + 1e-9
    p = given.spoilt(p) if given.spoils() else given.laid(p / p.sum())
    threshold, other = kernels.alias_tables(p)
    p = floats(p)
    assert ((other >= 0) & (other < len(p))).all() and (threshold >= 0.0).all()
    mass = np.bincount(other, 1.0 - threshold, len(p)) + threshold
    assert np.allclose(mass / len(p), p / p.sum(), atol=1e-9)
    shape = (given.size(3), given.size(3), given.size(3))
    q = distribution(given, shape)
    q = scipy.sparse.csr_array(q.reshape(-1, shape[2])) if given.chance(0.3) else q
    if given.spoils():
        q = given.spoilt(q) if isinstance(q, np.ndarray) else q.asformat(given.pick("coo", "csc", "lil"))
    rows, targets, values = kernels.transition_edges(q)
    assert len(rows) == len(targets) == len(values)


def block_of(given: Input, horizon: int, n_actions: int, d: int) -> Any:
    parts = finite_parts(given, horizon, n_actions, d)
    model = kernels.FiniteModel(*parts)
    noise = given.pick("none", "coins", "gaussian")
    options = {
        "noise": noise,
        "n_coins": given.integer(1, given.pick(4, 120)) if noise == "coins" else 0,
        "sigma": given.positive(zero=True) if noise == "gaussian" else 0.0,
        "scale": given.pick(0.2, 0.2, 0.2, given.positive()),
    }
    if given.spoils():
        key = given.pick(*options)
        options[key] = given.pick(given.junk(), *EDGES, "coins", 1.5)
    m = given.size(given.pick(4, 70))
    base = [given.rng.standard_normal((len(floats(x)), m)) / np.sqrt(m) for x in parts[2]]
    if given.spoils():
        base = given.pick(base[:-1], base * 2, [given.spoilt(np.asarray(b, float)) for b in base], given.junk())
    return kernels.BlockModel(model, base, **options)


def compiled_of(given: Input, horizon: int) -> tuple[Any, Any]:
    """An environment and a feature map, or None, that fits it."""
    kind = given.rng.integers(4)
    if kind == 0:
        low, high = [-1.2, -0.07], [0.6, 0.07]
        source = kernels.MountainCar(given.integer(horizon, horizon))
    elif kind == 1:
        low, high = [-2.4, -3.0, -0.21, -3.0], [2.4, 3.0, 0.21, 3.0]
        source = kernels.CartPole(given.integer(horizon, horizon))
    else:
        return kernels.EnvironmentHandle(block_of(given, horizon, given.size(3), given.size(3))), None
    maps = [
        lambda: kernels.Identity(low, high, given.chance(0.5)), lambda: kernels.Fourier(low, high, 1),
        lambda: kernels.TileCoding(low, high, 2, given.size(3)), lambda: kernels.RandomFourier(len(low), 4, 1.0, 0),
        lambda: kernels.RBF([low, high], 1.0), lambda: kernels.Nystrom([low, high], 1.0),
    ]  # fmt: skip
    feature_map = given.pick(*maps)()
    if given.spoils():
        feature_map = given.pick(kernels.OneHot(3), kernels.Identity([0.0], [1.0]), given.junk())
    return kernels.EnvironmentHandle(source), feature_map


def compiled(rng: np.random.Generator) -> None:
    given = Input(rng)
    handle, feature_map = compiled_of(given, given.size(4))
    run_model(given, kernels.CompiledModel(handle, feature_map))


def handle(rng: np.random.Generator) -> None:
    given = Input(rng)
    horizon = given.size(3)
    taken, _ = compiled_of(given, horizon)
    if given.spoils():
        kernels.EnvironmentHandle(
            given.pick(taken, kernels.capsule_at(given.pick(0, -1, 2**64, 1.5, given.junk())), given.junk())
        )
    twin = kernels.EnvironmentHandle(kernels.capsule_at(taken.address))  # `taken` keeps the struct
    assert (twin.horizon, twin.dimension, twin.feature_uniforms) == (
        taken.horizon,
        taken.dimension,
        taken.feature_uniforms,
    )
    del twin
    n = int(rng.integers(0, 4))

    def uniforms(count: int) -> Any:
        u = rng.random((n, count))
        return given.spoilt(u) if given.spoils() else given.pick(u, None if count == 0 else u)

    states = taken.reset(uniforms(taken.reset_uniforms))
    assert states.shape[1] == taken.state_bytes
    n = len(states)
    with fails(RuntimeError, "returned the code"):
        for h in range(horizon):
            if given.spoils():
                states = given.pick(
                    states[:, :-1], states.astype(np.int8), rng.integers(0, 256, states.shape).astype(np.uint8),
                    np.full_like(states, 255), states[::-1], given.junk(),
                )  # fmt: skip
            level = given.integer(h, h)
            phi = taken.features(level, states, uniforms(taken.feature_uniforms[h]))
            assert phi.shape == (len(states), taken.dimension)
            actions = given.indices(len(states), taken.n_actions)
            rewards = taken.step(level, states, actions, uniforms(taken.step_uniforms[h]))
            assert rewards.shape == taken.ended(level, states).shape == (len(states),)


def features(rng: np.random.Generator) -> None:
    given = Input(rng)
    m = given.size(3)
    low = given.numbers((m,), mild=True)
    high = low + rng.random(m) + 0.1
    if given.spoils():
        high = given.pick(low, given.spoilt(high), high + 1e308, low[::-1])
    box = (
        (given.laid(low), given.laid(high))
        if m > 1 or given.chance(0.5)
        else (float(low[0]), np.asarray(high).reshape(-1)[:1])
    )
    width = given.pick(given.positive(), rng.random(m) + 0.1)
    centers, kernel = given.array((given.size(given.pick(4, 40)), m)), ("gaussian", "matern", "exponential")
    makers = [
        lambda: kernels.Identity(*box, given.pick(True, given.junk()) if given.spoils() else given.chance(0.5)),
        lambda: kernels.OneHot(given.integer(1, 9)), lambda: kernels.Fourier(*box, given.integer(1, 3)),
        lambda: kernels.TileCoding(*box, given.pick(given.integer(1, 4), given.indices(m, 4)), given.integer(1, 4)),
        lambda: kernels.RBF(centers, width, given.chance(0.5)),
        lambda: kernels.RandomFourier(m, given.pick(2, 6, 80, 3 if given.rate else 4), width, given.pick(None, 3, rng)),
        lambda: kernels.RandomFourier.from_frequencies(given.array((given.size(3), m))),
        lambda: kernels.Nystrom(centers, width, given.pick(*kernel), given.pick(1e-12, 0.0, 0.5)),
    ]  # fmt: skip
    made = given.pick(*makers)()
    m, d = made.inputs, made.dimension
    if given.chance(0.2):
        made = given.pick(copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)))(made)
    n = given.size(20)
    x = rng.integers(0, d, (n, 1)).astype(float) if type(made) is kernels.OneHot else given.numbers((n, m))
    x = given.spoilt(x) if given.spoils() else given.laid(x)
    if d > 10**6:
        raise ValueError("the dimension is too large to go on")
    phi = made(x)
    assert phi.shape[-1] == d and np.isfinite(phi).all()
    assert (np.linalg.norm(np.atleast_2d(phi), axis=-1) <= 1.0 + 1e-9).all()
    if made.nonzeros or given.spoils():
        columns, values = made.sparse(x)
        assert columns.shape == values.shape and ((columns >= 0) & (columns < d)).all()


# One episode at a time


def episode_of(given: Input, horizon: int, numbered: bool = False) -> Any:
    if numbered and not given.spoils():
        env, feature_map = kernels.EnvironmentHandle(block_of(given, horizon, given.size(3), given.size(3))), None
    else:
        env, feature_map = compiled_of(given, horizon)
    return kernels.Episode(env, feature_map, given.stream())


def episode(rng: np.random.Generator) -> None:
    given = Input(rng)
    made = episode_of(given, given.size(4))

    def check() -> Any:
        assert made.state.shape == (made.handle.state_bytes,)

    def reset() -> None:
        made.reset(given.pick(*EDGES, 1.5, given.junk()) if given.spoils() else given.pick(0, 1, 2**63 - 1))

    def step() -> None:
        assert 0.0 <= made.step(given.integer(0, made.n_actions - 1)) <= 1.0

    def act() -> None:
        scores = given.array((made.n_actions,))
        assert floats(scores)[made.act(scores)] == floats(scores).max()

    def observe() -> None:
        assert made.features().shape == (made.dimension,)

    def draw() -> None:
        n = given.count(0, 5)
        assert made.draws(n).shape == (n,)

    reset()
    walk(given, [reset, step, step, step, observe, observe, act, draw], check)


def learner(rng: np.random.Generator) -> None:
    given = Input(rng)
    kind = int(rng.integers(7))
    horizon = given.size(3)
    played = episode_of(given, horizon, numbered=kind > 2)
    optimism = given.pick("steps", "none", given.junk()) if given.spoils() else given.pick("flat", "steps")
    if kind == 0:
        made = kernels.LeastSquaresLearner(
            played, given.pick("uniform", "randomized", "confident"), given.positive(), given.positive(zero=True),
            optimism=optimism, clipped=given.chance(0.5), blocks=given.chance(0.2),
        )  # fmt: skip
    elif kind == 1:
        parts = [0.5, given.positive(zero=True), given.pick(0.0, 1.0, 0.3), given.positive(zero=True)]
        made = kernels.LinearQLearner(played, *parts)
    elif kind == 2:
        made = kernels.SpanLearner(played, given.positive())
    elif kind == 3:
        made = kernels.UCBQLearner(
            played,
            given.positive(zero=True),
            given.pick(None, 0.5, given.positive()),
            given.chance(0.5),
            optimism=optimism,
        )
    elif kind == 4:
        made = kernels.DelayedQLearner(played, given.integer(1, 3), given.positive(zero=True))
    elif kind == 5:
        made = kernels.BernsteinLearner(
            played,
            optimism,
            given.positive(zero=True),
            given.positive(zero=True),
            given.pick(None, 0.1, given.positive()),
        )
    else:
        made = kernels.PolicyOptimisationLearner(played, optimism, given.positive(zero=True), given.positive(zero=True))
    names = [n for n in dir(made) if not n.startswith("_") and n != "run"]
    for _ in range(given.size(3)):
        n = int(rng.integers(0, 12)) if rng.random() < 0.99 else 1100
        returns = np.full(n, np.nan)
        if given.spoils():
            returns = given.pick(given.spoilt(returns), returns[::-1], returns.astype(np.float32), given.junk())
        deadline = given.pick(None, 0.0, np.inf, given.junk() if given.rate else 1e9)
        before = made.n_episodes
        with fails(ArithmeticError, "a greedy score is not finite"):
            whole = made.run(returns, deadline)
        assert whole in (True, False) and np.isfinite(np.asarray(returns)[: made.n_episodes - before]).all()
        for name in names:
            value = getattr(made, name)
            if callable(value):
                with fails(ArithmeticError, "is not finite"):
                    value()


def planner(rng: np.random.Generator) -> None:
    given = Input(rng)
    horizon, n_actions, d = given.size(3), given.size(3), given.pick(given.size(4), 12)
    if given.spoils():
        sizes = [horizon, n_actions, d]
        sizes[rng.integers(3)] = given.pick(0, -1, 2**31 - 1, 2**31, *EDGES, given.junk())
        kernels.OptimisticPlanner(*sizes, 1.0, 1.0)
    played = None
    if given.chance(0.5):
        env, feature_map = compiled_of(given, horizon)
        played = kernels.Episode(env, feature_map, given.stream())
        n_actions, d = played.n_actions, played.dimension
    made = kernels.OptimisticPlanner(horizon, n_actions, d, given.positive(), given.positive())

    def theta() -> Any:
        return given.array((horizon, n_actions, d), mild=True)

    def chosen() -> Any:
        n = made.n_episodes
        if n == 0 and not given.spoils():
            return np.zeros(0, int)
        return given.indices(given.size(4), max(n, 1))

    def add() -> None:
        x = rng.integers(-2, 3, (horizon, d)) / (2.0 * np.sqrt(d)) * (rng.random((horizon, d)) < given.pick(0.2, 1.0))
        x = given.spoilt(x) if given.spoils() else given.laid(x)
        made.add(
            x,
            given.indices(horizon, n_actions),
            given.array((horizon,)) if given.spoils() else rng.random(horizon) / horizon,
        )

    def play() -> None:
        with fails(ArithmeticError, "a greedy score is not finite"):
            made.play(
                given.pick(played, played, played, None),
                given.count(0, 4 if rng.random() < 0.99 else 1100),
                given.pick(None, theta()),
                given.integer(0, horizon),
            )

    def plan() -> None:
        gap, residual = made.plan(given.pick(0.0, 0.1, 1.0, given.positive()), given.positive(zero=True))
        assert not np.isnan(gap) and residual >= 0.0

    def shares() -> Any:
        return (
            given.spoilt(np.ones(made.n_episodes))
            if given.spoils()
            else given.laid(rng.exponential(size=made.n_episodes))
        )

    def read() -> None:
        level = given.integer(0, horizon - 1)
        assert made.rows(level, given.integer(0, made.n_rows[int(level)])).shape[1] == d
        rows, actions, _ = made.recorded(chosen())
        assert rows.shape == actions.shape
        with fails(RuntimeError, "expected a call of `plan`"):
            tables = made.table(level)
            assert len(tables) == 4 and made.upsides(chosen()).shape[1] == horizon

    def estimate() -> None:
        if made.n_episodes:
            assert made.regret(theta(), chosen()) >= -1e-9

    def imagine() -> None:
        plain, hopeful = made.imagine(shares(), given.pick(0.0, 0.5, given.positive()))
        assert plain <= hopeful + 1e-9

    def refit() -> None:
        assert made.refit(shares(), given.chance(0.5), given.positive(zero=True)).shape == (horizon, n_actions, d)

    def choose() -> None:
        x = given.array((d,), mild=True)
        action = made.choose(
            given.integer(0, horizon - 1),
            x,
            given.pick(0.0, 0.5, given.positive()),
            given.pick(0.0, 0.999, given.positive()),
        )
        assert 0 <= action < n_actions

    def check() -> Any:
        return made.n_episodes if played is None else None

    walk(given, [add, play if played else add, plan, plan, read, estimate, imagine, refit, choose], check, 14)


# Arguments, and objects that nobody has initialised


def arguments(rng: np.random.Generator) -> None:
    given = Input(rng)
    n, d = int(rng.integers(0, 5)), given.size(4)
    if given.chance(0.4):
        rows = given.sparse(max(n, 1), d) if not given.spoils() else given.pick(given.junk(), given.numbers((n, d)))
        shape = given.pick((None, None), (max(n, 1), d), (None, d), (d,), (None, d + 1))
        out = kernels.as_csr("x", rows, shape)
        assert out.has_canonical_format and (out.data != 0.0).all() and np.isfinite(out.data).all()
        assert out.indices.dtype == np.int32 and (out.indices < d).all() and (out.indices >= 0).all()
        assert kernels.is_sparse(out) and not kernels.is_sparse(out.toarray())
        return
    x = given.array((n, d))
    assert kernels.as_numbers("x", x).dtype.kind in "biuf"
    out = kernels.as_floats("x", x, given.pick((None, None), (n, d), (None, d)), finite=given.chance(0.5))
    assert out.flags.carray or not out.flags.writeable
    assert out.dtype == np.float64 and out.flags.c_contiguous
    assert (out == floats(x)).all() or not np.isfinite(out).all()
    value = given.positive(zero=True)
    assert 0.0 <= kernels.as_positive("x", value, zero=True) < np.inf


def objects(given: Input) -> list[Callable[[], Any]]:
    """Functions that make an object of each class."""
    plain = Input(given.rng)
    plain.rate = 0.0

    def episode() -> Any:
        return episode_of(plain, 2, numbered=True)

    return [
        lambda: block_of(plain, 2, 2, 2), lambda: kernels.CartPole(2), lambda: kernels.MountainCar(2),
        lambda: kernels.CompiledModel(*compiled_of(plain, 2)), lambda: compiled_of(plain, 2)[0], episode,
        lambda: kernels.FiniteModel(*finite_parts(plain, 2, 2, 2)), lambda: kernels.Uniform(), lambda: kernels.Fixed(1),
        lambda: kernels.Greedy(np.ones((2, 2))), lambda: kernels.Interpreted(), lambda: kernels.Stream(0),
        lambda: kernels.Identity([0.0], [1.0]), lambda: kernels.OneHot(3), lambda: kernels.Fourier([0.0], [1.0], 1),
        lambda: kernels.RBF([[0.0]], 1.0), lambda: kernels.TileCoding([0.0], [1.0], 2, 2),
        lambda: kernels.RandomFourier(1, 2), lambda: kernels.Nystrom([[0.0]]),
        lambda: kernels.LeastSquaresLearner(episode(), "confident", 1.0, 1.0),
        lambda: kernels.LinearQLearner(episode(), 0.5, 0.1, 0.5, 0.1), lambda: kernels.SpanLearner(episode(), 1e-6),
        lambda: kernels.UCBQLearner(episode(), 1.0, None, True), lambda: kernels.DelayedQLearner(episode(), 1, 0.1),
        lambda: kernels.BernsteinLearner(episode(), "flat", 1.0, 1.0, 0.1),
        lambda: kernels.PolicyOptimisationLearner(episode(), "steps", 1.0, 1.0),
        lambda: kernels.OptimisticPlanner(2, 2, 2, 1.0, 1.0), lambda: kernels.SecondMoment(2),
        lambda: kernels.Ridge(2, 1.0), lambda: kernels.RidgeArms(2, 2, 1.0), lambda: kernels.RidgeFit(2, 1.0),
        lambda: kernels.LevelRows.of([np.ones((1, 2))] * 2), lambda: kernels.RowOracle(2, 1.0),
        lambda: kernels.RowScan(1.0, 1.0, True), lambda: kernels.ShiftScan(2, 1.0, 1.0, 1.0, True),
    ]  # fmt: skip


CLASSES = [getattr(kernels, name) for name in kernels.__all__ if isinstance(getattr(kernels, name), type)]
SPECIAL = (
    "__init__",
    "__setstate__",
    "__reduce__",
    "__repr__",
    "__eq__",
    "__hash__",
    "__add__",
    "__radd__",
    "__call__",
)


def wild(rng: np.random.Generator) -> None:
    """Calls anything of any object with what might fit; some objects were made without their arguments."""
    given = Input(rng)
    makers = objects(given)
    some = [
        0, 1, 0.5, np.ones(2), np.ones((1, 2)), np.ones((2, 2)), np.ones((2, 2, 2)), np.zeros(2, int), np.zeros((0, 2)),
        np.zeros(0), kernels.Stream(0), (kernels.Uniform(),) * 2, [], (0,), (0, 1), range(1), None, "flat", True,
    ]  # fmt: skip
    made = given.pick(*makers)()
    if given.chance(0.3):
        made = type(made) if given.chance(0.5) else given.pick(*CLASSES)
        try:
            if given.chance(0.5):
                made = type("Own", (made,), {})
            made = made.__new__(made, *(given.pick(*some) for _ in range(int(rng.integers(0, 3)))))
        except REFUSALS:
            return  # as it should be: there is no such object
    some += [made] * 3 + [given.pick(*makers)() for _ in range(3)] + [[made, made]]
    refused: BaseException | None = None
    for _ in range(given.size(8)):
        name = given.pick(*(n for n in dir(made) if not n.startswith("_") or n in SPECIAL))
        try:
            value = getattr(made, name)
            if callable(value) and not isinstance(value, type):
                try:
                    most = len(inspect.signature(value).parameters)
                except ValueError:
                    most = 2
                value(*(given.pick(*some) for _ in range(most - int(given.chance(0.3) and most > 0))))
        except (*REFUSALS, NotImplementedError) as error:
            refused = error
        except (ArithmeticError, RuntimeError) as error:
            known = ("a greedy score is not finite", "expected a call of `plan`", "returned the code")
            assert any(text in str(error) for text in known), repr(error)
            refused = error
    if refused is not None:
        raise ValueError(str(refused) or type(refused).__name__) from refused


TARGETS = {
    "dsec": Target(dsec, 3.0),
    "dsec_stack": Target(dsec_stack),
    "dsec_rows": Target(dsec_rows),
    "shift_scan": Target(shift_scan, 2.0),
    "moments": Target(moments, 3.0, (MemoryError,)),
    "ridge": Target(ridge, 4.0, (MemoryError,)),
    "arms": Target(arms, 2.0, (MemoryError,)),
    "ridge_fit": Target(ridge_fit, 1.0),
    "greedy": Target(greedy, 2.0),
    "level_rows": Target(level_rows, 2.0, (MemoryError,)),
    "row_oracle": Target(row_oracle, 3.0, (MemoryError,)),
    "row_scan": Target(row_scan, 2.0),
    "stream": Target(stream),
    "rules": Target(rules),
    "finite": Target(finite, 3.0),
    "alias": Target(alias),
    "compiled": Target(compiled, 3.0, (MemoryError,)),
    "handle": Target(handle, 2.0),
    "features": Target(features, 3.0, (MemoryError,)),
    "episode": Target(episode, 2.0),
    "learner": Target(learner, 4.0, (MemoryError,)),
    "planner": Target(planner, 4.0, (MemoryError,)),
    "arguments": Target(arguments, 2.0),
    "wild": Target(wild, 6.0, (MemoryError,)),
}
