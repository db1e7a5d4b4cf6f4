/*
 * nms.c -- non-maximum suppression: always exact, and memory-bound in the usual case
 *
 * Both references sort and suppress class by class and then merge.  Taking all candidates of all
 * classes in the order of the merged list, and comparing each with the boxes its class has kept so
 * far, gives the same list:
 *
 *     pick        the largest logits, about a thousand of a million (nms_pick.h)
 *     heap        by score, class, anchor; by score, since different logits may have equal scores
 *     take        decode the box, compare, keep; until there are `total`
 *
 * A candidate whose score equals that of the smallest picked logit may tie with values that were
 * not picked; it is taken only if all were picked.  If there are too few detections, more
 * candidates are picked and the search is repeated.
 */
#include "boxes/nms.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "boxes/decode.h"
#include "boxes/nms_pick.h"

#define WANTED_FIRST 1024
#define WANTED_MORE  16 /* factor from one round to the next */

/* A kept box.  The kept boxes of a class form a list. */
typedef struct {
    td_rect box;
    int32_t next; /* index into `kept`, or -1 */
} keeper;

typedef struct {
    int32_t first;     /* newest of its boxes, or -1 */
    int32_t n_counted; /* number of boxes that count for per_class */
} class_state;

struct td_nms {
    const td_anchors *anchors;
    const td_detector_rules *rules;
    int n_columns;
    td_picks picks;
    uint64_t *heap; /* largest first: the score's bits, then the position from the end */
    size_t n_heap, heap_cap;
    uint64_t *chosen; /* of all levels */
    size_t n_chosen, chosen_cap;
    keeper *kept;
    size_t n_kept, kept_cap;
    class_state *classes; /* [n_columns] */

    /* for the current image */
    const td_nms_opts *opts;
    const float *deltas;
    const td_rect *boxes; /* boxes instead of deltas, or NULL */
    float unit;           /* the image's side in the boxes' coordinates */
};

td_nms_opts td_nms_defaults(td_detector kind)
{
    return td_detector_rules_of(kind)->nms;
}

td_status td_nms_new(const td_anchors *anchors, int n_columns, td_nms **out)
{
    *out = NULL;
    if (n_columns < 2 || (int64_t)anchors->n * n_columns > INT32_MAX)
        return td_error(TD_EARG, "%d columns for each of %d anchors", n_columns, anchors->n);
    td_nms *m = TD_NEW(td_nms);
    if (!m)
        return TD_ENOMEM;
    m->anchors = anchors;
    m->n_columns = n_columns;
    m->rules = td_detector_rules_of(anchors->kind);
    m->classes = td_alloc((size_t)n_columns, sizeof *m->classes);
    if (!m->classes) {
        td_nms_free(m);
        return TD_ENOMEM;
    }
    *out = m;
    return TD_OK;
}

void td_nms_free(td_nms *m)
{
    if (!m)
        return;
    td_picks_release(&m->picks);
    td_free(m->heap);
    td_free(m->chosen);
    td_free(m->kept);
    td_free(m->classes);
    td_free(m);
}

/* --- the heap of candidates ------------------------------------------------------------------- */

/* Scores are positive here, so their bit patterns have the same order. */
static uint64_t key_of(float score, uint32_t place)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return (uint64_t)bits << 32 | ~place;
}

static float key_score(uint64_t key)
{
    const uint32_t bits = (uint32_t)(key >> 32);
    float score;
    memcpy(&score, &bits, sizeof score);
    return score;
}

static uint32_t key_place(uint64_t key)
{
    return ~(uint32_t)key;
}

static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    const uint64_t key = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && heap[child + 1] > heap[child];
        if (heap[child] <= key)
            break;
        heap[i] = heap[child];
    }
    heap[i] = key;
}

static void heap_build(td_nms *m)
{
    for (size_t i = m->n_heap / 2; i-- > 0;)
        sift_down(m->heap, m->n_heap, i);
}

static uint64_t heap_pop(td_nms *m)
{
    const uint64_t top = m->heap[0];
    m->heap[0] = m->heap[--m->n_heap];
    if (m->n_heap > 0)
        sift_down(m->heap, m->n_heap, 0);
    return top;
}

