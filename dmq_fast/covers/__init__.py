"""The collaborators of Algorithms 1 to 3 (`dmq_fast.dmq`): options, draws, oracle, fits, and S_h of each level.

Imports go one way: `draws` and `oracle` use `cover`, `memory` and `options`.
"""
