/*
 * predictor.c -- compiles a weight file for several batch sizes and runs it
 *
 * A program has one batch size and its own copy of the weights (in its kernels' layouts), so few
 * are kept.  n rows are divided greedily: as many full batches of the largest size as fit, then the
 * rest by the next smaller size or padded to a larger one, whichever is faster by the times of
 * td_predictor_time.
 */
#include "inference/predictor.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/class_names.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"
#include "inference/inputs.h"
#include "io/safetensors.h"
#include "model/arch.h"
#include "optim/training_graph.h"

enum { TIMED_RUNS = 3 };

typedef struct {
    td_program *program;
    int batch;
    float *padded;  /* [batch, 3, S, S], made on first use */
    double seconds; /* duration of a run; 0: not measured */
} batch_program;

struct td_predictor {
    td_predictor_opts o;
    td_tensors *weights; /* NULL once finished */
    td_device *dev;
    td_detector detector;
    int n_classes;
    td_class_names names;   /* of a classifier */
    td_box_classes classes; /* of a detector */
    char name[64];          /* name of the network */
    td_transform transform;
    size_t row_floats;                          /* 3 * S * S */
    batch_program programs[TD_PREDICTOR_SIZES]; /* in descending order of batch */
    int n_programs;
};

static td_status set_up_classifier(td_predictor *p)
{
    const td_class_names_opts names = { .weights = p->weights,
                                        .path = p->o.weights,
                                        .classes = p->o.classes,
                                        .model = &p->o.model,
                                        .n_outputs = td_class_names_outputs(&p->o.model) };
    TD_TRY(td_class_names_open(&names, &p->names));
    td_class_names_log(&p->names, p->o.weights);
    p->transform = (td_transform){ .size = p->o.model.image_size,
                                   .padding = 32,
                                   .stored_orientation = p->o.stored_orientation };
    return td_transform_choose(&p->transform,
                               &(td_loader_opts){ .interpolation = p->o.interpolation });
}

static td_status set_up_detector(td_predictor *p)
{
    td_model_opts *m = &p->o.model;
    if (!p->o.takes_detectors)
        return td_error(TD_EUSAGE,
                        "'%s' contains weights of %s, a detector, which cannot classify images: "
                        "use 'tandem detect'",
                        p->o.weights, m->arch);
    if (!m->num_classes)
        m->num_classes = td_model_default_classes(m, 0);
    p->n_classes = m->num_classes;
    p->transform = (td_transform){ .size = m->image_size,
                                   .detector = p->detector,
                                   .stored_orientation = p->o.stored_orientation };
    return td_box_classes_read(p->weights, p->o.weights, m->num_classes, p->o.classes, &p->classes);
}

static td_status set_up(td_predictor *p)
{
    td_model_opts *m = &p->o.model;
    TD_TRY(td_weight_file_open_as(p->o.weights, p->o.use_ema, &p->weights));
    td_weight_metadata_apply(p->weights, td_model_is_default(m), m);
    TD_TRY(td_weight_metadata_check(p->weights, p->o.weights, m));
    TD_TRY(td_model_image_size(m, &m->image_size));
    p->detector = td_model_detector(m);
    TD_TRY(p->detector ? set_up_detector(p) : set_up_classifier(p));
    td_model_name(m, p->name, sizeof p->name);
    p->row_floats = 3 * (size_t)m->image_size * (size_t)m->image_size;
    TD_TRY(td_device_open(p->o.device.name, &p->dev));
    TD_TRY(td_amp_resolve(&p->o.amp, p->dev));
    return td_device_tune(p->dev, p->o.device.tune, p->o.device.tune_cache);
}

td_status td_predictor_open(const td_predictor_opts *opts, td_predictor **out)
{
    *out = NULL;
    if (!opts->weights)
        return td_error(TD_EUSAGE, "requires --weights FILE");
    td_predictor *p = TD_NEW(td_predictor);
    if (!p)
        return TD_ENOMEM;
    p->o = *opts;
    td_status st = set_up(p);
    if (st == TD_OK)
        *out = p;
    else
        td_predictor_free(p);
    return st;
}

void td_predictor_free(td_predictor *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_programs; i++) {
        td_program_free(p->programs[i].program);
        td_free(p->programs[i].padded);
    }
    td_device_close(p->dev);
    td_class_names_release(&p->names);
    td_box_classes_release(&p->classes);
    td_tensors_free(p->weights);
    td_free(p);
}

/* --- programs --------------------------------------------------------------------------------- */

static td_status compile(td_predictor *p, int batch, td_program **out)
{
    td_status st = TD_OK;
    td_graph *g = NULL;
    td_type type;
    *out = NULL;
    TD_OUT(td_inference_graph(&p->o.model, batch, 0, false, &g));
    TD_OUT(td_compile(g, p->dev, &(td_compile_opts){ .amp = &p->o.amp }, out));
    TD_OUT(td_weights_load(p->weights, p->o.weights,
                           &(td_load_opts){ .use_ema = p->o.use_ema, .model = &p->o.model }, *out));
    if (td_program_output(*out, "probabilities", &type))
        p->n_classes = (int)type.dim[1];
out:
    td_graph_free(g);
    if (st != TD_OK) {
        td_program_free(*out);
        *out = NULL;
    }
    return st;
}

