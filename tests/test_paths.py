"""Paths as arguments: what is none is refused by the argument's name, and so is a text that names nothing."""

import pytest

import dmq_fast as dmq
from dmq_fast import experiments, kernels

SPEC = {"environments": [{"name": "lock", "horizon": 3}], "algorithms": [{"name": "dmq", "n_samples": 5}]}
DOORS = {
    "sweep": ("out", lambda path: experiments.sweep(SPEC, path, workers=0)),
    "load": ("directory", experiments.load),
    "status": ("directory", experiments.status),
    "merge": ("out", lambda path: experiments.merge(path, ["a"])),
    "merge from": ("directories", lambda path: experiments.merge("a", [path])),
    "export": ("export", lambda path: experiments.export([], path)),
    "save": ("path", lambda path: dmq.DMQ(dmq.environments.chain(2, rng=0), n_samples=2, rng=0).learn().save(path)),
    "load a result": ("path", dmq.load),
    "save a kernel": ("path", lambda path: kernels.Ridge(2, 1.0).save(path)),
    "load a kernel": ("path", kernels.Ridge.load),
    "journal": ("journal", lambda path: dmq.SelfStopping(dmq.environments.chain(2, rng=0), 0.1).learn(journal=path)),
}


@pytest.mark.parametrize("door", DOORS)
def test_what_is_no_path_is_refused_by_name(door, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, give = DOORS[door]
    for bad, error in ((3, TypeError), (b"x", TypeError), ("", ValueError), ("a\0b", ValueError)):
        with pytest.raises(error, match=f"^{name}: expected a path, got "):
            give(bad)
    assert list(tmp_path.iterdir()) == []


COMMANDS = {
    "sweep": (["sweep", "", "--out", "x"], "SPEC"),
    "sweep into": (["sweep", "s.toml", "--out", ""], "--out"),
    "learn": (["learn", "chain", "--horizon", "3", "--epsilon", "0.1", "--out", ""], "--out"),
    "report": (["report", ""], "DIR"),
    "export": (["report", "s", "--export", ""], "--export"),
    "status": (["status", ""], "DIR"),
    "merge": (["merge", "", "a"], "OUT"),
    "resume": (["resume", ""], "DIR"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_text_is_no_path_for_the_shell(command, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, name = COMMANDS[command]
    code, out, err = run(*arguments)
    assert (code, out) == (2, "") and f"argument {name}: expected a path, got an empty text" in err
    assert list(tmp_path.iterdir()) == []


def test_no_memory_costs_one_line(run, monkeypatch):
    def dispatch(arguments):
        raise MemoryError("Unable to allocate 745. GiB")

    monkeypatch.setattr("dmq_fast.cli.dispatch", dispatch)
    assert run("learn", "chain") == (1, "", "dmq-fast: no memory left: Unable to allocate 745. GiB\n")
