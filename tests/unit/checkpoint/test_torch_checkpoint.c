/*
 * test_torch_checkpoint.c -- PyTorch's training checkpoints: resumed to PyTorch's own numbers,
 * refused where they do not fit, and written so that they are read back
 *
 * tests/data/pth/training* are tests/oracle/resume_pth.py's: three steps in PyTorch, saved as the
 * reference's main.py saves, and what three more in float64 make of every tensor.
 */
#include "checkpoint/torch_checkpoint.h"

#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "inference/inputs.h"
#include "pth/pth_write.h"
#include "support/allocations.h"
#include "support/expect.h"
#include "support/scratch.h"

#define DATA "tests/data/pth/"

/* --- resumed ---------------------------------------------------------------------------------- */

static void train_on(const char *resume, const char *weights, const char *workspace,
                     td_optimizer type)
{
    td_train_opts o;
    td_train_result result;
    const bool rmsprop = type == TD_OPTIMIZER_RMSPROP, adamw = type == TD_OPTIMIZER_ADAMW;
    td_train_defaults(&o);
    o.model.model = DATA "training.td";
    o.input.data = DATA "training-data.safetensors";
    o.input.data_backend = TD_DATA_TENSORS;
    o.start.resume = resume;
    o.batch.size = 4;
    o.length.epochs = 4;
    o.length.run_epochs = 1;
    o.lr.peak = rmsprop || adamw ? 0.002 : 0.05;
    o.optimizer.type = type;
    o.optimizer.adam_beta1 = 0.8;
    o.optimizer.adam_beta2 = 0.98;
    o.optimizer.adam_eps = 1e-5;
    o.optimizer.decays_bn = adamw;
    o.optimizer.momentum = rmsprop ? 0.9 : 0.875;
    o.optimizer.weight_decay = 1.0 / 1024;
    o.optimizer.rmsprop_alpha = 0.9;
    o.optimizer.rmsprop_eps = 0.01;
    o.lr.schedule = TD_LR_LINEAR;
    o.lr.warmup = 0;
    o.loss.label_smoothing = 0.1;
    o.optimizer.ema = 0.9;
    o.validation.is_enabled = false;
    o.output.final_state = true;
    o.output.final_weights = weights;
    o.output.workspace = workspace;
    o.device.threads = 1;
    o.batch.seed = 1;
    expect_ok(td_train(&o, &result));
    assert_int_equal(result.epoch, 2);
    td_text_free(result.profile);
}

/* the largest difference over the largest number wanted */
static double deviation(const td_tensor *got, const td_tensor *wanted)
{
    double most = 0, off = 0;
    const float *a = got->data, *b = wanted->data;
    assert_int_equal(got->n_bytes, wanted->n_bytes);
    for (size_t i = 0; i < got->n_bytes / sizeof *a; i++) {
        most = fmax(most, fabs((double)b[i]));
        off = fmax(off, fabs((double)a[i] - (double)b[i]));
    }
    return off / most;
}

static void expect_near(const char *got_path, const char *wanted_path)
{
    td_tensors *got, *wanted;
    expect_ok(td_tensors_read(got_path, &got));
    expect_ok(td_tensors_read(wanted_path, &wanted));
    assert_true(td_tensors_count(wanted) > 40);
    for (size_t i = 0; i < td_tensors_count(wanted); i++) {
        const td_tensor *w = td_tensors_at(wanted, i), *x = td_tensors_get(got, w->name);
        assert_non_null(x);
        if (!(deviation(x, w) < 1e-4)) { /* float32 itself: 1e-6 */
            print_error("%s is off by %g\n", w->name, deviation(x, w));
            fail();
        }
    }
    td_tensors_free(got);
    td_tensors_free(wanted);
}

