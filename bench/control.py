"""Control beside other learners: episodes, steps and CPU seconds until the same mark, the tables of docs/control.md.

    python bench/control.py                                        # all that is installed, ten seeds
    python bench/control.py --only "Sarsa(λ),LSPI" --env MountainCar-v0 --file runs.csv
    python bench/control.py --only DQN,PPO --seeds 5 --file runs.csv
    python bench/control.py --file runs.csv --table                # what the file has, nothing is run

All learn in Gymnasium's own environments: its `step`, its starts, its limits. The greedy policy is evaluated every so
often on 20 fresh starts, on 100 others if these came near the mark, and on 1,000 others if the 100 met it; none of this
counts as episodes, steps or seconds. The mark:

- MountainCar-v0: arrives from 99 % of the starts, in 115 steps in the mean (200 where it does not arrive);
- CartPole-v1: 475 of 500 steps in the mean;
- Acrobot-v1: 100 steps in the mean (500 where it does not arrive);
- LunarLander-v3: a return of 200 in the mean, Gymnasium's own mark.

A trial ends when the mark is met, or when its budget is used up: 1,000 episodes, the Zoo's number of steps for DQN and
PPO, or the CPU seconds. `dmq.learn` stops by itself: the policy it returns is judged once, and its episodes are all
until it stops, with those of its test. Contestants and their settings are in control_learners.py. DQN and PPO need
Stable-Baselines3 (``pip install stable-baselines3``), and are skipped without it; LunarLander-v3 needs
``pip install "gymnasium[box2d]"``.

With a file, every trial is written there when it ends, and not repeated if it is there already.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import common  # before NumPy: it sets the threads of BLAS
import gymnasium
import numpy as np
from control_learners import LEARNERS, NEEDS, ZOO, Policy
from numpy.typing import NDArray


class Task(NamedTuple):
    """An environment, its mark, and the budget of a trial."""

    limit: int
    """Steps after which an episode is cut."""
    least: float
    """Least mean return of the mark."""
    arrives: float = 0.0
    """Least share of episodes that end before the limit."""
    episodes: int = 1000
    starts: int = 1000
    """Fresh starts of the evaluation that decides."""


TASKS = {
    # An episode of n steps earns -n.
    "MountainCar-v0": Task(200, -115.0, arrives=0.99),
    "CartPole-v1": Task(500, 475.0),
    # The step that arrives earns 0: an episode of n steps earns 1 - n.
    "Acrobot-v1": Task(500, -99.0),
    "LunarLander-v3": Task(1000, 200.0, starts=200),
}


class Run(NamedTuple):
    """What is kept of a trial."""

    met: int
    episodes: int
    steps: int
    seconds: float
    mean: float
    arrives: float


class Counts:
    """Finished episodes and steps of all environments of a trial."""

    def __init__(self) -> None:
        self.episodes = self.steps = 0


class Counted(gymnasium.Wrapper):
    """An environment that counts what is played in it."""

    def __init__(self, env: Any, counts: Counts) -> None:
        super().__init__(env)
        self.counts = counts

    def step(self, action: Any) -> Any:
        """Take a step."""
        found = self.env.step(action)
        self.counts.steps += 1
        self.counts.episodes += found[2] or found[3]
        return found


class Judge:
    """One trial: environments that count, and looks at policies while the clock stands still."""

    def __init__(self, identifier: str, seed: int, seconds: float, episodes: float) -> None:
        self.id, self.seed, self.task, self.budget = identifier, seed, TASKS[identifier], seconds
        self.limit, self.episodes = self.task.limit, episodes
        self.counts, self.looks, self.paused, self.began = Counts(), 0, 0.0, 0.0
        self.run = Run(0, 0, 0, 0.0, float("nan"), float("nan"))

    def env(self, **how: Any) -> Counted:
        """Make the environment; the clock starts with the first."""
        self.began = self.began or time.process_time()
        return Counted(gymnasium.make(self.id, disable_env_checker=True, **how), self.counts)

    def look(self, policy: Policy, last: bool = False, hold: int = 1) -> bool:
        """Evaluate a policy; return whether the trial is over."""
        if self.run.met:
            return True
        now = time.process_time()
        seconds = now - self.began - self.paused
        self.looks += 1
        starts = np.random.SeedSequence([self.seed, self.looks, 2**32 - 1])
        over = last or self.counts.episodes >= self.episodes or seconds >= self.budget
        first, second, third = starts.spawn(3)
        mean, arrives = self.evaluate(policy, 20, first, hold)
        if mean >= self.task.least - 0.1 * abs(self.task.least):
            mean, arrives = self.evaluate(policy, 100, second, hold)
        if self.passes(mean, arrives) or over:
            mean, arrives = self.evaluate(policy, self.task.starts, third, hold)
        self.run = Run(int(self.passes(mean, arrives)), self.counts.episodes, self.counts.steps, seconds, mean, arrives)
        self.paused += time.process_time() - now
        return bool(self.run.met) or over

    def passes(self, mean: float, arrives: float) -> bool:
        """Return whether an evaluation meets the mark."""
        return mean >= self.task.least and arrives >= self.task.arrives

    def evaluate(self, policy: Policy, n: int, seeds: np.random.SeedSequence, hold: int = 1) -> tuple[float, float]:
        """Return the mean return of n episodes, and the share of those that ended before the limit."""
        envs = environments(self.id, n)
        drawn = seeds.generate_state(n).tolist()
        seen = np.array([env.reset(seed=seed % 2**31)[0] for env, seed in zip(envs, drawn, strict=True)])
        returns, arrived, playing, actions = np.zeros(n), 0, np.arange(n), np.zeros(n, dtype=np.int64)
        for step in range(self.limit):
            if step % hold == 0:
                actions[playing] = policy(step // hold, seen[playing])
            going = []
            for i, action in zip(playing.tolist(), actions[playing].tolist(), strict=True):
                seen[i], reward, ended, cut, _ = envs[i].step(action)
                returns[i] += float(reward)
                arrived += ended
                if not (ended or cut):
                    going.append(i)
            playing = np.array(going, dtype=np.int64)
            if not going:
                break
        return float(returns.mean()), arrived / n


@lru_cache(maxsize=4)
def environments(identifier: str, n: int) -> list[Any]:
    """Return n environments for evaluation."""
    return [gymnasium.make(identifier, disable_env_checker=True) for _ in range(n)]


def trial(identifier: str, name: str, seed: int, seconds: float) -> Run:
    """Let a contestant learn until the mark is met or a budget is used up."""
    judge = Judge(identifier, seed, seconds, math.inf if name in ZOO else TASKS[identifier].episodes)
    LEARNERS[name](judge)
    return judge.run


def row(runs: Iterable[Run]) -> list[str]:
    """Return the cells of a table about these runs: medians (ranges); what did not meet the mark is infinite."""
    known = list(runs)
    means = [run.mean for run in known]

    def cell(number: Callable[[Run], float], form: str) -> str:
        values = [number(run) if run.met else np.inf for run in known]
        low, middle, high = (f"{value:{form}}" if np.isfinite(value) else "—" for value in spread(values))
        return f"{middle} ({low} to {high})"

    return [
        f"{sum(run.met for run in known)} of {len(known)}",
        cell(lambda run: run.episodes, ",.0f"),
        cell(lambda run: run.steps, ",.0f"),
        cell(lambda run: run.seconds, ",.1f"),
        f"{np.median(means):.1f} ({min(means):.1f} to {max(means):.1f})",
    ]


def spread(values: list[float]) -> NDArray[np.float64]:
    """Return least, median and largest; the median of an even number is the larger middle one."""
    ordered = np.sort(values)
    return ordered[[0, len(ordered) // 2, -1]]


def installed(name: str) -> bool:
    """Return whether what a contestant needs is there."""
    return name not in NEEDS or importlib.util.find_spec(NEEDS[name]) is not None


def main() -> None:
    """Run what the command line asks for, and print its table."""
    given = common.options(
        __doc__, env=",".join(list(TASKS)[:3]), only=",".join(LEARNERS), seeds=10, first=0, seconds=1800.0, file="",
        table=False,
    )  # fmt: skip
    store: common.Store[Run] = common.Store(Path(given.file) if given.file else None, Run)
    common.heading(
        ["environment", "algorithm", "mark met", "episodes", "steps", "CPU seconds", "mean return at the end"]
    )
    for identifier in given.env.split(","):
        for name in given.only.split(","):
            if not (given.table or installed(name)):
                print(f"{name} is left out: pip install stable-baselines3")
                continue
            runs = []
            for seed in range(given.first, given.first + given.seeds):
                key = identifier, name, seed
                if key in store or not given.table:
                    runs.append(store.run(key, lambda key=key: trial(*key, given.seconds)))
            if runs:
                common.line([identifier, name, *row(runs)])


if __name__ == "__main__":
    main()
