/*
 * train_open.c -- how a training job begins: checkpoint or weights, data, program, files
 *
 * Everything that can be wrong with the options, the data or the files is found here, before
 * anything is written.
 */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/log.h"
#include "base/os.h"
#include "checkpoint/torch_checkpoint.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"
#include "inference/inputs.h"
#include "io/atomic.h"
#include "model/arch.h"
#include "optim/training_graph.h"
#include "options/field.h"
#include "pass/amp.h"
#include "recipes/preset.h"
#include "recipes/stored_options.h"
#include "runtime/device.h"
#include "train/task.h"
#include "train/train_job.h"
#include "train/train_ranks.h"
#include "train/train_report.h"
#include "train/workspace.h"

typedef td_train_job job;

/* --- open: where we begin --------------------------------------------------------------------- */

static td_status check_options(const job *j)
{
    const td_train_opts *o = &j->o;
    TD_TRY(td_train_check(o));
    if (!o->input.data && o->input.data_backend != TD_DATA_SYNTHETIC)
        return td_error(TD_EUSAGE, "train needs DATA, a folder of train/ and val/");
    if (o->resume && o->pretrained_weights)
        return td_error(TD_EUSAGE, "--resume and --pretrained-weights exclude each other");
    if (o->lr_rule >= TD_LR_RULE_SSD320)
        return TD_OK; /* it counts steps */
    if (o->warmup < 0)
        return td_error(TD_EUSAGE, "--warmup: -1 is of --lr-rule ssd320 and ssd300");
    if (o->warmup > o->epochs && *o->launch.name) /* its benchmark modes are so short */
        td_log(TD_LOG_WARN, "train", "%d epochs of %d are warm-up: the rate stays below its peak",
               o->epochs, o->warmup);
    else if (o->warmup > o->epochs)
        return td_error(TD_EUSAGE, "--warmup: %d epochs of warm-up do not fit into --epochs %d",
                        o->warmup, o->epochs);
    if (o->require && (o->training_only || o->input.data_backend == TD_DATA_TENSORS))
        return td_error(TD_EUSAGE, "--require needs a validation");
    return TD_OK;
}

/* the file is let go once its weights are loaded, the network's text is needed to the end */
static td_status keep_graph_text(job *j)
{
    const char *text = j->o.model.model_text;
    j->graph_text = text ? td_copy_text(text) : NULL;
    j->o.model.model_text = j->graph_text;
    return text && !j->graph_text ? TD_ENOMEM : TD_OK;
}

/* inside an epoch, the place is counted in batches: their size must be the one that was */
static td_status check_place(job *j, const char *path)
{
    const char *config = td_tensors_meta(j->start, "tandem.config");
    td_json *doc;
    int64_t batch;
    if ((j->s.iteration == 0 && j->s.step.done == 0) || !config)
        return TD_OK;
    TD_TRY_MSG(td_json_parse(config, strlen(config), "tandem.config", &doc), "'%s'", path);
    td_status st = td_json_int(doc, "batch_size", &batch);
    td_json_free(doc);
    if (st != TD_OK)
        return td_error_context(st, "'%s': tandem.config", path);
    const int64_t of = j->o.optimizer_batch_size > 0
                           ? j->o.optimizer_batch_size / (j->o.batch_size * (int64_t)j->n_ranks)
                           : 1;
    if (j->s.step.done && of != j->s.step.of)
        return td_error(TD_EARG,
                        "'%s' was saved inside an optimiser step, after %lld batches of %lld: it "
                        "cannot go on with %lld",
                        path, (long long)j->s.step.done, (long long)j->s.step.of, (long long)of);
    if (j->s.ranks != j->n_ranks)
        return td_train_move_place(j, path, batch);
    if (batch != j->o.batch_size)
        return td_error(TD_EARG,
                        "'%s' was saved inside an epoch, after %lld batches of %lld: it cannot go "
                        "on with --batch-size %d",
                        path, (long long)j->s.iteration, (long long)batch, j->o.batch_size);
    return TD_OK;
}