static void what_pytorch_would_have_computed(void **state)
{
    (void)state;
    train_on(DATA "training-sgd.pth.tar", td_scratch_path("sgd.safetensors"),
             td_scratch_path("sgd"), TD_OPTIMIZER_SGD);
    expect_near(td_scratch_path("sgd.safetensors"), DATA "training-sgd.safetensors");
    train_on(DATA "training-rmsprop.pth.tar", td_scratch_path("rmsprop.safetensors"),
             td_scratch_path("rmsprop"), TD_OPTIMIZER_RMSPROP);
    expect_near(td_scratch_path("rmsprop.safetensors"), DATA "training-rmsprop.safetensors");
    train_on(DATA "training-adamw.pth.tar", td_scratch_path("adamw.safetensors"),
             td_scratch_path("adamw"), TD_OPTIMIZER_ADAMW);
    expect_near(td_scratch_path("adamw.safetensors"), DATA "training-adamw.safetensors");
}

static void adam_counts_its_steps(void **state)
{
    (void)state;
    td_tensors *t;
    td_run_state s;
    expect_ok(td_checkpoint_open(DATA "training-adamw.pth.tar", &t));
    expect_ok(td_checkpoint_state(t, "x", &s));
    assert_int_equal(s.steps, 3);
    assert_non_null(td_tensors_get(t, "exp_avg.fc.bias"));
    assert_non_null(td_tensors_get(t, "exp_avg_sq.layer1.0.se.fc2.weight"));
    assert_null(td_tensors_get(t, "momentum.fc.bias"));
    assert_string_equal(td_tensors_meta(t, "tandem.config"),
                        "{\"optimizer\": \"adamw\", \"weight_decay\": 0.0009765625, "
                        "\"nesterov\": false, \"bn_weight_decay\": true, "
                        "\"adam_beta1\": 0.80000000000000004, \"adam_beta2\": 0.97999999999999998, "
                        "\"adam_eps\": 1.0000000000000001e-05}");
    td_tensors_free(t);
}

static void state_and_options_are_the_files(void **state)
{
    (void)state;
    td_tensors *t;
    td_run_state s;
    char *json;
    expect_ok(td_checkpoint_open(DATA "training-rmsprop.pth.tar", &t));
    assert_true(td_checkpoint_is_torch(t));
    expect_ok(td_checkpoint_state(t, "x", &s));
    assert_int_equal(s.epoch, 1);
    assert_int_equal(s.iteration, 0);
    assert_int_equal(s.batches_tracked, 3);
    assert_true(fabs(s.best - 12.5) < 1e-12);
    assert_non_null(td_tensors_get(t, "momentum.layer1.0.se.fc2.bias"));
    assert_non_null(td_tensors_get(t, "square_avg.layer1.0.downsample.1.weight"));
    assert_non_null(td_tensors_get(t, "ema.layer1.0.bn1.running_var"));
    td_tensors_free(t);
    expect_ok(td_train_stored_options(DATA "training-rmsprop.pth.tar", &json));
    assert_non_null(strstr(json, "\"optimizer\": \"rmsprop\", \"momentum\": 0.9"));
    assert_non_null(strstr(json, "\"weight_decay\": 0.0009765625"));
    assert_non_null(strstr(json, "\"bn_weight_decay\": false"));
    assert_non_null(strstr(json, "\"rmsprop_eps\": 0.01"));
    td_text_free(json);
}

/* --- refused ---------------------------------------------------------------------------------- */

/* a checkpoint of three parameters, with something wrong where a member is set */
typedef struct {
    int epoch;
    double best, dampening, decays_norms;
    bool lacks_optimizer, lacks_epoch, has_no_rule, is_centered, is_shape_wrong, has_left_over;
    bool has_betas, has_amsgrad, is_lamb; /* of an Adam */
    double step;
    int n_groups, n_first, shift; /* parameters of the first group; added to their numbers */
    const char *state_key;
} wrong;

static const float numbers[16];

static void put_tensor(td_pth_writer *w, const char *name, int64_t n)
{
    const td_tensor x = {
        .dtype = TD_DT_F32, .rank = 1, .dim = { n }, .data = numbers, .n_bytes = (size_t)n * 4
    };
    td_pth_text(w, name);
    td_pth_tensor(w, &x);
}

static void put_setting(td_pth_writer *w, const char *name, double value)
{
    td_pth_text(w, name);
    td_pth_real(w, value);
}

