"""CTCLoss in C: probabilities of the ways to each state, and from it, in double precision without logarithms.

The sums of a step are divided by their total, whose logarithm is kept. What becomes too small for a number beside the others is
noted: where it could have become large again by the end, the sample is marked, and NumPy computes it with logarithms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....integers import cdiv
from ...cpu.c_team import Phases, int64s
from ...cpu.c_template import Call, Template

LEAST = 1 << 6  # scores from which on C is worth compiling: NumPy needs 300 microseconds for few
PIECE = 1 << 12  # scores of a piece, about

_TEXT = """
#include <stdlib.h>

typedef struct { int64_t t, n, k, m, blank, piece; } ctc_sizes;

#define CTC_TINY 1e-270  /* beside the other states of a step, of which the sum is 1 */
#define CTC_APART -500  /* the logarithm of what is left to come from which on such states may have counted */

/* One step: state s is reached from s, s - 1 and, where `skips` says so, s - 2. Divide by the sum, add its logarithm to `sum`.
   Return 0 where nothing is reached, 2 where something became tiny, else 1. */
static int ctc_step(double *to, const double *from, const double *p, const char *skips, int64_t states, double *sum)
{
    double total = 0;
    int tiny = 0;
    for (int64_t s = 0; s < states; s++) {
        const double v = from[s] + (s ? from[s - 1] : 0) + (skips[s] ? from[s - 2] : 0);
        to[s] = v * p[s];
        tiny |= v > 0 && to[s] < CTC_TINY;
        total += to[s];
    }
    if (!(total > 1e-290)) return 0;
    for (int64_t s = 0; s < states; s++) to[s] /= total;
    *sum += log(total);
    return 1 + tiny;
}

/* A sample. p: of each state at each step; ways: room for as many, ahead: for two steps; rows: softmax of the scores, from which
   the states' shares are taken, or null. Return 0 where this is not accurate. */
static int ctc_sample(const double *p, double *ways, double *ahead, const char *skips, const int64_t *classes, int64_t states,
                      int64_t k, int64_t steps, double *loss, double *rows)
{
    double sum = 0, first_tiny = 1, z, *own = ahead + states;
    memset(own, 0, sizeof *own * states);
    own[0] = 1;  /* before the first step: the first two states are reached from here */
    for (int64_t t = 0; t < steps; t++) {
        double *to = ways + t * states;
        const double before = sum;
        int found;
        if (t) found = ctc_step(to, to - states, p + t * states, skips, states, &sum);
        else {
            char no_skips[3] = {0};
            memset(to, 0, sizeof *to * states);
            found = ctc_step(to, own, p, no_skips, states < 2 ? states : 2, &sum);
        }
        if (!found) return 0;
        if (found == 2 && first_tiny > 0) first_tiny = before;
    }
    const double *end = ways + (steps - 1) * states, share = end[states - 1] + (states > 1 ? end[states - 2] : 0);
    if (!(share > 1e-290)) return 0;
    sum += log(share);
    if (first_tiny <= 0 && sum - first_tiny < CTC_APART) return 0;
    *loss = -sum;
    if (!rows) return 1;
    double behind = 0, last_tiny = 1;
    memset(ahead, 0, sizeof *ahead * states);  /* from a state to the end, without the state's own step */
    ahead[states - 1] = 1;
    if (states > 1) ahead[states - 2] = 1;
    for (int64_t t = steps - 1; t >= 0; t--) {
        const double *a = ways + t * states;
        double *row = rows + t * k;
        z = 0;
        for (int64_t s = 0; s < states; s++) z += a[s] * ahead[s];
        if (!(z > 1e-280)) return 0;
        for (int64_t s = 0; s < states; s++) row[classes[s]] -= a[s] * ahead[s] / z;
        if (!t) break;
        for (int64_t s = 0; s < states; s++) own[s] = ahead[s] * p[t * states + s];
        double total = 0;
        for (int64_t s = 0; s < states; s++) {
            last_tiny = ahead[s] > 0 && own[s] < CTC_TINY && last_tiny > 0 ? behind : last_tiny;
            total += own[s];
        }
        if (!(total > 1e-290)) return 0;
        for (int64_t s = 0; s < states; s++)
            ahead[s] = (own[s] + (s + 1 < states ? own[s + 1] : 0) + (s + 2 < states && skips[s + 2] ? own[s + 2] : 0)) / total;
        behind += log(total);
    }
    return !(last_tiny <= 0 && sum - last_tiny < CTC_APART);
}

