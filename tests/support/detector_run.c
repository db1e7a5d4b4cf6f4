/*
 * detector_run.c -- checks of both detectors against their golden data
 */
#include "support/detector_run.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "ir/graph.h"
#include "ops/ops.h"
#include "support/device.h"
#include "support/measure.h"

/* --- variables -------------------------------------------------------------------------------- */

void td_detector_check_variables(const char *part, int64_t parameters, int trainable, int tensors,
                                 int64_t macs)
{
    td_detector_case c;
    td_graph *g;
    int64_t n_elements = 0;
    int n_trainable = 0;
    td_detector_open(&c, part, false);
    expect_ok(td_model_graph(&c.model, 1, false, &g));
    for (int i = 0; i < td_graph_param_count(g); i++) {
        char golden[160];
        const char *name = td_graph_param_name(g, i);
        const td_value *v = td_graph_find(g, name);
        const td_type t = td_graph_param_type(g, i);
        const td_json *row = td_map_get(&c.by_name, td_detector_name(&c, name, golden));
        bool is_trainable;
        if (!row)
            fail_msg("no golden variable '%s' for '%s'", golden, name);
        expect_ok(td_json_bool(row, "trainable", &is_trainable));
        assert_int_equal(is_trainable,
                         ((const td_param_attr *)v->producer->attr)->role == TD_ROLE_WEIGHT);
        n_trainable += is_trainable;
        n_elements += is_trainable ? td_type_count(&t) : 0;
    }
    assert_int_equal(td_graph_param_count(g), (int)c.by_name.n);
    assert_int_equal(td_graph_param_count(g), tensors);
    assert_int_equal(n_trainable, trainable);
    assert_int_equal(n_elements, parameters);
    if (macs)
        assert_int_equal(td_graph_macs(g), macs);
    td_graph_free(g);
    td_detector_close(&c);
}

/* --- a forward pass --------------------------------------------------------------------------- */

typedef struct {
    const td_detector_case *c;
    td_device *dev;
    td_program *p;
    float *images;
} run;

static void open_run(run *r, const td_detector_case *c, td_graph *g)
{
    *r = (run){ .c = c };
    expect_ok(td_test_device_open("cpu", &r->dev));
    expect_ok(td_compile(g, r->dev, &(td_compile_opts){ 0 }, &r->p));
    td_graph_free(g);
    td_detector_fill_all(c, r->p);
    r->images = td_detector_images(c, "images");
    expect_ok(td_program_bind(r->p, "images", r->images));
}

static void close_run(run *r)
{
    td_program_free(r->p);
    td_device_close(r->dev);
    td_free(r->images);
    *r = (run){ 0 };
}

static double *output_of(const run *r, const char *name, int64_t *n)
{
    td_type t;
    const float *data = td_program_output(r->p, name, &t);
    if (!data)
        fail_msg("no output '%s'", name);
    assert_int_equal(t.dtype, TD_DT_F32);
    *n = td_type_count(&t);
    return td_detector_ordered(r->c, &t, data);
}

static double limit_of(const td_detector_limit *limits, const char *name)
{
    while (limits->prefix && !td_text_starts(name, limits->prefix))
        limits++;
    if (!limits->prefix)
        fail_msg("no limit for '%s'", name);
    return limits->limit;
}

/* "box_encodings_level3" is part of "box_encodings" */
static bool is_part(const td_detector_case *c, const char *name)
{
    return c->is_tf && !td_text_starts(name, "feature_map") && strstr(name, "_level");
}

static void check_summaries(const run *r, const char *file, const td_detector_limit *limits)
{
    td_json *doc = td_golden_json(r->c->part, file);
    int n_over = 0;
    for (size_t i = 0; i < td_json_count(doc); i++) {
        const char *name = td_json_key(doc, i);
        int64_t n;
        if (strcmp(name, "preprocessed") == 0 || is_part(r->c, name))
            continue;
        double *values = output_of(r, name, &n);
        const double e = td_detector_error(td_json_member(doc, i), values, n);
        const double limit = limit_of(limits, name);
        print_message("%s %s %-22s %.1e (%.1e)%s\n", r->c->part, file, name, e, limit,
                      e <= limit ? "" : " OVER");
        n_over += !(e <= limit);
        td_free(values);
    }
    td_json_free(doc);
    if (n_over)
        fail_msg("%d summaries are over their limits", n_over);
}

/* of a mean over the square root of its variance, of a variance over itself: the worst channel's */
static double statistics_error(const run *r, const td_tensors *t, const char *golden,
                               const char *output, int64_t channels, bool is_mean)
{
    const td_tensor *wanted = td_tensors_get(t, golden);
    double worst = 0;
    int64_t n;
    if (!wanted)
        fail_msg("no statistics '%s'", golden);
    assert_int_equal(wanted->dim[0], channels);
    double *found = output_of(r, output, &n);
    char other[160];
    snprintf(other, sizeof other, "%.*s/variance", (int)(strrchr(golden, '/') - golden), golden);
    const float *variance = td_tensors_get(t, other)->data;
    for (int64_t i = 0; i < n; i++) {
        const double scale = is_mean ? sqrt((double)variance[i]) : (double)variance[i];
        worst = fmax(worst, fabs(found[i] - (double)((const float *)wanted->data)[i]) / scale);
    }
    td_free(found);
    return worst;
}

