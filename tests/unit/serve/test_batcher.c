/*
 * test_batcher.c -- a batch of pixels, of floats, or of both: the same answers, to the bit; several
 * streams share requests, and the rows of large ones
 */
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "base/threads.h"
#include "serve/batcher.h"
#include "support/expect.h"
#include "support/scratch.h"
#include "tandem/convert.h"
#include "tandem/program.h"

enum { BATCH = 3, SIZE = 16, CLASSES = 5, VALUES = 3 * SIZE * SIZE };

static uint8_t pixels[BATCH][VALUES];
static float images[BATCH][VALUES]; /* the same, normalized */

typedef struct {
    td_job job;
    const td_service *service;
    int row;
    bool has_pixels;
    td_status st;
    bool is_done;
} request;

static td_predictor *open_predictor(int streams)
{
    td_predictor *p;
    td_model_opts m;
    td_model_defaults(&m);
    m.arch = "resnet18";
    m.num_classes = CLASSES;
    m.image_size = SIZE;
    expect_ok(td_init_weights(&m, 3, td_scratch_path("w.safetensors"), true));
    td_predictor_opts o = { .weights = td_scratch_path("w.safetensors"),
                            .device.name = "cpu",
                            .takes_floats = true,
                            .streams = streams };
    td_model_defaults(&o.model);
    td_amp_defaults(&o.amp);
    expect_ok(td_predictor_open(&o, &p));
    expect_ok(td_predictor_add_batch(p, BATCH, 0));
    expect_ok(td_predictor_finish(p));
    return p;
}

static void draw(const td_norm *norm)
{
    td_rng r = td_rng_make(5, TD_RNG_TEST, 0, 0);
    for (int i = 0; i < BATCH; i++) {
        const td_image image = { .px = pixels[i], .width = SIZE, .height = SIZE };
        for (int k = 0; k < VALUES; k++)
            pixels[i][k] = (uint8_t)td_rng_below(&r, 256);
        td_image_normalise_by(&image, norm, false, images[i]);
    }
}

static td_read_result read_request(td_job *job, td_transformer *buffers)
{
    request *r = (request *)job;
    (void)buffers;
    job->work.n = 1;
    job->work.pixels = r->has_pixels ? td_copy_array(pixels[r->row], VALUES, 1) : NULL;
    job->work.images = r->has_pixels ? NULL : td_copy_array(images[r->row], VALUES, sizeof(float));
    r->st = r->service->kind->make_room(r->service, &job->work);
    return TD_READ_ROWS;
}

static void done_request(td_job *job, td_status st)
{
    request *r = (request *)job;
    r->is_done = true;
    r->st = st;
}

/* a batch of BATCH requests, all there before it begins; `kinds`: 'p' pixels, 'f' floats */
static void run_batch(td_batcher *b, const td_service *s, const char *kinds, float *logits)
{
    static request all[BATCH];
    for (int i = 0; i < BATCH; i++) {
        all[i] = (request){ .job = { .read = read_request, .done = done_request },
                            .service = s,
                            .row = i,
                            .has_pixels = kinds[i] == 'p' };
        assert_true(td_batcher_enter(b)); /* so the first waits for the others */
    }
    for (int i = 0; i < BATCH; i++)
        td_batcher_submit(b, &all[i].job);
    td_batcher_run_batch(b, 0, INT64_C(60) * 1000 * 1000 * 1000);
    for (int i = 0; i < BATCH; i++) {
        assert_true(all[i].is_done);
        expect_ok(all[i].st);
        memcpy(logits + (size_t)i * CLASSES, all[i].job.work.results, CLASSES * sizeof *logits);
        td_work_release(&all[i].job.work);
    }
}

