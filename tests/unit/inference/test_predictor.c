/*
 * test_predictor.c -- rows through kept programs: the same answers however they are cut
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "base/threads.h"
#include "inference/nms_pool.h"
#include "inference/predictor.h"
#include "support/expect.h"
#include "support/scratch.h"
#include "tandem/convert.h"
#include "tandem/program.h"

enum { ROWS = 11, SIZE = 16, CLASSES = 5 };

static const size_t row_floats = (size_t)3 * SIZE * SIZE;

static td_predictor *open_one(const char *weights)
{
    td_predictor_opts o = { .weights = weights, .device.name = "cpu" };
    td_predictor *p;
    td_model_defaults(&o.model);
    td_amp_defaults(&o.amp);
    expect_ok(td_predictor_open(&o, &p));
    return p;
}

static const char *make_weights(void)
{
    td_model_opts m;
    td_model_defaults(&m);
    m.arch = "resnet18";
    m.num_classes = CLASSES;
    m.image_size = SIZE;
    static char path[1024];
    snprintf(path, sizeof path, "%s", td_scratch_path("w.safetensors"));
    expect_ok(td_init_weights(&m, 3, path, true));
    return path;
}

static void every_cut_gives_the_same(void **state)
{
    static float images[ROWS * 3 * SIZE * SIZE], one[ROWS * CLASSES], cut[ROWS * CLASSES];
    static float logits[ROWS * CLASSES];
    td_rng r = td_rng_make(5, TD_RNG_TEST, 0, 0);
    (void)state;
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        images[i] = (float)td_rng_normal(&r);
    td_predictor *p = open_one(make_weights());
    expect_error(td_predictor_run(p, images, TD_DT_F32, 1, NULL, one), TD_EARG,
                 "no program is compiled");
    expect_ok(td_predictor_add_batch(p, 1, 0));
    assert_int_equal(td_predictor_classes(p), CLASSES);
    assert_int_equal(td_predictor_transform(p)->size, SIZE);
    expect_ok(td_predictor_run(p, images, TD_DT_F32, ROWS, logits, one));
    expect_ok(td_predictor_add_batch(p, 4, 0));
    expect_ok(td_predictor_add_batch(p, 4, 0)); /* is there */
    expect_ok(td_predictor_finish(p));
    expect_error(td_predictor_add_batch(p, 2, 0), TD_EARG,
                 "the predictor has released its weights");
    for (int n = 1; n <= ROWS; n++) { /* padded, or 4 and 1 at a time once that is timed */
        memset(cut, 0, sizeof cut);
        expect_ok(td_predictor_run(p, images, TD_DT_F32, n, NULL, cut));
        for (int i = 0; i < n * CLASSES; i++)
            assert_true(fabsf(cut[i] - one[i]) < 1e-5f);
        if (n == ROWS / 2)
            expect_ok(td_predictor_time(p, 0));
    }
    for (int row = 0; row < ROWS; row++) {
        float sum = 0;
        for (int i = 0; i < CLASSES; i++)
            sum += one[row * CLASSES + i];
        assert_true(fabsf(sum - 1) < 1e-5f && isfinite(logits[row * CLASSES]));
    }
    char room[24];
    assert_string_equal(td_predictor_class_name(p, 4, room), "class 4");
    assert_string_equal(td_predictor_name(p), "resnet18");
    td_predictor_free(p);
    assert_true(row_floats * ROWS == sizeof images / sizeof *images);
}

/* --- streams ---------------------------------------------------------------------------------- */

typedef struct {
    td_predictor *p;
    const float *images;
    int stream;
    float probabilities[ROWS * CLASSES];
    td_status st;
} stream_run;

static td_status keep_probabilities(void *ctx, int from, int n, const float *const got[2])
{
    stream_run *r = ctx;
    memcpy(r->probabilities + from * CLASSES, got[1], (size_t)(n * CLASSES) * sizeof(float));
    return TD_OK;
}

static void run_stream(void *ctx)
{
    stream_run *r = ctx;
    if (r->stream)
        td_predictor_enter(r->p, r->stream);
    for (int k = 0; k < 5 && r->st == TD_OK; k++)
        r->st =
            td_predictor_each(r->p, r->stream, r->images, TD_DT_F32, ROWS, keep_probabilities, r);
}

