/*
 * predictor.c -- compiles a weight file for several batch sizes and runs it
 *
 * A program has one batch size and one type of images.  Programs share weights, where their
 * kernels have the same layout, and those of a stream share the memory of activations, since they
 * run one at a time.  n rows are divided greedily: as many full batches of the largest size as fit,
 * then the rest by the next smaller size or padded to a larger one, whichever is faster by the
 * times of td_predictor_time.
 */
#include "inference/predictor.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/class_names.h"
#include "checkpoint/quantization.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"
#include "inference/inputs.h"
#include "io/safetensors.h"
#include "model/arch.h"
#include "optim/inference_program.h"
#include "optim/training_graph.h"
#include "runtime/device.h"
#include "runtime/process.h"
#include "tandem/program.h"

enum { TIMED_RUNS = 3 };

typedef struct {
    td_program *program;
    int batch;
    char *padded;   /* [batch] rows, made on first use */
    double seconds; /* duration of a run; 0: not measured */
} batch_program;

/* the programs for one type of images */
typedef struct {
    td_dtype dtype; /* u8 or f32 */
    size_t row_bytes;
    batch_program list[TD_PREDICTOR_SIZES]; /* in descending order of batch */
    int n;
} program_set;

/* the first set for what the transform makes; both have the same batches */
typedef struct {
    program_set sets[2];
} stream_programs;

struct td_predictor {
    td_predictor_opts o;
    td_tensors *weights; /* NULL once finished */
    td_quantization quantization;
    td_device *dev;
    td_detector detector;
    int n_classes;
    td_class_names names;   /* of a classifier */
    td_box_classes classes; /* of a detector */
    char name[64];          /* name of the network */
    td_transform transform;
    stream_programs *streams; /* [n_streams] */
    int n_streams, n_sets, threads;
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
    TD_TRY(td_model_check_resize(&p->o.model));
    p->transform = (td_transform){ .size = p->o.model.image_size,
                                   .padding = td_model_eval_padding(&p->o.model),
                                   .stored_orientation = p->o.stored_orientation };
    return td_transform_choose(&p->transform,
                               &(td_loader_opts){ .interpolation = p->o.interpolation,
                                                  .norm = p->o.model.norm,
                                                  .channels = td_model_channels(&p->o.model) });
}

static td_status set_up_detector(td_predictor *p)
{
    td_model_opts *m = &p->o.model;
    if (!p->o.takes_detectors)
        return td_error(TD_EUSAGE,
                        "'%s' contains weights of %s, a detector, which cannot classify images: "
                        "use 'tandem detect'",
                        p->o.weights, m->arch);
    TD_TRY(td_model_check_resize(m));
    if (!m->num_classes)
        m->num_classes = td_model_default_classes(m, 0);
    p->n_classes = m->num_classes;
    p->transform = (td_transform){ .size = m->image_size,
                                   .detector = p->detector,
                                   .stored_orientation = p->o.stored_orientation };
    return td_box_classes_read(p->weights, p->o.weights, m->num_classes, p->o.classes, &p->classes);
}

static void add_set(td_predictor *p, td_dtype dtype)
{
    const size_t row_bytes = td_transform_values(&p->transform) * td_dtype_bytes(dtype);
    for (int i = 0; i < p->n_streams; i++)
        p->streams[i].sets[p->n_sets] = (program_set){ .dtype = dtype, .row_bytes = row_bytes };
    p->n_sets++;
}

