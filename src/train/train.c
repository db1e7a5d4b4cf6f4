/*
 * train.c -- the training job
 *
 *     open     checkpoint or weights -> data sets -> program -> loaders      nothing is written yet
 *     epoch    step, step, step ... -> validate -> save
 *     close    final weights, report
 *
 * A signal ends the loop after the step that is running; the checkpoint then holds the place inside
 * the epoch.  Everything that decides the next step's bits is in td_run_state and the parameters.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/field.h"
#include "base/json.h"
#include "base/log.h"
#include "base/os.h"
#include "io/lock.h"
#include "train/bad_list.h"
#include "train/checkpoint.h"
#include "train/inputs.h"
#include "train/judge.h"
#include "train/network.h"
#include "train/schedule.h"
#include "train/weights.h"

enum { PATH_CHECKPOINT, PATH_BEST, PATH_REPORT, PATH_BAD, N_PATHS };

typedef struct {
    td_train_opts o; /* a copy; model and seed are completed */
    td_run_state s;
    td_tensors *start; /* checkpoint or weights to begin with */
    td_dataset *train_set, *val_set;
    td_loader *train_loader, *val_loader;
    td_device *dev;
    td_program *program;
    td_judge *judge;
    td_report *report;
    td_lock *lock;
    char *path[N_PATHS];
    td_bad_list bad;
    char *graph_text; /* of a checkpoint's own network */
    td_text config;
    int n_names;
    char **names;             /* of the file we began with */
    const char **class_names; /* of the data set, lent */
    double lr_exact;          /* of this epoch */
    float lr;                 /* the same, bound to the program */
    int64_t run_steps, run_epochs, epochs_without_best;
    double data_s, compute_s; /* of this epoch in this run */
    int64_t epoch_steps;      /* of this epoch in this run */
    bool is_over;
    td_train_result *out;
} job;

static void release(job *j)
{
    td_lock_close(j->lock);
    td_judge_free(j->judge);
    td_program_free(j->program);
    td_device_close(j->dev);
    td_loader_free(j->train_loader);
    td_loader_free(j->val_loader);
    td_dataset_free(j->train_set);
    td_dataset_free(j->val_set);
    td_classes_free(j->n_names, j->names);
    td_tensors_free(j->start);
    for (int i = 0; i < N_PATHS; i++)
        td_free(j->path[i]);
    td_bad_list_release(&j->bad);
    td_free(j->graph_text);
    td_free(j->class_names);
    td_text_release(&j->config);
}

/* --- open: where we begin --------------------------------------------------------------------- */

