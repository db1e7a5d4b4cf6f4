/*
 * coco_metrics.c -- computes COCO's metrics: matches detections, then averages precision
 *
 * For every class:
 *
 *     image by image           match detections by score, at most 100, with ground truths, for each
 *                              of 4 area ranges and 10 IoU thresholds
 *     all images, by score     running counts of true and false positives -> precision at recalls
 *                              0, 0.01, .. 1, and the final recall
 *
 * A match has a bit for each threshold: `matched`: it found a ground truth; `ignored`: it counts
 * neither as true nor as false.  All arithmetic is float64 in the order of pycocotools, because
 * recalls must equal grid points exactly: 29 of 100 is a recall of 0.29 and not slightly less.
 *
 * Source: Lin et al. 2014, "Microsoft COCO"; agrees with pycocotools 2.0.11, cocoeval.py.
 */
#include "coco/coco_metrics.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { AREAS = 4, THRESHOLDS = 10, RECALLS = 101, MAX_DETECTIONS = 100 };

#define LARGEST 1e15 /* so that products of two are finite */

static const struct {
    double low, high; /* both inclusive */
} area_ranges[AREAS] = { { 0, 1e10 }, { 0, 32 * 32 }, { 32 * 32, 96 * 96 }, { 96 * 96, 1e10 } };

/* clang-format off */
static const struct {
    const char *key, *log_name;
    bool is_recall;
    int threshold;  /* index of the IoU threshold; -1: all */
    const char *iou;
    int area;       /* index into area_ranges */
    const char *area_name;
    int cap;        /* maximum detections per image and class */
} rows[TD_COCO_VALUES] = {
    { "AP",    "DetectionBoxes_Precision/mAP",          false, -1, "0.50:0.95", 0, "all",    100 },
    { "AP50",  "DetectionBoxes_Precision/mAP@.50IOU",   false,  0, "0.50",      0, "all",    100 },
    { "AP75",  "DetectionBoxes_Precision/mAP@.75IOU",   false,  5, "0.75",      0, "all",    100 },
    { "APs",   "DetectionBoxes_Precision/mAP (small)",  false, -1, "0.50:0.95", 1, "small",  100 },
    { "APm",   "DetectionBoxes_Precision/mAP (medium)", false, -1, "0.50:0.95", 2, "medium", 100 },
    { "APl",   "DetectionBoxes_Precision/mAP (large)",  false, -1, "0.50:0.95", 3, "large",  100 },
    { "AR1",   "DetectionBoxes_Recall/AR@1",            true,  -1, "0.50:0.95", 0, "all",      1 },
    { "AR10",  "DetectionBoxes_Recall/AR@10",           true,  -1, "0.50:0.95", 0, "all",     10 },
    { "AR100", "DetectionBoxes_Recall/AR@100",          true,  -1, "0.50:0.95", 0, "all",    100 },
    { "ARs",   "DetectionBoxes_Recall/AR@100 (small)",  true,  -1, "0.50:0.95", 1, "small",  100 },
    { "ARm",   "DetectionBoxes_Recall/AR@100 (medium)", true,  -1, "0.50:0.95", 2, "medium", 100 },
    { "ARl",   "DetectionBoxes_Recall/AR@100 (large)",  true,  -1, "0.50:0.95", 3, "large",  100 },
};
/* clang-format on */

/* The sort key of a ground truth or a detection: class, image, score, the caller's order. */
typedef struct {
    int64_t category, image;
    double score; /* 0 for ground truths */
    size_t at;    /* index in the caller's array */
} place;

/* The result of matching a detection; bit t is threshold t. */
typedef struct {
    int rank; /* rank within its image and class */
    uint16_t matched[AREAS], ignored[AREAS];
} match;

typedef struct {
    double score;
    size_t at; /* index into matches */
} ranked;

/* Precision at the recalls and the last recall of one class, area range and cap. */
typedef struct {
    double precision[THRESHOLDS]; /* sums over RECALLS */
    double recall[THRESHOLDS];
} curve;