static void streams_compute_the_same_at_the_same_time(void **state)
{
    enum { STREAMS = 3 };
    static float images[ROWS * 3 * SIZE * SIZE];
    static stream_run runs[STREAMS];
    td_predictor_opts o = { .weights = make_weights(), .device.name = "cpu", .streams = STREAMS };
    td_predictor *p, *one;
    td_thread threads[STREAMS];
    td_rng r = td_rng_make(5, TD_RNG_TEST, 0, 0);
    const int before = td_threads();
    (void)state;
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        images[i] = (float)td_rng_normal(&r);
    td_model_defaults(&o.model);
    td_amp_defaults(&o.amp);
    td_set_threads(4); /* perhaps fewer: OMP_THREAD_LIMIT */
    const int first = td_threads() > STREAMS ? 2 : 1;
    expect_ok(td_predictor_open(&o, &p));
    assert_int_equal(td_predictor_streams(p), STREAMS);
    for (int i = 0; i < STREAMS; i++)
        assert_int_equal(td_predictor_threads(p, i), i == 0 ? first : 1);
    assert_int_equal(td_threads(), first); /* of this thread, which is that of stream 0 */
    expect_ok(td_predictor_add_batch(p, 4, 0));
    expect_ok(td_predictor_add_batch(p, 1, 0));
    expect_ok(td_predictor_finish(p));
    td_set_threads(1);
    one = open_one(o.weights);
    expect_ok(td_predictor_add_batch(one, 4, 0));
    expect_ok(td_predictor_add_batch(one, 1, 0));
    expect_ok(td_predictor_finish(one));
    /* one copy of the weights, three of activations */
    const td_predictor_bytes all = td_predictor_memory(p), alone = td_predictor_memory(one);
    assert_true(all.params < 2 * alone.params && all.activations >= STREAMS * alone.activations);

    static stream_run wanted;
    wanted = (stream_run){ .p = one, .images = images };
    run_stream(&wanted);
    expect_ok(wanted.st);
    td_set_threads(first);
    for (int i = 0; i < STREAMS; i++)
        runs[i] = (stream_run){ .p = p, .images = images, .stream = i };
    for (int i = 1; i < STREAMS; i++)
        expect_ok(td_thread_start(&threads[i], "stream", run_stream, &runs[i]));
    run_stream(&runs[0]);
    for (int i = 1; i < STREAMS; i++)
        td_thread_join(&threads[i]);
    for (int i = 0; i < STREAMS; i++) {
        expect_ok(runs[i].st);
        for (int k = 0; k < ROWS * CLASSES; k++)
            assert_true(fabsf(runs[i].probabilities[k] - wanted.probabilities[k]) < 1e-5f);
    }
    td_predictor_free(one);
    td_predictor_free(p);
    td_set_threads(before);
}

/* --- a detector ------------------------------------------------------------------------------- */

enum { SIDE = 160, IMAGES = 3 };

/* codes and scores as they came, row by row */
typedef struct {
    size_t floats[2];
    float *kept[2];
    int n_rows, n_runs;
} results;

static td_status keep_results(void *ctx, int from, int n, const float *const got[2])
{
    results *r = ctx;
    assert_int_equal(from, r->n_rows);
    for (int i = 0; i < 2; i++)
        memcpy(r->kept[i] + (size_t)from * r->floats[i], got[i],
               (size_t)n * r->floats[i] * sizeof(float));
    r->n_rows += n;
    r->n_runs++;
    return TD_OK;
}

static td_status stop(void *ctx, int from, int n, const float *const got[2])
{
    (void)ctx;
    (void)got;
    return from + n > 2 ? td_error(TD_EIO, "enough") : TD_OK;
}

static void make_room(results *r, int anchors)
{
    *r = (results){ .floats = { 4 * (size_t)anchors, 3 * (size_t)anchors } };
    for (int i = 0; i < 2; i++) {
        r->kept[i] = td_alloc(IMAGES * r->floats[i], sizeof(float));
        assert_non_null(r->kept[i]);
    }
}

