/*
 * detector_steps.c -- training steps of the detectors against their golden data
 */
#include "support/detector_steps.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "boxes/targets.h"
#include "optim/training_graph.h"
#include "support/device.h"
#include "support/expect.h"
#include "support/golden.h"

void td_detector_steps_open(td_detector_steps *s, td_detector_case *c, double decay)
{
    const td_step_opts sgd = { .momentum = 0.9, .decay = decay };
    td_graph *g;
    td_type t;
    *s = (td_detector_steps){ .c = c, .besides = c->is_tf ? 0 : decay };
    expect_ok(td_detector_training_graph(&c->model, c->batch, &sgd, &g));
    expect_ok(td_test_device_open("cpu", &s->dev));
    expect_ok(td_compile(g, s->dev, &(td_compile_opts){ 0 }, &s->p));
    td_graph_free(g);
    assert_non_null(td_program_output(s->p, "loss", &t));
    s->n_anchors = td_anchors_count(td_model_detector(&c->model), c->side);
    const size_t n = (size_t)(c->batch * s->n_anchors);
    s->labels = td_alloc(n, sizeof *s->labels);
    s->targets = td_alloc(n * 4, sizeof *s->targets);
    assert_true(s->labels && s->targets);
    td_detector_fill_all(c, s->p);
    expect_ok(td_program_bind(s->p, "labels", s->labels));
    expect_ok(td_program_bind(s->p, "targets", s->targets));
    expect_ok(td_program_bind(s->p, "lr", &s->lr));
}

void td_detector_steps_close(td_detector_steps *s)
{
    td_program_free(s->p);
    td_device_close(s->dev);
    td_free(s->images);
    td_free(s->labels);
    td_free(s->targets);
    *s = (td_detector_steps){ 0 };
}

/* --- ground truths ---------------------------------------------------------------------------- */

/* of SSD320: slots with a weight */
static int ground_truths_of_slots(const td_tensors *t, int k, int image, td_ground_truth *out)
{
    char name[64];
    const char *tail = k == 0 ? "" : k == 1 ? "_batch1" : "_batch2";
    int n = 0;
    snprintf(name, sizeof name, "groundtruth_boxes%s", tail);
    const float *boxes = td_tensors_get(t, name)->data;
    snprintf(name, sizeof name, "groundtruth_weights%s", tail);
    const float *weights = td_tensors_get(t, name)->data;
    snprintf(name, sizeof name, "groundtruth_classes%s", tail);
    const int32_t *classes = td_tensors_get(t, name)->data;
    for (int i = image * TD_GROUND_TRUTHS_MAX; i < (image + 1) * TD_GROUND_TRUTHS_MAX; i++) {
        const float *b = boxes + (ptrdiff_t)4 * i;
        if (weights[i] > 0)
            out[n++] = (td_ground_truth){ .box = { b[0], b[1], b[2], b[3] }, .label = classes[i] };
    }
    return n;
}

/* of SSD300: left, top, right, bottom */
static int ground_truths_of_lists(const td_tensors *t, int k, int image, td_ground_truth *out)
{
    char name[64];
    snprintf(name, sizeof name, "batch%d.image%d.boxes_ltrb", k, image);
    const td_tensor *boxes = td_tensors_get(t, name);
    snprintf(name, sizeof name, "batch%d.image%d.labels", k, image);
    const td_tensor *labels = td_tensors_get(t, name);
    assert_true(boxes && labels && boxes->dim[0] <= TD_GROUND_TRUTHS_MAX);
    for (int64_t i = 0; i < boxes->dim[0]; i++) {
        const float *b = (const float *)boxes->data + 4 * i;
        out[i] = (td_ground_truth){ .box = { b[1], b[0], b[3], b[2] },
                                    .label = labels->dtype == TD_DT_I64
                                                 ? ((const int64_t *)labels->data)[i]
                                                 : ((const int32_t *)labels->data)[i] };
    }
    return (int)boxes->dim[0];
}

