"""One environment written four times: in C, in Cython, with numba, and (the twin) in NumPy.

A walk on a line from around the middle: action 1 goes right, action 0 left; beyond 1 it earns 8, and beyond either end
it is over. Features are noisy at odd levels.
"""

import ctypes
import functools
import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np

from dmq_fast.environments import CompiledEnv

HORIZON = 6
SIZES = {
    "horizon": HORIZON,
    "n_actions": 2,
    "dimension": 2,
    "state_bytes": 8,
    "reset_uniforms": 1,
    "feature_uniforms": [level % 2 for level in range(HORIZON)],
    "step_uniforms": 1,
    "reward_shift": 0.5,
    "reward_scale": 1.0 / 16.0,
}
LENGTH, NOISE = 0.125, 0.25

C = r"""
#include <stdint.h>

int walker_reset(const void *context, int64_t n, const double *u, void *states)
{
    double *x = states;
    for (int64_t i = 0; i < n; i++)
        x[i] = 0.25 + 0.5 * u[i];
    return 0;
}

int walker_features(const void *context, int64_t level, int64_t n, const void *states, const double *u, double *phi)
{
    const double *x = states, *parameters = context;
    for (int64_t i = 0; i < n; i++) {
        double noise = level % 2 ? parameters[1] * (u[i] - 0.5) : 0.0;
        phi[2 * i] = 0.5 * x[i] + noise;
        phi[2 * i + 1] = 0.5 - 0.5 * x[i];
    }
    return 0;
}

int walker_step(
    const void *context, int64_t level, int64_t n, void *states, const int64_t *actions, const double *u,
    double *rewards)
{
    double *x = states;
    const double *parameters = context;
    for (int64_t i = 0; i < n; i++) {
        rewards[i] = 0.0;
        if (x[i] < 0.0 || x[i] > 1.0)
            continue;
        x[i] += (actions[i] == 1 ? parameters[0] : -parameters[0]) + 0.1 * (u[i] - 0.5);
        if (x[i] > 1.0)
            rewards[i] = 8.0;
    }
    return 0;
}

int walker_ended(const void *context, int64_t level, int64_t n, const void *states, int8_t *ended)
{
    const double *x = states;
    for (int64_t i = 0; i < n; i++)
        ended[i] = x[i] < 0.0 || x[i] > 1.0;
    return 0;
}
"""

CYTHON = """
# cython: language_level=3

from libc.stdint cimport int8_t, int64_t

from dmq_fast.kernels._env cimport ENVIRONMENT_VERSION, Environment, environment_capsule


cdef struct Parameters:
    double length
    double noise


cdef api int reset(const void* context, int64_t n, const double* u, void* states) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        (<double*> states)[i] = 0.25 + 0.5 * u[i]
    return 0


cdef api int features(
    const void* context, int64_t level, int64_t n, const void* states, const double* u, double* phi
) noexcept nogil:
    cdef int64_t i
    cdef double x, noise
    for i in range(n):
        x = (<const double*> states)[i]
        noise = (<const Parameters*> context).noise * (u[i] - 0.5) if level % 2 else 0.0
        phi[2 * i] = 0.5 * x + noise
        phi[2 * i + 1] = 0.5 - 0.5 * x
    return 0


cdef api int step(
    const void* context, int64_t level, int64_t n, void* states, const int64_t* actions, const double* u,
    double* rewards
) noexcept nogil:
    cdef int64_t i
    cdef double* x
    cdef double length = (<const Parameters*> context).length
    for i in range(n):
        x = <double*> states + i
        rewards[i] = 0.0
        if 0.0 <= x[0] <= 1.0:
            x[0] += (length if actions[i] == 1 else -length) + 0.1 * (u[i] - 0.5)
            if x[0] > 1.0:
                rewards[i] = 8.0
    return 0


cdef api int ended(const void* context, int64_t level, int64_t n, const void* states, int8_t* ended) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        ended[i] = not 0.0 <= (<const double*> states)[i] <= 1.0
    return 0


cdef class Walker:
    cdef Environment environment
    cdef Parameters parameters
    cdef int64_t[6] noisy
    cdef int64_t[6] one

    def __init__(self, length=0.125, noise=0.25):
        cdef int h
        self.parameters = Parameters(length, noise)
        for h in range(6):
            self.noisy[h] = h % 2
            self.one[h] = 1
        self.environment = Environment(
            size=sizeof(Environment), version=ENVIRONMENT_VERSION, horizon=6, n_actions=2, dimension=2,
            state_bytes=sizeof(double), reset_uniforms=1, feature_uniforms=&self.noisy[0], step_uniforms=&self.one[0],
            reward_shift=0.5, reward_scale=0.0625, context=&self.parameters,
            reset=reset, features=features, step=step, ended=ended, release=NULL,
        )

    def __dmq_environment__(self):
        return environment_capsule(&self.environment)
"""


