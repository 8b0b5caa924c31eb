"""Is a question answered once by each object, and an error never kept?"""

import pytest

from pytest_nsys.core.memoize import memoize_method


class Asked:
    def __init__(self) -> None:
        self.times = 0

    @memoize_method
    def half(self, number: int, *, of: int = 1) -> int:
        """Half of it."""
        self.times += 1
        if number % 2:
            raise ValueError
        return number // 2 * of


def test_each_question_is_answered_once_by_each_object() -> None:
    first, second = Asked(), Asked()
    assert [first.half(4), first.half(4), first.half(4, of=2), second.half(4)] == [2, 2, 4, 2]
    assert (first.times, second.times, Asked.half.__doc__) == (2, 1, "Half of it.")
    for _ in range(2):
        with pytest.raises(ValueError):
            first.half(3)
    assert first.times == 4
