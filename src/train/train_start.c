/*
 * train_start.c -- starts a training job from a checkpoint, weights, or initial values
 *
 * The file is opened and checked before the rest of the job, because it determines the network and
 * the position in the training; its tensors are loaded after the program is compiled.
 */
#include "train/train_start.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "checkpoint/class_list.h"
#include "checkpoint/quantization.h"
#include "checkpoint/torch_checkpoint.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"
#include "inference/inputs.h"
#include "model/arch.h"
#include "model/own_graph.h"
#include "optim/freeze.h"
#include "options/field.h"
#include "recipes/stored_options.h"
#include "train/train_ranks.h"

typedef td_train_job job;

/* --- the file --------------------------------------------------------------------------------- */

/* The file is closed after its weights are loaded; the network's text is needed until the end. */
static td_status keep_graph_text(job *j)
{
    const char *text = j->o.model.model_text;
    j->files.graph_text = text ? td_copy_text(text) : NULL;
    j->o.model.model_text = j->files.graph_text;
    return text && !j->files.graph_text ? TD_ENOMEM : TD_OK;
}

enum { BATCH_MAX = 1 << 20, STEP_SIZE_MAX = 1 << 24, RANKS_MAX = 1024 }; /* as for the options */

/* Images per optimizer step of all ranks. */
static int64_t step_images(int64_t batch, int64_t n_ranks, int64_t step_size)
{
    const int64_t n = batch * n_ranks;
    return step_size > n ? step_size / n * n : n;
}

/* Batches of the run that wrote the checkpoint; all 0: the file does not contain them. */
typedef struct {
    int64_t batch;       /* images per batch of one rank */
    int64_t step_images; /* images per optimizer step of all ranks */
} saved_batches;

static td_status read_int(const td_json *doc, const char *key, int64_t min, int64_t max,
                          int64_t *out)
{
    TD_TRY(td_json_int(doc, key, out));
    if (*out < min || *out > max)
        return td_error(TD_EFORMAT, "%s is %lld, wanted %lld to %lld", key, (long long)*out,
                        (long long)min, (long long)max);
    return TD_OK;
}

/* Another fraction would validate with images that were trained. */
static td_status check_val_split(const job *j, const char *path)
{
    const char *config = td_tensors_meta(j->start.tensors, "tandem.config");
    double before = 0;
    td_json *doc;
    if (!config)
        return TD_OK;
    TD_TRY_MSG(td_json_parse(config, strlen(config), "tandem.config", &doc), "'%s'", path);
    const td_status st =
        td_json_get(doc, "val_split") ? td_json_number(doc, "val_split", &before) : TD_OK;
    td_json_free(doc);
    if (st != TD_OK)
        return td_error_context(st, "'%s': tandem.config", path);
    if (before == j->o.input.val_split)
        return TD_OK;
    return td_error(TD_EUSAGE, "'%s' was trained with --val-split %g, which %g cannot continue",
                    path, before, j->o.input.val_split);
}

static bool is_inside_epoch(const job *j)
{
    return j->s.iteration > 0 || j->s.step.done > 0;
}

/* The file of another program has no batch size; a position inside an epoch requires one. */
static td_status read_batches(const job *j, const char *path, saved_batches *out)
{
    const char *config = td_tensors_meta(j->start.tensors, "tandem.config");
    td_status st = TD_OK;
    td_json *doc;
    int64_t of = -1, sharing = 0;
    *out = (saved_batches){ 0 };
    if (!config)
        return TD_OK;
    TD_TRY_MSG(td_json_parse(config, strlen(config), "tandem.config", &doc), "'%s'", path);
    if (td_json_get(doc, "batch_size") || is_inside_epoch(j))
        st = read_int(doc, "batch_size", 1, BATCH_MAX, &out->batch);
    if (st == TD_OK && td_json_get(doc, "ranks"))
        st = read_int(doc, "ranks", 0, RANKS_MAX, &sharing);
    if (st == TD_OK && td_json_get(doc, "optimizer_batch_size"))
        st = read_int(doc, "optimizer_batch_size", -1, STEP_SIZE_MAX, &of);
    td_json_free(doc);
    if (st != TD_OK)
        return td_error_context(st, "'%s': tandem.config", path);
    if (sharing > 1 && out->batch % sharing)
        return td_error(TD_EFORMAT, "'%s': tandem.config: %lld ranks do not divide batch_size %lld",
                        path, (long long)sharing, (long long)out->batch);
    if (sharing > 1)
        out->batch /= sharing;
    if (out->batch)
        out->step_images = step_images(out->batch, j->s.ranks, of);
    return TD_OK;
}

