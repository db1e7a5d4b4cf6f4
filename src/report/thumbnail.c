/*
 * thumbnail.c -- makes thumbnails as data URLs
 */
#include "report/thumbnail.h"

#include <string.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/paths.h"
#include "image/image.h"

enum { QUALITY = 80, MAX_FILE_BYTES = 64 << 20, MAX_PIXELS = 50000000 };

bool td_thumbnail_is_below(const char *path)
{
    if (!*path || *path == '/')
        return false;
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || p[2] == '\0'))
            return false;
    }
    return true;
}

static void add_base64(const char *bytes, size_t n, td_text *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = 0;
        char four[4];
        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (i + k < n ? (unsigned char)bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            four[k] = i + k > n ? '=' : digits[v >> (18 - 6 * k) & 63];
        td_text_add_bytes(out, four, sizeof four);
    }
}

static int side_of(int side, int longer)
{
    if (longer <= TD_THUMBNAIL_SIDE)
        return side;
    const int shrunk = (int)((int64_t)side * TD_THUMBNAIL_SIDE / longer);
    return shrunk > 0 ? shrunk : 1;
}

static td_status shrink(const td_image *from, td_image *to)
{
    td_resampler r = { 0 };
    const int longer = from->width > from->height ? from->width : from->height;
    const td_status st =
        td_image_resample(&r, from, 0, 0, from->width, from->height, TD_BILINEAR,
                          side_of(from->width, longer), side_of(from->height, longer), to);
    td_resampler_release(&r);
    return st;
}

static td_status read_image(const char *path, td_image *out)
{
    const td_decode_opts o = { .max_pixels = MAX_PIXELS };
    char *bytes;
    size_t n;
    TD_TRY(td_file_read(path, MAX_FILE_BYTES, &bytes, &n));
    const td_status st = td_image_decode(bytes, n, &o, out, NULL);
    td_free(bytes);
    return st;
}

td_status td_thumbnail_add(const char *folder, const char *path, td_text *out)
{
    td_status st = TD_OK;
    td_image whole = { 0 }, small = { 0 };
    td_text jpeg = { 0 };
    if (!td_thumbnail_is_below(path))
        return TD_OK;
    char *joined = td_path_join(folder, path);
    if (!joined)
        return TD_ENOMEM;
    TD_OUT(read_image(joined, &whole));
    TD_OUT(shrink(&whole, &small));
    TD_OUT(td_image_encode_jpeg(&small, QUALITY, &jpeg));
    TD_OUT(td_text_status(&jpeg));
    td_text_add(out, "data:image/jpeg;base64,");
    add_base64(jpeg.data, jpeg.len, out);
out:
    td_free(joined);
    td_text_release(&jpeg);
    td_image_release(&whole);
    td_image_release(&small);
    if (st != TD_ENOMEM)
        td_error_clear(); /* no file, or not an image: show only the text */
    return st == TD_ENOMEM ? st : TD_OK;
}