typedef struct {
    const td_coco_ground_truth *ground_truths;
    const td_coco_detection *detections;
    bool box_areas;
    double thresholds[THRESHOLDS], recalls[RECALLS];
    place *ground_truth_order, *detection_order;
    size_t n_ground_truths, n_detections;

    /* one class: a match for each detection within the cap */
    match *matches;
    ranked *by_score;
    double *recall, *precision; /* [n_matches], in order of detection score */
    size_t n_matches;
    int64_t n_wanted[AREAS]; /* ground truths that count */

    /* one class in one image; its ground truths are numbered from 0 */
    double *iou;     /* [ground truths] of the current detection with each */
    uint16_t *taken; /* [AREAS, ground truths] bit t: matched at threshold t */
    size_t *walk;    /* [AREAS, ground truths] matching order: first those that count */
    size_t n_counting[AREAS];
    size_t iou_cap, taken_cap, walk_cap;
} work;

/* --- orders ----------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const place *p = a, *q = b;
    if (p->category != q->category)
        return p->category < q->category ? -1 : 1;
    if (p->image != q->image)
        return p->image < q->image ? -1 : 1;
    if (p->score != q->score)
        return p->score > q->score ? -1 : 1;
    return p->at < q->at ? -1 : p->at > q->at;
}

static int by_rank(const void *a, const void *b)
{
    const ranked *p = a, *q = b;
    if (p->score != q->score)
        return p->score > q->score ? -1 : 1;
    return p->at < q->at ? -1 : p->at > q->at;
}

static int by_id(const void *a, const void *b)
{
    int64_t p = *(const int64_t *)a, q = *(const int64_t *)b;
    return p < q ? -1 : p > q;
}

static td_status check_numbers(const char *what, size_t at, const double *v, int n)
{
    for (int i = 0; i < n; i++) {
        if (!(fabs(v[i]) <= LARGEST))
            return td_error(TD_ENUMERIC,
                            "%s %zu has the number %g, wanted one between -1e15 and 1e15", what, at,
                            v[i]);
    }
    return TD_OK;
}

static td_status sort_ground_truths(work *w)
{
    w->ground_truth_order =
        td_alloc(w->n_ground_truths ? w->n_ground_truths : 1, sizeof *w->ground_truth_order);
    if (!w->ground_truth_order)
        return TD_ENOMEM;
    for (size_t i = 0; i < w->n_ground_truths; i++) {
        const td_coco_ground_truth *t = &w->ground_truths[i];
        TD_TRY(check_numbers("truth", i, t->box, 4));
        TD_TRY(check_numbers("truth", i, &t->area, 1));
        w->ground_truth_order[i] = (place){ t->category, t->image, 0, i };
    }
    qsort(w->ground_truth_order, w->n_ground_truths, sizeof *w->ground_truth_order, by_place);
    return TD_OK;
}

static td_status sort_detections(work *w)
{
    w->detection_order = td_alloc(w->n_detections ? w->n_detections : 1, sizeof(place));
    if (!w->detection_order)
        return TD_ENOMEM;
    for (size_t i = 0; i < w->n_detections; i++) {
        const td_coco_detection *d = &w->detections[i];
        TD_TRY(check_numbers("detection", i, d->box, 4));
        TD_TRY(check_numbers("detection", i, &d->score, 1));
        w->detection_order[i] = (place){ d->category, d->image, d->score, i };
    }
    qsort(w->detection_order, w->n_detections, sizeof *w->detection_order, by_place);
    return TD_OK;
}

/* The first of n keys whose category is not below `category`. */
static size_t first_of(const place *p, size_t n, int64_t category)
{
    size_t low = 0;
    while (low < n) {
        size_t mid = low + (n - low) / 2;
        if (p[mid].category < category)
            low = mid + 1;
        else
            n = mid;
    }
    return low;
}

static size_t end_of(const place *p, size_t n, size_t first, int64_t category)
{
    return category == INT64_MAX ? n : first + first_of(p + first, n - first, category + 1);
}

