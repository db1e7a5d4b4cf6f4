/*
 * gpu_ranks.c -- joins the GPUs of all ranks, and the memory of their sums
 *
 *     memory:  [ bucket 0 | bucket 1 | ... | starts of the buckets | the others' slices ]
 *
 * Sums run one after the other, so they share the memory for slices.
 */
#include "device/gpu_ranks.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "device/device_memory.h"
#include "device/gpu_plugin.h"
#include "ops/ops.h"

/* --- joining ---------------------------------------------------------------------------------- */

enum { WHY_BYTES = 400 };

/* what ranks tell each other before they join */
typedef struct {
    char uuid[sizeof((td_gpu_info *)0)->uuid]; /* of its GPU */
    char why[WHY_BYTES];                       /* it cannot join; "": it can */
} candidate;

static void describe_self(candidate *own)
{
    const char *why = td_gpu()->ranks_id(&(td_gpu_ranks_id){ NULL });
    *own = (candidate){ "", "" };
    memcpy(own->uuid, td_gpu_opened()->uuid, sizeof own->uuid);
    snprintf(own->why, sizeof own->why, "%s", why ? why : "");
}

static bool shares_gpu(const candidate *all, int r, int *with)
{
    for (*with = 0; *with < r; ++*with)
        if (memcmp(all[*with].uuid, all[r].uuid, sizeof all[r].uuid) == 0)
            return true;
    return false;
}

/* why these ranks cannot form a group: the same text on every rank; "": they can */
static void find_reason(const td_comm *c, candidate *all, char *why, size_t room)
{
    int with;
    why[0] = '\0';
    for (int r = 0; r < td_comm_size(c) && !why[0]; r++) {
        all[r].why[WHY_BYTES - 1] = '\0';
        td_text_make_printable(all[r].why);
        if (all[r].why[0])
            snprintf(why, room, "%s: %s", td_comm_name(c, r), all[r].why);
        else if (shares_gpu(all, r, &with))
            snprintf(why, room,
                     "%s and %s have one GPU: give each rank its own, or start fewer ranks",
                     td_comm_name(c, with), td_comm_name(c, r));
    }
}

static const char *check_ranks(void *ctx)
{
    return td_comm_check(ctx) == TD_OK ? NULL : td_error_message();
}

static td_status form_group(td_comm *c)
{
    char id[TD_GPU_RANKS_ID] = "";
    if (td_comm_rank(c) == 0)
        TD_TRY(td_gpu_status(td_gpu()->ranks_id(&(td_gpu_ranks_id){ id })));
    TD_TRY(td_comm_broadcast(c, id, sizeof id));
    return td_gpu_status(td_gpu()->ranks_join(&(td_gpu_ranks_join){ .id = id,
                                                                    .rank = td_comm_rank(c),
                                                                    .size = td_comm_size(c),
                                                                    .check = check_ranks,
                                                                    .ctx = c }));
}

td_status td_gpus_join(td_comm *c, bool must, bool *out)
{
    const bool is_fast = td_comm_wanted_allreduce(c)->mode == TD_ALLREDUCE_FAST;
    char why[WHY_BYTES + 2 * TD_RANK_NAME + 100];
    candidate own, *all;
    *out = false;
    describe_self(&own);
    TD_TRY(TD_ALLOC(all, (size_t)td_comm_size(c)));
    td_status st = td_comm_gather(c, &own, sizeof own, all);
    if (st == TD_OK)
        find_reason(c, all, why, sizeof why);
    td_free(all);
    TD_TRY(st);
    if (why[0] && is_fast)
        return td_error(TD_ENOTFOUND, "--allreduce fast on device cuda: %s", why);
    if (why[0] && must)
        return td_error(TD_ENOTFOUND, "sums between the ranks' GPUs: %s", why);
    if (why[0]) {
        if (td_comm_rank(c) == 0)
            td_log(TD_LOG_WARN, "ranks",
                   "gradients are summed in the host's memory, which is slower than between GPUs: "
                   "%s",
                   why);
        return TD_OK;
    }
    TD_TRY(form_group(c));
    td_log(TD_LOG_INFO, "ranks", "gradients are summed between GPUs, by NCCL%s",
           is_fast ? " in its own order" : ", in the order of the ranks");
    *out = true;
    return TD_OK;
}

void td_gpus_leave(bool with_others)
{
    const char *why = td_gpu()->ranks_leave(&(td_gpu_ranks_leave){ with_others });
    if (why)
        td_log(TD_LOG_WARN, "ranks", "%s", why);
}

/* --- buckets ---------------------------------------------------------------------------------- */

enum { LINE_FLOATS = 64 }; /* slices begin at multiples of 256 bytes */

typedef struct {
    int64_t first, count; /* numbers; count: with padding */
    void *sum;            /* the plug-in's */
    bool is_begun;        /* and not yet waited for */
} bucket;

struct td_gpu_sums {
    int n;
    bucket *buckets;
    int64_t total, largest; /* numbers of all buckets, and of one */
    td_dtype dtype;
    bool in_order, starts, skips;
    char *memory; /* as drawn above */
    size_t n_bytes;
};

static size_t start_offset(const td_gpu_sums *s)
{
    return (size_t)s->total * td_dtype_bytes(s->dtype);
}

