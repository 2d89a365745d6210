"""bsuite's exam (Osband and others, 2020) for the run that stops by itself. It needs the extras `exams` and `plot`.

    python bench/bsuite_exam.py play --column seen --ids 0,10 --out records      # writes records/seen/*.csv
    python bench/bsuite_exam.py report records --out records                     # the table, the tags and the radar

`play` takes settings of the experiments that it can: episodes of the run count, and after its end its policy plays
`--rest` more, or as many as are granted with `--rest all`; in scores it goes on at the rate of these. Records are those
of bsuite's own CSV logger, so its tools read the directory of a column. One setting for all: strict, delta = .05,
epsilon = .05 of the range that bsuite's source gives to returns.

Columns are what the features know: `hand`, the problem; `first`, one map for all experiments, one-hot by appearance of
the first observation of the episode and the current one; `seen`, one-hot by appearance of the current one. Control,
whose observations never repeat, has the package's default in both: interpolation on grids that uniform play chooses.

`report` computes bsuite's scores, which are written anew here, and shows them beside those of published agents, read
off the figure in bsuite's repository, reports/iclr_2019/images/bar_plot.png (bench/bsuite_published.csv). An experiment
that was not run has the score of the random agent. Of one that was run on some settings the score is that of these.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import dmq_fast as dmq
from dmq_fast.environments import as_environment
from dmq_fast.features import Interpolation, RandomFourier
from dmq_fast.kernels import RidgeArms

HERE = Path(__file__).parent

EXPERIMENTS = (
    *("bandit", "bandit_noise", "bandit_scale", "catch", "catch_noise", "catch_scale", "deep_sea"),
    *("deep_sea_stochastic", "discounting_chain", "memory_len", "memory_size", "umbrella_distract", "umbrella_length"),
    *("cartpole", "cartpole_noise", "cartpole_scale", "cartpole_swingup"),
    *("mountain_car", "mountain_car_noise", "mountain_car_scale", "mnist", "mnist_noise", "mnist_scale"),
)

IMAGES = "mnist"
"""Beginning of the names of those that are played with features by hand only, by greedy ridge regression."""

CONTROL = ("cartpole", "mountain_car")
"""Beginnings of the names of those with a thousand steps an episode, which are played by returns."""

HOLD = {"cartpole_swingup": 8, "cartpole": 5, "mountain_car": 5, "umbrella": 100}
"""Steps for which an action is held by hand: .08 and .05 s of the pole, whose time constant is .26 s; and all of a
chain, whose first action alone matters."""

COLUMNS = ("hand", "first", "seen")
AGENTS = ("boot_dqn", "actor_critic_rnn", "dqn", "random")

Rows = list[dict[str, float]]
Run = tuple[dict[str, Any], Rows]
"""The settings of a run, and the rows of its record."""


# ---- Features by hand, of n pairs of first and current observation, joined along the first axis


def constant(seen: Any) -> Any:
    return np.ones((len(seen), 1))


def ball_and_paddle(seen: Any) -> Any:
    """Return the column of the ball and that of the paddle, (n, 25)."""
    ball, paddle = seen[:, 10:19].sum(axis=1), seen[:, 19]
    return np.einsum("nb,np->nbp", ball, paddle).reshape(len(seen), -1)


def column(seen: Any) -> Any:
    """Return the column of the diver, (n, N)."""
    return seen[:, seen.shape[1] // 2 :].sum(axis=1)


def context(seen: Any) -> Any:
    return np.eye(6)[seen[:, 1, 0].astype(int) + 1]


def need(seen: Any) -> Any:
    """Return whether an umbrella is needed, (n, 2); only the first action matters, and is held to the end."""
    return np.eye(2)[seen[:, 0, 0].astype(int)]


def asked_bit(seen: Any) -> Any:
    """Return a constant, and the bit that is asked for, in a place of its own, (n, 1 + bits)."""
    bits, now = seen[:, 0, 2:], seen[:, 1]
    asked = np.eye(bits.shape[1])[now[:, 1].astype(int)]
    return np.column_stack([np.ones(len(seen)), asked * bits]) / np.sqrt(2)


def spaced(far: float, n: int, dense: float = 2.0) -> list[float]:
    """Return n nodes in [-far, far], denser around 0."""
    nodes = far * np.sinh(np.linspace(-dense, dense, n)) / np.sinh(dense)
    return [float(node) for node in nodes]


UPRIGHT = Interpolation([spaced(1.0, 11), spaced(1.0, 11), spaced(0.65, 11), spaced(3.0, 11)])
SWING = (
    Interpolation([np.linspace(0.0, 2.2, 18).tolist(), 16]),
    Interpolation([spaced(np.pi, 21, 1.8), spaced(10.0, 15, 1.8)]),
    Interpolation([spaced(1.0, 9, 1.0), spaced(1.5, 9, 1.0)]),
)
"""Grids of the energy's root and the phase, of the angle and its speed, and of place and speed."""

