/*
 * test_optimizer.c -- steps of several batches, averages, groups of decay: the training graph as a
 * program, on both devices
 */
#include "support/expect.h"
#include "support/small_training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "checkpoint/weights.h"
#include "optim/training_graph.h"
#include "pass/amp.h"

enum { CLASSES = 3, SIDE = 8, PARTS = 4, N = 4, IMAGE = 3 * SIDE * SIDE };

static const char without_norm[] = "%images:f32[1,3,8,8] = input\n"
                                   "%conv1.weight:f32[16,3,3,3] = param {init=normal, scale=0.3}\n"
                                   "%1 = conv2d %images, %conv1.weight {pad=1}\n"
                                   "%2 = relu %1\n"
                                   "%3 = global_avg_pool %2\n"
                                   "%fc.weight:f32[3,16] = param {init=uniform, scale=0.35}\n"
                                   "%fc.bias:f32[3] = param {init=uniform, scale=0.35}\n"
                                   "%4 = linear %3, %fc.weight, %fc.bias\n"
                                   "output logits = %4\n";

typedef struct {
    td_device *dev;
    td_program *p;
    td_decay_groups groups;
    float lr, scale, inverse, update, ema[4];
    float images[PARTS * N * IMAGE];
    int64_t labels[PARTS * N];
} training;

/* momentum 0.9, decay 1e-3; `text` NULL: the small network with batch norm */
static void begin(training *t, const char *device, const char *text, int batch, td_step_opts o)
{
    td_model_opts model;
    td_graph *g;
    td_rng r = td_rng_make(9, TD_RNG_TEST, 0, 0);
    *t = (training){ .lr = 0.1f, .scale = 1, .inverse = 1 };
    td_small_training_model(&model);
    if (text)
        model.model_text = text;
    o.momentum = 0.9;
    o.decay = 1e-3;
    o.groups = &t->groups;
    for (int i = 0; i < PARTS * N * IMAGE; i++)
        t->images[i] = (float)td_rng_normal(&r);
    for (int i = 0; i < PARTS * N; i++)
        t->labels[i] = (int64_t)td_rng_below(&r, CLASSES);
    expect_ok(td_device_open(device, &t->dev));
    expect_ok(td_training_graph(&model, batch, &o, &g));
    const td_amp_opts amp = { .precision = TD_PRECISION_FP32 };
    expect_ok(td_compile(g, t->dev, &(td_compile_opts){ .amp = &amp }, &t->p));
    td_graph_free(g);
    expect_ok(td_program_init(t->p, 3));
    expect_ok(td_weights_init_missing(t->p, NULL));
    expect_ok(td_program_bind(t->p, "lr", &t->lr));
    if (o.is_scaled)
        expect_ok(td_program_bind(t->p, TD_INPUT_SCALE, &t->scale));
    if (o.is_scaled || o.accumulates)
        expect_ok(td_program_bind(t->p, TD_INPUT_INVERSE, &t->inverse));
    if (o.accumulates)
        expect_ok(td_program_bind(t->p, TD_INPUT_UPDATE, &t->update));
    if (o.averages) {
        expect_ok(td_program_bind(t->p, TD_INPUT_EMA_KEEP, &t->ema[0]));
        expect_ok(td_program_bind(t->p, TD_INPUT_EMA_SHARE, &t->ema[1]));
    }
    if (o.averages && o.accumulates) {
        expect_ok(td_program_bind(t->p, TD_INPUT_EMA_BEFORE, &t->ema[2]));
        expect_ok(td_program_bind(t->p, TD_INPUT_EMA_REST, &t->ema[3]));
    }
}

static void end(training *t)
{
    td_program_free(t->p);
    td_device_close(t->dev);
    td_map_release(&t->groups.decayed);
}

static void run(training *t, int from)
{
    expect_ok(td_program_bind(t->p, "images", t->images + from * IMAGE));
    expect_ok(td_program_bind(t->p, "labels", t->labels + from));
    expect_ok(td_program_run(t->p));
}

