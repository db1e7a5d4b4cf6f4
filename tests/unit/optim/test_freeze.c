/*
 * test_freeze.c -- frozen weights: which names match, what a training graph then has and lacks,
 * which lists are refused
 */
#include "support/allocations.h"
#include "support/expect.h"
#include "support/small_training.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "checkpoint/weights.h"
#include "ir/graph.h"
#include "optim/freeze.h"
#include "optim/training_graph.h"

static void patterns_match_names(void **state)
{
    (void)state;
    const struct {
        const char *patterns, *name;
        bool matches;
    } rows[] = { { NULL, "fc.weight", false },
                 { "", "fc.weight", false },
                 { "fc.weight", "fc.weight", true },
                 { "fc.weight", "fc.weights", false },
                 { "fc", "fc.weight", false },
                 { "layer1.*", "layer1.0.conv1.weight", true },
                 { "layer1.*", "layer10.0.conv1.weight", false },
                 { "layer1*", "layer10.0.conv1.weight", true },
                 { "*.bn?.*", "layer1.0.bn2.bias", true },
                 { "*.bn?.*", "bn1.bias", false },
                 { "conv1*,bn1*", "bn1.bias", true },
                 { "conv1*, bn1* ", "bn1.bias", true },
                 { "conv1*,,bn1*", "bn1.bias", true },
                 { "conv1*,bn1*", "fc.bias", false },
                 { "conv1*,", "", true } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (td_is_frozen(rows[i].patterns, rows[i].name) != rows[i].matches)
            fail_msg("'%s' and '%s'", rows[i].patterns ? rows[i].patterns : "", rows[i].name);
}

static td_graph *graph(const char *arch, td_step_opts o)
{
    td_model_opts model;
    td_graph *g;
    td_model_defaults(&model);
    model.arch = arch;
    model.num_classes = 10;
    model.image_size = 64;
    expect_ok(td_training_graph(&model, 2, &o, &g));
    return g;
}

static int count(const td_graph *g, const char *op)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += strcmp(g->nodes[i]->op->name, op) == 0;
    return n;
}

/* resnet18: 62 weights and 20 norms, stem and stages 60 of them */
static void frozen_weights_have_no_gradient(void **state)
{
    (void)state;
    const char *body = "conv1*,bn1*,layer*";
    td_freeze_counts n;
    for (int is_scaled = 0; is_scaled < 2; is_scaled++) {
        td_step_opts o = { .frozen = body, .averages = true, .is_scaled = is_scaled };
        td_graph *g = graph("resnet18", o);
        expect_ok(td_freeze_count(g, body, false, &n));
        assert_int_equal(n.n, 60);
        assert_int_equal(n.of, 62);
        assert_int_equal(n.n_values, 11176512);
        assert_int_equal(n.of_values, 11176512 + 5130);
        assert_int_equal(count(g, "gradient"), 2);
        assert_int_equal(count(g, "sgd"), 2);
        assert_int_equal(count(g, "batch_norm"), 20);
        assert_int_equal(count(g, "ema"), 2 + 40);
        assert_null(td_graph_find(g, "momentum.conv1.weight"));
        assert_null(td_graph_find(g, "ema.conv1.weight"));
        assert_non_null(td_graph_find(g, "momentum.fc.weight"));
        td_graph_free(g);

        o.freezes_norms = true;
        g = graph("resnet18", o);
        expect_ok(td_freeze_count(g, body, true, &n));
        assert_int_equal(n.n_norms, 20);
        assert_int_equal(count(g, "batch_norm"), 0);
        assert_int_equal(count(g, "batch_norm_infer"), 20);
        assert_int_equal(count(g, "batch_norm_update"), 0);
        assert_int_equal(count(g, "ema"), 2);
        assert_null(td_graph_find(g, "ema.bn1.running_mean"));
        td_graph_free(g);
    }
}

/* a norm of which only the scale is frozen goes on as it was */
static void half_a_norm_is_none(void **state)
{
    (void)state;
    const char *list = "bn1.weight,layer1.0.bn1.*";
    td_freeze_counts n;
    td_graph *g = graph("resnet18", (td_step_opts){ .frozen = list, .freezes_norms = true });
    expect_ok(td_freeze_count(g, list, true, &n));
    assert_int_equal(n.n, 3);
    assert_int_equal(n.n_norms, 1);
    assert_int_equal(count(g, "batch_norm"), 19);
    td_graph_free(g);
}

static void bad_lists_are_refused(void **state)
{
    (void)state;
    td_freeze_counts n;
    td_graph *g = graph("resnet18", (td_step_opts){ 0 });
    expect_error(td_freeze_count(g, "conv1*,bm1.*", false, &n), TD_EUSAGE,
                 "no weight matches 'bm1.*'; the nearest is 'bn1.*'");
    expect_error(td_freeze_count(g, "layer1", false, &n), TD_EUSAGE,
                 "'layer1'; the nearest is 'layer1.*'");
    expect_error(td_freeze_count(g, "fc.wieght", false, &n), TD_EUSAGE,
                 "the nearest is 'fc.weight'");
    expect_error(td_freeze_count(g, "bn1.running_mean", false, &n), TD_EUSAGE, "no weight matches");
    expect_error(td_freeze_count(g, "fc.*,", false, &n), TD_EUSAGE, "an empty pattern");
    expect_error(td_freeze_count(g, "fc.*,*", false, &n), TD_EUSAGE, "freezes all 62 weights");
    expect_error(td_freeze_count(g, "fc.*", true, &n), TD_EUSAGE, "--freeze-bn");
    td_graph_free(g);
}

static td_status build_frozen(void)
{
    td_model_opts model;
    td_graph *g = NULL;
    const td_step_opts o = { .averages = true, .frozen = "bn1*", .freezes_norms = true };
    td_small_training_model(&model);
    const td_status st = td_training_graph(&model, TD_SMALL_BATCH, &o, &g);
    if (st == TD_OK)
        td_graph_free(g);
    return st;
}

/* each allocation of building the graph in turn */
static void no_memory_is_an_error(void **state)
{
    (void)state;
    td_test_allocations(build_frozen, 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_names),  cmocka_unit_test(frozen_weights_have_no_gradient),
        cmocka_unit_test(half_a_norm_is_none),   cmocka_unit_test(bad_lists_are_refused),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
