"""Tables of what is refused: one test function walks through a whole table and lists every row that fails."""

import re


def refused(table):
    """Assert that each call of a table of (call, exception, pattern) raises this exception, with such a message.

    Exceptions of a subclass count, as for `pytest.raises`.
    """
    wrong = []
    for row, (call, error, pattern) in enumerate(table):
        try:
            answer = call()
        except error as caught:
            if not re.search(pattern, str(caught)):
                wrong.append(f"row {row}: expected {pattern!r}, got {type(caught).__name__}: {caught}")
        else:
            wrong.append(f"row {row}: expected {pattern!r}, got {answer!r} without an exception")
    assert not wrong, "\n".join(wrong)
