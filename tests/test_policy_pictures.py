"""What was learned, as tables and pictures: what is drawn at a state is what the policy does there."""

import io
import json
import sys

import numpy as np
import pytest
from refusals import refused

import dmq_fast as dmq
from dmq_fast import Policy, TablePolicy
from dmq_fast.baselines import REGISTRY
from dmq_fast.environments import chain, from_gymnasium, lock_gaussian, mountain_car
from dmq_fast.grids import Grid, grid_of
from dmq_fast.results.history import APART, Look, Looks
from dmq_fast.results.policy_pictures import ARROWS, UNDECIDED, short

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


class Rooms:
    """Rooms with walls, whose states are pairs (row, column)."""

    n_actions, horizon, value_range, homogeneous = 4, 12, (0, 1), True
    desc = ("S...", ".XX.", "...G")
    arrows = "^>v<"

    def reset(self):
        self.at = (0, 0)
        return self.at

    def step(self, action):
        row, column = np.add(self.at, ((-1, 0), (0, 1), (1, 0), (0, -1))[action]).tolist()
        if 0 <= row < 3 and 0 <= column < 4 and self.desc[row][column] != "X":
            self.at = (row, column)
        done = self.desc[self.at[0]][self.at[1]] == "G"
        return self.at, float(done), done


@pytest.fixture(scope="module")
def lake():
    pytest.importorskip("gymnasium")
    return from_gymnasium("FrozenLake-v1", 15)


@pytest.fixture(scope="module")
def learned(lake):
    return dmq.learn(lake, epsilon=0.1, rng=0)


@pytest.fixture(scope="module")
def rooms():
    return dmq.learn(Rooms(), rng=0)


@pytest.fixture(scope="module")
def car():
    env = mountain_car(60, features="tiles")
    return REGISTRY["rlsvi"](env, n_episodes=20, sigma=0.1, rng=0).learn()


def cells(figure, panel=0):
    """Return {(row, column): texts} of a picture of a grid."""
    found = {}
    for text in figure.axes[panel].texts:
        x, y = text.get_position()
        found.setdefault((round(y), round(x)), []).append(text.get_text())
    return found


def bytes_of(figure):
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def test_the_arrow_of_a_state_is_the_action_of_the_policy(lake, learned):
    for level in (None, 3):
        for mdp in (None, lake):
            table = learned.policy_table(mdp)
            drawn = cells(learned.plot("policy", mdp=mdp, level=level))
            seen = 0
            for i, state in enumerate(table.states):
                at = int(table.levels[i]) if level is None else level
                shown = drawn.get(divmod(state, 4), [])
                if at >= 0 and table.decided[at, i] and (level is None or table.reached[at, i]):
                    action = learned.policy.act_on(at, state)
                    assert action == table.actions[at, i]
                    assert ARROWS["<v>^"[action]] in shown, (state, at)
                    seen += 1
                else:
                    assert not set(ARROWS.values()) & set(shown)
            assert seen >= 5
            # Holes, the goal and the start.
            assert all(drawn[divmod(hole, 4)] == ["H"] for hole in (5, 7, 11, 12))
            assert drawn[3, 3] == ["G"] and "S" in drawn[0, 0]


def test_values_of_a_grid_are_numbers_and_colours(lake, learned):
    figure = learned.plot("value", mdp=lake)
    table = learned.policy_table(lake)
    drawn, (image,) = cells(figure), figure.axes[0].images
    colours = np.ma.filled(image.get_array(), np.nan)
    exact = lake.values(learned.policy)
    for i, state in enumerate(table.states):
        if (at := int(table.levels[i])) >= 0:
            assert table.values[at, i] == exact[at][i] == colours[divmod(state, 4)]
            assert short(exact[at][i]) in drawn[divmod(state, 4)]


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"])
def test_tables_have_the_values_and_visits_of_the_environment(name):
    gymnasium = pytest.importorskip("gymnasium")
    if name not in gymnasium.registry:
        pytest.skip(f"no {name}")
    env = from_gymnasium(name, 8)
    result = REGISTRY["ucb-q"](env, n_episodes=100, c=0.1, rng=0).learn()
    table = result.policy_table(env)
    n = len(env.state_numbers)
    assert table.states == env.state_numbers.tolist() and table.exact
    for level in range(8):
        assert table.values[level].tolist() == env.values(result.policy)[level][:n].tolist()
        assert table.actions[level].tolist() == result.policy.rules[level][:n].tolist()
        over = env.occupancy(result.policy)[level][env.row_numbers < 0].sum()
        assert table.visits[level].sum() + over == pytest.approx(1.0)
        assert (table.visits[level][~table.reached[level]] == 0.0).all()