static td_status heap_add(td_nms *m, float score, int anchor, int column)
{
    if (m->n_heap == m->heap_cap)
        TD_TRY(td_reserve(&m->heap, &m->heap_cap, m->n_heap + 1, sizeof *m->heap));
    m->heap[m->n_heap++] =
        key_of(score, (uint32_t)column * (uint32_t)m->anchors->n + (uint32_t)anchor);
    return TD_OK;
}

/* --- taking ----------------------------------------------------------------------------------- */

static float clip(float v, float limit)
{
    return v < 0 ? 0 : v > limit ? limit : v;
}

/* clipped to the image; NaN stays */
static td_rect clipped(td_rect r, float unit)
{
    return (td_rect){ clip(r.ymin, unit), clip(r.xmin, unit), clip(r.ymax, unit),
                      clip(r.xmax, unit) };
}

static td_rect box_at(const td_nms *m, int anchor)
{
    const td_rect box =
        m->boxes ? m->boxes[anchor] : td_box_decode(m->anchors, anchor, m->deltas + 4 * anchor);
    return m->rules->clip == TD_CLIP_BEFORE ? clipped(box, m->unit) : box;
}

static bool is_a_box(td_rect r)
{
    return !isnan(r.ymin) && !isnan(r.xmin) && !isnan(r.ymax) && !isnan(r.xmax);
}

/* under SSD300's rule a pair without area suppresses too: 0 / 0 is not below the threshold */
static bool suppresses(const td_nms *m, td_rect a, td_rect b)
{
    const float limit = (float)m->opts->iou;
    if (!m->rules->equal_suppresses)
        return td_rect_iou(a, b) > limit;
    const float common = td_rect_common(a, b);
    return !(common / ((td_rect_area(a) + td_rect_area(b)) - common) < limit);
}

static bool is_suppressed(const td_nms *m, const class_state *c, td_rect box)
{
    for (int32_t i = c->first; i >= 0; i = m->kept[i].next)
        if (suppresses(m, m->kept[i].box, box))
            return true;
    return false;
}

static td_status add_kept_box(td_nms *m, class_state *c, td_rect box)
{
    if (m->n_kept == m->kept_cap)
        TD_TRY(td_reserve(&m->kept, &m->kept_cap, m->n_kept + 1, sizeof *m->kept));
    m->kept[m->n_kept] = (keeper){ box, c->first };
    c->first = (int32_t)m->n_kept++;
    return TD_OK;
}

/* in fractions of the image; false when nothing is left of a box that is clipped now */
static bool finish_box(const td_nms *m, td_rect *r)
{
    *r = td_rect_fraction(*r, m->unit);
    if (m->rules->clip != TD_CLIP_AFTER)
        return true;
    *r = clipped(*r, 1);
    return r->ymax > r->ymin && r->xmax > r->xmin && td_rect_area(*r) > 0;
}

/* processes one candidate; *is_found is true when it becomes a detection */
static td_status process_candidate(td_nms *m, uint64_t key, td_detection *found, bool *is_found)
{
    const int place = (int)key_place(key), column = place / m->anchors->n;
    const int anchor = place % m->anchors->n;
    class_state *c = &m->classes[column];
    const bool is_full = c->n_counted >= m->opts->per_class;

    *is_found = false;
    if (is_full)
        return TD_OK;
    td_rect box = box_at(m, anchor);
    if (!is_a_box(box))
        return TD_OK;
    c->n_counted += m->rules->limits_candidates;
    if (is_suppressed(m, c, box))
        return TD_OK;
    c->n_counted += !m->rules->limits_candidates;
    TD_TRY(add_kept_box(m, c, box));
    *is_found = finish_box(m, &box);
    *found = (td_detection){ box, key_score(key), column, anchor };
    return TD_OK;
}

/* Takes candidates with a score above `bound`, best first, until there are enough. */
static td_status process_candidates(td_nms *m, float bound, td_detection *found, int *n)
{
    *n = 0;
    m->n_kept = 0;
    for (int i = 0; i < m->n_columns; i++)
        m->classes[i] = (class_state){ .first = -1 };
    heap_build(m);
    while (m->n_heap > 0 && *n < m->opts->total && key_score(m->heap[0]) > bound) {
        bool is_found;
        TD_TRY(process_candidate(m, heap_pop(m), &found[*n], &is_found));
        *n += is_found;
    }
    return TD_OK;
}

