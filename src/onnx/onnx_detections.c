/*
 * onnx_detections.c -- adds box decoding and non-maximum suppression to a model
 *
 *   deltas --- Slice, Div, Mul, Exp, Add, Sub, Concat ---> boxes [N, A, 4]
 *   logits -- Slice, Sigmoid | Softmax, Slice ----------> scores [N, A, C]
 *
 * The arithmetic is that of boxes/decode.c, step by step.  NonMaxSuppression's result is one list
 * of variable length for the whole batch.  To get a fixed number per image, the scores are
 * scattered back and sorted:
 *
 *   scores by class [N, C, A] -- NonMaxSuppression --> (image, class, anchor) [M, 3]
 *   zeros [N, C, A], with the scores of those M -- TopK of [N, C A] --> the best K, their indices
 *   index / A is the class, the remainder is the anchor, whose box is gathered
 *
 * Of equal scores, TopK takes the lower index: lower class, then lower anchor, as in boxes/nms.h.
 * No booleans are used: Sign selects values above 0.
 */
#include "onnx/onnx_detections.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "boxes/decode.h"

#define OPEN  (-1) /* a dimension without a name */
#define BATCH (-2) /* the batch dimension */

typedef struct {
    td_onnx *m;
    const td_anchors *a;
    const td_nms_opts *nms;
    const td_detector_rules *rules;
    td_onnx_dim batch;
    int64_t n_anchors, n_classes;
    td_onnx_values *named; /* receives the results that have their own name */
} detections_builder;

/* --- nodes and constants ---------------------------------------------------------------------- */

static td_onnx_value type_of(const detections_builder *t, td_dtype d, int rank, const int64_t *dim)
{
    td_onnx_value v = { .dtype = d, .rank = rank };
    for (int i = 0; i < rank; i++)
        v.dim[i] = dim[i] == BATCH ? t->batch : (td_onnx_dim){ .value = dim[i] };
    return v;
}

/* declares a result: "/label" becomes "detections/label:0", "label" is used as it is */
static const char *declare(detections_builder *t, const char *label, const td_onnx_value *type)
{
    char name[80];
    const bool is_named = *label != '/';
    td_onnx_value v = *type;
    snprintf(name, sizeof name, is_named ? "%s" : "detections%s:0", label);
    v.name = td_onnx_text(t->m, name);
    td_onnx_add_value(t->m, is_named ? t->named : &t->m->values, &v);
    return v.name;
}

static const char *put(detections_builder *t, const char *op, const char *label,
                       const td_onnx_value *type, int n_in, const char *const *in)
{
    char node[80];
    snprintf(node, sizeof node, *label == '/' ? "detections%s" : "detections/%s", label);
    const char *result = declare(t, label, type);
    td_onnx_add_node(t->m, op, node, n_in, in, result);
    return result;
}

#define INTS(...)    ((const int64_t[]){ __VA_ARGS__ })
#define N_INTS(...)  ((int)(sizeof INTS(__VA_ARGS__) / sizeof(int64_t)))
#define TYPE(d, ...) type_of(t, d, N_INTS(__VA_ARGS__), INTS(__VA_ARGS__))
#define IN(...)      ((const char *const[]){ __VA_ARGS__ })
#define PUT(op, label, type, ...)                                                                  \
    put(t, op, label, type, (int)(sizeof IN(__VA_ARGS__) / sizeof(const char *)), IN(__VA_ARGS__))

static const char *constant(detections_builder *t, const char *label, td_dtype d, int rank,
                            const int64_t *dim, const void *data)
{
    char name[80];
    size_t n = td_dtype_bytes(d);
    for (int i = 0; i < rank; i++)
        n *= (size_t)dim[i];
    snprintf(name, sizeof name, "detections%s", label);
    void *copy = t->m->st == TD_OK ? td_arena_alloc(&t->m->arena, n, 1) : NULL;
    if (!copy) {
        t->m->st = t->m->st == TD_OK ? TD_ENOMEM : t->m->st;
        return "";
    }
    memcpy(copy, data, n);
    const char *text = td_onnx_text(t->m, name);
    td_onnx_add_tensor(t->m, text, d, rank, dim, copy);
    return text;
}

static const char *number(detections_builder *t, const char *label, float x)
{
    return constant(t, label, TD_DT_F32, 0, NULL, &x);
}