def test_estimates_are_in_points():
    pytest.importorskip("gymnasium")
    env = from_gymnasium("CliffWalking-v1", 20)
    result = dmq.learn(env, 0.5, rng=0)
    mine, exact = result.policy_table(), result.policy_table(env)
    # Along the path of the policy, where the run knows values best.
    on_path = exact.visits > 0.5
    assert on_path.sum() == 13
    np.testing.assert_allclose(mine.values[on_path], exact.values[on_path], atol=0.5)
    baseline = REGISTRY["ucb-q"](env, n_episodes=3000, c=0.01, rng=0).learn()
    table = baseline.policy_table(env)
    assert baseline.points(0, np.array([1.0])) == env.value_range.max()
    assert table.values[0, 36] == pytest.approx(baseline.value)


def test_values_of_a_run_by_returns_are_in_points():
    result = dmq.learn(mountain_car(100, features="interpolation", hold=2), rng=0)
    assert result.mode == "tested"
    seen = result.policy.observer.see(0, [-0.5, 0.0]).features
    value = result.points(0, (seen @ result.theta[0].T).max(axis=1))
    assert value == pytest.approx(result.stopping["predicted"], abs=25)
    (image, *_) = result.plot("value").axes[0].images
    shown = np.ma.filled(image.get_array(), np.nan)
    assert np.nanmin(shown) >= result.units[0, 0] and np.nanmax(shown) <= result.units[0, 2] == 0.0


def test_states_of_ones_own_that_are_pairs_stand_in_their_grid(rooms):
    drawn = cells(rooms.plot())
    table = rooms.policy_table()
    assert drawn[1, 1] == drawn[1, 2] == ["X"] and drawn[2, 3] == ["G"]
    path, env, done = [], Rooms(), False
    env.reset()
    while not done:
        path.append((env.at, len(path)))
        action = rooms.policy.act_on(len(path) - 1, env.at)
        i = table.states.index(env.at)
        assert ARROWS["^>v<"[table.actions[table.levels[i], i]]] in drawn[env.at]
        _, _, done = env.step(action)
    assert 5 <= len(path) <= Rooms.horizon


def test_a_result_from_a_file_is_drawn_alike(tmp_path, learned, rooms, car):
    for name, result in {"lake": learned, "rooms": rooms, "car": car}.items():
        result.save(tmp_path / f"{name}.npz")
        again = dmq.load(tmp_path / f"{name}.npz")
        assert bytes_of(again.plot()) == bytes_of(result.plot()), name
        assert bytes_of(again.plot("value")) == bytes_of(result.plot("value")), name


def test_a_box_shows_value_and_action_over_two_numbers(car):
    figure = car.plot()
    value, action, *_ = figure.axes
    assert (action.get_xlabel(), action.get_ylabel(), value.get_ylabel()) == ("position", "velocity", "velocity")
    (image,) = action.images
    left, right, bottom, top = image.get_extent()
    assert (left, right, bottom, top) == (-1.2, 0.6, -0.07, 0.07)
    shown = np.asarray(image.get_array())
    rows, columns = shown.shape
    rng = np.random.default_rng(0)
    known = 0
    for row, column in zip(rng.integers(rows, size=300), rng.integers(columns, size=300), strict=True):
        at = [left + (column + 0.5) / columns * (right - left), bottom + (row + 0.5) / rows * (top - bottom)]
        features = car.policy.observer.see(0, at).features
        q = features @ car.theta[0].T
        if np.ptp(q) > 1e-6:
            assert shown[row, column] == car.policy.act_on(0, at)
            known += 1
        else:
            assert shown[row, column] == 3
    assert known >= 3
    assert len(car.plot("value").axes) == 2


