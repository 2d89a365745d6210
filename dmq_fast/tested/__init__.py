"""The run whose promise rests on returns alone, for features in which Q* is only nearly linear (docs/control.md)."""

from dmq_fast.tested.intervals import betting_interval
from dmq_fast.tested.run import TestedRun

__all__ = ["TestedRun", "betting_interval"]
