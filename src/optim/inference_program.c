/*
 * inference_program.c -- the inference graph of a batch, or of a micro-batch of it
 */
#include "optim/inference_program.h"

#include "base/log.h"
#include "base/machine.h"
#include "base/text.h"
#include "optim/training_graph.h"
#include "pass/pass.h"
#include "runtime/device.h"
#include "runtime/micro_batch.h"

enum { TILES_CACHE_BYTES = 16 << 20 }; /* of a thread's share of the last level, as float32 */

/* the graph with neighbours fused as they will be, whose inner tensors are not written to memory;
   NULL on failure */
static td_graph *fused(const td_graph *g, const td_device *dev, const char *skip)
{
    static const td_pass *const passes[] = { &td_pass_decompose, &td_pass_fold, &td_pass_fuse,
                                             &td_pass_inverted_residual };
    td_graph *now = NULL, *next = NULL;
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++) {
        if (td_text_in_list(skip, passes[i]->name))
            continue;
        const td_status st = td_pass_run(passes[i], now ? now : g, &dev->target, NULL, &next);
        td_graph_free(now);
        now = next;
        if (st != TD_OK)
            return NULL;
    }
    return now;
}

/*
 * The caches that may hold the activations of a layer, smallest first, in bytes of the graph's
 * float32; their number.
 *
 * Products of 8-bit integers take so little time that reading activations from the last level is
 * much of it, and they are a quarter of the size.  Where the L2 caches hold too few images, the
 * last level shall hold the weights and residuals, too.  In the tiles of AMX they take so little
 * time that reading the weights again for every micro-batch costs more than it saves.
 *
 * Processors with AMX share a last level among dozens of cores, of which a virtual machine sees all
 * and gets its part.  There ResNet-50 in bfloat16 is fastest with 8 images on 2 processors.
 */
static int caches_for(const td_compile_opts *opts, int64_t bytes[2])
{
    const bool is_int8 = opts->amp && opts->amp->precision == TD_PRECISION_INT8;
    const bool is_bf16 = opts->amp && opts->amp->precision == TD_PRECISION_BF16;
    const int64_t each = (int64_t)sizeof(float), last = td_cache_bytes();
    const bool has_tiles = td_cpu_bf16_rate() >= TD_BF16_RATE_MATRICES;
    if (!is_int8 || has_tiles) {
        const int64_t part = (int64_t)TILES_CACHE_BYTES * td_threads();
        bytes[0] = has_tiles && is_bf16 && part < last ? part : last;
        return 1;
    }
    bytes[0] = each * td_core_cache_bytes();
    bytes[1] = each * last / 2 > bytes[0] ? each * last / 2 : bytes[0];
    return 2;
}

/* that of what will be run; the whole batch on failure */
static td_batch_division division_for(const td_inference_opts *o, const td_device *dev,
                                      const td_graph *g, const td_compile_opts *opts)
{
    td_batch_division d = { o->batch, 1 };
    int64_t caches[2];
    const int n_caches = caches_for(opts, caches);
    td_graph *f = fused(g, dev, opts->skip);
    if (!f)
        td_error_clear();
    else
        d = td_micro_batch_of(f, o->batch, caches, n_caches, td_threads());
    td_graph_free(f);
    return d;
}

/* *g, of the whole batch, becomes that of a micro-batch, if this is faster and the network can have
   another batch */
static td_batch_division divide(const td_inference_opts *o, const td_device *dev,
                                const td_compile_opts *opts, td_graph **g)
{
    const td_batch_division whole = { o->batch, 1 };
    td_graph *smaller;
    if (o->is_whole || !dev->memory->is_host || o->batch == 1)
        return whole;
    const td_batch_division d = division_for(o, dev, *g, opts);
    if (d.rows == o->batch)
        return whole;
    if (td_inference_graph(o->model, d.rows, o->norm, &smaller) != TD_OK) {
        td_error_clear();
        return whole;
    }
    td_graph_free(*g);
    *g = smaller;
    td_log(TD_LOG_DEBUG, "inference",
           "a batch of %d is computed in micro-batches of %d, %d at once", o->batch, d.rows,
           d.lanes);
    return d;
}

td_status td_inference_compile(const td_inference_opts *o, td_device *dev,
                               const td_compile_opts *opts, td_program **out)
{
    td_graph *g = NULL;
    td_compile_opts c = *opts;
    *out = NULL;
    TD_TRY(td_inference_graph(o->model, o->batch, o->norm, &g));
    const td_batch_division d = divide(o, dev, opts, &g);
    c.micro_batches = o->batch / d.rows;
    c.lanes = d.lanes;
    const td_status st = td_compile(g, dev, &c, out);
    td_graph_free(g);
    return st;
}