/* --- scores by sigmoid ------------------------------------------------------------------------ */

/* in double, so that it is monotonic in the logit */
static float sigmoid(float x)
{
    return (float)(1 / (1 + exp(-(double)x)));
}

/* below this logit, no score is above `score` */
static float logit_floor(double score)
{
    if (score <= 0)
        return -INFINITY;
    if (score >= 1)
        return INFINITY;
    const double logit = log(score / (1 - score));
    return (float)(logit - 1e-3 - 1e-5 * fabs(logit));
}

static float score_of(float value, bool is_logit)
{
    return is_logit ? sigmoid(value) : value;
}

/* adds picked values of anchors from `first` on to the heap */
static td_status add_picked(td_nms *m, int first, bool is_logit)
{
    const float score_min = (float)m->opts->score_min;
    const uint32_t columns = (uint32_t)m->n_columns;
    m->n_heap = 0;
    for (size_t i = 0; i < m->picks.n; i++) {
        const int anchor = first + (int)(m->picks.at[i].index / columns);
        const int column = (int)(m->picks.at[i].index % columns);
        const float score = score_of(m->picks.at[i].value, is_logit);
        if (column > 0 && score > score_min)
            TD_TRY(heap_add(m, score, anchor, column));
    }
    return TD_OK;
}

/* adds the best candidates of the anchors from `first` to `end` - 1 to the chosen ones */
static td_status choose_of_level(td_nms *m, const float *values, bool is_logit, float floor,
                                 int first, int end)
{
    const size_t columns = (size_t)m->n_columns, count = (size_t)(end - first) * columns;
    const size_t limit = (size_t)m->rules->level_candidates, before = m->n_chosen;
    for (size_t wanted = 2 * limit;; wanted *= WANTED_MORE) {
        const td_picks *p = &m->picks;
        TD_TRY(td_picks_take(&m->picks, values + (size_t)first * columns, count, floor, wanted));
        TD_TRY(add_picked(m, first, is_logit));
        const float bound = p->is_all ? -INFINITY : score_of(p->least, is_logit);
        TD_TRY(td_reserve(&m->chosen, &m->chosen_cap, before + limit, sizeof *m->chosen));
        m->n_chosen = before;
        heap_build(m);
        while (m->n_heap > 0 && m->n_chosen < before + limit && key_score(m->heap[0]) > bound)
            m->chosen[m->n_chosen++] = heap_pop(m);
        if (p->is_all || m->n_chosen == before + limit)
            return TD_OK;
    }
}

/* as run_sigmoid, from the best candidates of each level */
static td_status run_levels(td_nms *m, const float *values, bool is_logit, float floor,
                            td_detection *found, int *n)
{
    const td_anchors *a = m->anchors;
    m->n_chosen = 0;
    for (int i = 0; i < a->n_levels; i++)
        TD_TRY(choose_of_level(m, values, is_logit, floor, i ? a->level_end[i - 1] : 0,
                               a->level_end[i]));
    TD_TRY(td_reserve(&m->heap, &m->heap_cap, m->n_chosen + 1, sizeof *m->heap));
    if (m->n_chosen)
        memcpy(m->heap, m->chosen, m->n_chosen * sizeof *m->heap);
    m->n_heap = m->n_chosen;
    return process_candidates(m, -INFINITY, found, n);
}

static td_status run_sigmoid(td_nms *m, const float *values, bool is_logit, td_detection *found,
                             int *n)
{
    const float score_min = (float)m->opts->score_min;
    const float floor = is_logit ? logit_floor(m->opts->score_min) : score_min;
    const size_t count = (size_t)m->anchors->n * (size_t)m->n_columns;

    if (m->rules->level_candidates)
        return run_levels(m, values, is_logit, floor, found, n);
    for (size_t wanted = WANTED_FIRST;; wanted *= WANTED_MORE) {
        const td_picks *p = &m->picks;
        TD_TRY(td_picks_take(&m->picks, values, count, floor, wanted));
        TD_TRY(add_picked(m, 0, is_logit));
        const float bound = p->is_all ? -INFINITY : score_of(p->least, is_logit);
        TD_TRY(process_candidates(m, bound, found, n));
        if (p->is_all || *n == m->opts->total)
            return TD_OK;
    }
}