def test_states_without_a_grid_are_a_table():
    env = chain(6, rng=0)
    result = dmq.learn(env, rng=0)
    table = result.policy_table(env)
    (axes,) = result.plot("policy", mdp=env).axes
    shown = np.ma.filled(axes.images[0].get_array(), np.nan)
    for level in range(6):
        for state in range(env.n_states[level]):
            if not env.reachable[level][state]:
                assert np.isnan(shown[state, level])
            elif table.decided[level, state]:
                assert shown[state, level] == result.policy.act(level, env.features[level][state])
            else:
                assert shown[state, level] == env.n_actions
    names = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert names == ["0", "1", "2", "all alike", "not reached"]
    values = result.plot("value", mdp=env).axes[0].images[0].get_array()
    assert values[0, 0] == env.value(result.policy)
    # As a grid of one row, with numbers for actions.
    drawn = cells(result.plot("policy", mdp=env, shape=(1, env.n_states[0])))
    assert drawn[0, 0] == [str(table.actions[0, 0])]
    assert cells(result.plot("policy", mdp=env, shape=(1, 5), arrows="ab>", level=0))[0, 0] == [
        {"a": "a", "b": "b", ">": ARROWS[">"]}["ab>"[table.actions[0, 0]]]
    ]


def test_states_of_ones_own_are_in_order_and_print(rooms):
    table = rooms.policy_table()
    assert table.states == sorted(table.states) and len(table.states) > 5
    head, names, *lines = repr(table).splitlines()
    assert head == f"12 levels, {len(table.states)} states:" and names.split()[:3] == ["state", "level", "action"]
    for line, state, level, actions in zip(lines, table.states, table.levels, table.actions.T, strict=True):
        assert line.startswith(str(state))
        assert line.removeprefix(str(state)).split()[:2] == (
            [str(level), str(actions[level])] if level >= 0 else ["-"] * 2
        )


def test_states_that_have_no_order_or_are_long_have_names():
    class Odd:
        n_actions, horizon, value_range = 2, 3, (0, 3)

        def reset(self):
            self.at = 0
            return np.zeros(20)

        def step(self, action):
            self.at += 1
            return ("a", 1)[self.at - 1] if self.at < 3 else "b", float(action), self.at == 3

    result = dmq.learn(Odd(), rng=0)
    table = result.policy_table()
    assert set(table.states) == {"#0", "a", 1}
    assert table.actions[0, table.states.index("#0")] == 1
    assert result.plot("policy").axes[0].get_yticklabels()[table.states.index("a")].get_text() == "a"


def test_where_nothing_was_learned_no_arrow_is_drawn(lake):
    result = dmq.learn(lake, epsilon=0.1, max_trajectories=1, rng=0)
    shown = [text for texts in cells(result.plot()).values() for text in texts]
    assert set(shown) <= {*"SHG", UNDECIDED} and (result.policy_table().levels == -1).all()


def test_a_policy_of_tables_is_drawn(lake):
    result = REGISTRY["ucb-q"](lake, n_episodes=200, c=0.1, rng=0).learn()
    assert isinstance(result.policy, TablePolicy)
    table = result.policy_table(lake)
    drawn = cells(result.plot("policy", mdp=lake))
    for i, state in enumerate(table.states):
        if (at := int(table.levels[i])) >= 0:
            assert ARROWS["<v>^"[result.policy.rules[at][i]]] in drawn[divmod(state, 4)]
    with pytest.raises(ValueError, match=r"policy_table: expected .*; mdp=env gives its tables"):
        result.plot("policy")