SMALL_SWING = 5.57
"""The frequency of the pole's small oscillations around the bottom, in 1 / s."""

CAR = Interpolation([np.linspace(-1.2, 0.6, 19).tolist(), np.linspace(-0.07, 0.07, 15).tolist()])


def mechanics(seen: Any) -> Any:
    """Return place, speed, angle from the top and its speed, (n, 4); time does not matter."""
    x, v, sine, cosine, w = seen[:, 0, :5].T
    return np.column_stack([x, v, np.arctan2(sine, cosine), w])


def pole(seen: Any) -> Any:
    """Interpolate on grids of all pairs."""
    return UPRIGHT(mechanics(seen))


def swinging_pole(seen: Any) -> Any:
    """Interpolate on the grids of `SWING`; without a force the energy stays, so that values do not leak along it."""
    x, v, angle, w = mechanics(seen).T
    potential = np.sign(np.sin(angle)) * np.sqrt(1.0 + np.cos(angle))
    kinetic = w / SMALL_SWING
    root = np.hypot(potential, kinetic)
    phase = np.column_stack([potential, kinetic]) / np.maximum(root, 1e-9)[:, None]
    points = (np.column_stack([root, phase]), np.column_stack([angle, w]), np.column_stack([x, v]))
    return np.hstack([grid(point) for grid, point in zip(SWING, points, strict=True)]) / np.sqrt(len(SWING))


def car(seen: Any) -> Any:
    """Interpolate place and speed on a grid."""
    return CAR(seen[:, 0, :2])


PIXELS = RandomFourier(784, 500, width=8.0, rng=0)


def unwrapped(image: Any) -> Any:
    """Return random Fourier features of an image; bsuite keeps bytes as int8, so that white is -1 / 255."""
    pixels = image.ravel().astype(np.float64)
    return PIXELS(np.where(pixels < 0, pixels + 256 / 255, pixels))


BY_HAND: dict[str, Callable[[Any], Any]] = {
    "bandit": constant,
    "catch": ball_and_paddle,
    "deep_sea": column,
    "discounting": context,
    "umbrella": need,
    "memory": asked_bit,
    "cartpole_swingup": swinging_pole,
    "cartpole": pole,
    "mountain_car": car,
}


def seen_through(name: str, which: str) -> dict[str, Any]:
    """Return features, history and steps of a level of an experiment in a column."""
    control = name.startswith(CONTROL)
    if which != "hand" and control:
        return {}
    if which != "hand":
        return {"history": "first"} if which == "first" else {"features": "seen"}
    features = BY_HAND[next(kind for kind in BY_HAND if name.startswith(kind))]
    hold = next((steps for kind, steps in HOLD.items() if name.startswith(kind)), None)
    return {"features": features} | ({"history": "first"} if hold is None else {"hold": hold})


# ---- Playing


