/*
 * network.c -- a golden case of a network, and a network filled for it
 */
#include "support/network.h"

#include <math.h>
#include <stdio.h>

#include "base/file_io.h"
#include "base/text.h"
#include "boxes/targets.h"
#include "optim/synthetic_step.h"
#include "optim/training_graph.h"
#include "support/device.h"
#include "support/expect.h"
#include "support/golden.h"
#include "tandem/model.h"

/* --- case files ------------------------------------------------------------------------------- */

static bool is_of_type(const char *part, const char *file, const char *type)
{
    td_json *doc = td_golden_json(part, file);
    const td_json *member = td_json_get(doc, "type");
    const char *found = "";
    if (member)
        expect_ok(td_json_as_text(member, &found));
    bool is_it = strcmp(found, type) == 0;
    td_json_free(doc);
    return is_it;
}

int td_test_network_cases(const char *part, const char *type, int max, char (*names)[128])
{
    td_listing files;
    int n = 0;
    expect_ok(td_list_folder(td_golden_path(part, ""), &files));
    for (size_t i = 0; i < files.n; i++) {
        const char *file = files.names[i];
        if (!td_text_ends(file, ".json") || !is_of_type(part, file, type))
            continue;
        assert_true(n < max);
        snprintf(names[n++], sizeof *names, "%.*s", (int)(strlen(file) - strlen(".json")), file);
    }
    td_listing_release(&files);
    return n;
}

void td_test_network_open(td_test_network_case *c, const char *part, const char *name)
{
    char file[160];
    *c = (td_test_network_case){ 0 };
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(file, sizeof file, "%s.json", name);
    c->doc = td_golden_json(part, file);
    snprintf(file, sizeof file, "%s.safetensors", name);
    c->tensors = td_golden_tensors(part, file);
    c->arch = td_golden_text(c->doc, "arch");
    if (td_json_get(c->doc, "backbone"))
        c->backbone = td_golden_text(c->doc, "backbone");
    c->prefix = td_golden_text(c->doc, "prefix");
    assert_true(td_fill_kind_parse(td_golden_text(c->doc, "fill"), &c->fill));
    c->has_se = td_text_starts(c->arch, "se");
    c->n_classes = td_golden_int(c->doc, "num_classes");
    c->batch = td_golden_int(c->doc, "batch");
    c->image_size = td_golden_int(c->doc, "image_size");
    c->label_smoothing = td_golden_number(c->doc, "label_smoothing");
}

void td_test_network_close(td_test_network_case *c)
{
    td_tensors_free(c->tensors);
    td_json_free(c->doc);
    *c = (td_test_network_case){ 0 };
}

/* member "a.b.c" of an object; a number in the name counts from 0 in an array */
static double number_at(const td_json *at, const char *path)
{
    double v;
    while (*path) {
        char key[64];
        size_t len = strcspn(path, ".");
        int64_t index;
        snprintf(key, sizeof key, "%.*s", (int)len, path);
        at = td_text_to_int(key, &index) ? td_json_at(at, (size_t)index) : td_json_get(at, key);
        if (!at)
            fail_msg("the case file has no '%s'", key);
        path += len + (path[len] == '.');
    }
    expect_ok(td_json_as_number(at, &v));
    return v;
}

double td_test_network_agreement(const td_test_network_case *c, const char *path)
{
    const td_json *runs = td_json_get(c->doc, "agreement");
    double largest = 0;
    assert_true(td_json_count(runs) > 0);
    for (size_t i = 0; i < td_json_count(runs); i++)
        largest = fmax(largest, number_at(td_json_member(runs, i), path));
    return largest;
}

/* --- building --------------------------------------------------------------------------------- */