/* a GPU computes one batch after the other */
static td_status count_streams(td_predictor *p)
{
    const bool is_gpu = p->dev->memory == &td_gpu_memory;
    const int wanted = p->o.streams;
    p->threads = td_threads();
    if (wanted > 1 && is_gpu)
        return td_error(TD_EUSAGE, "--streams %d requires --device cpu", wanted);
    if (wanted > 1 && td_openmp_binds())
        return td_error(TD_EUSAGE,
                        "--streams %d and OMP_PROC_BIND exclude each other: OpenMP would bind the "
                        "threads of every stream to the same processors",
                        wanted);
    p->n_streams = wanted != TD_STREAMS_AUTO ? (wanted > 1 ? wanted : 1)
                   : is_gpu                  ? 1
                                             : td_streams_for(p->threads);
    td_stream_enter(p->threads, p->n_streams, 0);
    return TD_ALLOC(p->streams, (size_t)p->n_streams);
}

static td_status choose_dtypes(td_predictor *p)
{
    bool wants_bytes;
    TD_TRY(td_input_as_bytes(p->dev, &wants_bytes));
    p->transform.as_bytes = wants_bytes && td_transform_gives_bytes(&p->transform);
    if (p->transform.as_bytes)
        add_set(p, TD_DT_U8);
    if (!p->transform.as_bytes || p->o.takes_floats)
        add_set(p, TD_DT_F32);
    return TD_OK;
}

static td_status set_up(td_predictor *p)
{
    td_model_opts *m = &p->o.model;
    TD_TRY(td_weight_file_open_for(p->o.weights, p->o.use_ema, &p->o.model, &p->weights));
    td_weight_metadata_apply(p->weights, td_model_is_default(m), m);
    TD_TRY(td_weight_metadata_check(p->weights, p->o.weights, m));
    TD_TRY(td_weight_norm_apply(p->weights, p->o.weights, true, m));
    TD_TRY(td_quantization_apply(p->weights, p->o.weights, &p->o.amp, &p->quantization));
    TD_TRY(td_model_resolve_images(m));
    p->detector = td_model_detector(m);
    TD_TRY(p->detector ? set_up_detector(p) : set_up_classifier(p));
    td_model_name(m, p->name, sizeof p->name);
    TD_TRY(td_device_open(p->o.device.name, &p->dev));
    TD_TRY(count_streams(p));
    td_device_winograd(p->dev, p->o.device.winograd);
    p->dev->target.smallest_batch = p->o.smallest_batch;
    TD_TRY(td_amp_resolve(&p->o.amp, p->dev));
    TD_TRY(td_device_tune(p->dev, p->o.device.tune, p->o.device.tune_cache));
    return choose_dtypes(p);
}