static void put_group(td_pth_writer *w, const wrong *c, int group, int first, int n)
{
    td_pth_dict(w);
    put_setting(w, "lr", 0.1);
    if (!c->has_no_rule && !c->has_betas)
        put_setting(w, "momentum", 0.9);
    if (c->has_betas) {
        td_pth_text(w, "betas");
        td_pth_list(w);
        td_pth_real(w, 0.9);
        td_pth_real(w, 0.99);
        td_pth_end_list(w);
        td_pth_text(w, "amsgrad");
        td_pth_bool(w, c->has_amsgrad);
        put_setting(w, "eps", 1e-6);
    }
    if (c->is_lamb) {
        td_pth_text(w, "grad_averaging");
        td_pth_bool(w, true);
        put_setting(w, "step", c->step);
    }
    put_setting(w, "dampening", c->dampening);
    put_setting(w, "weight_decay", group == 0 ? c->decays_norms : 0.5);
    td_pth_text(w, "centered");
    td_pth_bool(w, c->is_centered);
    td_pth_text(w, "params");
    td_pth_list(w);
    for (int i = 0; i < n; i++)
        td_pth_int(w, first + i + c->shift);
    td_pth_end_list(w);
    td_pth_end_dict(w);
}

static void put_optimizer(td_pth_writer *w, const wrong *c)
{
    const int n_groups = c->n_groups ? c->n_groups : 2;
    td_pth_dict(w);
    td_pth_text(w, "state");
    td_pth_dict(w);
    td_pth_int(w, c->has_left_over ? 99 : 1);
    td_pth_dict(w);
    put_tensor(w, c->state_key ? c->state_key : "momentum_buffer", c->is_shape_wrong ? 5 : 4);
    td_pth_end_dict(w);
    td_pth_end_dict(w);
    td_pth_text(w, "param_groups");
    td_pth_list(w);
    put_group(w, c, 0, 0, c->n_first ? c->n_first : 1);
    for (int i = 1; i < n_groups; i++)
        put_group(w, c, i, c->n_first ? c->n_first : 1, 3 - (c->n_first ? c->n_first : 1));
    td_pth_end_list(w);
    td_pth_end_dict(w);
}

static const char *write_wrong(const wrong *c)
{
    td_pth_writer w = { 0 };
    const char *path = td_scratch_path("wrong.pth.tar");
    td_pth_dict(&w);
    if (!c->lacks_epoch) {
        td_pth_text(&w, "epoch");
        td_pth_int(&w, c->epoch);
    }
    td_pth_text(&w, "best_prec1");
    td_pth_real(&w, c->best);
    td_pth_text(&w, "state_dict");
    td_pth_dict(&w);
    put_tensor(&w, "fc.weight", 4);
    put_tensor(&w, "bn1.weight", 3);
    put_tensor(&w, "bn1.running_mean", 3);
    put_tensor(&w, "fc.bias", 2);
    td_pth_end_dict(&w);
    if (!c->lacks_optimizer) {
        td_pth_text(&w, "optimizer");
        put_optimizer(&w, c);
    }
    td_pth_end_dict(&w);
    expect_ok(td_pth_save(&w, path));
    td_pth_writer_release(&w);
    return path;
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const struct {
        wrong c;
        td_status st;
        const char *part;
    } rows[] = {
        { { .lacks_optimizer = true },
          TD_EFORMAT,
          "training checkpoint: it has no 'optimizer'; use" },
        { { .lacks_epoch = true }, TD_EFORMAT, "'epoch'" },
        { { .epoch = -3 }, TD_EFORMAT, "its epoch is -3" },
        { { .best = 101 }, TD_EFORMAT, "its best_prec1 is 101" },
        { { .has_no_rule = true }, TD_EUNSUPPORTED, "neither momentum nor betas" },
        { { .state_key = "exp_avg" }, TD_EFORMAT, "1 tensors, but only 0" },
        { { .state_key = "max_exp_avg_sq" }, TD_EUNSUPPORTED, "1 contains 'max_exp_avg_sq'" },
        { { .has_betas = true, .state_key = "exp_avg" }, TD_EUNSUPPORTED, "Adam or AdamW" },
        { { .is_lamb = true, .has_betas = true, .has_amsgrad = true, .state_key = "exp_avg" },
          TD_EUNSUPPORTED,
          "amsgrad" },
        { { .is_lamb = true, .has_betas = true, .step = -2, .state_key = "exp_avg" },
          TD_EUNSUPPORTED,
          "have no 'step'" },
        { { .is_lamb = true, .has_betas = true, .step = 1e30, .state_key = "exp_avg" },
          TD_EFORMAT,
          "step is 1e+30" },
        { { .dampening = 0.1 }, TD_EUNSUPPORTED, "dampening" },
        { { .is_centered = true }, TD_EUNSUPPORTED, "centered" },
        { { .decays_norms = 0.25 }, TD_EUNSUPPORTED, "0.25 for batch norm and 0.5" },
        { { .n_groups = 3 }, TD_EUNSUPPORTED, "have the one or two parameter groups" },
        { { .n_groups = 1 }, TD_EFORMAT, "group 0 of its optimizer has 1 parameters" },
        { { .n_first = 2 }, TD_EFORMAT, "has 2 parameters, the state_dict has 1 with 'bn'" },
        { { .shift = 1 }, TD_EFORMAT, "is number 1, wanted 0" },
        { { .is_shape_wrong = true },
          TD_EFORMAT,
          "of the optimizer's parameter 1 does not match the shape and type of '" },
        { { .has_left_over = true }, TD_EFORMAT, "1 tensors, but only 0" },
    };
    td_tensors *t;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expect_error(td_checkpoint_open(write_wrong(&rows[i].c), &t), rows[i].st, rows[i].part);
        assert_null(t);
        assert_non_null(strstr(td_error_message(), "wrong.pth.tar'"));
    }
    const wrong none = { 0 };
    expect_ok(td_checkpoint_open(write_wrong(&none), &t));
    assert_int_equal(td_tensors_get(t, "momentum.fc.weight")->n_bytes, 16);
    assert_int_equal(td_tensors_get(t, "momentum.fc.bias")->n_bytes, 8); /* not begun: zeros */
    td_tensors_free(t);
}

