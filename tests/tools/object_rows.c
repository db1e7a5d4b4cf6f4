/*
 * object_rows.c -- prints rows of detectors' batches and the random numbers used for them
 *
 *     object_rows DETECTOR SIZE JITTER < REQUESTS > ROWS     ssd320 or ssd300; 1: --color-jitter
 *     object_rows draws N COUNT > DRAWS                      of samples 0 .. N - 1
 *
 * A request is a line: seed epoch sample path n, and n times: label ymin xmin ymax xmax.  For each
 * ROWS has, in the machine's order: i32 n left; of each i32 label, f32 ymin xmin ymax xmax; the row
 * f32 [3, SIZE, SIZE]; u64 [4096], the first draws for the place; u64 [8], those for colours.
 * DRAWS has u64 [COUNT] for the place and u64 [8] for colours, of each sample.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "base/text.h"
#include "transforms/object_row.h"

enum { GROUND_TRUTHS_MAX = 100, DRAWS = 4096, COLOURS = 8 };

static bool put(const void *what, size_t n_bytes)
{
    return fwrite(what, 1, n_bytes, stdout) == n_bytes;
}

static bool put_draws(uint64_t seed, uint64_t epoch, uint64_t sample, int n)
{
    td_rng place = td_rng_make(seed, TD_RNG_CROP, epoch, sample);
    td_rng colour = td_rng_make(seed, TD_RNG_AUGMENT, epoch, sample);
    bool is_written = true;
    for (int i = 0; i < n + COLOURS; i++) {
        const uint64_t u = td_rng_u64(i < n ? &place : &colour);
        is_written = is_written && put(&u, sizeof u);
    }
    return is_written;
}

static bool put_ground_truths(const td_ground_truth *ground_truths, int n)
{
    bool is_written = put(&n, sizeof n);
    for (int i = 0; i < n; i++) {
        const int32_t label = (int32_t)ground_truths[i].label;
        is_written = is_written && put(&label, sizeof label) &&
                     put(&ground_truths[i].box, sizeof ground_truths[i].box);
    }
    return is_written;
}

typedef struct {
    td_transformer w;
    td_transform t;
    td_ground_truth ground_truths[GROUND_TRUTHS_MAX];
    float *row;
} rows;

static bool read_ground_truths(rows *r, int n)
{
    for (int i = 0; i < n; i++) {
        td_ground_truth *t = &r->ground_truths[i];
        *t = (td_ground_truth){ 0 };
        if (scanf("%" SCNd64 " %f %f %f %f", &t->label, &t->box.ymin, &t->box.xmin, &t->box.ymax,
                  &t->box.xmax) != 5)
            return false;
    }
    return true;
}

/* 1: a row was made; 0: no request is left; -1: it failed */
static int make_row(rows *r)
{
    uint64_t epoch, sample;
    char path[1024];
    int n;
    const int found = scanf("%" SCNu64 " %" SCNu64 " %" SCNu64 " %1023s %d", &r->t.seed, &epoch,
                            &sample, path, &n);
    if (found == EOF)
        return 0;
    if (found != 5 || n < 0 || n > GROUND_TRUTHS_MAX || !read_ground_truths(r, n))
        return -1;
    if (td_transform_read(&r->w, path) != TD_OK)
        return -1;
    const td_object_source from = { .bytes = r->w.bytes,
                                    .n_bytes = r->w.n_bytes,
                                    .scene = { .ground_truths = r->ground_truths, .n = n },
                                    .epoch = (int64_t)epoch,
                                    .sample = (int64_t)sample };
    if (td_object_row(&r->w, &r->t, &from, r->row, &n) != TD_OK)
        return -1;
    const size_t n_values = 3 * (size_t)r->t.size * (size_t)r->t.size;
    return put_ground_truths(r->w.ground_truths, n) && put(r->row, n_values * sizeof *r->row) &&
                   put_draws(r->t.seed, epoch, sample, DRAWS)
               ? 1
               : -1;
}

static int make_rows(const char *detector, int size, bool is_jittered)
{
    rows *r = TD_NEW(rows);
    int made = -1;
    if (r && size > 0 && size <= 1024)
        r->row = td_alloc(3 * (size_t)size * (size_t)size, sizeof(float));
    if (r && r->row) {
        r->t = (td_transform){ .is_training = true,
                               .size = size,
                               .detector = strcmp(detector, "ssd300") == 0 ? TD_DETECTOR_SSD300
                                                                           : TD_DETECTOR_SSD320,
                               .is_jittered = is_jittered };
        while ((made = make_row(r)) > 0)
            ;
        td_transformer_release(&r->w);
        td_free(r->row);
    }
    td_free(r);
    if (made < 0)
        fprintf(stderr, "object_rows: %s\n", td_error_message());
    return made < 0 ? 1 : 0;
}

static int number(const char *text)
{
    int64_t n;
    return td_text_to_int(text, &n) && n >= 0 && n <= 1000000 ? (int)n : -1;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "draws") == 0) {
        for (int i = 0; i < number(argv[2]); i++)
            if (!put_draws(1, 0, (uint64_t)i, number(argv[3])))
                return 1;
        return 0;
    }
    if (argc == 4)
        return make_rows(argv[1], number(argv[2]), number(argv[3]) != 0);
    fprintf(stderr,
            "usage: object_rows DETECTOR SIZE JITTER < REQUESTS | object_rows draws N COUNT\n");
    return 2;
}
