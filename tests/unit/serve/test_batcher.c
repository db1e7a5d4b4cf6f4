/*
 * test_batcher.c -- a batch of pixels, of floats, or of both: the same answers, to the bit
 */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "serve/batcher.h"
#include "support/expect.h"
#include "support/scratch.h"
#include "tandem/convert.h"

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

static td_predictor *open_predictor(void)
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
                            .takes_floats = true };
    td_model_defaults(&o.model);
    td_amp_defaults(&o.amp);
    expect_ok(td_predictor_open(&o, &p));
    expect_ok(td_predictor_add_batch(p, BATCH));
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
    td_batcher_run_batch(b, INT64_C(60) * 1000 * 1000 * 1000);
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
    td_predictor *p = open_predictor();
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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(pixels_and_floats_give_the_same) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
