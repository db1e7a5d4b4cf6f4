/*
 * torch_checkpoint.c -- reads PyTorch's training checkpoints
 */
#include "checkpoint/torch_checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"
#include "optim/training_graph.h"
#include "pth/pth.h"

#define OPTIMIZER_PREFIX "optimizer." /* pth/pth.h */
#define EPOCH_MAX        1000000000
#define STEPS_MAX        1e15

/* Settings of an entry of param_groups. */
typedef struct {
    const td_json *params;
    td_optimizer kind;
    double momentum, decay, dampening, alpha, eps, beta1, beta2, max_norm;
    double step; /* LAMB's; -1: not there */
    bool nesterov, maximize, centered, amsgrad, caution;
    bool lacks_correction, lacks_averaging, clips_trust, always_adapts, is_decoupled; /* LAMB's */
} group;

typedef struct {
    const char *path;
    td_tensors *raw;          /* as read, with the names of pth/pth.h */
    td_tensors *out;          /* with our names */
    const td_tensor **params; /* [n] the model's parameters, in its order */
    const td_tensor **order;  /* [n] the same in the optimizer's order */
    size_t n;
    td_json *doc;
    group groups[2];
    size_t n_groups;
    size_t n_taken; /* tensors of the optimizer that belong to a parameter */
} reader;

/* --- the groups ------------------------------------------------------------------------------- */

/* apex writes numbers for some of the switches */
static td_status read_flag(const td_json *j, const char *name, bool *out)
{
    double x;
    if (td_json_bool(j, name, out) == TD_OK)
        return TD_OK;
    td_error_clear();
    TD_TRY(td_json_number(j, name, &x));
    *out = x > 0 || x < 0;
    return TD_OK;
}

/* the optimizer that has such settings */
static td_status find_kind(const td_json *j, group *g)
{
    bool is_decoupled = false;
    if (td_json_get(j, "momentum")) {
        g->kind = td_json_get(j, "alpha") ? TD_OPTIMIZER_RMSPROP : TD_OPTIMIZER_SGD;
        return TD_OK;
    }
    if (!td_json_get(j, "beta1"))
        return td_error(TD_EUNSUPPORTED, "a parameter group has neither momentum nor betas: the "
                                         "optimizer is not SGD, RMSprop, Adam, AdamW or LAMB");
    if (td_json_get(j, "grad_averaging")) {
        g->kind = TD_OPTIMIZER_LAMB;
        return TD_OK;
    }
    if (td_json_get(j, "decoupled_weight_decay"))
        TD_TRY(td_json_bool(j, "decoupled_weight_decay", &is_decoupled));
    else if (g->decay > 0)
        return td_error(TD_EUNSUPPORTED,
                        "its optimizer is Adam or AdamW with weight_decay %g, which files of "
                        "PyTorch before 2.7 do not tell apart: save it with a newer one",
                        g->decay);
    g->kind = is_decoupled ? TD_OPTIMIZER_ADAMW : TD_OPTIMIZER_ADAM;
    return TD_OK;
}

static td_status read_group(const td_json *j, group *g)
{
    bool corrects = true, averages = true;
    const struct {
        const char *name;
        double *real;
        bool *flag;
    } rows[] = { { "momentum", &g->momentum, NULL },
                 { "weight_decay", &g->decay, NULL },
                 { "dampening", &g->dampening, NULL },
                 { "alpha", &g->alpha, NULL },
                 { "eps", &g->eps, NULL },
                 { "beta1", &g->beta1, NULL },
                 { "beta2", &g->beta2, NULL },
                 { "max_grad_norm", &g->max_norm, NULL },
                 { "step", &g->step, NULL },
                 { "nesterov", NULL, &g->nesterov },
                 { "maximize", NULL, &g->maximize },
                 { "centered", NULL, &g->centered },
                 { "amsgrad", NULL, &g->amsgrad },
                 { "caution", NULL, &g->caution },
                 { "trust_clip", NULL, &g->clips_trust },
                 { "always_adapt", NULL, &g->always_adapts },
                 { "decoupled_decay", NULL, &g->is_decoupled },
                 { "bias_correction", NULL, &corrects },
                 { "grad_averaging", NULL, &averages } };
    *g = (group){ .params = td_json_get(j, "params"), .step = -1 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!td_json_get(j, rows[i].name))
            continue;
        TD_TRY(rows[i].real ? td_json_number(j, rows[i].name, rows[i].real)
                            : read_flag(j, rows[i].name, rows[i].flag));
    }
    g->lacks_correction = !corrects;
    g->lacks_averaging = !averages;
    return find_kind(j, g);
}

