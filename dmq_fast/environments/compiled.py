"""`CompiledEnv`: environments in machine code, with the binary interface of ``dmq_fast/kernels/_env.pxd``.

An environment consists of four small functions on blocks of trajectories, in any language that compiles to C functions:
Cython, numba's ``cfunc``, or C behind ctypes or cffi. ``tests/walker.py`` has one environment in three of them.
"""

from __future__ import annotations

import copy
import ctypes
import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.checks import declared, flag, integer
from dmq_fast.environments.arrays import digest
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.functions import ENDED, FEATURES, RESET, STEP, address_of
from dmq_fast.homogeneity import as_labels
from dmq_fast.kernels import ENVIRONMENT_SIZE, ENVIRONMENT_VERSION, EnvironmentHandle, FeatureMap, capsule_at
from dmq_fast.rewards import RewardModel, ValueRange, as_bounds, as_noise
from dmq_fast.table_policy import TablePolicy

__all__ = ["ENDED", "FEATURES", "RESET", "STEP", "CompiledEnv"]


class CompiledEnv:
    """An environment in machine code, simulated by a `RolloutSampler` without holding the GIL.

    Parameters
    ----------
    source : object
        A capsule that holds an ``Environment`` of ``_env.pxd``, or an object with a method ``__dmq_environment__`` that
        returns one; it is kept alive. `from_functions` makes one of four functions.
    name : str, optional
    parameters : mapping, optional
        Arguments that the environment was made with: shown in reports, and compared before a run is resumed.
    features : FeatureMap, optional
        Map from the numbers that the environment writes to features; see `with_features`.
    factory : callable, optional
        A function without arguments that makes the environment again in another process. It must be picklable: a
        function of a module, or a ``functools.partial`` of one.
    latent : FiniteMDP, optional
        The finite MDP behind the observations, if there is one.
    numbered : bool, optional
        Whether algorithms with tables may see the number of the latent state.
    data : sequence of numpy.ndarray, optional
        Arrays of the environment besides its parameters: compared before a run is resumed.
    value_range : pair of float, array_like of shape (H, 2) or "seen", optional
        The least and the largest sum of rewards that can be earned from any level on, (low, high), or one such pair for
        each level. Default: that of `latent`; unknown ("seen") where there is none. Algorithms learn sooner the tighter
        it is; an episode that leaves it is refused, or widens it.
    noise : float, optional
        > 0, where rewards are means plus noise: a guess of its standard deviation. What is earned may then leave the
        range, which is that of the means.
    homogeneous : bool or sequence of int, default False
        Whether transitions, rewards and features are the same at every level, or a label of each level: levels of one
        label are the same. A self-stopping run then needs far fewer episodes.

    Attributes
    ----------
    horizon, n_actions, dimension : int
        H, K and d, the latter after the feature map.
    value_range : numpy.ndarray, shape (H, 2), or None
        The declared range by level.
    noise : float or None
    homogeneous : bool or tuple of int
    name : str
    parameters : dict
    features : FeatureMap or None
    latent : FiniteMDP or None
    numbered : bool
        Whether algorithms with tables can learn here: there is a latent MDP, and its states are shown to them.
    handle : EnvironmentHandle
        Steps the environment by hand.

    Raises
    ------
    TypeError, ValueError
        On an argument of a wrong type, or an environment whose sizes make no sense.
    """

    def __init__(
        self,
        source: Any,
        *,
        name: str = "compiled",
        parameters: Mapping[str, Any] | None = None,
        features: FeatureMap | None = None,
        factory: Callable[[], CompiledEnv] | None = None,
        latent: FiniteMDP | None = None,
        numbered: bool = True,
        data: Sequence[NDArray[Any]] = (),
        value_range: ValueRange = None,
        noise: float | None = None,
        homogeneous: bool | Sequence[int] = False,
    ) -> None:
        if factory is not None and not callable(factory):
            raise TypeError(f"factory: expected a function, got {type(factory).__name__}")
        self.handle = EnvironmentHandle(source)
        self.horizon = self.handle.horizon
        self.n_actions = self.handle.n_actions
        self.name = str(name)
        self.parameters = dict(parameters or {})
        self.latent = latent
        self.numbered = flag("numbered", numbered) and latent is not None
        self._factory = factory
        self._data = tuple(data)
        self.value_range = as_bounds(declared("value_range", value_range, latent), self.horizon)
        self.noise = None if noise is None else as_noise(noise)
        self.homogeneous = homogeneous if isinstance(homogeneous, bool) else as_labels(homogeneous, self.horizon)
        self.linear = True
        self._set_features(features)

    def _set_features(self, features: FeatureMap | None) -> None:
        observed = self.handle.dimension
        if features is not None and not isinstance(features, FeatureMap):
            raise TypeError(f"features: expected a FeatureMap, got {type(features).__name__}")
        if features is not None and features.inputs != observed:
            raise ValueError(f"features: expected a map of {observed} observed numbers, got one of {features.inputs}")
        self.features = features
        self.dimension = observed if features is None else features.dimension

    @classmethod
    def from_functions(
        cls,
        *,
        horizon: int,
        n_actions: int,
        dimension: int,
        state_bytes: int,
        reset: Any,
        features: Any,
        step: Any,
        ended: Any = None,
        reset_uniforms: int = 0,
        feature_uniforms: int | Sequence[int] = 0,
        step_uniforms: int | Sequence[int] = 0,
        value_range: ValueRange = None,
        noise: float | None = None,
        homogeneous: bool | Sequence[int] = False,
        context: Any = None,
        name: str = "compiled",
        parameters: Mapping[str, Any] | None = None,
        factory: Callable[[], CompiledEnv] | None = None,
    ) -> CompiledEnv:
        """Make an environment from functions.

        Each is an address, a ctypes function, or an object with an ``address`` such as a numba ``cfunc``; functions and
        context are kept alive. ``_env.pxd`` documents the functions and the sizes. Their types are not compared with
        it: `dmq_fast.environments.check` calls the functions and lists what is wrong with them.

        Exceptions do not cross C. After one inside a function of Python or numba, the simulator finds output that was
        not written, and ends the run; an exception after all output was written is printed and goes unnoticed. Check
        before writing, or return a code.

        Parameters
        ----------
        horizon, n_actions, dimension, state_bytes : int
        reset, features, step : function
        ended : function, optional
        reset_uniforms : int, optional
        feature_uniforms, step_uniforms : int or sequence of H int, optional
            One number for all levels, or one a level.
        context : optional
            First argument of the functions: an address, a ctypes object, or a contiguous NumPy array (its data, which
            a journal compares before a run is resumed). Default: NULL.
        value_range, noise, homogeneous, name, parameters, factory
            As for `CompiledEnv`.

        Returns
        -------
        CompiledEnv

        Raises
        ------
        TypeError, ValueError
            On an argument of a wrong type or out of range; the message names it.
        """
        functions = Functions({"reset": reset, "features": features, "step": step, "ended": ended}, context)
        horizon = integer("horizon", horizon, 1)
        functions.fill(
            horizon=horizon,
            n_actions=integer("n_actions", n_actions, 1),
            dimension=integer("dimension", dimension, 1),
            state_bytes=integer("state_bytes", state_bytes, 1),
            reset_uniforms=integer("reset_uniforms", reset_uniforms, 0),
            feature_uniforms=by_level("feature_uniforms", feature_uniforms, horizon),
            step_uniforms=by_level("step_uniforms", step_uniforms, horizon),
        )
        data = [context] if isinstance(context, np.ndarray) else []
        return cls(
            functions,
            name=name,
            parameters=parameters,
            factory=factory,
            data=data,
            value_range=value_range,
            noise=noise,
            homogeneous=homogeneous,
        )

    def with_features(self, features: FeatureMap | None) -> CompiledEnv:
        """Return the same environment with other features: a map of its observations, or (None) the observations.

        The features of an episode that has ended are 0, not those of the map.

        Examples
        --------
        >>> import dmq_fast as dmq
        >>> car = dmq.environments.mountain_car(horizon=5)
        >>> rough = dmq.features.TileCoding([-1.2, -0.07], [0.6, 0.07], 2, 1)
        >>> car.dimension, car.with_features(rough).dimension
        (16, 4)
        """
        other = copy.copy(self)
        other._set_features(features)
        return other

    @property
    def optimal_value(self) -> float | None:
        """The optimal value of the finite MDP behind the observations; None where there is none.

        It is an upper bound for policies of the observations, and reached where these determine the state.
        """
        return None if self.latent is None else self.latent.optimal_value

    @property
    def optimal_policy(self) -> TablePolicy | None:
        """The best policy of the finite MDP behind the observations, of its states; None where there is none."""
        return None if self.latent is None else self.latent.optimal_policy

    def fingerprint(self) -> dict[str, Any]:
        """Describe the environment, JSON-able: parameters, sizes, range of rewards, and digests of the rest."""
        handle = self.handle
        uniforms = [handle.reset_uniforms, *handle.feature_uniforms, *handle.step_uniforms]
        return {
            "name": self.name,
            "parameters": self.parameters,
            "observed": handle.dimension,
            "state_bytes": handle.state_bytes,
            "uniforms": uniforms,
            "rewards": RewardModel.of(self).describe(),
            "features": None if self.features is None else digest_of_map(self.features),
            "latent": None if self.latent is None else self.latent.fingerprint(),
            "sha256": digest(self._data),
        }

    def __copy__(self) -> CompiledEnv:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        if self._factory is None:
            raise TypeError(
                f"CompiledEnv {self.name!r} consists of addresses, which mean nothing in another process; "
                "give it a factory that makes it there"
            )
        return rebuild, (self._factory, self.features)

    def __repr__(self) -> str:
        """Name and sizes."""
        return (
            f"CompiledEnv({self.name!r}, horizon={self.horizon}, n_actions={self.n_actions}, "
            f"dimension={self.dimension})"
        )


