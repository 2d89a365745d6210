"""Where a compiler has no vector types, plain loops give the same bits."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "src_pyx"
COMPILERS = [compiler for compiler in ("gcc", "clang") if shutil.which(compiler)]

PROGRAM = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "dmq_greedy.h"
#include "dmq_moments.h"
#include "dmq_reduce.h"
#include "dmq_score.h"

enum { N = 11, MOST = 40 };

static double random_number(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return ((double) (state >> 11) / 9007199254740992.0 - 0.5) * (state & 8 ? 1.0 : 1e6);
}

static double factor[MOST * MOST + 16], packed_factor[MOST * (MOST + 8)], mean[MOST], group[MOST * DMQ_GROUP];
static float single_factor[MOST * (MOST + 8)], single_group[MOST * DMQ_GROUP_SINGLE], single[N * MOST];
static double targets[N * 20];
static float single_mean[MOST];

/* Many rows of one factor. Solutions are compared with others, since processors may round a product and a sum once. */
static void many_rows(double* x, ptrdiff_t m, ptrdiff_t d)
{
    double out[N], square[DMQ_GROUP], product[DMQ_GROUP], worst = 0.0;
    float single_out[N], single_square[DMQ_GROUP_SINGLE], single_product[DMQ_GROUP_SINGLE];
    for (ptrdiff_t i = 0; i < d * d; i++)
        factor[i] = i % (d + 1) == 0 ? 4.0 * (double) d : random_number() / 1e6;
    for (ptrdiff_t i = 0; i < m * d; i++)
        single[i] = (float) x[i];
    for (ptrdiff_t i = 0; i < d; i++)
        single_mean[i] = (float) (mean[i] = random_number());
    dmq_products(x, mean, out, m, d);
    dmq_products_single(single, single_mean, single_out, m, d);
    printf("%d %d\n", dmq_finite(x, m * d), dmq_finite_single(single, m * d));
    for (ptrdiff_t i = 0; i < m; i++)
        printf("%a %a %d\n", out[i], (double) single_out[i], out[i] == dmq_dot(x + i * d, mean, d));
    printf("%d", dmq_raise(out, mean, 0.5, 0));
    for (ptrdiff_t i = 0; i < m; i++)
        mean[i] = fabs(x[i * d]), single_mean[i] = (float) mean[i];
    dmq_raise(out, mean, 0.5, m);
    dmq_raise_single(single_out, single_mean, 0.5f, m);
    for (ptrdiff_t i = 0; i < m; i++)
        printf(" %a %a", out[i], (double) single_out[i]);
    dmq_gather_single(single, d, m, single_group, 0, d);
    for (ptrdiff_t i = 0; i < d; i++)
        for (ptrdiff_t l = 0; l < m; l++)
            printf(" %a", (double) single_group[i * DMQ_GROUP_SINGLE + l]);
    for (int reversed = 0; reversed < 2; reversed++) {
        dmq_pack(factor, packed_factor, reversed, d);
        dmq_gather(x, d, m, group, reversed, d);
        for (ptrdiff_t i = 0; i < d; i++)
            for (ptrdiff_t l = 0; l < m; l++)
                printf(" %a", group[i * DMQ_GROUP + l]);
        for (ptrdiff_t i = 0; i < dmq_packed_size(d); i++)
            printf(" %a", packed_factor[i]);
    }
    dmq_displace(group, mean, 0.5, m, x, d);
    for (ptrdiff_t i = 0; i < m * d; i++)
        printf(" %a", x[i]);
    dmq_pack(factor, packed_factor, 0, d);
    dmq_gather(x, d, m, group, 0, d);
    dmq_best_scorer()(packed_factor, mean, group, group, product, square, m, d);
    for (ptrdiff_t i = 0; i < m * d; i++)
        single[i] = (float) x[i];
    dmq_pack_single(factor, single_factor, 0, d);
    dmq_gather_single(single, d, m, single_group, 0, d);
    dmq_best_scorer_single()(single_factor, NULL, single_group, single_group, single_product, single_square, m, d);
    for (ptrdiff_t l = 0; l < m; l++) {
        double alone[MOST], size = 0.0, total = 0.0, products = 0.0;
        for (ptrdiff_t j = 0; j < d; j++) {
            alone[j] = x[l * d + j];
            for (ptrdiff_t k = 0; k < j; k++)
                alone[j] -= factor[k * d + j] * alone[k];
            alone[j] /= factor[j * d + j];
            size = fmax(size, fabs(alone[j]));
            total += alone[j] * alone[j];
            products += alone[j] * mean[j];
        }
        for (ptrdiff_t j = 0; j < d; j++)
            worst = fmax(worst, fabs(group[j * DMQ_GROUP + l] - alone[j]) / size);
        for (ptrdiff_t j = 0; j < d; j++)
            worst = fmax(worst, 1e-9 * fabs((double) single_group[j * DMQ_GROUP_SINGLE + l] - alone[j]) / size);
        worst = fmax(worst, 1e-9 * fabs((double) single_square[l] / total - 1.0));
        worst = fmax(worst, fabs(square[l] / total - 1.0));
        worst = fmax(worst, fabs(product[l] - products) / (size * 1e6 * (double) d));
    }
    ptrdiff_t t = d % 20 + 1;
    dmq_targets(x, factor, mean, targets, m, t, d);
    for (ptrdiff_t i = 0; i < m * t; i++) {
        double total = mean[i / t], size = fabs(total);
        for (ptrdiff_t k = 0; k < d; k++) {
            total += x[i / t * d + k] * factor[k * t + i % t];
            size += fabs(x[i / t * d + k] * factor[k * t + i % t]);
        }
        worst = fmax(worst, fabs(targets[i] - total) / size);
    }
    printf("\n%s\n", worst < 1e-13 ? "near" : "far");
}

int main(void)
{
    static double rows[N * MOST + 8], packed[12 * MOST], gram[MOST * MOST], value[N];
    static int64_t action[N];
    for (ptrdiff_t d = 1; d <= MOST; d++)
        for (int poisoned = 0; poisoned < 2; poisoned++) {
            for (int i = 0; i < N * MOST + 8; i++)
                rows[i] = random_number();
            for (int i = 0; i < 12 * MOST; i++)
                packed[i] = random_number();
            for (int i = 0; i < MOST * MOST; i++)
                gram[i] = random_number();
            /* Ties, between actions of one group and of two. */
            for (ptrdiff_t i = 0; i < d; i++)
                packed[4 * i + 3] = packed[4 * (d + i) + 2] = packed[4 * i + 1];
            rows[7 * d] = poisoned ? HUGE_VAL : rows[7 * d];
            printf("%a %td\n", dmq_square(rows, d), dmq_greedy_rows(rows, N, d % 12 + 1, d, packed, action, value));
            for (int i = 0; i < (poisoned ? 7 : N); i++)
                printf("%d %a\n", (int) action[i], value[i]);
            if (!poisoned)
                dmq_best_tiles()(gram, rows, rows, N, d);
            for (ptrdiff_t i = 0; i < d * d; i++)
                printf("%a\n", gram[i]);
            rows[7 * d] = random_number();
            many_rows(rows, d % N + 1, d);
        }
    return 0;
}
"""


def printed(compiler, folder, *options):
    """Compile the program without a warning, and return what it prints."""
    (folder / "program.c").write_text(PROGRAM)
    flags = ["-O3", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
    include = [f"-I{SOURCES / name}" for name in ("base", "linalg")]
    command = [compiler, *flags, *include, *options, "program.c", "-o", "program", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return subprocess.run([folder / "program"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("compiler", COMPILERS)
def test_plain_loops_give_the_same_bits(compiler, tmp_path):
    vectors = printed(compiler, tmp_path)
    assert len(vectors.splitlines()) > 40_000 and vectors.count("near\n") == 80 and "far" not in vectors
    assert printed(compiler, tmp_path, "-DDMQ_PLAIN", "-std=c11", "-Wpedantic", "-Wvla") == vectors
