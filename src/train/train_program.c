/*
 * train_program.c -- the program of a training job: compiled when the job opens, and again when the
 * size of the images changes (--image-size-schedule)
 *
 *     epoch 29 at 128  ->  copy all parameters, free the program, compile for 160, load them
 *
 * A program's persistent values are the same at every size: weights, statistics, momentum buffers,
 * averages, gradient sums of an unfinished step.  They are copied bit by bit, as by a checkpoint,
 * so a run resumed at the boundary gives the same results as one that was not interrupted.  The old
 * program is freed before the new one is compiled: peak memory is one program and one copy of its
 * parameters.
 */
#include "train/train_program.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/paths.h"
#include "checkpoint/weights.h"
#include "optim/freeze.h"
#include "optim/memory_limit.h"
#include "optim/synthetic_step.h"
#include "optim/training_graph.h"
#include "pass/amp.h"
#include "recipes/train_options.h"
#include "train/train_rate.h"

typedef td_train_job job;

static void write_dump(void *ctx, const char *pass, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.td", (const char *)ctx, pass);
    if (td_file_write(path, text, strlen(text)) != TD_OK)
        td_log(TD_LOG_WARN, "train", "%s", td_error_message());
}

static td_status dump_to_folder(const job *j, td_compile_opts *c)
{
    if (!j->o.device.dump_dir)
        return TD_OK;
    TD_TRY(td_make_folder(j->o.device.dump_dir));
    c->dump = write_dump;
    c->dump_ctx = (void *)(uintptr_t)j->o.device.dump_dir;
    return TD_OK;
}

static td_status bind_scalars(job *j)
{
    const bool is_adam = td_optimizer_is_adam(j->o.optimizer.type);
    const bool scales = j->s.scaler.kind != TD_SCALER_NONE, averages = j->o.optimizer.ema >= 0;
    const struct {
        bool is_there;
        const char *name;
        const void *data;
    } rows[] = {
        { true, "lr", j->inputs.lr },
        { scales, TD_INPUT_SCALE, &j->inputs.scale },
        { scales || j->plan.batches_per_step > 1 || j->ranks.comm, TD_INPUT_INVERSE,
          &j->inputs.inverse },
        { j->plan.batches_per_step > 1, TD_INPUT_UPDATE, &j->inputs.update },
        { is_adam, TD_INPUT_REST1, &j->inputs.rest1 },
        { is_adam, TD_INPUT_REST2, &j->inputs.rest2 },
        { averages, TD_INPUT_EMA_KEEP, &j->inputs.ema[0] },
        { averages, TD_INPUT_EMA_SHARE, &j->inputs.ema[1] },
        { averages && j->plan.batches_per_step > 1, TD_INPUT_EMA_BEFORE, &j->inputs.ema[2] },
        { averages && j->plan.batches_per_step > 1, TD_INPUT_EMA_REST, &j->inputs.ema[3] },
        { j->o.loss.mixup > 0, TD_INPUT_LAMBDA, j->data.mixup.lambda },
        { j->o.loss.cutmix > 0, TD_INPUT_BOX, j->data.mixup.box },
        { j->o.loss.cutmix > 0, TD_INPUT_SHARE, j->data.mixup.share },
        { j->data.class_weights != NULL, TD_INPUT_CLASS_WEIGHTS, j->data.class_weights },
        { j->data.positive_weights != NULL, TD_INPUT_POSITIVE_WEIGHTS, j->data.positive_weights },
        { j->data.mixup.batch > 0, TD_INPUT_PARTNER, j->data.mixup.partner }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].is_there)
            TD_TRY(td_program_bind(j->program, rows[i].name, rows[i].data));
    if (td_program_has_input(j->program, TD_INPUT_RANDOM))
        TD_TRY(td_program_bind(j->program, TD_INPUT_RANDOM, j->inputs.random));
    if (!j->o.output.train_logits)
        td_program_skip_output(j->program, "logits");
    return TD_OK;
}

/* With half-precision weights, momentum buffers are the only other state supported. */
static td_status check_half_weights(const job *j)
{
    if (j->o.amp.level != TD_AMP_LEVEL_O3 || td_amp_dtype(&j->o.amp) == TD_DT_F32 ||
        (j->plan.batches_per_step == 1 && !j->ranks.comm && j->o.optimizer.ema < 0 &&
         j->o.optimizer.type == TD_OPTIMIZER_SGD && j->o.optimizer.clip_norm <= 0 &&
         j->o.optimizer.clip_value <= 0))
        return TD_OK;
    return td_error(TD_EUSAGE, "amp level O3 keeps weights in half precision: it excludes "
                               "accumulation, averages, optimizers other than SGD, gradient "
                               "clipping and several ranks");
}

