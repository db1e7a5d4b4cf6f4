/*
 * torch_write.c -- writes our tensors as a PyTorch file
 *
 * An optimizer numbers the parameters in the order of the model's state_dict.  Our order is
 * PyTorch's; but in the reference program, squeeze-and-excitation follows a block's shortcut.
 */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/torch_checkpoint.h"
#include "checkpoint/weights.h"
#include "model/arch.h"
#include "optim/training_graph.h"
#include "pth/pth_metadata.h"
#include "pth/pth_write.h"

#define TRACKED ".num_batches_tracked"

typedef struct {
    const td_tensors *t;
    const char *what;
    bool is_reference;       /* write the reference's names */
    const td_tensor **order; /* [n] tensors in the order of the state_dict, with our names */
    size_t n;
    td_pth_writer out;
    /* for a checkpoint */
    td_run_state s;
    float step; /* s.steps */
    td_json *config;
} writer;

/* --- the order -------------------------------------------------------------------------------- */

/* Append a tensor, and after a running variance the norm's counter, as in PyTorch. */
static void add(writer *w, const td_tensor *x)
{
    char name[300];
    const char *end = ".running_var";
    w->order[w->n++] = x;
    if (!td_text_ends(x->name, end))
        return;
    snprintf(name, sizeof name, "%.*s" TRACKED, (int)(strlen(x->name) - strlen(end)), x->name);
    const td_tensor *tracked = td_tensors_get(w->t, name);
    if (tracked)
        w->order[w->n++] = tracked;
}

/* Order the tensors.  A block's squeeze-and-excitation is `delayed` until after its shortcut. */
static td_status order_tensors(writer *w)
{
    const size_t n = td_tensors_count(w->t);
    size_t n_delayed = 0;
    const td_tensor **delayed = td_alloc(n + 1, sizeof *delayed);
    w->order = td_alloc(2 * n + 1, sizeof *w->order);
    if (!delayed || !w->order) {
        td_free((void *)delayed);
        return TD_ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        const td_tensor *x = td_tensors_at(w->t, i);
        if (td_weight_prefix(x->name) || td_text_ends(x->name, TRACKED))
            continue;
        if (w->is_reference && strstr(x->name, ".se.")) {
            delayed[n_delayed++] = x;
            continue;
        }
        for (size_t k = 0; k < n_delayed && !strstr(x->name, ".downsample."); k++)
            add(w, delayed[k]);
        n_delayed = strstr(x->name, ".downsample.") ? n_delayed : 0;
        add(w, x);
    }
    for (size_t k = 0; k < n_delayed; k++)
        add(w, delayed[k]);
    td_free((void *)delayed);
    return TD_OK;
}

/* --- names ------------------------------------------------------------------------------------ */

/* Our name to the reference's: "layer1.0.se.fc1.weight" -> "layers.0.0.squeeze.squeeze.weight". */
static void reference_name(const char *name, char out[256])
{
    static const struct {
        const char *from, *to;
    } parts[] = { { ".se.fc1.", ".squeeze.squeeze." }, { ".se.fc2.", ".squeeze.expand." } };
    int n = 0;
    if (td_text_starts(name, "layer") && name[5] >= '1' && name[5] <= '4' && name[6] == '.') {
        n = snprintf(out, 256, "layers.%d.", name[5] - '1');
        name += 7;
    }
    for (size_t i = 0; i < 2; i++) {
        const char *at = strstr(name, parts[i].from);
        if (at) {
            snprintf(out + n, 256 - (size_t)n, "%.*s%s%s", (int)(at - name), name, parts[i].to,
                     at + strlen(parts[i].from));
            return;
        }
    }
    snprintf(out + n, 256 - (size_t)n, "%s", name);
}

static void name_of(const writer *w, const td_tensor *x, char out[256])
{
    if (w->is_reference)
        reference_name(x->name, out);
    else
        snprintf(out, 256, "%s", x->name);
}

/* --- the state_dicts -------------------------------------------------------------------------- */

/* Write a tensor; as a matrix if the reference has a linear layer where we have a convolution. */
static void put_tensor(writer *w, const td_tensor *x)
{
    td_tensor flat = *x;
    const bool is_gate = strstr(x->name, ".se.fc1.weight") || strstr(x->name, ".se.fc2.weight");
    if (w->is_reference && is_gate && x->rank == 4 && x->dim[2] == 1 && x->dim[3] == 1)
        flat.rank = 2;
    td_pth_tensor(&w->out, &flat);
}

/* The tensor named `prefix` + the name of `x`; NULL: none, since `x` is frozen. */
static const td_tensor *prefixed(const writer *w, const char *prefix, const td_tensor *x)
{
    char name[300];
    snprintf(name, sizeof name, "%s%s", prefix, x->name);
    return td_tensors_get(w->t, name);
}

