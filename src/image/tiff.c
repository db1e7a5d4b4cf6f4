/*
 * image/tiff.c -- reads the first image of a TIFF with libtiff
 *
 * Gray, RGB and CMYK with 1 to 16 bits, palettes, alpha, in strips or tiles, with samples next to
 * each other or in planes, compressed by anything that libtiff knows.  16-bit samples keep their
 * upper 8 bits; alpha is dropped, after colours that were multiplied by it are divided by it again;
 * all as PIL has it.  YCbCr is converted by libtiff, or by libjpeg inside it.
 *
 * libtiff reads memory through callbacks and reports through a handler of this file alone, so that
 * it prints nothing.  The sizes of everything that it allocates are limited.
 */
#include <tiffio.h>

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "image/codec.h"

enum { MESSAGE_BYTES = 200, SAMPLES_MAX = 8 };

/* --- a file in memory ------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *bytes;
    size_t n_bytes, at;
    char message[MESSAGE_BYTES]; /* libtiff's first error; "": none */
    TIFF *tif;
} reader;

static tmsize_t read_bytes(thandle_t user, void *to, tmsize_t n)
{
    reader *r = user;
    const size_t left = r->at < r->n_bytes ? r->n_bytes - r->at : 0;
    const size_t n_read = n < 0 ? 0 : (size_t)n < left ? (size_t)n : left;
    if (n_read > 0)
        memcpy(to, r->bytes + r->at, n_read);
    r->at += n_read;
    return (tmsize_t)n_read;
}

static tmsize_t write_nothing(thandle_t user, void *from, tmsize_t n)
{
    (void)user, (void)from, (void)n;
    return 0;
}

static toff_t seek(thandle_t user, toff_t to, int whence)
{
    reader *r = user;
    const size_t from = whence == SEEK_CUR ? r->at : whence == SEEK_END ? r->n_bytes : 0;
    if (to > SIZE_MAX - from)
        return (toff_t)-1;
    r->at = from + (size_t)to;
    return r->at;
}

static int close_nothing(thandle_t user)
{
    (void)user;
    return 0;
}

static toff_t size(thandle_t user)
{
    return ((const reader *)user)->n_bytes;
}

__attribute__((format(printf, 4, 0))) static int
keep_error(TIFF *tif, void *user, const char *module, const char *format, va_list args)
{
    reader *r = user;
    (void)tif, (void)module;
    if (!*r->message)
        (void)vsnprintf(r->message, sizeof r->message, format, args);
    return 1; /* the handlers of the process, which print, are not called */
}

/*
 * Two kinds of warnings are errors: what libjpeg repairs in damaged pixels, and a palette that
 * cannot be read, without which libtiff would take the values for gray.
 */
__attribute__((format(printf, 4, 0))) static int
keep_warning(TIFF *tif, void *user, const char *module, const char *format, va_list args)
{
    char text[MESSAGE_BYTES];
    reader *r = user;
    (void)tif;
    (void)vsnprintf(text, sizeof text, format, args);
    const bool is_damage =
        (module && strcmp(module, "JPEGLib") == 0) || strstr(text, "\"ColorMap\"");
    if (is_damage && !*r->message)
        memcpy(r->message, text, sizeof text);
    return 1;
}

static td_status failed(const reader *r)
{
    return td_error(TD_EFORMAT, "TIFF: %s", *r->message ? r->message : "the file is damaged");
}

static void close_tiff(reader *r)
{
    if (r->tif)
        TIFFClose(r->tif);
    r->tif = NULL;
}

static td_status open_tiff(reader *r, const uint8_t *bytes, size_t n_bytes, int64_t max_pixels)
{
    enum { SPARE_BYTES = 64 << 20, PIXEL_BYTES = 2 * SAMPLES_MAX };
    *r = (reader){ .bytes = bytes, .n_bytes = n_bytes };
    TIFFOpenOptions *o = TIFFOpenOptionsAlloc();
    if (!o)
        return td_error(TD_ENOMEM, "TIFF: cannot allocate memory");
    TIFFOpenOptionsSetMaxSingleMemAlloc(o, SPARE_BYTES + PIXEL_BYTES * (tmsize_t)max_pixels);
    TIFFOpenOptionsSetErrorHandlerExtR(o, keep_error, r);
    TIFFOpenOptionsSetWarningHandlerExtR(o, keep_warning, r);
    r->tif = TIFFClientOpenExt("image", "rm", r, read_bytes, write_nothing, seek, close_nothing,
                               size, NULL, NULL, o);
    TIFFOpenOptionsFree(o);
    if (r->tif && !*r->message)
        return TD_OK;
    td_status st = failed(r);
    close_tiff(r);
    return st;
}