static size_t others_offset(const td_gpu_sums *s)
{
    return start_offset(s) + (s->starts ? (size_t)s->total * sizeof(float) : 0);
}

td_dtype td_gpu_sums_dtype(const td_gpu_sums *s)
{
    return s->dtype;
}

void *td_gpu_sums_part(const td_gpu_sums *s, int b, int64_t at)
{
    return s->memory + (size_t)(s->buckets[b].first + at) * td_dtype_bytes(s->dtype);
}

void *td_gpu_sums_start(const td_gpu_sums *s, int b, int64_t at)
{
    return s->memory + start_offset(s) + (size_t)(s->buckets[b].first + at) * sizeof(float);
}

static td_dtype dtype_of(const td_allreduce_opts *o)
{
    if (o->mode != TD_ALLREDUCE_FAST)
        return TD_DT_F32;
    return o->dtype == TD_WIRE_FP16 ? TD_DT_F16 : o->dtype == TD_WIRE_BF16 ? TD_DT_BF16 : TD_DT_F32;
}

static td_status lay_out(td_gpu_sums *s, const int64_t *floats, int n_ranks)
{
    const int64_t line = (int64_t)LINE_FLOATS * n_ranks;
    TD_TRY(TD_ALLOC(s->buckets, (size_t)s->n));
    for (int b = 0; b < s->n; b++) {
        const int64_t count = (floats[b] + line - 1) / line * line;
        s->buckets[b] = (bucket){ .first = s->total, .count = count };
        s->total += count;
        s->largest = count > s->largest ? count : s->largest;
    }
    s->n_bytes = others_offset(s) + (s->in_order ? (size_t)s->largest * sizeof(float) : 0);
    s->memory = td_gpu_memory.alloc(s->n_bytes);
    if (!s->memory)
        return td_error_context(TD_ENOMEM, "buckets of sums over ranks");
    for (int b = 0; b < s->n; b++)
        TD_TRY(td_gpu_status(td_gpu()->sum_new(&(td_gpu_sum_new){ &s->buckets[b].sum })));
    return TD_OK;
}

int64_t td_gpu_sums_bytes(const td_graph *g, const td_comm *c)
{
    bool starts;
    const td_allreduce_opts *o = td_comm_wanted_allreduce(c);
    const int64_t floats = td_collective_floats(g, &starts);
    if (o->mode == TD_ALLREDUCE_FAST)
        return floats * (int64_t)td_dtype_bytes(dtype_of(o));
    return floats * (int64_t)sizeof(float) * (2 + starts);
}

td_status td_gpu_sums_new(const td_comm *c, int n, const int64_t *floats, bool starts,
                          td_gpu_sums **out)
{
    const td_allreduce_opts *o = td_comm_wanted_allreduce(c);
    *out = NULL;
    td_gpu_sums *s = TD_NEW(td_gpu_sums);
    if (!s)
        return TD_ENOMEM;
    s->n = n;
    s->dtype = dtype_of(o);
    s->in_order = o->mode == TD_ALLREDUCE_EXACT;
    s->starts = starts;
    const td_status st = lay_out(s, floats, td_comm_size(c));
    if (st == TD_OK)
        *out = s;
    else
        td_gpu_sums_free(s);
    return st;
}

td_status td_gpu_sums_open(const td_graph *g, const td_comm *c, td_gpu_sums **out)
{
    int64_t *floats;
    bool starts;
    int n;
    *out = NULL;
    TD_TRY(td_collective_buckets(g, &floats, &n));
    if (n == 0)
        return TD_OK;
    (void)td_collective_floats(g, &starts);
    const td_status st = td_gpu_sums_new(c, n, floats, starts, out);
    td_free(floats);
    return st;
}

void td_gpu_sums_free(td_gpu_sums *s)
{
    if (!s)
        return;
    if (s->memory)
        td_gpu_memory.free(s->memory, s->n_bytes); /* waits for sums */
    for (int b = 0; s->buckets && b < s->n; b++)
        (void)td_gpu()->sum_free(&(td_gpu_sum_free){ s->buckets[b].sum });
    td_free(s->buckets);
    td_free(s);
}

/* --- in each run ------------------------------------------------------------------------------ */

td_status td_gpu_sums_begin(td_gpu_sums *s, int i)
{
    bucket *b = &s->buckets[i];
    if (s->skips)
        return TD_OK;
    const td_gpu_sum_begin a = { .sum = b->sum,
                                 .dtype = s->dtype,
                                 .count = b->count,
                                 .data = td_gpu_sums_part(s, i, 0),
                                 .in_order = s->in_order,
                                 .start = s->starts ? td_gpu_sums_start(s, i, 0) : NULL,
                                 .others = s->in_order
                                               ? (float *)(void *)(s->memory + others_offset(s))
                                               : NULL };
    b->is_begun = true;
    return td_gpu_status(td_gpu()->sum_begin(&a));
}

td_status td_gpu_sums_wait(td_gpu_sums *s, int i)
{
    bucket *b = &s->buckets[i];
    if (!b->is_begun) /* the first of its parts has waited */
        return TD_OK;
    b->is_begun = false;
    return td_gpu_status(td_gpu()->sum_wait(&(td_gpu_sum_wait){ b->sum }));
}

void td_gpu_sums_skip(td_gpu_sums *s, bool skips)
{
    s->skips = skips;
}
