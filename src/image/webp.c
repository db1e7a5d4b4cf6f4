/*
 * image/webp.c -- reads WebP with libwebp: lossy, lossless, and the first frame of an animation
 *
 * Alpha is dropped without blending, as of a PNG.  The first frame of an animation may be smaller
 * than its canvas; the rest of the canvas is black, as PIL has it.
 */
#include <webp/decode.h>
#include <webp/demux.h>

#include <string.h>

#include "image/codec.h"

static td_status check(VP8StatusCode code)
{
    switch (code) {
    case VP8_STATUS_OK:
        return TD_OK;
    case VP8_STATUS_OUT_OF_MEMORY: /* also what libwebp 1.5 says of damaged alpha */
        return td_error(TD_EFORMAT, "WebP: the file is damaged, or memory cannot be allocated");
    case VP8_STATUS_NOT_ENOUGH_DATA:
        return td_error(TD_EFORMAT, "WebP: the file is truncated");
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return td_error(TD_EUNSUPPORTED, "WebP: an unsupported feature");
    default:
        return td_error(TD_EFORMAT, "WebP: the file is damaged");
    }
}

td_status td_webp_probe(const uint8_t *bytes, size_t n_bytes, td_image_info *out)
{
    WebPBitstreamFeatures f;
    TD_TRY(check(WebPGetFeatures(bytes, n_bytes, &f)));
    TD_TRY(td_image_check_size(f.width, f.height, TD_IMAGE_MAX_PIXELS));
    out->width = f.width;
    out->height = f.height;
    out->colour = f.has_alpha ? "RGBA" : "RGB";
    out->bits = 8;
    return TD_OK;
}

/* Decode a frame to its place in the image. */
static td_status decode_frame(const WebPIterator *frame, td_image *out)
{
    WebPDecoderConfig config;
    TD_CHECK(WebPInitDecoderConfig(&config));
    TD_TRY(check(WebPGetFeatures(frame->fragment.bytes, frame->fragment.size, &config.input)));
    if (config.input.width != frame->width || config.input.height != frame->height ||
        frame->x_offset > out->width - frame->width ||
        frame->y_offset > out->height - frame->height)
        return td_error(TD_EFORMAT, "WebP: the first frame does not fit into the image");
    const size_t row = 3 * (size_t)out->width;
    const size_t at = (size_t)frame->y_offset * row + 3 * (size_t)frame->x_offset;
    if (frame->width != out->width || frame->height != out->height)
        memset(out->px, 0, row * (size_t)out->height);
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = out->px + at;
    config.output.u.RGBA.stride = (int)row;
    config.output.u.RGBA.size = row * (size_t)out->height - at;
    td_status st = check(WebPDecode(frame->fragment.bytes, frame->fragment.size, &config));
    WebPFreeDecBuffer(&config.output);
    return st;
}

td_status td_webp_decode(const uint8_t *bytes, size_t n_bytes, const td_codec_opts *opts,
                         td_image *out, td_codec_result *res)
{
    WebPIterator frame;
    td_image_info info;
    TD_TRY(td_webp_probe(bytes, n_bytes, &info));
    TD_TRY(td_image_begin_whole(opts, info.width, info.height, out, res));
    WebPDemuxState state;
    const WebPData data = { .bytes = bytes, .size = n_bytes };
    WebPDemuxer *demux = WebPDemuxPartial(&data, &state);
    if (!demux)
        return td_error(TD_EFORMAT, "WebP: the file is damaged");
    td_status st = TD_OK;
    if (state != WEBP_DEMUX_DONE)
        st = check(VP8_STATUS_NOT_ENOUGH_DATA);
    else if ((int)WebPDemuxGetI(demux, WEBP_FF_CANVAS_WIDTH) != info.width ||
             (int)WebPDemuxGetI(demux, WEBP_FF_CANVAS_HEIGHT) != info.height ||
             !WebPDemuxGetFrame(demux, 1, &frame))
        st = td_error(TD_EFORMAT, "WebP: the file has no first frame of its size");
    if (st == TD_OK) {
        st = decode_frame(&frame, out);
        WebPDemuxReleaseIterator(&frame);
    }
    WebPDemuxDelete(demux);
    return st;
}
