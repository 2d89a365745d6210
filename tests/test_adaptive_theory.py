"""Findings H to N of docs/findings.md: what is proved about the self-stopping run, checked by numbers."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import beta

from dmq_fast import Policy
from dmq_fast import environments as E
from dmq_fast.kernels import OptimisticPlanner, Stream
from dmq_fast.rewards import RewardModel
from dmq_fast.samplers import as_sampler
from dmq_fast.self_stopping import SelfStoppingRun
from dmq_fast.stopping.aim import Aim
from dmq_fast.stopping.candidate import upper_means
from dmq_fast.stopping.outcome import divergence
from dmq_fast.stopping.tuning import TUNING

EPSILON = DELTA = 0.05
RIDGE, IMPATIENCE = TUNING.ridge, TUNING.impatience
STRICT = Aim.of(delta=DELTA).log_confidence


def upper_limit(n, rate, z=3.3):
    """Return a count that a binomial variable exceeds with a probability of about 5e-4."""
    return n * rate + z * math.sqrt(n * rate * (1 - rate)) + 1


def play(env, rng, choose):
    """Return features, actions and rewards of an episode of a finite MDP, with its mean rewards."""
    s, record = int(rng.choice(len(env.start), p=env.start)), []
    for h in range(env.horizon):
        a = choose(h, s)
        record.append((env.features[h][s], a, env.R[h][s, a]))
        if h + 1 < env.horizon:
            s = int(rng.choice(len(env.features[h + 1]), p=env.P[h][s, a]))
    x, a, r = zip(*record, strict=True)
    return np.array(x), np.array(a), np.array(r)


def uniformly(rng, n_actions):
    """Return a rule that takes actions at random."""
    return lambda h, s: int(rng.integers(n_actions))


# H: deterministic systems.


def deterministic_table(rng, horizon=4, n_states=4, n_actions=3, signed=False):
    """Return a deterministic MDP with one start state and one-hot features; few pairs pay, or most pay or cost."""
    P, R, features = [], [], []
    for h in range(horizon):
        n = 1 if h == 0 else n_states
        R.append(rng.random((n, n_actions)) * (rng.random((n, n_actions)) < 0.3) / horizon)
        if signed:
            R[-1] = 5.0 * R[-1] - 3.0 * rng.random((n, n_actions))
        features.append(np.eye(n_states)[:n])
        if h + 1 < horizon:
            P.append(np.eye(n_states)[rng.integers(n_states, size=(n, n_actions))])
    return E.FiniteMDP(P=P, R=R, features=features)


def left_by_steps(n):
    """Return the part of an imagined value that is left, at least, after n steps that were tried."""
    return (1 + RIDGE) ** -n


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("floor", [0.0, EPSILON, 1.0])
def test_tables_of_deterministic_systems_enclose_the_optimal_value(floor, signed):
    """Even where pairs that were tried hide nothing: floor 1 leaves the chance 1 of those that were not."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        env = deterministic_table(rng, signed=signed)
        units, lost = RewardModel.of(env), 2 * RIDGE * env.horizon
        planner = OptimisticPlanner(env.horizon, env.n_actions, env.dimension, RIDGE, STRICT)
        planner.set_rewards(units.low, units.width, units.tops)
        for _ in range(rng.integers(1, 60)):
            planner.add(*play(env, rng, uniformly(rng, env.n_actions)))
        gap, _ = planner.plan(floor)
        for h in range(env.horizon):
            optimal = (env.optimal_v[h][planner.rows(h).argmax(axis=1)] - units.low) / units.width
            _, _, plain, hopeful = planner.table(h)
            assert (plain <= optimal + 1e-12).all()
            assert (hopeful >= optimal - lost - 1e-12).all()
            assert signed or (hopeful >= left_by_steps(env.horizon - h) * optimal - 1e-12).all()
        _, _, plain, _ = planner.table(0)
        value = env.value(Policy.greedy(planner.theta))
        assert value >= units.value(plain[0]) - 1e-12 * units.width
        assert env.optimal_value - value <= units.difference(gap + lost + 1e-12)


