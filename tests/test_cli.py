"""The command line, as a user types it."""

import inspect
import itertools
import json
import logging
import os
import pkgutil
import re
import signal
import subprocess
import sys
import time

import pytest

import dmq_fast as dmq
from dmq_fast import cli
from dmq_fast._support.threads import BLAS_THREADS
from dmq_fast.cli.options import as_options, key_value
from dmq_fast.experiments.sweeps import algorithms
from dmq_fast.learners.named import decisions_of, resources_of


def test_run_prints_a_table_a_person_can_read(run):
    code, out, err = run("run", "lock", "--horizon", 20, "--n-samples", 20)
    assert (code, err) == (0, "")
    assert "0.7 / 0.7   (score 100.0%)" in out
    assert re.search(r"^status +ended", out, re.MULTILINE)
    assert re.search(r"trajectories +[\d,]+ +check [\d,]+, regression [\d,]+, states [\d,]+, final 20\n", out)
    assert "level 0: 1\n" in out
    assert "levels 1 to 19: 2\n" in out
    assert re.search(r"time +[\d.e-]+ s +rollouts", out)


def test_learn_says_what_its_result_promises(run):
    code, out, err = run("learn", "lock", "--horizon", 8, "--mode", "quick", "--p-min", 0.2, "--delta", 0.1)
    assert (code, err) == (0, "")
    for row in (
        "self-stopping         epsilon = 0.05, delta = 0.1, p_min = 0.2, seed = 0",
        "status                finished: a policy passed its test",
        "least visited         .* visits, on the policy's path",
        "upper bounds          unseen outcomes 0.*, noise 0, rare transitions 0.*",
        "outcomes considered   probability >= 0.2",
    ):
        assert re.search(f"^{row}$", out, re.MULTILINE), row
    lock = dmq.environments.combination_lock(8, rng=0)
    result = dmq.SelfStopping(lock, delta=0.1, mode="quick", p_min=0.2, rng=0).learn()
    command = "learn lock --horizon 8 --mode quick --p-min 0.2 --delta 0.1 --json"
    summary = json.loads(run(*command.split())[1])
    assert summary["counts"] == result.counts and summary["stopping"] == result.stopping


def test_json_is_one_object_with_the_promised_keys(run):
    code, out, err = run("run", "chain", "--horizon", 6, "--json", "--seed", 3, "--n-samples", 30)
    assert (code, err) == (0, "")
    summary = json.loads(out)
    promised = "environment variant parameters seed status value optimal_value n_trajectories cover_sizes seconds"
    assert {*promised.split(), "warnings"} <= set(summary)
    assert summary["seed"] == 3
    assert summary["value"] == pytest.approx(summary["optimal_value"])
    env = dmq.environments.chain(6, rng=0)
    assert summary["n_trajectories"] == dmq.DMQ(env, n_samples=30, rng=3).learn().n_trajectories


def test_every_environment_runs(run):
    lake = "gym:FrozenLake-v1 --horizon 6 --make is_slippery=false --make map_name=4x4"
    sized = [f"{name} --horizon 4" for name in ("lock", "chain", "river-swim", "decoy")]
    names = [*sized, "deep-sea --size 4", "linear-q", lake]
    for name, variant in zip(names, itertools.cycle(["sound", "frugal", "paper"]), strict=False):
        code, out, err = run("run", *name.split(), "--variant", variant, "--n-samples", 20, "--json")
        summary = json.loads(out)
        known = [warning for warning in summary["warnings"] if "R = 2 >= K = 2" in warning]
        assert (code, err) == (0, "".join(f"warning: {warning}\n" for warning in known)), name
        assert summary["variant"] == variant
        assert 0.0 <= summary["value"] <= summary["optimal_value"] + 1e-12


ESTIMATED = (
    "cart-pole --horizon 8 --order 1",
    "mountain-car --horizon 8 --features tiles --order 4",
    "gym:CartPole-v1 --horizon 8 --order 1",
)


def test_values_of_environments_without_tables_are_estimated(run):
    options = "--n-samples 10 --max-trajectories 300 --evaluate 40 --json"
    for name in ESTIMATED:
        code, out, err = run("run", *name.split(), *options.split())
        assert (code, err) == (3, "")
        summary = json.loads(out)
        assert (summary["value_trajectories"], summary["horizon"], summary["optimal_value"]) == (40, 8, None)
        assert summary["uniform_value_trajectories"] == 40


def test_a_table_can_be_left_aside(run):
    lake = "gym:FrozenLake-v1 --horizon 6 --make is_slippery=false --variant frugal --n-samples 1 --evaluate 50 --json"
    tables, step = (
        json.loads(run("run", *lake.split(), *more)[1]) for more in ([], ["--through", "step"])
    )  # fmt: skip
    assert (tables["sampler"], step["sampler"]) == ("rollout", "BatchSampler")
    assert tables["value_trajectories"] is None and step["value_trajectories"] == 50
    assert tables["value"] == step["value"] == pytest.approx(1.0)
    assert step["environment_parameters"] == {
        "env": "FrozenLake-v1", "horizon": 6, "through": "step", "is_slippery": False,
    }  # fmt: skip


def test_every_option_of_the_algorithm_arrives(run):
    options = (
        "--n-samples 7 --ratio 3 --eps-r 0.02 --ridge 0.003 --initial uniform --no-recheck "
        "--oracle value --mixture multinomial --accumulate --no-reuse --memo"
    )
    summary = json.loads(run("run", "chain", "--horizon", 4, "--json", *options.split())[1])
    assert summary["parameters"] == {
        "n_samples": 7, "eps_s": 1.0, "eps_t": 3.0, "eps_r": 0.02, "ridge": 0.003, "ratio": 3.0
    }  # fmt: skip
    assert summary["options"] == {
        "initial": "uniform", "recheck": False, "accumulate": True, "reuse": False, "memo": True,
        "oracle": "value", "mixture": "multinomial",
    }  # fmt: skip


def test_initial_action_sequences(run):
    command = ["run", "lock", "--horizon", 3, "--n-samples", 20, "--json", "--initial"]
    summary = json.loads(run(*command, "0,1,2/2,1,0")[1])
    assert summary["options"]["initial"] == "given"
    result = dmq.DMQ(dmq.environments.combination_lock(3, rng=0), n_samples=20, initial=[[0, 1, 2], [2, 1, 0]], rng=0)
    assert summary["n_trajectories"] == result.learn().n_trajectories
    assert min(summary["cover_sizes"]) == 2
    assert json.loads(run(*command, "0,1,2")[1])["cover_sizes"][0] == 1


CLASSES = """
from dmq_fast.function_class import FiniteClass

def make():
    return FiniteClass(scale=2.0, eps_s=0.01)
"""