/* arrays: scores [t][n][k], steps [n], labels [n][m], their counts [n], losses [n] or null, the derivative [t][n][k] or null,
   marks [n] of samples that are not computed, sizes. A piece is some samples. */
void ctc_losses(void *const *arrays, int64_t begin, int64_t end)
{
    const ctc_sizes *g = arrays[7];
    const int64_t k = g->k, most = 2 * g->m + 1, last = end * g->piece < g->n ? end * g->piece : g->n;
    const int64_t *const labels = arrays[2];
    double *p = malloc((sizeof *p * (2 * g->t + 3) + 1) * most + sizeof *p * g->t * k);
    if (!p) abort();
    double *ways = p + g->t * most, *ahead = ways + g->t * most, *rows = ahead + 2 * most;
    int64_t *classes = (int64_t *)(rows + g->t * k);
    char *skips = (char *)(classes + most);
    for (int64_t i = begin * g->piece; i < last; i++) {
        const int64_t states = 2 * ((const int64_t *)arrays[3])[i] + 1, steps = ((const int64_t *)arrays[1])[i];
        float *losses = arrays[4], *derivative = arrays[5];
        for (int64_t s = 0; s < states; s++) {
            classes[s] = s % 2 ? labels[i * g->m + s / 2] : g->blank;
            skips[s] = s % 2 && s > 1 && classes[s] != classes[s - 2];
        }
        const int64_t used = steps ? steps : 1;  /* without steps the loss is that of the first one */
        for (int64_t t = 0; t < used; t++) {
            const float *x = (const float *)arrays[0] + (t * g->n + i) * k;
            double top = x[0], total = 0, *row = rows + t * k;
            for (int64_t j = 1; j < k; j++) top = x[j] > top ? x[j] : top;
            for (int64_t j = 0; j < k; j++) total += row[j] = exp(x[j] - top);
            for (int64_t j = 0; j < k; j++) row[j] /= total;
            for (int64_t s = 0; s < states; s++) p[t * states + s] = row[classes[s]];
        }
        double loss;
        if (!ctc_sample(p, ways, ahead, skips, classes, states, k, used, &loss, derivative ? rows : 0)) {
            ((char *)arrays[6])[i] = 1;
            continue;
        }
        if (losses) losses[i] = loss;
        for (int64_t t = 0; derivative && t < g->t; t++) {
            float *to = derivative + (t * g->n + i) * k;
            for (int64_t j = 0; j < k; j++) to[j] = t < steps ? rows[t * k + j] : 0;
        }
    }
    free(p);
}
"""

_TEMPLATE = Template(lambda: _TEXT, ("ctc_losses",))


def in_c(t: int, n: int, k: int, dtype: np.dtype) -> bool:
    """Return whether C computes losses of scores [t, n, k]: that depends on the sizes, the dtype and the machine alone."""
    return dtype == np.float32 and _TEMPLATE.serves(t * n * k, LEAST)


def losses(run: Any, scores: np.ndarray, steps: np.ndarray, labels: np.ndarray, counts: np.ndarray, blank: int,
           loss: np.ndarray | None, derivative: np.ndarray | None) -> np.ndarray:
    """Write what `ctc.losses` returns. Return the numbers of the samples that are left to it."""
    (t, n, k), m = scores.shape, labels.shape[1]
    piece = max(1, PIECE // (t * k))
    marks = np.zeros(n, bool)
    arrays = *(np.ascontiguousarray(a) for a in (scores, steps, labels, counts)), loss, derivative, marks
    Phases([[Call(_TEMPLATE, "ctc_losses", cdiv(n, piece), int64s(t, n, k, m, blank, piece)).prepare(*arrays)]])(run)
    return np.flatnonzero(marks)
