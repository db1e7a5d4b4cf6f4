/*
 * targets.c -- matches anchors to ground truths, one row of overlaps at a time
 *
 *             anchors ->
 *   ground truth 0   iou  iou  iou     each column keeps its best row so far; on ties the lower row
 *   ground truth 1   iou  iou  iou     stays.  Each row claims its best column.
 *
 * The loops over anchors are plain so that the compiler vectorizes them; overlaps are not negative
 * or NaN here, so their bit patterns have the order of their values.
 * Source: Liu et al. 2016 (SSD), section 2.2.
 */
#include "boxes/targets.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "boxes/decode.h"
#include "boxes/detector_rules.h"

#define ENOUGH 0.5F

typedef struct {
    float *iou;     /* [n] IoU with the current ground truth */
    float *best;    /* [n] best IoU so far */
    int32_t *claim; /* [n] ground truth that claims the anchor, or -1 */
} matcher;

static size_t padded(int n)
{
    return td_round_up((size_t)n, TD_HOST_ALIGN / sizeof(float));
}

/* the three rows of a matcher, and td_targets_assign's match */
size_t td_targets_scratch_bytes(const td_anchors *a)
{
    return 4 * padded(a->n) * sizeof(float);
}

static matcher matcher_at(void *scratch, int n, int32_t *match)
{
    const size_t stride = padded(n);
    matcher m = { .iou = scratch };
    m.best = m.iou + stride;
    m.claim = (int32_t *)(void *)(m.best + stride);
    for (int i = 0; i < n; i++) {
        m.best[i] = 0;
        m.claim[i] = -1;
        match[i] = -1;
    }
    return m;
}

static void overlaps(const td_anchors *a, td_rect t, float *restrict iou)
{
    const float *restrict ymin = a->ymin, *restrict xmin = a->xmin, *restrict ymax = a->ymax;
    const float *restrict xmax = a->xmax, *restrict area = a->area;
    const float own = td_rect_area(t);

    for (int i = 0; i < a->n; i++) {
        float ih = (t.ymax < ymax[i] ? t.ymax : ymax[i]) - (t.ymin > ymin[i] ? t.ymin : ymin[i]);
        float iw = (t.xmax < xmax[i] ? t.xmax : xmax[i]) - (t.xmin > xmin[i] ? t.xmin : xmin[i]);
        ih = ih > 0 ? ih : 0;
        iw = iw > 0 ? iw : 0;
        const float common = ih * iw, share = common / ((own + area[i]) - common);
        iou[i] = share > 0 ? share : 0;
    }
}

/* updates the columns for which this row is the best so far */
static void update_best(const float *restrict iou, int n, int32_t row, float *restrict best,
                        int32_t *restrict match)
{
    for (int i = 0; i < n; i++) {
        const bool is_better = iou[i] > best[i];
        best[i] = is_better ? iou[i] : best[i];
        match[i] = is_better ? row : match[i];
    }
}

/* index of the first largest value */
static int best_of(const float *iou, int n)
{
    const char *bytes = (const char *)iou;
    int32_t max = 0, bits;
    for (int i = 0; i < n; i++) {
        memcpy(&bits, bytes + (size_t)i * sizeof bits, sizeof bits);
        max = bits > max ? bits : max;
    }
    for (int i = 0; i < n; i++) {
        memcpy(&bits, bytes + (size_t)i * sizeof bits, sizeof bits);
        if (bits == max)
            return i;
    }
    return 0;
}

static void claim_first(int32_t *claim, int row)
{
    if (*claim < 0)
        *claim = row;
}

static void assign_matches(const matcher *m, int n, bool equal_is_enough, int32_t *match)
{
    for (int i = 0; i < n; i++) {
        const bool is_enough = m->best[i] > ENOUGH || (equal_is_enough && m->best[i] == ENOUGH);
        match[i] = m->claim[i] >= 0 ? m->claim[i] : is_enough ? match[i] : -1;
    }
}

/* claims every anchor whose overlap is that of the best one */
static void claim_ties(const float *iou, int n, int row, int32_t *claim)
{
    const float most = iou[best_of(iou, n)];
    for (int i = 0; i < n && most > 0; i++)
        if (iou[i] == most)
            claim[i] = row;
}

/* claimed anchors keep their best ground truth, others if it overlaps enough */
static void assign_or_ignore(const matcher *m, int n, float ignored_from, int32_t *match)
{
    for (int i = 0; i < n; i++)
        if (m->claim[i] < 0 && m->best[i] < ENOUGH)
            match[i] = m->best[i] < ignored_from ? -1 : -2;
}

static bool is_usable(const td_detector_rules *rules, td_rect r)
{
    if (!isfinite(r.ymin) || !isfinite(r.xmin) || !isfinite(r.ymax) || !isfinite(r.xmax))
        return false;
    return !rules->has_areas || (r.ymax > r.ymin && r.xmax > r.xmin);
}

/* in the anchors' coordinates */
static td_rect in_units(td_rect r, float unit)
{
    return (td_rect){ r.ymin * unit, r.xmin * unit, r.ymax * unit, r.xmax * unit };
}

void td_targets_match(const td_anchors *a, const td_ground_truth *ground_truths, int n,
                      void *scratch, int32_t *match)
{
    const td_detector_rules *rules = td_detector_rules_of(a->kind);
    const float unit = td_anchors_unit(a);
    const matcher m = matcher_at(scratch, a->n, match);

    if (rules->ground_truths && n > rules->ground_truths)
        n = rules->ground_truths;
    for (int row = 0; row < n; row++) {
        if (!is_usable(rules, ground_truths[row].box))
            continue;
        overlaps(a, in_units(ground_truths[row].box, unit), m.iou);
        update_best(m.iou, a->n, row, m.best, match);
        if (rules->claims_ties)
            claim_ties(m.iou, a->n, row, m.claim);
        else if (rules->first_claims)
            claim_first(&m.claim[best_of(m.iou, a->n)], row);
        else
            m.claim[best_of(m.iou, a->n)] = row;
    }
    if (rules->claims_ties)
        assign_or_ignore(&m, a->n, rules->ignored_from, match);
    else
        assign_matches(&m, a->n, rules->equal_is_enough, match);
}

int td_targets_assign(const td_anchors *a, const td_ground_truth *ground_truths, int n,
                      void *scratch, int64_t *labels, float *deltas)
{
    int n_matched = 0;
    int32_t *match = (int32_t *)scratch + 3 * padded(a->n);

    td_targets_match(a, ground_truths, n, scratch, match);
    memset(deltas, 0, 4 * (size_t)a->n * sizeof *deltas);
    for (int i = 0; i < a->n; i++) {
        labels[i] = match[i] == -2 ? -1 : 0;
        if (match[i] < 0)
            continue;
        labels[i] = ground_truths[match[i]].label;
        td_box_encode(a, i, ground_truths[match[i]].box, deltas + 4 * (size_t)i);
        n_matched++;
    }
    return n_matched;
}

void td_targets_argmax(const float *iou, const bool *valid, int n, int n_anchors, void *scratch,
                       int32_t *match)
{
    const matcher m = matcher_at(scratch, n_anchors, match);

    for (int row = 0; row < n; row++) {
        const float *overlap = iou + (size_t)row * (size_t)n_anchors;
        update_best(overlap, n_anchors, row, m.best, match);
        if (!valid || valid[row])
            claim_first(&m.claim[best_of(overlap, n_anchors)], row);
    }
    assign_matches(&m, n_anchors, true, match);
}