static const char *ints(detections_builder *t, const char *label, int n, const int64_t *values)
{
    return constant(t, label, TD_DT_I64, 1, INTS(n), values);
}

/* the constant tensor [i], an operand of Slice; created once for each i */
static const char *column(detections_builder *t, int i)
{
    char label[16], name[32];
    snprintf(label, sizeof label, "/%d", i);
    snprintf(name, sizeof name, "detections%s", label);
    for (size_t k = 0; k < t->m->n_tensors; k++)
        if (strcmp(t->m->tensors[k].name, name) == 0)
            return t->m->tensors[k].name;
    return ints(t, label, 1, INTS(i));
}

/* slices columns from .. end - 1 of x [N, A, ...] */
static const char *columns(detections_builder *t, const char *label, const char *x, int from,
                           int end)
{
    const td_onnx_value y = TYPE(TD_DT_F32, BATCH, t->n_anchors, end - from);
    return PUT("Slice", label, &y, x, column(t, from), column(t, end), column(t, 2));
}

/* --- boxes and scores ------------------------------------------------------------------------- */

/* the anchors' centres or sizes, [A, 2], y before x, in fractions of the image */
static const char *anchors(detections_builder *t, const char *label, bool is_size)
{
    const float unit = td_anchors_unit(t->a);
    const int64_t dim[2] = { t->n_anchors, 2 };
    float *x = td_alloc((size_t)t->n_anchors, 2 * sizeof *x);
    for (int i = 0; x && i < t->a->n; i++) {
        const td_centre *c = &t->a->centre[i];
        x[2 * i] = (is_size ? c->h : c->y) / unit;
        x[2 * i + 1] = (is_size ? c->w : c->x) / unit;
    }
    const char *name = "";
    if (x)
        name = constant(t, label, TD_DT_F32, 2, dim, x);
    else if (t->m->st == TD_OK)
        t->m->st = TD_ENOMEM;
    td_free(x);
    return name;
}

/* deltas that have x before y are reordered */
static const char *row_first(detections_builder *t)
{
    const td_onnx_value y = TYPE(TD_DT_F32, BATCH, t->n_anchors, 4);
    const char *v = PUT("Concat", "/codes", &y, columns(t, "/code_y", "codes", 1, 2),
                        columns(t, "/code_x", "codes", 0, 1), columns(t, "/code_h", "codes", 3, 4),
                        columns(t, "/code_w", "codes", 2, 3));
    td_onnx_attr_int(t->m, "axis", 2);
    return v;
}

static const char *put_boxes(detections_builder *t)
{
    const td_onnx_value two = TYPE(TD_DT_F32, BATCH, t->n_anchors, 2);
    const td_onnx_value four = TYPE(TD_DT_F32, BATCH, t->n_anchors, 4);
    const td_detector_rules *r = t->rules;
    const char *deltas = r->is_row_first ? "codes" : row_first(t);
    const char *op = r->coder == TD_CODER_NVIDIA ? "Mul" : "Div";
    const char *by_centre = number(t, "/of_centre", r->centre);
    const char *by_size = number(t, "/of_size", r->scale);
    const char *sizes = anchors(t, "/anchor_size", true);

    const char *c = PUT(op, "/centre_code", &two, columns(t, "/c", deltas, 0, 2), by_centre);
    c = PUT("Mul", "/centre_offset", &two, c, sizes);
    c = PUT("Add", "/centre", &two, c, anchors(t, "/anchor_centre", false));
    const char *s = PUT(op, "/size_code", &two, columns(t, "/s", deltas, 2, 4), by_size);
    if (r->coder == TD_CODER_TORCH)
        s = PUT("Clip", "/size_limit", &two, s, number(t, "/least", -INFINITY),
                number(t, "/largest", TD_TORCH_LARGEST));
    s = PUT("Mul", "/size", &two, PUT("Exp", "/factor", &two, s), sizes);
    s = PUT("Mul", "/half", &two, s, number(t, "/0.5", 0.5F));
    const char *low = PUT("Sub", "/low", &two, c, s), *high = PUT("Add", "/high", &two, c, s);
    const char *boxes = PUT("Concat", TD_ONNX_BOXES, &four, low, high);
    td_onnx_attr_int(t->m, "axis", 2);
    return boxes;
}

