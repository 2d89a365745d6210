"""The collaborators of the run that stops by itself (`dmq_fast.self_stopping`): aim, episodes, candidates and tests."""