/* --- what kind of image ----------------------------------------------------------------------- */

typedef struct {
    uint32_t width, height;
    uint16_t bits, n_samples, photometric, planar, format, compression;
    uint16_t alpha; /* EXTRASAMPLE_... of the first sample after the colours; 0: none */
    int n_colors;   /* samples that make the colour */
    bool by_library;
    bool is_tiled;
} kind;

static td_status read_size(reader *r, int64_t max_pixels, kind *k)
{
    *k = (kind){ 0 };
    if (!TIFFGetField(r->tif, TIFFTAG_IMAGEWIDTH, &k->width) ||
        !TIFFGetField(r->tif, TIFFTAG_IMAGELENGTH, &k->height))
        return td_error(TD_EFORMAT, "TIFF: the file has no image size");
    return td_image_check_size(k->width, k->height, max_pixels);
}

static td_status check_samples(const kind *k)
{
    if (k->photometric == PHOTOMETRIC_MINISWHITE || k->photometric == PHOTOMETRIC_MINISBLACK ||
        k->photometric == PHOTOMETRIC_RGB || k->photometric == PHOTOMETRIC_PALETTE ||
        k->photometric == PHOTOMETRIC_SEPARATED || k->photometric == PHOTOMETRIC_YCBCR) {
        if (k->n_samples < k->n_colors || k->n_samples > SAMPLES_MAX)
            return td_error(TD_EUNSUPPORTED,
                            "TIFF: %d samples a pixel are not supported, wanted %d to %d",
                            k->n_samples, k->n_colors, SAMPLES_MAX);
    } else {
        return td_error(TD_EUNSUPPORTED,
                        "TIFF: photometric interpretation %d is not supported, wanted gray, RGB, "
                        "palette, CMYK or YCbCr",
                        k->photometric);
    }
    if (k->format != SAMPLEFORMAT_UINT && k->format != SAMPLEFORMAT_VOID)
        return td_error(TD_EUNSUPPORTED,
                        "TIFF: samples that are no unsigned integers (format %d) are not supported",
                        k->format);
    const bool is_palette = k->photometric == PHOTOMETRIC_PALETTE;
    if (k->bits != 1 && k->bits != 2 && k->bits != 4 && k->bits != 8 &&
        (k->bits != 16 || is_palette))
        return td_error(TD_EUNSUPPORTED, "TIFF: %d bits a sample are not supported, wanted 1 to %d",
                        k->bits, is_palette ? 8 : 16);
    return TD_OK;
}

static int colors_of(uint16_t photometric)
{
    if (photometric == PHOTOMETRIC_RGB || photometric == PHOTOMETRIC_YCBCR)
        return 3;
    return photometric == PHOTOMETRIC_SEPARATED ? 4 : 1;
}

