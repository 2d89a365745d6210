from typing import Any

ENVIRONMENT_SIZE: int
VERSION: int

def capsule_at(address: int) -> Any: ...

class EnvironmentHandle:
    horizon: int