static void a_detector_hands_out_its_results(void **state)
{
    td_predictor_opts o = { .device.name = "cpu" };
    td_predictor *p;
    td_anchors *anchors;
    td_nms_pool *s;
    results one, cut;
    td_rng r = td_rng_make(7, TD_RNG_TEST, 0, 0);
    const size_t n = (size_t)IMAGES * 3 * SIDE * SIDE;
    float *images = td_alloc(n, sizeof *images);
    (void)state;
    assert_non_null(images);
    for (size_t i = 0; i < n; i++)
        images[i] = 50 * (float)td_rng_normal(&r);
    td_set_threads(1); /* tests run side by side */
    td_model_defaults(&o.model);
    td_amp_defaults(&o.amp);
    o.model.arch = "ssd320";
    o.model.backbone = "resnet18";
    o.model.num_classes = 2;
    o.model.image_size = SIDE;
    o.weights = td_scratch_path("d.safetensors");
    expect_ok(td_init_weights(&o.model, 3, o.weights, true));
    expect_error(td_predictor_open(&o, &p), TD_EUSAGE, "weights of ssd320, a detector");
    o.takes_detectors = true;
    expect_ok(td_predictor_open(&o, &p));
    assert_int_equal(td_predictor_detector(p), TD_DETECTOR_SSD320);
    assert_int_equal(td_predictor_classes(p), 2);
    assert_int_equal(td_predictor_transform(p)->detector, TD_DETECTOR_SSD320);
    expect_ok(td_anchors_new(TD_DETECTOR_SSD320, SIDE, &anchors));
    make_room(&one, anchors->n);
    make_room(&cut, anchors->n);

    expect_ok(td_predictor_add_batch(p, 1, 0));
    expect_ok(td_predictor_each(p, 0, images, TD_DT_F32, IMAGES, keep_results, &one));
    assert_int_equal(one.n_runs, IMAGES);
    expect_ok(td_predictor_add_batch(p, 2, 0));
    expect_ok(td_predictor_finish(p));
    expect_ok(td_predictor_each(p, 0, images, TD_DT_F32, IMAGES, keep_results, &cut));
    assert_int_equal(cut.n_runs, 2);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < IMAGES * one.floats[k]; i++)
            assert_true(fabsf(one.kept[k][i] - cut.kept[k][i]) < 1e-3f);
    expect_error(td_predictor_each(p, 0, images, TD_DT_F32, IMAGES, stop, NULL), TD_EIO, "enough");

    /* rows of one batch that ask for different things; one is broken */
    static td_detection found[IMAGES][5];
    const td_nms_opts few = { .score_min = 0, .iou = 0.5, .per_class = 5, .total = 3 };
    const td_nms_opts many = { .score_min = 0, .iou = 0.5, .per_class = 5, .total = 5 };
    td_nms_pool_row rows[IMAGES] = {
        { .opts = &few, .found = found[0], .wants_finite = true },
        { .opts = &many, .found = found[1], .wants_finite = true },
        { .opts = &few, .found = found[2], .wants_finite = true },
    };
    one.kept[1][2 * one.floats[1] + 5] = INFINITY;
    expect_ok(td_nms_pool_new(anchors, 3, 2, &s));
    expect_ok(td_nms_pool_run(s, one.kept[0], one.kept[1], IMAGES, rows));
    assert_true(rows[0].n_found == 3 && rows[1].n_found == 5 && rows[2].n_found == 3);
    assert_true(rows[0].is_finite && rows[1].is_finite && !rows[2].is_finite);
    td_nms_pool_row alone = { .opts = &few, .found = found[2] };
    expect_ok(td_nms_pool_run(s, one.kept[0], one.kept[1], 1, &alone));
    assert_memory_equal(found[2], found[0], 3 * sizeof *found[0]);

    td_nms_pool_free(s);
    td_anchors_free(anchors);
    td_predictor_free(p);
    for (int k = 0; k < 2; k++) {
        td_free(one.kept[k]);
        td_free(cut.kept[k]);
    }
    td_free(images);
}

static void failures_leave_nothing(void **state)
{
    td_predictor *p;
    td_predictor_opts o = { .device.name = "cpu" };
    (void)state;
    int64_t live = td_alloc_live();
    expect_error(td_predictor_open(&o, &p), TD_EUSAGE, "--weights");
    o.weights = "absent.safetensors";
    td_model_defaults(&o.model);
    td_amp_defaults(&o.amp);
    expect_error(td_predictor_open(&o, &p), TD_ENOTFOUND, "absent");
    assert_null(p);
    assert_int_equal(td_alloc_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_gives_the_same),
        cmocka_unit_test(streams_compute_the_same_at_the_same_time),
        cmocka_unit_test(a_detector_hands_out_its_results),
        cmocka_unit_test(failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
