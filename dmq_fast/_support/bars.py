"""`progress=True`: progress bars of tqdm, on terminals and in notebooks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Bar", "check_progress", "showing"]


def check_progress(progress: Any) -> None:
    """Check an argument `progress`.

    Raises
    ------
    TypeError
        If it is neither None nor a bool nor a callable.
    ImportError
        If it is True, and tqdm is not installed.
    """
    if progress is True:
        try:
            import tqdm  # noqa: F401
        except ModuleNotFoundError as error:
            message = 'progress: True needs tqdm: pip install "dmq-fast[progress]"'
            raise ModuleNotFoundError(message, name="tqdm") from error
    elif progress is not None and progress is not False and not callable(progress):
        raise TypeError(f"progress: expected a callable or a bool, got {progress!r}")


class Bar:
    """A progress bar, to be called with progress objects.

    Parameters
    ----------
    total : int, optional
        The number that `done` reaches; without one, the bar counts.
    done : callable
        Function of a progress object that returns how much is done.
    text : callable
        Function of a progress object that returns the text behind the bar.
    """

    def __init__(self, total: int | None, done: Callable[[Any], int], text: Callable[[Any], str]) -> None:
        from tqdm.auto import tqdm

        self.done, self.text = done, text
        self.bar: Any = tqdm(total=total, bar_format="{percentage:3.0f}%|{bar}| {desc}" if total else "{desc}")

    def __call__(self, progress: Any) -> None:
        """Show the progress, if it was not shown a moment ago."""
        self.bar.set_description_str(self.text(progress), refresh=False)
        self.bar.update(self.done(progress) - self.bar.n)

    def close(self) -> None:
        """Leave the bar as it is, with the last progress."""
        self.bar.refresh()
        self.bar.close()


@contextlib.contextmanager
def showing(progress: Any, bar: Callable[[], Bar]) -> Iterator[Callable[[Any], object] | None]:
    """Yield the function that a checked argument `progress` stands for; of True, a bar that the block's end closes."""
    if progress is not True:
        yield progress or None
        return
    shown = bar()
    try:
        yield shown
    finally:
        shown.close()