/* --- one class in one image ----------------------------------------------------------------- */

static double box_area(const double box[4])
{
    return box[2] * box[3];
}

/* IoU of d and g [x, y, width, height]; if g is a crowd, intersection over d's area */
static double overlap(const double d[4], const double g[4], bool is_crowd)
{
    double width = fmin(d[2] + d[0], g[2] + g[0]) - fmax(d[0], g[0]);
    if (width <= 0)
        return 0;
    double height = fmin(d[3] + d[1], g[3] + g[1]) - fmax(d[1], g[1]);
    if (height <= 0)
        return 0;
    double shared = width * height, area = box_area(d);
    return shared / (is_crowd ? area : area + box_area(g) - shared);
}

static bool is_ignored(const work *w, const td_coco_ground_truth *t, int area)
{
    double pixels = w->box_areas ? box_area(t->box) : t->area;
    return t->is_crowd || pixels < area_ranges[area].low || pixels > area_ranges[area].high;
}

static void order_ground_truths(work *w, int area, const place *ground_truths,
                                size_t n_ground_truths)
{
    size_t *walk = w->walk + (size_t)area * n_ground_truths;
    size_t n_counting = 0, n = 0;
    for (size_t g = 0; g < n_ground_truths; g++)
        n_counting += !is_ignored(w, &w->ground_truths[ground_truths[g].at], area);
    for (size_t g = 0; g < n_ground_truths; g++) {
        bool counts = !is_ignored(w, &w->ground_truths[ground_truths[g].at], area);
        walk[counts ? n : n_counting + g - n] = g;
        n += counts;
    }
    w->n_counting[area] = n_counting;
    w->n_wanted[area] += (int64_t)n_counting;
}

/* The ground truth (its index in the walk) that the current detection matches; -1: none. */
static ptrdiff_t best_match(const work *w, int area, int t, const place *ground_truths,
                            size_t n_ground_truths)
{
    const size_t *walk = w->walk + (size_t)area * n_ground_truths, n_counting = w->n_counting[area];
    const uint16_t *taken = w->taken + (size_t)area * n_ground_truths;
    double best = fmin(w->thresholds[t], 1 - 1e-10);
    ptrdiff_t found = -1;
    for (size_t i = 0; i < n_ground_truths; i++) {
        size_t g = walk[i];
        if (taken[g] >> t & 1 && !w->ground_truths[ground_truths[g].at].is_crowd)
            continue;
        if (i >= n_counting && found >= 0 && (size_t)found < n_counting)
            break;
        if (w->iou[g] < best)
            continue;
        best = w->iou[g];
        found = (ptrdiff_t)i;
    }
    return found;
}

static void match_area(work *w, int area, const place *ground_truths, size_t n_ground_truths,
                       match *v)
{
    for (int t = 0; t < THRESHOLDS; t++) {
        ptrdiff_t i = best_match(w, area, t, ground_truths, n_ground_truths);
        if (i < 0)
            continue;
        size_t g = w->walk[(size_t)area * n_ground_truths + (size_t)i];
        w->taken[(size_t)area * n_ground_truths + g] |= (uint16_t)(1u << t);
        v->matched[area] |= (uint16_t)(1u << t);
        if ((size_t)i >= w->n_counting[area])
            v->ignored[area] |= (uint16_t)(1u << t);
    }
}

/* Fills iou; false: no overlap reaches the lowest threshold. */
static bool overlap_all(work *w, const double box[4], const place *ground_truths,
                        size_t n_ground_truths)
{
    bool is_any = false;
    for (size_t g = 0; g < n_ground_truths; g++) {
        const td_coco_ground_truth *t = &w->ground_truths[ground_truths[g].at];
        w->iou[g] = overlap(box, t->box, t->is_crowd);
        is_any = is_any || !(w->iou[g] < w->thresholds[0]);
    }
    return is_any;
}