GRIDS = {
    "FrozenLake-v1": ((1, 4, 4), "<v>^", "SFFF"),
    "CliffWalking-v1": ((1, 4, 12), "^>v<", " " * 12),
    "Taxi-v4": ((8, 5, 5), "v^><PD", "R   G"),
}


@pytest.mark.parametrize("name", GRIDS)
def test_environments_say_their_grids(name):
    gymnasium = pytest.importorskip("gymnasium")
    if name not in gymnasium.registry:
        pytest.skip(f"no {name}")
    made = gymnasium.make(name)
    grid = grid_of(made, int(made.action_space.n))
    shape, arrows, first = GRIDS[name]
    assert (grid.cells.shape, grid.arrows, grid.letters[0]) == (shape, arrows, first)
    again = Grid.described(json.loads(json.dumps(grid.describe())))
    assert again.describe() == grid.describe()
    # An arrow points where the environment goes, on average over what it does in all cells.
    moves = {"<": (0, -1), ">": (0, 1), "^": (-1, 0), "v": (1, 0)}
    places = {int(n): place for panel in grid.cells for place, n in np.ndenumerate(panel)}
    for action, arrow in enumerate(grid.arrows):
        total = np.zeros(2)
        for state, (row, column) in places.items():
            for chance, following, _, _ in made.unwrapped.P[state][action]:
                step = np.subtract(places.get(int(following), (row, column)), (row, column))
                total += chance * step if np.abs(step).sum() <= 1 else 0.0
        if arrow in moves:
            assert np.argmax(np.abs(total)) == np.argmax(np.abs(moves[arrow]))
            assert np.dot(total, moves[arrow]) > 0
    if name == "Taxi-v4":
        row, column, passenger, destination = made.unwrapped.decode(int(grid.cells[6, 2, 3]))
        assert (row, column, passenger, destination) == (2, 3, 4, 2) and grid.titles[6] == "drive to Y"
    if name == "CliffWalking-v1":
        assert grid.letters[3] == "S" + 10 * "C" + "G"


def test_grids_of_gym_classics_are_read():
    classics = pytest.importorskip("gym_classics")
    gymnasium = pytest.importorskip("gymnasium")
    if "ClassicGridworld-v0" not in gymnasium.registry:
        classics.register("gymnasium")
    made = gymnasium.make("ClassicGridworld-v0")
    grid = grid_of(made, 4)
    assert grid.arrows == "^>v<" and grid.letters == ("   G", " X G", "S   ")
    made.reset(seed=0)
    start = made.unwrapped.encode((0, 0))
    assert grid.cells[0, 2, 0] == start and grid.cells[0, 1, 1] == -1


def test_what_only_looks_like_a_grid_is_none():
    class Odd:
        shape = (3, 3)
        observation_space = type("Space", (), {"n": 8})()
        desc = property(lambda self: 1 / 0)

    assert grid_of(Odd(), 4) is None and grid_of(object(), 4) is None
    assert grid_of(type("Short", (), {"shape": (2, 2), "arrows": "^v"})(), 4).arrows is None


def test_the_picture_that_fits_is_the_default(lake, learned, rooms, car):
    env = chain(4, rng=0)
    run, dmq_run = dmq.learn(env, rng=0), dmq.DMQ(env, n_samples=5, rng=0).learn()
    assert [one.first_picture(None, None) for one in (learned, rooms, car, run, dmq_run)] == [
        "policy",
        "policy",
        "policy",
        "curve",
        "cover",
    ]
    assert run.first_picture(None, (1, 4)) == "policy"
    hidden = dmq.learn(lock_gaussian(3, 0.1, 0.3, rng=0), epsilon=0.3, rng=0)
    assert hidden.first_picture(None, None) == "curve" and not hidden.shows_policy()


