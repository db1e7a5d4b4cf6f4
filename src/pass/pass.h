/*
 * pass/pass.h -- the interface of a graph-to-graph pass, and the driver
 *
 * A pass reads the old graph and emits a new one; the old one is unchanged, so after a failure the
 * new graph's arena is simply discarded.  The driver does the common work: order, verification,
 * removal of dead nodes, dumps, timing, the log line.
 */
#ifndef TD_PASS_PASS_H
#define TD_PASS_PASS_H

#include "ir/rewrite.h"
#include "tandem/amp.h"

typedef struct {
    const char *name;    /* in options, dumps, logs and tests */
    const char *summary; /* one line for help */
    const char *counts;  /* what n_changed counts: "composites written out" */
    bool is_required;    /* cannot be skipped: the graph would not run without it */

    /* Rewrite one node, given its mapped operands; NULL: whole-graph pass. */
    void (*node)(td_rewriter *rw, const td_node *n, td_value **in);

    /* Whole-graph pass. */
    void (*run)(td_rewriter *rw);

    /* Create and free rw->state for node passes; may be NULL. */
    td_status (*begin)(td_rewriter *rw);
    void (*end)(td_rewriter *rw);
} td_pass;

typedef struct {
    const td_amp_opts *amp;                                      /* resolved; NULL: none */
    const char *skip;                                            /* "fuse,layout"; NULL for none */
    const char *dump_after;                                      /* "fuse", "all"; NULL for none */
    void (*dump)(void *ctx, const char *pass, const char *text); /* NULL: to the log */
    void *dump_ctx;

    /* called with the input graph of pass layout; NULL: none */
    td_status (*before_layout)(void *ctx, const td_graph *g, const char *skip);
    void *before_layout_ctx;

    /* receives the input graph of pass recompute, owned by the caller; NULL: not needed */
    td_graph **before_recompute;
} td_pass_opts;

extern const td_pass td_pass_decompose, td_pass_autocast, td_pass_grad, td_pass_fold, td_pass_amp,
    td_pass_tf32, td_pass_fuse, td_pass_norms, td_pass_gates, td_pass_quantize, td_pass_int8_ends,
    td_pass_linears, td_pass_attention, td_pass_winograd, td_pass_unfold, td_pass_inverted_residual,
    td_pass_layout, td_pass_clean, td_pass_copies, td_pass_order, td_pass_buckets,
    td_pass_multi_tensor, td_pass_recompute;

/** Passes in order; NULL past the end. */
const td_pass *td_pass_at(int i);

/** Run one pass on `g`; *out is a new verified graph.  `amp` may be NULL. */
td_status td_pass_run(const td_pass *pass, const td_graph *g, const td_target *target,
                      const td_amp_opts *amp, td_graph **out) TD_CHECKED;

/**
 * Run all passes.  `g` is borrowed.  TD_EUSAGE: `skip` or `dump_after` names an unknown pass, or a
 * required one is skipped.
 */
td_status td_pass_run_all(const td_graph *g, const td_target *target, const td_pass_opts *opts,
                          td_graph **out) TD_CHECKED;

/** TD_EUSAGE if `list` ("fuse,layout", or NULL) names an unknown pass. */
td_status td_pass_check_list(const char *list, const char *option, bool may_be_required) TD_CHECKED;

#endif
