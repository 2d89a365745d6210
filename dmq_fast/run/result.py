"""The result of a run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.policy import Policy
from dmq_fast.run import saved
from dmq_fast.run.history import History
from dmq_fast.theory.certificate import certificate

__all__ = ["Result", "load"]


@dataclass(frozen=True, eq=False)
class Result:
    """What `DMQ.learn` returns. Compared by identity; compare the fields that matter.

    Attributes
    ----------
    policy : Policy
        Greedy on `theta`; at levels that a budget left unlearned, what the initial policy does.
    theta : numpy.ndarray, shape (H, K, d)
        Estimates theta_h^a; zero at levels never learned. Of a run in extended precision, rounded to float64: the rules
        of `policy`, see `arithmetic.ExactGreedy`, hold them exactly, in memory and in a file.
    cover : tuple of H tuples of Policy
        Pi_h.
    history : History
        Every oracle call.
    status : str
        "finished", or why the run ended early: "max_trajectories", "max_policies", "max_seconds", "n_samples",
        "interrupted".
    variant : str
    options, parameters : dict
        How it was run: `Options` and `Parameters` of dmq_fast.learner, and R as "ratio".
    function_class : dict
        What the `FunctionClass` says of itself: "name", and what else tells it from others.
    counts : dict
        "trajectories" by purpose (check: Algorithm 3; regression, states: Algorithm 2; final: test of the returned
        policy), "oracle_calls", "trues", "algorithm_2_runs", "sampler_calls".
    seconds : dict
        Wall-clock time by phase, and "total".
    key : tuple of two int
        The run's 128-bit key; ``DMQ(..., rng=Stream.from_key(key))`` repeats it.
    warnings : tuple of str
        Reasons to doubt the result.
    """

    policy: Policy
    theta: NDArray[np.float64]
    cover: tuple[tuple[Policy, ...], ...]
    history: History
    status: str
    variant: str
    options: dict[str, Any]
    parameters: dict[str, Any]
    function_class: dict[str, Any]
    counts: dict[str, Any]
    seconds: dict[str, float]
    key: tuple[int, int]
    warnings: tuple[str, ...]

    @property
    def cover_sizes(self) -> tuple[int, ...]:
        """|Pi_h| by level."""
        return tuple(len(policies) for policies in self.cover)

    @property
    def n_trajectories(self) -> int:
        """Trajectories drawn, for whatever purpose."""
        return sum(self.counts["trajectories"].values())

    def certificate(self, mdp: FiniteMDP | None = None, *, epsilon: float | None = None) -> dict[str, Any]:
        """Hold the run against the lemmas of the paper; see `dmq_fast.theory.certificate.certificate`."""
        return certificate(self, mdp, epsilon=epsilon)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to `path` (.npz, no pickles): to a temporary file first, then moved into place.

        Raises
        ------
        OSError
            If the file cannot be written; what stood at `path` before is unharmed.
        """
        saved.write(path, self)

    def __repr__(self) -> str:
        return (
            f"<Result: {self.status}, {self.variant}, {self.n_trajectories} trajectories, "
            f"|Pi_h| <= {max(self.cover_sizes)}, {len(self.warnings)} warning(s)>"
        )


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result written by `Result.save`.

    Raises
    ------
    OSError
        If the file cannot be opened.
    FileError
        If it is not a saved result, is damaged, or was written in a newer format.
    """
    return Result(**saved.read(path))
