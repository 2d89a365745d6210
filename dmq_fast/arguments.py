"""The arguments of `DMQ` that a shell or a TOML file can give, described once.

``dmq-fast run`` makes its options, and a sweep the parameters of its algorithm ``dmq``, from `ARGUMENTS` and
`SAMPLING`. Whoever adds an argument to `DMQ` adds it here, or to `NOT_OFFERED` with the reason; a test compares these
lists with the signature of `DMQ`. `named` makes the objects that some of the texts stand for. This module imports
nothing but types, so that ``dmq-fast run --help`` stays fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = [
    "ADAPTIVE",
    "ALGORITHM",
    "ARGUMENTS",
    "BUDGETS",
    "MONTE_CARLO",
    "NOT_IN_SWEEPS",
    "NOT_OFFERED",
    "SAMPLING",
    "WORKERS",
    "Argument",
    "variant_of",
]

ALGORITHM, BUDGETS, WORKERS = "algorithm", "budgets", "workers"
"""Groups of arguments. Budgets and workers change where a run ends and how fast it is, but nothing that it decides."""

ADAPTIVE = "adaptive"
"""The variant that chooses its number of trajectories and stops by itself: another algorithm with other arguments."""

MONTE_CARLO = ("paper", "sound", "frugal")
"""The variants of Algorithms 1 to 3."""


class Argument(NamedTuple):
    """One argument.

    Attributes
    ----------
    name : str
        As `DMQ` and sweeps spell it; a shell writes it with dashes.
    read : callable
        Turns the text that a shell gives into the value: `bool`, `int`, `float`, `str`, or a function that raises a
        ValueError on a wrong text.
    default : object
        Default of `DMQ`; None where the variant decides or there is none.
    help : str
        One line, for ``--help``.
    metavar : str
        What ``--help`` writes for the value.
    choices : tuple of str
        All values, if they are few.
    group : str
        `ALGORITHM`, `BUDGETS` or `WORKERS`.
    variants : tuple of str
        The variants that take it.
    """

    name: str
    read: Callable[[str], Any]
    default: Any
    help: str
    metavar: str = "VALUE"
    choices: tuple[str, ...] = ()
    group: str = ALGORITHM
    variants: tuple[str, ...] = MONTE_CARLO


def read_initial(text: str) -> str | list[list[int]]:
    """Read a name of initial policies, or action sequences such as "0,1,2" or "0,1,2/2,1,0".

    >>> read_initial("fixed")
    'fixed'
    >>> read_initial("0,1,2/2,1,0")
    [[0, 1, 2], [2, 1, 0]]
    """
    if text in ("uniform", "fixed"):
        return text
    try:
        return [[int(action) for action in sequence.split(",")] for sequence in text.split("/")]
    except ValueError:
        raise ValueError(f"expected uniform, fixed, or actions such as 0,1,2, got {text!r}") from None


def read_arithmetic(text: str) -> str | int:
    """Read the arithmetic of `samplers.ExactSampler`: a name, or a number of decimal digits."""
    try:
        return int(text)
    except ValueError:
        return text


ARGUMENTS = (
    Argument(
        "epsilon",
        float,
        None,
        "return a policy within X of the best: the run chooses its number of trajectories and stops by itself (variant "
        "adaptive; default there: .05)",
        "X",
        variants=(ADAPTIVE,),
    ),
    Argument(
        "delta",
        float,
        None,
        "with probability 1 - X (variant adaptive; default there: .05)",
        "X",
        variants=(ADAPTIVE,),
    ),
    Argument(
        "mode",
        str,
        None,
        "variant adaptive: quick ignores outcomes of a probability below one half, and needs fewer trajectories",
        choices=("strict", "quick"),
        variants=(ADAPTIVE,),
    ),
    Argument(
        "p_min",
        float,
        None,
        "variant adaptive: chance of the rarest outcome that is looked for",
        "P",
        variants=(ADAPTIVE,),
    ),
    Argument("n_samples", int, 100, "number N of trajectories drawn with each policy", "N"),
    Argument("ratio", float, None, "R = eps_t / eps_s of the oracle; default: 2", "R"),
    Argument("eps_r", float, 1e-2, "regulariser of the oracle (the paper's lambda_r)", "X"),
    Argument("ridge", float, 1e-3, "lambda_ridge of the regression", "X"),
    Argument(
        "variant",
        str,
        "sound",
        "paper: Algorithms 1 to 3 to the letter; sound: with repairs of their known failures; frugal: sound with fewer "
        "trajectories; adaptive: far fewer, by a run that stops by itself (see --epsilon)",
        choices=(*MONTE_CARLO, ADAPTIVE),
        variants=(*MONTE_CARLO, ADAPTIVE),
    ),
    Argument(
        "initial",
        read_initial,
        None,
        "first policy of every cover: uniform, fixed (one random action sequence), or the actions of all levels, such "
        "as 0,1,1,0; several sequences, with / between them, are as many policies",
        "uniform|fixed|A,A,...",
    ),
    Argument("recheck", bool, None, "repeat Algorithm 3 until a pass finds no shift, and test the returned policy"),
    Argument("accumulate", bool, None, "add to S_h the second moment of each True of the oracle, and never redraw it"),
    Argument("reuse", bool, None, "fit the predictors to the trajectories that Algorithm 3 has drawn for its checks"),
    Argument("memo", bool, None, "remember the moments of every policy, and never draw with it a second time"),
    Argument(
        "oracle",
        str,
        None,
        "decision: answer by one Cholesky factorisation; value: compute the eigenvalue v as well",
        choices=("decision", "value"),
    ),
    Argument(
        "mixture",
        str,
        None,
        "regression data with N trajectories of each policy of a cover, or with N |Pi_h| policies drawn at random",
        choices=("stratified", "multinomial"),
    ),
    Argument(
        "function_class",
        str,
        None,
        "class of the predictors: linear or finite, with arguments as in finite:scale=2,penalty=FILE.npy, or "
        "MODULE:FUNCTION, which returns a FunctionClass; default: linear",
        "CLASS",
    ),
    Argument(
        "max_trajectories",
        int,
        None,
        "end the run after this many trajectories",
        "N",
        group=BUDGETS,
        variants=(*MONTE_CARLO, ADAPTIVE),
    ),
    Argument("max_policies", int, None, "end the run after adding this many policies to covers", "N", group=BUDGETS),
    Argument(
        "max_seconds",
        float,
        None,
        "end the run after this many seconds",
        "S",
        group=BUDGETS,
        variants=(*MONTE_CARLO, ADAPTIVE),
    ),
    Argument(
        "workers",
        int,
        None,
        "number of threads, or of processes for an environment in Python, that share batches larger than a chunk "
        "(16,384 trajectories; 4,096 in Python)",
        "N",
        group=WORKERS,
        variants=(*MONTE_CARLO, ADAPTIVE),
    ),
)

SAMPLING = (
    Argument(
        "sampler",
        str,
        "rollout",
        "rollout: simulated trajectories; flow: counts of any number of them; exact: expectations. flow and exact need "
        "a FiniteMDP",
        choices=("rollout", "flow", "exact"),
    ),
    Argument(
        "arithmetic",
        read_arithmetic,
        None,
        "with the sampler exact: compute in fractions or in this many decimal digits, for constants below the "
        "resolution of float64",
        "rational|DIGITS",
    ),
)
"""The part of `env_or_sampler` that is not the environment."""

NOT_OFFERED = {
    "env_or_sampler": "made from the name of an environment, its parameters, and `SAMPLING`",
    "executor": "an object of Python",
    "journal": "--out places it in the directory of the run; sweeps store whole runs",
    "progress": "a function; the command line draws a progress line",
    "rng": "--seed; a sweep derives it from its own seeds",
}
"""Arguments of `DMQ` that neither a shell nor a sweep gives under their name, and why."""

NOT_IN_SWEEPS = {
    "max_trajectories": "a key of the specification that all algorithms share",
    "max_seconds": "a key of the specification that all algorithms share",
    "workers": "the workers of a sweep do whole runs",
}
"""Arguments that the algorithm ``dmq`` of a sweep does not take, and why."""


def variant_of(variant: str, given: Mapping[str, Any]) -> str:
    """Return the variant of a run, "adaptive" where an argument of that one comes with no other variant.

    Parameters
    ----------
    variant : str
    given : mapping of str to object
        Arguments by name. Those with their default count as not given.

    Raises
    ------
    ValueError
        If there is no such variant, or it does not take one of the arguments.
    """
    described = {argument.name: argument for argument in ARGUMENTS}
    if variant not in described["variant"].choices:
        raise ValueError(f"variant: expected one of {', '.join(described['variant'].choices)}, got {variant!r}")
    named = {name: value for name, value in given.items() if not same(value, described[name].default)}
    if variant == described["variant"].default and any(described[name].variants == (ADAPTIVE,) for name in named):
        variant = ADAPTIVE
    for name, value in named.items():
        if variant not in described[name].variants:
            raise ValueError(f"{name}: expected none with the variant {variant!r}, got {value!r}")
    return variant


def same(value: object, default: object) -> bool:
    """Whether a value is a default; equality of other objects than numbers and texts may mean anything."""
    return value is default or (isinstance(value, int | float | str) and bool(value == default))
