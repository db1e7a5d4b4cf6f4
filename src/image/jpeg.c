/*
 * image/jpeg.c -- reads and writes JPEG with libjpeg-turbo
 *
 * libjpeg reports errors by a callback that must not return, so every call of libjpeg runs inside
 * `guarded`, and the callback leaves by longjmp after setting the status and the message.
 *
 * Only the wanted part is decoded.  Rows above and below the region are skipped (entropy decoding
 * is necessary, the transform is not), columns are cut at block borders, and when the result will
 * be shrunk the transform itself produces 1/2, 1/4 or 1/8 of the size:
 *
 *     +--------------- image ---------------+
 *     |     rows skipped                      |      region   requested by the caller
 *     |   +--- covers -------------------+    |      covers   decoded: the region, a margin
 *     |   |   +----- region -----+       |    |               so that colour upsampling at its edge
 *     |   |   +------------------+       |    |               sees its neighbours, and out to the
 *     |   +------------------------------+    |               next block border
 *     |     rows not read                     |
 *     +---------------------------------------+
 *
 * Inside the region the pixels are bit-equal to those of the whole image.
 *
 * libjpeg reads all headers.  jpeg_scan.c decodes the pixels of common images at full size, faster
 * and with the same result; libjpeg decodes all others.
 *
 * Errors are: data that ends early, and any of libjpeg's warnings that mean lost pixels.  Stray
 * bytes between segments and odd headers lose no pixels and are accepted, as in PIL.
 */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "image/codec.h"
#include "image/jpeg_scan.h"

/* --- errors of libjpeg ------------------------------------------------------------------------ */

typedef struct {
    jmp_buf jump;
    td_status st;
    struct jpeg_error_mgr mgr;
    const struct jpeg_decompress_struct *cinfo; /* NULL while encoding */
    size_t n_bytes;                             /* of the file being decoded */
    const char *stage;                          /* "before" or "inside" */
    int max_scans;
} error_state;

static error_state *error_state_of(j_common_ptr any)
{
    return any->client_data;
}

/* The read position, for messages. */
static size_t position(const error_state *t)
{
    return t->n_bytes - t->cinfo->src->bytes_in_buffer;
}

_Noreturn static void abort_with(error_state *t, td_status st)
{
    t->st = st;
    longjmp(t->jump, 1);
}

static td_status status_of(int code)
{
    switch (code) {
    case JERR_OUT_OF_MEMORY:
        return TD_ENOMEM;
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
        return TD_ELIMIT;
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED:
        return TD_EUNSUPPORTED;
    default:
        return TD_EFORMAT;
    }
}

/* Fails with libjpeg's message, and the position when it is known. */
_Noreturn static void abort_with_message(j_common_ptr any, td_status st)
{
    error_state *t = error_state_of(any);
    char message[JMSG_LENGTH_MAX];
    any->err->format_message(any, message);
    if (t->cinfo && t->cinfo->src)
        abort_with(t, td_error(st, "JPEG: %s (byte %zu of %zu)", message, position(t), t->n_bytes));
    abort_with(t, td_error(st, "JPEG: %s", message));
}

static void on_error(j_common_ptr any)
{
    abort_with_message(any, status_of(any->err->msg_code));
}

static void on_message(j_common_ptr any, int level)
{
    if (level >= 0)
        return;
    switch (any->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_JPEG_EOF:
        abort_with_message(any, TD_EFORMAT);
    default:
        break;
    }
}

static void on_output(j_common_ptr any)
{
    (void)any;
}

static struct jpeg_error_mgr *install_error_state(error_state *t)
{
    jpeg_std_error(&t->mgr);
    t->mgr.error_exit = on_error;
    t->mgr.emit_message = on_message;
    t->mgr.output_message = on_output;
    return &t->mgr;
}

/* --- reading from memory ---------------------------------------------------------------------- */

typedef struct {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_source_mgr src;
    struct jpeg_progress_mgr progress;
    error_state error_state;

    const uint8_t *bytes;
    const td_codec_opts *opts;
    td_image_info *info; /* when probing */
    td_image *out;       /* when decoding */
    td_codec_result *res;
    td_box region; /* the wanted part, in stored coordinates */
    td_box box;    /* the part libjpeg decodes, in scaled stored pixels */
} reader;

static void source_start(j_decompress_ptr cinfo)
{
    (void)cinfo;
}

/* libjpeg has consumed all bytes and needs more. */
static boolean source_fill(j_decompress_ptr cinfo)
{
    error_state *t = cinfo->client_data;
    abort_with(t, td_error(TD_EFORMAT, "file ends %s the image data (byte %zu of %zu)", t->stage,
                           t->n_bytes, t->n_bytes));
}