/* prefix "": weights and statistics; "ema.": their averages, and counters. */
static void put_state_dict(writer *w, const char *prefix)
{
    char name[256];
    td_pth_ordered_dict(&w->out);
    for (size_t i = 0; i < w->n; i++) {
        const td_tensor *x = prefixed(w, prefix, w->order[i]);
        name_of(w, w->order[i], name);
        td_pth_text(&w->out, name);
        put_tensor(w, x ? x : w->order[i]);
    }
    td_pth_end_dict(&w->out);
}

/* --- the optimizer ---------------------------------------------------------------------------- */

static bool is_param(const td_tensor *x)
{
    return !td_text_ends(x->name, TRACKED) && !td_text_ends(x->name, ".running_mean") &&
           !td_text_ends(x->name, ".running_var");
}

static double option_real(const writer *w, const char *name, double otherwise)
{
    double x;
    const td_json *v = td_json_get(w->config, name);
    return v && td_json_as_number(v, &x) == TD_OK ? x : otherwise;
}

static bool option_bool(const writer *w, const char *name)
{
    bool x;
    const td_json *v = td_json_get(w->config, name);
    return v && td_json_as_bool(v, &x) == TD_OK && x;
}

static bool is_optimizer(const writer *w, const char *wanted)
{
    const char *name;
    const td_json *v = td_json_get(w->config, "optimizer");
    return v && td_json_as_text(v, &name) == TD_OK && strcmp(name, wanted) == 0;
}

static bool is_rmsprop(const writer *w)
{
    return is_optimizer(w, "rmsprop");
}

static bool is_lamb(const writer *w)
{
    return is_optimizer(w, "lamb");
}

static bool is_adam(const writer *w)
{
    return is_optimizer(w, "adam") || is_optimizer(w, "adamw") || is_lamb(w);
}

/* main.py has one group with --bn-weight-decay, except for RMSprop. */
static int count_groups(const writer *w)
{
    return option_bool(w, "bn_weight_decay") && !is_rmsprop(w) ? 1 : 2;
}

/* Is this parameter in group `group`? */
static bool is_in_group(const writer *w, const td_tensor *x, int group)
{
    return is_param(x) && (count_groups(w) == 1 || td_is_undecayed(x->name) == (group == 0));
}

/* Adam's count is a tensor; LAMB's is in its groups. */
static void put_adam_state(writer *w, const td_tensor *x, int64_t number)
{
    const td_tensor *mean = prefixed(w, TD_MEAN_PREFIX, x);
    const td_tensor *square = prefixed(w, TD_MEAN_SQ_PREFIX, x);
    const td_tensor step = { .dtype = TD_DT_F32, .data = &w->step, .n_bytes = sizeof w->step };
    if (!mean || !square)
        return;
    td_pth_int(&w->out, number);
    td_pth_dict(&w->out);
    if (!is_lamb(w)) {
        td_pth_text(&w->out, "step");
        td_pth_tensor(&w->out, &step);
    }
    td_pth_text(&w->out, "exp_avg");
    put_tensor(w, mean);
    td_pth_text(&w->out, "exp_avg_sq");
    put_tensor(w, square);
    td_pth_end_dict(&w->out);
}

static void put_state_of(writer *w, const td_tensor *x, int64_t number)
{
    if (is_adam(w)) {
        put_adam_state(w, x, number);
        return;
    }
    const td_tensor *v = prefixed(w, TD_MOMENTUM_PREFIX, x);
    const td_tensor *square = prefixed(w, TD_SQUARE_PREFIX, x);
    if (!v)
        return;
    td_pth_int(&w->out, number);
    td_pth_dict(&w->out);
    if (square) {
        td_pth_text(&w->out, "step");
        td_pth_int(&w->out, w->s.steps);
        td_pth_text(&w->out, "square_avg");
        put_tensor(w, square);
    }
    td_pth_text(&w->out, "momentum_buffer");
    put_tensor(w, v);
    td_pth_end_dict(&w->out);
}

static int64_t count_group(const writer *w, int group)
{
    int64_t n = 0;
    for (size_t i = 0; i < w->n; i++)
        n += is_in_group(w, w->order[i], group);
    return n;
}

static void put_real(writer *w, const char *key, double value)
{
    td_pth_text(&w->out, key);
    td_pth_real(&w->out, value);
}

static void put_bool(writer *w, const char *key, bool value)
{
    td_pth_text(&w->out, key);
    td_pth_bool(&w->out, value);
}

