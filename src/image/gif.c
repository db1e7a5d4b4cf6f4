/*
 * image/gif.c -- reads the first frame of a GIF
 *
 *     "GIF89a"  screen  [palette]  { extension }  frame header  [palette]  LZW in blocks  ...
 *
 * The frame may be smaller than the screen; the rest has the colour of the frame's transparent
 * value, or of value 0.  A larger frame enlarges the image.  Values past the end of the palette are
 * gray.  All of this is as PIL has it; what follows the first frame is not read.
 *
 * LZW: a code is a byte of the image, or stands for an earlier string and one more byte.  Strings
 * are chains: string[c] is string[prefix[c]] and then suffix[c].  Codes grow from one bit more than
 * a value has to 12 bits, and stay there until the table is cleared.
 *
 * Source: CompuServe, Graphics Interchange Format, version 89a, appendix F.
 */
#include <string.h>

#include "image/codec.h"

enum {
    SCREEN_BYTES = 13,
    FRAME_BYTES = 9,
    CODES_MAX = 4096,
    CODE_BITS_MAX = 12,
    IS_INTERLACED = 64,
    HAS_PALETTE = 128
};

typedef struct {
    const uint8_t *bytes;
    size_t n_bytes, at;
} reader;

typedef struct {
    int width, height; /* of the image */
    int x, y, frame_width, frame_height;
    int transparent; /* value, 0 without one */
    bool is_interlaced;
    uint8_t palette[256][3];
} gif;

static td_status truncated(const reader *r)
{
    return td_error(TD_EFORMAT, "GIF: the file is truncated (at byte %zu of %zu)", r->at,
                    r->n_bytes);
}

/* *out: the next n bytes. */
static td_status take(reader *r, size_t n, const uint8_t **out)
{
    if (n > r->n_bytes - r->at)
        return truncated(r);
    *out = r->bytes + r->at;
    r->at += n;
    return TD_OK;
}

static int get16(const uint8_t *p)
{
    return p[0] | p[1] << 8;
}

/* --- headers ---------------------------------------------------------------------------------- */

static td_status read_palette(reader *r, unsigned flags, gif *g)
{
    const uint8_t *p;
    const size_t n_bytes = (size_t)3 << ((flags & 7) + 1);
    if (!(flags & HAS_PALETTE))
        return TD_OK;
    TD_TRY(take(r, n_bytes, &p));
    td_colour_gray_palette(g->palette);
    memcpy(g->palette, p, n_bytes);
    return TD_OK;
}

/* An extension: its label, then blocks up to an empty one. */
static td_status read_extension(reader *r, gif *g)
{
    enum { GRAPHIC_CONTROL = 0xF9 };
    const uint8_t *p;
    TD_TRY(take(r, 1, &p));
    const bool is_control = *p == GRAPHIC_CONTROL;
    for (bool is_first = true;; is_first = false) {
        TD_TRY(take(r, 1, &p));
        const size_t n = *p;
        if (n == 0)
            return TD_OK;
        TD_TRY(take(r, n, &p));
        if (is_control && is_first && n >= 4 && (p[0] & 1))
            g->transparent = p[3];
    }
}

static td_status read_headers(reader *r, gif *g)
{
    const uint8_t *p;
    TD_TRY(take(r, SCREEN_BYTES, &p));
    *g = (gif){ .width = get16(p + 6), .height = get16(p + 8) };
    td_colour_gray_palette(g->palette);
    TD_TRY(read_palette(r, p[10], g));
    for (;;) {
        TD_TRY(take(r, 1, &p));
        if (*p == '!')
            TD_TRY(read_extension(r, g));
        else if (*p == ',')
            break;
        else if (*p == ';')
            return td_error(TD_EFORMAT, "GIF: the file has no frame");
        else if (*p != 0)
            return td_error(TD_EFORMAT, "GIF: byte %zu is 0x%02X, wanted a frame", r->at - 1, *p);
    }
    TD_TRY(take(r, FRAME_BYTES, &p));
    g->x = get16(p);
    g->y = get16(p + 2);
    g->frame_width = get16(p + 4);
    g->frame_height = get16(p + 6);
    g->is_interlaced = p[8] & IS_INTERLACED;
    TD_TRY(read_palette(r, p[8], g));
    if (g->frame_width < 1 || g->frame_height < 1)
        return td_error(TD_EFORMAT, "GIF: the first frame has %d x %d pixels", g->frame_width,
                        g->frame_height);
    g->width = g->width > g->x + g->frame_width ? g->width : g->x + g->frame_width;
    g->height = g->height > g->y + g->frame_height ? g->height : g->y + g->frame_height;
    return TD_OK;
}

/* --- pixels ----------------------------------------------------------------------------------- */

typedef struct {
    const gif *g;
    td_image *out;
    int x, y, pass; /* of the next pixel, in the frame */
} writer;

/* Rows of an interlaced frame: every eighth, those between, every second of the rest, the rest. */
static const struct {
    int first, step;
} passes[] = { { 0, 8 }, { 4, 8 }, { 2, 4 }, { 1, 2 } };
enum { N_PASSES = sizeof passes / sizeof *passes };

static void next_row(writer *w)
{
    w->x = 0;
    w->y += w->g->is_interlaced ? passes[w->pass].step : 1;
    while (w->g->is_interlaced && w->y >= w->g->frame_height && ++w->pass < N_PASSES)
        w->y = passes[w->pass].first;
}

static bool is_full(const writer *w)
{
    return w->y >= w->g->frame_height;
}