static td_status check_options(const job *j)
{
    const td_train_opts *o = &j->o;
    TD_TRY(td_train_check(o));
    if (!o->input.data && o->input.data_backend != TD_DATA_SYNTHETIC)
        return td_error(TD_EUSAGE, "train needs DATA, a folder of train/ and val/");
    if (o->optimizer_batch_size > 0 && o->optimizer_batch_size != o->batch_size)
        return td_error(TD_EUSAGE, "--optimizer-batch-size other than the batch size is not "
                                   "supported yet");
    if (o->resume && o->pretrained_weights)
        return td_error(TD_EUSAGE, "--resume and --pretrained-weights exclude each other");
    if (o->warmup > o->epochs)
        return td_error(TD_EUSAGE, "--warmup: %d epochs of warm-up do not fit into --epochs %d",
                        o->warmup, o->epochs);
    if (o->require && (o->training_only || o->input.data_backend == TD_DATA_TENSORS))
        return td_error(TD_EUSAGE, "--require needs a validation");
    return td_require_check(o->require, o->topk);
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
static td_status check_place(const job *j, const char *path)
{
    const char *config = td_tensors_meta(j->start, "tandem.config");
    td_json *doc;
    int64_t batch;
    if (j->s.iteration == 0 || !config)
        return TD_OK;
    TD_TRY_MSG(td_json_parse(config, strlen(config), "tandem.config", &doc), "'%s'", path);
    td_status st = td_json_int(doc, "batch_size", &batch);
    td_json_free(doc);
    if (st != TD_OK)
        return td_error_context(st, "'%s': tandem.config", path);
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

static td_status open_start(job *j)
{
    td_train_opts *o = &j->o;
    const char *path = o->resume ? o->resume : o->pretrained_weights;
    j->s.best_top1 = j->s.last_top1 = j->s.last_topk = -1;
    if (!path)
        return TD_OK;
    TD_TRY(td_tensors_read(path, &j->start));
    if (o->resume) {
        td_weight_facts_apply(j->start, td_model_is_default(&o->model), &o->model);
        TD_TRY(keep_graph_text(j));
        TD_TRY(td_checkpoint_state(j->start, path, &j->s));
        TD_TRY(check_place(j, path));
        TD_TRY(check_network(j, path));
        if (j->s.best_top1 >= 0)
            j->epochs_without_best = j->s.epoch - 1 - j->s.best_epoch;
        if (j->s.epoch > o->epochs)
            return td_error(TD_EARG, "'%s' has finished %lld epochs already, --epochs is %d", path,
                            (long long)j->s.epoch, o->epochs);
        if (j->s.epoch == o->epochs) /* killed before --final-weights was written, perhaps */
            td_log(TD_LOG_WARN, "train",
                   "'%s' has finished all %d epochs: nothing is left to train", path, o->epochs);
    } else {
        j->s.batches_tracked = td_weights_batches(j->start);
    }
    return td_classes_from_json(td_tensors_meta(j->start, "tandem.classes"), path, &j->n_names,
                                &j->names);
}

static void choose_seed(job *j)
{
    td_train_opts *o = &j->o;
    if (o->resume && o->seed < 0)
        o->seed = (int64_t)j->s.seed;
    if (o->seed < 0) {
        o->seed = (int64_t)(((uint64_t)td_wall_s() << 16 ^ (uint64_t)td_now_ns()) & 0xffffffff);
        td_log(TD_LOG_INFO, "train", "seed %lld, from the clock", (long long)o->seed);
    }
    if (o->resume && (uint64_t)o->seed != j->s.seed)
        td_log(TD_LOG_WARN, "train", "seed %lld is not the checkpoint's %llu: the run will differ",
               (long long)o->seed, (unsigned long long)j->s.seed);
    j->s.seed = (uint64_t)o->seed;
}

/* --- open: data ------------------------------------------------------------------------------- */

static int64_t synthetic_images(const td_train_opts *o)
{
    int64_t batches = o->prof > 0 ? o->prof : o->run_iters > 0 ? o->run_iters : 100;
    return batches * o->batch_size;
}

static td_status name_classes(job *j)
{
    td_dataset *d = j->train_set;
    int n = td_dataset_classes(d);
    td_model_opts *m = &j->o.model;
    if (j->o.resume && j->n_names && td_dataset_backend(d) == TD_DATA_FOLDER)
        TD_TRY(td_dataset_use_classes(d, j->n_names, (const char *const *)j->names, false));
    if (!m->num_classes)
        m->num_classes = n;
    if (n > m->num_classes)
        return td_error(TD_ESHAPE, "'%s' has %d classes, the network %d", td_dataset_root(d), n,
                        m->num_classes);
    j->class_names = td_alloc((size_t)n + 1, sizeof *j->class_names);
    if (!j->class_names)
        return TD_ENOMEM;
    for (int i = 0; i < n; i++)
        j->class_names[i] = td_dataset_class_name(d, i);
    return TD_OK;
}

static td_status open_validation(job *j)
{
    td_train_opts *o = &j->o;
    if (o->training_only || o->input.data_backend == TD_DATA_TENSORS)
        return TD_OK;
    TD_TRY(td_open_split(&o->input, "val", &o->model, synthetic_images(o), &j->val_set));
    if (td_dataset_backend(j->val_set) == TD_DATA_FOLDER)
        TD_TRY_MSG(td_dataset_use_classes(j->val_set, td_dataset_classes(j->train_set),
                                          j->class_names, false),
                   "train and val differ");
    td_loader_opts lo = td_loader_opts_of(&o->input, &o->model, o->batch_size);
    lo.seed = j->s.seed;
    return td_loader_new(j->val_set, &lo, &j->val_loader);
}

static td_status open_data(job *j)
{
    td_train_opts *o = &j->o;
    TD_TRY(td_open_split(&o->input, "train", &o->model, synthetic_images(o), &j->train_set));
    TD_TRY(td_settle_image_size(j->train_set, &o->model));
    TD_TRY(name_classes(j));
    td_loader_opts lo = td_loader_opts_of(&o->input, &o->model, o->batch_size);
    lo.is_training = true;
    lo.seed = j->s.seed;
    lo.start_epoch = j->s.epoch;
    lo.start_batch = j->s.iteration;
    TD_TRY(td_loader_new(j->train_set, &lo, &j->train_loader));
    return open_validation(j);
}

/* --- open: program ---------------------------------------------------------------------------- */

static void write_dump(void *ctx, const char *pass, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.td", (const char *)ctx, pass);
    if (td_file_write(path, text, strlen(text)) != TD_OK)
        td_log(TD_LOG_WARN, "train", "%s", td_error_message());
}

static td_status dump_to_folder(const job *j, td_compile_opts *c)
{
    if (!j->o.dump_dir)
        return TD_OK;
    TD_TRY(td_make_folder(j->o.dump_dir));
    c->dump = write_dump;
    c->dump_ctx = (void *)(uintptr_t)j->o.dump_dir;
    return TD_OK;
}

/* weights of a network with another number of classes begin with a fresh head */
static const char *fresh_head(const job *j)
{
    int has = td_weights_classes(j->start);
    if (j->o.resume || !has || has == j->o.model.num_classes)
        return NULL;
    td_log(TD_LOG_INFO, "train", "the weights have %d classes, the data %d: fc begins fresh", has,
           j->o.model.num_classes);
    return "fc.";
}

static td_status open_program(job *j)
{
    const td_train_opts *o = &j->o;
    td_status st = TD_OK;
    td_graph *g = NULL;
    td_sgd_opts sgd = { .momentum = o->momentum,
                        .decay = o->weight_decay,
                        .nesterov = o->nesterov,
                        .smoothing = o->label_smoothing,
                        .decays_norms = o->bn_weight_decay };
    td_compile_opts c = { .skip = o->skip_passes, .dump_after = o->dump_after };
    TD_OUT(dump_to_folder(j, &c));
    TD_OUT(td_device_open(o->device, &j->dev));
    TD_OUT(td_training_graph(&o->model, o->batch_size, &sgd, &g));
    TD_OUT(td_compile(g, j->dev, &c, &j->program));
    TD_OUT(td_program_bind(j->program, "lr", &j->lr));
    if (!j->start || !o->resume)
        TD_OUT(td_program_init(j->program, j->s.seed));
    if (j->start) {
        td_load_opts load = { .with_momentum = o->resume != NULL, .skip_prefix = fresh_head(j) };
        const char *path = o->resume ? o->resume : o->pretrained_weights;
        TD_OUT(td_weights_load(j->start, path, &load, j->program));
    }
    td_tensors_free(j->start);
    j->start = NULL;
out:
    td_graph_free(g);
    return st;
}

/* --- open: files ------------------------------------------------------------------------------ */

/* one flat JSON object of all three tables */
static td_status make_config(job *j)
{
    td_text parts[3] = { { 0 }, { 0 }, { 0 } };
    td_status st = TD_OK;
    td_model_opts model = j->o.model;
    if (model.model || model.model_text)
        model.arch = NULL; /* not what was trained */
    td_fields_json(td_model_fields(), &model, &parts[0]);
    td_fields_json(td_input_fields(), &j->o.input, &parts[1]);
    td_fields_json(td_train_fields(), &j->o, &parts[2]);
    td_text_add(&j->config, "{");
    for (int i = 0; i < 3; i++) {
        TD_OUT(td_text_status(&parts[i]));
        td_text_add(&j->config, "%s", i ? ", " : "");
        td_text_add_bytes(&j->config, parts[i].data + 1, parts[i].len - 2);
    }
    td_text_add(&j->config, "}");
    st = td_text_status(&j->config);
out:
    for (int i = 0; i < 3; i++)
        td_text_release(&parts[i]);
    return st;
}

/* two results must not go into one file */
static td_status check_paths(const job *j)
{
    const struct {
        const char *what, *path;
    } outputs[] = { { "the checkpoint", j->o.no_checkpoints ? NULL : j->path[PATH_CHECKPOINT] },
                    { "the best weights", j->o.no_checkpoints ? NULL : j->path[PATH_BEST] },
                    { "the report", j->path[PATH_REPORT] },
                    { "the list of bad pictures", j->path[PATH_BAD] },
                    { "the final weights", j->o.final_weights },
                    { "the logits", j->o.train_logits } };
    enum { N = sizeof outputs / sizeof *outputs };
    for (int i = 0; i < N; i++)
        for (int k = i + 1; k < N; k++)
            if (outputs[i].path && outputs[k].path && strcmp(outputs[i].path, outputs[k].path) == 0)
                return td_error(TD_EUSAGE, "'%s' is named for %s and for %s", outputs[i].path,
                                outputs[i].what, outputs[k].what);
    return TD_OK;
}

static td_status name_files(job *j)
{
    const td_train_opts *o = &j->o;
    j->path[PATH_CHECKPOINT] = td_path_join(o->workspace, o->checkpoint_filename);
    j->path[PATH_BEST] = td_path_join(o->workspace, "model_best.safetensors");
    if (o->raport_file)
        j->path[PATH_REPORT] = td_path_join(o->workspace, o->raport_file);
    j->path[PATH_BAD] = td_path_join(o->workspace, "bad.list");
    if (!j->path[PATH_CHECKPOINT] || !j->path[PATH_BEST] || !j->path[PATH_BAD] ||
        (o->raport_file && !j->path[PATH_REPORT]))
        return TD_ENOMEM;
    return check_paths(j);
}

static td_status open_files(job *j)
{
    const td_train_opts *o = &j->o;
    TD_TRY(td_make_folder(o->workspace));
    TD_TRY(make_config(j));
    TD_TRY(td_output_check(o->final_weights));
    TD_TRY(td_output_check(o->train_logits));
    if (!o->no_checkpoints) {
        TD_TRY(td_lock_open(o->workspace, &j->lock));
        TD_TRY(td_output_check(j->path[PATH_CHECKPOINT]));
    }
    TD_TRY(td_bad_list_open(&j->bad, j->path[PATH_BAD], o->resume != NULL));
    TD_TRY(td_report_open(j->path[PATH_REPORT], &j->report));
    return td_report_parameters(j->report, td_text_get(&j->config));
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
    td_log(TD_LOG_INFO, "train", "parameters and momentum %.1f MB, activations %.1f MB",
           (double)m.param_bytes / 1e6, (double)m.activation_bytes / 1e6);
    td_log(TD_LOG_DEBUG, "train", "settings %s", td_text_get(&j->config));
    if (o->resume)
        td_log(TD_LOG_INFO, "train", "resumed '%s' at epoch %lld, iteration %lld", o->resume,
               (long long)j->s.epoch, (long long)j->s.iteration);
}

/* --- saving ----------------------------------------------------------------------------------- */

static td_weight_facts facts_of(const job *j)
{
    return (td_weight_facts){ .model = &j->o.model,
                              .num_classes = j->o.model.num_classes,
                              .n_names = td_dataset_backend(j->train_set) == TD_DATA_FOLDER
                                             ? td_dataset_classes(j->train_set)
                                             : 0,
                              .names = j->class_names };
}

static td_status save(job *j)
{
    td_weight_facts f = facts_of(j);
    if (j->o.no_checkpoints)
        return TD_OK;
    TD_TRY(td_bad_list_write(&j->bad, j->train_loader, j->val_loader));
    TD_TRY(td_checkpoint_save(j->path[PATH_CHECKPOINT], j->program, &j->s, &f,
                              td_text_get(&j->config)));
    snprintf(j->out->checkpoint, sizeof j->out->checkpoint, "%s", j->path[PATH_CHECKPOINT]);
    return TD_OK;
}

static td_status epoch_path(const job *j, int64_t epoch, char **out)
{
    char name[48];
    snprintf(name, sizeof name, "checkpoint_%04lld.safetensors", (long long)epoch);
    *out = td_path_join(j->o.workspace, name);
    return *out ? TD_OK : TD_ENOMEM;
}

/* --gather-checkpoints: N last epochs beside the last and the best, -1 all */
static td_status keep_epoch(job *j, int64_t epoch)
{
    char *now = NULL, *old = NULL;
    td_weight_facts f = facts_of(j);
    int keep = j->o.gather_checkpoints;
    td_status st = TD_OK;
    if (keep == 0 || j->o.no_checkpoints)
        return TD_OK;
    TD_OUT(epoch_path(j, epoch, &now));
    TD_OUT(td_checkpoint_save(now, j->program, &j->s, &f, td_text_get(&j->config)));
    if (keep > 0 && epoch >= keep) {
        TD_OUT(epoch_path(j, epoch - keep, &old));
        unlink(old);
    }
out:
    td_free(now);
    td_free(old);
    return st;
}

/* --- one step --------------------------------------------------------------------------------- */

static td_status write_train_logits(const job *j)
{
    td_type type;
    td_tensors *t;
    const void *logits = td_program_output(j->program, "logits", &type);
    TD_TRY(td_tensors_new(&t));
    td_status st = td_tensors_add(t, "logits", type.dtype, type.rank, type.dim, logits);
    if (st == TD_OK)
        st = td_tensors_write(t, j->o.train_logits);
    td_tensors_free(t);
    return st;
}

static td_status report_step(job *j, double loss, double data_s, double compute_s)
{
    double n = j->o.batch_size;
    int64_t step[2] = { j->s.epoch, j->s.iteration };
    if (j->s.iteration % j->o.print_freq)
        return TD_OK;
    td_log(
        TD_LOG_INFO, "train", "epoch %lld, iteration %lld/%lld: loss %.5f, lr %.5g, %.1f images/s",
        (long long)j->s.epoch, (long long)j->s.iteration,
        (long long)td_loader_batches(j->train_loader), loss, j->lr_exact, n / (data_s + compute_s));
    td_report_begin(j->report, 2, step);
    td_report_add(j->report, "train.loss", loss);
    td_report_add(j->report, "train.compute_ips", n / compute_s);
    td_report_add(j->report, "train.total_ips", n / (data_s + compute_s));
    td_report_add(j->report, "train.data_time", data_s);
    td_report_add(j->report, "train.compute_time", compute_s);
    td_report_add(j->report, "train.lr", j->lr_exact);
    td_report_add(j->report, "train.grad_scale", 1);
    return td_report_end(j->report);
}

static td_status step(job *j, const td_batch *b, double data_s)
{
    int64_t t0 = td_now_ns();
    TD_TRY(td_program_bind(j->program, "images", b->images));
    TD_TRY(td_program_bind(j->program, "labels", b->labels));
    TD_TRY(td_program_run(j->program));
    double loss = (double)*(const float *)td_program_output(j->program, "loss", NULL);
    if (!isfinite(loss))
        return td_error(
            TD_ENUMERIC,
            "epoch %lld, iteration %lld: the loss is %s; nothing of this step was saved",
            (long long)j->s.epoch, (long long)j->s.iteration + 1,
            isnan(loss) ? "not a number" : "infinite");
    if (j->run_steps == 0 && j->o.train_logits)
        TD_TRY(write_train_logits(j));
    double compute_s = (double)(td_now_ns() - t0) * 1e-9;
    j->s.iteration++;
    j->s.steps++;
    j->s.batches_tracked++;
    j->s.loss_sum += loss;
    j->run_steps++;
    j->epoch_steps++;
    j->data_s += data_s;
    j->compute_s += compute_s;
    return report_step(j, loss, data_s, compute_s);
}

/* --- one epoch -------------------------------------------------------------------------------- */

static td_lr_opts lr_opts(const td_train_opts *o)
{
    return (td_lr_opts){ .schedule = (td_lr_schedule)o->lr_schedule,
                         .lr = o->lr,
                         .end_lr = o->end_lr,
                         .warmup = o->warmup,
                         .epochs = o->epochs };
}

static bool wants_to_stop(job *j)
{
    if (td_signal_caught()) {
        j->out->was_stopped = true;
        j->is_over = true;
    }
    if (j->o.run_iters >= 0 && j->run_steps >= j->o.run_iters)
        j->is_over = true;
    return j->is_over;
}

static td_status train_epoch(job *j, bool *is_whole)
{
    const td_batch *b;
    td_lr_opts lr = lr_opts(&j->o);
    int64_t cap = j->o.prof > 0 ? j->o.prof : INT64_MAX;
    j->lr_exact = td_lr_at(&lr, (int)j->s.epoch);
    j->lr = (float)j->lr_exact;
    j->data_s = j->compute_s = 0;
    j->epoch_steps = 0;
    *is_whole = false;
    while (!wants_to_stop(j)) {
        if (j->s.iteration >= cap) {
            *is_whole = true;
            break;
        }
        int64_t t0 = td_now_ns();
        td_status st = td_loader_next(j->train_loader, &b);
        if (st == TD_EEND) {
            *is_whole = true;
            break;
        }
        TD_TRY(st);
        TD_TRY(step(j, b, (double)(td_now_ns() - t0) * 1e-9));
        if (j->o.checkpoint_every && j->s.steps % j->o.checkpoint_every == 0)
            TD_TRY(save(j));
    }
    return TD_OK;
}

static td_judge_opts judge_opts(const job *j)
{
    const td_train_opts *o = &j->o;
    return (td_judge_opts){ .batch = o->batch_size,
                            .topk = o->topk,
                            .max_batches = o->prof > 0 ? o->prof : -1,
                            .smoothing = o->label_smoothing,
                            .skip_passes = o->skip_passes,
                            .report = j->report,
                            .print_freq = o->print_freq,
                            .step = { j->s.epoch, j->s.iteration } };
}

static td_status validate(job *j, td_verdict *v)
{
    td_judge_opts jo = judge_opts(j);
    if (!j->judge)
        TD_TRY(td_judge_new(&j->o.model, j->dev, &jo, &j->judge));
    TD_TRY(td_weights_share(j->program, td_judge_program(j->judge)));
    TD_TRY(td_loader_start_epoch(j->val_loader, 0));
    TD_TRY(td_judge_run(j->judge, j->val_loader, &jo, v));
    j->s.last_top1 = td_percent(v->counts.n_top1, v->counts.n);
    j->s.last_topk = td_percent(v->counts.n_topk, v->counts.n);
    j->s.last_val_loss = v->counts.n ? v->counts.loss_sum / (double)v->counts.n : 0;
    return TD_OK;
}

static td_status report_epoch(job *j, const td_verdict *v)
{
    double n = (double)j->epoch_steps * j->o.batch_size;
    int64_t epoch = j->s.epoch - 1;
    j->out->images_per_s = n > 0 ? n / (j->data_s + j->compute_s) : 0;
    td_report_begin(j->report, 1, &epoch);
    td_report_add(j->report, "train.loss", j->s.last_train_loss);
    td_report_add(j->report, "train.compute_ips", n / j->compute_s);
    td_report_add(j->report, "train.total_ips", j->out->images_per_s);
    td_report_add(j->report, "train.data_time", j->data_s / (double)j->epoch_steps);
    td_report_add(j->report, "train.compute_time", j->compute_s / (double)j->epoch_steps);
    td_report_add(j->report, "train.lr", j->lr_exact);
    td_report_add(j->report, "train.grad_scale", 1);
    if (v) {
        char topk[16];
        snprintf(topk, sizeof topk, "val.top%d", j->o.topk);
        td_report_add(j->report, "val.top1", j->s.last_top1);
        td_report_add(j->report, topk, j->s.last_topk);
        td_report_add(j->report, "val.loss", j->s.last_val_loss);
        td_report_add(j->report, "val.compute_ips", (double)v->counts.n / v->compute_s);
        td_report_add(j->report, "val.total_ips", (double)v->counts.n / v->seconds);
        td_report_add(j->report, "val.data_time", v->data_s / (double)v->n_batches);
        td_report_add(j->report, "val.compute_latency", v->compute_s / (double)v->n_batches);
        td_report_add(j->report, "val.compute_latency_at95", v->p95);
        td_report_add(j->report, "val.compute_latency_at99", v->p99);
        td_report_add(j->report, "val.compute_latency_at100", v->p100);
        td_log(TD_LOG_INFO, "train",
               "epoch %lld: loss %.4f, %.1f images/s; val top1 %.2f %%, top%d %.2f %%, loss %.4f",
               (long long)epoch, j->s.last_train_loss, j->out->images_per_s, j->s.last_top1,
               j->o.topk, j->s.last_topk, j->s.last_val_loss);
    } else {
        td_log(TD_LOG_INFO, "train", "epoch %lld: loss %.4f, %.1f images/s", (long long)epoch,
               j->s.last_train_loss, j->out->images_per_s);
    }
    return td_report_end(j->report);
}

/* a whole epoch lies behind us: judge it, note the best, save */
static td_status end_epoch(job *j)
{
    td_verdict v;
    td_weight_facts f = facts_of(j);
    int64_t epoch = j->s.epoch;
    bool is_best = false;
    j->s.last_train_loss = j->s.iteration ? j->s.loss_sum / (double)j->s.iteration : 0;
    if (j->val_loader) {
        TD_TRY(validate(j, &v));
        if (v.was_stopped) { /* judge again after resuming: this epoch is not over */
            j->is_over = j->out->was_stopped = true;
            return save(j);
        }
        is_best = j->s.last_top1 > j->s.best_top1;
        j->epochs_without_best = is_best ? 0 : j->epochs_without_best + 1;
    }
    j->s.epoch++;
    j->s.iteration = 0;
    j->s.loss_sum = 0;
    if (is_best) {
        j->s.best_top1 = j->s.last_top1;
        j->s.best_epoch = epoch;
    }
    TD_TRY(report_epoch(j, j->val_loader ? &v : NULL));
    /* the checkpoint last: it says that the others are there */
    if (is_best && !j->o.no_checkpoints)
        TD_TRY(
            td_weight_file_save(j->path[PATH_BEST], j->program, false, j->s.batches_tracked, &f));
    TD_TRY(keep_epoch(j, epoch));
    TD_TRY(save(j));
    return td_loader_start_epoch(j->train_loader, j->s.epoch);
}

static bool runs_out(job *j)
{
    const td_train_opts *o = &j->o;
    if (o->early_stopping_patience > 0 && j->epochs_without_best >= o->early_stopping_patience) {
        td_log(TD_LOG_INFO, "train", "no new best for %d epochs: stopping early",
               o->early_stopping_patience);
        return true;
    }
    return j->is_over || j->s.epoch >= o->epochs ||
           (o->run_epochs >= 0 && j->run_epochs >= o->run_epochs);
}

static td_status run(job *j)
{
    bool is_whole;
    while (!runs_out(j)) {
        TD_TRY(train_epoch(j, &is_whole));
        if (!is_whole) {
            /* a step limit or a signal inside the epoch: keep the place */
            j->s.last_train_loss = j->s.iteration ? j->s.loss_sum / (double)j->s.iteration : 0;
            double seconds = j->data_s + j->compute_s;
            if (seconds > 0)
                j->out->images_per_s = (double)j->epoch_steps * j->o.batch_size / seconds;
            return save(j);
        }
        TD_TRY(end_epoch(j));
        j->run_epochs++;
    }
    return TD_OK;
}

/* bad.list is there whatever ended the run, most of all when it was too many bad pictures */
static td_status run_and_list(job *j)
{
    td_status st = run(j);
    if (st == TD_OK)
        return td_bad_list_write(&j->bad, j->train_loader, j->val_loader);
    char *message = td_copy_text(td_error_message());
    if (td_bad_list_write(&j->bad, j->train_loader, j->val_loader) != TD_OK)
        td_log(TD_LOG_WARN, "train", "%s", td_error_message());
    st = td_error_set(st, message ? message : td_status_text(st));
    td_free(message);
    return st;
}

static td_status finish(job *j)
{
    td_weight_facts f = facts_of(j);
    if (j->o.final_weights && !j->out->was_stopped)
        TD_TRY(td_weight_file_save(j->o.final_weights, j->program, j->o.final_state,
                                   j->s.batches_tracked, &f));
    j->out->epoch = j->s.epoch;
    td_model_name(&j->o.model, j->out->arch, sizeof j->out->arch);
    j->out->steps = j->s.steps;
    j->out->train_loss = j->s.last_train_loss;
    j->out->val_loss = j->s.last_val_loss;
    j->out->top1 = j->s.last_top1;
    j->out->topk = j->s.last_topk;
    j->out->best_top1 = j->s.best_top1;
    td_report_begin(j->report, 0, NULL);
    td_report_add(j->report, "train.loss", j->s.last_train_loss);
    td_report_add(j->report, "train.total_ips", j->out->images_per_s);
    if (j->s.last_top1 >= 0) {
        td_report_add(j->report, "val.top1", j->s.best_top1);
        td_report_add(j->report, "val.loss", j->s.last_val_loss);
    }
    TD_TRY(td_report_end(j->report));
    if (!j->o.require || j->out->was_stopped)
        return TD_OK;
    if (j->s.last_top1 < 0)
        return td_error(TD_EREQUIRED, "no epoch was finished and validated, %s was required",
                        j->o.require);
    td_scores s = { .n = td_dataset_count(j->val_set),
                    .top1 = j->s.last_top1,
                    .topk = j->s.last_topk,
                    .loss = j->s.last_val_loss };
    return td_require(j->o.require, &s, j->o.topk);
}

td_status td_train(const td_train_opts *opts, td_train_result *out)
{
    td_status st = TD_OK;
    job j = { .o = *opts, .out = out };
    *out = (td_train_result){ .top1 = -1, .topk = -1, .best_top1 = -1 };
    TD_OUT(td_log_configure(opts->log));
    TD_OUT(check_options(&j));
    td_set_threads(opts->threads);
    td_signals_catch();
    TD_OUT(name_files(&j));
    TD_OUT(open_start(&j));
    choose_seed(&j);
    TD_OUT(td_model_image_size(&j.o.model, &j.o.model.image_size));
    TD_OUT(read_own_graph(&j));
    TD_OUT(open_data(&j));
    TD_OUT(open_program(&j));
    TD_OUT(open_files(&j));
    say_settings(&j);
    TD_OUT(run_and_list(&j));
    TD_OUT(finish(&j));
out:;
    td_status closed = td_report_close(j.report);
    release(&j);
    return st != TD_OK ? st : closed;
}