static void put_adam_group(writer *w)
{
    const double eps = option_real(w, "adam_eps", 0),
                 limit = option_real(w, "lamb_max_grad_norm", 1);
    td_pth_text(&w->out, "betas");
    td_pth_list(&w->out);
    td_pth_real(&w->out, option_real(w, "adam_beta1", 0.9));
    td_pth_real(&w->out, option_real(w, "adam_beta2", 0.999));
    td_pth_end_list(&w->out);
    put_real(w, "eps", eps > 0 ? eps : is_lamb(w) ? 1e-6 : 1e-8);
    if (is_lamb(w)) {
        td_pth_text(&w->out, "step");
        td_pth_int(&w->out, w->s.steps);
        td_pth_text(&w->out, "max_grad_norm");
        if (limit > 0)
            td_pth_real(&w->out, limit);
        else
            td_pth_none(&w->out);
        put_bool(w, "bias_correction", true);
        put_bool(w, "grad_averaging", true);
        put_bool(w, "trust_clip", false);
        put_bool(w, "always_adapt", false);
        put_bool(w, "caution", false);
        return;
    }
    put_bool(w, "amsgrad", false);
    put_bool(w, "capturable", false);
    put_bool(w, "decoupled_weight_decay", is_optimizer(w, "adamw"));
    td_pth_text(&w->out, "fused");
    td_pth_none(&w->out);
}

/* Every setting that PyTorch's optimizers read; None leaves the choice to PyTorch. */
static void put_group(writer *w, int group, int64_t first)
{
    const int64_t n = count_group(w, group);
    const bool decays = count_groups(w) == 1 || group == 1 || option_bool(w, "bn_weight_decay");
    td_pth_dict(&w->out);
    put_real(w, "lr", option_real(w, "lr", 0));
    if (!is_adam(w))
        put_real(w, "momentum", option_real(w, "momentum", 0));
    put_real(w, "weight_decay", decays ? option_real(w, "weight_decay", 0) : 0);
    if (is_adam(w)) {
        put_adam_group(w);
    } else if (is_rmsprop(w)) {
        put_real(w, "alpha", option_real(w, "rmsprop_alpha", 0.9));
        put_real(w, "eps", option_real(w, "rmsprop_eps", 1e-3));
        put_bool(w, "centered", false);
        put_bool(w, "capturable", false);
    } else {
        put_real(w, "dampening", 0);
        put_bool(w, "nesterov", option_bool(w, "nesterov"));
        td_pth_text(&w->out, "fused");
        td_pth_none(&w->out);
    }
    put_bool(w, "maximize", false);
    put_bool(w, "differentiable", false);
    td_pth_text(&w->out, "foreach");
    td_pth_none(&w->out);
    td_pth_text(&w->out, "params");
    td_pth_list(&w->out);
    for (int64_t i = 0; i < n; i++)
        td_pth_int(&w->out, first + i);
    td_pth_end_list(&w->out);
    td_pth_end_dict(&w->out);
}

static void put_optimizer(writer *w)
{
    int64_t number = 0;
    td_pth_dict(&w->out);
    td_pth_text(&w->out, "state");
    td_pth_dict(&w->out);
    for (int group = 0; group < count_groups(w); group++)
        for (size_t i = 0; i < w->n; i++)
            if (is_in_group(w, w->order[i], group))
                put_state_of(w, w->order[i], number++);
    td_pth_end_dict(&w->out);
    td_pth_text(&w->out, "param_groups");
    td_pth_list(&w->out);
    number = 0;
    for (int group = 0; group < count_groups(w); group++) {
        put_group(w, group, number);
        number += count_group(w, group);
    }
    td_pth_end_list(&w->out);
    td_pth_end_dict(&w->out);
}

/* --- a checkpoint ----------------------------------------------------------------------------- */

static bool has_averages(const td_tensors *t)
{
    for (size_t i = 0; i < td_tensors_count(t); i++)
        if (td_text_starts(td_tensors_at(t, i)->name, TD_EMA_PREFIX))
            return true;
    return false;
}

/* Refuse what main.py has no parameter groups for. */
static td_status check_optimizer(const writer *w)
{
    static const char *const decays[] = { "norm_weight_decay", "bias_weight_decay",
                                          "transformer_embedding_decay" };
    const char *name;
    const td_json *v = td_json_get(w->config, "optimizer");
    if (v && td_json_as_text(v, &name) == TD_OK && strcmp(name, "sgd") != 0 && !is_rmsprop(w) &&
        !is_adam(w))
        return td_error(TD_EUNSUPPORTED,
                        "'%s' is a checkpoint with optimizer %.80s, which does not become a "
                        "PyTorch checkpoint: convert it to weights first",
                        w->what, name);
    for (size_t i = 0; i < sizeof decays / sizeof *decays; i++)
        if (option_real(w, decays[i], -1) >= 0)
            return td_error(TD_EUNSUPPORTED,
                            "'%s' was trained with %s, for which the reference's checkpoint has no "
                            "parameter group: convert it to weights first",
                            w->what, decays[i]);
    return TD_OK;
}

