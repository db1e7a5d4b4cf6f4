/*
 * image/png.c -- reads and writes PNG with libspng
 *
 * Everything becomes 8-bit RGB: gray is repeated, palettes are looked up, 16 bits keep the upper 8,
 * alpha is dropped without blending (what PIL's convert("RGB") does).  Pixels are decoded whole; a
 * PNG's rows depend on each other.
 */
#include <spng.h>
#include <string.h>

#include "base/arena.h"
#include "image/codec.h"

/* --- memory and errors ------------------------------------------------------------------------ */

/* Did an allocation fail?  zlib then reports another error, and the callbacks have no context
   argument. */
static _Thread_local bool ran_out;

static void *noted(void *p)
{
    ran_out = ran_out || !p;
    return p;
}

static void *spng_get(size_t n)
{
    return noted(td_alloc(n ? n : 1, 1));
}

static void *spng_regrow(void *p, size_t n)
{
    return noted(td_resize(p, n ? n : 1, 1));
}

static void *spng_get_many(size_t n, size_t each)
{
    return noted(td_alloc(n, each));
}

static spng_ctx *context_new(int flags)
{
    struct spng_alloc a = { .malloc_fn = spng_get,
                            .realloc_fn = spng_regrow,
                            .calloc_fn = spng_get_many,
                            .free_fn = td_free };
    ran_out = false;
    return spng_ctx_new2(&a, flags);
}

static td_status check(int code)
{
    if (code != SPNG_OK && ran_out)
        return td_error(TD_ENOMEM, "PNG: cannot allocate memory");
    switch (code) {
    case SPNG_OK:
        return TD_OK;
    case SPNG_EOF:
    case SPNG_IO_EOF:
        return td_error(TD_EFORMAT, "PNG: the file is truncated");
    case SPNG_EUSER_WIDTH:
    case SPNG_EUSER_HEIGHT:
    case SPNG_EOVERFLOW:
    case SPNG_ECHUNK_LIMITS:
        return td_error(TD_ELIMIT, "PNG: %s", spng_strerror(code));
    default:
        return td_error(TD_EFORMAT, "PNG: %s", spng_strerror(code));
    }
}

/* --- reading ---------------------------------------------------------------------------------- */

static const char *colour_name(int type)
{
    switch (type) {
    case SPNG_COLOR_TYPE_GRAYSCALE:
        return "gray";
    case SPNG_COLOR_TYPE_TRUECOLOR:
        return "RGB";
    case SPNG_COLOR_TYPE_INDEXED:
        return "palette";
    case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA:
        return "gray+alpha";
    default:
        return "RGBA";
    }
}

/* Is the file long enough for its pixels?  Deflate compresses at most 1032 : 1. */
static td_status check_length(const struct spng_ihdr *h, size_t n_bytes)
{
    static const int n_channels[] = { 1, 0, 3, 1, 2, 0, 4 };
    uint64_t bits = (uint64_t)h->width * (uint64_t)n_channels[h->color_type] * h->bit_depth;
    uint64_t raw = (bits + 7) / 8 * h->height;
    if (raw / 1032 > n_bytes)
        return td_error(TD_EFORMAT, "file of %zu bytes is too short for a PNG of %u x %u pixels",
                        n_bytes, h->width, h->height);
    return TD_OK;
}

static td_status read_header(spng_ctx *ctx, const uint8_t *bytes, size_t n_bytes,
                             int64_t max_pixels, struct spng_ihdr *header)
{
    enum { MAX_CHUNK_BYTES = 16 << 20, MAX_KEPT_BYTES = 32 << 20 }; /* profiles, texts */
    TD_TRY(check(spng_set_chunk_limits(ctx, MAX_CHUNK_BYTES, MAX_KEPT_BYTES)));
    TD_TRY(check(spng_set_png_buffer(ctx, bytes, n_bytes)));
    TD_TRY(check(spng_get_ihdr(ctx, header)));
    return td_image_check_size(header->width, header->height, max_pixels);
}

td_status td_png_probe(const uint8_t *bytes, size_t n_bytes, td_image_info *out)
{
    struct spng_ihdr h;
    spng_ctx *ctx = context_new(0);
    if (!ctx)
        return TD_ENOMEM;
    td_status st = read_header(ctx, bytes, n_bytes, TD_IMAGE_MAX_PIXELS, &h);
    spng_ctx_free(ctx);
    if (st != TD_OK)
        return st;
    out->width = (int)h.width;
    out->height = (int)h.height;
    out->format = "PNG";
    out->colour = colour_name(h.color_type);
    out->bits = h.bit_depth;
    out->is_progressive = h.interlace_method == SPNG_INTERLACE_ADAM7;
    return TD_OK;
}

td_status td_png_decode(const uint8_t *bytes, size_t n_bytes, const td_codec_opts *opts,
                        td_image *out, td_codec_result *res)
{
    struct spng_ihdr h;
    td_status st;
    spng_ctx *ctx = context_new(0);
    if (!ctx)
        return TD_ENOMEM;
    TD_OUT(read_header(ctx, bytes, n_bytes, opts->max_pixels, &h));
    TD_OUT(check_length(&h, n_bytes));
    TD_OUT(td_image_begin_whole(opts, h.width, h.height, out, res));
    size_t bytes_out = 3 * (size_t)out->width * (size_t)out->height;
    TD_OUT(check(spng_decode_image(ctx, out->px, bytes_out, SPNG_FMT_RGB8, 0)));
out:
    spng_ctx_free(ctx);
    return st;
}

/* --- writing ---------------------------------------------------------------------------------- */

static int sink(spng_ctx *ctx, void *user, void *src, size_t n)
{
    (void)ctx;
    td_text_add_bytes(user, src, n);
    return td_text_status(user) == TD_OK ? 0 : SPNG_IO_ERROR;
}

td_status td_image_encode_png(const td_image *img, td_text *out)
{
    td_status st;
    struct spng_ihdr h = { .width = (uint32_t)img->width,
                           .height = (uint32_t)img->height,
                           .bit_depth = 8,
                           .color_type = SPNG_COLOR_TYPE_TRUECOLOR };
    if (img->width < 1 || img->height < 1)
        return td_error(TD_EARG, "a PNG cannot hold %d x %d pixels", img->width, img->height);
    spng_ctx *ctx = context_new(SPNG_CTX_ENCODER);
    if (!ctx)
        return TD_ENOMEM;
    TD_OUT(check(spng_set_png_stream(ctx, sink, out)));
    TD_OUT(check(spng_set_ihdr(ctx, &h)));
    size_t bytes = 3 * (size_t)img->width * (size_t)img->height;
    TD_OUT(check(spng_encode_image(ctx, img->px, bytes, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE)));
out:
    spng_ctx_free(ctx);
    if (td_text_status(out) != TD_OK)
        return td_text_status(out);
    return st;
}