/* one_hot gives float32, whose rounded 0.1 / K would show in float64: smoothed after the cast */
static td_value *targets(td_builder *b, const td_test_network_case *c, td_value *labels,
                         td_dtype dtype)
{
    char attrs[96];
    td_value *rest, *share;
    if (dtype == TD_DT_F32)
        return td_one_hot(b, labels, c->n_classes, c->label_smoothing);
    snprintf(attrs, sizeof attrs, "value=%.17g, type=\"f64[]\"", 1 - c->label_smoothing);
    td_apply(b, "constant", 0, NULL, attrs, 1, &rest);
    snprintf(attrs, sizeof attrs, "value=%.17g, type=\"f64[]\"", c->label_smoothing / c->n_classes);
    td_apply(b, "constant", 0, NULL, attrs, 1, &share);
    td_value *hot = td_cast(b, td_one_hot(b, labels, c->n_classes, 0), dtype);
    return td_add(b, td_mul(b, hot, rest), share);
}

static bool is_statistic(const char *name)
{
    return td_text_ends(name, ".running_mean") || td_text_ends(name, ".running_var");
}

static void update(td_builder *b, td_value *w, td_value *loss, td_value *lr,
                   const td_test_network_form *form)
{
    char name[160], attrs[96];
    const td_type t = td_value_type(w);
    td_value *grad = td_gradient(b, loss, w);
    if (form->mode == TD_NETWORK_GRADIENTS) {
        snprintf(name, sizeof name, "grad.%s", td_value_name(w));
        td_output(b, name, grad);
        return;
    }
    snprintf(name, sizeof name, TD_MOMENTUM_PREFIX "%s", td_value_name(w));
    td_value *v = td_param(b, name, t.dtype, t.rank, t.dim, "role=momentum");
    snprintf(attrs, sizeof attrs, "momentum=%.17g, decay=%.17g", form->momentum,
             td_is_undecayed(td_value_name(w)) ? 0 : form->decay);
    td_sgd(b, w, v, grad, lr, attrs);
}

static void emit_training(td_builder *b, const td_test_network_case *c,
                          const td_test_network_form *form, td_value *logits)
{
    const int n_params = td_build_param_count(b); /* momentum buffers come on top */
    td_value *lr = NULL;
    td_value *labels = td_input(b, "labels", td_type_of(TD_DT_I64, 1, (int64_t[]){ c->batch }));
    td_value *q = targets(b, c, labels, form->dtype);
    td_value *loss = td_mean(b, td_softmax_cross_entropy(b, logits, q));
    td_output(b, "loss", loss);
    if (form->mode == TD_NETWORK_STEP)
        lr = td_input(b, "lr", td_type_of(form->dtype, 0, NULL));
    for (int i = 0; i < n_params; i++)
        if (!is_statistic(td_value_name(td_build_param(b, i))))
            update(b, td_build_param(b, i), loss, lr, form);
}

static td_graph *own_graph(const td_test_network *n, const td_model_opts *opts)
{
    const td_test_network_case *c = n->c;
    const bool is_training = n->form.mode != TD_NETWORK_EVAL;
    td_graph *g;
    td_builder *b = td_build_begin();
    assert_non_null(b);
    td_value *images = td_input(
        b, "images",
        td_type_of(opts->dtype, 4, (int64_t[]){ c->batch, 3, c->image_size, c->image_size }));
    td_value *logits = td_model_forward_features(b, opts, images, is_training);
    td_output(b, "logits", logits);
    if (is_training)
        emit_training(b, c, &n->form, logits);
    expect_ok(td_build_end(b, &g));
    return g;
}

static td_amp_opts amp_of(const td_test_network *n)
{
    return (td_amp_opts){ .precision = n->form.precision, .is_silent = true };
}

static td_graph *job_graph(const td_test_network *n, const td_model_opts *opts)
{
    const td_step_opts sgd = { .momentum = n->form.momentum,
                               .decay = n->form.decay,
                               .smoothing = n->c->label_smoothing,
                               .is_scaled = n->loss_scale > 1,
                               .ranks = td_comm_size(n->form.comm) };
    td_graph *g;
    expect_ok(td_training_graph(opts, n->c->batch, &sgd, &g));
    return g;
}