static int assign(td_detector_steps *s, int k)
{
    const td_detector_case *c = s->c;
    td_tensors *t = td_golden_tensors(c->part, c->is_tf && k > 0 ? "steps_groundtruth.safetensors"
                                                                 : "targets.safetensors");
    td_anchors *anchors;
    td_ground_truth ground_truths[TD_GROUND_TRUTHS_MAX];
    int n_positive = 0;
    expect_ok(td_anchors_new(td_model_detector(&c->model), c->side, &anchors));
    void *scratch = td_alloc(1, td_targets_scratch_bytes(anchors));
    assert_non_null(scratch);
    for (int i = 0; i < c->batch; i++) {
        const int n = c->is_tf ? ground_truths_of_slots(t, k, i, ground_truths)
                               : ground_truths_of_lists(t, k, i, ground_truths);
        const ptrdiff_t from = (ptrdiff_t)i * anchors->n;
        n_positive += td_targets_assign(anchors, ground_truths, n, scratch, s->labels + from,
                                        s->targets + 4 * from);
    }
    td_free(scratch);
    td_anchors_free(anchors);
    td_tensors_free(t);
    return n_positive;
}

/* --- running ---------------------------------------------------------------------------------- */

int td_detector_step(td_detector_steps *s, int k, double lr)
{
    static const char *const names[] = { "images", "images.1", "images.2" };
    td_free(s->images);
    s->images = td_detector_images(s->c, names[k]);
    expect_ok(td_program_bind(s->p, "images", s->images));
    s->lr = (float)lr;
    const int n_positive = assign(s, k);
    expect_ok(td_program_run(s->p));
    return n_positive;
}

double td_detector_scalar(const td_detector_steps *s, const char *name)
{
    td_type t;
    const float *v = td_program_output(s->p, name, &t);
    assert_true(v && t.dtype == TD_DT_F32 && td_type_count(&t) == 1);
    return (double)*v;
}

static float *param_of(const td_detector_steps *s, const char *name, const td_type *t)
{
    float *values = td_alloc((size_t)td_type_count(t), sizeof *values);
    assert_non_null(values);
    expect_ok(td_program_get(s->p, name, values));
    return values;
}

static bool is_momentum_buffer(const char *name)
{
    return td_text_starts(name, TD_MOMENTUM_PREFIX);
}

double td_detector_regularization(const td_detector_steps *s, double decay)
{
    double sum = 0;
    for (int i = 0; i < td_program_param_count(s->p); i++) {
        const char *name = td_program_param_name(s->p, i);
        const td_type t = td_program_param_type(s->p, i);
        if (t.rank < 2 || is_momentum_buffer(name))
            continue;
        float *w = param_of(s, name, &t);
        for (int64_t k = 0; k < td_type_count(&t); k++)
            sum += (double)w[k] * (double)w[k];
        td_free(w);
    }
    return decay / 2 * sum;
}

/* --- comparing -------------------------------------------------------------------------------- */

/* rank-4 parameters in golden order: [R, S, C, K] of SSD320 */
static double *ordered(const td_detector_case *c, const td_type *t, const float *values)
{
    const int64_t n = td_type_count(t);
    double *out = td_alloc((size_t)n, sizeof *out);
    assert_non_null(out);
    const bool is_turned = c->is_tf && t->rank == 4;
    const int64_t K = t->dim[0], taps = is_turned ? t->dim[2] * t->dim[3] : 1, C = n / K / taps;
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = i / taps / C, channel = i / taps % C, tap = i % taps;
        out[is_turned ? (tap * C + channel) * K + k : i] = (double)values[i];
    }
    return out;
}

static double largest_norm(const td_json *rows)
{
    double largest = 0;
    for (size_t i = 0; i < td_json_count(rows); i++)
        largest = fmax(largest, td_golden_number(td_json_member(rows, i), "l2"));
    return largest;
}

static double norm_of(const double *v, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += v[i] * v[i];
    return sqrt(sum);
}

/* what a group of tensors came to */
typedef struct {
    int n, n_over, n_tiny;
    double norm, samples; /* worst */
    char norm_name[160], samples_name[160];
} tally;

static void count(tally *t, const char *name, double norm, double samples, double norm_limit,
                  double sample_limit)
{
    t->n++;
    t->n_over += !(norm <= norm_limit) || (sample_limit > 0 && !(samples <= sample_limit));
    if (!(norm <= t->norm)) {
        t->norm = norm;
        snprintf(t->norm_name, sizeof t->norm_name, "%s", name);
    }
    if (!(samples <= t->samples)) {
        t->samples = samples;
        snprintf(t->samples_name, sizeof t->samples_name, "%s", name);
    }
}

static void report(const tally *t, const td_detector_case *c, const char *what, double norm_limit,
                   double sample_limit)
{
    print_message("%s%s %d %s (%d others tiny): norms %.1e (%.1e) %s, samples %.1e (%.1e) %s\n",
                  c->part, c->is_calm ? " calm" : "", t->n, what, t->n_tiny, t->norm, norm_limit,
                  t->norm_name, t->samples, sample_limit, t->samples_name);
    assert_true(t->n > 0);
    if (t->n_over)
        fail_msg("%d %s are over their limits", t->n_over, what);
}

