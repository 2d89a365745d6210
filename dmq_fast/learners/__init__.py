"""The two learners: `SelfStopping`, which reaches an accuracy and stops, and `DMQ`, Algorithms 1 to 3 of the paper.

What a run decides stands in the constructor; where it ends, how fast it is and who is told, in `learn`.
"""

from dmq_fast.learners.dmq import DMQ
from dmq_fast.learners.self_stopping import SelfStopping, learn

__all__ = ["DMQ", "SelfStopping", "learn"]