/* Batches in memory: the rings of both loaders and one of the evaluator. */
static int batches_held(const job *j)
{
    const int ring = j->o.input.prefetch + 1;
    return ring + (j->data.val_set ? ring + 1 : 0);
}

int64_t td_train_planned_bytes(const job *j)
{
    const td_memory_report m = td_program_memory(j->program);
    return m.param_bytes + m.activation_bytes +
           td_synthetic_bytes(&j->o.model, j->o.batch.size) * batches_held(j);
}

static double eps_of(const td_optimizer_opts *o)
{
    if (o->type == TD_OPTIMIZER_RMSPROP)
        return o->rmsprop_eps;
    return o->adam_eps > 0 ? o->adam_eps : o->type == TD_OPTIMIZER_LAMB ? 1e-6 : 1e-8;
}

static td_special_decay special_decay(const td_optimizer_opts *o)
{
    return (td_special_decay){ .norm = { o->norm_decay >= 0, o->norm_decay },
                               .bias = { o->bias_decay >= 0, o->bias_decay },
                               .embedding = { o->embedding_decay >= 0, o->embedding_decay } };
}

static td_step_opts step_opts(const job *j)
{
    const td_train_opts *o = &j->o;
    return (td_step_opts){ .momentum = o->optimizer.momentum,
                           .decay = o->optimizer.weight_decay,
                           .cycles_momentum = td_train_cycles_momentum(o),
                           .nesterov = o->optimizer.nesterov,
                           .smoothing = o->loss.label_smoothing,
                           .decays_norms = o->optimizer.decays_bn,
                           .is_scaled = j->s.scaler.kind != TD_SCALER_NONE,
                           .optimizer = o->optimizer.type,
                           .alpha = o->optimizer.rmsprop_alpha,
                           .eps = eps_of(&o->optimizer),
                           .beta1 = o->optimizer.adam_beta1,
                           .beta2 = o->optimizer.adam_beta2,
                           .clip_norm = o->optimizer.clip_norm,
                           .clip_value = o->optimizer.clip_value,
                           .lamb_norm = o->optimizer.lamb_max_norm,
                           .special = special_decay(&o->optimizer),
                           .decay_rule = o->optimizer.decay_rule,
                           .accumulates = j->plan.batches_per_step > 1,
                           .ranks = j->ranks.n,
                           .sums_in_order = o->batch.is_reproducible,
                           .averages = o->optimizer.ema >= 0,
                           .mixes = o->loss.mixup > 0,
                           .cuts = o->loss.cutmix > 0,
                           .weighs_classes = j->data.class_weights != NULL,
                           .weighs_positives = j->data.positive_weights != NULL,
                           .is_binary = o->loss.type == TD_LOSS_BCE,
                           .threshold = o->loss.bce_threshold,
                           .norm = td_loader_pixel_norm(j->data.train_loader),
                           .frozen = o->optimizer.freeze,
                           .freezes_norms = o->optimizer.freezes_bn };
}

/* The network for training images of `size` x `size` pixels. */
static td_model_opts model_at(const job *j, int size)
{
    td_model_opts m = j->o.model;
    m.image_size = size;
    return m;
}

static td_status graph_at(const job *j, int size, td_decay_groups *groups, td_graph **out)
{
    const td_model_opts model = model_at(j, size);
    td_step_opts opts = step_opts(j);
    opts.groups = groups;
    return td_training_graph(&model, j->o.batch.size, &opts, out);
}

/* Check before the first epoch that the network accepts every size of the schedule. */
static td_status check_sizes(const job *j)
{
    for (int i = 0; i < j->data.sizes.n; i++) {
        td_graph *g;
        TD_TRY_MSG(graph_at(j, j->data.sizes.size[i], NULL, &g), "--image-size-schedule");
        td_graph_free(g);
    }
    return TD_OK;
}

/*
 * With a memory limit: the memory left for the step is computed once, for the largest size, which
 * must fit even if it is used last; the result applies to every size.
 */
