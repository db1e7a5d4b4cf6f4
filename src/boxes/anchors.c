/*
 * anchors.c -- makes the anchor boxes of the detectors
 *
 * The references round at different steps: TensorFlow computes in float32 throughout, NVIDIA's in
 * double and rounds the centre form once, torchvision rounds sizes and centres and then computes
 * corners, and centres again, in float32.  All are reproduced bit for bit.
 */
#include "boxes/anchors.h"

#include <math.h>

#include "base/arena.h"
#include "boxes/detector_rules.h"

#define SSD320_LEVEL_FIRST 3
#define SSD320_LEVEL_LAST  7
#define SSD320_SIZE_MAX    4096
#define SSD320_SHAPES      6 /* boxes for each cell */

#define SSD300_SIZE 300
#define SSD300_MAPS 6

#define TORCH_SIZE_MIN 64
#define TORCH_SIZE_MAX 4096
#define SSDLITE_MAPS   6
#define SSDLITE_SHAPES 6
#define SSDLITE_STRIDE 16 /* pixels per cell of the first feature map */

#define RETINANET_STRIDE 8 /* pixels per cell of the first feature map */
#define RETINANET_SHAPES 9
#define RETINANET_SIZE   32 /* pixels: the side of the first map's smallest square */

/* one feature map of SSD300: its width, stride in pixels, box size, aspect ratios */
typedef struct {
    int side, step, scale, next_scale;
    int n_ratios;
} ssd300_map;

/* clang-format off */
static const ssd300_map ssd300_maps[SSD300_MAPS] = {
    { 38,   8,  21,  45, 1 },
    { 19,  16,  45,  99, 2 },
    { 10,  32,  99, 153, 2 },
    {  5,  64, 153, 207, 2 },
    {  3, 100, 207, 261, 1 },
    {  1, 300, 261, 315, 1 },
};
/* clang-format on */

static bool is_torch_size(int image_size)
{
    return image_size >= TORCH_SIZE_MIN && image_size <= TORCH_SIZE_MAX && image_size % 32 == 0;
}

/* cells along a side of a level's feature map */
static int ssd320_side(int level, int image_size)
{
    const int stride = 1 << level;
    return (image_size + stride - 1) / stride;
}

int td_anchors_count(td_detector kind, int image_size)
{
    int n = 0;
    if (kind == TD_DETECTOR_SSD320 && image_size >= 32 && image_size <= SSD320_SIZE_MAX &&
        image_size % 32 == 0) {
        for (int level = SSD320_LEVEL_FIRST; level <= SSD320_LEVEL_LAST; level++) {
            const int side = ssd320_side(level, image_size);
            n += side * side * SSD320_SHAPES;
        }
    } else if (kind == TD_DETECTOR_SSD300 && image_size == SSD300_SIZE) {
        for (int i = 0; i < SSD300_MAPS; i++) {
            const ssd300_map *m = &ssd300_maps[i];
            n += m->side * m->side * (2 + 2 * m->n_ratios);
        }
    } else if (kind == TD_DETECTOR_RETINANET && is_torch_size(image_size)) {
        int side = image_size / RETINANET_STRIDE;
        for (int i = 0; i < TD_LEVELS_MAX; i++, side = (side + 1) / 2)
            n += side * side * RETINANET_SHAPES;
    } else if (kind == TD_DETECTOR_SSDLITE && is_torch_size(image_size)) {
        int side = image_size / SSDLITE_STRIDE;
        for (int i = 0; i < SSDLITE_MAPS; i++, side = (side + 1) / 2)
            n += side * side * SSDLITE_SHAPES;
    }
    return n;
}

/* --- SSD320 ---------------------------------------------------------------------------------- */

static void put_corners(td_anchors *a, int i, td_rect r)
{
    td_centre c = { .h = r.ymax - r.ymin, .w = r.xmax - r.xmin };
    c.y = r.ymin + c.h / 2;
    c.x = r.xmin + c.w / 2;
    a->corner[i] = r;
    a->centre[i] = c;
}

static void ssd320_put(td_anchors *a, int i, float y, float x, float h, float w)
{
    const float unit = 1.0F / (float)a->image_size;
    td_rect r = { .ymin = unit * (y - 0.5F * h),
                  .xmin = unit * (x - 0.5F * w),
                  .ymax = unit * (y + 0.5F * h),
                  .xmax = unit * (x + 0.5F * w) };
    put_corners(a, i, r);
}

/* writes the boxes of one cell; returns the next free row */
static int ssd320_place(td_anchors *a, int i, float y, float x, float base)
{
    static const float ratios[] = { 1.0F, 2.0F, 0.5F };
    const float scales[] = { 1.0F, (float)sqrt(2.0) };

    for (int r = 0; r < 3; r++)
        for (int s = 0; s < 2; s++) {
            const float root = sqrtf(ratios[r]);
            ssd320_put(a, i++, y, x, (scales[s] / root) * base, (scales[s] * root) * base);
        }
    return i;
}