def digest_of_map(features: FeatureMap) -> str:
    """Return the SHA-256 of a pickled feature map."""
    return hashlib.sha256(pickle.dumps(features, 4)).hexdigest()


def rebuild(factory: Callable[[], CompiledEnv], features: FeatureMap | None) -> CompiledEnv:
    """Make an environment again, with the features it had."""
    env = factory()
    if not isinstance(env, CompiledEnv):
        raise TypeError(f"factory: expected a function that makes a CompiledEnv, got {type(env).__name__}")
    return env.with_features(features)


class Struct(ctypes.Structure):
    """``Environment`` of ``_env.pxd``."""

    _fields_ = (
        ("size", ctypes.c_int64),
        ("version", ctypes.c_int64),
        ("horizon", ctypes.c_int64),
        ("n_actions", ctypes.c_int64),
        ("dimension", ctypes.c_int64),
        ("state_bytes", ctypes.c_int64),
        ("reset_uniforms", ctypes.c_int64),
        ("feature_uniforms", ctypes.POINTER(ctypes.c_int64)),
        ("step_uniforms", ctypes.POINTER(ctypes.c_int64)),
        ("context", ctypes.c_void_p),
        ("reset", ctypes.c_void_p),
        ("features", ctypes.c_void_p),
        ("step", ctypes.c_void_p),
        ("ended", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
    )


assert ctypes.sizeof(Struct) == ENVIRONMENT_SIZE


class Functions:
    """The functions of an environment and their context, kept alive."""

    def __init__(self, functions: Mapping[str, Any], context: Any) -> None:
        self.alive = (dict(functions), context)
        self.struct = Struct(size=ENVIRONMENT_SIZE, version=ENVIRONMENT_VERSION, context=address_of_data(context))
        for name, function in functions.items():
            if function is not None or name != "ended":
                setattr(self.struct, name, address_of(name, function))

    def fill(self, **sizes: Any) -> None:
        """Set the other fields."""
        for name, value in sizes.items():
            setattr(self.struct, name, value)

    def __dmq_environment__(self) -> Any:
        """Return the environment in a capsule."""
        return capsule_at(ctypes.addressof(self.struct))


def by_level(name: str, counts: int | Sequence[int], horizon: int) -> Any:
    """Return the number of uniforms of each level as a C array."""
    try:
        each = [counts] * horizon if isinstance(counts, int | np.integer) else list(counts)
    except TypeError:
        raise TypeError(f"{name}: expected one integer or {horizon}, one a level, got {counts!r}") from None
    if len(each) != horizon:
        raise ValueError(f"{name}: expected one integer or {horizon}, one a level, got {len(each)}")
    checked = [integer(f"{name}[{h}]", count, 0) for h, count in enumerate(each)]
    return (ctypes.c_int64 * horizon)(*checked)


def address_of_data(context: Any) -> int | None:
    """Return the address of the data of a context."""
    if context is None or (isinstance(context, int) and not isinstance(context, bool)):
        return context
    if isinstance(context, np.ndarray):
        if not context.flags.c_contiguous:
            raise ValueError("context: expected a contiguous array")
        return context.ctypes.data
    try:
        return ctypes.addressof(context)
    except TypeError as error:
        raise TypeError(
            f"context: expected an address, a ctypes object or an array, got {type(context).__name__}"
        ) from error