static bool is_equal(double a, double b)
{
    return !(a < b || a > b);
}

static bool is_same_rule(const group *a, const group *b)
{
    return a->kind == b->kind && a->nesterov == b->nesterov && is_equal(a->momentum, b->momentum) &&
           is_equal(a->alpha, b->alpha) && is_equal(a->eps, b->eps) &&
           is_equal(a->beta1, b->beta1) && is_equal(a->beta2, b->beta2) &&
           is_equal(a->max_norm, b->max_norm) && is_equal(a->step, b->step);
}

/* a setting that is not supported; NULL: none */
static const char *unsupported(const group *g)
{
    const struct {
        bool is_set;
        const char *name;
    } rows[] = { { g->dampening > 0, "dampening" },
                 { g->maximize, "maximize" },
                 { g->centered, "centered" },
                 { g->amsgrad, "amsgrad" },
                 { g->caution, "caution" },
                 { g->lacks_correction, "bias_correction=False" },
                 { g->lacks_averaging, "grad_averaging=False" },
                 { g->clips_trust, "trust_clip" },
                 { g->always_adapts, "always_adapt" },
                 { g->is_decoupled, "decoupled_decay" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].is_set)
            return rows[i].name;
    return NULL;
}

static td_status check_groups(const reader *r)
{
    const group *a = &r->groups[0], *b = &r->groups[r->n_groups - 1];
    const char *name = unsupported(a) ? unsupported(a) : unsupported(b);
    if (name)
        return td_error(TD_EUNSUPPORTED, "its optimizer has %s, which is not supported", name);
    if (!is_same_rule(a, b))
        return td_error(TD_EUNSUPPORTED, "its two groups differ in more than weight_decay");
    if (r->n_groups == 2 && a->decay > 0 && (a->decay < b->decay || a->decay > b->decay))
        return td_error(TD_EUNSUPPORTED,
                        "weight_decay is %g for batch norm and %g for the rest, wanted 0 or the "
                        "same",
                        a->decay, b->decay);
    return TD_OK;
}

static td_status read_groups(reader *r)
{
    const char *text = td_tensors_meta(r->raw, "torch.param_groups");
    TD_TRY(td_json_parse(text, strlen(text), "param_groups", &r->doc));
    r->n_groups = td_json_count(r->doc);
    TD_CHECK(r->n_groups == 1 || r->n_groups == 2);
    for (size_t i = 0; i < r->n_groups; i++)
        TD_TRY(read_group(td_json_at(r->doc, i), &r->groups[i]));
    return check_groups(r);
}

/* --- the order of the parameters -------------------------------------------------------------- */

static bool is_buffer(const char *name)
{
    return td_text_ends(name, "running_mean") || td_text_ends(name, "running_var") ||
           td_text_ends(name, "num_batches_tracked");
}

/*
 * List the parameters of the state_dict, which is in the model's order and also contains buffers.
 */
static td_status list_params(reader *r)
{
    const size_t n = td_tensors_count(r->raw) + 1;
    TD_TRY(TD_ALLOC(r->params, n));
    TD_TRY(TD_ALLOC(r->order, n));
    for (size_t i = 0; i + 1 < n; i++) {
        const td_tensor *x = td_tensors_at(r->raw, i);
        if (!td_text_starts(x->name, TD_EMA_PREFIX) && !td_text_starts(x->name, OPTIMIZER_PREFIX) &&
            !is_buffer(x->name))
            r->params[r->n++] = x;
    }
    return TD_OK;
}