def play(
    name: str, number: int, which: str, place: Path, seed: int, seconds: float, rest: int | None
) -> dict[str, Any]:
    """Take one setting of an experiment; return what is known of the run beside bsuite's records."""
    from bsuite import sweep
    from bsuite.logging import csv_logging

    identifier, inside = f"{name}/{number}", []

    def logged(env: Any) -> Any:
        inside.append(csv_logging.wrap_environment(env, identifier, str(place), overwrite=True))
        return inside[0]

    # Most settings of an experiment differ in nothing but their seeds.
    drawn, own = np.random.SeedSequence([seed, number]).spawn(2)
    env = as_environment(f"bsuite:{identifier}", wrapper=logged, rng=drawn, **seen_through(name, which))
    granted, began = sweep.EPISODES[identifier], time.process_time()
    epsilon = 0.05 * float(env.value_range[:, 1].max() - env.value_range[:, 0].min())
    mode = "tested" if name.startswith(CONTROL) else "strict"
    learner = dmq.SelfStopping(env, epsilon, mode=mode, rng=own)
    refused = ""

    def watch(_: object) -> None:
        if time.process_time() - began > seconds:
            raise TimeoutError(f"{seconds:g} seconds of CPU time")

    try:
        result = learner.learn(max_trajectories=granted, progress=watch)
    except (ValueError, TimeoutError) as error:  # more observations than are told apart, or time is up
        refused, result = str(error), learner.result()
    learned = time.process_time() - began
    stopped, before = inside[0]._episode, sums(inside[0])
    n = granted - stopped if rest is None else min(rest, granted - stopped)
    for _ in range(n):
        follow(inside[0], result.policy, env.hold, paired=env.history is not None)
    if stopped + n < granted:  # the last row, between those that bsuite spaces in logarithms
        inside[0]._log_bsuite_data()
    return {
        "id": identifier,
        "status": result.status,
        "stopped": stopped,
        "played": n,
        "granted": granted,
        "before": before,
        "seconds": round(learned, 2),
        "dimension": env.dimension,
        "horizon": env.horizon,
        "hold": env.hold,
        "epsilon": epsilon,
        "ended": refused,
        "warnings": list(result.warnings),
    }


def play_images(name: str, number: int, place: Path, seed: int) -> dict[str, Any]:
    """Take one setting of MNIST: each episode is one image, and the digit of the largest ridge estimate is named."""
    import bsuite
    from bsuite import sweep
    from bsuite.logging import csv_logging

    identifier = f"{name}/{number}"
    settings = sweep.SETTINGS[identifier] | {"seed": int(np.random.SeedSequence([seed, number]).generate_state(1)[0])}
    env = csv_logging.wrap_environment(bsuite.load(name, settings), identifier, str(place), overwrite=True)
    granted, began = sweep.EPISODES[identifier], time.process_time()
    # The prior variance of a parameter stays the same where the noise, which is declared, is larger.
    arms = RidgeArms(10, PIXELS.dimension, 0.1 * (1.0 + settings.get("noise_scale", 0.0) ** 2))
    for _ in range(granted):
        phi = unwrapped(env.reset().observation)
        named = arms.select(phi, 0.0)
        arms.update(named, phi, env.step(named).reward)
    return {
        "id": identifier,
        "status": "greedy ridge",
        "stopped": granted,
        "played": 0,
        "granted": granted,
        "before": {},
        "seconds": round(time.process_time() - began, 2),
        "dimension": PIXELS.dimension,
        "horizon": 1,
    }


def sums(env: Any) -> dict[str, float]:
    """Return the sums over episodes that bsuite's scores are made of."""
    return {"total_return": float(env._total_return), **{key: float(value) for key, value in env.bsuite_info().items()}}


def continued(rows: Rows, run: dict[str, Any]) -> Rows:
    """Return a record with a row for all episodes granted: the policy goes on as in those played after the run."""
    last = rows[-1]
    if run["played"] == 0 or last["episode"] >= run["granted"]:
        return rows
    more = (run["granted"] - last["episode"]) / run["played"]
    added = {key: value for key, value in run["before"].items() if key in last and key != "best_episode"}
    end = {key: last[key] + more * (last[key] - value) for key, value in added.items()}
    return [*rows, last | end | {"episode": float(run["granted"])}]