static void match_detection(work *w, const double box[4], const place *ground_truths,
                            size_t n_ground_truths, match *v)
{
    if (overlap_all(w, box, ground_truths, n_ground_truths)) {
        for (int area = 0; area < AREAS; area++)
            match_area(w, area, ground_truths, n_ground_truths, v);
    }
    double pixels = box_area(box);
    for (int area = 0; area < AREAS; area++) {
        if (pixels < area_ranges[area].low || pixels > area_ranges[area].high)
            v->ignored[area] |= (uint16_t)~v->matched[area];
    }
}

static td_status match_image(work *w, const place *ground_truths, size_t n_ground_truths,
                             const place *detections, size_t n_detections)
{
    n_detections = n_detections < MAX_DETECTIONS ? n_detections : MAX_DETECTIONS;
    TD_TRY(td_reserve(&w->iou, &w->iou_cap, n_ground_truths, sizeof *w->iou));
    TD_TRY(td_reserve(&w->taken, &w->taken_cap, AREAS * n_ground_truths, sizeof *w->taken));
    TD_TRY(td_reserve(&w->walk, &w->walk_cap, AREAS * n_ground_truths, sizeof *w->walk));
    if (n_ground_truths)
        memset(w->taken, 0, AREAS * n_ground_truths * sizeof *w->taken);
    for (int area = 0; area < AREAS && n_ground_truths; area++)
        order_ground_truths(w, area, ground_truths, n_ground_truths);
    for (size_t d = 0; d < n_detections; d++) {
        match *v = &w->matches[w->n_matches];
        *v = (match){ .rank = (int)d };
        match_detection(w, w->detections[detections[d].at].box, ground_truths, n_ground_truths, v);
        w->by_score[w->n_matches] = (ranked){ detections[d].score, w->n_matches };
        w->n_matches++;
    }
    return TD_OK;
}

/* --- one class -------------------------------------------------------------------------------- */

static size_t same_image(const place *p, size_t n, int64_t image)
{
    size_t i = 0;
    while (i < n && p[i].image == image)
        i++;
    return i;
}

static td_status match_class(work *w, const place *ground_truths, size_t n_ground_truths,
                             const place *detections, size_t n_detections)
{
    w->n_matches = 0;
    memset(w->n_wanted, 0, sizeof w->n_wanted);
    while (n_ground_truths || n_detections) {
        int64_t image = !n_ground_truths                           ? detections->image
                        : !n_detections                            ? ground_truths->image
                        : detections->image < ground_truths->image ? detections->image
                                                                   : ground_truths->image;
        size_t g = same_image(ground_truths, n_ground_truths, image);
        size_t d = same_image(detections, n_detections, image);
        TD_TRY(match_image(w, ground_truths, g, detections, d));
        ground_truths += g;
        n_ground_truths -= g;
        detections += d;
        n_detections -= d;
    }
    qsort(w->by_score, w->n_matches, sizeof *w->by_score, by_rank);
    return TD_OK;
}

/* Fills recall and precision in order of score; returns the number of detections. */
static size_t run_counts(work *w, int area, int cap, int t)
{
    size_t n = 0;
    double right = 0, wrong = 0, wanted = (double)w->n_wanted[area];
    for (size_t i = 0; i < w->n_matches; i++) {
        const match *v = &w->matches[w->by_score[i].at];
        if (v->rank >= cap)
            continue;
        bool is_matched = v->matched[area] >> t & 1, counts = !(v->ignored[area] >> t & 1);
        right += counts && is_matched;
        wrong += counts && !is_matched;
        w->recall[n] = right / wanted;
        w->precision[n++] = right / (wrong + right + DBL_EPSILON);
    }
    return n;
}