@pytest.mark.parametrize("impatience", [0.0, 1e-3])
def test_impatience_takes_a_part_of_an_imagined_value_for_each_step_that_was_tried_once(impatience):
    """One state a level, three actions; all were tried once but for the last action of the last level, which pays 1."""
    horizon = 30
    planner = OptimisticPlanner(horizon, 3, 1, RIDGE, STRICT)
    for a, last in ((0, 0), (1, 1), (2, 0)):
        planner.add(np.ones((horizon, 1)), np.array([a] * (horizon - 1) + [last]), np.zeros(horizon))
    planner.plan(1.0, impatience)
    for h in range(horizon):
        _, _, (plain,), (hopeful,) = planner.table(h)
        assert plain == 0 and hopeful == pytest.approx((1 + impatience) ** (h + 1 - horizon), rel=1e-9)


def test_what_lies_behind_many_steps_is_explored_all_the_same():
    """The end of a lock of 100 levels pays 1, leaving at once .93: exploration with impatience would end there."""
    assert 0.93 + EPSILON > (1 + IMPATIENCE) ** -99
    lock = E.combination_lock(100, 2, rng=0, final=1.0)
    R = [np.array(rewards) for rewards in lock.R]
    R[0][0, lock.optimal_q[0][0].argmin()] = 0.93
    env = E.FiniteMDP(P=lock.P, R=R, features=lock.features)
    outcome = SelfStoppingRun(as_sampler(env), Aim.of(), Stream(0)).learn()
    assert outcome.status == "finished" and env.value(Policy.greedy(outcome.theta)) == env.optimal_value == 1


def test_a_run_that_ends_on_a_deterministic_table_has_lost_at_most_epsilon():
    for seed in range(12):
        env = deterministic_table(np.random.default_rng([1, seed]))
        for mode in ("strict", "quick"):
            outcome = SelfStoppingRun(as_sampler(env), Aim.of(mode=mode), Stream(seed)).learn()
            assert outcome.status == "finished"
            loss = env.optimal_value - env.value(Policy.greedy(outcome.theta))
            assert loss <= EPSILON + (1 - left_by_steps(env.horizon)) * env.optimal_value


def linear_system(rng, horizon=4, n_states=12, n_actions=2):
    """Return features (H, S, 4), theta (H, K, 4), successors (H, S, K) and rewards (H, S, K); Q* = phi . theta.

    The first half of the states has features in a subspace of dimension 3 and is never left; Q* falls by .1 or more
    from level to level, so that the rewards r = Q* - V*(next) are positive, and those of an episode sum to at most .8.
    """
    half = n_states // 2
    x = rng.uniform(-1, 1, size=(horizon, n_states, 3))
    x[:, :half, 2] = 0
    features = np.concatenate([np.ones((horizon, n_states, 1)), x], axis=2)
    theta = 0.015 * rng.uniform(-1, 1, size=(horizon, n_actions, 4))
    theta[:, :, 0] += 0.2 * np.arange(horizon, 0, -1)[:, None] - 0.1
    q = np.einsum("hsd,had->hsa", features, theta)
    successors = rng.integers(half, n_states, size=(horizon, n_states, n_actions))
    successors[:, :half] = rng.integers(half, size=(horizon, half, n_actions))
    rewards = q.copy()
    rewards[:-1] -= np.take_along_axis(q.max(axis=2)[1:, :, None], successors[:-1].reshape(horizon - 1, -1, 1), 1)[
        ..., 0
    ].reshape(horizon - 1, n_states, n_actions)
    return features, theta, successors, rewards


