"""The DSEC oracle and ridge regression over a kernel's Hilbert space, from kernel matrices alone.

The class is all f of the Hilbert space of a kernel k, with Lambda(f_1, f_2) = lam ||f_1 - f_2||^2. As it is a vector
space, the oracle (paper, oracle 4.2) is, for samples s_1, ..., s_n1 and t_1, ..., t_n2,

    v = max (1/n2) sum_i f(t_i)^2   subject to   (1/n1) sum_i f(s_i)^2 + lam ||f||^2 <= eps_1.

*In the span.* Let z_1, ..., z_n be all the samples and f = sum_j alpha_j k(z_j, .) + g with g orthogonal to every
k(z_j, .). Then g(z_j) = <g, k(z_j, .)> = 0, so g changes no sum and only adds to ||f||: it is 0 at the maximum. With
K = (k(z_i, z_j)), f has the values K alpha on the samples and ||f||^2 = alpha^T K alpha, so

    v = eps_1 max alpha^T A alpha / alpha^T B alpha,   A = K_2^T K_2 / n2,   B = K_1^T K_1 / n1 + lam K,

where K_1 and K_2 are the rows of the s_i and of the t_i: the top eigenvalue of the pencil (A, B), if K is definite.

*Without the span.* Write Phi_1, Phi_2 for the operators f -> (f(s_i)), f -> (f(t_i)), so that Phi_a Phi_b^* = K_ab. The
problem is v = eps_1 lambda_max((Phi_1^* Phi_1 / n1 + lam)^{-1} Phi_2^* Phi_2 / n2), and as the eigenvalues of XY and YX
other than 0 agree, v = (eps_1 / n2) lambda_max(Phi_2 (Phi_1^* Phi_1 / n1 + lam)^{-1} Phi_2^*). By the Woodbury identity
(Phi_1^* Phi_1 / n1 + lam)^{-1} = (1 - Phi_1^* (K_11 + n1 lam)^{-1} Phi_1) / lam, hence

    v = eps_1 / (n2 lam) lambda_max(K_22 - K_21 (K_11 + n1 lam I)^{-1} K_12),

the largest posterior variance of a direction, were f a Gaussian process. This needs no definite K.

*How v depends on K.* Let K change by E, symmetric, both K and K + E positive semidefinite, and write c = n1 lam and
B = K_21 (K_11 + c I)^{-1}. The Schur complement above is the least [-B I] (K + diag(c I, 0)) [-B I]^T over all B in
the order of symmetric matrices, so with the B of K in place of that of K + E it rises by at most
||[-B I]||^2 ||E|| = (1 + ||B||^2) ||E||, and it falls by no more the other way round. As K_21 = K_22^{1/2} C K_11^{1/2}
with ||C|| <= 1, ||B|| <= ||K_22||^{1/2} max_x x^{1/2} / (x + c) <= (n2 / (4 c))^{1/2} where k <= 1. Therefore

    |dv| <= eps_1 / (n2 lam) (1 + n2 / (4 n1 lam)) ||E||.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Array = NDArray[np.float64]


def gaussian(x: Array, y: Array, width: float = 1.0) -> Array:
    """Kernel matrix exp(-||x_i - y_j||^2 / (2 width^2))."""
    return np.exp(-(((x[:, None] - y) / width) ** 2).sum(axis=2) / 2)


def value_in_span(k: Array, n1: int, eps_1: float, lam: float) -> float:
    """v from the kernel matrix of all samples, the n1 of D_1 first; definite."""
    first, second = k[:n1], k[n1:]
    a = second.T @ second / len(second)
    b = first.T @ first / n1 + lam * k
    return eps_1 * float(scipy.linalg.eigh(a, b, eigvals_only=True)[-1])


def value(k: Array, n1: int, eps_1: float, lam: float) -> float:
    """v from the kernel matrix of all samples, the n1 of D_1 first."""
    k11, k12, k22 = k[:n1, :n1], k[:n1, n1:], k[n1:, n1:]
    complement = k22 - k12.T @ np.linalg.solve(k11 + n1 * lam * np.eye(n1), k12)
    return eps_1 / (len(k22) * lam) * float(np.linalg.eigvalsh(complement)[-1])


def slope(n1: int, n2: int, eps_1: float, lam: float) -> float:
    """Bound on |dv| / ||E||, for kernels <= 1."""
    return eps_1 / (n2 * lam) * (1.0 + n2 / (4.0 * n1 * lam))


def ridge_predictions(k: Array, n1: int, y: Array, lam: float) -> Array:
    """Values on all samples of the f that minimises (1/n1) sum_i (f(s_i) - y_i)^2 + lam ||f||^2."""
    return k[:, :n1] @ np.linalg.solve(k[:n1, :n1] + n1 * lam * np.eye(n1), y)
