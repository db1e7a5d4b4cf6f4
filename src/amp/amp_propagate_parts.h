/*
 * amp_propagate_parts.h -- internals of amp_propagate: the state of one propagation
 *
 *   amp_propagate_graph.c   checks the description, sorts edges, sets each vertex's property bits
 *   amp_propagate_lists.c   clusters of tensor-list ops
 *   amp_propagate.c         the steps, each a flood or a sweep over the bits
 *   amp_propagate_casts.c   placement of casts, their names, the messages
 */
#ifndef TD_AMP_AMP_PROPAGATE_PARTS_H
#define TD_AMP_AMP_PROPAGATE_PARTS_H

#include "amp/amp_propagate.h"

/* Bits of a vertex: properties, then results of the steps. */
enum {
    BIT_ALLOW_OP = 1 << 0,
    BIT_INFER_OP = 1 << 1,
    BIT_DENY_OP = 1 << 2,
    BIT_CLEAR_OP = 1 << 3,
    BIT_SOFT_OP = 1 << 4, /* infer or clear */
    BIT_ELIGIBLE = 1 << 5,
    BIT_F32 = 1 << 6,
    BIT_TYPE = 1 << 7,   /* passes the type test */
    BIT_KERNEL = 1 << 8, /* passes the kernel test */
    BIT_READ = 1 << 9,   /* its node reads a reference variable */
    BIT_ALLOWED = 1 << 11,
    BIT_DENIED = 1 << 12,
    BIT_DENY_PASSES = 1 << 13, /* deny may spread through it */
    BIT_DOWNSTREAM = 1 << 14,  /* downstream of an allow op */
    BIT_BETWEEN = 1 << 15,
    BIT_CAN_CHANGE = BIT_ELIGIBLE | BIT_F32 | BIT_TYPE | BIT_KERNEL
};

/* Edges sorted by one of their ends: those of vertex v are order[i], start[v] <= i < start[v+1]. */
typedef struct {
    int *start; /* [n_vertices + 1] */
    int *order; /* [n_edges] */
} td_amp_sorted;

typedef struct {
    int first, n;   /* range of members */
    bool is_unsafe; /* some of its lists come from or go to unknown ops */
} td_amp_cluster;

typedef struct {
    const td_amp_graph *g;
    const td_amp_propagate_opts *o;
    td_amp_propagate_result *r;
    td_arena scratch;
    uint32_t *bits;     /* [n_vertices] */
    td_amp_edge *edges; /* the graph's edges, then temporary ones, whose ports are -1 */
    int n_edges;
    td_amp_sorted out, in; /* out: also by port within a vertex */
    int *stack;            /* [n_vertices] */
    td_amp_cluster *clusters;
    int n_clusters;
    int *members; /* the float vertices of clusters' list ops */
} td_amp_propagation;

/** TD_EARG when the description is inconsistent. */
TD_CHECKED td_status td_amp_graph_check(const td_amp_graph *g);

/** Allocate arrays, set the property bits and sort the edges. */
TD_CHECKED td_status td_amp_propagation_begin(td_amp_propagation *p);

/** Sort p->edges again. */
TD_CHECKED td_status td_amp_propagation_sort(td_amp_propagation *p);

/** Find the clusters and add their temporary edges. */
TD_CHECKED td_status td_amp_find_clusters(td_amp_propagation *p);

/** Does the node read a reference variable (an identity after one, an enter after that)? */
bool td_amp_reads_variable(const td_amp_propagation *p, int node);

/** Place the casts and count them. */
TD_CHECKED td_status td_amp_place_casts(td_amp_propagation *p);

/** "auto_mixed_precision", ... */
const char *td_amp_pass_name(td_amp_mode mode);

/** Add a message to the result. */
TD_CHECKED td_status td_amp_log(td_amp_propagation *p, const char *fmt, ...) TD_PRINTF(2, 3);

#endif
