"""Functions in machine code: their addresses, and the C types that their makers tell.

A function comes as an address, a ctypes function, a numba ``cfunc`` or a `scipy.LowLevelCallable`. The last three know
their types, which are compared with those that the simulator calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["ENDED", "FEATURES", "PROTOTYPES", "RESET", "STEP", "Callback", "callback_of"]

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

# Base classes of all functions and of all pointers of ctypes.
FUNCTION: Any = RESET.__mro__[1]
POINTER: Any = _DOUBLES.__mro__[1]

# Flag of the ctypes functions that are called with the GIL held.
HOLDS_GIL = 0x4


class Signature(NamedTuple):
    """The C types of a function: of what it returns, and of its arguments. None where they are not known."""

    result: str
    arguments: tuple[str | None, ...] | None

    def __str__(self) -> str:
        """As in C."""
        return f"{self.result} ({', '.join(str(argument) for argument in self.arguments or ())})"


class Callback(NamedTuple):
    """The address of a function, what is known of its types, and its user data if it has any."""

    address: int
    signature: Signature | None
    user_data: int | None


def callback_of(name: str, function: Any) -> Callback:
    """Return the address of a function of an environment.

    Parameters
    ----------
    name : str
        A key of `PROTOTYPES`.
    function : int, ctypes function, numba cfunc or scipy.LowLevelCallable

    Raises
    ------
    TypeError
        If it is something else, is called with the GIL held, or has an argument or returns a value of another type
        than the simulator calls it with.
    ValueError
        If it is NULL, or takes another number of arguments.
    """
    from scipy import LowLevelCallable

    signature: Signature | None = None
    user_data: int | None = None
    if isinstance(function, LowLevelCallable):
        capsule = ctypes.py_object(tuple.__getitem__(function, 0))
        text = capsule_name(capsule)
        address, user_data = capsule_pointer(capsule, text), capsule_context(capsule)
        signature = signature_in_c(text.decode())
    elif isinstance(function, int) and not isinstance(function, bool):
        address = function
    elif isinstance(function, FUNCTION):
        if function._flags_ & HOLDS_GIL:
            raise TypeError(f"{name}: expected a function that needs no GIL, as of CFUNCTYPE, got one of PYFUNCTYPE")
        address = ctypes.cast(function, ctypes.c_void_p).value
        signature = signature_in_ctypes(function)
    else:
        address = getattr(function, "address", None)
        if not isinstance(address, int):
            hint = ", which is Python: see BatchEnvironment" if callable(function) else ""
            raise TypeError(
                f"{name}: expected an address, a ctypes function, a numba cfunc or a scipy.LowLevelCallable, "
                f"got {type(function).__name__}{hint}"
            )
        signature = signature_in_numba(function)
    if not address:
        raise ValueError(f"{name}: expected a function, got NULL")
    if signature is not None:
        compare(name, signature)
    return Callback(address, signature, user_data)


def compare(name: str, given: Signature) -> None:
    """Raise unless a function of this signature can be called as the simulator calls `name`."""
    prototype, arguments = PROTOTYPES[name]
    expected = signature_in_ctypes(prototype)
    if not fits(expected.result, given.result):
        raise TypeError(f"{name}: expected a function that returns {expected.result}, got one that returns {given}")
    if given.arguments is None or expected.arguments is None:
        return
    if len(given.arguments) != len(arguments):
        raise ValueError(
            f"{name}: expected a function of {len(arguments)} arguments, got one of {len(given.arguments)}: {given}"
        )
    for argument, mine, theirs in zip(arguments, expected.arguments, given.arguments, strict=True):
        if not fits(mine, theirs):
            raise TypeError(f"{name}: {argument}: expected {mine}, got {theirs}, in {given}")


def fits(expected: str | None, given: str | None) -> bool:
    """Whether a value of the expected type can be read or written as one of the given type.

    Pointers to void fit all pointers. The sign of integers does not matter, since none that is passed is negative.
    """
    if expected is None or given is None:
        return True
    (mine, depth), (theirs, given_depth) = meaning(expected), meaning(given)
    if depth == 0 or given_depth == 0:
        return (mine, depth) == (theirs, given_depth)
    return mine == "void" or (given_depth == depth and theirs in (mine, "void"))


# Integer types of ctypes by their names in C, NumPy, numba and SciPy.
INTEGER_TYPES: dict[str, Any] = {
    "char": ctypes.c_char,
    "byte": ctypes.c_byte,
    "bool": ctypes.c_bool,
    "_Bool": ctypes.c_bool,
    "short": ctypes.c_short,
    "int": ctypes.c_int,
    "intc": ctypes.c_int,
    "long": ctypes.c_long,
    "long int": ctypes.c_long,
    "long long": ctypes.c_longlong,
    "long long int": ctypes.c_longlong,
    "longlong": ctypes.c_longlong,
    "size_t": ctypes.c_size_t,
    "ssize_t": ctypes.c_ssize_t,
    "Py_ssize_t": ctypes.c_ssize_t,
    "ptrdiff_t": ctypes.c_ssize_t,
    "intptr_t": ctypes.c_ssize_t,
    "intp": ctypes.c_ssize_t,
    "int8": ctypes.c_int8,
    "int16": ctypes.c_int16,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
}
FLOATS = {"float": "float32", "double": "float64"}
SILENT = {"const", "volatile", "restrict", "signed", "unsigned", "struct"}


def meaning(text: str) -> tuple[str, int]:
    """Return what a C type points to in the end, integers by their size, and over how many pointers."""
    words = [word for word in text.replace("*", " ").split() if word not in SILENT]
    base = " ".join(words) or "int"  # plain `unsigned`
    stem = base.removeprefix("npy_").removesuffix("_t")
    for name in (base, stem, stem.removeprefix("u")):
        if name in INTEGER_TYPES:
            return f"integer of {ctypes.sizeof(INTEGER_TYPES[name])} bytes", text.count("*")
    return FLOATS.get(stem, stem), text.count("*")


def signature_in_c(text: str) -> Signature:
    """Read a signature such as ``int (void const *, int64_t)``."""
    result, _, rest = text.partition("(")
    inside = rest.rpartition(")")[0]
    return Signature(result.strip(), tuple(argument.strip() for argument in inside.split(",")))


def signature_in_numba(function: Any) -> Signature | None:
    """Return the signature of a numba ``cfunc``; None where there is none."""
    signature = getattr(function, "_sig", None)
    if signature is None:
        return None
    result = str(signature.return_type)
    return Signature("void" if result == "none" else result, tuple(str(argument) for argument in signature.args))


def signature_in_ctypes(function: Any) -> Signature:
    """Return the signature of a ctypes function, or of a type of CFUNCTYPE."""
    is_type = isinstance(function, type)
    result: Any = function._restype_ if is_type else function.restype
    arguments: Sequence[Any] | None = function._argtypes_ if is_type else function.argtypes
    if result is not None and not isinstance(result, type):
        result = ctypes.c_int  # a Python function that is called with the int
    return Signature(
        "void" if result is None else type_in_c(result) or type(result).__name__,
        None if arguments is None else tuple(type_in_c(argument) for argument in arguments),
    )


def type_in_c(given: Any) -> str | None:
    """Return a type of ctypes in C; None for an object that only converts arguments."""
    if not isinstance(given, type):
        return None
    kind: Any = given
    if hasattr(kind, "_dtype_"):  # of numpy.ctypeslib.ndpointer
        return f"{'void' if kind._dtype_ is None else kind._dtype_.name} *"
    if issubclass(kind, POINTER):
        return f"{pointee(kind._type_)} *"
    if issubclass(kind, ctypes.Array):
        return f"{pointee(kind)} *"
    if issubclass(kind, FUNCTION):
        return "function *"
    if issubclass(kind, ctypes.Structure | ctypes.Union):
        return str(kind.__name__)
    code = getattr(kind, "_type_", None)
    if not isinstance(code, str):
        return None
    named = {"P": "void *", "z": "char *", "Z": "wchar_t *", "O": "PyObject *", "?": "bool", "c": "char"}
    named |= {"f": "float", "d": "double", "g": "long double"}
    size: int = ctypes.sizeof(kind)
    return named.get(code, f"int{8 * size}_t")


def pointee(given: Any) -> str:
    """Return the type to which a pointer points; of an array that of its elements, which lie at the same address."""
    while issubclass(given, ctypes.Array):
        given = given._type_
    return type_in_c(given) or "void"


# Own prototypes: those of ctypes.pythonapi are shared by all modules of the process.
capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
capsule_context = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyCapsule_GetContext", ctypes.pythonapi))