/* once: every checkpoint has the graph that is trained, whatever becomes of the file */
static td_status read_own_graph(job *j)
{
    size_t n;
    if (!j->o.model.model || j->o.model.model_text)
        return TD_OK;
    TD_TRY(td_file_read(j->o.model.model, (size_t)64 << 20, &j->graph_text, &n));
    j->o.model.model_text = j->graph_text;
    return TD_OK;
}

/* --arch on the command line, and a checkpoint of a graph of the user's own */
static td_status check_network(const job *j, const char *path)
{
    td_model_opts d;
    td_model_defaults(&d);
    if (td_tensors_meta(j->start, "tandem.graph") && j->o.model.arch != d.arch)
        return td_error(TD_EARG, "'%s' has a network of its own, --arch %s cannot go on with it",
                        path, j->o.model.arch);
    return TD_OK;
}

/* a classifier's weights begin a detector, not the other way round */
static td_status check_pretrained(const job *j, const char *path)
{
    const char *arch = td_tensors_meta(j->start, "tandem.arch");
    const td_model_opts of = { .arch = arch };
    if (!arch || td_model_detector(&j->o.model) || !td_model_detector(&of))
        return TD_OK;
    return td_error(TD_EUSAGE,
                    "'%s' has weights of %s, a detector, which begin no classifier: "
                    "--arch %s goes on with them",
                    path, arch, arch);
}

static td_status open_start(job *j)
{
    td_train_opts *o = &j->o;
    const char *path = o->resume ? o->resume : o->pretrained_weights;
    j->s.best = j->s.last = j->s.last_second = -1;
    for (int i = 0; i < TD_BOX_METRICS; i++)
        j->boxes[i] = -1;
    j->s.step.ema_before = 1;
    j->tracked.still = o->freeze_bn ? o->freeze : NULL;
    if (!path)
        return TD_OK;
    TD_TRY(o->resume ? td_checkpoint_open(path, &j->start) : td_weight_file_open(path, &j->start));
    if (o->resume) {
        td_weight_facts_apply(j->start, td_model_is_default(&o->model), &o->model);
        TD_TRY(td_weight_facts_check(j->start, path, &o->model));
        TD_TRY(keep_graph_text(j));
        TD_TRY(td_checkpoint_state(j->start, path, &j->s));
        TD_TRY(td_stored_paths_warn(j->start, path, o));
        TD_TRY(check_place(j, path));
        TD_TRY(td_freeze_resume(j->start, path, o, j->s.step.done > 0, &j->frozen_then));
        TD_TRY(check_network(j, path));
        j->has_seed = !td_checkpoint_is_torch(j->start);
        if (td_checkpoint_is_torch(j->start))
            td_torch_checkpoint_log(j->start, path, o);
        if (j->s.best >= 0)
            j->epochs_without_best = j->s.epoch - 1 - j->s.best_epoch;
        if (j->s.epoch > o->epochs)
            return td_error(TD_EARG, "'%s' has finished %lld epochs already, --epochs is %d", path,
                            (long long)j->s.epoch, o->epochs);
        if (j->s.epoch == o->epochs) /* killed before --final-weights was written, perhaps */
            td_log(TD_LOG_WARN, "train",
                   "'%s' has finished all %d epochs: nothing is left to train", path, o->epochs);
    } else {
        if (td_model_is_default(&o->model) && td_weight_arch_apply(j->start, &o->model)) {
            TD_TRY(keep_graph_text(j));
            j->is_arch_of_file = true;
            if (!o->model.image_size && !o->image_size_schedule)
                o->model.image_size = td_weight_image_size(j->start);
        }
        TD_TRY(check_pretrained(j, path));
        td_weight_backbone_apply(j->start, &o->model);
        if (!td_model_detector(&o->model)) /* of a backbone only values matter */
            td_weight_variant_apply(j->start, &o->model);
        j->s.batches_tracked = td_weights_batches(j->start);
    }
    TD_TRY(td_tracked_read(j->start, j->s.batches_tracked, &j->tracked));
    return td_classes_from_json(td_tensors_meta(j->start, "tandem.classes"), path, &j->n_names,
                                &j->names);
}