/* Order the parameters as main.py's groups: names with "bn", then the others. */
static td_status order_params(reader *r)
{
    size_t n = 0, n_first = r->n;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < r->n; i++)
            if (r->n_groups == 1 ? pass == 0 : td_is_undecayed(r->params[i]->name) == (pass == 0))
                r->order[n++] = r->params[i];
        n_first = pass == 0 ? n : n_first;
    }
    for (size_t i = 0; i < r->n_groups; i++) {
        const size_t has = td_json_count(r->groups[i].params), wants = i ? r->n - n_first : n_first;
        if (has != wants)
            return td_error(TD_EFORMAT,
                            "group %zu of its optimizer has %zu parameters, the state_dict has "
                            "%zu%s",
                            i, has, wants,
                            r->n_groups == 1 ? ""
                            : i == 0         ? " with 'bn' in their names"
                                             : " without 'bn' in their names");
    }
    return TD_OK;
}

/* Check that the parameters are numbered from 0 across the groups, as torch.save does. */
static td_status check_numbers(const reader *r)
{
    int64_t number, wanted = 0;
    for (size_t i = 0; i < r->n_groups; i++)
        for (size_t k = 0; k < td_json_count(r->groups[i].params); k++, wanted++) {
            TD_TRY(td_json_as_int(td_json_at(r->groups[i].params, k), &number));
            if (number != wanted)
                return td_error(TD_EFORMAT,
                                "parameter %zu of its optimizer's group %zu is number %lld, wanted "
                                "%lld",
                                k, i, (long long)number, (long long)wanted);
        }
    return TD_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static td_status copy(reader *r, const char *prefix, const char *name, const td_tensor *x)
{
    char own[256], full[300];
    void *data;
    td_weight_name(name, own);
    snprintf(full, sizeof full, "%s%s", prefix, own);
    TD_TRY(td_tensors_add_new(r->out, full, x->dtype, x->rank, x->dim, &data));
    if (x->n_bytes)
        memcpy(data, x->data, x->n_bytes);
    return TD_OK;
}

static td_status copy_all(reader *r)
{
    for (size_t i = 0; i < td_tensors_count(r->raw); i++) {
        const td_tensor *x = td_tensors_at(r->raw, i);
        const bool is_ema = td_text_starts(x->name, TD_EMA_PREFIX);
        const char *name = x->name + (is_ema ? strlen(TD_EMA_PREFIX) : 0);
        if (td_text_starts(x->name, OPTIMIZER_PREFIX) ||
            (is_ema && td_text_ends(name, "num_batches_tracked")))
            continue;
        TD_TRY(copy(r, is_ema ? TD_EMA_PREFIX : "", name, x));
    }
    return TD_OK;
}

/* Do the shapes agree, except for ones at the end, as [D, C] and [D, C, 1, 1]? */
static bool is_same_shape(const td_tensor *x, const td_tensor *w)
{
    for (int i = 0; i < x->rank || i < w->rank; i++)
        if ((i < x->rank ? x->dim[i] : 1) != (i < w->rank ? w->dim[i] : 1))
            return false;
    return true;
}

/* Add one state tensor of parameter `number`; zeros if the optimizer does not have it yet. */
static td_status add_kept(reader *r, size_t number, const char *key, const char *prefix)
{
    char name[80], own[256], full[300];
    void *zeros;
    const td_tensor *w = r->order[number];
    snprintf(name, sizeof name, OPTIMIZER_PREFIX "%zu.%s", number, key);
    const td_tensor *x = td_tensors_get(r->raw, name);
    if (!x) {
        td_weight_name(w->name, own);
        snprintf(full, sizeof full, "%s%s", prefix, own);
        return td_tensors_add_new(r->out, full, w->dtype, w->rank, w->dim, &zeros);
    }
    if (!is_same_shape(x, w) || x->dtype != w->dtype)
        return td_error(TD_EFORMAT,
                        "%s of the optimizer's parameter %zu does not match the shape and type of "
                        "'%.200s', the tensor at the same position in the state_dict",
                        key, number, w->name);
    r->n_taken++;
    return copy(r, prefix, w->name, x);
}

static td_status add_optimizer(reader *r)
{
    size_t n_there = 0;
    const td_optimizer kind = r->groups[0].kind;
    for (size_t i = 0; i < r->n; i++) {
        if (td_optimizer_is_adam(kind)) {
            TD_TRY(add_kept(r, i, "exp_avg", TD_MEAN_PREFIX));
            TD_TRY(add_kept(r, i, "exp_avg_sq", TD_MEAN_SQ_PREFIX));
            continue;
        }
        TD_TRY(add_kept(r, i, "momentum_buffer", TD_MOMENTUM_PREFIX));
        if (kind == TD_OPTIMIZER_RMSPROP)
            TD_TRY(add_kept(r, i, "square_avg", TD_SQUARE_PREFIX));
    }
    for (size_t i = 0; i < td_tensors_count(r->raw); i++)
        n_there += td_text_starts(td_tensors_at(r->raw, i)->name, OPTIMIZER_PREFIX);
    if (n_there != r->n_taken)
        return td_error(
            TD_EFORMAT,
            "its optimizer state has %zu tensors, but only %zu belong to a parameter of its groups",
            n_there, r->n_taken);
    return TD_OK;
}

/* --- metadata --------------------------------------------------------------------------------- */

/* the value of --optimizer, and what people call it */
static const struct {
    const char *name, *title;
} optimizers[] = {
    [TD_OPTIMIZER_SGD] = { "sgd", "SGD" },    [TD_OPTIMIZER_RMSPROP] = { "rmsprop", "RMSprop" },
    [TD_OPTIMIZER_ADAM] = { "adam", "Adam" }, [TD_OPTIMIZER_ADAMW] = { "adamw", "AdamW" },
    [TD_OPTIMIZER_LAMB] = { "lamb", "LAMB" },
};

static td_status set_config(reader *r)
{
    td_text j = { 0 };
    const group *g = &r->groups[r->n_groups - 1];
    const bool decays_norms = r->n_groups == 1 || r->groups[0].decay > 0;
    td_text_add(&j, "{\"optimizer\": \"%s\"", optimizers[g->kind].name);
    if (!td_optimizer_is_adam(g->kind))
        td_text_add(&j, ", \"momentum\": %.17g", g->momentum);
    td_text_add(&j, ", \"weight_decay\": %.17g", g->decay);
    td_text_add(&j, ", \"nesterov\": %s, \"bn_weight_decay\": %s", g->nesterov ? "true" : "false",
                decays_norms ? "true" : "false");
    if (g->kind == TD_OPTIMIZER_RMSPROP)
        td_text_add(&j, ", \"rmsprop_alpha\": %.17g, \"rmsprop_eps\": %.17g", g->alpha, g->eps);
    if (td_optimizer_is_adam(g->kind))
        td_text_add(&j, ", \"adam_beta1\": %.17g, \"adam_beta2\": %.17g, \"adam_eps\": %.17g",
                    g->beta1, g->beta2, g->eps);
    if (g->kind == TD_OPTIMIZER_LAMB)
        td_text_add(&j, ", \"lamb_max_grad_norm\": %.17g", g->max_norm);
    td_text_add(&j, "}");
    td_status st = td_text_status(&j);
    if (st == TD_OK)
        st = td_tensors_set_meta(r->out, "tandem.config", td_text_get(&j));
    td_text_release(&j);
    return st;
}

/* the steps that bias correction counts; 0 without it */
static td_status read_steps(const reader *r, int64_t *steps)
{
    const char *text = td_tensors_meta(r->raw, "torch.step");
    double x = r->groups[0].step;
    *steps = 0;
    if (!td_optimizer_is_adam(r->groups[0].kind) || (r->n_taken == 0 && x < 0))
        return TD_OK;
    if (x < 0 && (!text || !td_text_to_real(text, &x)))
        return td_error(TD_EUNSUPPORTED, "its optimizer's parameters have no 'step', or different "
                                         "ones");
    if (!(x >= 0 && x <= STEPS_MAX))
        return td_error(TD_EFORMAT, "its optimizer's step is %g, wanted 0 to %g", x, STEPS_MAX);
    *steps = (int64_t)x;
    return TD_OK;
}

static td_status set_state(reader *r)
{
    const char *epoch = td_tensors_meta(r->raw, "torch.epoch");
    const char *best = td_tensors_meta(r->raw, "torch.best_prec1");
    td_run_state s = { .ranks = 1,
                       .best = -1,
                       .last = -1,
                       .last_second = -1,
                       .step = { .n_batches = 1, .ema_before = 1 } };
    if (!epoch || !td_text_to_int(epoch, &s.epoch) || s.epoch < 0 || s.epoch > EPOCH_MAX)
        return td_error(TD_EFORMAT, "its epoch is %s, wanted 0 to %d", epoch ? epoch : "absent",
                        EPOCH_MAX);
    if (best && (!td_text_to_real(best, &s.best) || !(s.best >= 0 && s.best <= 100)))
        return td_error(TD_EFORMAT, "its best_prec1 is %s, wanted 0 to 100", best);
    s.best_epoch = s.epoch - 1;
    s.batches_tracked = td_weights_batches(r->raw);
    TD_TRY(read_steps(r, &s.steps));
    td_scaler_begin(&s.scaler, TD_SCALER_NONE, TD_SCALER_TF, 0, 0);
    return td_checkpoint_set_state(r->out, &s);
}

static td_status set_metadata(reader *r)
{
    const char *arch = td_weight_file_arch(r->raw);
    TD_TRY(td_tensors_set_meta(r->out, "tandem.kind", "checkpoint"));
    TD_TRY(td_tensors_set_meta(r->out, "tandem.version", "1"));
    for (size_t i = 0; i < td_tensors_meta_count(r->raw); i++) {
        const char *key = td_tensors_meta_key(r->raw, i);
        TD_TRY(td_tensors_set_meta(r->out, key, td_tensors_meta(r->raw, key)));
    }
    if (arch)
        TD_TRY(td_tensors_set_meta(r->out, "tandem.arch", arch));
    TD_TRY(set_state(r));
    return set_config(r);
}

/* --- reading a checkpoint --------------------------------------------------------------------- */

static td_status translate(reader *r)
{
    TD_TRY(td_tensors_widen(r->raw));
    TD_TRY(read_groups(r));
    TD_TRY(list_params(r));
    TD_TRY(order_params(r));
    TD_TRY(check_numbers(r));
    TD_TRY(td_tensors_new(&r->out));
    TD_TRY(copy_all(r));
    TD_TRY(add_optimizer(r));
    return set_metadata(r);
}

static td_status read_torch(const char *path, td_tensors **out)
{
    reader r = { .path = path };
    TD_TRY(td_pth_read_training(path, &r.raw));
    td_status st = translate(&r);
    if (st == TD_EARG) /* from td_tensors_add_new: two tensors have the same name */
        st = TD_EFORMAT;
    if (st == TD_OK)
        *out = r.out;
    else
        td_tensors_free(r.out);
    td_json_free(r.doc);
    td_free((void *)r.params);
    td_free((void *)r.order);
    td_tensors_free(r.raw);
    return st == TD_OK ? TD_OK : td_error_context(st, "'%s'", path);
}

td_status td_checkpoint_open(const char *path, td_tensors **out)
{
    bool is_torch;
    *out = NULL;
    TD_TRY(td_weight_file_is_torch(path, &is_torch));
    return is_torch ? read_torch(path, out) : td_weight_file_open(path, out);
}

bool td_checkpoint_is_torch(const td_tensors *t)
{
    return td_tensors_meta(t, "torch.param_groups") != NULL;
}

void td_torch_checkpoint_log(const td_tensors *t, const char *path, const td_train_opts *o)
{
    bool has_averages = false, has_arch = td_tensors_meta(t, "tandem.arch") != NULL;
    const char *best = td_tensors_meta(t, "torch.best_prec1");
    for (size_t i = 0; i < td_tensors_count(t); i++)
        has_averages = has_averages || td_text_starts(td_tensors_at(t, i)->name, TD_EMA_PREFIX);
    td_log(TD_LOG_INFO, "train",
           "'%s' is a PyTorch checkpoint: loading its weights, the state of %s, epoch %s, best "
           "accuracy %s%s%s, and the optimizer options not given on the command line",
           path, optimizers[o->optimizer.type].title, td_tensors_meta(t, "torch.epoch"),
           best ? best : "(none)", has_averages && o->optimizer.ema >= 0 ? ", averages" : "",
           has_arch ? ", the network" : "");
    if (has_averages && o->optimizer.ema < 0)
        td_log(TD_LOG_WARN, "train", "'%s': ignoring its averaged weights (--use-ema not given)",
               path);
}