static void ssd320_fill(td_anchors *a)
{
    int i = 0;
    for (int level = SSD320_LEVEL_FIRST; level <= SSD320_LEVEL_LAST; level++) {
        const int stride = 1 << level, side = ssd320_side(level, a->image_size);
        const float offset = a->image_size % stride == 0 ? 0.5F * (float)stride : 0;
        const float base = 4.0F * (float)stride;
        for (int row = 0; row < side; row++)
            for (int col = 0; col < side; col++)
                i = ssd320_place(a, i, (float)(row * stride) + offset,
                                 (float)(col * stride) + offset, base);
    }
}

/* --- SSD300 ---------------------------------------------------------------------------------- */

static float clamped(double v)
{
    const float f = (float)v;
    return f < 0 ? 0 : f > 1 ? 1 : f;
}

/* writes one box size for all cells of a map; returns the next free row */
static int ssd300_size(td_anchors *a, int i, const ssd300_map *m, double w, double h)
{
    const double places = (double)SSD300_SIZE / m->step;

    for (int row = 0; row < m->side; row++)
        for (int col = 0; col < m->side; col++, i++) {
            td_centre c = { .y = clamped((row + 0.5) / places),
                            .x = clamped((col + 0.5) / places),
                            .h = clamped(h),
                            .w = clamped(w) };
            a->centre[i] = c;
            a->corner[i] = (td_rect){ .ymin = c.y - 0.5F * c.h,
                                      .xmin = c.x - 0.5F * c.w,
                                      .ymax = c.y + 0.5F * c.h,
                                      .xmax = c.x + 0.5F * c.w };
        }
    return i;
}

static void ssd300_fill(td_anchors *a)
{
    int i = 0;
    for (int k = 0; k < SSD300_MAPS; k++) {
        const ssd300_map *m = &ssd300_maps[k];
        const double size = (double)m->scale / SSD300_SIZE;
        const double next = (double)m->next_scale / SSD300_SIZE;
        const double between = sqrt(size * next);
        i = ssd300_size(a, i, m, size, size);
        i = ssd300_size(a, i, m, between, between);
        for (int ratio = 2; ratio < 2 + m->n_ratios; ratio++) {
            const double w = size * sqrt((double)ratio), h = size / sqrt((double)ratio);
            i = ssd300_size(a, i, m, w, h);
            i = ssd300_size(a, i, m, h, w);
        }
    }
}

/* --- SSDLite --------------------------------------------------------------------------------- */

/* width and height of the boxes of map k, fractions of the image */
static void ssdlite_shapes(int k, float shape[SSDLITE_SHAPES][2])
{
    const double least = 0.2, range = 0.95 - least, steps = SSDLITE_MAPS - 1;
    const double size = least + range * k / steps;
    const double next = k + 1 < SSDLITE_MAPS ? least + range * (k + 1) / steps : 1;
    double all[SSDLITE_SHAPES][2] = { { size, size } };
    all[1][0] = all[1][1] = sqrt(size * next);
    for (int i = 0; i < 2; i++) {
        const double root = sqrt(2.0 + i);
        all[2 + 2 * i][0] = all[3 + 2 * i][1] = size * root;
        all[2 + 2 * i][1] = all[3 + 2 * i][0] = size / root;
    }
    for (int i = 0; i < SSDLITE_SHAPES; i++)
        for (int d = 0; d < 2; d++)
            shape[i][d] = clamped(all[i][d]);
}

/* a box with this centre and size, fractions of the image */
static void ssdlite_put(td_anchors *a, int i, float y, float x, const float shape[2])
{
    const float side = (float)a->image_size, w = 0.5F * shape[0], h = 0.5F * shape[1];
    const td_rect r = { (y - h) * side, (x - w) * side, (y + h) * side, (x + w) * side };
    put_corners(a, i, r);
}

static void ssdlite_fill(td_anchors *a)
{
    int i = 0, side = a->image_size / SSDLITE_STRIDE;
    float shape[SSDLITE_SHAPES][2];
    for (int k = 0; k < SSDLITE_MAPS; k++, side = (side + 1) / 2) {
        ssdlite_shapes(k, shape);
        for (int row = 0; row < side; row++)
            for (int col = 0; col < side; col++)
                for (int s = 0; s < SSDLITE_SHAPES; s++)
                    ssdlite_put(a, i++, ((float)row + 0.5F) / (float)side,
                                ((float)col + 0.5F) / (float)side, shape[s]);
    }
}

/* --- RetinaNet ------------------------------------------------------------------------------- */

