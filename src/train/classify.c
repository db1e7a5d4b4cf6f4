/*
 * classify.c -- what is on these pictures
 */
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/os.h"
#include "io/safetensors.h"
#include "tandem/data.h"
#include "train/checkpoint.h"
#include "train/inputs.h"
#include "train/metrics.h"
#include "train/network.h"
#include "train/weight_file.h"
#include "train/weights.h"

typedef struct {
    td_classify_opts o;
    td_tensors *weights;
    td_device *dev;
    td_program *program;
    int n_names;
    char **names;
    char number[10][24]; /* names of classes without one */
} classifier;

static void release(classifier *c)
{
    td_program_free(c->program);
    td_device_close(c->dev);
    td_classes_free(c->n_names, c->names);
    td_tensors_free(c->weights);
}

static td_status open_classifier(classifier *c)
{
    td_status st = TD_OK;
    td_graph *g = NULL;
    if (!c->o.weights)
        return td_error(TD_EUSAGE, "classify needs --weights FILE");
    TD_TRY(td_weight_file_open(c->o.weights, &c->weights));
    td_weight_facts_apply(c->weights, td_model_is_default(&c->o.model), &c->o.model);
    TD_TRY(td_classes_from_json(td_tensors_meta(c->weights, "tandem.classes"), c->o.weights,
                                &c->n_names, &c->names));
    TD_TRY(td_model_image_size(&c->o.model, &c->o.model.image_size));
    TD_TRY(td_device_open(c->o.device, &c->dev));
    TD_TRY(td_amp_resolve(&c->o.amp, c->dev));
    TD_TRY(td_device_tune(c->dev, (td_tune_mode)c->o.tune, c->o.tune_cache));
    TD_TRY(td_judging_graph(&c->o.model, 1, 0, false, &g));
    TD_OUT(td_compile(g, c->dev, &(td_compile_opts){ .amp = &c->o.amp }, &c->program));
    TD_OUT(td_weights_load(c->weights, c->o.weights, &(td_load_opts){ .use_ema = c->o.use_ema },
                           c->program));
out:
    td_graph_free(g);
    return st;
}

static td_status predict(classifier *c, const td_batch *b, td_prediction *p)
{
    td_type type;
    int best[10];
    TD_TRY(td_program_bind(c->program, "images", b->images));
    TD_TRY(td_program_run(c->program));
    const float *probability = td_program_output(c->program, "probabilities", &type);
    int classes = (int)type.dim[1];
    p->n = c->o.topk < classes ? c->o.topk : classes;
    td_top_k(probability, classes, p->n, best);
    for (int i = 0; i < classes; i++)
        if (!isfinite(probability[i]))
            return td_error(TD_EARG, "the network gives no finite probabilities for it (%s)",
                            td_amp_precision_name(&c->o.amp));
    for (int i = 0; i < p->n; i++) {
        p->label[i] = best[i];
        p->probability[i] = (double)probability[best[i]];
        snprintf(c->number[i], sizeof c->number[i], "class %d", best[i]);
        p->name[i] = best[i] < c->n_names ? c->names[best[i]] : c->number[i];
    }
    return TD_OK;
}

/* one file, by a loader of its own: its failure is its own */
static td_status classify_file(classifier *c, const char *path, td_prediction *p)
{
    td_status st = TD_OK;
    td_dataset *ds = NULL;
    td_loader *ld = NULL;
    const td_batch *b;
    const td_bad_picture *bad;
    td_input_opts in = { .interpolation = c->o.interpolation,
                         .workers = 1,
                         .prefetch = 1,
                         .ignore_orientation = c->o.ignore_orientation,
                         .max_bad = 1 };
    td_loader_opts lo = td_loader_opts_of(&in, &c->o.model, 1);
    TD_OUT(td_dataset_from_files(&path, 1, &ds));
    TD_OUT(td_loader_new(ds, &lo, &ld));
    TD_OUT(td_loader_next(ld, &b));
    if (b->n == 1)
        st = predict(c, b, p);
    else if (td_loader_bad(ld, &bad) > 0)
        st = td_error(TD_EFORMAT, "%s", bad[0].reason);
out:
    td_loader_free(ld);
    td_dataset_free(ds);
    return st;
}

td_status td_classify(const td_classify_opts *opts, int n_files, const char *const *files,
                      void (*each)(void *ctx, const td_prediction *p), void *ctx)
{
    td_status st = TD_OK;
    classifier c = { .o = *opts };
    TD_OUT(td_log_configure(opts->log ? opts->log : "error"));
    td_set_threads(opts->threads);
    TD_OUT(open_classifier(&c));
    for (int i = 0; i < n_files; i++) {
        td_prediction p = { .path = files[i] };
        p.st = classify_file(&c, files[i], &p);
        if (p.st == TD_ENOMEM || p.st == TD_EDEVICE)
            TD_OUT(p.st);
        p.message = p.st == TD_OK ? NULL : td_error_message();
        each(ctx, &p);
    }
out:
    release(&c);
    return st;
}
