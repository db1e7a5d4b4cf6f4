/*
 * image/draw.c -- draws synthetic images with a known label, and boxes
 *
 * Every kind is a signed distance function: the distance of a point from the figure, negative
 * inside.  It selects the pixel's colour; half a pixel on either side of the edge is blended, so
 * edges are smooth without supersampling.
 *
 *     pixel -> shift, rotate, scale -> point p      figures: p in the unit disc, y downwards
 *                                                textures: p in periods
 *     distance(p) -> coverage of figure colour -> + noise -> byte
 *
 * Figures are filled outlines (points joined and closed), strokes (points joined, some with the pen
 * up) or a formula.  Colours, position, size and rotation are random; only the figure is fixed, so
 * a network must learn shapes, not brightness or colour.
 *
 * Source of the distances to a polygon and to the heart: Inigo Quilez, "2D distance functions".
 */
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/status.h"
#include "image/image.h"

/* --- figures ---------------------------------------------------------------------------------- */

typedef struct {
    double x, y;
} point;

/* A corner, in hundredths; `pen` is 0 if a new stroke begins there. */
typedef struct {
    signed char x, y, pen;
} corner;

typedef struct {
    const char *name;
    double (*distance)(point); /* NULL: outline or stroke of the corners */
    const corner *corners;
    int n_corners;
    bool is_stroke;
    bool is_texture;
} kind;

static double dot(point a, point b)
{
    return a.x * b.x + a.y * b.y;
}

static point minus(point a, double x, double y)
{
    return (point){ a.x - x, a.y - y };
}

static double length(point a)
{
    return sqrt(dot(a, a));
}

static double disc(point p, double x, double y, double radius)
{
    return length(minus(p, x, y)) - radius;
}

static double circle(point p)
{
    return disc(p, 0, 0, 0.92);
}

static double ring(point p)
{
    return fabs(length(p) - 0.72) - 0.2;
}

static double crescent(point p)
{
    return fmax(disc(p, 0, 0, 0.97), -disc(p, 0.42, -0.1, 0.74));
}

static double half_disc(point p)
{
    return fmax(disc(p, 0, 0.4, 0.95), p.y - 0.4);
}

static double heart(point p)
{
    const double size = 1.6;
    point q = { fabs(p.x) / size, 0.58 - p.y / size };
    if (q.x + q.y > 1)
        return size * disc(q, 0.25, 0.75, sqrt(2) / 4);
    double m = 0.5 * fmax(q.x + q.y, 0);
    double d = fmin(length(minus(q, 0, 1)), length(minus(q, m, m)));
    return size * (q.x > q.y ? d : -d);
}

/* clang-format off */
static const corner square[]   = { {-70,-70,0}, {70,-70,1}, {70,70,1}, {-70,70,1} };
static const corner triangle[] = { {0,-95,0}, {86,60,1}, {-86,60,1} };
static const corner star[]     = { {0,-98,0}, {24,-33,1}, {93,-30,1}, {38,13,1}, {58,79,1},
                                   {0,40,1}, {-58,79,1}, {-38,13,1}, {-93,-30,1}, {-24,-33,1} };
static const corner cross[]    = { {-28,-92,0}, {28,-92,1}, {28,-28,1}, {92,-28,1}, {92,28,1},
                                   {28,28,1}, {28,92,1}, {-28,92,1}, {-28,28,1}, {-92,28,1},
                                   {-92,-28,1}, {-28,-28,1} };
static const corner arrow[]    = { {0,-98,0}, {78,-8,1}, {30,-8,1}, {30,90,1}, {-30,90,1},
                                   {-30,-8,1}, {-78,-8,1} };
static const corner letter_a[] = { {-62,80,0}, {0,-80,1}, {62,80,1}, {-38,26,0}, {38,26,1} };
static const corner letter_e[] = { {52,-78,0}, {-48,-78,1}, {-48,78,1}, {52,78,1}, {-48,0,0},
                                   {36,0,1} };