static void source_skip(j_decompress_ptr cinfo, long n)
{
    struct jpeg_source_mgr *src = cinfo->src;
    if (n <= 0)
        return;
    if ((size_t)n > src->bytes_in_buffer) {
        error_state *t = cinfo->client_data;
        abort_with(t, td_error(TD_EFORMAT, "file ends inside a marker (byte %zu of %zu)",
                               position(t), t->n_bytes));
    }
    src->next_input_byte += n;
    src->bytes_in_buffer -= (size_t)n;
}

static void source_end(j_decompress_ptr cinfo)
{
    (void)cinfo;
}

/* Called often while a progressive file's scans are read. */
static void count_scans(j_common_ptr any)
{
    error_state *t = error_state_of(any);
    int n = t->cinfo->input_scan_number;
    if (n > t->max_scans)
        abort_with(t, td_error(TD_ELIMIT, "JPEG: scan %d, the limit is %d", n, t->max_scans));
}

static td_status guarded(reader *r, td_status (*body)(reader *))
{
    if (setjmp(r->error_state.jump))
        return r->error_state.st;
    return body(r);
}

/* Runs `body` with a reader connected to its source; always destroys the reader. */
static td_status with_reader(reader *r, size_t n_bytes, td_status (*body)(reader *))
{
    r->error_state.n_bytes = n_bytes;
    r->error_state.cinfo = &r->cinfo;
    r->error_state.stage = "before";
    r->src = (struct jpeg_source_mgr){ .next_input_byte = r->bytes,
                                       .bytes_in_buffer = n_bytes,
                                       .init_source = source_start,
                                       .fill_input_buffer = source_fill,
                                       .skip_input_data = source_skip,
                                       .resync_to_restart = jpeg_resync_to_restart,
                                       .term_source = source_end };
    r->cinfo.err = install_error_state(&r->error_state);
    r->cinfo.client_data = &r->error_state;
    td_status st = guarded(r, body);
    jpeg_destroy_decompress(&r->cinfo);
    return st;
}

/* --- the header ------------------------------------------------------------------------------- */

static const char *colour_name(J_COLOR_SPACE space)
{
    switch (space) {
    case JCS_GRAYSCALE:
        return "gray";
    case JCS_RGB:
        return "RGB";
    case JCS_YCbCr:
        return "YCbCr";
    case JCS_CMYK:
        return "CMYK";
    case JCS_YCCK:
        return "YCCK";
    default:
        return "unknown";
    }
}

/* Is the file long enough?  A block of 8 x 8 takes at least one bit (except with arithmetic
   coding). */
static td_status check_length(const reader *r)
{
    uint64_t w = r->cinfo.image_width, h = r->cinfo.image_height;
    uint64_t least = (w * h + 511) / 512;
    if (!r->cinfo.arith_code && r->error_state.n_bytes < least)
        return td_error(TD_EFORMAT,
                        "file of %zu bytes is too short for a JPEG of %llu x %llu pixels",
                        r->error_state.n_bytes, (unsigned long long)w, (unsigned long long)h);
    return TD_OK;
}

static td_status read_header(reader *r, int64_t max_pixels)
{
    struct jpeg_decompress_struct *c = &r->cinfo;
    jpeg_create_decompress(c);
    c->src = &r->src;
    jpeg_read_header(c, TRUE);
    if (c->data_precision != 8)
        return td_error(TD_EUNSUPPORTED, "JPEG has %d bits per sample, wanted 8",
                        c->data_precision);
    if (c->num_components != 1 && c->num_components != 3 && c->num_components != 4)
        return td_error(TD_EUNSUPPORTED, "JPEG has %d components, wanted 1, 3 or 4",
                        c->num_components);
    return td_image_check_size(c->image_width, c->image_height, max_pixels);
}

static td_status probe_body(reader *r)
{
    TD_TRY(read_header(r, TD_IMAGE_MAX_PIXELS));
    r->info->width = (int)r->cinfo.image_width;
    r->info->height = (int)r->cinfo.image_height;
    r->info->format = "JPEG";
    r->info->colour = colour_name(r->cinfo.jpeg_color_space);
    r->info->bits = r->cinfo.data_precision;
    r->info->is_progressive = r->cinfo.progressive_mode;
    return TD_OK;
}

td_status td_jpeg_probe(const uint8_t *bytes, size_t n_bytes, td_image_info *out)
{
    reader r = { .bytes = bytes, .info = out };
    return with_reader(&r, n_bytes, probe_body);
}

/* --- choosing the part to decode -------------------------------------------------------------- */

static int at_most(int a, int b)
{
    return a < b ? a : b;
}

static int at_least(int a, int b)
{
    return a > b ? a : b;
}

/* The strongest reduction that keeps the region's shorter side at out_size or more. */
static int choose_scale(td_box region, int out_size)
{
    int scale = 1;
    while (out_size > 0 && scale < 8 &&
           at_most(region.width, region.height) / (2 * scale) >= out_size)
        scale *= 2;
    return scale;
}

