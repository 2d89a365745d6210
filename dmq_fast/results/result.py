"""The result of a run, and the reading of one from a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmq_fast._support.html_text import card
from dmq_fast._support.names import suggestion
from dmq_fast._support.words import number_of
from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.plotting.canvas import WIDTH
from dmq_fast.policy import Policy
from dmq_fast.results import pictures, saved
from dmq_fast.results.history import History
from dmq_fast.theory.certificate import Certificate, certificate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Result", "load"]

PICTURES = ("cover", "oracle", "trajectories", "visits")
"""What `Result.plot` draws."""


@dataclass(frozen=True, eq=False)
class Result:
    """Result of `DMQ.learn`. Results are compared by identity.

    Attributes
    ----------
    policy : Policy
        Policy that is greedy on `theta`; at levels that a budget left unlearned, the initial policy.
    theta : numpy.ndarray, shape (H, K, d)
        Estimates theta_h^a; zero at levels never learned. Of a run in extended precision they are rounded to float64;
        the rules of `policy`, see `rules.ExactGreedy`, hold them exactly, in memory and in a file.
    cover : tuple of H tuples of Policy
        Policy cover Pi_h by level.
    history : History
        Every oracle call.
    status : str
        "finished", or the reason why the run ended early: "max_trajectories", "max_policies", "max_seconds",
        "n_samples", "interrupted".
    variant : str
        Name of the variant.
    options, parameters : dict
        Settings of the run: the fields of `covers.options.Options` and `RunParameters`, and R as "ratio".
    function_class : dict
        Description of the function class by its method `describe`: "name", and whatever else identifies it.
    counts : dict
        "trajectories" by purpose (check: Algorithm 3; regression, states: Algorithm 2; final: test of the returned
        policy), "oracle_calls", "trues", "algorithm_2_runs", "sampler_calls".
    seconds : dict
        Wall-clock time by phase, and "total".
    key : tuple of two int
        The run's 128-bit key; ``DMQ(..., rng=Stream.from_key(key))`` repeats it.
    warnings : tuple of str
        Reasons to doubt the result.
    stopping : dict, optional
        Of the variant "adaptive", which has no cover, no history and no options: "reason" why the run stopped,
        "tests_made", "test_size" (fresh trajectories of the final test, 0 if none was passed), their "mean_return" and
        an "interval" of confidence 1 - delta for the value, "gaps" by level (largest mean gain by an outcome that was
        never seen), "largest_v" by level (largest v of the oracle on one state of the test), "loss_quantile" of the
        bootstrap, "p_min", the chance of the rarest outcome that was looked for, and "disagreements": the rows where
        returns and fit differ by more than chance.

    Examples
    --------
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.combination_lock(horizon=5, n_actions=3, rng=0)
    >>> result = dmq.DMQ(env, n_samples=20, rng=1).learn()
    >>> result.status, result.cover_sizes, result.warnings
    ('finished', (1, 2, 2, 2, 2), ())
    >>> env.value(result.policy) == env.optimal_value
    True
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
    stopping: dict[str, Any] | None = None

    @property
    def cover_sizes(self) -> tuple[int, ...]:
        """Number of policies |Pi_h| by level."""
        return tuple(len(policies) for policies in self.cover)

    @property
    def n_trajectories(self) -> int:
        """Number of trajectories drawn for all purposes."""
        return sum(self.counts["trajectories"].values())

    def certificate(self, mdp: FiniteMDP | None = None, *, epsilon: float | None = None) -> Certificate:
        """Compare the run with the lemmas of the paper; see `dmq_fast.theory.certificate.certificate`.

        Raises
        ------
        ValueError
            If the run was of the variant "adaptive", which the lemmas are not about; `stopping` has what it promises.
        """
        if self.stopping is not None:
            raise ValueError(f"certificate: expected a run with covers, got one of the variant {self.variant!r}")
        return certificate(self, mdp, epsilon=epsilon)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to `path` (.npz, no pickles): first to a temporary file, which then replaces `path`.

        Raises
        ------
        OSError
            If the file cannot be written; an earlier file at `path` is unharmed.
        """
        saved.write(path, self)

    def plot(self, what: str | None = None, *, mdp: FiniteMDP | None = None, width: float = WIDTH) -> Figure:
        """Draw a picture of the run, which notebooks show; ``result.plot().savefig("run.pdf")`` saves it.

        Parameters
        ----------
        what : {"cover", "oracle", "trajectories", "visits"}, optional
            "cover": the policies by level, and the potential of Lemma A.5. "oracle": the value of every call of a run
            with ``oracle="value"``. "trajectories": their numbers by purpose. "visits": where the returned policy goes
            in `mdp`. By default "cover", or "trajectories" where a run has no cover of linear functions.
        mdp : FiniteMDP, optional
            The environment, for "visits".
        width : float, default 3.3
            Width in inches.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is no such picture, or it cannot be drawn of this run.
        """
        covered = self.stopping is None
        if what is None:
            what = "cover" if covered and pictures.has_potential(self) else "trajectories"
        if what not in PICTURES:
            raise ValueError(f"what: expected one of {', '.join(PICTURES)}, got {what!r}{suggestion(what, PICTURES)}")
        if what == "visits":
            if mdp is None:
                raise ValueError("mdp: expected the environment of the run for its visits, got none")
            return pictures.visits(mdp, self.policy, width=width)
        if what == "trajectories":
            return pictures.trajectories_by_purpose({self.variant: self}, width=width)
        if not covered:
            raise ValueError(f"what: expected trajectories or visits of a run without a cover, got {what!r}")
        draw = pictures.cover_and_potential if what == "cover" else pictures.oracle_values
        return draw(self, width=width)

    def _repr_html_(self) -> str:
        """Return the most important numbers for notebooks."""
        counts = self.counts
        purposes = ", ".join(f"{name} {n:,}" for name, n in counts["trajectories"].items() if n)
        entries: dict[str, object] = {
            "status": self.status,
            "trajectories": f"{self.n_trajectories:,}" + (f" ({purposes})" if purposes else ""),
        }
        if self.stopping is None:
            entries["oracle calls"] = f"{counts['oracle_calls']:,}, {counts['trues']:,} True"
            entries["largest cover"] = number_of(max(self.cover_sizes), "policy")
        else:
            low, high = self.stopping["interval"]
            entries["why it stopped"] = self.stopping["reason"]
            entries["value of the policy"] = f"in [{low:.3g}, {high:.3g}]"
        entries["seconds"] = f"{self.seconds['total']:.3g}"
        sizes = "H = {}, K = {}, d = {}".format(*self.theta.shape)
        return card("Result", f"DMQ, {self.variant}, {sizes}", entries, notes=self.warnings)

    def __repr__(self) -> str:
        covers = "" if self.stopping is not None else f"|Pi_h| <= {max(self.cover_sizes)}, "
        return (
            f"<Result: {self.status}, {self.variant}, {number_of(self.n_trajectories, 'trajectory')}, "
            f"{covers}{number_of(len(self.warnings), 'warning')}>"
        )


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result written by `Result.save`.

    Raises
    ------
    OSError
        If the file cannot be opened.
    FileError
        If it is not a saved result, is damaged, or was written in a newer format.

    Examples
    --------
    >>> import tempfile
    >>> import dmq_fast as dmq
    >>> env = dmq.environments.combination_lock(horizon=5, n_actions=3, rng=0)
    >>> result = dmq.DMQ(env, n_samples=20, rng=1).learn()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.save(f"{folder}/lock.npz")
    ...     again = load(f"{folder}/lock.npz")
    >>> again.policy == result.policy, again.history == result.history
    (True, True)
    """
    return Result(**saved.read(path))
