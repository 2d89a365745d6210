"""Specifications from Python: whatever stands for a list, a table or a number is read, stored and read again."""

import collections
import datetime
import enum
import types
from pathlib import Path

import numpy as np
import pytest

from dmq_fast import experiments
from dmq_fast.experiments.sweeps.spec import reread


class Level(enum.StrEnum):
    EASY = "sound"


GIVEN = {
    "numbers of NumPy": ({"seeds": np.int64(2), "horizon": np.arange(3, 5), "n_samples": np.int32(3)}, {}),
    "ranges": ({"seeds": range(2), "horizon": range(3, 5), "n_samples": 3}, {}),
    "sequences": (
        {"seeds": (0, 1), "horizon": collections.UserList([3, 4]), "n_samples": 3, "eps_r": np.float32(0.5)},
        {"eps_r": 0.5},
    ),
    "enumerations": (
        {"seeds": np.arange(2), "horizon": (np.int8(3), 4), "n_samples": 3, "variant": Level.EASY},
        {"variant": "sound"},
    ),
}


def specification(kind, seeds, horizon, **parameters):
    """Return a specification of mappings of a kind."""
    return kind(
        {
            "seeds": seeds,
            "environments": (kind({"name": "lock", "horizon": horizon}),),
            "algorithms": [kind({"name": "dmq"} | parameters)],
        }
    )


@pytest.mark.parametrize(("given", "others"), GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize("kind", [dict, types.MappingProxyType, collections.UserDict])
def test_sequences_mappings_and_numbers_of_any_kind_are_read_and_stored(tmp_path, kind, given, others):
    spec = specification(kind, **given)
    for shard, runs in (((0, 2), 2), (None, 4)):
        experiments.sweep(spec, tmp_path, workers=0, shard=shard)
        state = experiments.status(tmp_path)
        assert (state.counts["runs"], state.counts["waiting"], state.notes) == (runs, 0, ())
    expected = experiments.read(specification(dict, 2, [3, 4], n_samples=3, **others)).cells
    assert experiments.read(spec).cells == expected
    assert reread(experiments.read(spec).text, "again").cells == expected


@pytest.mark.parametrize("value", [{3, 4}, (i for i in (3, 4)), datetime.date(2024, 1, 1), b"3", Path("3")])
def test_other_values_from_python_are_refused_with_their_place_and_type(value):
    spec = {"environments": [{"name": "lock", "horizon": value}], "algorithms": [{"name": "dmq"}]}
    message = rf"environments\[0\].horizon: expected .* of the type {type(value).__name__}; write its text"
    with pytest.raises(experiments.SpecError, match=message):
        experiments.read(spec)