/*
 * Another number of ranks changes the images per optimizer step unless an option keeps them; the
 * learning rate is the same.
 */
static void warn_step_images(const job *j, const char *path, const saved_batches *saved)
{
    const td_batch_opts *o = &j->o.batch;
    const int64_t n = (int64_t)o->size * j->ranks.n;
    const long long then = saved->step_images, now = step_images(o->size, j->ranks.n, o->step_size);
    char advice[96] = "";
    if (!then || then == now || j->s.ranks == j->ranks.n || j->ranks.rank > 0 ||
        td_options_given_on_line(td_train_fields(), &j->o, "optimizer_batch_size"))
        return;
    if (then > STEP_SIZE_MAX)
        ; /* more than --optimizer-batch-size accepts */
    else if (then % n == 0)
        snprintf(advice, sizeof advice, ": use --optimizer-batch-size %lld to keep them", then);
    else if (then % j->ranks.n == 0)
        snprintf(advice, sizeof advice,
                 ": use --batch-size %lld --optimizer-batch-size %lld to keep them",
                 then / j->ranks.n, then);
    td_log(TD_LOG_WARN, "train",
           "an optimizer step has %lld images on %d rank%s, but '%s' was trained with %lld on %lld "
           "rank%s%s",
           now, j->ranks.n, j->ranks.n > 1 ? "s" : "", path, then, (long long)j->s.ranks,
           j->s.ranks > 1 ? "s" : "", advice);
}

/* A position inside an epoch is counted in batches: their size must not have changed. */
static td_status check_place(job *j, const char *path, int64_t batch)
{
    if (!is_inside_epoch(j) || !batch)
        return TD_OK;
    const int64_t of = j->o.batch.step_size > 0
                           ? j->o.batch.step_size / (j->o.batch.size * (int64_t)j->ranks.n)
                           : 1;
    if (j->s.step.done && of != j->s.step.n_batches)
        return td_error(TD_EARG,
                        "'%s' was saved inside an optimizer step, after %lld batches of %lld: it "
                        "cannot continue with %lld batches per step",
                        path, (long long)j->s.step.done, (long long)j->s.step.n_batches,
                        (long long)of);
    if (j->s.ranks != j->ranks.n)
        return td_train_convert_position(j, path, batch);
    if (batch != j->o.batch.size)
        return td_error(TD_EARG,
                        "'%s' was saved inside an epoch, after %lld batches of %lld: it cannot "
                        "continue with --batch-size %d",
                        path, (long long)j->s.iteration, (long long)batch, j->o.batch.size);
    return TD_OK;
}

/* Refuse --arch on the command line for a checkpoint of another network. */
static td_status check_network(const job *j, const char *path)
{
    const char *own = td_tensors_meta(j->start.tensors, "tandem.arch");
    const td_arch *is = own ? td_arch_known(own) : NULL, *wanted = td_arch_known(j->o.model.arch);
    if (td_tensors_meta(j->start.tensors, "tandem.graph") &&
        td_options_chosen(td_model_fields(), &j->o.model, "arch"))
        return td_error(TD_EARG, "'%s' contains a custom network, which --arch %s cannot continue",
                        path, j->o.model.arch);
    if (is && wanted && is != wanted && !j->o.model.model && !j->o.model.model_text)
        return td_error(TD_EARG,
                        "'%s' is a checkpoint of %s, which --arch %s cannot continue: leave out "
                        "--arch",
                        path, is->name, wanted->name);
    const int has = td_weights_channels(j->start.tensors, &j->o.model);
    if (has && j->o.model.channels && has != j->o.model.channels)
        return td_error(TD_EARG,
                        "'%s' is a checkpoint of a network for images of %d channels, which "
                        "--channels %d cannot continue: leave out --channels",
                        path, has, j->o.model.channels);
    return TD_OK;
}