def test_what_cannot_be_drawn_is_refused(lake, learned, rooms, car):
    env = chain(4, rng=0)
    run = dmq.learn(env, rng=0)
    hidden = dmq.learn(lock_gaussian(3, 0.1, 0.3, rng=0), epsilon=0.3, rng=0)
    refused(
        [
            (lambda: learned.plot("polic"), ValueError, "expected one of policy, value, curve, .*mean 'policy'"),
            (lambda: learned.plot(level=15), ValueError, "level: expected an integer < 15, got 15"),
            (lambda: learned.plot(arrows="<>"), ValueError, "arrows: expected a letter for each of 4 actions"),
            (lambda: learned.plot(arrows=5), TypeError, "arrows: expected a text"),
            (lambda: learned.plot(shape=(4, 0)), ValueError, "shape: expected .rows, columns., two integers > 0"),
            (lambda: learned.plot(shape=4), ValueError, "shape: expected .rows, columns."),
            (lambda: learned.plot("curve", level=1), ValueError, "level: expected none with 'curve', got 1"),
            (lambda: run.plot("policy", arrows="<>^"), ValueError, "arrows: expected none without a grid"),
            (lambda: run.plot("policy", mdp=lake.P), TypeError, "mdp: expected a FiniteMDP, got tuple"),
            (lambda: car.plot(arrows="<->"), ValueError, "arrows: expected none over two observed numbers"),
            (lambda: hidden.plot("policy"), ValueError, "policy_table: expected .*real numbers, or has features of"),
            (lambda: hidden.policy_table(), ValueError, "shows finitely many states"),
            (lambda: car.to_dataframe("curve"), ValueError, "what: expected"),
            (lambda: Grid.of_shape((2, 2)).described({"cells": [1], "titles": [], "letters": [], "arrows": None}),
             ValueError, "grid: expected cells"),
        ]
    )  # fmt: skip


# ---- Looks, and the curve


def test_looks_are_few_and_end_where_the_run_ends(learned):
    looks = learned.looks
    n = looks.columns()["episodes"]
    assert n[-1] == learned.n_trajectories and (np.diff(n) >= 0).all()
    phases = looks.columns()["phase"]
    apart = [b >= APART * a or p != q for a, b, p, q in zip(n[:-2], n[1:-1], phases[:-2], phases[1:-1], strict=True)]
    assert all(apart) and len(looks) < 300
    assert looks[0].upside == pytest.approx(1.0) and looks[-1].upside <= learned.epsilon
    assert {"explore", "test"} <= set(phases)
    tested = [look.mean_return for look in looks if look.phase == "test"]
    assert tested[-1] == pytest.approx(learned.stopping["mean_return"])


def test_looks_come_back_and_are_the_same_after_a_resume(tmp_path):
    env = chain(4, rng=0)
    whole = dmq.SelfStopping(env, epsilon=0.2, rng=0).learn()
    cut = dmq.SelfStopping(env, epsilon=0.2, rng=0)
    cut.learn(journal=tmp_path / "journal", max_trajectories=30)
    again = dmq.SelfStopping(env, epsilon=0.2, rng=0).learn(journal=tmp_path / "journal")
    assert list(map(repr, again.looks)) == list(map(repr, whole.looks))
    whole.save(tmp_path / "run.npz")
    back = dmq.load(tmp_path / "run.npz")
    assert list(map(repr, back.looks)) == list(map(repr, whole.looks))
    assert back.units.tolist() == whole.units.tolist() == [[0.0, 1.0, 1.0]] * 4
    with np.load(tmp_path / "run.npz") as archive:
        old = {name: archive[name] for name in archive.files if name not in ("looks", "units")}
        whole_file = {name: archive[name] for name in archive.files}
    np.savez(tmp_path / "old.npz", **old)
    older = dmq.load(tmp_path / "old.npz")
    assert len(older.looks) == 0 and older.units is None and older.first_picture(None, None) == "trajectories"
    with pytest.raises(ValueError, match="which files of older versions do not hold"):
        older.plot("curve")
    assert np.isnan(older.policy_table().values).all()
    assert not np.isnan(older.policy_table(env).values).any()
    for wrong in (
        np.full((1, 5), 7.0),
        np.array([[1, -1.0, 0, 0, 0]]),
        np.array([[-1, 0.0, 0, 0, 0]]),
        np.ones((1, 4)),
    ):
        np.savez(tmp_path / "bad.npz", **whole_file | {"looks": wrong})
        with pytest.raises(dmq.FileError, match=r"damaged .*looks: expected"):
            dmq.load(tmp_path / "bad.npz")