static void put(writer *w, uint8_t value)
{
    const size_t row = (size_t)(w->g->y + w->y), column = (size_t)(w->g->x + w->x);
    memcpy(w->out->px + 3 * (row * (size_t)w->out->width + column), w->g->palette[value], 3);
    if (++w->x == w->g->frame_width)
        next_row(w);
}

static void fill(const gif *g, td_image *out)
{
    const size_t n = (size_t)out->width * (size_t)out->height;
    for (size_t i = 0; i < n; i++)
        memcpy(out->px + 3 * i, g->palette[g->transparent], 3);
}

/* --- LZW -------------------------------------------------------------------------------------- */

typedef struct {
    reader *r;
    size_t block_left; /* bytes of the current block */
    uint32_t bits;
    int n_bits;
} bit_reader;

static td_status next_byte(bit_reader *b, uint8_t *out)
{
    const uint8_t *p;
    if (b->block_left == 0) {
        TD_TRY(take(b->r, 1, &p));
        b->block_left = *p;
        if (*p == 0)
            return td_error(TD_EFORMAT, "GIF: the pixels end too early (at byte %zu of %zu)",
                            b->r->at, b->r->n_bytes);
    }
    TD_TRY(take(b->r, 1, &p));
    b->block_left--;
    *out = *p;
    return TD_OK;
}

static td_status next_code(bit_reader *b, int size_bits, int *out)
{
    while (b->n_bits < size_bits) {
        uint8_t byte;
        TD_TRY(next_byte(b, &byte));
        b->bits |= (uint32_t)byte << b->n_bits;
        b->n_bits += 8;
    }
    *out = (int)(b->bits & ((1u << size_bits) - 1));
    b->bits >>= size_bits;
    b->n_bits -= size_bits;
    return TD_OK;
}

typedef struct {
    uint16_t prefix[CODES_MAX];
    uint8_t suffix[CODES_MAX];
    uint8_t string[CODES_MAX + 1]; /* a string, its last byte first */
    int clear, n_codes;            /* codes: values, `clear`, the end, strings */
    int size_bits, last;           /* last: the code before; -1: none */
    uint8_t first;                 /* the first byte of its string */
} lzw;

static void clear_table(lzw *z, int value_bits)
{
    z->clear = 1 << value_bits;
    z->n_codes = z->clear + 2;
    z->size_bits = value_bits + 1;
    z->last = -1;
}

static td_status write_string(lzw *z, int code, writer *w)
{
    int n = 0, c = code;
    if (code > z->n_codes || (code == z->n_codes && z->last < 0))
        return td_error(TD_EFORMAT, "GIF: the pixels are damaged (code %d of %d)", code,
                        z->n_codes);
    if (code == z->n_codes) { /* the string before and its own first byte: known only from now */
        z->string[n++] = z->first;
        c = z->last;
    }
    for (; c > z->clear; c = z->prefix[c])
        z->string[n++] = z->suffix[c];
    z->first = (uint8_t)c;
    z->string[n++] = z->first;
    while (n > 0 && !is_full(w))
        put(w, z->string[--n]);
    return TD_OK;
}

/* The string of the code before, and the first byte of this one, get the next code. */
static void add_string(lzw *z)
{
    if (z->last < 0 || z->n_codes == CODES_MAX)
        return;
    z->prefix[z->n_codes] = (uint16_t)z->last;
    z->suffix[z->n_codes] = z->first;
    z->n_codes++;
    if (z->n_codes == 1 << z->size_bits && z->size_bits < CODE_BITS_MAX)
        z->size_bits++;
}

static td_status read_pixels(reader *r, const gif *g, td_image *out)
{
    lzw z;
    const uint8_t *p;
    bit_reader bits = { .r = r };
    writer w = { .g = g, .out = out };
    TD_TRY(take(r, 1, &p));
    const int value_bits = *p;
    if (value_bits < 1 || value_bits > 8)
        return td_error(TD_EFORMAT, "GIF: pixels have %d bits, wanted 1 to 8", value_bits);
    clear_table(&z, value_bits);
    while (!is_full(&w)) {
        int code;
        TD_TRY(next_code(&bits, z.size_bits, &code));
        if (code == z.clear) {
            clear_table(&z, value_bits);
            continue;
        }
        if (code == z.clear + 1)
            return td_error(TD_EFORMAT, "GIF: the pixels end in row %d of %d", w.y,
                            g->frame_height);
        TD_TRY(write_string(&z, code, &w));
        add_string(&z);
        z.last = code;
    }
    return TD_OK;
}

/* --- the file --------------------------------------------------------------------------------- */

td_status td_gif_probe(const uint8_t *bytes, size_t n_bytes, td_image_info *out)
{
    gif g;
    reader r = { .bytes = bytes, .n_bytes = n_bytes };
    TD_TRY(read_headers(&r, &g));
    TD_TRY(td_image_check_size(g.width, g.height, TD_IMAGE_MAX_PIXELS));
    out->width = g.width;
    out->height = g.height;
    out->colour = "palette";
    out->bits = 8;
    out->is_progressive = g.is_interlaced;
    return TD_OK;
}

td_status td_gif_decode(const uint8_t *bytes, size_t n_bytes, const td_codec_opts *opts,
                        td_image *out, td_codec_result *res)
{
    gif g;
    reader r = { .bytes = bytes, .n_bytes = n_bytes };
    TD_TRY(read_headers(&r, &g));
    TD_TRY(td_image_begin_whole(opts, g.width, g.height, out, res));
    if (g.frame_width < g.width || g.frame_height < g.height)
        fill(&g, out);
    return read_pixels(&r, &g, out);
}
