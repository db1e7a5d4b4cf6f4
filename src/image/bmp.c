/*
 * image/bmp.c -- reads BMP: 1, 4, 8, 16, 24 and 32 bits a pixel, with masks, upside down or not
 *
 *     "BM"  file header, 14 bytes  |  header, 12 to 124 bytes  |  masks  |  palette  |  rows
 *
 * Rows are padded to four bytes and stored from the bottom up unless the height is negative.  A
 * fourth channel is dropped.  Run lengths and embedded files are refused.
 *
 * Source: Microsoft, BITMAPINFOHEADER and BITMAPV5HEADER; values as PIL has them.
 */
#include <string.h>

#include "image/codec.h"

enum {
    FILE_HEADER = 14,
    CORE_HEADER = 12, /* OS/2 1: 16-bit sizes, palette of 3 bytes an entry */
    OS2_HEADER = 64,
    INFO_HEADER = 40,
    PALETTE_MAX = 65536
};

enum { PLAIN, RLE8, RLE4, MASKS, JPEG_FILE, PNG_FILE, ALPHA_MASKS };

typedef struct {
    int64_t width, height;
    bool is_top_down;
    int bits; /* of a pixel */
    size_t pixels_at, row_bytes;
    uint32_t mask[3]; /* red, green, blue; 16 and 32 bits */
    uint8_t palette[256][3];
} bmp;

static uint32_t get16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get32(const uint8_t *p)
{
    return get16(p) | get16(p + 2) << 16;
}

static td_status truncated(size_t n_bytes, uint64_t wanted)
{
    return td_error(TD_EFORMAT, "BMP: the file is truncated: %zu bytes, wanted %llu", n_bytes,
                    (unsigned long long)wanted);
}

/* --- headers ---------------------------------------------------------------------------------- */

static td_status check_kind(const bmp *b, uint32_t compression, size_t header_bytes)
{
    static const char *const names[] = { "", "run lengths", "run lengths", "", "a JPEG", "a PNG" };
    if (b->bits != 1 && b->bits != 4 && b->bits != 8 && b->bits != 16 && b->bits != 24 &&
        b->bits != 32)
        return td_error(TD_EUNSUPPORTED,
                        "BMP: %d bits a pixel are not supported, wanted 1, 4, 8, 16, 24 or 32",
                        b->bits);
    const bool has_masks = compression == MASKS || compression == ALPHA_MASKS;
    if (compression == PLAIN || (has_masks && b->bits >= 16 && header_bytes != OS2_HEADER))
        return TD_OK;
    return td_error(TD_EUNSUPPORTED, "BMP: pixels stored as %s (compression %u) are not supported",
                    compression <= PNG_FILE && *names[compression] ? names[compression] : "this",
                    compression);
}

static void choose_masks(bmp *b, const uint8_t *masks)
{
    const bool is_16 = b->bits == 16;
    bool has_any = false;
    for (int c = 0; masks && c < 3; c++) {
        b->mask[c] = get32(masks + 4 * c);
        has_any = has_any || b->mask[c];
    }
    for (int c = 0; !has_any && c < 3; c++)
        b->mask[c] = is_16 ? 0x1Fu << (10 - 5 * c) : 0xFFu << (16 - 8 * c);
}

/* The palette at `at`, `n` entries of which a pixel can have the first 256. */
static td_status read_palette(const uint8_t *bytes, size_t n_bytes, size_t at, uint32_t n,
                              size_t entry_bytes, bmp *b)
{
    if (n > PALETTE_MAX)
        return td_error(TD_EFORMAT, "BMP: a palette of %u colors", n);
    if (at > n_bytes || n > (n_bytes - at) / entry_bytes)
        return truncated(n_bytes, at + (uint64_t)n * entry_bytes);
    td_colour_gray_palette(b->palette);
    for (uint32_t i = 0; i < n && i < 256; i++)
        for (int c = 0; c < 3; c++)
            b->palette[i][c] = bytes[at + i * entry_bytes + (size_t)(2 - c)];
    return TD_OK;
}