/* half the width and height of each shape of map k, rounded */
static void retinanet_shapes(int k, float shape[RETINANET_SHAPES][2])
{
    static const float ratios[3] = { 0.5F, 1, 2 }; /* height over width */
    const int size = RETINANET_SIZE << k;
    const int sizes[3] = { size, (int)(size * pow(2, 1.0 / 3)), (int)(size * pow(2, 2.0 / 3)) };
    for (int i = 0; i < RETINANET_SHAPES; i++) {
        const float root = sqrtf(ratios[i / 3]), scale = (float)sizes[i % 3];
        shape[i][0] = rintf((1 / root) * scale / 2);
        shape[i][1] = rintf(root * scale / 2);
    }
}

static void retinanet_put(td_anchors *a, int i, int y, int x, const float shape[2])
{
    const td_rect r = { (float)y - shape[1], (float)x - shape[0], (float)y + shape[1],
                        (float)x + shape[0] };
    put_corners(a, i, r);
}

/* torchvision's cells are where the image divided by their number, rounded down, places them */
static void retinanet_fill(td_anchors *a)
{
    int i = 0, side = a->image_size / RETINANET_STRIDE;
    float shape[RETINANET_SHAPES][2];
    a->n_levels = TD_LEVELS_MAX;
    for (int k = 0; k < TD_LEVELS_MAX; k++, side = (side + 1) / 2) {
        const int stride = a->image_size / side;
        retinanet_shapes(k, shape);
        for (int row = 0; row < side; row++)
            for (int col = 0; col < side; col++)
                for (int s = 0; s < RETINANET_SHAPES; s++)
                    retinanet_put(a, i++, row * stride, col * stride, shape[s]);
        a->level_end[k] = i;
    }
}

/* --- all ------------------------------------------------------------------------------------- */

float td_anchors_unit(const td_anchors *a)
{
    return td_detector_rules_of(a->kind)->in_pixels ? (float)a->image_size : 1;
}

static td_status reserve(td_anchors *a)
{
    const size_t n = (size_t)a->n, stride = td_round_up(n, TD_HOST_ALIGN / sizeof(float));
    a->corner = td_alloc(n, sizeof *a->corner);
    a->centre = td_alloc(n, sizeof *a->centre);
    a->ymin = td_alloc(stride, 5 * sizeof(float));
    if (!a->corner || !a->centre || !a->ymin)
        return TD_ENOMEM;
    a->xmin = a->ymin + stride;
    a->ymax = a->xmin + stride;
    a->xmax = a->ymax + stride;
    a->area = a->xmax + stride;
    return TD_OK;
}

static void split(td_anchors *a)
{
    for (int i = 0; i < a->n; i++) {
        const td_rect *r = &a->corner[i];
        a->ymin[i] = r->ymin;
        a->xmin[i] = r->xmin;
        a->ymax[i] = r->ymax;
        a->xmax[i] = r->xmax;
        a->area[i] = td_rect_area(*r);
    }
}

td_status td_anchors_new(td_detector kind, int image_size, td_anchors **out)
{
    td_status st = TD_OK;
    td_anchors *a = NULL;

    *out = NULL;
    const int n = td_anchors_count(kind, image_size);
    if (n == 0 && kind == TD_DETECTOR_SSD300)
        return td_error(TD_EARG, "ssd300: image size %d, wanted %d", image_size, SSD300_SIZE);
    if (n == 0 && kind == TD_DETECTOR_SSD320)
        return td_error(TD_EARG, "ssd320: image size %d, wanted a multiple of 32 from 32 to %d",
                        image_size, SSD320_SIZE_MAX);
    if (n == 0 && (kind == TD_DETECTOR_SSDLITE || kind == TD_DETECTOR_RETINANET))
        return td_error(TD_EARG, "%s: image size %d, wanted a multiple of 32 from %d to %d",
                        td_detector_rules_of(kind)->name, image_size, TORCH_SIZE_MIN,
                        TORCH_SIZE_MAX);
    if (n == 0)
        return td_error(TD_EARG, "anchors requested for an unknown detector");

    a = TD_NEW(td_anchors);
    if (!a)
        return TD_ENOMEM;
    a->kind = kind;
    a->image_size = image_size;
    a->n = n;
    TD_OUT(reserve(a));
    if (kind == TD_DETECTOR_SSD320)
        ssd320_fill(a);
    else if (kind == TD_DETECTOR_SSD300)
        ssd300_fill(a);
    else if (kind == TD_DETECTOR_SSDLITE)
        ssdlite_fill(a);
    else
        retinanet_fill(a);
    split(a);
    *out = a;
    a = NULL;
out:
    td_anchors_free(a);
    return st;
}

void td_anchors_free(td_anchors *a)
{
    if (!a)
        return;
    td_free(a->corner);
    td_free(a->centre);
    td_free(a->ymin);
    td_free(a);
}