static const corner letter_k[] = { {-50,-80,0}, {-50,80,1}, {54,-80,0}, {-46,12,1}, {-14,-16,0},
                                   {58,80,1} };
static const corner letter_l[] = { {-44,-80,0}, {-44,78,1}, {52,78,1} };
static const corner letter_r[] = { {-48,80,0}, {-48,-78,1}, {10,-78,1}, {36,-70,1}, {48,-50,1},
                                   {48,-26,1}, {36,-8,1}, {10,2,1}, {-48,2,1}, {6,2,0}, {54,80,1} };
static const corner letter_s[] = { {50,-54,0}, {36,-72,1}, {8,-80,1}, {-22,-78,1}, {-46,-62,1},
                                   {-50,-38,1}, {-38,-16,1}, {0,-2,1}, {38,12,1}, {52,36,1},
                                   {46,62,1}, {22,78,1}, {-10,80,1}, {-38,70,1}, {-52,52,1} };
static const corner letter_t[] = { {-62,-76,0}, {62,-76,1}, {0,-76,0}, {0,80,1} };
static const corner letter_x[] = { {-58,-78,0}, {58,78,1}, {58,-78,0}, {-58,78,1} };
/* clang-format on */

static point at(corner c)
{
    return (point){ c.x / 100.0, c.y / 100.0 };
}

/* Distance from p to the line segment from a to b. */
static double to_segment(point p, point a, point b)
{
    point ab = minus(b, a.x, a.y), ap = minus(p, a.x, a.y);
    double t = fmin(fmax(dot(ap, ab) / dot(ab, ab), 0), 1);
    return length(minus(ap, t * ab.x, t * ab.y));
}

static double outline(const kind *k, point p)
{
    double nearest = 1e9;
    bool is_inside = false;
    for (int i = 0; i < k->n_corners; i++) {
        point a = at(k->corners[i]), b = at(k->corners[(i + 1) % k->n_corners]);
        nearest = fmin(nearest, to_segment(p, a, b));
        bool crosses = (a.y > p.y) != (b.y > p.y);
        if (crosses && p.x < a.x + (p.y - a.y) * (b.x - a.x) / (b.y - a.y))
            is_inside = !is_inside;
    }
    return is_inside ? -nearest : nearest;
}

static double strokes(const kind *k, point p)
{
    const double half_width = 0.17;
    double nearest = 1e9;
    for (int i = 1; i < k->n_corners; i++) {
        if (k->corners[i].pen)
            nearest = fmin(nearest, to_segment(p, at(k->corners[i - 1]), at(k->corners[i])));
    }
    return nearest - half_width;
}

/* --- textures: one period is 1 ---------------------------------------------------------------- */

/* Distance from x to the nearest half-integer: 0 .. 0.5. */
static double to_middle(double x)
{
    return fabs(x - floor(x) - 0.5);
}

static double stripes(point p)
{
    return to_middle(p.x) - 0.25;
}

static double checker(point p)
{
    point q = { 1.4 * p.x, 1.4 * p.y };
    double edge = 0.5 - fmax(to_middle(q.x), to_middle(q.y));
    bool is_odd = fmod(fabs(floor(q.x) + floor(q.y)), 2) > 0.5;
    return (is_odd ? -edge : edge) / 1.4;
}

static double dots(point p)
{
    return length((point){ to_middle(p.x), to_middle(p.y) }) - 0.3;
}

static double rings(point p)
{
    return to_middle(length(p)) - 0.25;
}

static double waves(point p)
{
    return 0.75 * (to_middle(p.y + 0.32 * sin(4 * p.x)) - 0.24);
}

static double grid(point p)
{
    return fmin(to_middle(p.x), to_middle(p.y)) - 0.1;
}

