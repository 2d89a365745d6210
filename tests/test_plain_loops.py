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

enum { N = 11, MOST = 40 };

static double random_number(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return ((double) (state >> 11) / 9007199254740992.0 - 0.5) * (state & 8 ? 1.0 : 1e6);
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
    assert len(vectors.splitlines()) > 40_000
    assert printed(compiler, tmp_path, "-DDMQ_PLAIN", "-std=c11", "-Wpedantic", "-Wvla") == vectors