static void pixels_and_floats_give_the_same(void **state)
{
    static float wanted[BATCH * CLASSES], logits[BATCH * CLASSES];
    static const char *const mixes[] = { "fff", "ppp", "pfp", "ffp" };
    td_batcher *b;
    td_metrics metrics;
    (void)state;
    assert_int_equal(setenv("TANDEM_INPUT", "u8", 1), 0);
    td_predictor *p = open_predictor(1);
    assert_int_equal(unsetenv("TANDEM_INPUT"), 0);
    assert_int_equal(td_predictor_dtype(p), TD_DT_U8);
    assert_true(td_predictor_transform(p)->as_bytes);
    const td_service s = { .kind = &td_kind_classifier,
                           .n_classes = CLASSES,
                           .transform = *td_predictor_transform(p) };
    td_metrics_init(&metrics);
    draw(td_transform_norm(&s.transform));
    expect_ok(td_predictor_run(p, images, TD_DT_F32, BATCH, wanted, NULL));
    expect_ok(td_batcher_new(&(td_batcher_opts){ .service = &s,
                                                 .predictor = p,
                                                 .metrics = &metrics,
                                                 .max_rows = BATCH,
                                                 .max_jobs = BATCH,
                                                 .workers = 2,
                                                 .large_workers = 1,
                                                 .max_large = 1,
                                                 .max_delay_ns = INT64_C(60) * 1000000000 },
                             &b));
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
        memset(logits, 0, sizeof logits);
        run_batch(b, &s, mixes[i], logits);
        assert_memory_equal(logits, wanted, sizeof wanted);
    }
    assert_int_equal(metrics.n_batches, sizeof mixes / sizeof *mixes);
    td_batcher_free(b);
    td_metrics_release(&metrics);
    td_predictor_free(p);
}

/* --- streams ---------------------------------------------------------------------------------- */

enum { STREAMS = 2, LARGE = 7 * BATCH + 1, SMALL = 40 };

typedef struct {
    td_batcher *b;
    td_predictor *p;
    int stream;
    atomic_bool *is_over;
} stream_thread;

static atomic_int n_done;

static void run_stream(void *ctx)
{
    const stream_thread *t = ctx;
    td_predictor_enter(t->p, t->stream);
    while (!atomic_load(t->is_over))
        td_batcher_run_batch(t->b, t->stream, INT64_C(10000000));
}

/* rows 0, 1, 2, 0, 1, ... as floats */
static td_read_result read_rows(td_job *job, td_transformer *buffers)
{
    request *r = (request *)job;
    (void)buffers;
    job->work.n = r->row;
    job->work.images = td_alloc((size_t)r->row * VALUES, sizeof(float));
    for (int i = 0; i < r->row && job->work.images; i++)
        memcpy(job->work.images + (size_t)i * VALUES, images[i % BATCH], sizeof images[0]);
    r->st = r->service->kind->make_room(r->service, &job->work);
    return TD_READ_ROWS;
}

static void count_request(td_job *job, td_status st)
{
    done_request(job, st);
    atomic_fetch_add(&n_done, 1);
}

static void expect_rows(const request *r, const float *wanted)
{
    assert_true(r->is_done);
    expect_ok(r->st);
    for (int i = 0; i < r->row; i++)
        for (int k = 0; k < CLASSES; k++) {
            const float got = r->job.work.results[i * CLASSES + k];
            assert_true(fabsf(got - wanted[i % BATCH * CLASSES + k]) < 1e-4f);
        }
    assert_int_equal(r->job.n_computed, r->row);
}

static td_batcher *open_batcher(td_predictor *p, const td_service *s, td_metrics *metrics,
                                int64_t delay_ns)
{
    td_batcher *b;
    expect_ok(td_batcher_new(&(td_batcher_opts){ .service = s,
                                                 .predictor = p,
                                                 .metrics = metrics,
                                                 .max_rows = BATCH,
                                                 .max_jobs = SMALL + 1,
                                                 .workers = 2,
                                                 .large_workers = 1,
                                                 .max_large = 1,
                                                 .max_delay_ns = delay_ns },
                             &b));
    return b;
}