static const char *put_scores(detections_builder *t)
{
    const int n_columns = (int)t->n_classes + 1;
    const td_onnx_value y = TYPE(TD_DT_F32, BATCH, t->n_anchors, t->n_classes);
    if (!t->rules->is_softmax)
        return PUT("Sigmoid", TD_ONNX_SCORES, &y, columns(t, "/l", "logits", 1, n_columns));
    const td_onnx_value all = TYPE(TD_DT_F32, BATCH, t->n_anchors, n_columns);
    const char *shares = PUT("Softmax", "/shares", &all, "logits");
    td_onnx_attr_int(t->m, "axis", -1);
    return columns(t, TD_ONNX_SCORES, shares, 1, n_columns);
}

/* --- suppression ------------------------------------------------------------------------------ */

/* zeros with the shape of `like` */
static const char *zeros(detections_builder *t, const char *like, const td_onnx_value *type)
{
    const td_onnx_value shape = TYPE(TD_DT_I64, 3);
    return PUT("ConstantOfShape", "/zeros", type, PUT("Shape", "/shape", &shape, like));
}

/* TopK; its second result is declared first, so that the node is the last one when it is added */
static const char *top(detections_builder *t, const char *label, const char *places, const char *x,
                       const td_onnx_value *type, int64_t k)
{
    char of_k[32];
    td_onnx_value index = *type;
    index.dtype = TD_DT_I64;
    snprintf(of_k, sizeof of_k, "%s_k", places);
    const char *n = ints(t, of_k, 1, INTS(k)), *at = declare(t, places, &index);
    const char *best = PUT("TopK", label, type, x, n);
    td_onnx_add_result(t->m, at);
    return best;
}

/* keeps the best `per_class` scores of each class, sets the others to 0 */
static const char *best_of_classes(detections_builder *t, const char *x, const char *none,
                                   const td_onnx_value *type)
{
    const int64_t k = t->nms->per_class < t->n_anchors ? t->nms->per_class : t->n_anchors;
    const td_onnx_value few = TYPE(TD_DT_F32, BATCH, t->n_classes, k);
    const char *best = top(t, "/class_best", "/class_best_at", x, &few, k);
    const char *y =
        PUT("ScatterElements", "/looked_at", type, none, "detections/class_best_at:0", best);
    td_onnx_attr_int(t->m, "axis", 2);
    return y;
}

/* of rows first to end - 1 of scores [N, A, C], the best; others 0 */
static const char *best_of_level(detections_builder *t, const char *scores, int level, int first,
                                 int end)
{
    char at[8][24];
    static const char *const parts[8] = { "from",  "end",  "rows",  "flat",
                                          "zeros", "best", "index", "taken" };
    const int64_t n = end - first, count = n * t->n_classes, limit = t->rules->level_candidates;
    const td_onnx_value rows = TYPE(TD_DT_F32, BATCH, n, t->n_classes);
    const td_onnx_value flat = TYPE(TD_DT_F32, BATCH, count), few = TYPE(TD_DT_F32, BATCH, limit);
    const td_onnx_value shape = TYPE(TD_DT_I64, 2);
    char label[48];
    for (int i = 0; i < 8; i++)
        snprintf(at[i], sizeof at[i], "/level%d_%s", level, parts[i]);
    const char *x = PUT("Slice", at[2], &rows, scores, ints(t, at[0], 1, INTS(first)),
                        ints(t, at[1], 1, INTS(end)), column(t, 1));
    if (count <= limit)
        return x;
    snprintf(label, sizeof label, "/level%d_flat_shape", level);
    x = PUT("Reshape", at[3], &flat, x, ints(t, label, 2, INTS(0, count)));
    snprintf(label, sizeof label, "/level%d_shape", level);
    const char *none = PUT("ConstantOfShape", at[4], &flat, PUT("Shape", label, &shape, x));
    const char *best = top(t, at[5], at[6], x, &few, limit);
    snprintf(label, sizeof label, "detections%s:0", at[6]);
    x = PUT("ScatterElements", at[7], &flat, none, td_onnx_text(t->m, label), best);
    td_onnx_attr_int(t->m, "axis", 1);
    snprintf(label, sizeof label, "/level%d_rows_shape", level);
    const char *back = ints(t, label, 3, INTS(0, n, t->n_classes));
    snprintf(label, sizeof label, "/level%d", level);
    return PUT("Reshape", label, &rows, x, back);
}

