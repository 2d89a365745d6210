"""The three rules of the paper: uniform over actions, one fixed action, greedy on theta_h; and a base for others."""

cimport cython

import hashlib
import numbers

import numpy as np

from dmq_fast.kernels._validate import as_floats


cdef class Rule:
    """Base class of what a policy does at one level: `Uniform`, `Fixed` or `Greedy`. Immutable."""

    def __cinit__(self):
        # Kernels switch on the kind, so a fourth one would be taken for one of the three.
        if (type(self) is not Uniform and type(self) is not Fixed and type(self) is not Greedy
                and not isinstance(self, Interpreted)):
            raise TypeError("Rule is closed: use Uniform(), Fixed(action) or Greedy(theta)")

    # A `__cinit__` without arguments accepts any. This refuses them, so rules with arguments need an `__init__` too.
    def __init__(self):
        pass

    @property
    def digest(self):
        """16 bytes that identify the rule: equal for equal rules, different for others."""
        raise NotImplementedError


cdef class Uniform(Rule):
    """Draw the action uniformly.

    Examples
    --------
    >>> Uniform()
    Uniform()
    """

    def __cinit__(self):
        self.kind = UNIFORM

    def __eq__(self, other):
        return type(other) is Uniform if isinstance(other, Rule) else NotImplemented

    @property
    def digest(self):
        """16 bytes that identify the rule."""
        return b"uniform".ljust(16)

    def __hash__(self):
        return hash(Uniform)

    def __repr__(self):
        return "Uniform()"

    def __reduce__(self):
        return (Uniform, ())


cdef class Fixed(Rule):
    """Take one action in every state.

    Parameters
    ----------
    action : int
        In [0, 2^31) and below K, which the sampler checks.

    Examples
    --------
    >>> Fixed(1).action
    1
    """

    def __cinit__(self, action):
        # The test of the abstract class is slow, and rules are built by the thousand.
        integral = type(action) is int or (isinstance(action, numbers.Integral) and type(action) is not bool)
        if not integral or not 0 <= action < 2**31:
            raise ValueError(f"action: expected an integer in [0, 2^31), got {action!r}")
        self.kind = FIXED
        self.action = action

    def __init__(self, action):
        pass

    def __eq__(self, other):
        if not isinstance(other, Rule):
            return NotImplemented
        return type(other) is Fixed and (<Fixed> other).action == self.action

    @property
    def digest(self):
        """16 bytes that identify the rule: equal for equal rules, different for others."""
        return b"fixed %10d" % self.action

    def __hash__(self):
        # Rules are hashed by the million, as memories of runs look policies up by them.
        return 0x5EED0000 + self.action

    def __repr__(self):
        return f"Fixed({self.action})"

    def __reduce__(self):
        return (Fixed, (self.action,))


# Arrays are no part of cycles, and the garbage collector would follow the millions of references to rules of a run.
@cython.no_gc
cdef class Greedy(Rule):
    """Take argmax_a phi(s)^T theta^a, ties to the smallest action.

    Parameters
    ----------
    theta : array_like, shape (K, d)
        One weight vector per action; copied, finite.

    Attributes
    ----------
    n_actions, dimension : int
        K and d.

    Examples
    --------
    >>> Greedy([[1, 0], [0, 1]]) == Greedy([[1.0, 0.0], [0.0, 1.0]])
    True
    """

    def __cinit__(self, theta):
        cdef const double[:, ::1] view
        # A contiguous read-only copy, which nobody else can change.
        array = as_floats("theta", theta, (None, None)).copy()
        if array.size == 0:
            raise ValueError(f"theta: expected shape (K, d) with K, d >= 1, got {array.shape}")
        array.flags.writeable = False
        view = array
        self.kind = GREEDY
        self.theta = array
        self.weights = &view[0, 0]
        self.n_actions = array.shape[0]
        self.dimension = array.shape[1]

    def __init__(self, theta):
        pass

    @property
    def digest(self):
        """16 bytes that identify theta, computed once: equal for equal thetas, different for others."""
        if self._digest is None:
            # + 0.0 makes -0.0 and 0.0, which compare equal, hash equal.
            whole = hashlib.blake2b(b"%d %d;" % self.theta.shape, digest_size=16)
            whole.update(self.theta + 0.0)
            self._digest = whole.digest()
        return self._digest

    def __eq__(self, other):
        if not isinstance(other, Rule):
            return NotImplemented
        if type(other) is not Greedy:
            return False
        # Dictionaries have hashed both, and so know their digests.
        if self._digest is not None and (<Greedy> other)._digest is not None:
            return self._digest == (<Greedy> other)._digest
        return self is other or np.array_equal(self.theta, (<Greedy> other).theta)

    def __hash__(self):
        return hash(self.digest if self._digest is None else self._digest)

    def __repr__(self):
        return f"Greedy(<theta of shape {self.theta.shape}>)"

    def __reduce__(self):
        return (Greedy, (self.theta,))


cdef class Interpreted(Rule):
    """Base class of rules written in Python, for samplers in Python. Kernels refuse them."""

    def __cinit__(self, *args, **kwargs):
        self.kind = INTERPRETED