static double bricks(point p)
{
    double row = floor(1.5 * p.y);
    double x = 0.75 * p.x + 0.5 * fmod(fabs(row), 2);
    double joint_x = (0.5 - to_middle(x)) / 0.75, joint_y = (0.5 - to_middle(1.5 * p.y)) / 1.5;
    return 0.08 - fmin(joint_x, joint_y);
}

/* A fixed random number, 0 .. 1, for each integer point. */
static double lattice(double x, double y)
{
    uint32_t h = (uint32_t)(int32_t)x * 0x9E3779B1u ^ (uint32_t)(int32_t)y * 0x85EBCA77u;
    h = (h ^ h >> 15) * 0x2C1B3C6Du;
    h = (h ^ h >> 12) * 0x297A2D39u;
    return (h ^ h >> 15) / 4294967296.0;
}

static double mix(double a, double b, double t)
{
    return a + (b - a) * t;
}

/* The lattice's numbers, interpolated smoothly. */
static double smooth_noise(double x, double y)
{
    double x0 = floor(x), y0 = floor(y), u = x - x0, v = y - y0;
    u = u * u * (3 - 2 * u);
    v = v * v * (3 - 2 * v);
    double top = mix(lattice(x0, y0), lattice(x0 + 1, y0), u);
    double bottom = mix(lattice(x0, y0 + 1), lattice(x0 + 1, y0 + 1), u);
    return mix(top, bottom, v);
}

static double grain(point p)
{
    return 0.35 * (smooth_noise(3 * p.x, 3 * p.y) - 0.5);
}

/* --- the table -------------------------------------------------------------------------------- */

#define OUTLINE(name, corners)                                                                     \
    {                                                                                              \
        name, NULL, corners, sizeof corners / sizeof corners[0], false, false                      \
    }
#define STROKES(name, corners)                                                                     \
    {                                                                                              \
        name, NULL, corners, sizeof corners / sizeof corners[0], true, false                       \
    }
#define FORMULA(name, function)                                                                    \
    {                                                                                              \
        name, function, NULL, 0, false, false                                                      \
    }
#define TEXTURE(name, function)                                                                    \
    {                                                                                              \
        name, function, NULL, 0, false, true                                                       \
    }

/* clang-format off */
/* A data set of n classes uses the first n, so the families alternate.  Append only. */
static const kind kinds[] = {
    FORMULA("circle", circle),      TEXTURE("stripes", stripes),    STROKES("letter_A", letter_a),
    OUTLINE("square", square),      TEXTURE("checker", checker),    STROKES("letter_X", letter_x),
    OUTLINE("triangle", triangle),  TEXTURE("dots", dots),          STROKES("letter_S", letter_s),
    OUTLINE("star", star),          TEXTURE("rings", rings),        STROKES("letter_K", letter_k),
    FORMULA("ring", ring),          TEXTURE("waves", waves),        STROKES("letter_E", letter_e),
    OUTLINE("cross", cross),        TEXTURE("grain", grain),        STROKES("letter_R", letter_r),
    FORMULA("crescent", crescent),  TEXTURE("grid", grid),          STROKES("letter_T", letter_t),
    FORMULA("heart", heart),        TEXTURE("bricks", bricks),      STROKES("letter_L", letter_l),
    OUTLINE("arrow", arrow),        FORMULA("half_disc", half_disc),
};
/* clang-format on */

enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

int td_draw_kinds(void)
{
    return N_KINDS;
}

const char *td_draw_kind_name(int k)
{
    return k >= 0 && k < N_KINDS ? kinds[k].name : NULL;
}

static double distance(const kind *k, point p)
{
    if (k->distance)
        return k->distance(p);
    return k->is_stroke ? strokes(k, p) : outline(k, p);
}

/* --- one image ------------------------------------------------------------------------------ */

typedef struct {
    double rgb[3];
} colour;