/* --- written ---------------------------------------------------------------------------------- */

/* the same tensors, however they went through PyTorch's form */
static void expect_same(const char *file)
{
    td_tensors *a, *b;
    const char *path = td_scratch_path("again.pth.tar");
    expect_ok(td_checkpoint_open(file, &a));
    expect_ok(td_torch_write(a, "a", TD_CONVERT_NAMES_AUTO, path));
    expect_ok(td_checkpoint_open(path, &b));
    assert_int_equal(td_tensors_count(a), td_tensors_count(b));
    for (size_t i = 0; i < td_tensors_count(a); i++) {
        const td_tensor *x = td_tensors_at(a, i), *y = td_tensors_get(b, x->name);
        assert_non_null(y);
        assert_int_equal(x->rank, y->rank);
        assert_int_equal(x->n_bytes, y->n_bytes);
        assert_memory_equal(x->data, y->data, x->n_bytes);
    }
    assert_string_equal(td_tensors_meta(a, "tandem.config"), td_tensors_meta(b, "tandem.config"));
    assert_string_equal(td_tensors_meta(a, "tandem.state"), td_tensors_meta(b, "tandem.state"));
    td_tensors_free(a);
    td_tensors_free(b);
}

static void what_is_written_is_the_same_checkpoint(void **state)
{
    (void)state;
    expect_same(DATA "training-rmsprop.pth.tar");
    expect_same(DATA "training-adamw.pth.tar");
    const wrong lamb = {
        .has_betas = true, .is_lamb = true, .step = 7, .state_key = "exp_avg", .decays_norms = 0.5
    };
    expect_same(write_wrong(&lamb));
}

static td_status open_and_write(void)
{
    td_tensors *t;
    td_status st = td_checkpoint_open(DATA "training-adamw.pth.tar", &t);
    if (st == TD_OK)
        st = td_torch_write(t, "t", TD_CONVERT_NAMES_AUTO, td_scratch_path("swept.pth.tar"));
    td_tensors_free(t);
    return st;
}

static void memory_may_run_out(void **state)
{
    (void)state;
    assert_true(td_test_allocations(open_and_write, 5000) > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_pytorch_would_have_computed),
        cmocka_unit_test(state_and_options_are_the_files),
        cmocka_unit_test(adam_counts_its_steps),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(what_is_written_is_the_same_checkpoint),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
