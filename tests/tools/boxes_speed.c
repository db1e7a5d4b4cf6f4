/*
 * boxes_speed.c -- times detectors' work besides the network: detections from raw outputs, targets
 *
 *     boxes_speed [IMAGES [ROUNDS]]
 *
 * Codes [12804, 4] and logits [12804, 91] of IMAGES different images (64: 300 MB, more than any
 * cache holds), which are taken in turn ROUNDS times on one core.  Of each kind of image the
 * median round is printed, in the thread's own time:
 *
 *   start      a network at its start: logits normal about -4.6, deviation 0.02
 *   trained    about -8, deviation 1.5, and in each image ten things that light up sixty
 *              anchors each around the same place
 *   coarse     the same rounded to bf16, so that many scores are equal
 *   equal      every logit is the same: the worst case
 *   ssd300     SSD300's outputs, [8732, 4] and [8732, 81]: logits normal, the background six above,
 *              and ten things as before
 *   targets    labels and deltas of SSD320's images with eight ground truths
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/half.h"
#include "base/rng.h"
#include "boxes/nms.h"
#include "boxes/targets.h"

static td_anchors *anchors; /* of the detector at hand */
static size_t columns;

static void fill_normal(td_rng *r, float *x, size_t n, double mean, double deviation)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(mean + deviation * td_rng_normal(r));
}

/* one thing: a class that sixty neighbours of one anchor see */
static void add_thing(td_rng *r, double top, float *logits)
{
    const size_t place = td_rng_below(r, (uint64_t)anchors->n - 60);
    const size_t column = 1 + td_rng_below(r, columns - 1);
    for (size_t i = place; i < place + 60; i++)
        logits[i * columns + column] = (float)(top + 3 * td_rng_normal(r));
}

static void fill(const char *kind, uint64_t image, float *deltas, float *logits)
{
    const size_t n = (size_t)anchors->n * columns;
    td_rng r = td_rng_make(7, TD_RNG_TEST, image, 0);
    fill_normal(&r, deltas, 4 * (size_t)anchors->n, 0, 0.5);
    if (strcmp(kind, "start") == 0) {
        fill_normal(&r, logits, n, -4.6, 0.02);
    } else if (strcmp(kind, "equal") == 0) {
        fill_normal(&r, logits, n, -3, 0);
    } else if (strcmp(kind, "ssd300") == 0) {
        fill_normal(&r, logits, n, 0, 1);
        for (size_t i = 0; i < n; i += columns)
            logits[i] += 6;
        for (int i = 0; i < 10; i++)
            add_thing(&r, 6, logits);
    } else {
        fill_normal(&r, logits, n, -8, 1.5);
        for (int i = 0; i < 10; i++)
            add_thing(&r, 0, logits);
    }
    for (size_t i = 0; strcmp(kind, "coarse") == 0 && i < n; i++)
        logits[i] = td_bf16_to_f32(td_f32_to_bf16(logits[i]));
}

/* seconds that this thread has worked */
static double worked(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *kind, int images, int rounds, double *seconds)
{
    qsort(seconds, (size_t)rounds, sizeof *seconds, compare);
    printf("%-8s %7.0f images/s (%.0f to %.0f)\n", kind, images / seconds[rounds / 2],
           images / seconds[rounds - 1], images / seconds[0]);
}

static td_status measure_targets(int images, int rounds, double *seconds)
{
    void *scratch = td_alloc(1, td_targets_scratch_bytes(anchors));
    int64_t *labels = td_alloc((size_t)anchors->n, sizeof *labels);
    float *deltas = td_alloc((size_t)anchors->n, 4 * sizeof *deltas);
    td_rng r = td_rng_make(7, TD_RNG_TEST, 0, 1);
    td_status st = scratch && labels && deltas ? TD_OK : TD_ENOMEM;
    for (int round = 0; round < rounds && st == TD_OK; round++) {
        const double start = worked();
        for (int i = 0; i < images; i++) {
            td_ground_truth t[8];
            for (int k = 0; k < 8; k++) {
                const float y = (float)td_rng_uniform(&r) / 2, x = (float)td_rng_uniform(&r) / 2;
                const float h = (float)td_rng_uniform(&r) / 2, w = (float)td_rng_uniform(&r) / 2;
                t[k] = (td_ground_truth){ .box = { y, x, y + h, x + w }, .label = 1 + k };
            }
            (void)td_targets_assign(anchors, t, 8, scratch, labels, deltas);
        }
        seconds[round] = worked() - start;
    }
    if (st == TD_OK)
        report("targets", images, rounds, seconds);
    td_free(scratch);
    td_free(labels);
    td_free(deltas);
    return st;
}

static td_status measure(const char *kind, int images, int rounds, float *deltas, float *logits,
                         double *seconds)
{
    const size_t n_deltas = 4 * (size_t)anchors->n, n_logits = columns * (size_t)anchors->n;
    const td_nms_opts opts = td_nms_defaults(anchors->kind);
    td_detection found[TD_NMS_TOTAL_MAX];
    td_nms *m;
    td_status st = TD_OK;
    int n, sum = 0;
    TD_TRY(td_nms_new(anchors, (int)columns, &m));
    for (size_t i = 0; i < (size_t)images; i++)
        fill(kind, i, deltas + i * n_deltas, logits + i * n_logits);
    for (int round = 0; round < rounds; round++) {
        const double start = worked();
        for (size_t i = 0; i < (size_t)images; i++) {
            TD_OUT(td_nms_run(m, &opts, deltas + i * n_deltas, logits + i * n_logits, found, &n));
            sum += n;
        }
        seconds[round] = worked() - start;
    }
    report(kind, images, rounds, seconds);
    printf("         %.1f detections each\n", (double)sum / rounds / images);
out:
    td_nms_free(m);
    return st;
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = { "start", "trained", "coarse", "equal" };
    const int images = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 64;
    const int rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 9;
    td_status st = TD_OK;
    double *seconds = NULL;
    float *deltas = NULL, *logits = NULL;
    if (images < 1 || rounds < 1) {
        fprintf(stderr, "usage: boxes_speed [IMAGES [ROUNDS]]\n");
        return 2;
    }
    columns = 91;
    TD_OUT(td_anchors_new(TD_DETECTOR_SSD320, 320, &anchors));
    deltas = td_alloc((size_t)images * (size_t)anchors->n, 4 * sizeof *deltas);
    logits = td_alloc((size_t)images * (size_t)anchors->n, columns * sizeof *logits);
    seconds = td_alloc((size_t)rounds, sizeof *seconds);
    if (!deltas || !logits || !seconds)
        TD_OUT(TD_ENOMEM);
    for (int k = 0; k < 4; k++)
        TD_OUT(measure(kinds[k], strcmp(kinds[k], "equal") == 0 ? 1 : images, rounds, deltas,
                       logits, seconds));
    TD_OUT(measure_targets(images, rounds, seconds));
    td_anchors_free(anchors);
    columns = 81;
    TD_OUT(td_anchors_new(TD_DETECTOR_SSD300, 300, &anchors));
    TD_OUT(measure("ssd300", images, rounds, deltas, logits, seconds));
out:
    if (st != TD_OK)
        fprintf(stderr, "boxes_speed: %s\n", td_error_message());
    td_free(seconds);
    td_free(logits);
    td_free(deltas);
    td_anchors_free(anchors);
    return st != TD_OK;
}
