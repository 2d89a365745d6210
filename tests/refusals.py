"""Tables of what is refused: one test function walks through a whole table and lists every row that fails."""

import re


def refused(table, state=lambda: None):
    """Assert that each call of a table of (call, exception, pattern) raises this exception, with such a message.

    Exceptions of a subclass count, as for `pytest.raises`. What `state` returns must stay as it was.
    """
    wrong, before = [], state()
    for row, (call, error, pattern) in enumerate(table):
        try:
            answer = call()
        except error as caught:
            if not re.search(pattern, str(caught)):
                wrong.append(f"row {row}: expected {pattern!r}, got {type(caught).__name__}: {caught}")
        else:
            wrong.append(f"row {row}: expected {pattern!r}, got {answer!r} without an exception")
        if state() != before:
            wrong.append(f"row {row}: the refusal {pattern!r} changed what was there")
    assert not wrong, "\n".join(wrong)