static td_status compile_first(job *j, const td_graph *g, td_compile_opts *c)
{
    const td_train_opts *o = &j->o;
    const int largest = td_sizes_largest(&j->data.sizes, j->compiled.size);
    const td_model_opts model = model_at(j, largest);
    const td_step_opts opts = step_opts(j);
    const td_process_memory share = { .limit = o->memory_limit,
                                      .model = &model,
                                      .evaluated = &o->model,
                                      .step_opts = &opts,
                                      .amp = &o->amp,
                                      .dev = j->dev,
                                      .device = o->device.name,
                                      .skip_passes = o->device.skip_passes,
                                      .batch = o->batch.size,
                                      .n_batches = batches_held(j),
                                      .evaluates = j->data.val_set != NULL,
                                      .saves = o->output.save_checkpoints || j->data.sizes.n > 0 };
    td_status st = TD_OK;
    td_graph *most = NULL;
    if (!o->memory_limit || largest == j->compiled.size) {
        st = td_compile_within(g, &share, c, &j->program);
    } else {
        TD_OUT(graph_at(j, largest, NULL, &most));
        TD_OUT(td_compile_within(most, &share, c, &j->program));
        td_program_free(j->program);
        j->program = NULL;
        st = td_compile(g, j->dev, c, &j->program);
    }
    j->compiled.step_limit = c->memory_limit;
out:
    td_graph_free(most);
    return st;
}

/* Without --memory-limit: the options that reduce the memory of a program that was refused it. */
static td_status name_remedy(const job *j, td_status st)
{
    if (st != TD_ENOMEM || j->o.memory_limit)
        return st;
    char *message = td_copy_text(td_error_message());
    if (!message)
        return st;
    st = td_error(st,
                  "%s: use a smaller --batch-size (-b), or --memory-limit to recompute activations",
                  message);
    td_free(message);
    return st;
}

td_status td_train_program_open(td_train_job *j)
{
    const td_train_opts *o = &j->o;
    td_status st = TD_OK;
    td_graph *g = NULL;
    td_compile_opts c = { .amp = &o->amp,
                          .skip = o->device.skip_passes,
                          .dump_after = o->device.dump_after,
                          .planned_runs = td_train_batches_left(j) };
    j->compiled.size = td_sizes_at(&j->data.sizes, j->s.epoch, o->model.image_size);
    TD_OUT(check_half_weights(j));
    TD_OUT(check_sizes(j));
    TD_OUT(dump_to_folder(j, &c));
    TD_OUT(graph_at(j, j->compiled.size, &j->compiled.groups, &g));
    TD_OUT(td_freeze_count(g, o->optimizer.freeze, o->optimizer.freezes_bn, &j->compiled.frozen));
    TD_OUT(name_remedy(j, compile_first(j, g, &c)));
    TD_OUT(bind_scalars(j));
out:
    td_graph_free(g);
    return st;
}

/* --- another size ----------------------------------------------------------------------------- */

td_status td_train_program_resize(td_train_job *j)
{
    const td_train_opts *o = &j->o;
    const int size = td_sizes_at(&j->data.sizes, j->s.epoch, o->model.image_size);
    const int64_t begin_ns = td_now_ns();
    const td_compile_opts c = { .amp = &o->amp,
                                .skip = o->device.skip_passes,
                                .memory_limit = j->compiled.step_limit,
                                .planned_runs = td_train_batches_left(j) };
    td_status st = TD_OK;
    td_graph *g = NULL;
    td_tensors *kept = NULL;
    if (size == j->compiled.size)
        return TD_OK;
    TD_OUT(graph_at(j, size, NULL, &g));
    TD_OUT(td_tensors_new(&kept));
    TD_OUT(td_weights_save(j->program, TD_SAVE_STATE | TD_SAVE_EMA | TD_SAVE_STEP,
                           j->s.batches_tracked, NULL, kept));
    td_program_free(j->program);
    j->program = NULL;
    TD_OUT(td_compile(g, j->dev, &c, &j->program));
    TD_OUT(td_weights_load(kept, "the previous program",
                           &(td_load_opts){ .with_momentum = true,
                                            .frozen_before = o->optimizer.freeze,
                                            .frozen_now = o->optimizer.freeze },
                           j->program));
    TD_OUT(bind_scalars(j));
    j->ranks.waited_s = 0;
    td_log(TD_LOG_INFO, "train", "epoch %lld: images of %d x %d after %d x %d, compiled in %.1f s",
           (long long)j->s.epoch, size, size, j->compiled.size, j->compiled.size,
           (double)(td_now_ns() - begin_ns) * 1e-9);
    j->compiled.size = size;
out:
    td_tensors_free(kept);
    td_graph_free(g);
    return st;
}