static int64_t get(const training *t, const char *name, float *out)
{
    for (int i = 0; i < td_program_param_count(t->p); i++)
        if (strcmp(td_program_param_name(t->p, i), name) == 0) {
            const td_type type = td_program_param_type(t->p, i);
            expect_ok(td_program_get(t->p, name, out));
            return td_type_count(&type);
        }
    fail_msg("no parameter '%s'", name);
    return 0;
}

static bool is_close(const training *a, const training *b, const char *name, double limit)
{
    float x[1024], y[1024], most = 0, worst = 0;
    const int64_t n = get(a, name, x);
    assert_int_equal(n, get(b, name, y));
    for (int64_t i = 0; i < n; i++) {
        most = fmaxf(most, fabsf(y[i]));
        worst = fmaxf(worst, fabsf(x[i] - y[i]));
    }
    return (double)worst <= limit * (double)most;
}

/* parameters whose names begin with none of `without`, as bytes */
static size_t snapshot(const training *t, bool with_step, char *out)
{
    size_t at = 0;
    for (int i = 0; i < td_program_param_count(t->p); i++) {
        const char *name = td_program_param_name(t->p, i);
        const bool is_step = strncmp(name, TD_SUM_PREFIX, strlen(TD_SUM_PREFIX)) == 0 ||
                             strncmp(name, TD_PENDING_PREFIX, strlen(TD_PENDING_PREFIX)) == 0;
        float x[1024];
        if (is_step && !with_step)
            continue;
        const size_t bytes = (size_t)get(t, name, x) * sizeof *x;
        memcpy(out + at, x, bytes);
        at += bytes;
    }
    return at;
}

/* --- several batches to a step ---------------------------------------------------------------- */

