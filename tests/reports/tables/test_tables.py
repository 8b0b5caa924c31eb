"""Does a table of HTML say what a table of text says, and is nothing in it markup?"""

from pytest_nsys.reports.tables.formats import Column, Table, make_number_column, make_text_columns, make_time_columns


def test_html_has_the_words_of_the_text_and_numbers_to_the_right() -> None:
    table = Table(
        (*make_text_columns("stage"), *make_time_columns("busy_ns"), make_number_column("launches")),
        [("a<b", 2_500, None)],
        omitted_count=3,
    )
    right = ' style="text-align:right"'
    assert table.render_html() == (
        f"<table><tr><th>stage</th><th{right}>busy</th><th{right}>launches</th></tr>"
        f"<tr><td>a&lt;b</td><td{right}>2.5 us</td><td{right}>-</td></tr></table><p>and 3 more</p>"
    )


def test_html_of_a_name_that_is_markup() -> None:
    assert "<i>" not in Table((Column("<i>"),), [("<i>&\x1b",)]).render_html()