/* Sets r->box and the scale from the region, and libjpeg's output colour space. */
static td_status plan(reader *r)
{
    enum { MARGIN = 4 }; /* upsampling reads one neighbour in the half-size chroma planes */
    struct jpeg_decompress_struct *c = &r->cinfo;
    int w = (int)c->image_width, h = (int)c->image_height;
    bool swaps = td_orient_swaps(r->opts->orientation);
    td_box region = r->opts->region;
    TD_TRY(td_image_check_region(&region, swaps ? h : w, swaps ? w : h));
    region = td_orient_to_stored(region, r->opts->orientation, w, h);
    r->region = region;

    int scale = choose_scale(region, r->opts->out_size);
    c->scale_num = 1;
    c->scale_denom = (unsigned)scale;
    c->out_color_space = c->num_components == 4 ? JCS_CMYK : JCS_RGB;
    c->do_fancy_upsampling = !r->opts->is_fast;
    jpeg_calc_output_dimensions(c);

    int x1 = (region.x + region.width + scale - 1) / scale + MARGIN;
    int y1 = (region.y + region.height + scale - 1) / scale + MARGIN;
    r->box.x = at_least(region.x / scale - MARGIN, 0);
    r->box.y = at_least(region.y / scale - MARGIN, 0);
    r->box.width = at_most(x1, (int)c->output_width) - r->box.x;
    r->box.height = at_most(y1, (int)c->output_height) - r->box.y;
    r->res->scale = scale;
    r->res->full_width = w;
    r->res->full_height = h;
    return TD_OK;
}

/* --- the pixels ------------------------------------------------------------------------------- */

static void read_rgb_rows(reader *r)
{
    enum { BATCH = 16 };
    size_t stride = 3 * (size_t)r->box.width;
    for (int y = 0; y < r->box.height;) {
        JSAMPROW rows[BATCH];
        int n = at_most(BATCH, r->box.height - y);
        for (int i = 0; i < n; i++)
            rows[i] = r->out->px + stride * (size_t)(y + i);
        y += (int)jpeg_read_scanlines(&r->cinfo, rows, (unsigned)n);
    }
}

static void read_cmyk_rows(reader *r)
{
    j_common_ptr any = (j_common_ptr)&r->cinfo;
    unsigned width = (unsigned)r->box.width;
    JSAMPARRAY row = r->cinfo.mem->alloc_sarray(any, JPOOL_IMAGE, 4 * width, 1);
    for (int y = 0; y < r->box.height; y++) {
        jpeg_read_scanlines(&r->cinfo, row, 1);
        td_colour_cmyk_row(row[0], r->out->px + 3 * (size_t)width * (size_t)y, (int)width);
    }
}

/* Is there an end marker after the header?  Entropy-coded data cannot contain one. */
static bool has_end(const reader *r)
{
    size_t from = position(&r->error_state);
    for (size_t i = r->error_state.n_bytes; i >= from + 2; i--) {
        if (r->bytes[i - 2] == 0xFF && r->bytes[i - 1] == 0xD9)
            return true;
    }
    return false;
}

/*
 * Detects a truncated file even if the region is above the point of truncation: without an end
 * marker, the rows below the region are read too, and fail where the data ends.  (Skipping up to
 * the last row would not read anything.)
 */
static void read_rest(reader *r, bool is_whole)
{
    struct jpeg_decompress_struct *c = &r->cinfo;
    unsigned left = c->output_height - c->output_scanline;
    if (is_whole || left == 0)
        return;
    unsigned row_bytes = c->output_width * (unsigned)c->output_components;
    JSAMPARRAY row = c->mem->alloc_sarray((j_common_ptr)c, JPOOL_IMAGE, row_bytes, 1);
    if (left > 1)
        jpeg_skip_scanlines(c, left - 1);
    jpeg_read_scanlines(c, row, 1);
}

/* Decodes common images at full size. */
static td_status decode_here(reader *r, bool *done)
{
    *done = false;
    if (r->res->scale > 1 || r->opts->by_library)
        return TD_OK;
    r->res->covers = r->region;
    return td_jpeg_scan(&r->cinfo, r->region, r->opts->is_fast, r->out, done);
}

