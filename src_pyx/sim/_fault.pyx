"""Reasons why a simulation ends early, and the exception for each; see the .pxd."""

from libc.math cimport isfinite

SLACK = 1e-9


cdef bint has_blank(const signed char* states, Py_ssize_t n, Py_ssize_t state_bytes) noexcept nogil:
    cdef Py_ssize_t i, k
    for i in range(n):
        for k in range(state_bytes):
            if states[i * state_bytes + k] != -1:
                break
        else:
            return True
    return False


cdef object explain(const Stop* stop, Stream stream):
    where = f"level {stop.level}, call {stream.call}, chunk {stream.chunk}"
    functions = {RESET: "reset", FEATURES: "features", STEP: "step", ENDED: "ended"}
    if stop.fault in functions:
        return RuntimeError(f"{where}: {functions[stop.fault]} of the environment returned the code {stop.code}")
    if stop.fault == BLANK:
        return ValueError(f"{where}: reset: left a state out (did the function raise?)")
    if stop.fault == SCORE:
        return ArithmeticError(f"{where}: a greedy score is not finite (theta too large)")
    if stop.fault == NORM:
        expected = "features: expected Euclidean norms of at most 1"
        missing = "features: expected finite numbers"
    elif stop.fault == REWARD:
        expected = missing = "rewards: expected numbers in [0, 1] after shift and scale"
    else:
        expected = missing = "rewards: expected a sum of at most 1 a trajectory after shift and scale"
    if isfinite(stop.value):
        return ValueError(f"{where}: {expected}, got {stop.value:.12g}")
    return ValueError(
        f"{where}: {missing}, got {stop.value} (did the function raise, leave numbers out, or read uniforms that it "
        "did not ask for?)"
    )