/* of a filter, whose weights before the step were the fill */
static void take_decay(const td_detector_steps *s, const char *weight, const td_type *t,
                       float *momentum_buffer)
{
    if (s->besides == 0 || t->rank < 2)
        return;
    float *w = td_detector_fill(s->c, weight, t);
    for (int64_t i = 0; i < td_type_count(t); i++)
        momentum_buffer[i] = (float)((double)momentum_buffer[i] - s->besides * (double)w[i]);
    td_free(w);
}

void td_detector_check_gradients(const td_detector_steps *s, const td_json *rows, double norm_limit,
                                 double sample_limit)
{
    const double largest = largest_norm(rows);
    tally sum = { 0 };
    for (int i = 0; i < td_program_param_count(s->p); i++) {
        const char *name = td_program_param_name(s->p, i);
        const td_type t = td_program_param_type(s->p, i);
        char golden[160];
        if (!is_momentum_buffer(name))
            continue;
        td_detector_name(s->c, name + strlen(TD_MOMENTUM_PREFIX), golden);
        const td_json *row = td_json_get(rows, golden);
        if (!row)
            fail_msg("no golden gradient '%s'", golden);
        float *plain = param_of(s, name, &t);
        take_decay(s, name + strlen(TD_MOMENTUM_PREFIX), &t, plain);
        double *values = ordered(s->c, &t, plain);
        const int64_t n = td_type_count(&t);
        if (td_golden_number(row, "l2") < 3e-6 * largest) {
            sum.n_tiny++;
            sum.n_over += !(norm_of(values, n) < 1e-5 * largest);
        } else {
            count(&sum, golden, td_detector_norm_error(row, values, n),
                  td_detector_error(row, values, n), norm_limit, sample_limit);
        }
        td_free(values);
        td_free(plain);
    }
    assert_int_equal(sum.n + sum.n_tiny, td_json_count(rows));
    report(&sum, s->c, "gradients", norm_limit, sample_limit);
}

/* the largest difference of eight elements over the root mean square of the change */
static double change_samples_error(const td_json *row, const double *change, int64_t n)
{
    const td_json *samples = td_json_get(row, "change_samples");
    const double scale = td_golden_number(row, "change_l2") / sqrt((double)n);
    double largest = 0, most = scale;
    if (!samples)
        return 0;
    for (size_t k = 0; k < td_json_count(samples); k++) {
        double v;
        expect_ok(td_json_as_number(td_json_at(samples, k), &v));
        most = fmax(most, fabs(v));
        largest = fmax(largest, fabs(v - change[td_golden_sample((int64_t)k, n)]));
    }
    return largest / most;
}

void td_detector_check_changes(const td_detector_steps *s, const td_json *rows, double norm_limit,
                               double sample_limit)
{
    tally sum = { 0 };
    for (int i = 0; i < td_program_param_count(s->p); i++) {
        const char *name = td_program_param_name(s->p, i);
        const td_type t = td_program_param_type(s->p, i);
        const int64_t n = td_type_count(&t);
        char golden[160];
        if (is_momentum_buffer(name))
            continue;
        const td_json *row = td_json_get(rows, td_detector_name(s->c, name, golden));
        if (!row)
            fail_msg("no golden variable '%s'", golden);
        const double l2 = td_golden_number(row, "change_l2");
        if (l2 <= 1e-4 * td_golden_number(row, "l2")) {
            sum.n_tiny++;
            continue;
        }
        float *plain = param_of(s, name, &t), *fill = td_detector_fill(s->c, name, &t);
        double *change = ordered(s->c, &t, plain), *before = ordered(s->c, &t, fill);
        for (int64_t k = 0; k < n; k++)
            change[k] -= before[k];
        count(&sum, golden, fabs(norm_of(change, n) - l2) / l2,
              change_samples_error(row, change, n), norm_limit, sample_limit);
        td_free(before);
        td_free(change);
        td_free(fill);
        td_free(plain);
    }
    report(&sum, s->c, "changes", norm_limit, sample_limit);
}

void td_detector_check_close(const char *what, double a, double b, double limit)
{
    const double e = fabs(a - b) / fmax(fabs(b), 1e-30);
    print_message("%s: %.9g, wanted %.9g: %.1e (%.1e)\n", what, a, b, e, limit);
    if (!(e <= limit))
        fail_msg("'%s' is over its limit", what);
}