@pytest.mark.parametrize("text", ["finite:scale=2,eps_s=0.01", "classes_of_mine:make"])
def test_a_function_class_from_the_shell(run, tmp_path, monkeypatch, text):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "classes_of_mine.py").write_text(CLASSES)
    # Two features on the lock: two candidate functions.
    command = ["run", "lock", "--horizon", 3, "--n-samples", 20, "--json", "--function-class", text]
    code, out, err = run(*command)
    assert (code, err) == (0, "")
    whole = json.loads(out)
    kind = dmq.FiniteClass(scale=2.0, eps_s=0.01)
    learner = dmq.DMQ(dmq.environments.combination_lock(3, rng=0), n_samples=20, function_class=kind, rng=0)
    result = learner.learn()
    assert whole["function_class"] == kind.describe() and whole["counts"] == result.counts
    assert whole["sure_cover_bound"] == learner.solver().cover_bound(1)
    assert re.search(r"\nfunction class +finite, scale = 2.0\n", run(*command[:-3], *command[-2:])[1])
    # It is saved with the run, which goes on with it, and with no other.
    assert run(*command, "--out", tmp_path / "out", "--max-trajectories", 60)[0] == 3
    code, out, _ = run("resume", tmp_path / "out", "--json", "--max-trajectories", 10**6)
    assert (code, json.loads(out)["counts"]) == (0, whole["counts"])
    assert dmq.load(tmp_path / "out" / "result.npz").function_class == kind.describe()


def test_the_sampler_is_rollout_unless_said_and_shown_if_another(run):
    assert json.loads(run("run", "lock", "--horizon", 3, "--json")[1])["sampler"] == "rollout"
    assert "sampler" not in run("run", "lock", "--horizon", 3)[1]
    assert re.search(r"\nsampler +exact\n", run("run", "lock", "--horizon", 3, "--sampler", "exact")[1])


@pytest.mark.parametrize(("given", "arithmetic"), [("rational", "rational"), ("60", 60)])
def test_exact_runs_in_any_arithmetic(run, given, arithmetic):
    # eps_r far below what float64 tells from 1, which it refuses.
    code, out, err = run("run", "lock", "--horizon", 3, "--eps-r", "1e-25", "--sampler", "exact")
    assert (code, out) == (2, "") and "--eps-r: expected at least 1e-16" in err
    options = ["--eps-r", "1e-25", "--ridge", "1e-20", "--sampler", "exact", "--arithmetic", given]
    code, out, err = run("run", "lock", "--horizon", 3, *options, "--json")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert (summary["sampler"], summary["arithmetic"]) == ("exact", arithmetic)
    assert summary["warnings"] == []
    sampler = dmq.samplers.ExactSampler(dmq.environments.combination_lock(3, rng=0), arithmetic)
    result = dmq.DMQ(sampler, eps_r=1e-25, ridge=1e-20, rng=0).learn()
    assert summary["counts"] == result.counts and summary["n_trajectories"] == result.n_trajectories
    shown = {"rational": "exact, rational", "60": "exact, 60 digits"}[given]
    assert f"sampler               {shown}\n" in run("run", "lock", "--horizon", 3, *options)[1]
    # Options of one's own keep the mixture that extended precision needs.
    paper = json.loads(run("run", "lock", "--horizon", 3, *options, "--variant", "paper", "--memo", "--json")[1])
    assert paper["options"]["mixture"] == "stratified" and paper["options"]["memo"]


def test_a_run_in_extended_precision_is_saved_and_resumed_without_a_journal(run, tmp_path):
    command = ["run", "lock", "--horizon", 3, "--sampler", "exact", "--arithmetic", "rational", "--json"]
    # More trajectories than 64 bits can count.
    command += ["--n-samples", 10**20]
    whole = json.loads(run(*command)[1])
    assert run(*command, "--out", tmp_path, "--max-policies", 1)[0] == 3
    assert sorted(os.listdir(tmp_path)) == ["command.json", "result.npz", "run.json"]
    assert dmq.load(tmp_path / "result.npz").status == "max_policies"
    code, out, _ = run("resume", tmp_path, "--max-policies", 100, "--json")
    assert code == 0
    again = json.loads(out)
    for name in ("value", "n_trajectories", "cover_sizes", "counts", "status"):
        assert again[name] == whole[name]


