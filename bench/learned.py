"""Draw what is learned on FrozenLake and on mountain car: bench/figures/lake.png and car.png.

    python bench/learned.py

With Gymnasium's own rules and the settings of `dmq.learn`.
"""

from pathlib import Path

import dmq_fast as dmq

FIGURES = Path(__file__).parent / "figures"

if __name__ == "__main__":
    for name, identifier in (("lake", "FrozenLake-v1"), ("car", "MountainCar-v0")):
        dmq.learn(identifier, rng=0).plot().savefig(FIGURES / f"{name}.png", dpi=130)