static td_status read_kind(reader *r, int64_t max_pixels, kind *k)
{
    uint16_t n_extra = 0, *extra = NULL;
    TIFF *t = r->tif;
    TD_TRY(read_size(r, max_pixels, k));
    if (!TIFFGetField(t, TIFFTAG_PHOTOMETRIC, &k->photometric))
        k->photometric = PHOTOMETRIC_MINISBLACK;
    TIFFGetFieldDefaulted(t, TIFFTAG_BITSPERSAMPLE, &k->bits);
    TIFFGetFieldDefaulted(t, TIFFTAG_SAMPLESPERPIXEL, &k->n_samples);
    TIFFGetFieldDefaulted(t, TIFFTAG_PLANARCONFIG, &k->planar);
    TIFFGetFieldDefaulted(t, TIFFTAG_SAMPLEFORMAT, &k->format);
    TIFFGetFieldDefaulted(t, TIFFTAG_COMPRESSION, &k->compression);
    if (TIFFGetField(t, TIFFTAG_EXTRASAMPLES, &n_extra, &extra) && n_extra > 0)
        k->alpha = extra[0];
    k->n_colors = colors_of(k->photometric);
    k->is_tiled = TIFFIsTiled(t);
    TD_TRY(check_samples(k));
    if (k->n_samples == k->n_colors)
        k->alpha = 0;
    if (!TIFFIsCODECConfigured(k->compression))
        return td_error(TD_EUNSUPPORTED, "TIFF: compression %d is not supported by libtiff",
                        k->compression);
    if (k->photometric != PHOTOMETRIC_YCBCR)
        return TD_OK;
    if (k->compression == COMPRESSION_JPEG && k->planar == PLANARCONFIG_CONTIG && k->bits == 8)
        TIFFSetField(t, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    else
        k->by_library = true;
    return TD_OK;
}

static const char *colour_name(const kind *k)
{
    switch (k->photometric) {
    case PHOTOMETRIC_RGB:
        return k->n_samples > 3 ? "RGBA" : "RGB";
    case PHOTOMETRIC_PALETTE:
        return "palette";
    case PHOTOMETRIC_SEPARATED:
        return "CMYK";
    case PHOTOMETRIC_YCBCR:
        return "YCbCr";
    default:
        return k->n_samples > 1 ? "gray+alpha" : "gray";
    }
}

/* --- samples to colours ----------------------------------------------------------------------- */

/* A rectangle of decoded samples: a strip or a tile, of each plane. */
typedef struct {
    uint8_t *bytes;
    size_t plane_bytes; /* distance of the planes; 0: samples are next to each other */
    size_t row_bytes;
    uint32_t width, height;
} block;

/* Sample s of pixel x of a row, as a byte; of a palette, and below 8 bits, as its value. */
static unsigned sample(const kind *k, const block *b, const uint8_t *row, uint32_t x, int s)
{
    const bool is_plane = b->plane_bytes > 0;
    const uint8_t *from = row + (is_plane ? (size_t)s * b->plane_bytes : 0);
    const size_t i = is_plane ? x : (size_t)x * k->n_samples + (size_t)s;
    if (k->bits == 8)
        return from[i];
    if (k->bits == 16) {
        uint16_t value;
        memcpy(&value, from + 2 * i, 2);
        return value >> 8;
    }
    const size_t a_byte = 8u / k->bits;
    const unsigned shift = (unsigned)(8 - k->bits - (i % a_byte) * k->bits);
    return (unsigned)from[i / a_byte] >> shift & ((1u << k->bits) - 1);
}

static uint8_t divided(unsigned v, unsigned alpha)
{
    const unsigned value = alpha ? v * 255 / alpha : 0;
    return (uint8_t)(value < 255 ? value : 255);
}

static void convert_pixel(const kind *k, const block *b, const uint8_t *row, uint32_t x,
                          uint8_t palette[256][3], uint8_t *rgb)
{
    const unsigned most = k->bits < 8 ? (1u << k->bits) - 1 : 255;
    uint8_t c[4];
    if (k->photometric == PHOTOMETRIC_PALETTE) {
        memcpy(rgb, palette[sample(k, b, row, x, 0)], 3);
        return;
    }
    for (int s = 0; s < k->n_colors; s++)
        c[s] = (uint8_t)(sample(k, b, row, x, s) * 255 / most);
    if (k->alpha == EXTRASAMPLE_ASSOCALPHA && k->bits >= 8) {
        const unsigned alpha = sample(k, b, row, x, k->n_colors);
        for (int s = 0; s < k->n_colors; s++)
            c[s] = divided(c[s], alpha);
    }
    if (k->n_colors == 4) { /* the function takes inverted values, as JPEG files have them */
        for (int s = 0; s < 4; s++)
            c[s] = (uint8_t)(255 - c[s]);
        td_colour_cmyk_row(c, rgb, 1);
    } else if (k->n_colors == 3) {
        memcpy(rgb, c, 3);
    } else {
        memset(rgb, k->photometric == PHOTOMETRIC_MINISWHITE ? 255 - c[0] : c[0], 3);
    }
}

/* Put the block at (x, y) of the image, cut at the image's edges. */
static void convert_block(const kind *k, const block *b, uint8_t palette[256][3], uint32_t x,
                          uint32_t y, td_image *out)
{
    const uint32_t width = k->width - x < b->width ? k->width - x : b->width;
    const uint32_t height = k->height - y < b->height ? k->height - y : b->height;
    const bool is_rgb = k->n_colors == 3 && k->n_samples == 3 && k->bits == 8 && !b->plane_bytes;
    for (uint32_t i = 0; i < height; i++) {
        const uint8_t *row = b->bytes + i * b->row_bytes;
        uint8_t *rgb = out->px + 3 * ((size_t)(y + i) * k->width + x);
        if (is_rgb)
            memcpy(rgb, row, 3 * (size_t)width);
        for (uint32_t j = 0; j < width && !is_rgb; j++)
            convert_pixel(k, b, row, j, palette, rgb + 3 * (size_t)j);
    }
}

static td_status read_palette(reader *r, const kind *k, uint8_t palette[256][3])
{
    uint16_t *c[3];
    if (k->photometric != PHOTOMETRIC_PALETTE)
        return TD_OK;
    if (!TIFFGetField(r->tif, TIFFTAG_COLORMAP, &c[0], &c[1], &c[2]))
        return td_error(TD_EFORMAT, "TIFF: the palette is missing");
    for (int i = 0; i < 1 << k->bits; i++)
        for (int s = 0; s < 3; s++)
            palette[i][s] = (uint8_t)(c[s][i] >> 8);
    return TD_OK;
}

/* --- pixels ----------------------------------------------------------------------------------- */

/* The planes that are needed; one holds all samples when they are next to each other. */
static int planes_of(const kind *k)
{
    const int wanted = k->n_colors + (k->alpha == EXTRASAMPLE_ASSOCALPHA);
    return k->planar == PLANARCONFIG_SEPARATE ? wanted : 1;
}

static td_status make_block(reader *r, const kind *k, int64_t max_pixels, block *b)
{
    uint32_t rows = 0;
    *b = (block){ .width = k->width, .height = k->height };
    if (k->is_tiled) {
        if (!TIFFGetField(r->tif, TIFFTAG_TILEWIDTH, &b->width) ||
            !TIFFGetField(r->tif, TIFFTAG_TILELENGTH, &b->height))
            return td_error(TD_EFORMAT, "TIFF: tiles without a size");
    } else if (TIFFGetFieldDefaulted(r->tif, TIFFTAG_ROWSPERSTRIP, &rows) && rows < k->height) {
        b->height = rows;
    }
    const uint64_t n_samples = k->planar == PLANARCONFIG_SEPARATE ? 1 : k->n_samples;
    const uint64_t row_bytes = ((uint64_t)b->width * n_samples * k->bits + 7) / 8;
    const int64_t pixels_max = max_pixels + (1 << 20); /* a tile may be larger than the image */
    if (b->width < 1 || b->height < 1 || b->width > INT32_MAX || b->height > INT32_MAX ||
        (int64_t)b->width * b->height > pixels_max)
        return td_error(TD_ELIMIT, "TIFF: tiles or strips of %u x %u pixels, the limit is %lld",
                        b->width, b->height, (long long)pixels_max);
    const uint64_t library_bytes =
        k->is_tiled ? TIFFTileRowSize64(r->tif) : TIFFScanlineSize64(r->tif);
    if (library_bytes != row_bytes)
        return td_error(TD_EUNSUPPORTED, "TIFF: rows of %llu bytes, wanted %llu",
                        (unsigned long long)library_bytes, (unsigned long long)row_bytes);
    b->row_bytes = (size_t)row_bytes;
    const int n_planes = planes_of(k);
    const size_t plane_bytes = b->row_bytes * b->height;
    b->plane_bytes = k->planar == PLANARCONFIG_SEPARATE ? plane_bytes : 0;
    b->bytes = td_alloc(plane_bytes * (size_t)n_planes, 1);
    return b->bytes ? TD_OK : TD_ENOMEM;
}

/* Decode the strip or tile at (x, y), each plane that is needed. */
static td_status read_block(reader *r, const kind *k, block *b, uint32_t x, uint32_t y)
{
    TIFF *t = r->tif;
    const uint32_t rows = k->is_tiled || k->height - y > b->height ? b->height : k->height - y;
    const tmsize_t wanted = (tmsize_t)(b->row_bytes * rows);
    for (int p = 0; p < planes_of(k); p++) {
        uint8_t *to = b->bytes + (size_t)p * b->plane_bytes;
        const uint16_t plane = (uint16_t)p;
        const uint32_t i =
            k->is_tiled ? TIFFComputeTile(t, x, y, 0, plane) : TIFFComputeStrip(t, y, plane);
        if (TIFFGetStrileOffset(t, i) == 0) /* libtiff would take the file's head for pixels */
            return td_error(TD_EFORMAT, "TIFF: strip or tile %u has no place in the file", i);
        const tmsize_t n = k->is_tiled ? TIFFReadEncodedTile(t, i, to, wanted)
                                       : TIFFReadEncodedStrip(t, i, to, wanted);
        if (n != wanted || *r->message)
            return failed(r);
    }
    return TD_OK;
}

static td_status read_blocks(reader *r, const kind *k, int64_t max_pixels, td_image *out)
{
    block b = { 0 };
    uint8_t palette[256][3];
    td_status st;
    TD_TRY(read_palette(r, k, palette));
    TD_OUT(make_block(r, k, max_pixels, &b));
    for (uint32_t y = 0; y < k->height; y += b.height)
        for (uint32_t x = 0; x < k->width; x += b.width) {
            TD_OUT(read_block(r, k, &b, x, y));
            convert_block(k, &b, palette, x, y, out);
        }
out:
    td_free(b.bytes);
    return st;
}

/* YCbCr that is not JPEG: libtiff knows its subsampling and coefficients. */
static td_status read_by_library(reader *r, const kind *k, td_image *out)
{
    TIFFRGBAImage image;
    char why[1024] = ""; /* libtiff's own size for these messages */
    const size_t n = (size_t)k->width * k->height;
    uint32_t *px = td_alloc(n, sizeof *px);
    if (!px)
        return TD_ENOMEM;
    td_status st = TD_OK;
    if (!TIFFRGBAImageOK(r->tif, why) || !TIFFRGBAImageBegin(&image, r->tif, 1, why)) {
        st = td_error(TD_EUNSUPPORTED, "TIFF: %s", *why ? why : "an unusual kind of YCbCr");
    } else {
        image.req_orientation = image.orientation; /* as stored */
        if (!TIFFRGBAImageGet(&image, px, k->width, k->height) || *r->message)
            st = failed(r);
        TIFFRGBAImageEnd(&image);
    }
    for (size_t i = 0; st == TD_OK && i < n; i++) {
        out->px[3 * i] = (uint8_t)TIFFGetR(px[i]);
        out->px[3 * i + 1] = (uint8_t)TIFFGetG(px[i]);
        out->px[3 * i + 2] = (uint8_t)TIFFGetB(px[i]);
    }
    td_free(px);
    return st;
}

/* --- the file --------------------------------------------------------------------------------- */

int td_tiff_orientation(const uint8_t *bytes, size_t n_bytes)
{
    reader r;
    uint16_t value = 1;
    if (open_tiff(&r, bytes, n_bytes, TD_IMAGE_MAX_PIXELS) != TD_OK) {
        td_error_clear(); /* td_tiff_probe reports it */
        return 1;
    }
    TIFFGetFieldDefaulted(r.tif, TIFFTAG_ORIENTATION, &value);
    close_tiff(&r);
    return value >= 1 && value <= 8 ? value : 1;
}

td_status td_tiff_probe(const uint8_t *bytes, size_t n_bytes, td_image_info *out)
{
    reader r;
    kind k;
    td_status st;
    TD_OUT(open_tiff(&r, bytes, n_bytes, TD_IMAGE_MAX_PIXELS));
    TD_OUT(read_kind(&r, TD_IMAGE_MAX_PIXELS, &k));
    out->width = (int)k.width;
    out->height = (int)k.height;
    out->colour = colour_name(&k);
    out->bits = k.bits;
out:
    close_tiff(&r);
    return st;
}

td_status td_tiff_decode(const uint8_t *bytes, size_t n_bytes, const td_codec_opts *opts,
                         td_image *out, td_codec_result *res)
{
    reader r;
    kind k;
    td_status st;
    TD_OUT(open_tiff(&r, bytes, n_bytes, opts->max_pixels));
    TD_OUT(read_kind(&r, opts->max_pixels, &k));
    TD_OUT(td_image_begin_whole(opts, k.width, k.height, out, res));
    TD_OUT(k.by_library ? read_by_library(&r, &k, out)
                        : read_blocks(&r, &k, opts->max_pixels, out));
out:
    close_tiff(&r);
    return st;
}
