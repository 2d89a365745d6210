"""``dmq-fast new-env``: the projects that it writes build, keep the contract, and are learned."""

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dmq_fast
from dmq_fast import cli
from dmq_fast.cli import new_env

# Where the package is that is tested, and where its sources are.
ROOT, CHECKOUT = Path(dmq_fast.__file__).parent.parent, Path(__file__).parent.parent


def python(*arguments, site, cwd):
    """The output of a Python that finds this dmq_fast, and what is installed in `site`."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(site)]), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def assert_it_works(project, site):
    """The commands of the README, but for building."""
    name = project.name
    report = python("-m", "dmq_fast", "run", "--env-file", f"{name}.py:make_env", "--check", site=site, cwd=project)
    assert report.startswith(name) and "its factory makes it again" in report and "wrong" not in report
    options = ["--make", "horizon=4", "--n-samples", "50"]
    learned = python("-m", "dmq_fast", "run", "--env-file", f"{name}.py:make_env", *options, site=site, cwd=project)
    assert "H = 4, K = 2, d = 2" in learned and "N = 50" in learned
    tests = python("-m", "pytest", "-q", "-p", "no:cacheprovider", site=site, cwd=project)
    assert "2 passed" in tests


@pytest.mark.slow
def test_the_numba_project_works(tmp_path, monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["new-env", "numba", "walk_in_numba"]) == 0
    assert_it_works(tmp_path / "walk_in_numba", tmp_path)


@pytest.mark.slow
def test_the_cython_project_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["new-env", "cython", "walk_in_cython"]) == 0
    project, site = tmp_path / "walk_in_cython", tmp_path / "site"
    install = ["-m", "pip", "install", "--no-index", "--no-build-isolation", "--no-deps", "--target", site, "."]
    python(*install, site=site, cwd=project)
    assert {"_walk_in_cython", "walk_in_cython"} <= {path.name.split(".")[0] for path in site.iterdir()}
    assert_it_works(project, site)


def test_the_numba_functions_keep_the_contract(tmp_path, monkeypatch, capsys):
    pytest.importorskip("numba")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["new-env", "numba", "walk_here"]) == 0
    capsys.readouterr()
    assert cli.main(["run", "--env-file", "walk_here/walk_here.py:make_env", "--check"]) == 0
    assert "held" in capsys.readouterr().out
    del sys.modules["walk_here"]
    sys.path.remove(str(tmp_path / "walk_here"))


@pytest.mark.parametrize("kind", new_env.KINDS)
def test_a_project_has_its_files(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["new-env", kind, "my_walk"]) == 0
    assert capsys.readouterr().out == "my_walk: see my_walk/README.md\n"
    written = {path.name: path.read_text() for path in (tmp_path / "my_walk").iterdir()}
    assert {"README.md", "my_walk.py", "test_my_walk.py"} <= set(written)
    assert not [name for name, text in written.items() if "NAME" in name + text or name.endswith(".in")]
    for name, text in written.items():
        if name.endswith(".py"):
            ast.parse(text)
    if kind == "cython":
        assert tomllib.loads(written["pyproject.toml"])["project"]["name"] == "my_walk"
        assert "cimport" in written["_my_walk.pyx"]
    # Nothing is replaced.
    (tmp_path / "my_walk" / "my_walk.py").write_text("mine")
    assert cli.main(["new-env", kind, "my_walk"]) == 2
    assert (tmp_path / "my_walk" / "my_walk.py").read_text() == "mine"
    assert capsys.readouterr().err == "dmq-fast new-env: NAME: my_walk exists already\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my-walk", "expected a name for a Python module, got 'my-walk'; perhaps my_walk"),
        ("class", "expected a name for a Python module, got 'class'"),
        ("a/b", "expected a name for a Python module, got 'a/b'; perhaps a_b"),
        ("..", "expected a name for a Python module, got '..'"),
        ("1st", "expected a name for a Python module, got '1st'"),
        ("", "expected a name for a Python module, got ''"),
        ("random", "expected a name that no other module has, got 'random', which can be imported"),
        ("numpy", "expected a name that no other module has, got 'numpy', which can be imported"),
    ],
)
def test_names_that_are_no_modules_are_refused(name, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["new-env", "numba", name]) == 2
    assert capsys.readouterr().err == f"dmq-fast new-env: NAME: {message}\n"
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "my_walk")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert cli.main(["new-env", "numba", "my_walk"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_templates_ship(monkeypatch):
    """In the wheel and in the source distribution."""
    declared = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    templates = [path for path in (ROOT / "dmq_fast/cli/templates").rglob("*") if path.is_file()]
    (pattern,) = declared["dmq_fast.cli"]
    assert len(templates) >= 9 and set(templates) == set((ROOT / "dmq_fast/cli").glob(pattern))
    assert {path.parent.name for path in templates} == set(new_env.KINDS)
    assert "*.in" in (CHECKOUT / "MANIFEST.in").read_text()