/* A detector may start from a classifier's weights, not a classifier from a detector's. */
static td_status check_pretrained(const job *j, const char *path)
{
    const char *arch = td_tensors_meta(j->start.tensors, "tandem.arch");
    const td_model_opts of = { .arch = arch };
    if (!arch || td_model_detector(&j->o.model) || !td_model_detector(&of))
        return TD_OK;
    return td_error(TD_EUSAGE,
                    "'%s' contains weights of %s, a detector, which cannot initialize a "
                    "classifier: use --arch %s",
                    path, arch, arch);
}

/* Check the number of epochs that the checkpoint has finished against --epochs. */
static td_status check_epoch(const job *j, const char *path)
{
    const td_train_opts *o = &j->o;
    if (j->s.epoch > o->length.epochs)
        return td_error(TD_EARG, "'%s' has already finished %lld epochs, but --epochs is %d", path,
                        (long long)j->s.epoch, o->length.epochs);
    if (j->s.epoch == o->length.epochs) /* perhaps killed before it wrote --final-weights */
        td_log(TD_LOG_WARN, "train",
               "'%s' has already finished all %d epochs: nothing is left to train", path,
               o->length.epochs);
    return TD_OK;
}

static td_status read_checkpoint(job *j, const char *path)
{
    td_train_opts *o = &j->o;
    saved_batches saved;
    td_weight_metadata_apply(j->start.tensors, td_model_is_default(&o->model), &o->model);
    TD_TRY(td_weight_metadata_check(j->start.tensors, path, &o->model));
    TD_TRY(td_weight_norm_apply(j->start.tensors, path, true, &o->model));
    TD_TRY(check_network(j, path));
    TD_TRY(check_val_split(j, path));
    TD_TRY(keep_graph_text(j));
    TD_TRY(td_checkpoint_state(j->start.tensors, path, &j->s));
    TD_TRY(td_stored_paths_warn(j->start.tensors, path, o));
    TD_TRY(read_batches(j, path, &saved));
    TD_TRY(check_place(j, path, saved.batch));
    TD_TRY(
        td_freeze_resume(j->start.tensors, path, o, j->s.step.done > 0, &j->start.frozen_before));
    j->start.has_seed = !td_checkpoint_is_torch(j->start.tensors);
    if (td_checkpoint_is_torch(j->start.tensors))
        td_torch_checkpoint_log(j->start.tensors, path, o);
    if (j->s.n_without_best < 0) /* as if every epoch had been validated */
        j->s.n_without_best = j->s.best >= 0 ? j->s.epoch - 1 - j->s.best_epoch : 0;
    TD_TRY(check_epoch(j, path));
    if (j->s.epoch < o->length.epochs)
        warn_step_images(j, path, &saved);
    return TD_OK;
}

static td_status read_weights(job *j, const char *path)
{
    td_train_opts *o = &j->o;
    if (td_model_is_default(&o->model) && td_weight_arch_apply(j->start.tensors, &o->model)) {
        TD_TRY(keep_graph_text(j));
        j->start.is_arch_from_file = true;
        if (!o->model.image_size && !o->batch.image_size_schedule)
            o->model.image_size = td_weight_image_size(j->start.tensors);
    }
    if (!o->model.image_size && !o->batch.image_size_schedule)
        o->model.image_size = td_weights_side(j->start.tensors, &o->model);
    td_weight_resize_apply(j->start.tensors, &o->model);
    TD_TRY(check_pretrained(j, path));
    if (!o->model.channels && !td_model_detector(&o->model))
        o->model.channels = td_weights_channels(j->start.tensors, &o->model);
    TD_TRY(td_weight_channels_check(j->start.tensors, path, &o->model));
    TD_TRY(td_weight_norm_apply(j->start.tensors, path, false, &o->model));
    td_weight_backbone_apply(j->start.tensors, &o->model);
    td_weight_epsilon_apply(j->start.tensors, &o->model);
    if (!td_model_detector(&o->model)) /* only the values of a backbone are used */
        td_weight_variant_apply(j->start.tensors, &o->model);
    j->s.batches_tracked = td_weights_batches(j->start.tensors);
    return TD_OK;
}