/* batch means, and corrected variances, of all norms */
static void check_statistics(const run *r, double limit)
{
    td_tensors *t =
        td_golden_tensors(r->c->part, td_detector_file(r->c, "batch_statistics", "safetensors"));
    double worst = 0;
    size_t n_compared = 0;
    for (int i = 0; i < td_program_param_count(r->p); i++) {
        const char *name = td_program_param_name(r->p, i);
        const td_type type = td_program_param_type(r->p, i);
        char golden[160], output[160];
        td_detector_name(r->c, name, golden);
        const bool is_mean = td_text_ends(golden, "moving_mean");
        if (!is_mean && !td_text_ends(golden, "moving_variance"))
            continue;
        *strrchr(golden, '/') = '\0';
        snprintf(golden + strlen(golden), sizeof golden - strlen(golden),
                 is_mean ? "/mean" : "/variance");
        snprintf(output, sizeof output, "%s.%.*s.weight", is_mean ? "mean" : "variance",
                 (int)(strrchr(name, '.') - name), name);
        worst = fmax(worst, statistics_error(r, t, golden, output, type.dim[0], is_mean));
        n_compared++;
    }
    assert_int_equal(n_compared, td_tensors_count(t));
    print_message("%s statistics of %zu norms: %.1e (%.1e)\n", r->c->part, n_compared / 2, worst,
                  limit);
    if (!(worst <= limit))
        fail_msg("statistics are over their limit");
    td_tensors_free(t);
}

/* the rows of a head that file "NAME.safetensors" has, in full */
static double head_error(const run *r, const td_tensors *t, const char *head, const char *index)
{
    const td_tensor *rows = td_tensors_get(t, index), *wanted = td_tensors_get(t, head);
    assert_true(rows && wanted && rows->dtype == TD_DT_I32);
    int64_t n;
    double *found = output_of(r, head, &n), worst = 0;
    const int tf = r->c->is_tf;
    const int64_t n_rows = rows->dim[0], columns = wanted->dim[tf ? 2 : 1], batch = r->c->batch;
    const int64_t A = n / batch / columns;
    for (int64_t i = 0; i < batch * n_rows * columns; i++) {
        const int64_t image = i / n_rows / columns;
        const int64_t row = tf ? i / columns % n_rows : i % n_rows;
        const int64_t column = tf ? i % columns : i / n_rows % columns;
        const int64_t anchor = ((const int32_t *)rows->data)[row];
        const double value =
            found[image * A * columns + (tf ? anchor * columns + column : column * A + anchor)];
        worst = fmax(worst, fabs(value - (double)((const float *)wanted->data)[i]));
    }
    td_free(found);
    return worst;
}

static void check_heads(const run *r, const char *file, double limit)
{
    td_tensors *t = td_golden_tensors(r->c->part, file);
    const char *index = r->c->is_tf ? "anchor_index" : "box_index";
    const double deltas = head_error(r, t, r->c->is_tf ? "box_encodings" : "loc", index);
    const double scores = head_error(r, t, r->c->is_tf ? "class_predictions" : "conf", index);
    print_message("%s %s: codes %.1e scores %.1e (%.1e)\n", r->c->part, file, deltas, scores,
                  limit);
    if (!(fmax(deltas, scores) <= limit))
        fail_msg("heads are over their limit");
    td_tensors_free(t);
}

void td_detector_check_forward(const char *part, bool is_calm, const td_detector_limit *limits,
                               double heads_limit, double statistics_limit)
{
    td_detector_case c;
    run r;
    td_detector_open(&c, part, is_calm);
    open_run(&r, &c, td_detector_observed(&c, true));
    expect_ok(td_program_run(r.p));
    check_summaries(&r, td_detector_file(&c, "forward_train", "json"), limits);
    check_heads(&r, td_detector_file(&c, "forward_train", "safetensors"), heads_limit);
    if (c.is_tf)
        check_statistics(&r, statistics_limit);
    close_run(&r);
    td_detector_close(&c);
}

static void load_statistics(const run *r, const char *file)
{
    td_tensors *t = td_golden_tensors(r->c->part, file);
    size_t n_set = 0;
    for (int i = 0; i < td_program_param_count(r->p); i++) {
        const char *name = td_program_param_name(r->p, i), *part;
        char golden[160];
        td_detector_name(r->c, name, golden);
        if (r->c->is_tf && (part = strstr(golden, "/moving_")) != NULL)
            memmove(golden + (part - golden) + 1, part + strlen("/moving_"),
                    strlen(part + strlen("/moving_")) + 1);
        const td_tensor *v = td_tensors_get(t, golden);
        if (!v)
            continue;
        expect_ok(td_program_set(r->p, name, v->data));
        n_set++;
    }
    assert_int_equal(n_set, td_tensors_count(t));
    td_tensors_free(t);
}

void td_detector_check_eval(const char *part, bool is_calm, const char *file,
                            const char *statistics, const td_detector_limit *limits,
                            double heads_limit)
{
    td_detector_case c;
    run r;
    char name[80];
    td_detector_open(&c, part, is_calm);
    open_run(&r, &c, td_detector_observed(&c, false));
    if (statistics)
        load_statistics(&r, statistics);
    expect_ok(td_program_run(r.p));
    snprintf(name, sizeof name, "%s.json", file);
    check_summaries(&r, name, limits);
    snprintf(name, sizeof name, "%s.safetensors", file);
    check_heads(&r, name, heads_limit);
    close_run(&r);
    td_detector_close(&c);
}
