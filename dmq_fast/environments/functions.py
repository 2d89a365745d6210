"""The four functions of a compiled environment: their C types, and their addresses."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["ENDED", "FEATURES", "PROTOTYPES", "RESET", "STEP", "address_of"]

_DOUBLES = ctypes.POINTER(ctypes.c_double)
_INTEGERS = ctypes.POINTER(ctypes.c_int64)

# Types of the functions of an environment in ctypes.
RESET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, _DOUBLES, ctypes.c_void_p)
FEATURES = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, _DOUBLES, _DOUBLES
)
STEP = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_void_p,
    _INTEGERS,
    _DOUBLES,
    _DOUBLES,
)
ENDED = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_int8),
)

# By name of the function: its type, and the names of its arguments in ``_env.pxd``.
PROTOTYPES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "reset": (RESET, ("context", "n", "u", "states")),
    "features": (FEATURES, ("context", "level", "n", "states", "u", "phi")),
    "step": (STEP, ("context", "level", "n", "states", "actions", "u", "rewards")),
    "ended": (ENDED, ("context", "level", "n", "states", "ended")),
}

# Base class of all functions of ctypes.
FUNCTION: Any = RESET.__mro__[1]

# Flag of the ctypes functions that are called with the GIL held.
HOLDS_GIL = 0x4


def address_of(name: str, function: Any) -> int:
    """Return the address of a function of an environment.

    Its types are not compared: few functions have any, and `environments.check` finds more by calling them.

    Parameters
    ----------
    name : str
        A key of `PROTOTYPES`.
    function : int, ctypes function, or object with an integer `address`, such as a numba cfunc

    Raises
    ------
    TypeError
        If it is something else, or is called with the GIL held.
    ValueError
        If it is NULL.
    """
    if isinstance(function, FUNCTION):
        if function._flags_ & HOLDS_GIL:
            raise TypeError(f"{name}: expected a function that needs no GIL, as of CFUNCTYPE, got one of PYFUNCTYPE")
        address = ctypes.cast(function, ctypes.c_void_p).value
    else:
        address = function if isinstance(function, int) else getattr(function, "address", None)
        if not isinstance(address, int) or isinstance(address, bool):
            hint = ", which is Python: see BatchEnvironment" if callable(function) else ""
            raise TypeError(
                f"{name}: expected an address, a ctypes function, or an object with an address such as a numba cfunc, "
                f"got {type(function).__name__}{hint}"
            )
    if not address:
        raise ValueError(f"{name}: expected a function, got NULL")
    return address
