/*
 * nms_speed.c -- pictures a second from SSD320's raw outputs to detections, on one core
 *
 *     nms_speed [PICTURES [ROUNDS]]
 *
 * Codes [12804, 4] and logits [12804, 91] of PICTURES different pictures (64: 300 MB, more than any
 * cache holds), which are taken in turn ROUNDS times.  Of each kind of picture the median round is
 * printed:
 *
 *   start      a network at its start: logits normal about -4.6, deviation 0.02
 *   trained    about -8, deviation 1.5, and in each picture ten things that light up sixty
 *              anchors each around the same place
 *   coarse     the same rounded to bf16, so that many scores are equal
 *   equal      every logit is the same: the worst case
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/half.h"
#include "base/os.h"
#include "base/rng.h"
#include "boxes/nms.h"

#define COLUMNS 91

static td_anchors *anchors;

static void fill_normal(td_rng *r, float *x, size_t n, double mean, double deviation)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(mean + deviation * td_rng_normal(r));
}

/* one thing: a class that sixty neighbours of one anchor see */
static void add_thing(td_rng *r, float *logits)
{
    const size_t place = td_rng_below(r, (uint64_t)anchors->n - 60);
    const size_t column = 1 + td_rng_below(r, COLUMNS - 1);
    for (size_t i = place; i < place + 60; i++)
        logits[i * COLUMNS + column] = (float)(3 * td_rng_normal(r));
}

static void fill(const char *kind, uint64_t picture, float *codes, float *logits)
{
    const size_t n = (size_t)anchors->n * COLUMNS;
    td_rng r = td_rng_make(7, TD_RNG_TEST, picture, 0);
    fill_normal(&r, codes, 4 * (size_t)anchors->n, 0, 0.5);
    if (strcmp(kind, "start") == 0) {
        fill_normal(&r, logits, n, -4.6, 0.02);
    } else if (strcmp(kind, "equal") == 0) {
        fill_normal(&r, logits, n, -3, 0);
    } else {
        fill_normal(&r, logits, n, -8, 1.5);
        for (int i = 0; i < 10; i++)
            add_thing(&r, logits);
    }
    for (size_t i = 0; strcmp(kind, "coarse") == 0 && i < n; i++)
        logits[i] = td_bf16_to_f32(td_f32_to_bf16(logits[i]));
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static td_status measure(const char *kind, int pictures, int rounds, float *codes, float *logits,
                         double *seconds)
{
    const size_t n_codes = 4 * (size_t)anchors->n, n_logits = COLUMNS * (size_t)anchors->n;
    const td_nms_opts opts = td_nms_defaults(TD_DETECTOR_SSD320);
    td_detection found[TD_NMS_TOTAL_MAX];
    td_nms *m;
    td_status st = TD_OK;
    int n, sum = 0;
    TD_TRY(td_nms_new(anchors, COLUMNS, &m));
    for (size_t i = 0; i < (size_t)pictures; i++)
        fill(kind, i, codes + i * n_codes, logits + i * n_logits);
    for (int round = 0; round < rounds; round++) {
        const int64_t start = td_now_ns();
        for (size_t i = 0; i < (size_t)pictures; i++) {
            TD_OUT(td_nms_run(m, &opts, codes + i * n_codes, logits + i * n_logits, found, &n));
            sum += n;
        }
        seconds[round] = (double)(td_now_ns() - start) * 1e-9;
    }
    qsort(seconds, (size_t)rounds, sizeof *seconds, compare);
    printf("%-8s %7.0f pictures/s (%.0f to %.0f), %.1f detections each\n", kind,
           pictures / seconds[rounds / 2], pictures / seconds[rounds - 1], pictures / seconds[0],
           (double)sum / rounds / pictures);
out:
    td_nms_free(m);
    return st;
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = { "start", "trained", "coarse", "equal" };
    const int pictures = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 64;
    const int rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 9;
    td_status st = TD_OK;
    double *seconds = NULL;
    float *codes = NULL, *logits = NULL;
    if (pictures < 1 || rounds < 1) {
        fprintf(stderr, "usage: nms_speed [PICTURES [ROUNDS]]\n");
        return 2;
    }
    TD_OUT(td_anchors_new(TD_DETECTOR_SSD320, 320, &anchors));
    codes = td_alloc((size_t)pictures * (size_t)anchors->n, 4 * sizeof *codes);
    logits = td_alloc((size_t)pictures * (size_t)anchors->n, COLUMNS * sizeof *logits);
    seconds = td_alloc((size_t)rounds, sizeof *seconds);
    if (!codes || !logits || !seconds)
        TD_OUT(TD_ENOMEM);
    for (int k = 0; k < 4; k++)
        TD_OUT(measure(kinds[k], strcmp(kinds[k], "equal") == 0 ? 1 : pictures, rounds, codes,
                       logits, seconds));
out:
    if (st != TD_OK)
        fprintf(stderr, "nms_speed: %s\n", td_error_message());
    td_free(seconds);
    td_free(logits);
    td_free(codes);
    td_anchors_free(anchors);
    return st != TD_OK;
}
