"""Double-double arithmetic: an unevaluated sum hi + lo of two float64, about 106 bits (Dekker, 1971; Knuth).

Needs IEEE arithmetic as written: no contraction, no reassociation. Errors are relative, barring over- and underflow:
at most 2^-102 for each operation below (Joldes, Muller, Popescu, 2017).
"""

cdef struct Double2:
    double hi
    double lo

# a + b exactly.
cdef inline Double2 two_sum(double a, double b) noexcept nogil:
    cdef Double2 out
    cdef double t
    out.hi = a + b
    t = out.hi - a
    out.lo = (a - (out.hi - t)) + (b - t)
    return out

# a + b exactly, for |a| >= |b|.
cdef inline Double2 fast_two_sum(double a, double b) noexcept nogil:
    cdef Double2 out
    out.hi = a + b
    out.lo = b - (out.hi - a)
    return out

# a b exactly.
cdef inline Double2 two_product(double a, double b) noexcept nogil:
    cdef Double2 out
    # Veltkamp's splitting into halves of 26 bits.
    cdef double ta = 134217729.0 * a, tb = 134217729.0 * b
    cdef double ah = ta - (ta - a), bh = tb - (tb - b)
    cdef double al = a - ah, bl = b - bh
    out.hi = a * b
    out.lo = ((ah * bh - out.hi) + ah * bl + al * bh) + al * bl
    return out

cdef inline Double2 add(Double2 a, Double2 b) noexcept nogil:
    cdef Double2 high = two_sum(a.hi, b.hi)
    cdef Double2 low = two_sum(a.lo, b.lo)
    high = fast_two_sum(high.hi, high.lo + low.hi)
    return fast_two_sum(high.hi, high.lo + low.lo)

cdef inline Double2 negate(Double2 a) noexcept nogil:
    cdef Double2 out
    out.hi = -a.hi
    out.lo = -a.lo
    return out

cdef inline Double2 scale(Double2 a, double b) noexcept nogil:
    cdef Double2 product = two_product(a.hi, b)
    return fast_two_sum(product.hi, product.lo + a.lo * b)

cdef inline Double2 divide(Double2 a, Double2 b) noexcept nogil:
    # The quotient of the leading parts, and two Newton steps on the remainder.
    cdef double first = a.hi / b.hi
    cdef Double2 rest = add(a, negate(scale(b, first)))
    cdef double second = rest.hi / b.hi
    rest = add(rest, negate(scale(b, second)))
    cdef Double2 out = fast_two_sum(first, second)
    return fast_two_sum(out.hi, out.lo + rest.hi / b.hi)