td_status td_predictor_add_batch(td_predictor *p, int batch)
{
    td_program *program;
    int at = 0;
    for (int i = 0; i < p->n_programs; i++) {
        if (p->programs[i].batch == batch)
            return TD_OK;
        at += p->programs[i].batch > batch;
    }
    if (!p->weights)
        return td_error(TD_EARG,
                        "no batch size can be added: the predictor has released its weights");
    if (p->n_programs == TD_PREDICTOR_SIZES)
        return td_error(TD_ELIMIT,
                        "programs for %d batch sizes are already compiled, which is the limit",
                        p->n_programs);
    TD_TRY(compile(p, batch, &program));
    memmove(&p->programs[at + 1], &p->programs[at],
            (size_t)(p->n_programs - at) * sizeof *p->programs);
    p->programs[at] = (batch_program){ .program = program, .batch = batch };
    p->n_programs++;
    return TD_OK;
}

void td_predictor_finish(td_predictor *p)
{
    td_tensors_free(p->weights);
    p->weights = NULL;
    /* they may point into the file's memory */
    p->o.model.arch = p->o.model.backbone = p->o.model.model_text = NULL;
}

/* --- running ---------------------------------------------------------------------------------- */

/* Pad the rows with zeros to a full batch. */
static td_status pad(td_predictor *p, batch_program *k, const float **images, int n)
{
    if (n == k->batch)
        return TD_OK;
    if (!k->padded)
        k->padded = td_alloc((size_t)k->batch, p->row_floats * sizeof(float));
    if (!k->padded)
        return TD_ENOMEM;
    size_t used = (size_t)n * p->row_floats, all = (size_t)k->batch * p->row_floats;
    memcpy(k->padded, *images, used * sizeof(float));
    memset(k->padded + used, 0, (all - used) * sizeof(float));
    *images = k->padded;
    return TD_OK;
}

static td_status run_one(td_predictor *p, batch_program *k, const float *images, int n)
{
    TD_TRY(pad(p, k, &images, n));
    TD_TRY(td_program_bind(k->program, "images", images));
    return td_program_run(k->program);
}

/* Choose the program for the next of n remaining rows. */
static batch_program *choose(td_predictor *p, int n)
{
    int i = 0;
    while (i < p->n_programs && p->programs[i].batch > n)
        i++;
    if (i == 0 || (i < p->n_programs && p->programs[i].batch == n))
        return &p->programs[i];
    batch_program *larger = &p->programs[i - 1];
    if (i == p->n_programs)
        return larger;
    batch_program *smaller = &p->programs[i];
    double runs = (double)((n + smaller->batch - 1) / smaller->batch);
    return smaller->seconds > 0 && runs * smaller->seconds < larger->seconds ? smaller : larger;
}

td_status td_predictor_each(td_predictor *p, const float *images, int n, td_predictor_take *take,
                            void *ctx)
{
    static const char *const names[2][2] = { { "logits", "probabilities" }, { "codes", "scores" } };
    const char *const *name = names[p->detector != TD_DETECTOR_NONE];
    if (!p->n_programs)
        return td_error(TD_EARG, "no program is compiled");
    for (int from = 0; from < n;) {
        batch_program *k = choose(p, n - from);
        const int rows = n - from < k->batch ? n - from : k->batch;
        TD_TRY(run_one(p, k, images + (size_t)from * p->row_floats, rows));
        const float *const results[2] = { td_program_output(k->program, name[0], NULL),
                                          td_program_output(k->program, name[1], NULL) };
        TD_TRY(take(ctx, from, rows, results));
        from += rows;
    }
    return TD_OK;
}

/* The destination of a classifier's results. */
typedef struct {
    size_t classes;
    float *to[2]; /* NULL: not needed */
} copies;

static td_status copy(void *ctx, int from, int n, const float *const results[2])
{
    const copies *c = ctx;
    for (int i = 0; i < 2; i++)
        if (c->to[i])
            memcpy(c->to[i] + (size_t)from * c->classes, results[i],
                   (size_t)n * c->classes * sizeof(float));
    return TD_OK;
}

td_status td_predictor_run(td_predictor *p, const float *images, int n, float *logits,
                           float *probabilities)
{
    copies c = { .classes = (size_t)p->n_classes, .to = { logits, probabilities } };
    return td_predictor_each(p, images, n, copy, &c);
}

td_status td_predictor_time(td_predictor *p)
{
    td_status st = TD_OK;
    int largest = p->n_programs ? p->programs[0].batch : 0;
    float *images = td_alloc((size_t)largest, p->row_floats * sizeof(float));
    if (!images)
        return TD_ENOMEM;
    for (int i = 0; i < p->n_programs; i++) {
        batch_program *k = &p->programs[i];
        double best = 0;
        for (int r = 0; r <= TIMED_RUNS; r++) { /* the first run also prepares the weights */
            int64_t t0 = td_now_ns();
            TD_OUT(run_one(p, k, images, k->batch));
            double s = (double)(td_now_ns() - t0) * 1e-9;
            best = r == 1 || (r > 1 && s < best) ? s : best;
        }
        k->seconds = best;
    }
out:
    td_free(images);
    return st;
}

/* --- metadata --------------------------------------------------------------------------------- */

int td_predictor_classes(const td_predictor *p)
{
    return p->n_classes;
}

const char *td_predictor_class_name(const td_predictor *p, int i, char room[24])
{
    if (i < p->names.n)
        return p->names.names[i];
    snprintf(room, 24, "class %d", i);
    return room;
}

const char *td_predictor_name(const td_predictor *p)
{
    return p->name;
}

td_detector td_predictor_detector(const td_predictor *p)
{
    return p->detector;
}

const td_box_classes *td_predictor_box_classes(const td_predictor *p)
{
    return &p->classes;
}

const td_transform *td_predictor_transform(const td_predictor *p)
{
    return &p->transform;
}

const td_amp_opts *td_predictor_amp(const td_predictor *p)
{
    return &p->o.amp;
}