static curve run_curve(work *w, int area, int cap)
{
    curve c = { { 0 }, { 0 } };
    for (int t = 0; t < THRESHOLDS; t++) {
        size_t n = run_counts(w, area, cap, t), at = 0;
        if (!n)
            continue;
        c.recall[t] = w->recall[n - 1];
        for (size_t i = n - 1; i > 0; i--) {
            if (w->precision[i] > w->precision[i - 1])
                w->precision[i - 1] = w->precision[i];
        }
        for (int r = 0; r < RECALLS; r++) {
            while (at < n && w->recall[at] < w->recalls[r])
                at++;
            if (at == n)
                break;
            c.precision[t] += w->precision[at];
        }
    }
    return c;
}

/* Mean over one threshold, or over all. */
static double mean_of(const curve *c, bool is_recall, int threshold)
{
    const double *v = is_recall ? c->recall : c->precision;
    double sum = 0;
    for (int t = 0; t < THRESHOLDS; t++)
        sum += threshold < 0 || t == threshold ? v[t] : 0;
    return sum / (is_recall ? 1 : RECALLS) / (threshold < 0 ? THRESHOLDS : 1);
}

/* The values of the class just matched; -1 where there are no ground truths. */
static void values_of_class(work *w, double value[TD_COCO_VALUES])
{
    curve c = { { 0 }, { 0 } };
    int area = -1, cap = -1;
    for (int i = 0; i < TD_COCO_VALUES; i++) {
        value[i] = -1;
        if (!w->n_wanted[rows[i].area])
            continue;
        if (rows[i].area != area || rows[i].cap != cap)
            c = run_curve(w, rows[i].area, rows[i].cap);
        area = rows[i].area;
        cap = rows[i].cap;
        value[i] = mean_of(&c, rows[i].is_recall, rows[i].threshold);
    }
}

/* --- all -------------------------------------------------------------------------------------- */

/* Ascending ids of the classes that count, each once. */
static td_status list_classes(const work *w, const td_coco_metrics_opts *opts, td_coco_metrics *out)
{
    size_t n = opts->n_categories ? opts->n_categories : w->n_ground_truths, n_ids = 0;
    td_status st = TD_OK;
    int64_t *ids = td_alloc(n ? n : 1, sizeof *ids);
    if (!ids)
        return TD_ENOMEM;
    for (size_t i = 0; i < n; i++)
        ids[i] = opts->n_categories ? opts->categories[i] : w->ground_truth_order[i].category;
    qsort(ids, n, sizeof *ids, by_id);
    for (size_t i = 0; i < n; i++) {
        if (!i || ids[i] != ids[n_ids - 1])
            ids[n_ids++] = ids[i];
    }
    out->classes = td_alloc(n_ids ? n_ids : 1, sizeof *out->classes);
    if (!out->classes)
        st = TD_ENOMEM;
    for (size_t i = 0; out->classes && i < n_ids; i++)
        out->classes[i].category = ids[i];
    out->n_classes = out->classes ? n_ids : 0;
    td_free(ids);
    return st;
}

/* Allocates for the class with most detections. */
static td_status make_room(work *w)
{
    size_t most = 1;
    for (size_t i = 0, n = 0; i < w->n_detections; i++) {
        n = i && w->detection_order[i].category == w->detection_order[i - 1].category ? n + 1 : 1;
        most = n > most ? n : most;
    }
    TD_TRY(TD_ALLOC(w->matches, most));
    TD_TRY(TD_ALLOC(w->by_score, most));
    TD_TRY(TD_ALLOC(w->recall, most));
    return TD_ALLOC(w->precision, most);
}

static td_status evaluate_class(work *w, td_coco_class *c, double value[TD_COCO_VALUES])
{
    const place *t = w->ground_truth_order, *d = w->detection_order;
    size_t first_t = first_of(t, w->n_ground_truths, c->category);
    size_t first_d = first_of(d, w->n_detections, c->category);
    size_t end_t = end_of(t, w->n_ground_truths, first_t, c->category);
    size_t end_d = end_of(d, w->n_detections, first_d, c->category);
    w->n_matches = 0;
    memset(w->n_wanted, 0, sizeof w->n_wanted);
    if (end_t > first_t) /* a class without ground truths does not count */
        TD_TRY(match_class(w, t + first_t, end_t - first_t, d + first_d, end_d - first_d));
    values_of_class(w, value);
    c->n_ground_truths = 0;
    for (size_t i = first_t; i < end_t; i++)
        c->n_ground_truths += !w->ground_truths[t[i].at].is_crowd;
    c->ap = value[TD_COCO_AP];
    c->ap50 = value[TD_COCO_AP50];
    c->ar100 = value[TD_COCO_AR100];
    return TD_OK;
}