def test_a_damaged_grid_is_noticed(tmp_path, learned):
    learned.save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as archive:
        whole = {name: archive[name] for name in archive.files}
    header = json.loads(whole["header"].item())
    for change in ({"first": [0]}, {"grid": {}}, {"grid": {**header["observer"]["grid"], "titles": []}}, {"grid": 3}):
        again = header | {"observer": header["observer"] | change}
        np.savez(tmp_path / "bad.npz", **whole | {"header": np.array(json.dumps(again))})
        with pytest.raises(dmq.FileError, match="damaged"):
            dmq.load(tmp_path / "bad.npz")


def test_a_look_is_kept_where_something_changed():
    looks = Looks()
    for look in (Look(0, "explore", 1.0, 0.0), Look(50, "explore", 0.5, 0.1), Look(50, "test", 0.4, 0.1)):
        looks.note(look)
    looks.note(Look(50, "test", 0.3, 0.1))
    assert len(looks) == 3 and looks[2].upside == 0.4
    assert [look.upside for look in looks.ended(Look(50, "test", 0.2, 0.1))] == [1.0, 0.5, 0.2]
    assert Looks().columns()["phase"] == [] and Looks.decode(Looks().encode())[:] == []


def test_the_curve_is_that_of_the_looks(lake, learned):
    top, bottom = learned.plot("curve", mdp=lake).axes
    columns = learned.looks.columns()
    x, y = top.lines[0].get_data()
    assert x.tolist() == columns["episodes"].tolist()
    assert y == pytest.approx(np.maximum(columns["upside"], 0.01 * learned.epsilon))
    assert list(top.lines[1].get_ydata()) == [learned.epsilon] * 2
    assert bottom.lines[0].get_ydata() == pytest.approx(columns["predicted"], nan_ok=True)
    (bars,) = bottom.containers
    low, high = learned.interval
    ((_, lower), (_, upper)) = bars[2][0].get_segments()[0]
    assert (lower, upper) == pytest.approx((low, high))
    assert bars[0].get_ydata() == pytest.approx(learned.stopping["mean_return"])
    assert [text.get_text() for text in bottom.get_legend().get_texts()] == ["predicted", "test"]


def test_the_curve_of_a_run_by_returns_has_its_candidates():
    result = dmq.learn(chain(4, rng=0), 0.2, mode="tested", rng=0)
    _, bottom = result.plot("curve").axes
    columns = result.looks.columns()
    tries = np.array([phase == "refine" for phase in columns["phase"]])
    dots = next(line for line in bottom.lines if line.get_marker() == "o" and len(line.get_xdata()) > 1)
    assert dots.get_ydata() == pytest.approx(columns["mean_return"][tries])
    assert result.looks[-1].mean_return == pytest.approx(result.stopping["mean_return"])


def test_the_curve_of_dmq_goes_back_through_the_levels():
    result = dmq.DMQ(chain(5, rng=0), n_samples=10, rng=0).learn()
    (axes,) = result.plot("curve").axes
    columns = result.history.columns()
    checked, trues = axes.lines
    assert checked.get_xdata().tolist() == columns["call"].tolist()
    assert checked.get_ydata().tolist() == columns["target"].tolist()  # -1 is the test of the returned policy
    assert trues.get_ydata().tolist() == columns["level"][columns["decision"]].tolist()
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert names[0] == "test" and names[1:] == [str(level) for level in map(int, axes.get_yticks()[1:])]
    with pytest.raises(ValueError, match="expected a run with oracle calls"):
        dmq.DMQ(dmq.environments.combination_lock(1, rng=0), variant="paper", rng=0).learn().plot("curve")


# ---- Data frames


