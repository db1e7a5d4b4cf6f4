/*
 * image/image_buffer.c -- the memory of an image, and the limits on sizes and regions
 *
 * The codecs and the resampling code use it; image.c, which chooses the codec, is one level above.
 */
#include <string.h>

#include "base/arena.h"
#include "image/codec.h"
#include "image/image.h"

enum {
    MAX_SIDE = 1 << 24,
    PAD_BYTES = 64 /* after the pixels, so that vector loads may read past the last one */
};

void td_image_release(td_image *img)
{
    td_free(img->px);
    *img = (td_image){ 0 };
}

td_status td_image_resize_buffer(td_image *img, int width, int height)
{
    if (width < 1 || height < 1)
        return td_error(TD_EARG, "image of %d x %d pixels", width, height);
    if (width > MAX_SIDE || height > MAX_SIDE || (int64_t)width * height > INT32_MAX)
        return td_error(TD_ELIMIT, "image of %d x %d pixels, the limit is %d", width, height,
                        INT32_MAX);

    size_t bytes = 3 * (size_t)width * (size_t)height + PAD_BYTES;
    if (bytes > img->cap_bytes) {
        uint8_t *px = td_alloc(bytes, 1);
        if (!px)
            return TD_ENOMEM;
        td_free(img->px);
        img->px = px;
        img->cap_bytes = bytes;
    }
    img->width = width;
    img->height = height;
    return TD_OK;
}

td_status td_image_set(td_image *img, const td_pixels *px)
{
    const size_t row = 3 * (size_t)(px->width > 0 ? px->width : 0);
    const size_t stride = px->row_bytes ? px->row_bytes : row;
    if (stride < row)
        return td_error(TD_EARG, "rows of %zu bytes, an image %d pixels wide has %zu", stride,
                        px->width, row);
    TD_TRY(td_image_resize_buffer(img, px->width, px->height));
    for (int y = 0; y < px->height; y++)
        memcpy(img->px + (size_t)y * row, px->rgb + (size_t)y * stride, row);
    return TD_OK;
}

td_status td_image_check_size(int64_t width, int64_t height, int64_t max_pixels)
{
    if (width < 1 || height < 1)
        return td_error(TD_EFORMAT, "the header declares %lld x %lld pixels", (long long)width,
                        (long long)height);
    if (width > MAX_SIDE || height > MAX_SIDE || width * height > max_pixels)
        return td_error(TD_ELIMIT, "the header declares %lld x %lld pixels, the limit is %lld",
                        (long long)width, (long long)height, (long long)max_pixels);
    return TD_OK;
}

td_status td_image_check_region(td_box *b, int width, int height)
{
    if (b->x == 0 && b->y == 0 && b->width == 0 && b->height == 0) {
        *b = (td_box){ .width = width, .height = height };
        return TD_OK;
    }
    if (b->x < 0 || b->y < 0 || b->width < 1 || b->height < 1 || b->width > width ||
        b->height > height || b->x > width - b->width || b->y > height - b->height)
        return td_error(TD_EARG, "region %d x %d at (%d, %d) exceeds the image of %d x %d",
                        b->width, b->height, b->x, b->y, width, height);
    return TD_OK;
}

td_status td_image_begin_whole(const td_codec_opts *opts, int64_t width, int64_t height,
                               td_image *out, td_codec_result *res)
{
    TD_TRY(td_image_check_size(width, height, opts->max_pixels));
    const int w = (int)width, h = (int)height;
    const bool swaps = td_orient_swaps(opts->orientation);
    td_box region = opts->region;
    TD_TRY(td_image_check_region(&region, swaps ? h : w, swaps ? w : h));
    TD_TRY(td_image_resize_buffer(out, w, h));
    *res = (td_codec_result){
        .full_width = w, .full_height = h, .covers = { .width = w, .height = h }, .scale = 1
    };
    return TD_OK;
}
