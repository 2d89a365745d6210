"""Mountain car and cart-pole, as compiled environments; see `_env.pxd` for the interface.

Starts, dynamics, ends, time limits and rewards are those of Gymnasium's MountainCar-v0 and CartPole-v1, in the same
order of floating-point operations. An episode that was terminated or reached the time limit keeps its state and earns
nothing.
"""

from libc.math cimport cos, fmax, fmin, sin
from libc.stdint cimport int8_t, int64_t

from dmq_fast.kernels._env cimport ENVIRONMENT_VERSION, Environment, environment_capsule
from dmq_fast.kernels._validate cimport integer

# Steps of an episode, at most.
cdef enum:
    CAR_LIMIT = 200
    CART_LIMIT = 500
    LONGEST_HOLD = 500

cdef struct Car:
    double position
    double velocity
    int64_t ended

cdef struct Cart:
    double x
    double x_dot
    double theta
    double theta_dot
    int64_t ended


cdef class Control:
    """Base class of environments whose steps draw no uniforms; each fills in the rest.

    Parameters
    ----------
    horizon : int
        Number of levels H >= 1.
    hold : int, default 1
        Steps of a level, >= 1, in which its action is held.
    """

    cdef Environment environment
    cdef int64_t hold

    def __cinit__(self, horizon, hold=1):
        self.hold = integer(hold, "hold", 1, LONGEST_HOLD)
        self.environment.context = &self.hold
        self.environment.size = sizeof(Environment)
        self.environment.version = ENVIRONMENT_VERSION
        self.environment.horizon = integer(horizon, "horizon", 1, 2**63 - 1)

    def __dmq_environment__(self):
        """Return a capsule of the environment. This object must stay alive."""
        return environment_capsule(&self.environment)


cdef class MountainCar(Control):
    """An underpowered car in a valley, which has to swing itself up the hill on the right.

    Observations are position and velocity; the actions push left, not at all, and right. Every step costs 1 until the
    car has climbed the hill, or for 200 steps.

    Parameters
    ----------
    horizon : int
        Number of levels H >= 1.
    hold : int, default 1
        Steps of a level, >= 1, in which its action is held.

    Examples
    --------
    >>> from dmq_fast.kernels import EnvironmentHandle
    >>> EnvironmentHandle(MountainCar(horizon=200)).n_actions
    3
    """

    def __cinit__(self, horizon, hold=1):
        self.environment.n_actions = 3
        self.environment.dimension = 2
        self.environment.state_bytes = sizeof(Car)
        self.environment.reset_uniforms = 1
        self.environment.reset = car_reset
        self.environment.features = car_features
        self.environment.step = car_step
        self.environment.ended = car_ended


cdef class CartPole(Control):
    """A pole on a cart, to be kept upright.

    Observations are the cart's position and velocity, the pole's angle and its angular velocity; the actions push the
    cart left and right. Every step earns 1 until the pole falls or the cart leaves the track, or for 500 steps.

    Parameters
    ----------
    horizon : int
        Number of levels H >= 1.
    hold : int, default 1
        Steps of a level, >= 1, in which its action is held.

    Examples
    --------
    >>> from dmq_fast.kernels import EnvironmentHandle
    >>> EnvironmentHandle(CartPole(horizon=200)).dimension
    4
    """

    def __cinit__(self, horizon, hold=1):
        self.environment.n_actions = 2
        self.environment.dimension = 4
        self.environment.state_bytes = sizeof(Cart)
        self.environment.reset_uniforms = 4
        self.environment.reset = cart_reset
        self.environment.features = cart_features
        self.environment.step = cart_step
        self.environment.ended = cart_ended


# Mountain car


cdef int car_reset(const void* context, int64_t n, const double* u, void* states) noexcept nogil:
    cdef Car* car = <Car*> states
    cdef int64_t i
    for i in range(n):
        car[i].position = -0.6 + (-0.4 - -0.6) * u[i]
        car[i].velocity = 0.0
        car[i].ended = 0
    return 0


cdef int car_features(
    const void* context, int64_t level, int64_t n, const void* states, const double* u, double* phi
) noexcept nogil:
    # Gymnasium's observations have single precision.
    cdef const Car* car = <const Car*> states
    cdef int64_t i
    for i in range(n):
        phi[2 * i] = <float> car[i].position
        phi[2 * i + 1] = <float> car[i].velocity
    return 0


