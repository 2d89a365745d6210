"""An environment written in C.

A walk on a line from around the middle: action 1 goes right, action 0 left. Every step costs 1/2; beyond 1 it earns 8,
and beyond either end it is over. Features are noisy at odd levels.
"""

import ctypes
import functools
import shlex
import subprocess
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
    "value_range": [(-0.5 * (HORIZON - level), 7.5) for level in range(HORIZON)],
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
        rewards[i] = x[i] > 1.0 ? 7.5 : -0.5;
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
