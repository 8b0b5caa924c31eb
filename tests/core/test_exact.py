"""What is stored of an exact value is read back as it was, and nothing else is taken for one."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.core.exact import encode_exact, encode_exact_text, parse_exact


@given(st.integers() | st.fractions())
def test_a_value_is_read_as_it_was_written(value: int | Fraction) -> None:
    assert parse_exact(json.loads(json.dumps(encode_exact(value)))) == value
    assert parse_exact(encode_exact_text(value)) == value


@pytest.mark.parametrize("stored", ["1/0", "nan", "1.5", " 1", "", "1/-2", "٣", True, None, 1.5, [1], "1" * 401])
def test_what_is_no_value(stored: object) -> None:
    with pytest.raises(ValueError, match="is not a value: write a whole number"):
        parse_exact(stored)