cdef int car_step(
    const void* context, int64_t level, int64_t n, void* states, const int64_t* actions, const double* u,
    double* rewards
) noexcept nogil:
    cdef Car* car = <Car*> states
    cdef double force = 0.001, gravity = 0.0025, speed = 0.07, left = -1.2, right = 0.6, goal = 0.5
    cdef double position, velocity
    cdef int64_t i, step, hold = (<const int64_t*> context)[0], first = level * hold
    for i in range(n):
        rewards[i] = 0.0
        for step in range(first, first + hold):
            if car[i].ended:
                break
            velocity = car[i].velocity + (
                <double> (actions[i] - 1) * force + cos(3.0 * car[i].position) * (-gravity)
            )
            velocity = fmin(fmax(velocity, -speed), speed)
            position = fmin(fmax(car[i].position + velocity, left), right)
            # The left end is a wall.
            if position == left and velocity < 0.0:
                velocity = 0.0
            car[i].position = position
            car[i].velocity = velocity
            car[i].ended = step + 1 >= CAR_LIMIT or (position >= goal and velocity >= 0.0)
            rewards[i] -= 1.0
    return 0


cdef int car_ended(
    const void* context, int64_t level, int64_t n, const void* states, int8_t* ended
) noexcept nogil:
    cdef const Car* car = <const Car*> states
    cdef int64_t i
    for i in range(n):
        ended[i] = car[i].ended != 0
    return 0


# Cart-pole


cdef int cart_reset(const void* context, int64_t n, const double* u, void* states) noexcept nogil:
    cdef Cart* cart = <Cart*> states
    cdef int64_t i
    for i in range(n):
        cart[i].x = -0.05 + (0.05 - -0.05) * u[4 * i]
        cart[i].x_dot = -0.05 + (0.05 - -0.05) * u[4 * i + 1]
        cart[i].theta = -0.05 + (0.05 - -0.05) * u[4 * i + 2]
        cart[i].theta_dot = -0.05 + (0.05 - -0.05) * u[4 * i + 3]
        cart[i].ended = 0
    return 0


cdef int cart_features(
    const void* context, int64_t level, int64_t n, const void* states, const double* u, double* phi
) noexcept nogil:
    # Gymnasium's observations have single precision.
    cdef const Cart* cart = <const Cart*> states
    cdef int64_t i
    for i in range(n):
        phi[4 * i] = <float> cart[i].x
        phi[4 * i + 1] = <float> cart[i].x_dot
        phi[4 * i + 2] = <float> cart[i].theta
        phi[4 * i + 3] = <float> cart[i].theta_dot
    return 0


cdef int cart_step(
    const void* context, int64_t level, int64_t n, void* states, const int64_t* actions, const double* u,
    double* rewards
) noexcept nogil:
    cdef Cart* cart = <Cart*> states
    cdef double gravity = 9.8, cart_mass = 1.0, pole_mass = 0.1, half_length = 0.5, push = 10.0, tau = 0.02
    cdef double mass = pole_mass + cart_mass, moment = pole_mass * half_length
    cdef double farthest = 2.4, steepest = 12 * 2 * 3.141592653589793 / 360  # MSVC has no M_PI
    cdef double c, s, temp, turning, pulling
    cdef Cart now
    cdef int64_t i, step, hold = (<const int64_t*> context)[0], first = level * hold
    for i in range(n):
        rewards[i] = 0.0
        for step in range(first, first + hold):
            now = cart[i]
            if now.ended:
                break
            c = cos(now.theta)
            s = sin(now.theta)
            # Accelerations of the pole's angle and of the cart, without friction.
            temp = ((push if actions[i] == 1 else -push) + moment * (now.theta_dot * now.theta_dot) * s) / mass
            turning = (gravity * s - c * temp) / (half_length * (4.0 / 3.0 - pole_mass * (c * c) / mass))
            pulling = temp - moment * turning * c / mass
            # Explicit Euler: positions move with the old velocities.
            now.x = now.x + tau * now.x_dot
            now.x_dot = now.x_dot + tau * pulling
            now.theta = now.theta + tau * now.theta_dot
            now.theta_dot = now.theta_dot + tau * turning
            now.ended = (
                step + 1 >= CART_LIMIT or now.x < -farthest or now.x > farthest or now.theta < -steepest
                or now.theta > steepest
            )
            cart[i] = now
            rewards[i] += 1.0
    return 0


cdef int cart_ended(
    const void* context, int64_t level, int64_t n, const void* states, int8_t* ended
) noexcept nogil:
    cdef const Cart* cart = <const Cart*> states
    cdef int64_t i
    for i in range(n):
        ended[i] = cart[i].ended != 0
    return 0
