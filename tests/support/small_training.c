/*
 * small_training.c -- a small network, its training step and its inputs
 */
#include "support/small_training.h"

#include "base/rng.h"
#include "optim/training_graph.h"
#include "support/device.h"
#include "support/expect.h"

static const char model_text[] =
    "%images:f32[1,3,8,8] = input\n"
    "%conv1.weight:f32[8,3,3,3] = param {init=normal, scale=0.272}\n"
    "%1 = conv2d %images, %conv1.weight {pad=1}\n"
    "%bn1.weight:f32[8] = param {init=ones}\n"
    "%bn1.bias:f32[8] = param\n"
    "%bn1.running_mean:f32[8] = param {role=stat}\n"
    "%bn1.running_var:f32[8] = param {role=stat, init=ones}\n"
    "%2 = batch_norm_infer %1, %bn1.weight, %bn1.bias, %bn1.running_mean, %bn1.running_var\n"
    "%3 = relu %2\n"
    "%4 = global_avg_pool %3\n"
    "%fc.weight:f32[3,8] = param {init=uniform, scale=0.35}\n"
    "%fc.bias:f32[3] = param {init=uniform, scale=0.35}\n"
    "%5 = linear %4, %fc.weight, %fc.bias\n"
    "output logits = %5\n";

void td_small_training_model(td_model_opts *out)
{
    td_model_defaults(out);
    out->model_text = model_text;
    out->num_classes = TD_SMALL_CLASSES;
    out->image_size = TD_SMALL_SIDE;
}

static void compile(td_small_training *t, td_precision precision, bool is_scaled)
{
    td_graph *g;
    td_model_opts model;
    const td_step_opts sgd = { .momentum = 0.9, .decay = 1e-4, .is_scaled = is_scaled };
    const td_amp_opts amp = { .precision = precision };
    td_small_training_model(&model);
    expect_ok(td_training_graph(&model, TD_SMALL_BATCH, &sgd, &g));
    expect_ok(td_compile(g, t->dev, &(td_compile_opts){ .amp = &amp }, &t->program));
    td_graph_free(g);
    expect_ok(td_program_init(t->program, 3));
}

void td_small_training_begin(td_small_training *t, const char *device, td_precision precision,
                             float scale)
{
    td_rng r = td_rng_make(5, TD_RNG_INIT, 0, 0);
    *t = (td_small_training){ .lr = 0.1f, .scale = scale, .inverse = scale > 0 ? 1 / scale : 1 };
    expect_ok(td_test_device_open(device, &t->dev));
    compile(t, precision, scale > 0);
    for (int i = 0; i < TD_SMALL_FLOATS; i++)
        t->images[i] = (float)td_rng_normal(&r);
    for (int i = 0; i < TD_SMALL_BATCH; i++)
        t->labels[i] = i % TD_SMALL_CLASSES;
    expect_ok(td_program_bind(t->program, "images", t->images));
    expect_ok(td_program_bind(t->program, "labels", t->labels));
    expect_ok(td_program_bind(t->program, "lr", &t->lr));
    if (scale > 0) {
        expect_ok(td_program_bind(t->program, TD_INPUT_SCALE, &t->scale));
        expect_ok(td_program_bind(t->program, TD_INPUT_INVERSE, &t->inverse));
    }
}

void td_small_training_end(td_small_training *t)
{
    td_program_free(t->program);
    td_device_close(t->dev);
}

int td_small_training_node(const td_small_training *t, const char *op)
{
    for (int i = 0; i < td_program_node_count(t->program); i++)
        if (strcmp(td_program_node(t->program, i).op, op) == 0)
            return i;
    fail_msg("no node '%s'", op);
    return -1;
}