@functools.cache
def build_directory():
    return Path(tempfile.mkdtemp(prefix="dmq-fast-walker-"))


@functools.cache
def c_library():
    source, library = build_directory() / "walker_c.c", build_directory() / "libwalker.so"
    source.write_text(C)
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    flags = ["-O2", "-shared", "-fPIC", "-ffp-contract=off"]
    subprocess.run([*compiler, *flags, str(source), "-o", str(library)], check=True, capture_output=True)
    return ctypes.CDLL(str(library))


def in_c(**changes):
    """The functions of a shared library, by ctypes; the context is an array."""
    library = c_library()
    functions = {name: getattr(library, f"walker_{name}") for name in ("reset", "features", "step", "ended")}
    return CompiledEnv.from_functions(
        **(SIZES | functions | {"context": np.array([LENGTH, NOISE]), "factory": in_c} | changes)
    )


@functools.cache
def cython_module():
    source = build_directory() / "walker_cython.pyx"
    source.write_text(CYTHON)
    (build_directory() / "setup.py").write_text(
        "from Cython.Build import cythonize\nfrom setuptools import Extension, setup\n"
        "extension = Extension('walker_cython', ['walker_cython.pyx'], extra_compile_args=['-ffp-contract=off'])\n"
        "setup(name='walker_cython', ext_modules=cythonize([extension]))\n"
    )
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=build_directory(),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (library,) = build_directory().glob("walker_cython*.so")
    spec = importlib.util.spec_from_file_location("walker_cython", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_cython():
    """An object that hands over its own struct."""
    return CompiledEnv(cython_module().Walker(LENGTH, NOISE), name="walker", factory=in_cython)


@functools.cache
def numba_functions():
    import numba

    length, noise = LENGTH, NOISE

    @numba.cfunc("intc(voidptr, int64, CPointer(float64), CPointer(float64))")
    def reset(context, n, u, x):
        for i in range(n):
            x[i] = 0.25 + 0.5 * u[i]
        return 0

    @numba.cfunc("intc(voidptr, int64, int64, CPointer(float64), CPointer(float64), CPointer(float64))")
    def features(context, level, n, x, u, phi):
        for i in range(n):
            jitter = noise * (u[i] - 0.5) if level % 2 else 0.0
            phi[2 * i] = 0.5 * x[i] + jitter
            phi[2 * i + 1] = 0.5 - 0.5 * x[i]
        return 0

    @numba.cfunc(
        "intc(voidptr, int64, int64, CPointer(float64), CPointer(int64), CPointer(float64), CPointer(float64))"
    )
    def step(context, level, n, x, actions, u, rewards):
        for i in range(n):
            rewards[i] = 0.0
            if 0.0 <= x[i] <= 1.0:
                x[i] += (length if actions[i] == 1 else -length) + 0.1 * (u[i] - 0.5)
                if x[i] > 1.0:
                    rewards[i] = 8.0
        return 0

    @numba.cfunc("intc(voidptr, int64, int64, CPointer(float64), CPointer(int8))")
    def ended(context, level, n, x, over):
        for i in range(n):
            over[i] = not 0.0 <= x[i] <= 1.0
        return 0

    return {"reset": reset, "features": features, "step": step, "ended": ended}


def by_numba():
    """Functions compiled by numba."""
    return CompiledEnv.from_functions(**SIZES, **numba_functions(), factory=by_numba)


WAYS = {"c": in_c, "cython": in_cython, "numba": by_numba}
