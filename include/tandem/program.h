/*
 * tandem/program.h -- compile a graph for a device and run it
 *
 * A program is a compiled graph: ops are fused, layouts and kernels chosen, memory is planned.
 * Compiling is slow and may fail. Running allocates no memory.
 *
 *     td_device *dev;   td_program *p;
 *     TD_TRY(td_device_open("cpu", &dev));
 *     TD_TRY(td_compile(graph, dev, &(td_compile_opts){ 0 }, &p));
 *     TD_TRY(td_program_init(p, 1));
 *     TD_TRY(td_program_bind(p, "images", images));
 *     TD_TRY(td_program_run(p));
 *     const float *logits = td_program_output(p, "logits", NULL);
 *     td_program_free(p);
 *     td_device_close(dev);
 *
 * A device may serve several programs, one at a time (see td_compile_opts.share for an exception);
 * a program belongs to one thread.
 */
#ifndef TD_PROGRAM_H
#define TD_PROGRAM_H

#include "tandem/amp.h"
#include "tandem/device.h"
#include "tandem/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_program td_program;

/**
 * Call this first in main(): it sets how waiting threads behave. The OpenMP runtime reads its
 * settings when it is loaded, and its default is to spin for a long time, which costs a factor of
 * three if another process is busy. If neither OMP_WAIT_POLICY nor GOMP_SPINCOUNT is set,
 * GOMP_SPINCOUNT is set in the environment, to 5000 for up to 32 threads and more for larger
 * teams, and the program executes itself again with `argv`, once. This function also ignores
 * SIGXFSZ, so that a write beyond the file size limit is an error, has SIGINT, SIGTERM, SIGHUP
 * and SIGUSR1 remove files that are not complete before they end the process, and releases the
 * calling thread from the processors to which OMP_PROC_BIND bound it: they are for compute
 * threads.
 */
TD_API void td_process_setup(char **argv);

/**
 * Resolve the defaults in `opts`: options with default values are set from the environment
 * (TANDEM_AMP, TANDEM_AMP_LEVEL, ..., and TensorFlow's variables). If the half type is not set,
 * convolutions are measured on `dev` and the choice is logged. Afterwards precision is 1, 2 or 3.
 * TD_EUSAGE: options contradict each other or name an unknown op; TD_EARG: a variable has an
 * invalid value.
 */
TD_API TD_CHECKED td_status td_amp_resolve(td_amp_opts *opts, td_device *dev);

/** Options of td_compile. All zero: all passes run, nothing is dumped. */
typedef struct {
    const td_amp_opts *amp; /* resolved; NULL: from the environment (TANDEM_AMP=1) */
    const char *skip;       /* passes to skip, "fuse,layout"; NULL: none */
    const char *dump_after; /* passes whose result is dumped, "fuse,layout" or "all"; NULL: none */
    void (*dump)(void *ctx, const char *pass, const char *text); /* NULL: to the log */
    void *dump_ctx;

    /*
     * A program of the same device with which this one shares memory; NULL: none.  Parameters with
     * the same name, type and layout, and what is computed from them alone by the same operations,
     * exist once, and both use the same memory for activations if that of `share` is large enough:
     * compile the largest batch first.  So an output is valid until the next run of any of them,
     * which run one at a time, and to set a parameter sets it for all; those that have another
     * layout here are set by themselves.  The programs may be freed in any order.
     *
     * With own_activations it has memory of its own for activations.  Two such programs may run at
     * once, each in a thread of its own, after td_program_release_params of both.
     */
    td_program *share;
    bool own_activations;

    /* Memory limit of the program in bytes: parameters and all planned values; 0: no limit. A
       plan that needs more is reduced by recomputing values, which costs time and does not
       change a bit of the results. */
    int64_t memory_limit;
    int64_t *least_bytes; /* receives the least possible limit if it is too small; or NULL */

    /* How often the program will run: TD_TUNE_QUICK measures for at most 3 % of the time that this
       takes.  0: not known, nothing is measured; with `memory_limit` neither. */
    int64_t planned_runs;

    /* The program is for a batch of so many times the rows of `g`, and computes them one after the
       other: dimension 0 of each input and output is rows.  On a device that computes in the
       host's memory.  0, 1: `g` has the whole batch. */
    int micro_batches;

    /* So many of them at the same time, each by one thread, with as many times the memory for
       activations; a divisor of micro_batches.  0, 1: one at a time, by all threads. */
    int lanes;
} td_compile_opts;