static td_status evaluate_all(work *w, const td_coco_metrics_opts *opts, td_coco_metrics *out)
{
    double sum[TD_COCO_VALUES] = { 0 };
    int64_t n[TD_COCO_VALUES] = { 0 };
    TD_TRY(sort_ground_truths(w));
    TD_TRY(sort_detections(w));
    TD_TRY(list_classes(w, opts, out));
    TD_TRY(make_room(w));
    for (size_t k = 0; k < out->n_classes; k++) {
        double value[TD_COCO_VALUES];
        TD_TRY(evaluate_class(w, &out->classes[k], value));
        for (int i = 0; i < TD_COCO_VALUES; i++) {
            sum[i] += value[i] < 0 ? 0 : value[i];
            n[i] += value[i] >= 0;
        }
    }
    for (int i = 0; i < TD_COCO_VALUES; i++)
        out->value[i] = n[i] ? sum[i] / (double)n[i] : -1;
    return TD_OK;
}

/* numpy.linspace(0.5, 0.95, 10) and (0, 1, 101), bit-equal */
static void fill_grids(work *w)
{
    for (int t = 0; t < THRESHOLDS; t++)
        w->thresholds[t] = t == THRESHOLDS - 1 ? 0.95 : t * ((0.95 - 0.5) / (THRESHOLDS - 1)) + 0.5;
    for (int r = 0; r < RECALLS; r++)
        w->recalls[r] = r == RECALLS - 1 ? 1.0 : r * (1.0 / (RECALLS - 1));
}

td_status td_coco_metrics_compute(const td_coco_ground_truth *ground_truths, size_t n_ground_truths,
                                  const td_coco_detection *detections, size_t n_detections,
                                  const td_coco_metrics_opts *opts, td_coco_metrics *out)
{
    const td_coco_metrics_opts none = { 0 };
    opts = opts ? opts : &none;
    work w = { .ground_truths = ground_truths,
               .n_ground_truths = n_ground_truths,
               .detections = detections,
               .n_detections = n_detections,
               .box_areas = opts->box_areas };
    *out = (td_coco_metrics){ 0 };
    fill_grids(&w);
    td_status st = evaluate_all(&w, opts, out);
    td_free(w.taken);
    td_free(w.walk);
    td_free(w.iou);
    td_free(w.precision);
    td_free(w.recall);
    td_free(w.by_score);
    td_free(w.matches);
    td_free(w.detection_order);
    td_free(w.ground_truth_order);
    if (st != TD_OK) {
        td_coco_metrics_release(out);
        *out = (td_coco_metrics){ 0 };
    }
    return st;
}

void td_coco_metrics_release(td_coco_metrics *m)
{
    td_free(m->classes);
    m->classes = NULL;
    m->n_classes = 0;
}

/* --- names ------------------------------------------------------------------------------------ */

const char *td_coco_key(int v)
{
    return rows[v].key;
}

const char *td_coco_log_name(int v)
{
    return rows[v].log_name;
}

void td_coco_metrics_print(const double value[TD_COCO_VALUES], td_text *out)
{
    for (int i = 0; i < TD_COCO_VALUES; i++)
        td_text_add(out, " %-18s %s @[ IoU=%-9s | area=%6s | maxDets=%3d ] = %.3f\n",
                    rows[i].is_recall ? "Average Recall" : "Average Precision",
                    rows[i].is_recall ? "(AR)" : "(AP)", rows[i].iou, rows[i].area_name,
                    rows[i].cap, value[i]);
}
