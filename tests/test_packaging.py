"""From a source distribution to a wheel to somebody else's extension that cimports a kernel."""

import itertools
import json
import re
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from setuptools.command.egg_info import FileList

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src_pyx").glob("*/*.pyx"))
KERNELS = sorted(source.stem for source in SOURCES)
# Stubs for Python, declarations for C.
DECLARATIONS = {
    file.relative_to(ROOT).as_posix() for kind in ("*.pyi", "*.pxd") for file in (ROOT / "dmq_fast/kernels").glob(kind)
}

CLIENT = """
# cython: language_level=3
from dmq_fast.kernels._dsec cimport NO_SHIFT, SHIFT, decide, decide_sum, decide_work_size, shift_value, value_work_size
from dmq_fast.kernels._env cimport Environment
from dmq_fast.kernels._episode cimport Episode, Learner
from dmq_fast.kernels._features cimport FeatureMap
from dmq_fast.kernels._greedy cimport greedy_action, greedy_rows
from dmq_fast.kernels._learners cimport TabularLearner
from dmq_fast.kernels._linalg cimport GROUP, downdate_factor, gather, group_size, leverage, pack, packed_size, score
from dmq_fast.kernels._linalg cimport solve_factor, solve_factor_transposed, update_factor
from dmq_fast.kernels._moments cimport add_block, add_outer, block_work_size, mirror
from dmq_fast.kernels._philox cimport Philox, Stream, normals_into, philox_open, philox_uniforms
from dmq_fast.kernels._ridge cimport NOT_FINITE, fit
from dmq_fast.kernels._simulator cimport SCORE, Fault

def corners_of_a_factor():
    cdef double u[4]
    cdef double w[2]
    cdef double work[4]
    u[0], u[1], u[2], u[3] = 1.0, 0.0, 0.0, 1.0
    w[0], w[1] = 0.6, 0.8
    update_factor(u, w, 2)
    before = u[0]
    w[0], w[1] = 0.6, 0.8
    assert downdate_factor(u, w, work, 2) == 0
    return before, u[0]

def many_rows(double[:, ::1] factor, double[:, ::1] rows, double[::1] work, double[::1] z):
    # Leverages and products of at most GROUP rows at once, and of the first one alone.
    cdef double mean[GROUP]
    cdef double square[GROUP]
    cdef Py_ssize_t d = rows.shape[1], m
    cdef double* packed = &work[0]
    cdef double* group = packed + packed_size(d)
    assert work.shape[0] >= packed_size(d) + group_size(d)
    pack(&factor[0, 0], packed, d)
    m = gather(&rows[0, 0], d, rows.shape[0], group, d)
    score(packed, &z[0], <const double*> group, group, mean, square, m, d)
    alone = leverage(&factor[0, 0], &rows[0, 0], group, d)
    solve_factor_transposed(&factor[0, 0], &rows[0, 0], d)
    solve_factor(&factor[0, 0], &rows[0, 0], d)
    return [mean[i] for i in range(m)], [square[i] for i in range(m)], alone, [rows[0, i] for i in range(d)]

cdef class Demanding(Learner):
    # Takes action 0, and fails in episode 2.
    cdef bint play(self) noexcept nogil:
        cdef Py_ssize_t h
        cdef Fault fault = SCORE
        for h in range(self.episode.horizon):
            if not self.episode.observe():
                return False
            if self.n_episodes == 2:
                return self.episode.fail(fault, 0, self.episode.phi[0])
            if not self.episode.move(0):
                return False
        return True

def shifted(double ratio):
    cdef double s[4]
    cdef double m[4]
    cdef double work[2 * 2 * 2 + 2]
    cdef double phi[2]
    for i in range(4):
        s[i] = m[i] = 0.0
    phi[0], phi[1] = 0.6, 0.8
    add_outer(s, phi, 1.0, 2)
    add_outer(m, phi, 3.0, 2)
    mirror(s, 2)
    mirror(m, 2)
    cdef int answer = decide(s, m, 1.0, ratio, 1e-9, work, 2)
    return {SHIFT: True, NO_SHIFT: False}[answer]

def estimate(double[:, ::1] gram, double[::1] moment, double n, double ridge):
    cdef double theta[8]
    cdef double work[64]
    cdef Py_ssize_t d = moment.shape[0]
    assert d <= 8 and fit(theta, &gram[0, 0], &moment[0], n, ridge, work, d) == 0
    return [theta[i] for i in range(d)]

def first_uniform(Stream stream):
    cdef Philox generator
    cdef double u
    philox_open(&generator, stream)
    philox_uniforms(&generator, &u, 1)
    return u
"""

USE_CLIENT = """
import client, dmq_fast, numpy, sys
from dmq_fast.kernels import CartPole, EnvironmentHandle, Episode
assert dmq_fast.__file__.startswith(sys.argv[1]), dmq_fast.__file__
rng = numpy.random.default_rng(0)
factor, rows, z = numpy.linalg.qr(rng.normal(size=(9, 5)))[1], rng.normal(size=(20, 5)), rng.normal(size=5)
factor *= numpy.sign(numpy.diagonal(factor))[:, None]
solved, first = numpy.linalg.solve(factor.T, rows.T), rows[0].copy()
mean, square, alone, x = client.many_rows(factor, rows, numpy.empty(1000), z)
assert len(mean) == 16 and numpy.allclose(mean, (z @ solved)[:16])
assert numpy.allclose(square, (solved**2).sum(axis=0)[:16])
assert numpy.isclose(alone, square[0]) and numpy.allclose(factor.T @ factor @ x, first)
up, down = client.corners_of_a_factor()
assert abs(up ** 2 - 1.36) < 1e-15 and abs(down - 1.0) < 1e-15
map = dmq_fast.features.Identity([-3.0] * 4, [3.0] * 4)
learner = client.Demanding(Episode(EnvironmentHandle(CartPole(20)), map, dmq_fast.Stream(0)))
returns = numpy.full(3, -1.0)
try:
    learner.run(returns)
except ArithmeticError as error:
    assert "level 0, call 2" in str(error)
assert learner.n_episodes == 2 and (0.0 < returns[:2]).all() and returns[2] == -1.0
assert client.shifted(2.0) and not client.shifted(4.0)
stream = dmq_fast.Stream(5, call=3)
assert client.first_uniform(stream) == stream.generator().random()
gram, moment = rows.T @ rows, rows.T @ rows[:, 0]
assert numpy.allclose(client.estimate(gram, moment, 20, 0.1), dmq_fast.kernels.ridge_fit(gram, moment, 20, 0.1))
models = dmq_fast.kernels.Ridge(5, 1.0), dmq_fast.kernels.RidgeArms(2, 5, 1.0), dmq_fast.kernels.SparseRidge(5, 1.0)
models[0].update_rows(rows, z[0] * rows[:, 0])
models[1].update_rows([0, 1] * 10, rows, z[0] * rows[:, 0])
models[2].update_rows(rows, z[0] * rows[:, 0])
assert numpy.allclose(models[0].theta, models[2].theta) and models[1].n.tolist() == [10, 10]
assert numpy.allclose(models[0].upper(rows, 0.5), models[2].upper(rows, 0.5))
for model in models:
    model.save("state.npz")
    assert (type(model).load("state.npz").theta == model.theta).all()
"""


def python(*arguments, **options):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def tracked():
    """Paths of the files that git knows."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("needs a git checkout")
    return listed.stdout.splitlines()


def build_sdist(target):
    """Build the source distribution below `target` and return its path."""
    source = target / "checkout"
    # A copy of what is tracked: building must not leave anything in the checkout.
    for name in tracked():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    build = "from setuptools import build_meta; build_meta.build_sdist('../dist')"
    python("-c", build, cwd=source)
    (archive,) = (target / "dist").glob("*.tar.gz")
    return archive


def build_wheel(sdist, target):
    """Build the wheel in `target` and return its path."""
    python("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", target, sdist, cwd=sdist.parent)
    (built,) = target.glob("*.whl")
    return built


def test_the_manifest_takes_every_source(monkeypatch):
    """Building a source distribution compiles everything to C first; this asks for its list of files alone."""
    monkeypatch.chdir(ROOT)
    files = FileList()
    for line in Path("MANIFEST.in").read_text().splitlines():
        files.process_template_line(line)
    sources = [path for path in tracked() if path.startswith(("src_pyx/", "tests/", "bench/", "docs/"))]
    assert len(sources) > 50 and set(sources) <= set(files.files)
    assert not [name for name in files.files if name.endswith((".so", ".pyc", ".c"))]


def test_every_file_that_has_the_version_has_the_same():
    places = ["pyproject.toml", "CITATION.cff", ".github/conda/recipe.yaml"]
    assert set(places) <= set(tracked())
    found = {re.search(r"^ *version(?: =|:) \"?([\d.]+)\"?$", (ROOT / place).read_text(), re.M)[1] for place in places}
    assert len(found) == 1


def test_functions_that_stay_are_declared():
    """docs/kernels.md names them, by file."""
    table = re.findall(r"^\| `(_\w+\.pxd)` \| (.*) \|$", (ROOT / "docs/kernels.md").read_text(), re.M)
    assert len(table) > 8
    for file, text in table:
        declared = (ROOT / "dmq_fast/kernels" / file).read_text()
        for name in re.findall(r"`(\w+)`", text):
            assert re.search(rf"^c(p?)def [^#\n]*\b{name}\b", declared, re.M), f"{file}: {name}"


@pytest.mark.slow
def test_from_the_sources_to_a_client(tmp_path):
    """One test, since the parts share what takes minutes to build, and pytest-xdist runs tests in several processes."""
    sdist = build_sdist(tmp_path / "sdist")
    assert_the_sdist_holds_every_source(sdist)
    wheel = build_wheel(sdist, tmp_path / "wheel")
    assert_the_wheel_holds_what_users_need_and_no_sources(wheel)
    assert_a_client_cimports_from_the_installed_wheel(wheel, tmp_path)


def assert_the_sdist_holds_every_source(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {source.relative_to(ROOT).as_posix() for source in SOURCES} | DECLARATIONS <= names
    assert {
        "LICENSE",
        "README.md",
        "CONTRIBUTING.md",
        "docs/tutorial.md",
        "tests/reference.py",
        "bench/test_rollouts.py",
        "dmq_fast/py.typed",
    } <= names
    assert not [name for name in names if name.endswith((".so", ".c"))]


def assert_the_wheel_holds_what_users_need_and_no_sources(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for kernel in KERNELS:
        assert any(name.startswith(f"dmq_fast/kernels/{kernel}.") and name.endswith((".so", ".pyd")) for name in names)
    assert set(names) >= DECLARATIONS > {"dmq_fast/kernels/__init__.pxd", "dmq_fast/kernels/_dsec.pyi"}
    data = {"py.typed", "cli/templates/cython/_NAME.pyx.in", "experiments/report/page.css"}
    assert {f"dmq_fast/{name}" for name in data} <= set(names)
    assert not [name for name in names if name.endswith((".pyx", ".c")) or name.startswith(("tests/", "bench/"))]


def assert_a_client_cimports_from_the_installed_wheel(wheel, tmp_path):
    site, client = tmp_path / "site", tmp_path / "client"
    python("-m", "pip", "install", "--no-deps", "--target", site, wheel, cwd=tmp_path)
    client.mkdir()
    (client / "client.pyx").write_text(CLIENT)
    (client / "setup.py").write_text(
        "from Cython.Build import cythonize\nfrom setuptools import setup\n"
        "setup(name='client', ext_modules=cythonize('client.pyx'))\n"
    )
    environment = {"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"}
    python("setup.py", "-q", "build_ext", "--inplace", cwd=client, env=environment)
    python("-c", USE_CLIENT, site, cwd=client, env=environment)
    python("-m", "dmq_fast", "run", "lock", "--horizon", "20", cwd=client, env=environment)


def test_the_source_tree_says_that_it_is_not_compiled(tmp_path):
    for source in (ROOT / "dmq_fast").rglob("*.py"):
        target = tmp_path / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", "import dmq_fast.kernels"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "dmq_fast is not compiled in" in done.stderr


INSTRUCTIONS = runpy.run_path(str(ROOT / "bench/instructions.py"), run_name="imported")
RECORDED = json.loads((ROOT / "bench/instructions.json").read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="Valgrind counts on Linux")
def test_counts_of_instructions_are_compared_with_the_recorded_ones(capsys):
    counts, versions, compare = RECORDED["instructions"], RECORDED["versions"], INSTRUCTIONS["compare"]
    assert list(counts) == list(INSTRUCTIONS["kernels"]())
    assert versions.keys() == INSTRUCTIONS["versions"]().keys()
    for name, (change, agrees) in itertools.product(counts, ((1.0, True), (1.02, True), (1.05, False), (0.95, False))):
        assert compare(RECORDED, counts | {name: round(counts[name] * change)}, versions) is agrees
        assert (f"{change - 1:+.2%}  changed" in capsys.readouterr().out) is not agrees
    assert not compare(RECORDED, dict(list(counts.items())[1:]), versions)
    assert compare(RECORDED, counts, versions | {"gcc": "99.0"})
    printed = capsys.readouterr().out
    assert "expected counts of" in printed and f"gcc: recorded with {versions['gcc']}, here 99.0" in printed