def test_data_frames_are_tidy(lake, learned):
    pytest.importorskip("pandas")
    frame = learned.to_dataframe(mdp=lake)
    assert list(frame.columns) == ["level", "state", "action", "value", "decided", "probability"]
    assert len(frame) == 15 * len(lake.state_numbers)
    table = learned.policy_table(lake)
    row = frame[(frame.level == 2) & (frame.state == 4)].iloc[0]
    i = table.states.index(4)
    assert (row.action, row.value, row.probability) == (table.actions[2, i], table.values[2, i], table.visits[2, i])
    assert "probability" not in learned.to_dataframe()
    assert len(learned.to_dataframe("history")) == len(learned.looks)
    run = dmq.DMQ(chain(3, rng=0), n_samples=5, rng=0).learn()
    assert len(run.to_dataframe("history")) == len(run.history)
    baseline = REGISTRY["rlsvi"](chain(3, rng=0), n_episodes=20, rng=0).learn()
    assert baseline.to_dataframe("history")["value"].tolist() == baseline.curve.value.tolist()
    # Levels with fewer states have fewer rows.
    sea = dmq.environments.deep_sea(4, rng=0)
    frame = dmq.DMQ(sea, n_samples=5, rng=0).learn().to_dataframe(mdp=sea)
    assert frame.groupby("level").size().tolist() == list(sea.n_states)


def test_without_pandas_the_error_names_the_extra(monkeypatch, rooms):
    monkeypatch.setitem(sys.modules, "pandas", None)
    for call in (rooms.to_dataframe, dmq.compare([rooms]).to_dataframe):
        with pytest.raises(ImportError, match=r'pip install "dmq-fast\[dataframe\]"'):
            call()


def test_uniform_and_fixed_rules_have_a_place_in_a_table():
    env = chain(3, rng=0)
    run = dmq.DMQ(env, n_samples=5, rng=0).learn(max_trajectories=6)
    mixed = Policy([*Policy.uniform(1).rules, *Policy.fixed([2, 1]).rules]).bind(env)
    result = type(run)(**{**vars(run), "policy": mixed})
    table = result.policy_table(env)
    assert (table.actions[0] == -1).all() and (table.actions[1] == 2).all() and (table.actions[2] == 1).all()
    assert table.decided.tolist() == [[False] * 5, [True] * 5, [True] * 5]
    result.plot("policy", mdp=env).draw_without_rendering()


def test_pages_show_what_was_learned(learned, lake, rooms):
    from dmq_fast.experiments.report.reports import run_pictures

    titles = [picture.title for picture in run_pictures(learned, lake)]
    assert titles[:2] == ["What was learned", "What the run knew"]
    assert [picture.title for picture in run_pictures(rooms, None)][:2] == titles[:2]
    run = dmq.DMQ(chain(3, rng=0), n_samples=5, rng=0).learn()
    assert "The way through the levels" in [picture.title for picture in run_pictures(run, None)]


@pytest.mark.parametrize("width", [3.3, 6.8])
def test_nothing_is_clipped(width, learned, rooms, car, lake):
    run = dmq.DMQ(chain(5, rng=0), n_samples=10, rng=0).learn()
    figures = [one.plot(width=width) for one in (learned, rooms, car)]
    figures += [one.plot("curve", width=width) for one in (learned, rooms, car, run)]
    figures += [run.plot("policy", width=width), run.plot("value", width=width), learned.plot("value", width=width)]
    for figure in figures:
        figure.draw_without_rendering()
        box = figure.bbox
        for text in figure.findobj(matplotlib.text.Text):
            if text.get_visible() and text.get_text() and not text.get_clip_on():
                extent = text.get_window_extent()
                if text.axes is not None and text in [*text.axes.get_xticklabels(), *text.axes.get_yticklabels()]:
                    continue  # ticks outside of the limits are not drawn
                assert extent.x0 >= box.x0 - 1 and extent.x1 <= box.x1 + 1, text.get_text()
                assert extent.y0 >= box.y0 - 1 and extent.y1 <= box.y1 + 1, text.get_text()