/* Decodes all other images, and damaged data, for which libjpeg provides the message. */
static td_status decode_by_library(reader *r, bool is_whole)
{
    struct jpeg_decompress_struct *c = &r->cinfo;
    r->progress.progress_monitor = count_scans;
    r->error_state.max_scans = r->opts->max_scans > 0 ? r->opts->max_scans : TD_IMAGE_MAX_SCANS;
    c->progress = &r->progress;
    r->error_state.stage = "inside";
    jpeg_start_decompress(c);
    if (r->box.width < (int)c->output_width) {
        unsigned x = (unsigned)r->box.x, width = (unsigned)r->box.width;
        jpeg_crop_scanline(c, &x, &width);
        r->box.x = (int)x;
        r->box.width = (int)width;
    }
    TD_TRY(td_image_resize_buffer(r->out, r->box.width, r->box.height));
    if (r->box.y > 0)
        jpeg_skip_scanlines(c, (unsigned)r->box.y);
    if (c->out_color_space == JCS_CMYK)
        read_cmyk_rows(r);
    else
        read_rgb_rows(r);
    read_rest(r, is_whole);

    int scale = r->res->scale;
    r->res->covers = (td_box){ .x = r->box.x * scale,
                               .y = r->box.y * scale,
                               .width = r->box.width * scale,
                               .height = r->box.height * scale };
    return TD_OK;
}

static td_status decode_body(reader *r)
{
    bool done = false;
    TD_TRY(read_header(r, r->opts->max_pixels));
    TD_TRY(check_length(r));
    TD_TRY(plan(r));
    bool is_whole = has_end(r);
    if (is_whole)
        TD_TRY(decode_here(r, &done));
    return done ? TD_OK : decode_by_library(r, is_whole);
}

td_status td_jpeg_decode(const uint8_t *bytes, size_t n_bytes, const td_codec_opts *opts,
                         td_image *out, td_codec_result *res)
{
    reader r = { .bytes = bytes, .opts = opts, .out = out, .res = res };
    return with_reader(&r, n_bytes, decode_body);
}

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct {
    struct jpeg_compress_struct cinfo;
    struct jpeg_destination_mgr dst;
    error_state error_state;
    const td_image *img;
    int quality;
    td_text *out;
    uint8_t buf[8192];
} writer;

static void sink_start(j_compress_ptr cinfo)
{
    error_state *t = cinfo->client_data;
    writer *w = (writer *)(void *)((char *)t - offsetof(writer, error_state));
    w->dst.next_output_byte = w->buf;
    w->dst.free_in_buffer = sizeof w->buf;
}

static boolean sink_empty(j_compress_ptr cinfo)
{
    error_state *t = cinfo->client_data;
    writer *w = (writer *)(void *)((char *)t - offsetof(writer, error_state));
    td_text_add_bytes(w->out, (const char *)w->buf, sizeof w->buf);
    sink_start(cinfo);
    return TRUE;
}

static void sink_end(j_compress_ptr cinfo)
{
    error_state *t = cinfo->client_data;
    writer *w = (writer *)(void *)((char *)t - offsetof(writer, error_state));
    td_text_add_bytes(w->out, (const char *)w->buf, sizeof w->buf - w->dst.free_in_buffer);
}

static td_status encode_body(writer *w)
{
    enum { FULL_COLOUR_QUALITY = 95 };
    struct jpeg_compress_struct *c = &w->cinfo;
    jpeg_create_compress(c);
    c->dest = &w->dst;
    c->image_width = (unsigned)w->img->width;
    c->image_height = (unsigned)w->img->height;
    c->input_components = 3;
    c->in_color_space = JCS_RGB;
    jpeg_set_defaults(c);
    jpeg_set_quality(c, w->quality, TRUE);
    if (w->quality >= FULL_COLOUR_QUALITY)
        c->comp_info[0].h_samp_factor = c->comp_info[0].v_samp_factor = 1;
    jpeg_start_compress(c, TRUE);
    while (c->next_scanline < c->image_height) {
        size_t at = 3 * (size_t)c->image_width * c->next_scanline;
        JSAMPROW row = w->img->px + at;
        jpeg_write_scanlines(c, &row, 1);
    }
    jpeg_finish_compress(c);
    return td_text_status(w->out);
}

static td_status guarded_write(writer *w)
{
    if (setjmp(w->error_state.jump))
        return w->error_state.st;
    return encode_body(w);
}

td_status td_image_encode_jpeg(const td_image *img, int quality, td_text *out)
{
    if (quality < 1 || quality > 100)
        return td_error(TD_EARG, "JPEG quality is %d, wanted 1 to 100", quality);
    if (img->width < 1 || img->height < 1 || img->width > 65500 || img->height > 65500)
        return td_error(TD_EARG, "a JPEG cannot hold %d x %d pixels", img->width, img->height);
    writer w = { .img = img, .quality = quality, .out = out };
    w.dst.init_destination = sink_start;
    w.dst.empty_output_buffer = sink_empty;
    w.dst.term_destination = sink_end;
    w.cinfo.err = install_error_state(&w.error_state);
    w.cinfo.client_data = &w.error_state;
    td_status st = guarded_write(&w);
    jpeg_destroy_compress(&w.cinfo);
    return st;
}