def test_broken_files_of_a_run_are_named_by_resume(run, tmp_path):
    def made(name):
        directory = tmp_path / name
        run("run", "lock", "--horizon", 3, "--n-samples", 3, "--out", directory, "--max-trajectories", 20)
        return directory

    for name in ("journal", "result.npz"):
        directory = made(f"with {name}")
        (directory / name).unlink()
        (directory / name).mkdir()
        code, out, err = run("resume", directory, "--max-trajectories", 9999)
        assert (code, out, err) == (2, "", f"dmq-fast resume {directory}: --out: {directory / name} is a directory\n")
    directory = made("with another command")
    command = json.loads((directory / "command.json").read_text())
    for wrong in ([], {**command, "arguments": 5}, {**command, "environment": ["lock"]}, {**command, "format": "1"}):
        (directory / "command.json").write_text(json.dumps(wrong))
        code, out, err = run("resume", directory)
        assert (code, out) == (2, "") and "command.json: not the command of a run (command" in err
    for text in ("[" * 100_000, "\ud800".encode(errors="surrogatepass")):
        (directory / "command.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        code, out, err = run("resume", directory)
        assert (code, out) == (2, "") and "command.json: not the command of a run (" in err


def test_a_broken_summary_is_written_again_and_refused_by_a_report(run, tmp_path):
    assert run("run", "lock", "--horizon", 3, "--n-samples", 3, "--out", tmp_path)[0] == 0
    path = tmp_path / "run.json"
    good = json.loads(path.read_text())
    for wrong in ([], {}, {**good, "counts": {}}, {**good, "value": "0.7"}, {**good, "parameters": {"ratio": "2"}}):
        path.write_text(json.dumps(wrong | {"status": "finished"} if isinstance(wrong, dict) else wrong))
        code, out, err = run("report", tmp_path, "--epsilon", 0.1)
        assert (code, out) == (2, "") and f"{path}: not the summary of a run (" in err
        code, out, err = run("resume", tmp_path, "--json")
        assert code == 0 and json.loads(out)["counts"] == good["counts"]
        assert json.loads(path.read_text())["counts"] == good["counts"]


def test_out_never_replaces_a_run_unasked(run, tmp_path):
    assert run("run", "chain", "--horizon", 3, "--out", tmp_path)[0] == 0
    assert sorted(os.listdir(tmp_path)) == ["command.json", "journal", "result.npz", "run.json"]
    before = (tmp_path / "result.npz").read_bytes()
    code, out, err = run("run", "chain", "--horizon", 4, "--out", tmp_path)
    assert (code, out) == (2, "")
    assert "holds a run already" in err
    assert (tmp_path / "result.npz").read_bytes() == before
    assert run("run", "chain", "--horizon", 4, "--out", tmp_path, "--overwrite")[0] == 0


WRONG = [
    ("run", "expected the name of an environment"),
    ("run lokc --horizon 3", "did you mean 'lock'"),
    ("run lock", "--horizon"),
    ("run lock --horizon five", "expected an integer, got 'five' (see dmq-fast run lock --help)"),
    (
        "learn lock --horizon 3 --epsilon x",
        "argument --epsilon: expected a number of points, or a share such as 5%, got 'x'",
    ),
    ("learn lock --horizon 3 --epsilon 1", "dmq-fast learn lock: --epsilon: expected a number in (0, 1), the width of"),
    ("learn lock --horizon 3 --mode fast", "argument --mode: invalid choice: 'fast'"),
    ("learn lock --horizon 3 --n-samples 5", "unrecognized arguments: --n-samples 5"),
    ("run lock --horizon 3 --epsilon 0.1", "unrecognized argument --epsilon"),
    ("learn --epsilon 0.1 lock", "did you mean 'learn lock --epsilon 0.1'?"),
    ("run lock --horizon 0", "dmq-fast run lock: --horizon: expected an integer >= 1, got 0"),
    ("run lock --horizon 3 --ratio -1", "ratio"),
    ("run lock --horizon 3 --nonsense 1", "nonsense"),
    ("run lock --horizon 3 --n-sample 1", "n-sample"),
    ("run lock --horizon 3 --seed -1", "--seed: expected an integer >= 0, got '-1'"),
    ("run lock --horizon 3 --sampler batch", "sampler"),
    (
        "run lock --horizon 3 --arithmetic 60",
        "--arithmetic: expected only with the sampler exact, got 60 with rollout",
    ),
    ("run lock --horizon 3 --sampler exact --arithmetic 5", "arithmetic: expected at least 20 digits, got 5"),
    ("run lock --horizon 3 --sampler exact --arithmetic x", "or a number of digits, got 'x'"),
    ("run lock --horizon 3 --final 1.5", "final"),
    ("run gym:NoSuch-v0 --horizon 3", "NoSuch"),
    ("run gym:CartPole-v1 --horizon 3 --through tables", "without P and initial_state_distrib"),
    ("run gym:CartPole-v1 --horizon 3 --through walls", "through: expected tables or step, got 'walls'"),
    (
        "run gym:CartPole-v1 --horizon 3 --features waves",
        "features: expected interpolation, fourier, tiles, rbf, seen or MODULE:FUNCTION",
    ),
    (
        "run gym:CartPole-v1 --horizon 3 --order 9",
        "4,096 features, got more by order 9 with 4 numbers; choose a smaller",
    ),
    ("run gym:CartPole-v1 --horizon 3 --sampler flow", "flow needs a FiniteMDP"),
    ("run gym:Pendulum-v1 --horizon 3", "expected a Discrete action space"),
    ("learn gym:Pendulum-v1", "expected a Discrete action space, got Box"),
    ("run gym:FrozenLake-v1 --horizon 3 --through step --order 3", "order: expected none for observations in Disc"),
    ("run gym:FrozenLake-v1 --horizon 3 --make through=step", "--through"),
    ("run cart-pole --features waves", "features: expected one of interpolation, fourier, tiles, rbf, got 'waves'"),
    ("run cart-pole --order 0", "order: expected an integer >= 1"),
    ("run mountain-car --sampler exact", "exact needs a FiniteMDP"),
    ("run gym:CliffWalking-v1", "--horizon"),
    ("run gym:FrozenLake-v1 --horizon 3 --make slippery", "KEY=VALUE"),
    ("run gym:FrozenLake-v1 --horizon 3 --make horizon=5", "--horizon"),
    ("run gym:FrozenLake-v1 --horizon 3 --make map_name=9x9", "9x9"),
    ("run lock --horizon 3 --function-class finite:eps_t=1e-320 --ratio 1e10", "float64"),
    ("run lock --horizon 3 --out /proc/nowhere", "nowhere"),
    ("resume", "DIR"),
    ("resume /nowhere", "there is no directory /nowhere"),
    ("run lock --horizon 3 --workers 0", "--workers: expected an integer >= 1"),
    ("run lock --horizon 3 --ratio 3 --function-class finite:eps_s=1,eps_t=2", "--ratio: expected 2, which Finite"),
    ("run lock --horizon 3 --initial uniforn", "--initial: expected uniform, fixed, or actions such as 0,1,2, got"),
    ("run lock --horizon 3 --initial 0,1", "--initial: expected 3 rules, one a level, got 2"),
    ("run lock --horizon 3 --function-class quadratic", "--function-class: expected linear, finite or module:func"),
    ("run lock --horizon 3 --function-class finite", "--function-class: expected eps_s or eps_t"),
    ("run lock --horizon 3 --function-class finite:scale=x", "finite: scale: expected a number, got 'x'"),
    ("run lock --horizon 3 --function-class linear:scale=2", "with KEY among none, got 'scale=2'"),
    ("run lock --horizon 3 --function-class no_such_module:make", "cannot be imported: ModuleNotFoundError"),
    ("run lock --horizon 3 --function-class math:pi", "--function-class: expected a function, and 'math:pi' is fl"),
    ("run lock --horizon 3 --function-class time:time", "expected time:time() to return a FunctionClass, got"),
    ("run lock --horizon 3 --function-class math:sqrt", "math:sqrt() failed: TypeError"),
    ("bench", "BENCHMARK"),
    ("bench orakel", "orakel"),
    ("bench oracle --d 0", "--d: expected an integer >= 1, got '0'"),
    ("bench oracle --d 4,-8", "--d: expected an integer >= 1, got '-8'"),
    ("bench oracle --d 4,,8", "--d: expected an integer >= 1, got ''"),
    ("bench oracle --d 2.5", "--d: expected an integer >= 1, got '2.5'"),
    ("bench oracle --d 1000000", "--d: expected dimensions up to 4096, got 1000000"),
    ("bench oracle --n 0", "--n: expected an integer >= 1, got '0'"),
    ("bench oracle --json /nowhere/x.json", "--json: there is no directory /nowhere"),
    ("bench oracle --json /", "--json: / is a directory"),
    ("", "COMMAND"),
    ("fly", "fly"),
]


def test_a_wrong_command_line_exits_with_2_and_says_why(run):
    for arguments, words in WRONG:
        code, out, err = run(*arguments.split())
        assert (code, out) == (2, ""), arguments
        assert words in err and len(err.splitlines()) == 1, (arguments, err)


def test_help_names_exit_codes(run):
    for command, codes in {
        **dict.fromkeys(("envs", "algorithms", "status", "theory", "report", "bench oracle"), "024"),
        **dict.fromkeys(("run", "resume", "run lock", "learn lock", "run gym:Taxi-v4", "run cart-pole"), "01234"),
        "learn --env-file mine.py:make": "01234",
        "merge": "0124",
        "": "01234",
    }.items():
        code, out, _ = run(*command.split(), "--help")
        listed = re.findall(r"^  (\d)    \S", out.partition("exit codes:")[2], re.MULTILINE)
        assert (code, "".join(listed)) == (0, codes), command
        assert ("budget" in out.partition("exit codes:")[2]) == ("3" in codes)
        if "lock" in command:
            assert "--p-success" in out and "Number of levels H >= 1. Required." in out


def test_help_says_of_every_argument_what_its_docstring_says(run):
    for command, learner in (("learn", "self-stopping"), ("run", "dmq")):
        out = " ".join(run(command, "lock", "--help")[1].split())
        for one in (*decisions_of(learner), *resources_of(learner)):
            assert f"--{one.name.replace('_', '-')} " in out and one.help[:25] in out.replace("- ", "-"), one.name
        assert "--max-policies" in out if learner == "dmq" else "--max-policies" not in out
    every = inspect.signature(dmq.DMQ).parameters.keys() | inspect.signature(dmq.Options).parameters.keys()
    assert {one.name for one in decisions_of("dmq")} == every - {"env", "rng"} | {"sampler", "arithmetic"}
    own = {"epsilon", "delta", "mode", "p_min", "value_range", "noise", "homogeneous"}
    assert {one.name for one in decisions_of("self-stopping")} == own


def test_envs_lists_what_there_is(run):
    code, out, _ = run("envs")
    assert code == 0
    listing = json.loads(run("envs", "--json")[1])
    assert {"mountain-car", "cart-pole"} <= set(listing)
    for name, parameters in listing.items():
        assert f"{name}\n" in out
        for parameter in parameters:
            assert f"--{parameter['name'].replace('_', '-')}" in out
    assert "gym:ID" in out and "--through" in out


def test_one_environment_is_described(run):
    code, out, _ = run("envs", "lock")
    assert code == 0 and out.startswith("lock\n") and "--p-success" in out and "chain" not in out
    (found,) = json.loads(run("envs", "lock", "--json")[1]).values()
    assert found["parameters"] == json.loads(run("envs", "--json")[1])["lock"] and found["summary"]
    assert "--through" in run("envs", "gym:FrozenLake-v1")[1]
    assert "--horizon" in run("envs", "obstinate:unlucky")[1] and "--rng" not in run("envs", "obstinate:unlucky")[1]
    for name, words in (("lok", "did you mean 'lock'?"), ("no_such:x", "No module named")):
        code, out, err = run("envs", name)
        assert (code, out, err.count("\n")) == (2, "", 1) and words in err


def test_algorithms_are_described_with_every_parameter_that_a_sweep_takes(run):
    listing = json.loads(run("algorithms", "--json")[1])
    assert list(listing) == list(algorithms.REGISTRY)
    out = run("algorithms")[1]
    for name, found in listing.items():
        assert f"  {name} " in out and found["summary"]
        names = list(inspect.signature(algorithms.find(name)).parameters)[2:]
        assert [parameter["name"] for parameter in found["parameters"]] == names
        assert all(parameter["help"] for parameter in found["parameters"]), name
        code, one, _ = run("algorithms", name)
        assert code == 0 and all(f"\n  {parameter} " in one for parameter in names)
    defaults = {parameter["name"]: parameter["default"] for parameter in listing["dmq"]["parameters"]}
    assert defaults["n_samples"] == 100 and defaults["variant"] == "sound"
    assert "(default 1000)" in run("algorithms", "rlsvi")[1]
    assert run("algorithms", "obstinate:sleepy")[1].splitlines() == [
        "obstinate:sleepy",
        "Leaves its process id in `directory` and sleeps, for some seconds or for none.",
        "  directory       (required)",
        "  seconds         (default 600.0)",
    ]
    for name, words in (("rlsv", "did you mean 'rlsvi'?"), ("no_such:x", "No module named")):
        code, out, err = run("algorithms", name)
        assert (code, out, err.count("\n")) == (2, "", 1) and words in err


def test_version(run):
    assert run("--version")[1] == f"dmq-fast {dmq.__version__}\n"


def environment_without_threads():
    return {name: value for name, value in os.environ.items() if name not in BLAS_THREADS}


def in_a_new_process(code):
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment_without_threads(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_blas_runs_on_one_thread():
    done = in_a_new_process(
        "import os, sys; from dmq_fast import cli; assert 'numpy' not in sys.modules; cli.main(['envs', '--json']); "
        "assert 'numpy' in sys.modules; print(os.environ['OPENBLAS_NUM_THREADS'])"
    )
    assert done.stdout.split()[-1] == "1", done.stderr


def test_numpy_loads_after_the_arguments_are_read():
    modules = [f"dmq_fast.cli.{name}" for _, name, _ in pkgutil.iter_modules(cli.__path__)]
    helps = [["--help"], *([name, "--help"] for name in cli.COMMANDS if name not in ("learn", "run", "resume"))]
    done = in_a_new_process(
        f"import sys, {', '.join(modules)}\n"
        f"for arguments in {[*helps, ['bench', 'oracle', '-h']]!r}:\n"
        "    try: dmq_fast.cli.main(arguments)\n"
        "    except SystemExit: print('ended', 'numpy' in sys.modules)\n"
    )
    assert done.stdout.count("usage: dmq-fast") == done.stdout.count("ended False") == len(helps) + 1, done.stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_ends_the_run_with_what_was_learned(tmp_path, number, code):
    command = [sys.executable, "-P", "-m", "dmq_fast", "run", "deep-sea", "--size", "40", "--n-samples", "1000000"]
    out = tmp_path / "out"
    process = subprocess.Popen([*command, "--out", out, "--json"], stdout=subprocess.PIPE, text=True)
    with process:
        deadline = time.monotonic() + 60
        while not out.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1.0)
        process.send_signal(number)
        printed, _ = process.communicate(timeout=20)
    assert process.returncode == code
    assert json.loads(printed)["status"] == "interrupted"
    assert dmq.load(out / "result.npz").status == "interrupted"


QUICK_SWEEP = '[[environments]]\nname = "chain"\nhorizon = 3\n[[algorithms]]\nname = "ucb-q"\n'

# Runs a command that sends itself a signal where it calls the function NAME of its module, and goes on.
PRESSING = """
import os, sys
import dmq_fast.cli.{module} as module
from dmq_fast import cli

real = module.{name}

def pressing(*given, **named):
    os.kill(os.getpid(), {number:d})
    return real(*given, **named)

module.{name} = pressing
sys.exit(cli.main(sys.argv[1:]))
"""

LATE = {
    "run described": ("run", "summarise", "run lock --horizon 4 --n-samples 20 --out saved --json", "saved/run.json"),
    "run saved": ("run", "save", "run lock --horizon 4 --n-samples 20 --out saved --json", "saved/result.npz"),
    "run printed": ("run", "show", "learn lock --horizon 4 --epsilon .2 --json", None),
    "sweep": ("sweep", "rows_of", "sweep spec.toml --out swept --export rows.csv --workers 0 --json", "rows.csv"),
    "bench": ("bench", "write_text", "bench oracle --d 2 --n 1 --json bench.json", "bench.json"),
    "report": ("report", "write_bytes", "report run", "run/report.html"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LATE)
def test_a_signal_after_the_work_takes_nothing_away(run, name, tmp_path):
    module, function, command, saved = LATE[name]
    number, code = (signal.SIGINT, 130) if name == "run saved" else (signal.SIGTERM, 143)
    if name == "report":
        assert run("run", "lock", "--horizon", 3, "--n-samples", 20, "--out", tmp_path / "run")[0] == 0
    (tmp_path / "spec.toml").write_text(QUICK_SWEEP)
    script = PRESSING.format(module=module, name=function, number=number)
    line = [sys.executable, "-P", "-c", script, *command.split()]
    ended = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, "Traceback" in ended.stderr) == (code, False), ended.stderr
    assert ended.stdout and (saved is None or (tmp_path / saved).stat().st_size > 0)
    if "--json" in command and name != "bench":
        json.loads(ended.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_the_work_has_its_exit_code(tmp_path, number, code):
    for module, name, command in (
        ("run", "prepare", "run chain --horizon 3"),
        ("bench", "claim_file", "bench oracle --json x"),
    ):
        script = PRESSING.format(module=module, name=name, number=number)
        ended = subprocess.run(
            [sys.executable, "-P", "-c", script, *command.split()], cwd=tmp_path, capture_output=True
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (code, b"", b"")


# Sends a signal to itself where Python drops exceptions, and then works for hours, unless it is stopped.
DROPPING = """
import ctypes, gc, os, sys, weakref
from dmq_fast.cli.terminal import signals

class Thing:
    pass

class Closing:
    def __del__(self):
        press()

def press(*_):
    os.kill(os.getpid(), 15)
    for i in range(1000):
        pass
    return 0

def weak_reference():
    thing = Thing()
    kept = weakref.ref(thing, press)
    del thing
    return kept

def collector():
    gc.callbacks.append(press)
    try:
        gc.collect()
    finally:
        gc.callbacks.clear()

def caught():
    try:
        press()
    except BaseException:
        return

places = {
    "weak reference": weak_reference,
    "__del__": lambda: Closing() and None,
    "collector": collector,
    "ctypes": lambda: ctypes.CFUNCTYPE(ctypes.c_int)(press)(),
    "caught": caught,
}

def work():
    look = signals.checking(None)
    places[sys.argv[1]]()
    for i in range(10**10):
        if sys.argv[1] == "caught":
            look(i)

with signals.listening(), signals.held():
    assert signals.attempt(work) is None
    print("stopped", len(signals.received))
    sys.exit(signals.code(0))
"""


@pytest.mark.parametrize("place", ["weak reference", "__del__", "collector", "ctypes", "caught"])
def test_a_signal_is_not_lost_where_python_drops_exceptions(place):
    line = [sys.executable, "-P", "-c", DROPPING, place]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (143, "stopped", "")
    assert done.stdout == "stopped 1\n" or place == "collector"  # it is called twice


SWALLOWING = """
import os, signal
import numpy as np

class Stepped:
    horizon, n_actions, dimension = 3, 2, 1
    def reset(self, n, rng):
        return np.zeros(n)
    def features(self, level, states):
        return np.ones((len(states), 1))
    def step(self, level, states, actions, rng):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException:
            pass
        return states, rng.random(len(states))
"""


@pytest.mark.parametrize("command", ["learn", "run", "sweep"])
def test_an_environment_that_catches_everything_does_not_keep_a_run_going(tmp_path, command):
    (tmp_path / "mine.py").write_text(SWALLOWING)
    (tmp_path / "spec.toml").write_text("seeds = 50\n" + SPEC_OF_MINE.format("mine:Stepped"))
    line = (
        "sweep spec.toml --out out --workers 0"
        if command == "sweep"
        else f"{command} --env-file mine.py:Stepped --json"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "dmq_fast", *line.split()],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 143, done.stderr
    if command == "sweep":
        assert "stopped; the same command does the remaining runs" in done.stderr
    else:
        assert json.loads(done.stdout)["status"] == "interrupted"


def test_a_second_signal_leaves_a_reader_that_reads_no_more(tmp_path):
    """The report is larger than a pipe holds."""
    read, write = os.pipe()
    script = (
        "import os, sys, threading, time\nfrom dmq_fast.cli import terminal\n"
        "def press():\n    for _ in range(2):\n        time.sleep(0.3)\n        os.kill(os.getpid(), 15)\n"
        "threading.Thread(target=press).start()\n"
        "with terminal.signals.listening(), terminal.signals.held():\n"
        "    try:\n        terminal.show('run', 'x' * 10**6, 0)\n"
        "    except KeyboardInterrupt:\n        terminal.forget_output()\n    sys.exit(terminal.signals.code(0))\n"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", script], stdout=write) as process:
        assert process.wait(timeout=20) == 143
    os.close(read), os.close(write)


def test_a_run_that_cannot_be_saved_is_reported_all_the_same(run, tmp_path, monkeypatch):
    def full(*arguments, **arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.savez_compressed", full)
    code, out, err = run("run", "chain", "--horizon", 4, "--out", tmp_path, "--json")
    assert code == 4
    assert json.loads(out)["status"] == "ended"
    assert "No space left" in err
    assert sorted(os.listdir(tmp_path)) == ["command.json", "journal"]
    monkeypatch.undo()
    code, again, _ = run("resume", tmp_path, "--json")
    assert code == 0
    assert json.loads(again)["counts"] == json.loads(out)["counts"]


def test_a_directory_in_the_way_is_noticed_before_the_run(run, tmp_path):
    (tmp_path / "run.json").mkdir()
    code, out, err = run("run", "chain", "--horizon", 4, "--out", tmp_path)
    assert (code, out) == (2, "")
    assert "is a directory" in err


MINE = """
import numpy as np
from dmq_fast.environments import combination_lock
from dmq_fast.samplers import RolloutSampler, Sampler


class Coin:
    # One state; action 1 pays 1/3 with probability p.

    horizon, n_actions, dimension = 3, 2, 1

    def __init__(self, p=0.5, fail_at=None):
        self.p, self.fail_at, self.steps = p, fail_at, 0

    def reset(self, n, rng):
        return np.zeros(n)

    def features(self, level, states):
        return np.ones((len(states), 1))

    def step(self, level, states, actions, rng):
        self.steps += 1
        if self.steps == self.fail_at:
            raise ZeroDivisionError("the simulator broke")
        return states, actions * (rng.random(len(states)) < self.p) / 3


class Broke(Coin):
    # Its rewards are numbers until they are not.

    def step(self, level, states, actions, rng):
        self.steps += 1
        return states, np.full(len(states), np.nan if self.steps == 12 else 0.1)


class Bare(Sampler):
    # A sampler with what it must have and nothing more.

    value_range = (0, 1)

    def __init__(self):
        self.inner = RolloutSampler(combination_lock(3, rng=0, p_success=0.9))
        self.horizon, self.n_actions, self.dimension = 3, self.inner.n_actions, self.inner.dimension

    def collect_chunk(self, policy, n, **request):
        return self.inner.collect_chunk(policy, n, **request)


def lock(horizon, seed=0):
    return combination_lock(horizon, rng=seed)


def sampler():
    return RolloutSampler(combination_lock(4, rng=0))


def boom():
    raise RuntimeError("two\\nlines")


def leaves():
    raise SystemExit(7)


def three():
    return 3


value = 5
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    yield path
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) == str(path):
            del sys.modules[name]


def test_an_environment_of_ones_own_runs_and_its_value_is_estimated(run, mine):
    code, out, err = run("run", "--env-file", f"{mine}:Coin", "--make", "p=0.25", "--json", "--n-samples", 200)
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert summary["environment"] == f"{mine}:Coin"
    assert summary["environment_parameters"] == {"p": 0.25}
    assert summary["environment_seed"] is summary["optimal_value"] is summary["gap"] is None
    assert summary["value_trajectories"] == 1000
    assert abs(summary["value"] - 0.25) < 5 * summary["value_standard_error"]
    assert 0 < summary["value_standard_error"] < 0.02
    assert summary["horizon"] == 3 and summary["dimension"] == 1
    assert (
        json.loads(run("run", f"--env-file={mine}:Coin", "--make", "p=0.25", "--json", "--n-samples", 200)[1])["value"]
        == summary["value"]
    )


def test_check_lists_what_is_wrong_and_runs_nothing(run, mine, tmp_path):
    code, out, err = run("run", "--env-file", f"{mine}:Coin", "--check", "--out", tmp_path / "out")
    assert (code, err) == (0, "") and "held   the same generator gave the same episodes" in out
    code, out, err = run(
        "run", "--env-file", f"{mine}:Coin", "--make", "p=2", "--make", "fail_at=2", "--check", "--json"
    )
    report = json.loads(out)
    assert (code, err) == (1, "") and report["environment"] == "Coin"
    assert report["faults"][0].startswith("step, level 1: ZeroDivisionError: the simulator broke")
    for named in (["lock", "--horizon", 3], ["cart-pole", "--horizon", 3], ["--env-file", f"{mine}:sampler"]):
        code, out, _ = run("run", *named, "--check")
        assert code == 0 and "wrong" not in out
    code, out, err = run("run", "--env-file", f"{mine}:Bare", "--check")
    assert (code, out) == (2, "") and "--check: expected an environment, got the sampler Bare" in err
    assert not (tmp_path / "out").exists()


def test_the_table_says_that_a_value_is_estimated(run, mine):
    _, out, _ = run("run", "--env-file", f"{mine}:Coin", "--evaluate", 50, "--n-samples", 200)
    assert re.search(r"value \(estimate\) +0\.\d+ \+- 0\.\d+, mean and standard error of 50 fresh trajectories\n", out)
    assert re.search(r"\nuniform play +0\.\d+, mean of 50 fresh trajectories\n", out)


def test_a_long_name_does_not_touch_what_stands_beside_it(run, tmp_path):
    file = tmp_path / "an_environment_of_my_own.py"
    file.write_text("from dmq_fast.environments import combination_lock as lock\n")
    _, out, _ = run("run", "--env-file", f"{file}:lock", "--make", "horizon=2")
    assert re.search(r"^\S{22,} horizon=2\n", out)


def test_no_estimate_where_none_is_wanted(run, mine):
    code, out, _ = run("run", "--env-file", f"{mine}:Coin", "--evaluate", 0)
    assert code == 0 and "unknown: not estimated" in out
    summary = json.loads(run("run", "--env-file", f"{mine}:Coin", "--evaluate", 1, "--json")[1])
    assert summary["value_trajectories"] == 1 and summary["value_standard_error"] is None


def test_values_are_exact_where_there_are_tables(run, mine):
    for arguments in ("lock --make horizon=4 --make seed=3", "lock --make horizon=4 --sampler flow", "sampler"):
        name, *rest = arguments.split()
        summary = json.loads(run("run", "--env-file", f"{mine}:{name}", *rest, "--json")[1])
        assert summary["value"] == summary["optimal_value"] == pytest.approx(0.7)
        assert summary["value_standard_error"] is summary["value_trajectories"] is None


def test_any_sampler_runs(run, mine):
    summary = json.loads(run("run", "--env-file", f"{mine}:Bare", "--evaluate", 400, "--json")[1])
    best = dmq.environments.combination_lock(3, rng=0, p_success=0.9).optimal_value
    assert abs(summary["value"] - best) < 5 * summary["value_standard_error"]


def test_a_run_whose_environment_fails_is_reported_and_saved(run, mine, tmp_path):
    code, out, err = run(
        "run", "--env-file", f"{mine}:Coin", "--make", "fail_at=9", "--json", "--out", tmp_path / "out"
    )
    assert code == 1
    assert "ZeroDivisionError: the simulator broke" in err and "raised in step of the environment: level" in err
    assert json.loads(out)["status"] == dmq.load(tmp_path / "out" / "result.npz").status == "failed"
    assert json.loads(out)["value"] is None


@pytest.mark.parametrize(("error", "code"), [(ZeroDivisionError("late"), 1), (KeyboardInterrupt(), 130)])
def test_an_estimate_that_fails_or_is_interrupted_loses_nothing(run, mine, monkeypatch, error, code):
    def estimate(*arguments, **settings):
        raise error

    monkeypatch.setattr("dmq_fast.samplers.estimate_value", estimate)
    found, out, _ = run("run", "--env-file", f"{mine}:Coin", "--json")
    assert found == code
    assert json.loads(out)["status"] == "ended" and json.loads(out)["value"] is None


WRONG_FILES = [
    ("FILE", "expected FILE:NAME"),
    ("FILE:", "expected FILE:NAME"),
    (":lock", "expected FILE:NAME"),
    ("FILE:nope", "expected a function nope in .*mine.py, got no such name"),
    ("FILE:value", "expected a function value in .*, got int of that name"),
    ("FILE:boom", r"boom\(\) in .*mine.py failed: RuntimeError: two lines, line \d+$"),
    ("FILE:leaves", r"leaves\(\) .* failed: SystemExit: 7"),
    ("FILE:three", r"three\(\) in .*: env: expected an environment, a sampler, .*, got int$"),
    ("FILE:lock", r"--make: expected horizon=VALUE, since lock has no default for it"),
    ("FILE:lock --make horizon=0", r"lock\(\) .* failed: ValueError: horizon"),
    ("FILE:Coin --make", "--make"),
    ("FILE:Coin --env-seed 3", "--env-seed"),
    ("FILE:Coin --evaluate -1", "--evaluate"),
    ("FILE:Coin --sampler flow", "--sampler: flow needs a FiniteMDP"),
    ("FILE:Coin lock", "lock"),
    ("FILE:Coin --n-samples 0", "--n-samples: expected an integer >= 1, got 0"),
    ("nowhere.py:lock", "there is no file nowhere.py"),
]


def test_a_wrong_env_file_exits_with_2_and_one_line(run, mine):
    for arguments, words in WRONG_FILES:
        code, out, err = run("run", "--env-file", *arguments.replace("FILE", str(mine)).split())
        assert (code, out) == (2, "")
        last = err.splitlines()[-1]
        assert re.search(words, last) and last.startswith("dmq-fast run: ") and "Traceback" not in err, arguments


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = (", "SyntaxError"),
        ("import no_such_module", "no_such_module', line 1"),
        ("\n1 / 0", "ZeroDivisionError: division by zero, line 2"),
    ],
)
def test_a_file_that_does_not_load_exits_with_2_and_one_line(run, mine, text, words):
    mine.write_text(text)
    code, out, err = run("run", "--env-file", f"{mine}:make")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and "does not load" in err and words in err


def test_a_file_finds_those_beside_it_and_may_have_any_name(run, mine):
    (mine.parent / "json.py").write_text("from mine import lock")
    summary = json.loads(run("run", "--env-file", f"{mine.parent}/json.py:lock", "--make", "horizon=3", "--json")[1])
    assert summary["value"] == pytest.approx(0.7)
    assert "JSONDecoder" in dir(sys.modules["json"])


def test_a_named_environment_takes_no_file(run, mine):
    code, _, err = run("run", "lock", "--horizon", 3, "--env-file", f"{mine}:lock")
    assert code == 2 and "--env-file" in err


PROMISED = {"d", "method", "kind", "min_us", "median_us", "ratio"}


def test_bench_oracle_prints_one_object(run):
    code, out, err = run("bench", "oracle", "--d", "4,2", "--n", 3, "--json", "-")
    assert code == 0
    result = json.loads(out)
    assert result["benchmark"] == "oracle" and result["rounds"] == 3
    assert set(result) >= {"machine", "versions", "warnings", "measurements"}
    assert result["versions"]["dmq_fast"] == dmq.__version__
    assert err == "".join(f"warning: {warning}\n" for warning in result["warnings"])
    rows = result["measurements"]
    assert [row["d"] for row in rows] == sorted(row["d"] for row in rows)
    assert {row["d"] for row in rows} == {2, 4}
    for d in (2, 4):
        of_d = [row for row in rows if row["d"] == d]
        assert {row["kind"] for row in of_d} == {"ours", "alternative", "floor"}
        alternatives = [row for row in of_d if row["kind"] == "alternative"]
        for row in of_d:
            assert set(row) == PROMISED
            assert 0.0 < row["min_us"] <= row["median_us"]
            best = min(alternative["median_us"] for alternative in alternatives)
            assert row["ratio"] == pytest.approx(best / row["median_us"])


@pytest.mark.slow
def test_bench_oracle_prints_a_table_and_saves(run, tmp_path):
    saved = tmp_path / "oracle.json"
    code, out, _ = run("bench", "oracle", "--d", 2, "--n", 1, "--json", saved)
    assert code == 0
    assert out.startswith("d = 2 ") and "x best" in out and "f2py dsygvx" in out
    assert max(map(len, out.splitlines())) <= 120
    assert json.loads(saved.read_text())["measurements"][0]["d"] == 2


@pytest.mark.parametrize("several", [True, False])
def test_a_benchmark_says_where_times_do_not_compare(several, monkeypatch):
    from dmq_fast.experiments import oracle_bench

    monkeypatch.setattr("dmq_fast._support.threads.several_threads", lambda: several)
    assert oracle_bench.measure([2], 1)["warnings"] == [oracle_bench.THREADS] * several


def test_a_wrong_answer_is_not_timed():
    from dmq_fast.experiments import oracle_bench

    wrong = oracle_bench.Method("wrong", oracle_bench.OURS, lambda: 1, lambda answer: answer == 2)
    with pytest.raises(RuntimeError, match=r"wrong, d = 3: wrong answer 1"):
        oracle_bench.interleaved([wrong], 1, 3)


PRINTING = {
    "run": ("run lock --horizon 4 --n-samples 20 --out saved", "saved/result.npz"),
    "run that stops": ("learn lock --horizon 4 --epsilon .2 --json --out saved", "saved/result.npz"),
    "sweep": ("sweep spec.toml --out swept --export rows.csv --workers 0 --quiet", "rows.csv"),
    "bench": ("bench oracle --d 2 --n 1 --json bench.json", "bench.json"),
}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
@pytest.mark.parametrize(
    "name", ["run", *(pytest.param(name, marks=pytest.mark.slow) for name in PRINTING if name != "run")]
)
def test_what_cannot_be_printed_is_saved(name, tmp_path):
    """On a full disk the command says so and has its exit code; a reader that goes away is no mistake."""
    command, saved = PRINTING[name]
    (tmp_path / "spec.toml").write_text(QUICK_SWEEP)
    line = [sys.executable, "-P", "-m", "dmq_fast", *command.split()]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(line, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 4 and "could not print: [Errno 28]" in ended.stderr
    assert "Traceback" not in ended.stderr and (tmp_path / saved).stat().st_size > 0
    for path in tmp_path.iterdir():
        path.rename(tmp_path.parent / f"{path.name} of before {name}") if path.name != "spec.toml" else None
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(line, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (0, "") and (tmp_path / saved).stat().st_size > 0


CLOSED = {
    "run, output": ("run lock --horizon 4 --n-samples 20 --out saved", 1, 4),
    "run, errors": ("run lock --horizon 4 --n-samples 20 --out saved", 2, 0),
    "sweep, errors": ("sweep spec.toml --out saved --workers 1", 2, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLOSED)
def test_a_command_works_without_its_standard_descriptors(name, tmp_path):
    command, closed, code = CLOSED[name]
    (tmp_path / "spec.toml").write_text(QUICK_SWEEP)
    line = ["sh", "-c", f'exec "$@" {closed}>&-', "sh", sys.executable, "-P", "-m", "dmq_fast", *command.split()]
    ended = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == code
    if closed == 1:
        assert "could not print: standard output is closed" in ended.stderr
    else:
        assert "ended" in ended.stdout
    assert len(list((tmp_path / "saved").iterdir())) >= 1


def test_a_run_of_ones_own_environment_resumes(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from dmq_fast.environments import chain\n\ndef make(horizon):\n    return chain(horizon, rng=0)\n"
    )
    command = ["run", "--env-file", "mine.py:make", "--make", "horizon=6", "--n-samples", 20, "--json"]
    whole = json.loads(run(*command)[1])
    code, _, _ = run(*command, "--out", "run1", "--max-trajectories", 500)
    assert code == 3
    code, out, _ = run("resume", "run1", "--json", "--max-trajectories", 10**6)
    assert code == 0
    again = json.loads(out)
    for name in ("value", "n_trajectories", "cover_sizes", "counts", "status"):
        assert again[name] == whole[name]


@pytest.mark.slow
def test_environments_are_closed(run, tmp_path, monkeypatch):
    """By a run, by its workers, and by every run of a sweep: wrappers write in `close`."""
    # Workers find the module by the name of its file, which other tests may have given to another object.
    monkeypatch.delitem(sys.modules, "line", raising=False)
    closed = tmp_path / "closed"
    closed.mkdir()
    given = ["--env-file", f"{os.path.dirname(__file__)}/line.py:closing", "--make", f"directory={closed}"]
    assert run("run", *given, "--n-samples", 100, "--workers", 2, "--quiet")[0] == 0
    assert str(os.getpid()) in os.listdir(closed) and len(os.listdir(closed)) >= 2
    for path in closed.iterdir():
        path.unlink()
    spec_text = f'[[environments]]\nname = "line:closing"\ndirectory = "{closed}"\n'
    (tmp_path / "spec.toml").write_text(spec_text + '[[algorithms]]\nname = "dmq"\nn_samples = 20\n')
    assert run("sweep", tmp_path / "spec.toml", "--out", tmp_path / "out", "--workers", 1)[0] == 0
    assert len(os.listdir(closed)) == 2  # the check of the parameters, and the worker


def test_warnings_known_beforehand_are_printed_at_once_and_once(run):
    command = ["run", "lock", "--horizon", 3, "--n-samples", 5, "--ratio", 1, "--max-trajectories", 50]
    for more in ([], ["--quiet"], ["--json"]):
        _, out, err = run(*command, *more)
        assert err == "warning: R = eps_t / eps_s = 1 <= 1: the oracle can return True on what is covered already\n"
        assert out.count("R = eps_t / eps_s = 1 <= 1") == 1
    assert logging.getLogger("dmq_fast").handlers == []


def test_a_sweep_says_its_warnings_once_and_counts_those_of_its_runs(run, tmp_path):
    spec = tmp_path / "small.toml"
    spec.write_text(
        'name = "small"\nseeds = 3\n[[environments]]\nname = "lock"\nhorizon = [3, 4]\n'
        '[[algorithms]]\nname = "dmq"\nratio = 1\nn_samples = 5\nmax_trajectories = 20\n'
    )
    message = "of dmq: R = eps_t / eps_s = 1 <= 1: the oracle can return True on what is covered already"
    code, out, err = run("sweep", spec, "--out", tmp_path / "out", "--workers", 0, "--quiet")
    assert code == 0 and err == f"warning: 2 cells {message}\n"
    assert f"warning: 6 runs {message}\n" in out
    _, out, _ = run("sweep", spec, "--out", tmp_path / "out", "--workers", 0, "--quiet", "--json")
    assert f"6 runs {message}" in json.loads(out)["run_warnings"]


# Rewards


def test_values_of_make_are_numbers_as_python_writes_them():
    for text, value in {
        ".000733": 0.000733, "1.": 1.0, "+1": 1, "-.5": -0.5, "1e-3": 1e-3, "+2.5E+1": 25.0, "3": 3, "true": True,
        "[1, 2]": [1, 2], "inf": "inf", "007": "007", "1.2.3": "1.2.3", ".": ".", "-": "-", "": "", "1_0": "1_0",
    }.items():  # fmt: skip
        key, read = key_value(f"scale={text}")
        assert (key, read, type(read)) == ("scale", value, type(value)), text


def test_a_range_is_declared_in_any_spelling(run):
    def found(*given):
        code, out, err = run("learn", "lock", "--horizon", 3, *given, "--json")
        assert (code, err) == (0, ""), given
        return json.loads(out)["stopping"]["rewards"]["value_range"]

    for given in (["-2", "1.5"], ["-2,1.5"], ["-2e0", "1.5"], ["-2,1.5/-2,1.5/-2,1.5"]):
        assert found("--epsilon", 0.1, "--value-range", *given) == [-2.0, 1.5]
    assert found("--value-range=-2,1.5") == [-2.0, 1.5]
    assert found("--epsilon", "10%", "--value-range", "seen")[0] == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--value-range 3", "--value-range: expected the least and the largest sum of rewards, such as -20,0, or seen"),
        ("--value-range 1 x", "--value-range: expected the least and the largest sum"),
        ("--value-range 2 1", "--value-range: expected (low, high)"),
        ("--noise -1", "--noise: expected"),
        ("--epsilon 500%", "--epsilon: expected a number of points, or a share such as '5%'"),
        ("--epsilon 2", "--epsilon: expected a number in (0, 1), the width of the value range"),
    ],
)
def test_what_declares_no_rewards_is_refused(run, options, message):
    code, out, err = run("learn", "lock", "--horizon", 3, *options.split())
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1


def test_a_share_that_a_stopped_run_does_not_know_in_points_yet_is_not_named_as_known(run):
    given = ("learn", "chain", "--horizon", 5, "--epsilon", "10%")
    assert "--epsilon 5%\n" in run("learn", "--help")[1]  # the example, as it is typed
    line = "10% of the way from uniform play to the best"
    assert f" ({line}), delta" in run(*given)[1]
    assert f" so far (to be {line}), delta" in run(*given, "--max-trajectories", 40)[1]


def test_rewards_that_are_refused_cost_a_line_and_not_what_was_played(run, mine, tmp_path):
    """The package refuses what an environment paid: no traceback, and the run so far is saved."""
    options = ("--env-file", f"{mine}:Broke", "--out", tmp_path / "out", "--n-samples", 20)
    code, out, err = run("run", *options)
    assert code == 2 and "Traceback" not in err
    (line,) = [line for line in err.splitlines() if line.startswith("dmq-fast run")]
    assert "reward" in line
    assert "status                failed" in out
    assert dmq.load(tmp_path / "out" / "result.npz").status == "failed"


def test_messages_name_the_options_of_the_shell():
    said = "outside of value_range = (0, 1): declare value_range=(-3, 1), or noise=, the standard deviation"
    assert (
        as_options(said)
        == "outside of --value-range 0 1: declare --value-range -3 1, or --noise, the standard deviation"
    )


# Working directories

WANDERING = """
import os
import numpy as np
import dmq_fast as dmq

def made():
    os.chdir({elsewhere!r})
    return dmq.environments.chain(4, rng=0)

class Stepped:
    horizon, n_actions, dimension = 3, 2, 1
    def reset(self, n, rng):
        os.chdir({elsewhere!r})
        return np.zeros(n)
    def features(self, level, states):
        return np.ones((len(states), 1))
    def step(self, level, states, actions, rng):
        return states, np.full(len(states), 0.1)

os.chdir({elsewhere!r}) if {at_once} else None
"""
SPEC_OF_MINE = 'max_trajectories = 50\n[[environments]]\nname = "{}"\n[[algorithms]]\nname = "dmq"\nn_samples = 5\n'


@pytest.mark.parametrize(
    "where", ["made", *(pytest.param(name, marks=pytest.mark.slow) for name in ("Stepped", "at once"))]
)
def test_an_environment_may_change_the_working_directory(tmp_path, where):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir(), elsewhere.mkdir()
    text = WANDERING.format(elsewhere=str(elsewhere), at_once=where == "at once")
    name = "Stepped" if where == "Stepped" else "made"
    (here / "mine.py").write_text(
        text.replace(f"    os.chdir({str(elsewhere)!r})\n", "") if where == "at once" else text
    )
    (here / "spec.toml").write_text(SPEC_OF_MINE.format(f"mine:{name}"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])}
    for command in (
        f"run --env-file mine.py:{name} --n-samples 5 --evaluate 10 --max-trajectories 50 --out run",
        f"sweep spec.toml --out here --workers {int(where == 'Stepped')} --export here.csv --retry",
        "report here --export again.csv --figures figures --x n_samples --out page.html",
    ):
        line = [sys.executable, "-P", "-m", "dmq_fast", *command.split()]
        done = subprocess.run(line, cwd=here, env=environment, capture_output=True, text=True)
        assert done.returncode in (0, 3), done.stderr
    files = "mine.py spec.toml run here here.csv again.csv page.html figures"
    assert {path.name for path in here.iterdir()} - {"__pycache__"} == set(files.split())
    assert (here / "run" / "result.npz").exists()
    assert list(elsewhere.iterdir()) == []


def test_a_journal_stays_where_it_was_asked_for(tmp_path, monkeypatch):
    """Also of an environment that changes the working directory between two calls of learn."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    learner = dmq.DMQ(dmq.environments.chain(4, rng=0), n_samples=5, rng=0)
    resources = learner.resources(journal="journal")
    monkeypatch.chdir(tmp_path / "elsewhere")
    learner.run(resources)
    assert (tmp_path / "journal").exists() and not (tmp_path / "elsewhere" / "journal").exists()


CHAIN_OF_MINE = (
    "import dmq_fast as dmq\n\ndef make(fail=0.1):\n    return dmq.environments.chain(20, fail=fail, rng=0)\n"
)


def test_a_run_is_resumed_from_anywhere(run, tmp_path, monkeypatch):
    """In the directory in which it began, if that and the file of its environment are there; else in this one."""
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir(), other.mkdir()
    monkeypatch.chdir(home)
    (home / "mine.py").write_text(CHAIN_OF_MINE)
    (other / "mine.py").write_text(CHAIN_OF_MINE.replace("0.1", "0.2"))
    assert (
        run("run", "--env-file", "mine.py:make", "--n-samples", 5, "--out", "saved", "--max-trajectories", 50)[0] == 3
    )
    for where, directory in ((home / "saved", "."), (other, "../home/saved"), (home, "saved")):
        monkeypatch.chdir(where)
        code, _, err = run("resume", directory, "--max-trajectories", 60)
        assert (code, err, os.getcwd()) == (3, "", str(where))
    monkeypatch.chdir(other)
    (home / "mine.py").rename(home / "yours.py")
    assert "environment.parameters.fail is 0.1 there and 0.2 here" in run("resume", "../home/saved")[2]
    monkeypatch.chdir(tmp_path)
    code, _, err = run("resume", "home/saved")
    assert (code, "no file mine.py, nor is there one in " + str(home) in err) == (2, True)
    home.rename(tmp_path / "moved")
    (tmp_path / "mine.py").write_text(CHAIN_OF_MINE)
    assert run("resume", "moved/saved", "--max-trajectories", 60)[0] == 3