typedef struct {
    point center; /* in pixels */
    point shift;  /* of a texture, in periods */
    double cos_turn, sin_turn;
    double unit;             /* pixels per unit of the figure, or per period */
    colour paper[2], ink[2]; /* the ends of a gradient across the image */
    point slope;             /* the gradient's direction */
    point noise_at;          /* background blotches: position in the lattice, */
    double blotch;           /* their strength, */
    double blotch_size;      /* blotches across the image */
    double grain;            /* standard deviation of a pixel's noise */
} scene;

static double between(td_rng *rng, double low, double high)
{
    return low + (high - low) * td_rng_uniform(rng);
}

static double brightness(colour c)
{
    return 0.299 * c.rgb[0] + 0.587 * c.rgb[1] + 0.114 * c.rgb[2];
}

static colour random_colour(td_rng *rng)
{
    colour c;
    for (int i = 0; i < 3; i++)
        c.rgb[i] = between(rng, 12, 243);
    return c;
}

static colour nearby(td_rng *rng, colour c, double reach)
{
    for (int i = 0; i < 3; i++)
        c.rgb[i] = fmin(fmax(c.rgb[i] + between(rng, -reach, reach), 0), 255);
    return c;
}

/* A colour clearly brighter or darker than `other`. */
static colour contrasting(td_rng *rng, colour other)
{
    enum { TRIES = 32 };
    const double wanted = 95;
    for (int i = 0; i < TRIES; i++) {
        colour c = random_colour(rng);
        if (fabs(brightness(c) - brightness(other)) >= wanted)
            return c;
    }
    double level = brightness(other) < 128 ? 240 : 15;
    return (colour){ { level, level, level } };
}

static scene compose(td_rng *rng, const kind *k, int width, int height)
{
    TD_CHECK(k);
    scene s = { .blotch = 0 };
    double side = width < height ? width : height;
    s.unit = side * (k->is_texture ? between(rng, 0.13, 0.24) : between(rng, 0.55, 0.92) / 2);
    double keep = k->is_texture ? side / 4 : s.unit;
    s.center.x = between(rng, keep, width - keep);
    s.center.y = between(rng, keep, height - keep);
    if (k->is_texture && k->distance != rings)
        s.shift = (point){ between(rng, 0, 500), between(rng, 0, 500) };
    const double most = 20 * 3.14159265358979323846 / 180;
    double turn = between(rng, -most, most);
    s.cos_turn = cos(turn);
    s.sin_turn = sin(turn);

    s.paper[0] = random_colour(rng);
    s.ink[0] = contrasting(rng, s.paper[0]);
    s.paper[1] = nearby(rng, s.paper[0], 30);
    s.ink[1] = nearby(rng, s.ink[0], 20);
    double direction = between(rng, 0, 2 * 3.14159265358979323846);
    s.slope = (point){ cos(direction) / width, sin(direction) / height };
    if (td_rng_uniform(rng) < 0.5)
        s.blotch = between(rng, 10, 35);
    s.blotch_size = between(rng, 2, 5);
    s.noise_at = (point){ between(rng, 0, 1000), between(rng, 0, 1000) };
    s.grain = between(rng, 0, 10);
    return s;
}

/* An approximately normal number with deviation 1: the sum of four random bytes. */
static double rough(td_rng *rng)
{
    uint32_t u = td_rng_u32(rng);
    int sum = (int)((u & 255) + (u >> 8 & 255) + (u >> 16 & 255) + (u >> 24));
    return (sum - 510) / 147.8;
}

static uint8_t to_byte(double v)
{
    return (uint8_t)(fmin(fmax(v, 0), 255) + 0.5);
}

/* the fraction of a pixel that the figure covers */
static double share_of(const scene *s, const kind *k, int x, int y)
{
    point q = { (x + 0.5 - s->center.x) / s->unit, (y + 0.5 - s->center.y) / s->unit };
    point p = { q.x * s->cos_turn + q.y * s->sin_turn + s->shift.x,
                q.y * s->cos_turn - q.x * s->sin_turn + s->shift.y };
    return fmin(fmax(0.5 - distance(k, p) * s->unit, 0), 1);
}