static void compile(td_test_network *n)
{
    td_model_opts opts;
    td_model_defaults(&opts);
    const td_amp_opts amp = amp_of(n);
    opts.arch = n->c->arch;
    if (n->c->backbone)
        opts.backbone = n->c->backbone;
    opts.num_classes = n->c->n_classes;
    opts.image_size = n->c->image_size;
    opts.dtype = n->form.dtype;
    td_graph *g = n->form.mode == TD_NETWORK_JOB ? job_graph(n, &opts) : own_graph(n, &opts);
    expect_ok(td_test_device_open(n->form.device, &n->dev));
    expect_ok(td_device_join(n->dev, n->form.comm));
    expect_ok(td_compile(g, n->dev, &(td_compile_opts){ .amp = &amp }, &n->p));
    td_graph_free(g);
}

/* --- filling ---------------------------------------------------------------------------------- */

static void *take(int64_t count, size_t each)
{
    void *p = td_alloc((size_t)count, each);
    assert_non_null(p);
    return p;
}

/* float32 numbers as an array of the form's type, td_free it */
static void *typed(td_dtype dtype, const float *from, int64_t count)
{
    void *out = take(count, td_dtype_bytes(dtype));
    if (dtype == TD_DT_F32)
        memcpy(out, from, (size_t)count * sizeof *from);
    else
        for (int64_t i = 0; i < count; i++)
            ((double *)out)[i] = (double)from[i];
    return out;
}

static void fill_param(td_test_network *n, int i)
{
    const td_test_network_case *c = n->c;
    const char *name = td_program_param_name(n->p, i);
    const td_type t = td_program_param_type(n->p, i);
    const int64_t count = td_type_count(&t);
    float *values = take(count, sizeof *values);
    if (strcmp(td_program_param_role(n->p, i), "momentum") != 0)
        td_fill_tensor(c->fill, td_fill_has_basic_blocks(c->arch), c->prefix, name, t.rank, t.dim,
                       values);
    void *data = typed(n->form.dtype, values, count);
    expect_ok(td_program_set(n->p, name, data));
    td_free(data);
    td_free(values);
}

static void bind_scalars(td_test_network *n)
{
    n->lr_f64 = n->form.lr;
    n->lr_f32 = (float)n->form.lr;
    n->inverse_scale = 1 / n->loss_scale / (float)td_comm_size(n->form.comm);
    expect_ok(td_program_bind(n->p, "lr",
                              n->form.dtype == TD_DT_F64 ? (const void *)&n->lr_f64
                                                         : (const void *)&n->lr_f32));
    if (n->loss_scale > 1)
        expect_ok(td_program_bind(n->p, TD_INPUT_SCALE, &n->loss_scale));
    if (n->loss_scale > 1 || n->form.comm)
        expect_ok(td_program_bind(n->p, TD_INPUT_INVERSE, &n->inverse_scale));
}

void td_test_network_build(td_test_network *n, const td_test_network_case *c,
                           const td_test_network_form *form)
{
    *n = (td_test_network){ .c = c, .form = *form };
    const td_amp_opts amp = amp_of(n);
    n->loss_scale = td_step_scale(&amp);
    compile(n);
    for (int i = 0; i < td_program_param_count(n->p); i++)
        fill_param(n, i);
    if (form->mode >= TD_NETWORK_STEP)
        bind_scalars(n);
}

void td_test_network_release(td_test_network *n)
{
    td_program_free(n->p);
    td_device_leave(n->dev, TD_OK);
    td_device_close(n->dev);
    td_free(n->images);
    td_free(n->labels);
    td_free(n->targets);
    *n = (td_test_network){ 0 };
}

/* --- running ---------------------------------------------------------------------------------- */

void td_test_network_feed(td_test_network *n, const char *images, const char *labels)
{
    const td_test_network_case *c = n->c;
    const int64_t count = (int64_t)c->batch * 3 * c->image_size * c->image_size;
    float *values = take(count, sizeof *values);
    td_free(n->images);
    td_fill_images(c->prefix, images, count, values);
    n->images = typed(n->form.dtype, values, count);
    td_free(values);
    expect_ok(td_program_bind(n->p, "images", n->images));
    if (n->form.mode == TD_NETWORK_EVAL)
        return;
    td_free(n->labels);
    n->labels = take(c->batch, sizeof *n->labels);
    td_fill_labels(c->prefix, labels, c->batch, c->n_classes, n->labels);
    expect_ok(td_program_bind(n->p, "labels", n->labels));
}

