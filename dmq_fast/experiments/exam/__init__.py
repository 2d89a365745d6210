"""An exam for algorithms that stop by themselves, on public environments whose best policies are known.

An algorithm is a function from an environment and `Terms` to an `Answer`: the policy, and whether it stopped by a rule
of its own. The environment is one of Gymnasium's, with ``reset(seed=...)`` and ``step(action)``; it counts the
episodes, and raises `Over` where the budget is used up.

    from dmq_fast.experiments.exam import Answer, exam

    def mine(env, terms):
        ...
        return Answer(act, stopped=True)  # act(level, observation) is an action

    rows = exam(["self-stopping", mine], seeds=[0, 1, 2])
"""

from dmq_fast.experiments.exam.contestants import CONTESTANTS
from dmq_fast.experiments.exam.protocol import Algorithm, Answer, NotApplicable, Over, Terms
from dmq_fast.experiments.exam.run import Row, exam
from dmq_fast.experiments.exam.summary import summary_lines
from dmq_fast.experiments.exam.tasks import TASKS, Task

__all__ = [
    "CONTESTANTS",
    "TASKS",
    "Algorithm",
    "Answer",
    "NotApplicable",
    "Over",
    "Row",
    "Task",
    "Terms",
    "exam",
    "summary_lines",
]
