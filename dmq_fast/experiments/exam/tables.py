"""Tables of the exam's environments: transitions and rewards, so that optimum and loss are exact.

The states of a table are numbered, and its number is what one observes of a state. Gymnasium's own tables and
gym_classics' are read; deterministic environments that only step (MiniGrid, bsuite) are copied and stepped until no new
state is found; the others are written down here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from dmq_fast.environments.finite import FiniteMDP
from dmq_fast.environments.gym.tables import from_gymnasium, make_environment
from dmq_fast.rewards import ValueRange

__all__ = ["blackjack", "bsuite", "gymnasium_tables", "inventory", "listed", "minigrid", "queue", "sutton_barto"]

Outcomes = list[tuple[float, int, float, bool]]
"""Probability, next state, reward, and whether the episode ends, of each outcome of an action."""

CARDS = [(card, 4 / 13 if card == 10 else 1 / 13) for card in range(1, 11)]
"""Values of cards, an ace first, and their probabilities."""


class Listed:
    """A table in the form in which Gymnasium's toy text environments have theirs."""

    def __init__(self, outcomes: Sequence[Sequence[Outcomes]], start: Mapping[int, float]) -> None:
        self.P = outcomes
        self.initial_state_distrib = np.array([start.get(state, 0.0) for state in range(len(outcomes))])


def listed(
    outcomes: Sequence[Sequence[Outcomes]], start: Mapping[int, float], horizon: int, value_range: ValueRange
) -> FiniteMDP:
    """Return the tables of states with these outcomes of each action, and a distribution of the first state."""
    return from_gymnasium(Listed(outcomes, start), horizon, value_range=value_range)


def gymnasium_tables(identifiers: Sequence[str], horizon: int, value_range: ValueRange, **arguments: Any) -> FiniteMDP:
    """Return the tables of the first of Gymnasium's environments that this version has."""
    import gymnasium

    found = [one for one in identifiers if one in gymnasium.registry]
    env = make_environment((found or identifiers)[0], **arguments)
    try:
        return from_gymnasium(env, horizon, value_range=value_range)
    finally:
        env.close()


def sutton_barto(module: str, name: str, horizon: int, value_range: ValueRange) -> FiniteMDP:
    """Return the tables of a class of gym_classics, environments of Sutton and Barto's book and of others."""
    import importlib
    import warnings

    import gym_classics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns if somebody has registered its environments already
        gym_classics.register("gymnasium")
    env: Any = getattr(importlib.import_module(f"gym_classics.envs.{module}"), name)()
    # Its method `model` adds up outcomes that lead to one state, also where only one of them ends the episode.
    outcomes = [[merged(env, env._generate_transitions(env.decode(s), a)) for a in env.actions()] for s in env.states()]
    start = {env.encode(state): 1 / len(env._starts) for state in env._starts}
    return listed(outcomes, start, horizon, value_range)


def merged(env: Any, transitions: Iterable[tuple[Any, float, bool, float]]) -> Outcomes:
    """Return the outcomes of transitions (next state, reward, end, probability), those that are equal added up."""
    chances: dict[tuple[int, float, bool], float] = {}
    for following, reward, ended, chance in transitions:
        key = env.encode(following), float(reward), bool(ended)
        chances[key] = chances.get(key, 0.0) + chance
    total = sum(chances.values())
    return [(chance / total, *key) for key, chance in chances.items()]


def explored(
    starts: Sequence[Any],
    n_actions: int,
    step: Callable[[Any, int], tuple[float, bool]],
    key: Callable[[Any], Hashable],
) -> list[list[Outcomes]]:
    """Return the outcomes of a deterministic environment, by stepping copies of it from each of its first states on.

    Parameters
    ----------
    starts : sequence of object
        The environment in each of its first states, which are all different; they become the first states.
    n_actions : int
    step : callable
        Takes an action in an environment; returns the reward and whether the episode ends.
    key : callable
        What two environments in one state have in common.
    """
    todo = list(starts)
    numbers = {key(env): i for i, env in enumerate(todo)}
    outcomes: list[list[Outcomes]] = []
    for env in todo:  # which grows
        row: list[Outcomes] = []
        for action in range(n_actions):
            other = deepcopy(env)
            reward, ended = step(other, action)
            if not ended and numbers.setdefault(key(other), len(todo)) == len(todo):
                todo.append(other)
            row.append([(1.0, 0 if ended else numbers[key(other)], reward, ended)])
        outcomes.append(row)
    return outcomes


def minigrid(identifier: str, horizon: int) -> FiniteMDP:
    """Return the tables of one layout of a MiniGrid environment, that of seed 0, with all its seven actions.

    A state is the whole grid: where the agent is and looks, what it carries, and what lies where. The reward of a
    success falls with the number of steps, so that it depends on the level.
    """
    import minigrid  # noqa: F401, registers its environments

    env = make_environment(identifier).unwrapped
    env.reset(seed=0)

    def step(one: Any, action: int) -> tuple[float, bool]:
        one.step_count = 0  # success is worth less later, and no copy may run into the limit of steps
        _, reward, ended, _, _ = one.step(action)
        return float(reward > 0), bool(ended)

    def key(one: Any) -> Hashable:
        carried = getattr(one.carrying, "type", None), getattr(one.carrying, "color", None)
        return one.grid.encode().tobytes(), tuple(map(int, one.agent_pos)), int(one.agent_dir), carried

    plain = listed(explored([env], env.action_space.n, step, key), {0: 1.0}, horizon, (0.0, 1.0))
    worth = 1.0 - 0.9 * np.arange(1, horizon + 1) / env.max_steps
    tables = FiniteMDP(
        plain.P,
        [factor * reward for factor, reward in zip(worth, plain.R, strict=True)],
        plain.features,
        plain.start,
        value_range=(0.0, 1.0),
        name=identifier,
    )
    tables.state_numbers = plain.state_numbers
    return tables