static void set_defaults(job *j)
{
    j->s.best = j->s.last = j->s.last_second = -1;
    for (int i = 0; i < TD_BOX_METRICS; i++)
        j->eval.boxes[i] = j->s.best_boxes[i] = -1;
    j->s.step.ema_before = 1;
    j->tracked.frozen_norms = j->o.optimizer.freezes_bn ? j->o.optimizer.freeze : NULL;
}

td_status td_train_start_open(td_train_job *j)
{
    td_train_opts *o = &j->o;
    if (!o->start.resume)
        td_model_onnx_weights(&o->model, &o->start.pretrained_weights);
    const char *path = o->start.resume ? o->start.resume : o->start.pretrained_weights;
    set_defaults(j);
    if (!path)
        return TD_OK;
    TD_TRY(o->start.resume ? td_checkpoint_open(path, &j->start.tensors)
                           : td_weight_file_open_for(path, false, &o->model, &j->start.tensors));
    TD_TRY(td_quantization_check_trainable(j->start.tensors, path));
    TD_TRY(o->start.resume ? read_checkpoint(j, path) : read_weights(j, path));
    TD_TRY(td_tracked_read(j->start.tensors, j->s.batches_tracked, &j->tracked));
    return td_classes_from_json(td_tensors_meta(j->start.tensors, "tandem.classes"), path,
                                &j->start.n_names, &j->start.names);
}

/* --- the parameters --------------------------------------------------------------------------- */

/* Names of the last layer's parameters. */
typedef struct {
    char weight[256], bias[256];
} head_names;

/* If the weights have another number of classes, the last layer keeps its initial values. */
static td_status fresh_head(const job *j, head_names *head, td_load_opts *load)
{
    TD_TRY(td_model_head(&j->o.model, head->weight, head->bias));
    const int has = td_weights_rows(j->start.tensors, head->weight);
    const char *end = strrchr(head->weight, '.');
    const int n = end ? (int)(end - head->weight) : (int)strlen(head->weight);
    if (j->o.start.resume || !has || has == j->o.model.num_classes)
        return TD_OK;
    td_log(TD_LOG_INFO, "train",
           "the weights have %d classes, the data %d: %.*s starts with fresh values", has,
           j->o.model.num_classes, n, head->weight);
    if (td_is_frozen(j->o.optimizer.freeze, head->weight))
        td_log(TD_LOG_WARN, "train", "%.*s has fresh values, which --freeze '%s' keeps untrained",
               n, head->weight, j->o.optimizer.freeze);
    load->skip[0] = head->weight;
    load->skip[1] = *head->bias ? head->bias : NULL;
    return TD_OK;
}

td_status td_train_start_load(td_train_job *j)
{
    const td_train_opts *o = &j->o;
    const bool is_partial = !o->start.resume && td_model_detector(&o->model);
    if (!j->start.tensors || !o->start.resume)
        TD_TRY(td_program_init(j->program, j->s.seed));
    if (j->start.tensors && is_partial) {
        TD_TRY(td_weights_load_matching(j->start.tensors, o->start.pretrained_weights, j->program));
    } else if (j->start.tensors) {
        head_names head;
        td_load_opts load = { .with_momentum = o->start.resume != NULL,
                              .model = &o->model,
                              .frozen_before = j->start.frozen_before,
                              .frozen_now = o->optimizer.freeze };
        TD_TRY(fresh_head(j, &head, &load));
        const char *path = o->start.resume ? o->start.resume : o->start.pretrained_weights;
        TD_TRY(td_weights_load(j->start.tensors, path, &load, j->program));
    }
    TD_TRY(td_weights_init_missing(j->program, o->start.resume ? j->start.tensors : NULL));
    td_tensors_free(j->start.tensors);
    j->start.tensors = NULL;
    return TD_OK;
}