/**
 * Compile `g` for `dev`.  `g` is borrowed for the call only, `dev` is kept; the caller owns *out.
 *
 *   TD_ESHAPE     the graph does not verify; the message names the first bad node
 *   TD_ENOKERNEL  a node has no kernel on `dev`; the message gives the reason of each kernel
 *   TD_ENOMEM     the plan does not fit into `memory_limit` or the available memory; the message
 *                 gives the bytes needed
 *   TD_EUSAGE     `skip` or `dump_after` names no pass
 *   TD_EARG       `share` is of another device, it or `g` changes parameters, or it has released
 *                 some; or `g` cannot be run in micro-batches
 */
TD_API TD_CHECKED td_status td_compile(const td_graph *g, td_device *dev,
                                       const td_compile_opts *opts, td_program **out);

/** Release `p` and its memory.  NULL is fine. */
TD_API void td_program_free(td_program *p);

/**
 * Initialize every parameter by its init attribute; the same seed gives the same bits on every
 * machine.
 */
TD_API TD_CHECKED td_status td_program_init(td_program *p, uint64_t seed);

/** Feed an input from `data` (plain order), borrowed until it is bound again or `p` is freed. */
TD_API TD_CHECKED td_status td_program_bind(td_program *p, const char *input, const void *data);

/** Has it an input with this name? */
TD_API bool td_program_has_input(const td_program *p, const char *input);

/** Run once.  TD_EARG: an input was never bound; TD_EDEVICE: a kernel failed, by name. */
TD_API TD_CHECKED td_status td_program_run(td_program *p);

/**
 * td_program_run in two parts: a device that queues its work computes between them.  Inputs must
 * not change before the run is finished.
 */
TD_API TD_CHECKED td_status td_program_start(td_program *p);
TD_API TD_CHECKED td_status td_program_finish(td_program *p);

/**
 * Between the two: copy the data that `input` will be bound to in the next run, while this one
 * computes.  It must not change until that run has finished.  If the next run's input is bound to
 * other memory, nothing is lost but time.  Does nothing on a device without memory of its own, and
 * with data NULL.
 */
TD_API TD_CHECKED td_status td_program_send_ahead(td_program *p, const char *input,
                                                  const void *data);

/**
 * Do not copy this output from a device with memory of its own in later runs: td_program_output
 * may return NULL for it.
 */
TD_API void td_program_skip_output(td_program *p, const char *name);

/**
 * An output's elements in plain order, valid until the next run; NULL when there is no such output.
 */
TD_API const void *td_program_output(const td_program *p, const char *name, td_type *type);

/** How many micro-batches a run computes; 1 without td_compile_opts.micro_batches. */
TD_API int td_program_micro_batches(const td_program *p);

/** How many of them at the same time; 1 without td_compile_opts.lanes. */
TD_API int td_program_lanes(const td_program *p);

/** Parameters, in the graph's order; half precision copies of weights are not included. */
TD_API int td_program_param_count(const td_program *p);
TD_API const char *td_program_param_name(const td_program *p, int i);
TD_API td_type td_program_param_type(const td_program *p, int i); /* plain */

/** The role of a parameter: "weight", "stat" or "momentum". */
TD_API const char *td_program_param_role(const td_program *p, int i);

/** Copy a parameter out or in, in plain order; its internal layout is converted. */
TD_API TD_CHECKED td_status td_program_get(td_program *p, const char *param, void *data);
TD_API TD_CHECKED td_status td_program_set(td_program *p, const char *param, const void *data);

/** Has it a value, given to this program or to one that shares it? */
TD_API bool td_program_param_is_set(const td_program *p, int i);

/**
 * Free the memory of parameters that no run reads, such as filters whose transformed copies are
 * used: for inference, after all parameters were set.  What is computed from them is computed now.
 * Shared memory is freed when all of its programs have called this.  Parameters of these programs
 * cannot be set afterwards, those that were freed cannot be read (TD_EARG).
 */
TD_API TD_CHECKED td_status td_program_release_params(td_program *p);

/* --- looking inside --------------------------------------------------------------------------- */

