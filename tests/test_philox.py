"""Streams: NumPy's Philox bit for bit, and every way to name a position."""

from __future__ import annotations

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import twins
from hypothesis import strategies as st
from properties import for_all
from refusals import refused

from dmq_fast.kernels import Stream

pytestmark = pytest.mark.kernels

WORD = 2**64 - 1
GOLDEN_KEY = (0x4C87174BC76DBA01, 0xFDF50F1DFB214748)
GOLDEN_UNIFORMS = [
    "0x1.f9a51b6941116p-1",
    "0x1.e8c52343ae768p-3",
    "0x1.43e713f839d40p-2",
    "0x1.47a06f55612eap-2",
    "0x1.2ccc38e371208p-1",
]
words = st.one_of(st.integers(0, WORD), st.sampled_from([0, 1, WORD - 1, WORD]))


@for_all(key=st.tuples(words, words), call=words, chunk=words, n=st.one_of(st.integers(0, 18), st.integers(0, 1100)))
def test_uniforms_are_numpys_bit_for_bit(key, call, chunk, n):
    stream = Stream.from_key(key, call, chunk)
    expected = twins.uniforms(key, call, chunk, n)
    assert stream.uniforms(n).dtype == np.float64 and stream.uniforms(n).tobytes() == expected.tobytes()
    assert stream.uniforms(n).tobytes() == stream.uniforms(1100)[:n].tobytes()
    assert stream.generator().random(n).tobytes() == expected.tobytes()


def test_golden_values():
    stream = Stream(2024, call=3, chunk=1)
    assert stream.key == GOLDEN_KEY
    assert [x.hex() for x in stream.uniforms(5).tolist()] == GOLDEN_UNIFORMS


def test_seed_sequence_gives_its_first_two_words():
    sequence = np.random.SeedSequence(5)
    assert Stream(5).key == tuple(sequence.generate_state(2, np.uint64).tolist())
    assert Stream(5) == Stream(np.random.SeedSequence(5)) == Stream(np.int32(5)) == Stream([5])
    array = np.array([1, 2, 3], dtype=np.uint32)
    assert Stream(array).key == Stream([1, 2, 3]).key != Stream([1, 2]).key
    assert Stream().key != Stream(None).key


def test_spawned_sequences_give_different_keys():
    children = np.random.SeedSequence(5).spawn(20)
    keys = {Stream(child).key for child in children} | {Stream(5).key}
    assert len(keys) == 21
    assert Stream(children[3]).key == Stream(np.random.SeedSequence(5, spawn_key=(3,))).key


def test_generator_gives_128_bits_and_moves_on():
    first = np.random.default_rng(7)
    expected = tuple(np.random.default_rng(7).integers(0, 2**64, 2, dtype=np.uint64).tolist())
    assert Stream(first).key == expected
    assert Stream(first).key != expected


def test_what_names_no_stream_is_refused():
    no_seeds = ["text", "123", b"1", 1.5, 1j, object(), np.array([1.5]), np.array([-1]), [-1], np.random.PCG64(1)]
    table = [(partial(Stream, seed), TypeError, "seed: expected None, a non-negative int") for seed in no_seeds]
    for seed in (-1, True, False, np.int64(-3), -(2**70)):
        table.append((partial(Stream, seed), ValueError, "seed: expected a non-negative integer"))
    for bad in (-1, 2**64, 1.0, "0", None):
        for name in ("call", "chunk"):
            for make in (partial(Stream, 1), partial(Stream.from_key, (1, 2)), partial(Stream(1).at, call=0)):
                text = rf"{name}: expected an integer in \[0, 2\^64\)"
                table.append((partial(make, **{name: bad}), ValueError, text))
        table.append((partial(Stream.from_key, (0, bad)), ValueError, r"key\[1\]"))
    table += [(partial(Stream.from_key, key), ValueError, "key: expected two") for key in ((), (1,), (1, 2, 3))]
    table += [(partial(Stream(1).uniforms, n), ValueError, "n: expected a non-negative") for n in (-1, -(2**40))]
    refused(table)


@for_all(key=st.tuples(words, words), call=words, chunk=words)
def test_copies_are_equal_and_hash_alike(key, call, chunk):
    stream = Stream.from_key(key, call, chunk)
    for other in (pickle.loads(pickle.dumps(stream)), copy.deepcopy(stream), stream.at(call, chunk)):
        assert other == stream and hash(other) == hash(stream)
        assert (other.key, other.call, other.chunk) == (key, call, chunk)


def test_every_part_of_a_position_counts():
    stream = Stream.from_key((1, 2), 3, 4)
    others = [((0, 2), 3, 4), ((1, 0), 3, 4), ((1, 2), 0, 4), ((1, 2), 3, 0), ((2, 1), 3, 4), ((1, 2), 4, 3)]
    assert all(stream != Stream.from_key(*other) for other in others)
    assert stream != (1, 2) and stream != 3
    assert repr(stream) == "Stream(key=(0x1, 0x2), call=3, chunk=4)"


def test_positions_do_not_overlap():
    stream = Stream(11)
    heads = {stream.at(call, chunk).uniforms(1)[0] for call in range(30) for chunk in range(30)}
    assert len(heads) == 900
    assert stream.at(5).chunk == 0