static td_status read_headers(const uint8_t *bytes, size_t n_bytes, bmp *b)
{
    static const uint32_t sizes[] = { CORE_HEADER, INFO_HEADER, 52, 56, OS2_HEADER, 108, 124 };
    *b = (bmp){ 0 };
    if (n_bytes < FILE_HEADER + 4)
        return truncated(n_bytes, FILE_HEADER + CORE_HEADER);
    const uint8_t *h = bytes + FILE_HEADER;
    const uint32_t header_bytes = get32(h);
    bool is_known = false;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        is_known = is_known || header_bytes == sizes[i];
    if (!is_known)
        return td_error(TD_EUNSUPPORTED, "BMP: a header of %u bytes is not supported",
                        header_bytes);
    if (n_bytes - FILE_HEADER < header_bytes)
        return truncated(n_bytes, FILE_HEADER + (uint64_t)header_bytes);

    const bool is_core = header_bytes == CORE_HEADER;
    const int32_t height = is_core ? (int32_t)get16(h + 6) : (int32_t)get32(h + 8);
    const uint32_t compression = is_core ? PLAIN : get32(h + 16);
    uint32_t n_colors = is_core ? 0 : get32(h + 32);
    b->width = is_core ? (int32_t)get16(h + 4) : (int32_t)get32(h + 4);
    b->height = height < 0 ? -(int64_t)height : height;
    b->is_top_down = height < 0;
    b->bits = (int)get16(h + (is_core ? 10 : 14));
    TD_TRY(check_kind(b, compression, header_bytes));
    TD_TRY(td_image_check_size(b->width, b->height, TD_IMAGE_MAX_PIXELS));

    size_t at = FILE_HEADER + header_bytes;
    const uint8_t *masks = NULL;
    if (compression != PLAIN) {
        const size_t mask_bytes = header_bytes == INFO_HEADER ? 12 : 0; /* or in the header */
        if (n_bytes - at < mask_bytes)
            return truncated(n_bytes, at + mask_bytes);
        masks = h + INFO_HEADER;
        at += mask_bytes;
    }
    choose_masks(b, masks);
    b->pixels_at = get32(bytes + 10);
    if (b->bits <= 8) {
        const size_t entry_bytes = is_core ? 3 : 4;
        n_colors = n_colors ? n_colors : 1u << b->bits;
        TD_TRY(read_palette(bytes, n_bytes, at, n_colors, entry_bytes, b));
        if (b->pixels_at == FILE_HEADER + header_bytes) /* some writers do not count the palette */
            b->pixels_at += entry_bytes * n_colors;
    }
    b->row_bytes = ((size_t)b->width * (size_t)b->bits + 31) / 32 * 4;
    return TD_OK;
}

td_status td_bmp_probe(const uint8_t *bytes, size_t n_bytes, td_image_info *out)
{
    bmp b;
    TD_TRY(read_headers(bytes, n_bytes, &b));
    out->width = (int)b.width;
    out->height = (int)b.height;
    out->colour = b.bits <= 8 ? "palette" : "RGB";
    out->bits = b.bits <= 8 ? b.bits : 8;
    return TD_OK;
}

/* --- pixels ----------------------------------------------------------------------------------- */

static void row_of_palette(const bmp *b, const uint8_t *row, uint8_t *rgb)
{
    const int a_byte = 8 / b->bits;
    for (int64_t x = 0; x < b->width; x++, rgb += 3) {
        const int shift = 8 - b->bits - (int)(x % a_byte) * b->bits;
        memcpy(rgb, b->palette[row[x / a_byte] >> shift & ((1 << b->bits) - 1)], 3);
    }
}

static void row_of_bytes(const bmp *b, const uint8_t *row, uint8_t *rgb)
{
    for (int64_t x = 0; x < b->width; x++, rgb += 3, row += 3) {
        rgb[0] = row[2];
        rgb[1] = row[1];
        rgb[2] = row[0];
    }
}

static void row_of_masks(const bmp *b, const uint8_t *row, uint8_t *rgb)
{
    const int pixel_bytes = b->bits / 8;
    for (int64_t x = 0; x < b->width; x++, rgb += 3, row += pixel_bytes) {
        const uint32_t pixel = pixel_bytes == 2 ? get16(row) : get32(row);
        for (int c = 0; c < 3; c++) {
            const uint32_t low = b->mask[c] & (~b->mask[c] + 1u); /* the lowest bit of the mask */
            const uint64_t value = low ? (pixel & b->mask[c]) / low : 0;
            const uint64_t most = low ? b->mask[c] / low : 1;
            rgb[c] = (uint8_t)(value * 255 / most);
        }
    }
}

td_status td_bmp_decode(const uint8_t *bytes, size_t n_bytes, const td_codec_opts *opts,
                        td_image *out, td_codec_result *res)
{
    bmp b;
    TD_TRY(read_headers(bytes, n_bytes, &b));
    const uint64_t last_row = ((uint64_t)b.width * (uint64_t)b.bits + 7) / 8; /* without padding */
    const uint64_t wanted =
        (uint64_t)b.pixels_at + (uint64_t)(b.height - 1) * b.row_bytes + last_row;
    if (wanted > n_bytes)
        return truncated(n_bytes, wanted);
    TD_TRY(td_image_begin_whole(opts, b.width, b.height, out, res));
    for (int64_t y = 0; y < b.height; y++) {
        const uint8_t *row = bytes + b.pixels_at + (size_t)y * b.row_bytes;
        const int64_t to = b.is_top_down ? y : b.height - 1 - y;
        uint8_t *rgb = out->px + 3 * (size_t)to * (size_t)b.width;
        if (b.bits <= 8)
            row_of_palette(&b, row, rgb);
        else if (b.bits == 24)
            row_of_bytes(&b, row, rgb);
        else
            row_of_masks(&b, row, rgb);
    }
    return TD_OK;
}