bool td_predictor_is_multi_label(const td_predictor *p)
{
    return p->o.model.multi_label;
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

static void free_stream(stream_programs *s, int n_sets)
{
    for (int k = 0; k < n_sets; k++)
        for (int i = 0; i < s->sets[k].n; i++) {
            td_program_free(s->sets[k].list[i].program);
            td_free(s->sets[k].list[i].padded);
        }
}

void td_predictor_free(td_predictor *p)
{
    if (!p)
        return;
    for (int s = 0; p->streams && s < p->n_streams; s++)
        free_stream(&p->streams[s], p->n_sets);
    td_free(p->streams);
    td_device_close(p->dev);
    td_class_names_release(&p->names);
    td_box_classes_release(&p->classes);
    td_tensors_free(p->weights);
    td_quantization_release(&p->quantization);
    td_free(p);
}

/* --- programs --------------------------------------------------------------------------------- */

static td_status compile(td_predictor *p, const stream_programs *s, int batch, td_dtype dtype,
                         int64_t planned_runs, td_program **out)
{
    td_status st = TD_OK;
    td_type type;
    const td_inference_opts o = { .model = &p->o.model,
                                  .batch = batch,
                                  .norm =
                                      dtype == TD_DT_U8 ? td_transform_norm(&p->transform) : NULL };
    td_program *own = s->sets[0].list[0].program, *any = p->streams[0].sets[0].list[0].program;
    *out = NULL;
    const td_compile_opts c = { .amp = &p->o.amp,
                                .share = own ? own : any,
                                .own_activations = !own,
                                .planned_runs = planned_runs };
    TD_OUT(td_inference_compile(&o, p->dev, &c, out));
    TD_OUT(td_weights_load(
        p->weights, p->o.weights,
        &(td_load_opts){ .use_ema = p->o.use_ema, .keep_set = true, .model = &p->o.model }, *out));
    if (td_program_output(*out, "probabilities", &type))
        p->n_classes = (int)type.dim[1];
out:
    if (st != TD_OK) {
        td_program_free(*out);
        *out = NULL;
    }
    return st;
}

static td_status add_program(td_predictor *p, stream_programs *in, int k, int batch,
                             int64_t planned_runs)
{
    td_program *program;
    program_set *s = &in->sets[k];
    int at = 0;
    while (at < s->n && s->list[at].batch > batch)
        at++;
    if (at < s->n && s->list[at].batch == batch)
        return TD_OK;
    if (!p->weights)
        return td_error(TD_EARG,
                        "no batch size can be added: the predictor has released its weights");
    if (s->n == TD_PREDICTOR_SIZES)
        return td_error(TD_ELIMIT,
                        "programs for %d batch sizes are already compiled, which is the limit",
                        s->n);
    TD_TRY(compile(p, in, batch, s->dtype, planned_runs, &program));
    memmove(&s->list[at + 1], &s->list[at], (size_t)(s->n - at) * sizeof *s->list);
    s->list[at] = (batch_program){ .program = program, .batch = batch };
    s->n++;
    return TD_OK;
}

/* kernels are prepared for the number of threads of the stream */
td_status td_predictor_add_batch(td_predictor *p, int batch, int64_t planned_runs)
{
    td_status st = TD_OK;
    if (p->n_streams > 1) /* measured times are those of all threads */
        planned_runs = 0;
    for (int i = 0; i < p->n_streams && st == TD_OK; i++) {
        td_threads_use(td_predictor_threads(p, i));
        for (int k = 0; k < p->n_sets && st == TD_OK; k++)
            st = add_program(p, &p->streams[i], k, batch, planned_runs);
    }
    td_threads_use(td_predictor_threads(p, 0));
    return st;
}

td_status td_predictor_finish(td_predictor *p)
{
    td_tensors_free(p->weights);
    p->weights = NULL;
    /* they may point into the file's memory */
    p->o.model.arch = p->o.model.backbone = p->o.model.model_text = NULL;
    for (int s = 0; s < p->n_streams; s++)
        for (int k = 0; k < p->n_sets; k++)
            for (int i = 0; i < p->streams[s].sets[k].n; i++)
                TD_TRY(td_program_release_params(p->streams[s].sets[k].list[i].program));
    return TD_OK;
}

static void add_memory(const program_set *s, td_predictor_bytes *sum)
{
    for (int i = 0; i < s->n; i++) {
        const td_memory_report m = td_program_memory(s->list[i].program);
        sum->params = m.held_bytes; /* of all */
        sum->activations += m.shares_activations ? 0 : m.activation_bytes;
    }
}

td_predictor_bytes td_predictor_memory(const td_predictor *p)
{
    td_predictor_bytes sum = { 0 };
    for (int s = 0; s < p->n_streams; s++)
        for (int k = 0; k < p->n_sets; k++)
            add_memory(&p->streams[s].sets[k], &sum);
    return sum;
}

int td_predictor_streams(const td_predictor *p)
{
    return p->n_streams;
}

int td_predictor_threads(const td_predictor *p, int stream)
{
    return td_stream_threads(p->threads, p->n_streams, stream);
}

void td_predictor_enter(const td_predictor *p, int stream)
{
    td_stream_enter(p->threads, p->n_streams, stream);
}

/* --- running ---------------------------------------------------------------------------------- */

/* Pad the rows with zeros to a full batch. */
static td_status pad(batch_program *k, size_t row_bytes, const void **images, int n)
{
    if (n == k->batch)
        return TD_OK;
    if (!k->padded)
        k->padded = td_alloc((size_t)k->batch, row_bytes);
    if (!k->padded)
        return TD_ENOMEM;
    const size_t used = (size_t)n * row_bytes, all = (size_t)k->batch * row_bytes;
    memcpy(k->padded, *images, used);
    memset(k->padded + used, 0, all - used);
    *images = k->padded;
    return TD_OK;
}

static td_status run_one(batch_program *k, size_t row_bytes, const void *images, int n)
{
    TD_TRY(pad(k, row_bytes, &images, n));
    TD_TRY(td_program_bind(k->program, "images", images));
    return td_program_run(k->program);
}

static program_set *set_of(td_predictor *p, int stream, td_dtype dtype)
{
    for (int k = 0; k < p->n_sets; k++)
        if (p->streams[stream].sets[k].dtype == dtype)
            return &p->streams[stream].sets[k];
    return NULL;
}

/* Choose the program for the next of n remaining rows. */
static batch_program *choose(program_set *s, int n)
{
    int i = 0;
    while (i < s->n && s->list[i].batch > n)
        i++;
    if (i == 0 || (i < s->n && s->list[i].batch == n))
        return &s->list[i];
    batch_program *larger = &s->list[i - 1];
    if (i == s->n)
        return larger;
    batch_program *smaller = &s->list[i];
    double runs = (double)((n + smaller->batch - 1) / smaller->batch);
    return smaller->seconds > 0 && runs * smaller->seconds < larger->seconds ? smaller : larger;
}

td_status td_predictor_each(td_predictor *p, int stream, const void *images, td_dtype dtype, int n,
                            td_predictor_take *take, void *ctx)
{
    static const char *const names[2][2] = { { "logits", "probabilities" }, { "codes", "scores" } };
    const char *const *name = names[p->detector != TD_DETECTOR_NONE];
    program_set *s = set_of(p, stream, dtype);
    if (!s || !s->n)
        return td_error(TD_EARG, "no program is compiled");
    for (int from = 0; from < n;) {
        batch_program *k = choose(s, n - from);
        const int rows = n - from < k->batch ? n - from : k->batch;
        const char *row = (const char *)images + (size_t)from * s->row_bytes;
        TD_TRY(run_one(k, s->row_bytes, row, rows));
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

td_status td_predictor_run(td_predictor *p, const void *images, td_dtype dtype, int n,
                           float *logits, float *probabilities)
{
    copies c = { .classes = (size_t)p->n_classes, .to = { logits, probabilities } };
    return td_predictor_each(p, 0, images, dtype, n, copy, &c);
}

static td_status time_set(program_set *s)
{
    td_status st = TD_OK;
    const int largest = s->n ? s->list[0].batch : 0;
    void *images = td_alloc((size_t)largest, s->row_bytes);
    if (!images)
        return TD_ENOMEM;
    for (int i = 0; i < s->n; i++) {
        batch_program *k = &s->list[i];
        double best = 0;
        for (int r = 0; r <= TIMED_RUNS; r++) { /* the first run also prepares the weights */
            int64_t t0 = td_now_ns();
            TD_OUT(run_one(k, s->row_bytes, images, k->batch));
            double seconds = (double)(td_now_ns() - t0) * 1e-9;
            best = r == 1 || (r > 1 && seconds < best) ? seconds : best;
        }
        k->seconds = best;
    }
out:
    td_free(images);
    return st;
}

td_status td_predictor_time(td_predictor *p, int stream)
{
    for (int k = 0; k < p->n_sets; k++)
        TD_TRY(time_set(&p->streams[stream].sets[k]));
    return TD_OK;
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

td_dtype td_predictor_dtype(const td_predictor *p)
{
    return p->streams[0].sets[0].dtype;
}

const td_amp_opts *td_predictor_amp(const td_predictor *p)
{
    return &p->o.amp;
}
