"""The work of a training, folded where it is not: whatever a rank reports, and whichever supervisor it reports to."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from carbontui import protocol
from carbontui.job.worker import work
from carbontui.job.worker.model import Passes, WorkModel, by_passes

COUNTS = st.one_of(st.integers(0, 40), st.integers(0, 2**53))
PLACES = st.integers(0, 3)
MAYBE = st.none() | COUNTS
NUMBERS = COUNTS | st.floats(0, 1e18)
SHOWN = st.lists(st.tuples(st.sampled_from(["tqdm(total=)", "T_max"]), NUMBERS, NUMBERS), max_size=3).map(tuple)
PASSES = st.builds(
    protocol.LoaderPasses,
    PLACES,
    COUNTS,
    st.integers(1, 2**53),
    st.lists(COUNTS, min_size=1, max_size=6).map(tuple),
    st.lists(MAYBE, min_size=1, max_size=6).map(tuple),
    MAYBE,
)
SIZES = st.lists(COUNTS, max_size=4).map(
    lambda all_: (len(all_), min(all_, default=0), max(all_, default=0), sum(all_))
)
STAGES = st.builds(
    protocol.FrameworkStage,
    st.none() | PLACES,
    COUNTS,
    MAYBE,
    st.sampled_from(["", "early stopping"]),
    st.integers(0, 9),
    MAYBE,
    MAYBE,
    SIZES,
)
REPORTS = st.builds(
    protocol.WorkReport,
    before=COUNTS,
    framework=st.booleans(),
    kept=st.sampled_from([b"null", b"[]", b'["a","",9]', b"{}", b'"?"']).map(msgspec.Raw),
    place=st.none() | PLACES,
    counted=COUNTS,
    values=st.dictionaries(st.sampled_from(["__main__.i", "__main__.n"]), st.integers(-(2**53), 2**53)),
    unsure=st.booleans(),
    lengths=st.lists(MAYBE, max_size=3).map(tuple),
    leading=st.none() | PASSES,
    bars=SHOWN,
    schedules=SHOWN,
    ended=COUNTS,
    stage=st.none() | STAGES,
    trial=st.none() | STAGES,
)
NESTS = st.builds(
    work.Nest,
    st.lists(
        st.builds(work.LoopAround, st.integers(1, 9), st.none() | st.integers(0, 10**9), st.booleans(), st.just("i")),
        max_size=3,
    ).map(tuple),
    st.lists(
        st.builds(work.LoopBound, st.integers(0, 2), st.integers(0, 3), st.integers(0, 9), st.booleans(), st.just("n")),
        max_size=2,
    ).map(tuple),
    st.lists(
        st.builds(work.StepCounter, st.just("__main__"), st.just("i"), st.integers(), st.sampled_from([1, -1, 0.5])),
        max_size=1,
    ).map(tuple),
    st.booleans(),
    st.sampled_from(["a", "b"]),
    st.sampled_from([1, 2, 0.5]),
    st.booleans(),
    st.none(),
    st.none() | st.tuples(st.floats(0, 1e9), st.just("later")),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(st.tuples(COUNTS, REPORTS), min_size=1, max_size=4), st.lists(NESTS, max_size=3))
def test_whatever_a_rank_reports_gives_a_total_that_can_be_shown_or_none(reports, nests):
    model = WorkModel()
    for place, nest in enumerate(nests, 1):
        model.read(protocol.CodeRead(place, msgspec.Raw(msgspec.json.encode(nest))))
    for at_s, (step, told) in enumerate(reports):
        made = model.folded(protocol.RankReport(step=step, state="running", want_gen=0, work=told), 20.0 * at_s)
        assert made.work is None and protocol.decode_from_peer(protocol.encode(made)) == made
        if made.guess is not None:
            low, high, _, sure = made.guess_range
            assert low <= made.guess[0] <= (made.guess[0] if high is None else high)
            assert not (sure and high is None)
        again = model.to_keep()
        if again is not None:
            assert msgspec.json.decode(protocol.encode(again))["kept"] is not None


@given(st.integers(2, 5), st.integers(1, 4), st.data())
def test_passes_of_another_length_each_round_have_no_limit_yet(rounds, epochs, data):
    nest = work.Nest((work.LoopAround(1, rounds), work.LoopAround(2, epochs), work.LoopAround(3, None)), varies=0)
    lengths = data.draw(st.lists(st.sampled_from([20, 40]), min_size=1, max_size=rounds * epochs - 1))
    steps = sum(lengths)
    passes = Passes(0, len(lengths) + 1, steps, tuple(lengths), float(lengths[-1]))
    claim = by_passes(passes, None, nest, 2, rounds * epochs, steps)
    alike = len(lengths) > epochs and len(set(lengths)) == 1
    assert (claim.high is not None) is alike
    assert not alike or claim.low <= lengths[0] * rounds * epochs <= claim.high