static void four_batches_are_one_large(const char *device, bool is_scaled)
{
    training large, small;
    begin(&large, device, without_norm, PARTS * N, (td_step_opts){ .nesterov = true });
    begin(&small, device, without_norm, N,
          (td_step_opts){ .nesterov = true, .accumulates = true, .is_scaled = is_scaled });
    small.scale = is_scaled ? 1024 : 1;
    small.inverse = 1 / (small.scale * PARTS);
    for (int step = 0; step < 3; step++) {
        run(&large, 0);
        for (int k = 0; k < PARTS; k++) {
            small.update = k + 1 == PARTS;
            run(&small, k * N);
        }
    }
    static const char *const names[] = { "conv1.weight", "fc.weight", "fc.bias",
                                         "momentum.conv1.weight", "momentum.fc.bias" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(is_close(&small, &large, names[i], 2e-6));
    end(&large);
    end(&small);
}

static void accumulation_is_the_mean_over_all(void **state)
{
    (void)state;
    for (int scaled = 0; scaled < 2; scaled++) {
        four_batches_are_one_large("ref", scaled);
        four_batches_are_one_large("cpu", scaled);
    }
}

/* weights and momentum buffers wait for the last batch, running statistics do not */
static void only_the_last_batch_updates(void **state)
{
    (void)state;
    static char before[16384], after[16384];
    float mean[8], moved[8], w[1024], same[1024];
    training t;
    begin(&t, "cpu", NULL, N, (td_step_opts){ .accumulates = true });
    t.inverse = 0.5f;
    get(&t, "bn1.running_mean", mean);
    const int64_t n = get(&t, "conv1.weight", w);
    run(&t, 0);
    get(&t, "bn1.running_mean", moved);
    get(&t, "conv1.weight", same);
    assert_memory_not_equal(mean, moved, sizeof mean);
    assert_memory_equal(w, same, (size_t)n * sizeof *w);
    const size_t bytes = snapshot(&t, false, before);
    t.update = 1;
    run(&t, N);
    snapshot(&t, false, after);
    assert_memory_not_equal(before, after, bytes);
    get(&t, "accumulated.conv1.weight", w);
    for (int64_t i = 0; i < n; i++)
        assert_true(w[i] == 0);
    end(&t);
}

/* --- commit together or not at all ------------------------------------------------------------ */

static void set_factors(training *t, double m, double before)
{
    t->ema[0] = (float)m;
    t->ema[1] = (float)(1 - m);
    t->ema[2] = (float)before;
    t->ema[3] = (float)(1 - before);
}

static void one_bad_batch_drops_the_step(const char *device)
{
    static char before[16384], after[16384];
    training t;
    begin(&t, device, NULL, N,
          (td_step_opts){ .accumulates = true, .averages = true, .is_scaled = true });
    t.scale = 16;
    t.inverse = 1 / (t.scale * 2);
    set_factors(&t, 0.5, 0.5);
    for (int step = 0; step < 4; step++) {
        const bool is_bad = step == 2;
        const size_t bytes = snapshot(&t, true, before);
        for (int k = 0; k < 2; k++) {
            t.update = (float)k;
            t.scale = is_bad && k == 0 ? INFINITY : 16; /* the gradients of the first are none */
            run(&t, k * N);
        }
        snapshot(&t, true, after);
        assert_int_equal(*(const float *)td_program_output(t.p, TD_OUTPUT_FINITE, NULL) == 0,
                         is_bad);
        assert_int_equal(memcmp(before, after, bytes) == 0, is_bad);
    }
    end(&t);
}

static void a_step_commits_as_a_whole(void **state)
{
    (void)state;
    one_bad_batch_drops_the_step("ref");
    one_bad_batch_drops_the_step("cpu");
}

/* --- averages --------------------------------------------------------------------------------- */

/* after every batch, as the reference does; one pass for several batches comes to the same */
static void averages_follow(const char *device, int of, bool is_scaled)
{
    static const char *const names[] = { "conv1.weight", "bn1.bias", "fc.bias", "bn1.running_var" };
    enum { NAMES = sizeof names / sizeof *names };
    float wanted[NAMES][1024], found[1024], now[1024];
    char name[64];
    training t;
    begin(&t, device, NULL, N,
          (td_step_opts){ .accumulates = of > 1, .averages = true, .is_scaled = is_scaled });
    t.inverse = 1.0f / (float)of;
    for (int i = 0; i < NAMES; i++)
        get(&t, names[i], wanted[i]);
    double before = 1;
    for (int k = 0; k < 3 * of; k++) {
        const double m = fmin(0.9, (1.0 + k) / (10 + k));
        const bool is_last = (k + 1) % of == 0;
        t.update = is_last;
        set_factors(&t, m, before);
        run(&t, k % PARTS * N);
        before = is_last ? 1 : before * m;
        for (int i = 0; i < NAMES; i++) {
            /* with scaling, statistics of a step under way are those that are pending */
            const bool is_pending = is_scaled && of > 1 && strstr(names[i], "running");
            snprintf(name, sizeof name, "%s%s", is_pending ? TD_PENDING_PREFIX : "", names[i]);
            const int64_t n = get(&t, name, now);
            for (int64_t e = 0; e < n; e++)
                wanted[i][e] = (float)m * wanted[i][e] + (float)(1 - m) * now[e];
        }
    }
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, TD_EMA_PREFIX "%s", names[i]);
        const int64_t n = get(&t, name, found);
        for (int64_t e = 0; e < n; e++)
            if (!(fabsf(found[e] - wanted[i][e]) <= 1e-6f * (1 + fabsf(wanted[i][e]))))
                fail_msg("%s[%lld] is %.9g, wanted %.9g", name, (long long)e, (double)found[e],
                         (double)wanted[i][e]);
    }
    end(&t);
}

static void averages_are_those_of_every_batch(void **state)
{
    (void)state;
    for (int of = 1; of <= 4; of += 3)
        for (int scaled = 0; scaled < 2; scaled++) {
            averages_follow("ref", of, scaled);
            averages_follow("cpu", of, scaled);
        }
}

/* --- groups ----------------------------------------------------------------------------------- */