static void choose_seed(job *j)
{
    td_train_opts *o = &j->o;
    j->resumed_seed = j->s.seed;
    if (j->has_seed && o->seed < 0)
        o->seed = (int64_t)j->s.seed;
    if (o->seed < 0) {
        o->seed = (int64_t)(((uint64_t)td_wall_s() << 16 ^ (uint64_t)td_now_ns()) & 0xffffffff);
        j->is_seed_of_clock = true;
    }
    j->s.seed = (uint64_t)o->seed;
}

static void say_seed(const job *j)
{
    if (j->is_seed_of_clock)
        td_log(TD_LOG_INFO, "train", "seed %lld, from the clock", (long long)j->o.seed);
    if (j->has_seed && j->s.seed != j->resumed_seed)
        td_log(TD_LOG_WARN, "train", "seed %llu is not the checkpoint's %llu: the run will differ",
               (unsigned long long)j->s.seed, (unsigned long long)j->resumed_seed);
}

/*
 * What is validated, and what the file says, is one size: --image-size, or else the last that
 * training has.
 */
static td_status open_sizes(job *j)
{
    td_train_opts *o = &j->o;
    const td_sizes *s = &j->sizes;
    TD_TRY(td_sizes_parse(o->image_size_schedule, &j->sizes));
    if (s->n && (o->model.model || o->model.model_text))
        return td_error(TD_EUSAGE,
                        "--image-size-schedule: a network of a graph file has one size, that of "
                        "its input 'images'");
    if (s->n &&
        (o->input.data_backend == TD_DATA_TENSORS || o->input.data_backend == TD_DATA_SYNTHETIC))
        return td_error(TD_EUSAGE, "--image-size-schedule is of pictures in a folder, these data "
                                   "have one size");
    for (int i = s->n - 1; i >= 0 && s->epoch[i] >= o->epochs; i--)
        td_log(TD_LOG_WARN, "train", "pictures of %d are of epoch %lld on, there are %d epochs",
               s->size[i], (long long)s->epoch[i], o->epochs);
    if (s->n && !o->model.image_size)
        o->model.image_size = s->size[s->n - 1];
    return td_model_image_size(&o->model, &o->model.image_size);
}

/* --- open: data ------------------------------------------------------------------------------- */

int64_t td_train_synthetic_images(const td_train_job *j)
{
    const td_train_opts *o = &j->o;
    int64_t batches = o->prof > 0 ? o->prof : o->run_iters > 0 ? o->run_iters : 100;
    return batches * o->batch_size * j->n_ranks;
}

td_status td_train_list_classes(td_train_job *j)
{
    const int n = td_dataset_classes(j->train_set);
    j->class_names = td_alloc((size_t)n + 1, sizeof *j->class_names);
    if (!j->class_names)
        return TD_ENOMEM;
    for (int i = 0; i < n; i++)
        j->class_names[i] = td_dataset_class_name(j->train_set, i);
    return TD_OK;
}

void td_train_loader_opts(const td_train_job *j, td_loader_opts *lo)
{
    const td_train_opts *o = &j->o;
    lo->is_training = true;
    lo->seed = j->s.seed;
    lo->rank = j->rank;
    lo->world = j->n_ranks;
    lo->image_sizes = o->image_size_schedule;
    lo->start_epoch = j->s.epoch;
    lo->start_batch = j->s.iteration;
    lo->order = o->shuffle ? TD_ORDER_BUFFER : o->sampler ? TD_ORDER_PADDED : TD_ORDER_PERMUTATION;
}

static td_status open_data(job *j)
{
    td_say_back_end(&j->o.input);
    return j->task->open_data(j);
}

/* --- open: precision and steps ---------------------------------------------------------------- */

/*
 * What was chosen takes the place of the wish to choose, in the saved options too: a run that
 * resumes must not measure again and choose otherwise.
 */