typedef struct {
    const char *label;  /* "layer2.0.conv1"; valid until the next report */
    const char *op;     /* "conv2d" */
    const char *kernel; /* "dnnl_conv" */
    const char *impl;   /* the library's name of its implementation, or "" */
    const char *text;   /* the node as the graph's text form shows it */
    const char *why;    /* the kernels that do not accept the node, with reasons; or "" */
    int64_t scratch_bytes;
    int64_t macs;
    int64_t bytes_read, bytes_written; /* of operands and results, by their types */
    double seconds;                    /* summed over the runs since td_program_profile(p, true) */
    bool is_setup;                     /* runs once after parameters change, not in every step */

    /* Nodes that one launch runs: their number and bytes are reported for the first of them, and 0
       for the others.  1: the node is launched by itself. */
    int n_together;
} td_node_report;

TD_API int td_program_node_count(const td_program *p);
TD_API td_node_report td_program_node(const td_program *p, int i);
TD_API void td_program_profile(td_program *p, bool on);
TD_API int64_t td_program_run_count(const td_program *p); /* since profiling was switched on */

/* On the monotonic clock. */
typedef struct {
    int64_t begin_ns, end_ns;
} td_span;

/** Seconds that node `i` took in the last profiled run, all micro-batches; 0: it did not run. */
TD_API double td_program_run_s(const td_program *p, int i);

/**
 * The time span of the last run of node `i`, or of the whole program with i = -1. Zeros if it was
 * not profiled or failed, or if the program was observed. With micro-batches, a node's is that of
 * the last of them.
 */
TD_API td_span td_program_span(const td_program *p, int i);

/**
 * Run one kernel `runs` times on the current contents of memory and return the best time; 0 for
 * nodes without a kernel and for updates. The program must have run before; its outputs are
 * undefined afterwards.
 */
TD_API TD_CHECKED td_status td_program_time(td_program *p, int i, int runs, double *best_s);

/** One result of a node, just computed. */
typedef struct {
    const char *name;  /* of the value, "conv1.weight" or a number */
    const char *label; /* of the node, "layer2.0.conv1" */
    const char *op;    /* "conv2d_grad_w" */
    td_type type;
    const void *data; /* in the type's layout; its padding is zero */
    int64_t bytes;
} td_observation;

/**
 * Call `each` in later runs for every input and parameter before the first node, and for every
 * result after its node, in order; NULL stops this. The memory is lent for the call.
 */
TD_API void td_program_observe(td_program *p, void (*each)(void *ctx, const td_observation *o),
                               void *ctx);

/**
 * Run once more and name the first input, parameter or result that has an element which is infinite
 * or NaN, "'%12' of conv2d_grad_w (layer1.0.conv2)", "" if there is none. Use this for a skipped
 * step: the run updates parameters like any other run.
 */
TD_API TD_CHECKED td_status td_program_find_nonfinite(td_program *p, char *text, size_t room);

typedef struct {
    int64_t param_bytes;      /* weights, statistics, momentum */
    int64_t activation_bytes; /* the planned memory of all other values */
    int64_t unplanned_bytes;  /* the size of activations without shared memory */
    int64_t peak_live_bytes;  /* most bytes alive at once: no plan can be smaller */
    int64_t scratch_bytes;    /* largest scratch of a kernel, part of activation_bytes */
    int64_t releasable_bytes; /* of param_bytes: what td_program_release_params would free */
    int64_t shared_bytes;     /* of param_bytes: in memory of programs compiled earlier */
    bool shares_activations;  /* activation_bytes are in memory of an earlier program */
    int64_t released_bytes;   /* of param_bytes: no longer needed by this program */
    int64_t held_bytes;       /* of all parameters and what is computed from them, in all programs
                                 that share: their memory now */
    int n_recomputed;         /* values recomputed because of a memory_limit */
    int64_t recomputed_macs;  /* multiply-accumulates of these per run */
    int64_t unlimited_bytes;  /* then: parameters and activations without the limit */
} td_memory_report;

TD_API td_memory_report td_program_memory(const td_program *p);

/** The graph as it runs, as text (td_text_free). */
TD_API TD_CHECKED td_status td_program_print(const td_program *p, char **out);

/** Names and one-line descriptions of backends; NULL past the end. */
TD_API const char *td_backend_name_at(int i, const char **description);

/** Names of the passes in order; NULL past the end. */
TD_API const char *td_pass_name_at(int i, const char **summary);

#ifdef __cplusplus
}
#endif
#endif
