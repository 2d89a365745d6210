"""Files of kernels: what `save` wrote, `load` gives back to the bit; versions 1 are read for ever."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from properties import everything

from dmq_fast._support.files import FileError
from dmq_fast.kernels import Ridge, RidgeArms, SecondMoment, SparseRidge

pytestmark = pytest.mark.kernels

OLD = Path(__file__).parent / "old"


def objects():
    """One object of each class, made of exact numbers: their states are the same everywhere."""
    rows = [np.array([1.0, 2.0, 0.0]), np.array([0.0, 1.0, 0.5])]
    ridge, several, arms, moment = Ridge(3, 0.25), Ridge(3, 0.25, targets=2), RidgeArms(2, 3, 0.25), SecondMoment(3)
    sparse, rough = SparseRidge(10, 0.25, exact_columns=8), SparseRidge(10, 0.25, exact_columns=1)
    for i, phi in enumerate(rows):
        ridge.update(phi, i + 1.0)
        several.update(phi, [i + 1.0, 0.5])
        arms.update(i, phi, i + 1.0)
        moment.add(phi)
        sparse.update([i, 7], phi[:2], 1.0)
        rough.update([i, 7], phi[:2], 1.0)
    return {"ridge": ridge, "several": several, "arms": arms, "moment": moment, "sparse": sparse, "rough": rough}


def state(made):
    return made.matrix.tobytes() if isinstance(made, SecondMoment) else everything(made)


@pytest.mark.parametrize("name", objects())
def test_a_file_has_the_state_to_the_bit(tmp_path, name):
    made = objects()[name]
    made.save(tmp_path / "state.npz")
    again = type(made).load(str(tmp_path / "state.npz"))
    assert type(again) is type(made) and state(again) == state(made) and again.n is not None
    assert repr(again) == repr(made)
    made.save(tmp_path / "state.npz")  # replaces it
    assert [file.name for file in tmp_path.iterdir()] == ["state.npz"]


@pytest.mark.parametrize("name", objects())
def test_files_of_version_1_are_read(name):
    """They were written when the format was made, and stay as they are: see docs/kernels.md."""
    made = objects()[name]
    old = type(made).load(OLD / f"kernels-{name}.npz")
    assert state(old) == state(made)


@pytest.mark.parametrize("name", objects())
def test_what_is_no_such_file_is_refused(tmp_path, name):
    made, path = objects()[name], tmp_path / "state.npz"
    kind = type(made)
    with pytest.raises(FileNotFoundError):
        kind.load(path)
    path.write_bytes(b"not a file of ours")
    with pytest.raises(FileError, match=rf"state.npz: expected a file of {kind.__name__}.save"):
        kind.load(path)
    made.save(path)
    whole = path.read_bytes()
    for end in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(FileError, match=r"expected a file of"):
            kind.load(path)
    path.write_bytes(whole)
    with np.load(path) as file:
        contents = dict(file)
    other = SecondMoment if kind is not SecondMoment else Ridge
    with pytest.raises(FileError, match=rf"got one of '{kind.__name__}'"):
        other.load(path)
    np.savez(path, **contents | {"version": np.array(2)})
    with pytest.raises(FileError, match=r"expected version 1 or older .* got 2: read it with the version of dmq_fast"):
        kind.load(path)
    for key in contents:
        if key not in ("kind", "version"):
            np.savez(path, **{name: part for name, part in contents.items() if name != key})
            with pytest.raises(FileError, match=r"expected a file of"):
                kind.load(path)
            np.savez(path, **contents | {key: np.array("text")})
            with pytest.raises(FileError, match=r"expected a file of"):
                kind.load(path)