static td_status open_precision(job *j)
{
    j->o.amp = td_train_amp(&j->o);
    j->o.fp16 = false;
    j->asks_environment = !td_amp_is_off(&j->o.amp) || j->o.resume;
    TD_TRY(td_amp_resolve(&j->o.amp, j->dev));
    TD_TRY(td_train_share_precision(j));
    j->o.amp.amp = false; /* what is saved is what was settled */
    if (j->comm && j->o.tune == TD_TUNE_FULL) {
        td_log(TD_LOG_WARN, "train",
               "--tune full is for one rank, which leaves its times in the "
               "cache: several take what is there");
        j->o.tune = TD_TUNE_CACHED;
    }
    td_device_join(j->dev, j->comm);
    return td_device_tune(j->dev, (td_tune_mode)j->o.tune, j->o.tune_cache);
}

/* the scale is the options', or the checkpoint's where it goes on */
static void open_scaler(job *j)
{
    const td_scaler saved = j->s.scaler;
    const bool is_settled = j->o.resume && saved.kind == TD_SCALER_NONE;
    const td_dtype half = td_amp_dtype(&j->o.amp);
    td_scaler_choose(&j->o, half, j->asks_environment && !is_settled, &j->s.scaler);
    if (j->o.resume)
        td_scaler_resume(&j->s.scaler, &saved);
    if (j->o.loss_scale_interval > 0 && j->s.scaler.kind != TD_SCALER_DYNAMIC)
        td_log(TD_LOG_WARN, "train",
               "the loss scale does not change: --loss-scale-interval does nothing");
}

/* one optimiser step for so many batches */
static td_status open_accumulation(job *j)
{
    const int64_t n = (int64_t)j->o.batch_size * j->n_ranks, of = j->o.optimizer_batch_size;
    j->acc = of > 0 ? of / n : 1;
    j->s.step.of = j->acc;
    j->s.ranks = j->n_ranks;
    if (of < 0)
        return TD_OK;
    if (of < n)
        return td_error(TD_EUSAGE,
                        "--optimizer-batch-size: %lld is less than a batch of all "
                        "ranks, %d x %d",
                        (long long)of, j->n_ranks, j->o.batch_size);
    if (of % n)
        td_log(TD_LOG_WARN, "train",
               "the optimiser's batch of %lld is no multiple of the batch of %lld: a step is of "
               "%lld",
               (long long)of, (long long)n, (long long)(j->acc * n));
    return TD_OK;
}

static td_status open_mixup(job *j)
{
    if (j->o.mixup <= 0)
        return TD_OK;
    j->mixup = (td_mixup){ .mode = (td_mixup_mode)j->o.mixup_mode,
                           .alpha = j->o.mixup,
                           .batch = j->o.batch_size,
                           .seed = j->s.seed };
    return td_mixup_open(&j->mixup, j->o.mixup_file);
}

static void say_groups(const job *j)
{
    const size_t n = j->groups.decayed.n;
    if (j->o.optimizer == TD_OPTIMIZER_RMSPROP && j->o.nesterov)
        td_log(TD_LOG_WARN, "train", "rmsprop has no Nesterov form: --nesterov is ignored");
    if (td_report_has_text(j->report)) /* which says so by itself */
        return;
    if (j->o.optimizer_batch_size >= 0)
        td_log(TD_LOG_INFO, "train",
               "batch size multiplier %lld: the weights are updated every %lld batches",
               (long long)j->acc, (long long)j->acc);
    if (j->o.weight_decay <= 0)
        return;
    if (j->o.bn_weight_decay)
        td_log(TD_LOG_INFO, "train", "weight decay applies to all %zu parameters", n);
    else
        td_log(TD_LOG_INFO, "train",
               "weight decay applies to %zu parameters, not to %d of batch norm%s", n,
               j->groups.n_undecayed, j->s.detects ? " and biases" : "");
}

/* the reference's rule gives epoch e the share (e + 1) / warmup of the learning rate */
static void say_warmup(const job *j)
{
    if (j->o.warmup == 1 && j->o.lr_rule == TD_LR_RULE_PYTORCH)
        td_log(TD_LOG_INFO, "train",
               "--warmup 1 leaves the learning rate as it is: epoch e of W warm-up epochs has "
               "(e + 1) / W of it, so warm-up begins with --warmup 2");
}