def follow(env: Any, policy: Any, hold: int, paired: bool) -> None:
    """Play one episode of a policy, whose actions are held."""
    step, level, action = env.reset(), 0, None
    first = step.observation
    while not step.last():
        if level % hold == 0:
            now = step.observation
            action = policy.act_on(level // hold, (first, now) if paired else now)
        step, level = env.step(action), level + 1


# ---- bsuite's scores, of settings and the rows of their records


def ended(runs: Iterable[Run], key: str) -> list[float]:
    """Return the mean of a sum over episodes, of each run."""
    return [rows[-1][key] / rows[-1]["episode"] for _, rows in runs]


def regret_score(runs: list[Run], base: float, best: float | None = None, key: str = "raw_return") -> float:
    """Return 1 minus the mean regret, in units of that of a random agent.

    It is told, or what is missing from the `best` return, in the sum `key`.
    """
    regret = np.mean(ended(runs, "total_regret")) if best is None else best - np.mean(ended(runs, key))
    return float(np.clip((base - regret) / base, 0, 1))


def share_of_good(runs: list[Run], least: float) -> float:
    """Return the share of runs of which an episode earned more."""
    return float(np.mean([rows[-1]["best_episode"] > least for _, rows in runs]))


def upright_score(runs: list[Run]) -> float:
    """Return half the regret score of cartpole and half the share of runs with an episode of over 500 steps."""
    return 0.5 * (regret_score(runs, 1000.0, 1000.0) + share_of_good(runs, 500.0))


def swing_score(runs: list[Run]) -> float:
    """Return the mean over settings of half the regret score and half the share with a return of over 100."""
    groups = by_group(runs, "height_threshold")
    each = [regret_score(one, 700.0, 700.0, "total_return") + share_of_good(one, 100.0) for one in groups]
    return float(0.5 * np.mean(each))


def by_group(runs: list[Run], key: str) -> list[list[Run]]:
    """Return the runs of each value of a setting."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(run[0][key], []).append(run)
    return list(groups.values())


def scaled_score(runs: list[Run], key: str, of_one: Callable[[list[Run]], float]) -> float:
    """Return the mean of the scores of all scales, and of the same minus their standard deviation."""
    scores = [of_one(group) for group in by_group(runs, key)]
    return float(0.5 * (np.clip(np.mean(scores), 0, 1) + np.clip(np.mean(scores) - np.std(scores), 0, 1)))


def treasure_score(runs: list[Run], threshold: float) -> float:
    """Return the share of seas in which fewer episodes are bad than the threshold, before 2^N + 100 episodes."""
    found = []
    for setting, rows in runs:
        good = [row["episode"] for row in rows if row["total_bad_episodes"] / row["episode"] < threshold]
        found.append(any(episode < 2 ** setting["size"] + 100 for episode in good[:1] or [np.inf]))
    return float(np.mean(found))


def share_below(runs: list[Run], key: str, threshold: float, value: str) -> float:
    """Return the share of groups whose mean of a sum over episodes is below a threshold."""
    return float(np.mean([np.mean(ended(group, value)) < threshold for group in by_group(runs, key)]))


def images_score(runs: list[Run]) -> float:
    """Return half the regret score of MNIST and half the share of digits that are right in the last tenth."""
    ends = [pair for _, rows in runs for pair in pairwise(rows) if pair[1]["episode"] > 9_000]
    regrets = [(b["total_regret"] - a["total_regret"]) / (b["episode"] - a["episode"]) for a, b in ends]
    return float(0.5 * regret_score(runs, 1.8) + 0.25 * (2.0 - np.mean(regrets)))


SCORES: dict[str, Callable[[list[Run]], float]] = {
    "bandit": partial(regret_score, base=0.5),
    "catch": partial(regret_score, base=1.6),
    "mountain_car": partial(regret_score, base=1000.0, best=-100.0),
    "cartpole": upright_score,
    "cartpole_swingup": swing_score,
    "mnist": images_score,
}
"""Scores of experiments, most of which have others with noise and with scaled rewards beside them."""


def score(name: str, runs: list[Run]) -> float:
    """Return bsuite's score of an experiment, of the settings that were run.

    >>> rows = [{"episode": 10.0, "total_regret": 1.0}]
    >>> score("bandit", [({}, rows)])
    0.8
    """
    kind = name.removesuffix("_noise").removesuffix("_scale")
    if kind in SCORES:
        if name == kind:
            return SCORES[kind](runs)
        return scaled_score(runs, "noise_scale" if name.endswith("_noise") else "reward_scale", SCORES[kind])
    if name == "deep_sea":
        return treasure_score(runs, 0.9)
    if name == "deep_sea_stochastic":
        return treasure_score(
            [(setting, [row for row in rows if row["episode"] >= 100]) for setting, rows in runs], 0.8
        )
    if name == "discounting_chain":
        return float(np.clip(1 - 10 * (1.1 - np.mean(ended(runs, "total_return"))), 0, 1))
    if kind.startswith("umbrella"):
        return share_below(runs, {"umbrella_length": "chain_length"}.get(name, "n_distractor"), 0.5, "total_regret")
    wrong = [
        (setting, [row | {"wrong": 2 * (row["episode"] - row["total_perfect"])} for row in rows])
        for setting, rows in runs
    ]
    return share_below(wrong, {"memory_len": "memory_length"}.get(name, "num_bits"), 0.75, "wrong")


# ---- The report


def records(place: Path) -> dict[str, list[Run]]:
    """Return the settings and rows of bsuite's records in a directory, continued, by experiment."""
    from bsuite import sweep

    runs = json.loads((place / "runs.json").read_text())
    found: dict[str, list[Run]] = {}
    for path in sorted(place.glob("bsuite_id_-_*.csv")):
        name, _, number = path.stem.removeprefix("bsuite_id_-_").rpartition("-")
        with path.open() as file:
            rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
        identifier = f"{name}/{number}"
        if rows and identifier in runs:
            found.setdefault(name, []).append((dict(sweep.SETTINGS[identifier]), continued(rows, runs[identifier])))
    return found


def published() -> dict[str, dict[str, float]]:
    """Return the scores of the published agents, by experiment."""
    with (HERE / "bsuite_published.csv").open() as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {row.pop("experiment"): {agent: float(value) for agent, value in row.items()} for row in rows}


def tags() -> dict[str, set[str]]:
    """Return the experiments of each of bsuite's tags."""
    from bsuite import sweep

    return {tag: {one.partition("/")[0] for one in ids} for tag, ids in sweep.TAGS.items()}


def report(place: Path, out: Path) -> None:
    """Print the table of experiments, scores by noise, and the table of tags, and draw the radar."""
    known, told, scores, by_noise = published(), [], {}, {}
    for which in COLUMNS:
        if (place / which / "runs.json").exists():
            told.append(which)
            runs = records(place / which)
            for name in (name for name in runs if name.endswith("_noise")):
                of_one = SCORES[name.removesuffix("_noise")]
                groups = by_group(runs[name], "noise_scale")
                by_noise[name, which] = {group[0][0]["noise_scale"]: of_one(group) for group in groups}
            scores[which] = {
                name: score(name, runs[name]) if name in runs else row["random"] for name, row in known.items()
            }
    runs_of = {which: json.loads((place / which / "runs.json").read_text()) for which in told}
    print(
        f"| experiment | {' | '.join(f'{which}: score (stopped; episodes)' for which in told)} | {' | '.join(AGENTS)} |"
    )
    print(f"|---|{'---|' * (len(told) + len(AGENTS))}")
    for name, row in known.items():
        cells = []
        for which in told:
            mine = [run for key, run in sorted(runs_of[which].items()) if key.partition("/")[0] == name]
            stopped = [run["stopped"] for run in mine if run["status"] in ("finished", "tested")]
            many = f"{min(stopped):,} to {max(stopped):,}" if stopped else "none"
            cells.append(f"{scores[which][name]:.2f} ({len(stopped)} of {len(mine)}; {many})" if mine else "not run")
        print(f"| {name} | {' | '.join(cells)} | {' | '.join(f'{row[agent]:.2f}' for agent in AGENTS)} |")
    sizes = sorted({size for own in by_noise.values() for size in own})
    print(f"\n| standard deviation of the noise | {' | '.join(f'{size:g}' for size in sizes)} |")
    print(f"|---|{'---|' * len(sizes)}")
    for (name, which), own in sorted(by_noise.items()):
        print(f"| {name}, {which} | {' | '.join(f'{own[size]:.2f}' if size in own else '–' for size in sizes)} |")
    both = scores | {agent: {name: row[agent] for name, row in known.items()} for agent in AGENTS}
    wanted = tags()
    print(f"\n| tag | {' | '.join(both)} |\n|---|{'---|' * len(both)}")
    means = {who: {tag: float(np.mean([own[name] for name in names])) for tag, names in wanted.items()}
             for who, own in both.items()}  # fmt: skip
    for tag in wanted:
        print(f"| {tag.replace('_', ' ')} | {' | '.join(f'{means[who][tag]:.2f}' for who in both)} |")
    draw(means, list(wanted), out / "bsuite.png")


def draw(means: dict[str, dict[str, float]], names: list[str], path: Path) -> None:
    """Draw the radar."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    angles = np.linspace(0, 2 * np.pi, len(names), endpoint=False)
    figure, axes = plt.subplots(figsize=(5, 4), subplot_kw={"projection": "polar"})
    styles = {"hand": ("#D55E00", "-"), "first": ("#D55E00", "--"), "seen": ("#D55E00", ":")}
    styles |= {"boot_dqn": ("#0072B2", "-"), "actor_critic_rnn": ("#009E73", "-"), "dqn": ("#CC79A7", "-")}
    styles |= {"random": ("#666666", ":")}
    labels = {"hand": "features by hand", "first": "one map: first and current", "seen": "by appearance"}
    labels |= {"boot_dqn": "bootstrapped DQN", "actor_critic_rnn": "actor-critic RNN", "dqn": "DQN"}
    for who, own in means.items():
        values = [own[name] for name in names]
        color, line = styles[who]
        axes.plot([*angles, angles[0]], [*values, values[0]], color=color, linestyle=line, label=labels.get(who, who))
    axes.set_xticks(angles, [name.replace("_", "\n") for name in names], fontsize=7)
    axes.tick_params(axis="x", pad=14)
    axes.set_ylim(0, 1)
    axes.set_yticks([0.25, 0.5, 0.75, 1.0], ["", "0.5", "", "1"], fontsize=6, color="#666666")
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.05, 1.0))
    figure.savefig(path, dpi=110, bbox_inches="tight")
    print(f"\n{path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    taking = commands.add_parser("play")
    taking.add_argument("--column", choices=COLUMNS, default="seen")
    taking.add_argument("--experiments", default=",".join(EXPERIMENTS))
    taking.add_argument("--ids", default="all", help="numbers of settings, or all")
    taking.add_argument("--out", type=Path, required=True)
    taking.add_argument("--seed", type=int, default=0)
    taking.add_argument("--seconds", type=float, default=600.0, help="CPU seconds of a run")
    taking.add_argument("--rest", default="all", help="episodes that the policy plays after the run, or all granted")
    telling = commands.add_parser("report")
    telling.add_argument("place", type=Path)
    telling.add_argument("--out", type=Path, default=Path())
    given = parser.parse_args()
    if given.command == "report":
        report(given.place, given.out)
        return
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    from bsuite import sweep

    place = given.out / given.column
    place.mkdir(parents=True, exist_ok=True)
    file = place / "runs.json"
    runs = json.loads(file.read_text()) if file.exists() else {}
    rest = None if given.rest == "all" else int(given.rest)
    take = partial(play, which=given.column, place=place, seed=given.seed, seconds=given.seconds, rest=rest)
    names = [name for name in given.experiments.split(",") if given.column == "hand" or not name.startswith(IMAGES)]
    for name in names:
        last = sum(one.startswith(f"{name}/") for one in sweep.SWEEP)
        numbers = range(last) if given.ids == "all" else [i for i in map(int, given.ids.split(",")) if i < last]
        for number in numbers:
            if name.startswith(IMAGES):
                run = play_images(name, number, place, given.seed)
            else:
                run = take(name, number)
            runs[run["id"]] = run
            file.write_text(json.dumps(runs, indent=1))
            print(json.dumps({key: run[key] for key in ("id", "status", "stopped", "played", "seconds")}), flush=True)


if __name__ == "__main__":
    main()