/* the best scores of each level, others 0 */
static const char *best_of_levels(detections_builder *t, const char *scores)
{
    const td_onnx_value all = TYPE(TD_DT_F32, BATCH, t->n_anchors, t->n_classes);
    const char *level[TD_LEVELS_MAX];
    for (int i = 0; i < t->a->n_levels; i++)
        level[i] = best_of_level(t, scores, i, i ? t->a->level_end[i - 1] : 0, t->a->level_end[i]);
    const char *y = put(t, "Concat", "/of_levels", &all, t->a->n_levels, level);
    td_onnx_attr_int(t->m, "axis", 1);
    return y;
}

/* SSD300 also suppresses boxes whose overlap equals the limit */
static float overlap(const detections_builder *t)
{
    const float iou = (float)t->nms->iou;
    return t->rules->equal_suppresses ? nextafterf(iou, 0) : iou;
}

/* the scores of boxes that are not suppressed, otherwise 0: [N, C, A] */
static const char *put_survivors(detections_builder *t, const char *boxes, const char *scores)
{
    const td_onnx_value all = TYPE(TD_DT_F32, BATCH, t->n_classes, t->n_anchors);
    const td_onnx_value found = TYPE(TD_DT_I64, OPEN, 3), of_found = TYPE(TD_DT_F32, OPEN);
    if (t->rules->level_candidates)
        scores = best_of_levels(t, scores);
    const char *x = PUT("Transpose", "/by_class", &all, scores);
    td_onnx_attr_ints(t->m, "perm", 3, INTS(0, 2, 1));
    const char *none = zeros(t, x, &all);
    if (t->rules->limits_candidates)
        x = best_of_classes(t, x, none, &all);
    const char *at =
        PUT("NonMaxSuppression", "/kept", &found, boxes, x,
            ints(t, "/per_class", 1, INTS(t->nms->per_class)), number(t, "/overlap", overlap(t)),
            number(t, "/score_min", (float)t->nms->score_min));
    return PUT("ScatterND", "/survivors", &all, none, at,
               PUT("GatherND", "/kept_scores", &of_found, x, at));
}

/* for boxes clipped to the image: 1 if the area is positive, otherwise 0: [N, 1, A] */
static const char *put_has_area(detections_builder *t, const char *boxes)
{
    const td_onnx_value one = TYPE(TD_DT_F32, BATCH, t->n_anchors, 1);
    const td_onnx_value two = TYPE(TD_DT_F32, BATCH, t->n_anchors, 2);
    const td_onnx_value line = TYPE(TD_DT_F32, BATCH, 1, t->n_anchors);
    const char *sides = PUT("Sub", "/sides", &two, columns(t, "/clipped_high", boxes, 2, 4),
                            columns(t, "/clipped_low", boxes, 0, 2));
    const char *area = PUT("Mul", "/area", &one, columns(t, "/height", sides, 0, 1),
                           columns(t, "/width", sides, 1, 2));
    return PUT("Reshape", "/inside", &line, PUT("Sign", "/has_area", &one, area),
               ints(t, "/line", 3, INTS(0, 1, t->n_anchors)));
}

static const char *put_clipped(detections_builder *t, const char *boxes)
{
    const td_onnx_value corners = TYPE(TD_DT_F32, BATCH, t->n_anchors, 4);
    return PUT("Clip", "/clipped", &corners, boxes, number(t, "/edge", 0),
               number(t, "/other_edge", 1));
}