/* --- a detector's inputs ---------------------------------------------------------------------- */

static float coordinate(const td_json *row, size_t i)
{
    double v;
    expect_ok(td_json_as_number(td_json_at(row, i), &v));
    return (float)v;
}

/* [class, ymin, xmin, ymax, xmax] of each */
static int ground_truths_of(const td_json *rows, td_ground_truth *out)
{
    const int n = (int)td_json_count(rows);
    assert_in_range(n, 1, TD_GROUND_TRUTHS_MAX);
    for (int i = 0; i < n; i++) {
        const td_json *row = td_json_at(rows, (size_t)i);
        expect_ok(td_json_as_int(td_json_at(row, 0), &out[i].label));
        out[i].box = (td_rect){ coordinate(row, 1), coordinate(row, 2), coordinate(row, 3),
                                coordinate(row, 4) };
    }
    return n;
}

static void assign(td_test_network *n, const td_anchors *anchors, const td_json *objects)
{
    const int batch = n->c->batch;
    td_ground_truth truths[TD_GROUND_TRUTHS_MAX];
    void *scratch = take(1, td_targets_scratch_bytes(anchors));
    assert_int_equal(td_json_count(objects), batch);
    n->labels = take((int64_t)batch * anchors->n, sizeof *n->labels);
    n->targets = take((int64_t)batch * anchors->n * 4, sizeof *n->targets);
    for (int i = 0; i < batch; i++) {
        const ptrdiff_t at = (ptrdiff_t)i * anchors->n;
        const int n_truths = ground_truths_of(td_json_at(objects, (size_t)i), truths);
        assert_true(td_targets_assign(anchors, truths, n_truths, scratch, n->labels + at,
                                      n->targets + 4 * at) >= n_truths);
    }
    td_free(scratch);
}

void td_test_network_feed_objects(td_test_network *n, const char *images, const td_json *objects)
{
    const td_test_network_case *c = n->c;
    const int64_t count = (int64_t)c->batch * 3 * c->image_size * c->image_size;
    const td_model_opts model = { .arch = c->arch, .backbone = c->backbone };
    td_anchors *anchors;
    td_free(n->images);
    td_free(n->labels);
    td_free(n->targets);
    n->images = take(count, sizeof(float));
    td_fill_range(c->prefix, images, -127.5, 127.5, count, n->images);
    expect_ok(td_anchors_new(td_model_detector(&model), c->image_size, &anchors));
    assign(n, anchors, objects);
    td_anchors_free(anchors);
    expect_ok(td_program_bind(n->p, "images", n->images));
    expect_ok(td_program_bind(n->p, "labels", n->labels));
    expect_ok(td_program_bind(n->p, "targets", n->targets));
}

/* --- results ---------------------------------------------------------------------------------- */

void td_test_network_run(td_test_network *n)
{
    expect_ok(td_program_run(n->p));
}

static double *widened(td_dtype dtype, const void *from, int64_t count)
{
    double *out = take(count, sizeof *out);
    for (int64_t i = 0; i < count; i++)
        out[i] = dtype == TD_DT_F64 ? ((const double *)from)[i] : (double)((const float *)from)[i];
    return out;
}

double *td_test_network_output(const td_test_network *n, const char *name, int64_t *count)
{
    td_type t;
    const void *data = td_program_output(n->p, name, &t);
    if (!data)
        fail_msg("no output '%s'", name);
    assert_int_equal(t.dtype, n->form.dtype);
    *count = td_type_count(&t);
    return widened(t.dtype, data, *count);
}

double *td_test_network_param(const td_test_network *n, const char *name, int64_t *count)
{
    int i = 0;
    while (i < td_program_param_count(n->p) && strcmp(td_program_param_name(n->p, i), name) != 0)
        i++;
    if (i == td_program_param_count(n->p))
        fail_msg("no parameter '%s'", name);
    const td_type t = td_program_param_type(n->p, i);
    *count = td_type_count(&t);
    void *data = take(*count, td_dtype_bytes(t.dtype));
    expect_ok(td_program_get(n->p, name, data));
    double *out = widened(t.dtype, data, *count);
    td_free(data);
    return out;
}
