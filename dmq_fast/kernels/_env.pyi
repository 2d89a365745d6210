from types import CapsuleType

ENVIRONMENT_SIZE: int
VERSION: int

def capsule_at(address: int) -> CapsuleType: ...

class EnvironmentHandle:
    horizon: int