/* --- scores by softmax ------------------------------------------------------------------------ */

/*
 * The softmax of one row.  A probability above score_min requires a logit within -ln(score_min) of
 * the row's largest, so most rows, where the background is far ahead, need no exponentials.  With a
 * NaN sum, no score is above the threshold.
 */
static td_status add_row(td_nms *m, int anchor, const float *x, float reach)
{
    const float score_min = (float)m->opts->score_min, bound = x[0] - reach;
    int is_near = 0;
    for (int c = 1; c < m->n_columns; c++)
        is_near |= x[c] >= bound;
    if (!is_near)
        return TD_OK;

    float max = x[0];
    double sum = 0;
    for (int c = 1; c < m->n_columns; c++)
        max = x[c] > max ? x[c] : max;
    for (int c = 0; c < m->n_columns; c++)
        sum += (double)expf(x[c] - max);
    for (int c = 1; c < m->n_columns; c++) {
        if (!(x[c] >= max - reach))
            continue;
        const float score = (float)((double)expf(x[c] - max) / sum);
        if (score > score_min)
            TD_TRY(heap_add(m, score, anchor, c));
    }
    return TD_OK;
}

static td_status run_softmax(td_nms *m, const float *values, bool is_logit, td_detection *found,
                             int *n)
{
    const double score_min = m->opts->score_min;
    const float reach = score_min > 0 ? (float)(1e-3 - log(score_min)) : INFINITY;

    m->n_heap = 0;
    for (int i = 0; i < m->anchors->n; i++) {
        const float *x = values + (size_t)i * (size_t)m->n_columns;
        if (is_logit)
            TD_TRY(add_row(m, i, x, reach));
        for (int c = 1; c < m->n_columns && !is_logit; c++)
            if (x[c] > (float)score_min)
                TD_TRY(heap_add(m, x[c], i, c));
    }
    return process_candidates(m, -INFINITY, found, n);
}

static void reverse(td_detection *found, int n)
{
    for (int i = 0; i < n / 2; i++) {
        const td_detection d = found[i];
        found[i] = found[n - 1 - i];
        found[n - 1 - i] = d;
    }
}

/* --- all -------------------------------------------------------------------------------------- */

static td_status run(td_nms *m, const td_nms_opts *opts, const float *values, bool is_logit,
                     td_detection *found, int *n)
{
    *n = 0;
    if (opts->per_class < 1 || opts->per_class > TD_NMS_TOTAL_MAX || opts->total < 1 ||
        opts->total > TD_NMS_TOTAL_MAX)
        return td_error(TD_EARG, "%d detections of a class and %d in all, wanted 1 to %d",
                        opts->per_class, opts->total, TD_NMS_TOTAL_MAX);
    if (!(opts->score_min >= 0 && opts->iou >= 0))
        return td_error(TD_EARG, "score_min is %g and iou %g, wanted 0 or more", opts->score_min,
                        opts->iou);
    m->opts = opts;
    m->unit = m->boxes ? 1 : td_anchors_unit(m->anchors);
    TD_TRY(m->rules->is_softmax ? run_softmax(m, values, is_logit, found, n)
                                : run_sigmoid(m, values, is_logit, found, n));
    if (opts->worst_first)
        reverse(found, *n);
    return TD_OK;
}

td_status td_nms_run(td_nms *m, const td_nms_opts *opts, const float *deltas, const float *logits,
                     td_detection *found, int *n)
{
    m->deltas = deltas;
    m->boxes = NULL;
    return run(m, opts, logits, true, found, n);
}

td_status td_nms_run_scores(td_nms *m, const td_nms_opts *opts, const td_rect *boxes,
                            const float *scores, td_detection *found, int *n)
{
    m->deltas = NULL;
    m->boxes = boxes;
    return run(m, opts, scores, false, found, n);
}