static td_status open_checkpoint(writer *w)
{
    const char *config = td_tensors_meta(w->t, "tandem.config");
    config = config ? config : "{}";
    TD_TRY(td_checkpoint_state(w->t, w->what, &w->s));
    TD_TRY_MSG(td_json_parse(config, strlen(config), "tandem.config", &w->config), "'%s'", w->what);
    if (w->s.detects)
        return td_error(TD_EUNSUPPORTED,
                        "'%s' is the checkpoint of a detector, which no PyTorch program can "
                        "resume: convert it to weights first",
                        w->what);
    TD_TRY(check_optimizer(w));
    w->step = (float)w->s.steps;
    if (w->s.iteration > 0 || w->s.step.done > 0)
        td_log(TD_LOG_WARN, "train",
               "'%s' was saved inside epoch %lld, after %lld batches, which main.py will repeat",
               w->what, (long long)w->s.epoch, (long long)w->s.iteration);
    return TD_OK;
}

/* Write the checkpoint that main.py saves, and the network's name. */
static td_status put_checkpoint(writer *w)
{
    const char *arch = td_tensors_meta(w->t, "tandem.arch");
    td_pth_dict(&w->out);
    td_pth_text(&w->out, "epoch");
    td_pth_int(&w->out, w->s.epoch);
    td_pth_text(&w->out, "best_prec1");
    td_pth_real(&w->out, w->s.best < 0 ? 0 : w->s.best);
    if (arch) {
        td_pth_text(&w->out, "arch");
        td_pth_text(&w->out, arch);
    }
    td_pth_text(&w->out, "state_dict");
    put_state_dict(w, "");
    td_pth_text(&w->out, "optimizer");
    put_optimizer(w);
    if (has_averages(w->t)) {
        td_pth_text(&w->out, "state_dict_ema");
        put_state_dict(w, TD_EMA_PREFIX);
    }
    if (td_pth_metadata_is_there(w->t)) {
        td_pth_text(&w->out, TD_PTH_METADATA_KEY);
        TD_TRY(td_pth_metadata_write(w->t, w->what, &w->out));
    }
    td_pth_end_dict(&w->out);
    return TD_OK;
}

/* Write a state_dict; the network's metadata are an attribute of it. */
static td_status put_weights(writer *w)
{
    put_state_dict(w, "");
    if (!td_pth_metadata_is_there(w->t))
        return TD_OK;
    td_pth_dict(&w->out);
    td_pth_text(&w->out, TD_PTH_METADATA_KEY);
    TD_TRY(td_pth_metadata_write(w->t, w->what, &w->out));
    td_pth_end_dict(&w->out);
    td_pth_attributes(&w->out);
    return TD_OK;
}

/* Log what the file cannot store. */
static void warn_of_lost(const writer *w)
{
    static const char *const known[] = { "format",      "digest",         "digest_of",
                                         "tandem.kind", "tandem.version", "tandem.state" };
    td_text lost = { 0 };
    if (w->config)
        td_text_add(&lost, "options but the optimizer's, the seed");
    for (size_t i = 0; i < td_tensors_meta_count(w->t); i++) {
        const char *key = td_tensors_meta_key(w->t, i);
        bool is_known = td_pth_metadata_holds(key) || td_text_starts(key, "torch.") ||
                        (w->config && strcmp(key, "tandem.config") == 0);
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            is_known = is_known || strcmp(key, known[k]) == 0;
        if (!is_known)
            td_text_add(&lost, "%smetadata '%.60s'", lost.len ? ", " : "", key);
    }
    if (lost.len)
        td_log(TD_LOG_WARN, "weights",
               "'%s': a PyTorch file does not hold these, they are left "
               "out: %s",
               w->what, td_text_get(&lost));
    td_text_release(&lost);
}

td_status td_torch_write(const td_tensors *t, const char *what, td_convert_names names,
                         const char *path)
{
    const char *kind = td_tensors_meta(t, "tandem.kind");
    const bool is_checkpoint = kind && strcmp(kind, "checkpoint") == 0;
    td_status st = TD_OK;
    writer w = { .t = t, .what = what };

    w.is_reference =
        names == TD_CONVERT_NAMES_REFERENCE || (names == TD_CONVERT_NAMES_AUTO && is_checkpoint);
    if (is_checkpoint)
        TD_OUT(open_checkpoint(&w));
    TD_OUT(order_tensors(&w));
    TD_OUT(is_checkpoint ? put_checkpoint(&w) : put_weights(&w));
    TD_OUT(td_pth_save(&w.out, path));
    warn_of_lost(&w);
out:
    td_json_free(w.config);
    td_free((void *)w.order);
    td_pth_writer_release(&w.out);
    return st;
}
