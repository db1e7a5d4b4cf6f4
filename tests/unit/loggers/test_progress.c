/* test_progress.c -- how far a pass over a data set is: what is said, when, and to whom */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "loggers/progress.h"
#include "support/expect.h"
#include "tandem/dataset.h"
#include "tandem/loader.h"

typedef struct {
    char lines[16][200];
    int n;
} heard;

static void hear(void *ctx, td_log_level level, const char *module, const char *text)
{
    heard *h = ctx;
    assert_int_equal(level, TD_LOG_INFO);
    assert_true(h->n < 16);
    snprintf(h->lines[h->n++], sizeof h->lines[0], "%s: %s", module, text);
}

/* [12] batches of one image; lines of every `every`-th */
static void go(td_progress p, int64_t max_batches, heard *h)
{
    td_dataset *ds;
    td_loader *ld;
    const td_dataset_opts of_set = { .backend = TD_DATA_SYNTHETIC, .n_classes = 2, .n_images = 12 };
    const td_loader_opts lo = { .batch_size = 1, .image_size = 8, .workers = 1, .prefetch = 1 };
    expect_ok(td_dataset_open(&of_set, &ds));
    expect_ok(td_loader_new(ds, &lo, &ld));
    *h = (heard){ .n = 0 };
    td_log_set_sink(hear, h);
    td_progress_begin(&p, ld, max_batches);
    for (int64_t i = 1; i <= (max_batches < 0 ? 12 : max_batches); i++)
        td_progress_step(&p, i, i);
    td_progress_end(&p);
    td_log_set_sink(NULL, NULL);
    td_loader_free(ld);
    td_dataset_free(ds);
}

static void lines_come_every_so_many_batches(void **state)
{
    heard h;
    (void)state;
    const td_progress p = { .module = "evaluate", .what = "batch", .every = 4 };
    go(p, -1, &h);
    assert_int_equal(h.n, 2); /* the last is the result itself */
    assert_int_equal(strncmp(h.lines[0], "evaluate: batch 4/12: ", 22), 0);
    assert_int_equal(strncmp(h.lines[1], "evaluate: batch 8/12: ", 22), 0);
    go(p, 7, &h);
    assert_int_equal(h.n, 1);
    assert_int_equal(strncmp(h.lines[0], "evaluate: batch 4/7: ", 21), 0);
}

static void nobody_speaks_who_is_not_wanted(void **state)
{
    heard h;
    (void)state;
    td_progress p = { .module = "train", .what = "batch", .every = 1 };
    expect_ok(td_log_configure("warn"));
    go(p, -1, &h);
    assert_int_equal(h.n, 0);
    expect_ok(td_log_configure("info"));
    go(p, -1, &h);
    assert_int_equal(h.n, 11);
    p.min_interval_s = 1000; /* seconds between two lines */
    go(p, -1, &h);
    assert_int_equal(h.n, 0);
    p.min_interval_s = 0;
    p.module = NULL;
    go(p, -1, &h);
    assert_int_equal(h.n, 0);
}

static void the_rest_is_what_has_been(void **state)
{
    char text[160];
    (void)state;
    const td_progress p = { .what = "epoch 3, validation", .n_batches = 100 };
    td_progress_text(&p, 10, 640, 20, text, sizeof text);
    assert_string_equal(text, "epoch 3, validation 10/100: 32.0 images/s, about 3 min left");
    td_progress_text(&p, 80, 640, 20, text, sizeof text);
    assert_string_equal(text, "epoch 3, validation 80/100: 32.0 images/s, about 5 s left");
    td_progress_text(&p, 1, 1, 1000, text, sizeof text);
    assert_string_equal(text, "epoch 3, validation 1/100: 0.0 images/s, about 27.5 h left");
    const td_progress resumed = { .what = "epoch 3, iteration",
                                  .n_batches = 100,
                                  .batches_before = 50 };
    td_progress_text(&resumed, 10, 640, 20, text, sizeof text);
    assert_string_equal(text, "epoch 3, iteration 60/100: 32.0 images/s, about 80 s left");
    td_progress more = resumed;
    more.batches_after = 1000;
    td_progress_text(&more, 10, 640, 20, text, sizeof text);
    assert_string_equal(text,
                        "epoch 3, iteration 60/100: 32.0 images/s, about 80 s left, 35 min in all");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(lines_come_every_so_many_batches),
                                        cmocka_unit_test(nobody_speaks_who_is_not_wanted),
                                        cmocka_unit_test(the_rest_is_what_has_been) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