static void streams_share_requests(void **state)
{
    static float wanted[BATCH * CLASSES];
    static request all[SMALL + 1]; /* the last one has more rows than a batch */
    td_metrics metrics;
    td_thread threads[STREAMS];
    stream_thread streams[STREAMS];
    atomic_bool is_over = false;
    const int before = td_threads();
    (void)state;
    td_set_threads(STREAMS);
    td_predictor *p = open_predictor(STREAMS);
    const td_service s = { .kind = &td_kind_classifier,
                           .n_classes = CLASSES,
                           .transform = *td_predictor_transform(p) };
    td_metrics_init(&metrics);
    draw(td_transform_norm(&s.transform));
    expect_ok(td_predictor_run(p, images, TD_DT_F32, BATCH, wanted, NULL));
    td_batcher *b = open_batcher(p, &s, &metrics, 2000000);
    for (int i = 0; i <= SMALL; i++) {
        all[i] = (request){ .job = { .read = read_rows, .done = count_request },
                            .service = &s,
                            .row = i == SMALL ? LARGE : 1 + i % BATCH };
        assert_true(td_batcher_enter(b));
    }
    assert_false(td_batcher_enter(b));
    for (int i = SMALL; i >= 0; i--)
        td_batcher_submit(b, &all[i].job);
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = (stream_thread){ b, p, i, &is_over };
        expect_ok(td_thread_start(&threads[i], "stream", run_stream, &streams[i]));
    }
    while (atomic_load(&n_done) <= SMALL) /* else there is ctest's time limit */
        sched_yield();
    atomic_store(&is_over, true);
    for (int i = 0; i < STREAMS; i++)
        td_thread_join(&threads[i]);
    assert_int_equal(td_batcher_load(b), 0);
    int rows = 0;
    for (int i = 0; i <= SMALL; i++) {
        expect_rows(&all[i], wanted);
        rows += all[i].row;
        td_work_release(&all[i].job.work);
    }
    assert_int_equal(metrics.n_images, rows);
    td_batcher_free(b);
    td_metrics_release(&metrics);
    td_predictor_free(p);
    td_set_threads(before);
}

/* a single request is not waited for; of four, each of two idle streams takes two */
static void an_idle_stream_gets_its_share(void **state)
{
    static request all[4];
    td_metrics metrics;
    const int before = td_threads();
    (void)state;
    td_set_threads(STREAMS);
    td_predictor *p = open_predictor(STREAMS);
    const td_service s = { .kind = &td_kind_classifier,
                           .n_classes = CLASSES,
                           .transform = *td_predictor_transform(p) };
    td_metrics_init(&metrics);
    td_batcher *b = open_batcher(p, &s, &metrics, INT64_C(60) * 1000000000);
    for (int i = 0; i < 4; i++) {
        all[i] = (request){ .job = { .read = read_rows, .done = count_request },
                            .service = &s,
                            .row = 1 };
        assert_true(td_batcher_enter(b));
    }
    for (int i = 0; i < 4; i++)
        td_batcher_submit(b, &all[i].job);
    const int wanted[] = { 2, 1, 1 }; /* rows: half of 4, of 2, of 1, because the other is idle */
    for (int i = 0, n = 0; i < 3; i++) {
        while (metrics.n_batches <= i)
            td_batcher_run_batch(b, 0, INT64_C(60) * 1000000000);
        n += wanted[i];
        assert_int_equal(metrics.n_images, n);
    }
    for (int i = 0; i < 4; i++)
        td_work_release(&all[i].job.work);
    td_batcher_free(b);
    td_metrics_release(&metrics);
    td_predictor_free(p);
    td_set_threads(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(pixels_and_floats_give_the_same),
                                        cmocka_unit_test(streams_share_requests),
                                        cmocka_unit_test(an_idle_stream_gets_its_share) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
