"""A learner from one dictionary of arguments, options and limits: tests loop over such dictionaries."""

from dataclasses import fields, replace

import dmq_fast as dmq

AIM = {"epsilon", "delta", "mode", "p_min"}
HOW = {"max_trajectories", "max_policies", "max_seconds", "workers", "executor", "journal", "progress"}
OPTIONS = {field.name for field in fields(dmq.Options)} - {"initial"}


def flat(env, **given):
    """Return the learner, `SelfStopping` where an argument of that one is given, and the arguments of `learn`."""
    how = {name: given.pop(name) for name in HOW & given.keys()}
    if AIM & given.keys():
        return Bound(dmq.SelfStopping(env, **given), how)
    options = {name: given.pop(name) for name in OPTIONS & given.keys()}
    if options:
        exact = not dmq.samplers.as_sampler(env).arithmetic.is_float64
        stratified = {"mixture": "stratified"} if options.get("reuse") or exact else {}
        given["variant"] = replace(dmq.VARIANTS[given.get("variant", "sound")], **(stratified | options))
    return Bound(dmq.DMQ(env, **given), how)


class Bound:
    """A learner with the arguments of its `learn`."""

    def __init__(self, learner, how):
        self.learner, self.how = learner, how

    def learn(self):
        """Learn with these arguments."""
        return self.learner.learn(**self.how)

    def __getattr__(self, name):
        return getattr(self.learner, name)
