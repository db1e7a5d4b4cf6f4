/*
 * image/image.c -- chooses a file's decoder; flips and crops images
 *
 * Decoding: identify the format by the first bytes, read the orientation, let the codec decode the
 * wanted part of the stored image, turn the result upright.
 */
#include "image/image.h"

#include <string.h>

#include "image/codec.h"

/* --- recognising formats ---------------------------------------------------------------------- */

typedef struct {
    int at;
    const char *bytes;
    int n;
    const char *name;
} signature;

/* clang-format off */
static const signature others[] = {
    { 4, "ftypavif",             8, "an AVIF image" },
    { 4, "ftyphei",              7, "a HEIC image" },
    { 4, "ftypmif1",             8, "a HEIF image" },
    { 4, "ftyp",                 4, "an MP4 video" },
    { 0, "\xFF\x0A",             2, "a JPEG XL image" },
    { 4, "JXL ",                 4, "a JPEG XL image" },
    { 4, "jP  ",                 4, "a JPEG 2000 image" },
    { 0, "\xFF\x4F\xFF\x51",     4, "a JPEG 2000 image" },
    { 0, "8BPS",                 4, "a Photoshop file" },
    { 0, "%PDF",                 4, "a PDF file" },
    { 0, "PK\x03\x04",           4, "a ZIP archive" },
    { 0, "\x1F\x8B",             2, "a gzip file" },
    { 0, "\x89HDF",              4, "an HDF5 file" },
};
/* clang-format on */

static bool has_at(const uint8_t *bytes, size_t n_bytes, const signature *s)
{
    return n_bytes >= (size_t)(s->at + s->n) && !memcmp(bytes + s->at, s->bytes, (size_t)s->n);
}

/* True if there are no control bytes, and no bytes that are invalid in UTF-8. */
static bool is_text(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((bytes[i] < 0x20 && !memchr("\t\n\r\f", bytes[i], 4)) || bytes[i] >= 0xF8)
            return false;
    }
    return n > 0 && (bytes[0] & 0xC0) != 0x80;
}

static bool mentions(const uint8_t *bytes, size_t n, const char *word)
{
    size_t len = strlen(word);
    for (size_t i = 0; i + len <= n; i++) {
        if (!strncasecmp((const char *)bytes + i, word, len))
            return true;
    }
    return false;
}

static const char *looks_like(const uint8_t *bytes, size_t n_bytes)
{
    enum { LOOK_BYTES = 256 };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (has_at(bytes, n_bytes, &others[i]))
            return others[i].name;
    }
    size_t n = n_bytes < LOOK_BYTES ? n_bytes : LOOK_BYTES;
    bool is_zero = true;
    for (size_t i = 0; i < n; i++)
        is_zero = is_zero && bytes[i] == 0;
    if (is_zero)
        return "a file of zero bytes";
    if (!is_text(bytes, n))
        return "unknown binary data";
    if (mentions(bytes, n, "<html") || mentions(bytes, n, "<!doctype html"))
        return "an HTML page";
    if (mentions(bytes, n, "<svg"))
        return "an SVG drawing";
    return mentions(bytes, n, "<?xml") ? "an XML file" : "text";
}

typedef struct {
    signature start; /* its name is that of the format */
    int (*orientation)(const uint8_t *, size_t);
    td_status (*probe)(const uint8_t *, size_t, td_image_info *);
    td_status (*decode)(const uint8_t *, size_t, const td_codec_opts *, td_image *,
                        td_codec_result *);
} codec;

static int upright(const uint8_t *bytes, size_t n_bytes)
{
    (void)bytes, (void)n_bytes;
    return 1;
}

/* clang-format off */
static const codec codecs[] = {
    { { 0, "\xFF\xD8", 2, "JPEG" }, td_exif_orientation_of_jpeg, td_jpeg_probe, td_jpeg_decode },
    { { 0, "\x89PNG",  4, "PNG" },  td_exif_orientation_of_png,  td_png_probe,  td_png_decode },
    { { 8, "WEBPVP8",  7, "WebP" }, td_exif_orientation_of_webp, td_webp_probe, td_webp_decode },
    { { 0, "II*\0",    4, "TIFF" }, td_tiff_orientation,         td_tiff_probe, td_tiff_decode },
    { { 0, "MM\0*",    4, "TIFF" }, td_tiff_orientation,         td_tiff_probe, td_tiff_decode },
    { { 0, "II+\0",    4, "TIFF" }, td_tiff_orientation,         td_tiff_probe, td_tiff_decode },
    { { 0, "MM\0+",    4, "TIFF" }, td_tiff_orientation,         td_tiff_probe, td_tiff_decode },
    { { 0, "GIF87a",   6, "GIF" },  upright,                     td_gif_probe,  td_gif_decode },
    { { 0, "GIF89a",   6, "GIF" },  upright,                     td_gif_probe,  td_gif_decode },
    { { 0, "BM",       2, "BMP" },  upright,                     td_bmp_probe,  td_bmp_decode },
};
/* clang-format on */