def bsuite(identifier: str, horizon: int, value_range: ValueRange, n_starts: int = 1) -> FiniteMDP:
    """Return the tables of a deterministic experiment of bsuite's, all `n_starts` first states being as likely."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what bsuite imports
        import bsuite as suite
        from bsuite import sweep

        env: Any = suite.load(identifier.partition("/")[0], sweep.SETTINGS[identifier])
    shown: dict[Hashable, Any] = {}
    while len(shown) < n_starts:
        observation = env.reset().observation
        shown.setdefault(observation.tobytes(), Shown(deepcopy(env), observation))

    def step(one: Shown, action: int) -> tuple[float, bool]:
        taken = one.env.step(action)
        one.observation = taken.observation
        return float(taken.reward), bool(taken.last())

    outcomes = explored(list(shown.values()), env.action_spec().num_values, step, lambda one: one.observation.tobytes())
    return listed(outcomes, dict.fromkeys(range(n_starts), 1.0 / n_starts), horizon, value_range)


class Shown:
    """An environment of dm_env's, with what it showed last."""

    def __init__(self, env: Any, observation: Any) -> None:
        self.env, self.observation = env, observation


def blackjack(horizon: int) -> FiniteMDP:
    """Return the tables of Gymnasium's Blackjack-v1: cards from endless decks, an ace is 11 where that is no bust.

    States are (sum, card of the dealer, whether an ace counts 11), sums from 4 to 21.
    """
    states = [(total, card, ace) for total in range(4, 22) for card in range(1, 11) for ace in (0, 1)]
    number = {state: i for i, state in enumerate(states)}
    dealt = {card: dealer(card) for card in range(1, 11)}
    outcomes = []
    for total, card, ace in states:
        stick: Outcomes = []
        for sign in (-1.0, 0.0, 1.0):
            chance = sum(p for last, p in dealt[card].items() if np.sign(total - (last if last <= 21 else 0)) == sign)
            stick.append((chance, 0, sign, True))
        hit: Outcomes = []
        for drawn, chance in CARDS:
            following = with_card(total, ace, drawn)
            bust = following[0] > 21
            hit.append((chance, 0 if bust else number[following[0], card, following[1]], -1.0 if bust else 0.0, bust))
        outcomes.append([stick, hit])
    start: dict[int, float] = {}
    for first, p in CARDS:
        for second, q in CARDS:
            total, ace = with_card(*with_card(0, 0, first), second)
            for card, r in CARDS:
                state = number[total, card, ace]
                start[state] = start.get(state, 0.0) + p * q * r
    return listed(outcomes, start, horizon, (-1.0, 1.0))


def with_card(total: int, ace: int, card: int) -> tuple[int, int]:
    """Return the sum of a hand with one more card, and whether an ace in it counts 11."""
    hard, aces = total - 10 * ace + card, ace == 1 or card == 1
    usable = aces and hard + 10 <= 21
    return hard + 10 * usable, int(usable)


def dealer(card: int) -> dict[int, float]:
    """Return the distribution of the last sum of the dealer, who draws below 17, from the card that is seen on."""
    last: dict[int, float] = {}
    hands = {with_card(0, 0, card): 1.0}
    while hands:
        following: dict[tuple[int, int], float] = {}
        for (total, ace), chance in hands.items():
            if total >= 17:
                last[total] = last.get(total, 0.0) + chance
                continue
            for drawn, p in CARDS:
                hand = with_card(total, ace, drawn)
                following[hand] = following.get(hand, 0.0) + chance * p
        hands = following
    return last


def inventory(horizon: int) -> FiniteMDP:
    """Return the stochastic inventory problem of Puterman, *Markov Decision Processes* (1994), section 3.2.

    Up to 3 pieces in stock; an order of u > 0 costs 4 + 2 u, a piece in stock 1 a period, and a sold one brings 8. In a
    period 0, 1, 2 pieces are asked for with the probabilities 1/4, 1/2, 1/4; what is not there is not sold. Orders that
    do not fit are cut.
    """
    outcomes = []
    for stock in range(4):
        row = []
        for order in range(4):
            bought = min(order, 3 - stock)
            there = stock + bought
            cost = (4.0 + 2.0 * bought if bought else 0.0) + there
            row.append(
                [
                    (chance, there - min(asked, there), 8.0 * min(asked, there) - cost, False)
                    for asked, chance in ((0, 0.25), (1, 0.5), (2, 0.25))
                ]
            )
        outcomes.append(row)
    return listed(outcomes, {0: 1.0}, horizon, None)


def queue(horizon: int, size: int = 20) -> FiniteMDP:
    """Return the queue of de Farias and Van Roy, *The linear programming approach to approximate dynamic programming*.

    (Operations Research 51, 2003, section 6.) Somebody arrives with chance 0.2, one is served with chance a, one of
    0.2, 0.4, 0.6, 0.8; a period with x waiting costs x + 60 a³. Here at most `size` wait, and half as many do at first.
    """
    outcomes = []
    for waiting in range(size + 1):
        row = []
        for rate in (0.2, 0.4, 0.6, 0.8):
            up, down = 0.2 * (waiting < size), rate * (waiting > 0)
            cost = -(waiting + 60.0 * rate**3)
            chances = ((up, waiting + 1), (down, waiting - 1), (1.0 - up - down, waiting))
            row.append([(chance, following, cost, False) for chance, following in chances if chance > 0.0])
        outcomes.append(row)
    return listed(outcomes, {size // 2: 1.0}, horizon, None)
