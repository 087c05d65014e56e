"""The sample of `make mutants`: random, and the same for mutants that are still there."""

from tools.mutants import draw
from tools.mutations import mutants


def lines(source):
    """All mutants of a source, with their lines before and after."""
    text = source.encode()
    return {m: m.changed_line(text) for m in mutants("file.py", text)}


def drawn(everything, count, seed=0):
    return [everything[mutant] for mutant in draw(everything, count, seed)]


SOURCE = "".join(f"a{k} = b{k} + {k}\n" for k in range(40))


def test_a_seed_has_its_own_sample():
    everything = lines(SOURCE)
    first = drawn(everything, 20)
    assert first == drawn(everything, 20)
    assert len(set(first)) == 20
    assert set(first) != set(drawn(everything, 20, seed=1))


def test_a_mutant_that_moves_stays_in_the_sample():
    everything = lines(SOURCE)
    assert drawn(lines("# a new line\n" + SOURCE), 20) == drawn(everything, 20)


def test_a_mutant_that_is_left_out_is_replaced_by_one_other():
    everything = lines(SOURCE)
    sample = draw(everything, 20, 0)
    rest = {m: text for m, text in everything.items() if m != sample[3]}
    again = draw(rest, 20, 0)
    assert len(set(again) - set(sample)) == 1


def test_equal_lines_have_numbers_of_their_own():
    everything = lines("a = b + c\n" * 30)
    assert 0 < sum(m.line <= 15 for m in draw(everything, 10, 0)) < 10