/* `k` NULL: background only */
static void paint(const scene *s, const kind *k, td_rng *rng, td_image *out)
{
    double side = out->width < out->height ? out->width : out->height;
    double per_pixel = s->blotch_size / side;
    uint8_t *px = out->px;
    for (int y = 0; y < out->height; y++) {
        for (int x = 0; x < out->width; x++, px += 3) {
            double share = k ? share_of(s, k, x, y) : 0;
            double t =
                0.5 + (x - 0.5 * out->width) * s->slope.x + (y - 0.5 * out->height) * s->slope.y;
            t = fmin(fmax(t, 0), 1);
            double blotch = 0;
            if (s->blotch > 0)
                blotch = s->blotch * (smooth_noise(s->noise_at.x + per_pixel * x,
                                                   s->noise_at.y + per_pixel * y) -
                                      0.5);
            for (int c = 0; c < 3; c++) {
                double paper = mix(s->paper[0].rgb[c], s->paper[1].rgb[c], t) + blotch;
                double ink = mix(s->ink[0].rgb[c], s->ink[1].rgb[c], t);
                px[c] = to_byte(mix(paper, ink, share) + s->grain * rough(rng));
            }
        }
    }
}

static td_status check_sides(int width, int height)
{
    enum { MIN_SIDE = 16, MAX_SIDE = 4096 };
    if (width >= MIN_SIDE && height >= MIN_SIDE && width <= MAX_SIDE && height <= MAX_SIDE)
        return TD_OK;
    return td_error(TD_EARG, "drawing of %d x %d pixels, wanted sides of %d to %d", width, height,
                    MIN_SIDE, MAX_SIDE);
}

td_status td_image_draw_sample(int which, td_rng *rng, int width, int height, td_image *out)
{
    if (which < 0 || which >= N_KINDS)
        return td_error(TD_EARG, "drawing kind is %d, wanted 0 to less than %d", which,
                        (int)N_KINDS);
    TD_TRY(check_sides(width, height));
    TD_TRY(td_image_resize_buffer(out, width, height));
    scene s = compose(rng, &kinds[which], width, height);
    paint(&s, &kinds[which], rng, out);
    return TD_OK;
}

/* --- several figures -------------------------------------------------------------------------- */

/* the i-th figure that is not a texture: filled ones, then letters; NULL past the last */
static const kind *figure(int i)
{
    for (int letters = 0; letters < 2; letters++)
        for (int k = 0; k < N_KINDS; k++)
            if (!kinds[k].is_texture && kinds[k].is_stroke == (letters == 1) && i-- == 0)
                return &kinds[k];
    return NULL;
}

int td_draw_figures(void)
{
    int n = 0;
    while (figure(n))
        n++;
    return n;
}

const char *td_draw_figure_name(int i)
{
    const kind *k = i >= 0 ? figure(i) : NULL;
    return k ? k->name : NULL;
}

/* Draws a figure over the image and records the pixels that it covers. */
static void paint_figure(const scene *s, const kind *k, td_rng *rng, td_image *out, td_drawn *d)
{
    int x0 = out->width, y0 = out->height, x1 = 0, y1 = 0;
    int top = (int)fmax(s->center.y - 1.1 * s->unit, 0);
    int bottom = (int)fmin(s->center.y + 1.1 * s->unit + 1, out->height);
    int left = (int)fmax(s->center.x - 1.1 * s->unit, 0);
    int right = (int)fmin(s->center.x + 1.1 * s->unit + 1, out->width);
    d->area = 0;
    for (int y = top; y < bottom; y++) {
        for (int x = left; x < right; x++) {
            double share = share_of(s, k, x, y);
            uint8_t *px = out->px + 3 * ((size_t)y * (size_t)out->width + (size_t)x);
            double grain_here = s->grain * rough(rng);
            for (int c = 0; c < 3 && share > 0; c++)
                px[c] = to_byte(mix(px[c], s->ink[0].rgb[c] + grain_here, share));
            if (share < 0.5)
                continue;
            d->area++;
            x0 = x < x0 ? x : x0;
            y0 = y < y0 ? y : y0;
            x1 = x + 1 > x1 ? x + 1 : x1;
            y1 = y + 1 > y1 ? y + 1 : y1;
        }
    }
    d->box = (td_box){ .x = x0, .y = y0, .width = x1 - x0, .height = y1 - y0 };
}