static void say_frozen(const job *j)
{
    const td_freeze_counts *f = &j->frozen;
    if (f->n)
        td_log(TD_LOG_INFO, "train", "frozen: %d of %d weights, %lld of %lld numbers", f->n, f->of,
               (long long)f->n_values, (long long)f->of_values);
    if (f->n_norms)
        td_log(TD_LOG_INFO, "train", "frozen: the statistics of %d norms", f->n_norms);
    if (f->n && !j->o.resume && !j->o.pretrained_weights)
        td_log(TD_LOG_WARN, "train",
               "--freeze without --pretrained-weights: what is frozen stays as it was drawn");
}

/* --- open: files ------------------------------------------------------------------------------ */

/* one flat JSON object of all tables */
static td_status make_config(job *j)
{
    enum { N = 5 };
    td_text parts[N] = { { 0 } };
    td_status st = TD_OK;
    td_model_opts model = j->o.model;
    if (model.model || model.model_text)
        model.arch = NULL; /* not what was trained */
    td_fields_json(td_model_fields(), &model, &parts[0]);
    td_fields_json(td_input_fields(), &j->o.input, &parts[1]);
    td_fields_json(td_amp_fields(), &j->o.amp, &parts[2]);
    td_fields_json(td_train_fields(), &j->o, &parts[3]);
    td_fields_json(td_boxes_fields(), &j->o.boxes, &parts[4]);
    td_text_add(&j->config, "{");
    for (int i = 0; i < N; i++) {
        TD_OUT(td_text_status(&parts[i]));
        td_text_add(&j->config, "%s", i ? ", " : "");
        td_text_add_bytes(&j->config, parts[i].data + 1, parts[i].len - 2);
    }
    td_text_add(&j->config, "}");
    st = td_text_status(&j->config);
out:
    for (int i = 0; i < N; i++)
        td_text_release(&parts[i]);
    return st;
}

/* what rank 0 writes for all */
static void keep_files_shut(job *j)
{
    td_train_opts *o = &j->o;
    td_free(j->path[TD_PATH_REPORT]);
    j->path[TD_PATH_REPORT] = NULL;
    o->final_weights = o->train_logits = o->amp_stats = o->trace = NULL;
    o->tensorboard = o->csv = o->csv_iterations = NULL;
    o->log_format = 0;
}

static td_status open_files(job *j)
{
    const td_train_opts *o = &j->o;
    TD_TRY(make_config(j));
    TD_TRY(td_train_agree(j));
    if (j->rank > 0)
        keep_files_shut(j);
    TD_TRY(td_workspace_open(j));
    TD_TRY(td_output_check(o->final_weights));
    TD_TRY(td_output_check(o->train_logits));
    if (td_train_writes(j))
        TD_TRY(td_output_check(j->path[TD_PATH_CHECKPOINT]));
    if (j->rank == 0)
        TD_TRY(td_bad_list_open(&j->bad, j->path[TD_PATH_BAD], o->resume != NULL));
    TD_TRY(td_train_report_open(j));
    if (td_train_writes(j) && j->s.epoch < o->epochs) /* else nothing is left to train */
        TD_TRY(td_workspace_write_config(j));
    return td_amp_stats_open(o->amp_stats, o->amp_stats_every, td_amp_precision_name(&o->amp),
                             j->program, &j->amp_stats);
}

static td_status open_timing(job *j)
{
    char model[200], what[256];
    td_model_name(&j->o.model, model, sizeof model);
    snprintf(what, sizeof what, "train %s", model);
    if (j->o.prof > 0)
        TD_TRY(td_profile_new(j->program, true, &j->profile));
    return td_trace_open(j->o.trace, what, j->program, &j->trace);
}

static void say_precision(const job *j)
{
    static const char *const sets[] = { "tf", "pytorch", "apex", "nvidia" };
    const td_scaler *s = &j->s.scaler;
    const td_dtype half = td_amp_dtype(&j->o.amp);
    if (half != TD_DT_F32)
        td_log(TD_LOG_INFO, "train", "mixed precision with %s", td_amp_precision_name(&j->o.amp));
    if (s->kind == TD_SCALER_STATIC)
        td_log(TD_LOG_INFO, "train", "loss scale %g, fixed", s->scale);
    else if (s->kind == TD_SCALER_DYNAMIC)
        td_log(TD_LOG_INFO, "train",
               "loss scale %g, by the rule of %s: twice that after %lld steps", s->scale,
               sets[s->set], (long long)s->interval);
    else if (half == TD_DT_F16)
        td_log(
            TD_LOG_WARN, "train",
            "f16 without loss scaling: gradients below 3e-8 become zero; --static-loss-scale 128 "
            "fixes a scale, --dynamic-loss-scale adapts one");
}