static void norms_are_found_by_name_or_by_use(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        td_decay_rule rule;
        bool decays_norms;
        int undecayed, decayed;
    } rows[] = { { "resnet18", TD_DECAY_CODE, false, 34, 28 },
                 { "resnet18", TD_DECAY_README, false, 40, 22 },
                 { "resnet18", TD_DECAY_CODE, true, 0, 62 },
                 { "resnet50", TD_DECAY_CODE, false, 98, 63 },
                 { "resnet50", TD_DECAY_README, false, 106, 55 },
                 { "se-resnext101-32x4d", TD_DECAY_CODE, false, 200, 246 },
                 { "efficientnet-b0", TD_DECAY_CODE, false, 98,
                   115 },                                          /* all its norms are named bn */
                 { "mobilenet_v2", TD_DECAY_CODE, false, 0, 158 }, /* none is */
                 { "mobilenet_v2", TD_DECAY_README, false, 104, 54 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_decay_groups groups = { 0 };
        td_model_opts model;
        td_graph *g;
        const td_step_opts o = { .decay_rule = rows[i].rule,
                                 .decays_norms = rows[i].decays_norms,
                                 .groups = &groups };
        td_model_defaults(&model);
        model.arch = rows[i].arch;
        model.num_classes = 10;
        model.image_size = 64;
        expect_ok(td_training_graph(&model, 2, &o, &g));
        assert_int_equal(groups.n_undecayed, rows[i].undecayed);
        assert_int_equal(groups.decayed.n, rows[i].decayed);
        if (strncmp(rows[i].arch, "resn", 4) == 0)
            assert_int_equal(td_map_has(&groups.decayed, "layer2.0.downsample.1.bias"),
                             rows[i].rule == TD_DECAY_CODE || rows[i].decays_norms);
        assert_true(td_map_has(&groups.decayed, "fc.bias") ||
                    td_map_has(&groups.decayed, "classifier.fc.bias") ||
                    td_map_has(&groups.decayed, "classifier.1.bias"));
        td_graph_free(g);
        td_map_release(&groups.decayed);
    }
}

/* torchvision's groups: biases before norms; names of embeddings */
static void kinds_of_weights_have_their_decay(void **state)
{
    (void)state;
    static const struct {
        td_special_decay special;
        int undecayed, decayed;
    } rows[] = { { { .norm = { true, 0 } }, 40, 22 },
                 { { .norm = { true, 0.5 } }, 0, 62 },
                 { { .bias = { true, 0 } }, 38, 24 },
                 { { .norm = { true, 0 }, .bias = { true, 0.1 } }, 20, 42 },
                 { { .embedding = { true, 0 } }, 34, 28 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_decay_groups groups = { 0 };
        td_model_opts model;
        td_graph *g;
        const td_step_opts o = { .decay = 0.1, .special = rows[i].special, .groups = &groups };
        td_model_defaults(&model);
        model.arch = "resnet18";
        model.num_classes = 10;
        model.image_size = 64;
        expect_ok(td_training_graph(&model, 2, &o, &g));
        assert_int_equal(groups.n_undecayed, rows[i].undecayed);
        assert_int_equal(groups.decayed.n, rows[i].decayed);
        td_graph_free(g);
        td_map_release(&groups.decayed);
    }
}

/* each allocation of building the graph in turn */
static void no_memory_is_an_error(void **state)
{
    (void)state;
    td_model_opts model;
    td_graph *g = NULL;
    td_decay_groups groups = { 0 };
    const td_step_opts o = { .is_scaled = true,
                             .accumulates = true,
                             .averages = true,
                             .mixes = true,
                             .decay_rule = TD_DECAY_README,
                             .groups = &groups };
    td_small_training_model(&model);
    td_status st = TD_ENOMEM;
    for (int64_t n = 1; st != TD_OK; n++) {
        td_alloc_fail_at(n);
        st = td_training_graph(&model, TD_SMALL_BATCH, &o, &g);
        td_alloc_fail_at(0);
        assert_true(st == TD_OK || st == TD_ENOMEM);
        assert_true(st == TD_OK || !g);
        assert_true(n < 100000);
        td_map_release(&groups.decayed);
        groups = (td_decay_groups){ 0 };
    }
    td_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accumulation_is_the_mean_over_all),
        cmocka_unit_test(only_the_last_batch_updates),
        cmocka_unit_test(a_step_commits_as_a_whole),
        cmocka_unit_test(averages_are_those_of_every_batch),
        cmocka_unit_test(norms_are_found_by_name_or_by_use),
        cmocka_unit_test(kinds_of_weights_have_their_decay),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
