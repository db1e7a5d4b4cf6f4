/*
 * tiny_training.c -- convolution, batch norm, relu, mean, linear; 3 classes
 */
#include "support/tiny_training.h"

#include "support/expect.h"

#include "base/rng.h"
#include "train/network.h"

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

void td_tiny_training_begin(td_tiny_training *t, const char *device)
{
    td_graph *g;
    td_model_opts model;
    const td_sgd_opts sgd = { .momentum = 0.9, .decay = 1e-4 };
    const td_amp_opts amp = { .precision = 1 };
    td_model_defaults(&model);
    model.model_text = model_text;
    model.num_classes = TD_TINY_CLASSES;
    model.image_size = TD_TINY_SIDE;
    td_set_threads(1); /* nothing here is worth a barrier */
    *t = (td_tiny_training){ .lr = 0.1f };
    expect_ok(td_training_graph(&model, TD_TINY_BATCH, &sgd, &g));
    expect_ok(td_device_open(device, &t->dev));
    expect_ok(td_compile(g, t->dev, &(td_compile_opts){ .amp = &amp }, &t->program));
    td_graph_free(g);
    expect_ok(td_program_init(t->program, 3));
    td_rng r = td_rng_make(5, TD_RNG_INIT, 0, 0);
    for (size_t i = 0; i < sizeof t->images / sizeof *t->images; i++)
        t->images[i] = (float)td_rng_normal(&r);
    for (int i = 0; i < TD_TINY_BATCH; i++)
        t->labels[i] = i % TD_TINY_CLASSES;
    expect_ok(td_program_bind(t->program, "images", t->images));
    expect_ok(td_program_bind(t->program, "labels", t->labels));
    expect_ok(td_program_bind(t->program, "lr", &t->lr));
}

void td_tiny_training_end(td_tiny_training *t)
{
    td_program_free(t->program);
    td_device_close(t->dev);
}

int td_tiny_training_node(const td_tiny_training *t, const char *op)
{
    for (int i = 0; i < td_program_node_count(t->program); i++)
        if (strcmp(td_program_node(t->program, i).op, op) == 0)
            return i;
    fail_msg("no node '%s'", op);
    return -1;
}