def closed_data(rng, features, successors, rewards):
    """Return a planner whose every new row enlarged a span, until all actions span the rows of the first half."""
    horizon, n_states, n_actions = rewards.shape
    planner = OptimisticPlanner(horizon, n_actions, 4, 1e-11, STRICT)
    rows = {(h, a): np.zeros((0, 4)) for h in range(horizon) for a in range(n_actions)}
    for _ in range(500):
        s, x, actions, paid, new = int(rng.integers(n_states // 2)), [], [], [], False
        for h in range(horizon):
            a = int(rng.integers(n_actions))
            longer = np.vstack([rows[h, a], features[h, s]])
            if np.linalg.matrix_rank(longer) > len(rows[h, a]):
                rows[h, a], new = longer, True
            x, actions, paid = [*x, features[h, s]], [*actions, a], [*paid, rewards[h, s, a]]
            s = int(successors[h, s, a])
        if new:
            planner.add(np.array(x), np.array(actions), np.array(paid))
    assert all(len(kept) == 3 for kept in rows.values())
    return planner


def test_fits_of_deterministic_systems_are_exact_on_the_span_of_closed_data():
    for seed in range(2):
        rng = np.random.default_rng(seed)
        features, theta, successors, rewards = linear_system(rng)
        assert rewards.min() >= 0
        planner = closed_data(rng, features, successors, rewards)
        assert planner.n_episodes <= features.shape[0] * theta.shape[1] * 3
        _, residual = planner.plan(0.0)
        q, fit = np.einsum("hsd,had->hsa", features, theta), np.einsum("hsd,had->hsa", features, planner.theta)
        half = features.shape[1] // 2
        assert residual < 1e-6
        np.testing.assert_allclose(fit[:, :half], q[:, :half], atol=1e-6)
        assert np.abs(fit[:, half:] - q[:, half:]).max() > 1e-3  # outside the span nothing is known
        assert (fit[:, :half].argmax(axis=2) == q[:, :half].argmax(axis=2)).all()


def misleading_system():
    """Return a deterministic MDP with linear Q*, of which some data hide the best path; see finding H.

    The actions at the start lead to a, b, c and d, these to w, s, m and x by any action, and these by action 0 to t, u,
    dead and v. Action 0 pays .5 at t and 1 at v. States b and c have the same row; the row of x is 2 w - s.
    """
    e1, e2, e3, e4 = np.eye(4) / 2
    features = [
        np.array([e1]),
        np.array([e1, e2, e2, e3]),
        np.array([0.4 * e1, 0.4 * e2, e4, 0.8 * e1 - 0.4 * e2]),
        np.array([e1, 1.1 * e1 + e2, e4, e3]),
    ]
    P = [np.eye(4)[None], np.tile(np.eye(4)[:, None], (1, 4, 1)), np.tile(np.eye(4)[2], (4, 4, 1))]
    P[2][:, 0] = np.eye(4)
    R = [np.zeros((1, 4)), np.zeros((4, 4)), np.zeros((4, 4)), np.zeros((4, 4))]
    R[3][0, 0], R[3][3, 0] = 0.5, 1.0
    return E.FiniteMDP(P=P, R=R, features=features)


def misleading_actions(n):
    """Yield the actions of episodes that try everything often but for action 0 at x and at u."""
    for i in range(n):
        any_action, not_0 = i % 4, 1 + i % 3
        yield 0, any_action, 0, i // 8 % 4 if i % 8 == 0 else 0
        yield 0, any_action, not_0, any_action
        yield 1, any_action, 0, not_0
        yield 1, any_action, not_0, any_action
        yield from [(2, any_action, i // 4 % 4, i // 16 % 4)] * 3
        yield 3, any_action, not_0, any_action


def test_with_general_features_a_gap_below_epsilon_can_hide_a_loss():
    """The fit takes u for .55, as its row is like that of t, so s too, and so x, which is 2 w - s, for .45."""
    env = misleading_system()
    for features, q in zip(env.features, env.optimal_q, strict=True):
        theta = np.linalg.lstsq(features, q, rcond=None)[0]
        np.testing.assert_allclose(features @ theta, q, atol=1e-12)
    planner, rng = OptimisticPlanner(4, 4, 4, RIDGE, STRICT), np.random.default_rng(0)
    for actions in misleading_actions(320):
        planner.add(*play(env, rng, lambda h, s, actions=actions: actions[h]))
    gap, _ = planner.plan(EPSILON)
    assert gap <= EPSILON
    assert env.optimal_value == 1.0
    assert env.value(Policy.greedy(planner.theta)) == pytest.approx(0.5)


# I: one hidden outcome, one-hot features.


class Tabular:
    """The law that episodes of one-hot features show, with one pair's outcome exchanged."""

    def __init__(self, episodes, n_states, n_actions):
        x, self.a, self.r = (np.array(part) for part in zip(*episodes, strict=True))
        self.s, self.n_states, self.n_actions = x.argmax(axis=2), n_states, n_actions
        before = np.cumsum(self.r, axis=1) - self.r
        self.left = np.ones((self.s.shape[1], n_states))
        np.minimum.at(self.left, (np.arange(self.s.shape[1])[None, :], self.s), 1 - before)

    def visits(self, h, s, a):
        return int(((self.s[:, h] == s) & (self.a[:, h] == a)).sum())

    def value(self, pair=None, p=0.0):
        """Return the best value at the start if `pair` had an outcome of chance p after which all that is left is won.

        Pairs that were never tried earn nothing.
        """
        best = np.zeros(self.n_states)
        for h in reversed(range(self.s.shape[1])):
            q = np.zeros((self.n_states, self.n_actions))
            for s, a in itertools.product(range(self.n_states), range(self.n_actions)):
                at = (self.s[:, h] == s) & (self.a[:, h] == a)
                if at.any():
                    after = best[self.s[at, h + 1]] if h + 1 < self.s.shape[1] else 0.0
                    q[s, a] = (self.r[at, h] + after).mean()
                if pair == (h, s, a):
                    q[s, a] = (1 - p) * q[s, a] + p * self.left[h, s]
            best = q.max(axis=1)
        return float(best[self.s[0, 0]])


def single_outcomes(table, chance):
    """Return the best value at the start for every pair (h, s, a) that hides an outcome, at states that were seen."""
    found = {}
    for h in range(table.s.shape[1]):
        for s in np.unique(table.s[:, h]):
            for a in range(table.n_actions):
                n = table.visits(h, s, a)
                found[h, int(s), a] = table.value((h, int(s), a), chance(n) if n else 1.0)
    return found


def random_table(rng, horizon, n_states, n_actions, deterministic):
    P, R, features = [], [], []
    for h in range(horizon):
        n = 1 if h == 0 else n_states
        R.append(rng.random((n, n_actions)) / horizon)
        features.append(np.eye(n_states)[:n])
        if h + 1 < horizon:
            rows = np.eye(n_states)[rng.integers(n_states, size=(n, n_actions))]
            P.append(rows if deterministic else rng.dirichlet(np.full(n_states, 0.5), size=(n, n_actions)))
    return E.FiniteMDP(P=P, R=R, features=features)


@pytest.mark.parametrize("deterministic", [False, True])
def test_w_bounds_every_single_hidden_outcome(deterministic):
    """Where nothing is random W is the largest of their values; else an episode may choose its pair on the way."""
    for seed in range(3):
        rng = np.random.default_rng([2, seed])
        env = random_table(rng, 3, 3, 2, deterministic)
        episodes = [play(env, rng, uniformly(rng, 2)) for _ in range(rng.integers(20, 300))]
        planner = OptimisticPlanner(3, 2, 3, RIDGE, STRICT)
        for episode in episodes:
            planner.add(*episode)
        planner.plan(0.0)
        _, _, (plain,), (hopeful,) = planner.table(0)
        table = Tabular(episodes, 3, 2)
        assert plain == pytest.approx(table.value(), abs=1e-5)
        largest = max(single_outcomes(table, lambda n: -math.expm1(-STRICT / n)).values())
        assert hopeful >= left_by_steps(3) * largest - 1e-6
        if deterministic:
            assert hopeful <= largest + 1e-6


@pytest.mark.parametrize("log_confidence", [math.log(1 / DELTA), STRICT])
@pytest.mark.parametrize("value", [0.2, 0.45, 0.7, 0.9])
def test_a_pair_that_pays_nothing_is_tried_a_number_of_times_that_depends_on_no_look(value, log_confidence):
    """The least n with a gap of at most epsilon: an outcome worth more would have escaped n visits at level exp(-L)."""
    planner = OptimisticPlanner(1, 2, 1, RIDGE, log_confidence)
    for _ in range(2000):
        planner.add(np.eye(1), np.array([0]), np.array([value]))
    n = 0
    while planner.plan(0.0)[0] > EPSILON:
        planner.add(np.eye(1), np.array([1]), np.zeros(1))
        n += 1
    escapes = 1 - value - EPSILON
    assert n == math.ceil(log_confidence / -math.log(escapes))
    assert escapes**n <= math.exp(-log_confidence) < escapes ** (n - 1)


# J: outcomes that were seen a few times.


def at_most(k, n, p):
    """Return the probability of at most k successes in n draws; p may be an array."""
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))


def raised(k, n, delta, looks):
    """Return the limit of a chance, by Z, after k of n visits showed an outcome that is worth 1, the others 0."""
    unseen, share = Aim.of(delta=delta).log_confidence, k / n
    half = -np.expm1(-unseen / n) * (1 - share) / 2
    spread = 2 * (unseen + math.log(looks)) * share * (1 - share) / n
    return np.minimum(1, share + half + np.sqrt(half**2 + spread))


@pytest.mark.parametrize(("opened", "visits"), [(1, 12), (2, 15), (5, 61)])
def test_z_raises_the_chance_of_a_door_to_its_limit(opened, visits):
    """Behind the door an action was never tried, so W is 1 there; the other action of the start pays .9 for sure."""
    aim = Aim.of(delta=DELTA)
    planner = OptimisticPlanner(2, 2, 2, RIDGE, aim.log_confidence)
    for i in range(visits):
        planner.add([[1.0, 0.0], np.eye(2)[int(i >= opened)]], np.array([0, 0]), [0.0, 0.0])
    for _ in range(300):
        planner.add([[1.0, 0.0], [0.0, 1.0]], np.array([1, 1]), [0.9, 0.0])
    for _ in range(300):  # what the other room pays, nothing, is known
        planner.add([[1.0, 0.0], [0.0, 1.0]], np.array([1, 0]), [0.9, 0.0])
    limit = raised(opened, visits, DELTA, 4.0)
    upside = planner.look_behind(0.0, aim.log_confidence + math.log(4.0))
    assert upside == pytest.approx(max(limit - 0.9, planner.plan(0.0)[0]), abs=0.02) and limit < 1


@pytest.mark.parametrize("delta", [0.2, 0.05, 0.01, 1e-3])
def test_the_raise_is_no_less_than_the_exact_limit_of_a_chance_at_level_delta_over_two(delta):
    for n in [*range(1, 120), 300, 1000]:
        k = np.arange(n)
        exact = beta.ppf(1 - delta / 2, k + 1, n - k)  # Clopper and Pearson (1934)
        assert (raised(k, n, delta, 1.0) >= exact - 1e-9).all()


@pytest.mark.parametrize(("delta", "most"), [(0.05, 0.99), (0.01, 1.18)])
def test_the_raise_holds_at_every_look(delta, most):
    """The law of a walk of n visits that stops when the limit is below the chance, summed exactly."""
    for chance in (0.05, 0.1, 0.2, 0.5, 0.8):
        law, out = np.zeros(602), 0.0
        law[0] = 1.0
        for n in range(1, 601):
            law[1:] = law[1:] * (1 - chance) + law[:-1] * chance
            law[0] *= 1 - chance
            wrong = np.flatnonzero(raised(np.arange(n + 1), n, delta, 4.0) < chance - 1e-12)
            out += law[wrong].sum()
            law[wrong] = 0.0
        assert out <= most * delta


# K: the test that is resumed.


@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("delta", [0.5, 0.05, 1e-6])
def test_the_levels_of_all_tests_sum_to_delta(epsilon, delta):
    aim, parts = Aim.of(epsilon, delta), [(1 - delta) * delta**j for j in range(1, 200)]
    assert math.fsum(parts) == pytest.approx(delta)
    for j, part in enumerate(parts[:5], start=1):
        assert (1 - epsilon) ** aim.test_size(j) <= part


def passes_unseen(rng, mass, aim, tests=12):
    """Return whether a candidate of a run passed a test that never showed an event of that mass, for whatever reason.

    The run is as bad as it can be: it freezes a new candidate after every test that shows the event, and it goes on
    after a test is interrupted, at random, with episodes of other policies in between.
    """
    for j in range(1, tests + 1):
        left = aim.test_size(j)
        while left:
            rng.random(rng.integers(3))  # whatever is played between two pieces
            piece = min(left, int(rng.integers(1, 20)))
            if (rng.random(piece) < mass).any():
                break
            left -= piece
        else:
            return True
    return False


def test_interrupted_tests_pass_an_event_of_mass_epsilon_with_probability_delta_at_most():
    rng, runs, aim = np.random.default_rng(5), 1200, Aim.of(EPSILON, DELTA)
    failed = sum(passes_unseen(rng, EPSILON, aim) for _ in range(runs))
    exact = 1 - math.prod(1 - (1 - EPSILON) ** aim.test_size(j) for j in range(1, 13))
    assert exact <= DELTA
    assert failed <= upper_limit(runs, DELTA)
    assert failed >= upper_limit(runs, exact, z=-3.3) - 2


def side_door(mass, good):
    """With probability `mass` an episode gets to a state where action `good` earns 1; else any action earns .97."""
    P = [np.tile(np.array([1 - mass, mass]), (1, 2, 1))]
    R = [np.zeros((1, 2)), np.array([[0.97, 0.97], [0.0, 0.0]])]
    R[1][1, good] = 1.0
    return E.FiniteMDP(P=P, R=R, features=[np.eye(3)[:1], np.eye(3)[1:]])


def test_runs_end_without_an_event_of_mass_above_epsilon_no_more_often_than_delta():
    runs, unseen, resumed = 80, 0, 0
    for seed in range(runs):
        run = SelfStoppingRun(as_sampler(side_door(0.06, seed % 2)), Aim.of(EPSILON, DELTA), Stream(seed))
        outcome = run.learn()
        assert outcome.status == "finished"
        unseen += run.planner.n_rows[1] == 1
        resumed += outcome.tests_made == 1 and run.planner.n_rows[1] == 2
    assert 0 < unseen <= upper_limit(runs, (1 - 0.06) ** 61)
    assert resumed > 0


def test_a_test_that_showed_an_event_excludes_less():
    """61 episodes exclude mass .05 if none shows it, and only .12 if three do."""
    n = Aim.of(EPSILON, DELTA).test_size(1)
    assert at_most(0, n, 0.05) <= DELTA < at_most(3, n, 0.05)
    assert at_most(3, n, 0.12) == pytest.approx(0.055, abs=0.001) and at_most(3, n, 0.123) <= DELTA
    sizes = [next(n for n in itertools.count(1) if at_most(k, n, 0.05) <= DELTA) for k in range(4)]
    assert sizes == [59, 93, 124, 153]


@pytest.mark.parametrize("delta", [0.05, 0.01, 1e-3])
def test_one_event_more_than_was_seen_excludes_a_loss_of_epsilon(delta):
    """Of a test k episodes show a gap: the largest one that passes, times the largest mass of k at level delta."""
    n, excluded = Aim.of(EPSILON, delta).test_size(1), []
    for k in range(1, 30):
        upsides = np.zeros((n, 1))
        upsides[:k] = 1.0
        mass = beta.ppf(1 - delta, k + 1, n - k)  # of which n draws show at most k with probability delta
        excluded.append(min(EPSILON / upper_means(upsides, delta)[0], 1) * mass)
    assert max(excluded) == pytest.approx(0.97 * EPSILON, rel=0.01)


# L: visits in general features.


def visits_of(rows, x):
    """Return 1 / max |alpha_i| for the least squares weights alpha with x = sum alpha_i rows_i."""
    return 1 / np.abs(rows @ np.linalg.inv(rows.T @ rows) @ x).max()


def linear_alternative(rng, rows, x):
    """Return the gain at x and the least chances of hidden outcomes at the rows, for a random linear change."""
    change = rng.normal(size=rows.shape[1])
    change /= np.abs(rows @ change).max()  # so that the chances are at most 1
    return abs(x @ change), np.abs(rows @ change)


def test_inverse_leverage_counts_visits_for_the_row_that_is_known_least():
    for seed in range(6):
        rng = np.random.default_rng([6, seed])
        n, d = int(rng.integers(8, 40)), int(rng.integers(1, 5))
        rows = rng.normal(size=(n, d))
        inverse = np.linalg.inv(rows.T @ rows)
        leverages = np.einsum("ni,ij,nj->n", rows, inverse, rows)
        x = rows[leverages.argmax()] * rng.uniform(1, 3)
        u = x @ inverse @ x
        assert visits_of(rows, x) * (1 + 1e-9) >= 1 / math.sqrt(leverages.max() * u) >= 1 / u * (1 - 1e-9)
        for _ in range(200):
            gain, chances = linear_alternative(rng, rows, x)
            assert chances.sum() >= visits_of(rows, x) * gain - 1e-9
            assert math.prod(1 - chances) <= math.exp(-gain / u) + 1e-12
        alike = np.tile(rows[:1, :1], (n, 1))
        gain, chances = linear_alternative(rng, alike, alike[0])
        assert visits_of(alike, alike[0]) == pytest.approx(n) and chances.sum() == pytest.approx(n * gain)


def test_a_better_known_row_counts_too_many_visits():
    """One dimension: nine visits of the row 1 hide a chance of .25, so the row .1 a gain of .025, and b is .005."""
    n, hidden = 9, 0.25
    planner = OptimisticPlanner(1, 2, 1, RIDGE, STRICT)
    for _ in range(n):
        planner.add(np.ones((1, 1)), np.array([0]), np.zeros(1))
    planner.add(np.full((1, 1), 0.1), np.array([1]), np.zeros(1))
    planner.plan(0.0)
    leverage, _, _, _ = planner.table(0)
    long, short = leverage[:, 0]
    assert short == pytest.approx(0.01 / n, rel=1e-5)
    assert (1 - hidden) ** n > DELTA
    assert 0.1 * hidden > 4 * -math.expm1(-STRICT * short)
    assert visits_of(np.ones((n, 1)), np.array([0.1])) == pytest.approx(90)
    assert math.sqrt(long * short) == pytest.approx(1 / 90, rel=1e-5)
    assert math.exp(-90 * 0.1 * hidden) >= (1 - hidden) ** n


def test_cauchy_alone_excludes_less_than_the_chance_that_is_used():
    for x in np.logspace(-6, 3, 50):
        assert -math.expm1(-x) < min(1.0, math.sqrt(x)) + 1e-15


# M: floors.


def test_floor_of_the_test():
    """A state of mass p > epsilon at the end of the returned policy, behind which one of K actions earns 1."""
    for k, p in itertools.product((2, 4, 100), (0.0501, 0.1)):
        floor = math.log((1 - 1 / k) / DELTA) / -math.log1p(-p)
        for passes in (math.floor(floor), math.ceil(floor)):
            # Whoever never met the state takes one action there: right in one of the k MDPs, wrong in the others.
            fails = np.mean([[(1 - p) ** passes * (taken != right) for right in range(k)] for taken in range(k)])
            assert (fails <= DELTA) == (passes >= floor)


def lock_floor(horizon, n_actions, value):
    """Return the least mean number of exploring episodes on a lock worth `value`, of a run that keeps its promise."""
    visits = (1 - DELTA) * math.log((1 - DELTA) / DELTA) / -math.log(1 - value - EPSILON)
    return horizon * (n_actions - 1) * visits


def test_floor_of_the_lock():
    """Mixtures of whole numbers of visits, with a mass delta of runs that need not look: none is below the floor."""
    escapes = 1 - 0.7 - EPSILON
    least = lock_floor(1, 2, 0.7)
    for low, share, lazy in itertools.product(range(6), np.linspace(0, 1, 21), np.linspace(0, DELTA, 6)):
        fails = (1 - lazy) * ((1 - share) * escapes**low + share * escapes ** (low + 1))
        if fails <= DELTA:
            assert (1 - lazy) * (low + share) >= least - 1e-9
    assert lock_floor(20, 4, 0.7) == pytest.approx(121.07, abs=0.01)


def test_runs_on_the_lock_explore_more_than_the_floor():
    for mode in ("strict", "quick"):
        explored = []
        for seed in range(6):
            env = E.combination_lock(5, 4, rng=seed)
            outcome = SelfStoppingRun(as_sampler(env), Aim.of(mode=mode), Stream(seed)).learn()
            explored.append(outcome.counts["explore"] + outcome.counts["refine"])
        assert np.mean(explored) >= lock_floor(5, 4, env.optimal_value)


def bandit_floor(k, epsilon, mean=0.5):
    """Return the least mean number of draws of k tied coins, of a run that keeps its promise."""
    return k * divergence(1 - 1 / k, DELTA) / divergence(mean, mean + epsilon)


def test_floor_of_tied_coins():
    """However often each coin is returned, the draws that all alternatives ask for sum to the floor at least."""
    rng = np.random.default_rng(7)
    for k in (2, 4, 10):
        for _ in range(300):
            returned = rng.dirichlet(np.full(k, rng.choice([0.1, 1.0, 10.0])))
            asked = [divergence(1 - r, DELTA) if 1 - r > DELTA else 0.0 for r in returned]
            assert sum(asked) >= k * divergence(1 - 1 / k, DELTA) - 1e-9
    assert bandit_floor(4, EPSILON) == pytest.approx(1351, abs=1)


def test_floor_of_ten_coins_of_which_one_is_better_by_two_epsilon():
    """Another one could be worth .65, or the best one .45; those worth .5 are returned in delta of the runs."""
    others = 9 * divergence(1 - DELTA / 9, DELTA) / divergence(0.5, 0.65)
    best = divergence(1 - DELTA, DELTA) / divergence(0.6, 0.45)
    assert others + best == pytest.approx(620.6, abs=0.5)
    rng = np.random.default_rng(9)
    for _ in range(300):
        returned = rng.dirichlet(np.ones(9)) * rng.uniform(0, DELTA)
        asked = sum(divergence(1 - r, DELTA) for r in returned) / divergence(0.5, 0.65)
        assert asked >= others - 1e-9


# N: amplification of bias, and weights of a D-optimal design.


def leverages_of(rows, p):
    return np.einsum("ni,ij,nj->n", rows, np.linalg.inv(rows.T @ (p[:, None] * rows)), rows)


def design(rows, steps):
    """Return the means of weights and of logarithms of leverages over steps towards the D-optimal design."""
    n, d = rows.shape
    p, total, logarithms = np.full(n, 1 / n), np.zeros(n), np.zeros(n)
    for _ in range(steps):
        total += p
        logarithms += np.log(leverages_of(rows, p))
        p = p * leverages_of(rows, p) / d
        assert p.sum() == pytest.approx(1)
    return total / steps, logarithms / steps


def amplification(rows, p):
    """Return the largest factor by which biases of targets, one at each row, move a fitted value at a row."""
    inverse = np.linalg.inv(rows.T @ (p[:, None] * rows))
    return np.abs(rows @ inverse @ (p[:, None] * rows).T).sum(axis=1).max()


def test_a_few_multiplicative_steps_bound_the_amplification_of_bias():
    for seed in range(4):
        rng = np.random.default_rng([8, seed])
        n, d = int(rng.integers(6, 60)), int(rng.integers(1, 6))
        rows = rng.normal(size=(n, d)) * rng.exponential(size=(n, 1))
        for steps in (1, 4, 16, 64):
            p, logarithms = design(rows, steps)
            assert (np.log(leverages_of(rows, p)) <= logarithms + 1e-9).all()
            largest = leverages_of(rows, p).max()
            assert d * (1 - 1e-9) <= largest <= d * n ** (1 / steps) * (1 + 1e-9)
            assert amplification(rows, p) <= math.sqrt(largest) * (1 + 1e-9)
        assert leverages_of(rows, design(rows, 2000)[0]).max() <= 1.01 * d


def test_counts_amplify_bias_by_one_plus_two_kappa_where_the_design_has_less_than_root_d():
    """Rows w, s and x = (1 + kappa) w - kappa s; w and s have many visits, or many rows that are nearly theirs."""
    for kappa in (1, 2, 3, 10):
        rows = np.array([[1, 0], [0, 1], [1 + kappa, -kappa]]) / (1 + 2 * kappa)
        counts = np.array([1e9, 1e9, 1])
        assert amplification(rows, counts / counts.sum()) == pytest.approx(1 + 2 * kappa, rel=1e-3)
        near = np.linspace(0.9, 1, 400)[:, None, None] * rows[:2]
        rows = np.vstack([near.reshape(-1, 2), rows])
        assert amplification(rows, design(rows, 1)[0]) > math.sqrt(2) * 1.2
        assert amplification(rows, design(rows, 400)[0]) <= math.sqrt(2) * 1.01


def test_one_hot_rows_amplify_nothing():
    assert amplification(np.eye(4), np.array([0.7, 0.1, 0.1, 0.1])) == pytest.approx(1)