/* Chooses a size and a position that do not overlap the others; false: none found. */
static bool find_place(td_rng *rng, int width, int height, const scene *others, int n, scene *s)
{
    enum { TRIES = 40 };
    double side = width < height ? width : height;
    for (int i = 0; i < TRIES; i++) {
        bool is_free = true;
        s->unit = side * between(rng, 0.1, 0.26);
        s->center.x = between(rng, s->unit, width - s->unit);
        s->center.y = between(rng, s->unit, height - s->unit);
        for (int k = 0; k < n && is_free; k++) {
            double apart = s->unit + others[k].unit;
            is_free = fabs(s->center.x - others[k].center.x) >= apart ||
                      fabs(s->center.y - others[k].center.y) >= apart;
        }
        if (is_free)
            return true;
    }
    return false;
}

td_status td_image_draw_objects(int n_figures, int most, td_rng *rng, int width, int height,
                                td_image *out, td_drawn *drawn, int *n)
{
    enum { MOST = 16 };
    scene objects[MOST];
    *n = 0;
    if (n_figures < 1 || n_figures > td_draw_figures() || most < 1 || most > MOST)
        return td_error(TD_EARG, "%d of %d figures, wanted 1 .. %d of 1 .. %d", most, n_figures,
                        MOST, td_draw_figures());
    TD_TRY(check_sides(width, height));
    TD_TRY(td_image_resize_buffer(out, width, height));
    scene paper = compose(rng, figure(0), width, height);
    paint(&paper, NULL, rng, out);
    int wanted = 1 + (int)td_rng_below(rng, (uint64_t)most);
    for (; *n < wanted; (*n)++) {
        scene *s = &objects[*n];
        drawn[*n].figure = (int)td_rng_below(rng, (uint64_t)n_figures);
        const kind *k = figure(drawn[*n].figure);
        *s = compose(rng, k, width, height);
        if (!find_place(rng, width, height, objects, *n, s))
            break;
        s->ink[0] = contrasting(rng, paper.paper[0]);
        paint_figure(s, k, rng, out, &drawn[*n]);
        if (drawn[*n].area == 0) /* the figure is thinner than a pixel */
            break;
    }
    return TD_OK;
}

/* --- annotations ------------------------------------------------------------------------------ */

void td_image_fill(td_image *img, int64_t x0, int64_t y0, int64_t x1, int64_t y1,
                   const uint8_t rgb[3])
{
    x0 = x0 < 0 ? 0 : x0;
    y0 = y0 < 0 ? 0 : y0;
    x1 = x1 > img->width ? img->width : x1;
    y1 = y1 > img->height ? img->height : y1;
    for (int64_t y = y0; y < y1; y++) {
        for (int64_t x = x0; x < x1; x++)
            memcpy(img->px + 3 * (y * img->width + x), rgb, 3);
    }
}

void td_image_draw_box(td_image *img, td_box box, const uint8_t rgb[3], int thick)
{
    int64_t x0 = box.x, y0 = box.y, x1 = x0 + box.width, y1 = y0 + box.height;
    td_image_fill(img, x0, y0, x1, y0 + thick, rgb);
    td_image_fill(img, x0, y1 - thick, x1, y1, rgb);
    td_image_fill(img, x0, y0, x0 + thick, y1, rgb);
    td_image_fill(img, x1 - thick, y0, x1, y1, rgb);
}
