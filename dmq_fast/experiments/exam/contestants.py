"""The algorithms of the package as they take the exam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dmq_fast.baselines import BPIUCBVI, LSVIUCB, Baseline
from dmq_fast.environments.sources import as_environment
from dmq_fast.environments.wrapped import INTERPOLATION
from dmq_fast.experiments.exam.protocol import Answer, NotApplicable, Over, Terms, alarm
from dmq_fast.learners.self_stopping import SelfStopping

__all__ = ["CONTESTANTS", "NEVER_STOP", "OnTables"]


class OnTables:
    """A policy of tables, whose value the exam computes from them."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy


def self_stopping(env: Any, terms: Terms) -> Answer:
    """`dmq.learn` with the default of every argument but epsilon and delta."""
    world = as_environment(env, box=INTERPOLATION)
    learner = SelfStopping(world, terms.epsilon, terms.delta, rng=terms.seed)
    try:
        result = learner.learn(max_trajectories=terms.max_episodes, progress=env.tally.look)
    except Over:
        result = learner.result()
    hold = getattr(world, "hold", 1)
    act = result.policy.act_on if hold == 1 else Held(result.policy.act_on, hold)
    return Answer(act, result.status in ("finished", "tested"))


class Held:
    """A policy whose actions are held for several steps."""

    def __init__(self, act: Callable[[int, Any], Any], hold: int) -> None:
        self.act, self.hold = act, hold
        self.action: Any = None

    def __call__(self, level: int, observation: Any) -> Any:
        """Return the action of a step; of the first of `hold` steps, a new one."""
        if level % self.hold == 0:
            self.action = self.act(level // self.hold, observation)
        return self.action


def on_tables(kind: Callable[..., Baseline], **parameters: Any) -> Callable[[Any, Terms], Answer]:
    """Return a baseline as an algorithm. It plays the tables in machine code, and its own count of episodes holds."""

    def algorithm(env: Any, terms: Terms) -> Answer:
        if env.mdp is None:
            raise NotApplicable("it numbers states, and those of this environment are real numbers")
        given = {"epsilon": terms.epsilon} if kind is BPIUCBVI else {}
        learner = kind(
            env.mdp,
            n_episodes=terms.max_episodes,
            checkpoints=1,
            rng=terms.seed,
            **parameters,
            **given,
        )
        try:
            with alarm(terms.max_seconds):
                result = learner.learn()
        except Over:
            result = learner.result()
        env.tally.episodes, env.tally.steps = result.n_trajectories, result.n_trajectories * env.horizon
        return Answer(OnTables(result.policy), result.status == "finished")

    return algorithm


CONTESTANTS: dict[str, Callable[[Any, Terms], Any]] = {
    "self-stopping": self_stopping,
    "bpi-ucbvi": on_tables(BPIUCBVI),
    "bpi-ucbvi-half": on_tables(BPIUCBVI, c1=0.5, c2=0.1),
    "lsvi-ucb": on_tables(LSVIUCB, beta=0.01, ridge=1e-5, optimism="steps", clipped=True),
}
"""By name: the self-stopping run, BPI-UCBVI at its default and at smaller bonuses, and LSVI-UCB in its best form."""

NEVER_STOP = ("lsvi-ucb",)
"""Those that never stop by themselves."""