static void say_settings(const job *j)
{
    const td_train_opts *o = &j->o;
    char name[256];
    td_model_name(&o->model, name, sizeof name);
    td_memory_report m = td_program_memory(j->program);
    td_log(TD_LOG_INFO, "train", "%s, %d classes, %lld pictures of %d x %d, batch %d, %d threads",
           name, o->model.num_classes, (long long)td_dataset_count(j->train_set),
           o->model.image_size, o->model.image_size, o->batch_size, td_threads());
    if (j->is_arch_of_file)
        td_log(TD_LOG_INFO, "train", "the network is that of '%s': no --arch says else",
               o->pretrained_weights);
    td_log(TD_LOG_INFO, "train", "parameters and momentum %.1f MB, activations %.1f MB",
           (double)m.param_bytes / 1e6, (double)m.activation_bytes / 1e6);
    say_seed(j);
    say_precision(j);
    say_groups(j);
    say_warmup(j);
    say_frozen(j);
    td_log(TD_LOG_DEBUG, "train", "settings %s", td_text_get(&j->config));
    if (o->resume)
        td_log(TD_LOG_INFO, "train", "resumed '%s' at epoch %lld, iteration %lld", o->resume,
               (long long)j->s.epoch, (long long)j->s.iteration);
}

/* --- all of it -------------------------------------------------------------------------------- */

td_status td_train_open(td_train_job *j)
{
    TD_TRY(td_log_configure(j->o.log));
    j->may_overwrite = j->o.overwrite;
    j->o.overwrite = false; /* is of this run alone: not saved with its options */
    td_train_say_preset(&j->o);
    TD_TRY(check_options(j));
    td_signals_catch();
    TD_TRY(td_train_meet(j));
    td_set_threads(j->o.threads ? j->o.threads : td_comm_threads(j->comm));
    TD_TRY(open_start(j));
    TD_TRY(td_workspace_name(j));
    choose_seed(j);
    TD_TRY(td_train_share_seed(j));
    TD_TRY(open_sizes(j));
    TD_TRY(read_own_graph(j));
    j->task = td_task_of(&j->o.model);
    j->s.detects = j->task->detects;
    if (j->task->check)
        TD_TRY(j->task->check(&j->o));
    TD_TRY(open_data(j));
    TD_TRY(td_device_open(j->o.device, &j->dev));
    TD_TRY(open_precision(j));
    open_scaler(j);
    TD_TRY(open_accumulation(j));
    TD_TRY(td_train_plan(j));
    TD_TRY(open_mixup(j));
    TD_TRY(td_train_program_open(j));
    TD_TRY(open_files(j));
    TD_TRY(open_timing(j));
    say_settings(j);
    return TD_OK;
}

void td_train_release(td_train_job *j)
{
    if (j->task && j->task->release)
        j->task->release(j);
    td_lock_close(j->lock);
    td_mixup_close(&j->mixup);
    td_map_release(&j->groups.decayed);
    td_tracked_release(&j->tracked);
    td_judge_free(j->judge);
    td_profile_free(j->profile);
    td_program_free(j->program);
    td_device_close(j->dev);
    td_loader_free(j->train_loader);
    td_loader_free(j->val_loader);
    td_dataset_free(j->train_set);
    td_dataset_free(j->val_set);
    td_classes_free(j->n_names, j->names);
    td_tensors_free(j->start);
    for (int i = 0; i < TD_PATHS; i++)
        td_free(j->path[i]);
    td_free(j->folder);
    td_bad_list_release(&j->bad);
    td_run_sums_release(&j->sums);
    td_shares_release(&j->outcomes);
    td_free(j->graph_text);
    td_free(j->frozen_then);
    td_free(j->class_names);
    td_text_release(&j->config);
}