static void put_detections(detections_builder *t, const char *boxes, const char *scores)
{
    const int64_t places = t->n_classes * t->n_anchors;
    const int64_t k = t->nms->total < places ? t->nms->total : places;
    const td_onnx_value all = TYPE(TD_DT_F32, BATCH, t->n_classes, t->n_anchors);
    const td_onnx_value flat = TYPE(TD_DT_F32, BATCH, places), best = TYPE(TD_DT_F32, BATCH, k);
    const td_onnx_value index = TYPE(TD_DT_I64, BATCH, k), rows = TYPE(TD_DT_I64, BATCH, k, 1);
    const td_onnx_value mask = TYPE(TD_DT_F32, BATCH, k, 1), four = TYPE(TD_DT_F32, BATCH, k, 4);
    const td_onnx_value count = TYPE(TD_DT_I64, BATCH);

    const td_box_clip clip = t->rules->clip;
    if (clip == TD_CLIP_BEFORE)
        boxes = put_clipped(t, boxes);
    const char *x = put_survivors(t, boxes, scores);
    if (clip == TD_CLIP_AFTER) {
        boxes = put_clipped(t, boxes);
        x = PUT("Mul", "/survivors_inside", &all, x, put_has_area(t, boxes));
    }
    x = PUT("Reshape", "/places", &flat, x, ints(t, "/flat", 2, INTS(0, places)));
    const char *score = top(t, TD_ONNX_DETECTION_SCORES, "/place", x, &best, k);
    const char *place = "detections/place:0", *n = ints(t, "/anchors", 1, INTS(t->n_anchors));
    const char *column = ints(t, "/column", 3, INTS(0, k, 1));

    const char *label = PUT("Div", "/class", &index, place, n); /* from 0 */
    const char *anchor =
        PUT("Sub", "/anchor", &index, place, PUT("Mul", "/first", &index, label, n));
    const char *found = PUT("Sign", "/found", &best, score);
    const char *is_found = PUT("Cast", "/is_found", &index, found);
    td_onnx_attr_int(t->m, "to", td_onnx_dtype_number(TD_DT_I64));
    const char *box = PUT("GatherND", "/box", &four, boxes,
                          PUT("Reshape", "/anchor_rows", &rows, anchor, column));
    td_onnx_attr_int(t->m, "batch_dims", 1);

    PUT("Mul", TD_ONNX_DETECTION_BOXES, &four, box,
        PUT("Reshape", "/found_rows", &mask, found, column));
    label = PUT("Add", "/label", &index, label, ints(t, "/first_class", 1, INTS(1)));
    PUT("Mul", TD_ONNX_DETECTION_CLASSES, &index, label, is_found);
    PUT("ReduceSum", TD_ONNX_NUM_DETECTIONS, &count, is_found, ints(t, "/axis", 1, INTS(1)));
    td_onnx_attr_int(t->m, "keepdims", 0);
}

/* --- entry point ------------------------------------------------------------------------------ */

/* puts the output boxes before scores, which was created first */
static void order_outputs(td_onnx *m)
{
    if (m->st != TD_OK)
        return;
    const td_onnx_value scores = m->outputs.at[0];
    m->outputs.at[0] = m->outputs.at[1];
    m->outputs.at[1] = scores;
}

static void take_outputs(td_onnx *m)
{
    for (size_t i = 0; i < m->outputs.n; i++)
        td_onnx_add_value(m, &m->values, &m->outputs.at[i]);
    m->outputs.n = 0;
}

/* checks the model's outputs: deltas [N, A, 4], then logits [N, A, C + 1], which it returns */
static const td_onnx_value *logits_of(const td_onnx *m)
{
    TD_CHECK(m->st != TD_OK || (m->outputs.n == 2 && m->outputs.at[1].rank == 3));
    return &m->outputs.at[1];
}

td_status td_onnx_add_detections(td_onnx *m, const td_anchors *anchors, const td_nms_opts *nms)
{
    if (m->st != TD_OK)
        return m->st;
    const td_onnx_value *logits = logits_of(m);
    detections_builder t = { .m = m,
                             .a = anchors,
                             .nms = nms,
                             .rules = td_detector_rules_of(anchors->kind),
                             .batch = logits->dim[0],
                             .n_anchors = anchors->n,
                             .n_classes = logits->dim[2].value - 1,
                             .named = nms ? &m->values : &m->outputs };
    if (nms && !(overlap(&t) >= 0 && overlap(&t) <= 1 && nms->iou > 0))
        return td_error(
            TD_EUNSUPPORTED,
            "ONNX's NonMaxSuppression requires an overlap above 0 and up to 1, found %g", nms->iou);
    take_outputs(m);
    const char *boxes = put_boxes(&t), *scores = put_scores(&t);
    t.named = &m->outputs;
    if (nms) {
        put_detections(&t, boxes, scores);
        order_outputs(m);
    }
    return m->st;
}