/* Two letters begin many texts: a BMP's header, at byte 14, begins with its size. */
static bool is_bmp(const uint8_t *bytes, size_t n_bytes)
{
    return n_bytes >= 18 && bytes[14] >= 12 && bytes[14] <= 124 && !bytes[15] && !bytes[16] &&
           !bytes[17];
}

static const codec *find_codec(const uint8_t *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        const codec *c = &codecs[i];
        if (has_at(bytes, n_bytes, &c->start) &&
            (c->decode != td_bmp_decode || is_bmp(bytes, n_bytes)))
            return c;
    }
    return NULL;
}

bool td_image_is_head(const void *bytes, size_t n_bytes)
{
    return find_codec(bytes, n_bytes) != NULL;
}

static td_status choose(const uint8_t *bytes, size_t n_bytes, const codec **out)
{
    if (n_bytes == 0)
        return td_error(TD_EFORMAT, "file is empty");
    *out = find_codec(bytes, n_bytes);
    if (!*out)
        return td_error(TD_EFORMAT, "no " TD_IMAGE_FORMATS " image: it looks like %s",
                        looks_like(bytes, n_bytes));
    return TD_OK;
}

/* --- decoding --------------------------------------------------------------------------------- */

td_status td_image_probe(const void *bytes, size_t n_bytes, td_image_info *out)
{
    const codec *c;
    *out = (td_image_info){ 0 };
    TD_TRY(choose(bytes, n_bytes, &c));
    td_image_info info = { .orientation = c->orientation(bytes, n_bytes), .format = c->start.name };
    TD_TRY(c->probe(bytes, n_bytes, &info));
    *out = info;
    return TD_OK;
}

void td_image_size(const td_image_info *info, bool stored_orientation, int *width, int *height)
{
    const bool swaps = !stored_orientation && td_orient_swaps(info->orientation);
    *width = swaps ? info->height : info->width;
    *height = swaps ? info->width : info->height;
}

/* Orientation 1 decodes directly into `out`; the others through a temporary image. */
static td_status decode_turned(const codec *c, const uint8_t *bytes, size_t n_bytes,
                               const td_codec_opts *opts, td_image *scratch, td_image *out,
                               td_codec_result *res)
{
    td_image own = { 0 }, *stored = scratch ? scratch : &own;
    td_status st;
    TD_OUT(c->decode(bytes, n_bytes, opts, stored, res));
    TD_OUT(td_orient_image(stored, opts->orientation, out));
out:
    td_image_release(&own);
    return st;
}

td_status td_image_decode(const void *bytes, size_t n_bytes, const td_decode_opts *opts,
                          td_image *out, td_decoded *where)
{
    const codec *c;
    TD_TRY(choose(bytes, n_bytes, &c));
    td_codec_opts o = { .max_pixels = opts->max_pixels ? opts->max_pixels : TD_IMAGE_MAX_PIXELS,
                        .max_scans = opts->max_scans ? opts->max_scans : TD_IMAGE_MAX_SCANS,
                        .by_library = opts->by_library,
                        .orientation = 1,
                        .region = opts->region,
                        .out_size = opts->allow_scale ? opts->out_size : 0,
                        .is_fast = opts->is_fast };
    if (!opts->stored_orientation)
        o.orientation = c->orientation(bytes, n_bytes);

    td_codec_result res = { 0 };
    if (o.orientation == 1)
        TD_TRY(c->decode(bytes, n_bytes, &o, out, &res));
    else
        TD_TRY(decode_turned(c, bytes, n_bytes, &o, opts->scratch, out, &res));
    if (where) {
        bool swaps = td_orient_swaps(o.orientation);
        where->full_width = swaps ? res.full_height : res.full_width;
        where->full_height = swaps ? res.full_width : res.full_height;
        where->covers =
            td_orient_to_upright(res.covers, o.orientation, res.full_width, res.full_height);
        where->scale = res.scale;
    }
    return TD_OK;
}

/* --- moving pixels ---------------------------------------------------------------------------- */

void td_image_flip(td_image *img)
{
    for (int y = 0; y < img->height; y++) {
        uint8_t *left = img->px + 3 * (size_t)img->width * (size_t)y;
        uint8_t *right = left + 3 * (size_t)(img->width - 1);
        for (; left < right; left += 3, right -= 3) {
            uint8_t keep[3];
            memcpy(keep, left, 3);
            memcpy(left, right, 3);
            memcpy(right, keep, 3);
        }
    }
}

td_status td_image_crop(const td_image *src, td_box box, td_image *out)
{
    TD_TRY(td_image_check_region(&box, src->width, src->height));
    TD_TRY(td_image_resize_buffer(out, box.width, box.height));
    size_t row = 3 * (size_t)box.width;
    for (int y = 0; y < box.height; y++) {
        size_t at = (size_t)(box.y + y) * (size_t)src->width + (size_t)box.x;
        memcpy(out->px + row * (size_t)y, src->px + 3 * at, row);
    }
    return TD_OK;
}
