/*
 * image/exif.c -- reads the EXIF orientation and turns images upright
 *
 * A camera stores the image as its sensor reads it and writes one number, 1 .. 8, into the EXIF
 * block: how to mirror and rotate it.  EXIF is a small TIFF file: a header naming the byte order,
 * then a table of 12-byte entries.  Only the first table's tag 0x0112 is read and no other offset
 * is followed, so loops and huge tags elsewhere have no effect.
 *
 *   orientation   1   2   3   4   5   6   7   8        upright (x, y) comes from stored (sx, sy):
 *   x mirrored        *   *               *   *        (x, y), or (y, x) when swapped, and then
 *   y mirrored            *   *       *   *            mirrored
 *   swapped                       *   *   *   *
 *
 * Source: Exif 2.32, sections 4.5.2 (TIFF structure) and 4.6.4 (tag 274).
 */
#include <string.h>

#include "image/codec.h"

/* --- reading the orientation ------------------------------------------------------------------ */

static unsigned get16(const uint8_t *p, bool is_big)
{
    return is_big ? (unsigned)p[0] << 8 | p[1] : (unsigned)p[1] << 8 | p[0];
}

static uint32_t get32(const uint8_t *p, bool is_big)
{
    uint32_t first = get16(p, is_big), second = get16(p + 2, is_big);
    return is_big ? first << 16 | second : second << 16 | first;
}

enum { ENTRY_BYTES = 12, TAG_ORIENTATION = 0x0112, TYPE_SHORT = 3, TYPE_LONG = 4 };

/* The value of an orientation entry, whatever integer type it was written as. */
static uint32_t entry_value(const uint8_t *entry, bool is_big)
{
    unsigned type = get16(entry + 2, is_big);
    if (get32(entry + 4, is_big) != 1)
        return 0;
    if (type == TYPE_SHORT)
        return get16(entry + 8, is_big);
    return type == TYPE_LONG ? get32(entry + 8, is_big) : 0;
}

int td_exif_orientation(const uint8_t *tiff, size_t n_bytes)
{
    if (n_bytes < 8 || (memcmp(tiff, "II*\0", 4) != 0 && memcmp(tiff, "MM\0*", 4) != 0))
        return 1;
    bool is_big = tiff[0] == 'M';
    size_t at = get32(tiff + 4, is_big);
    if (at > n_bytes - 2)
        return 1;
    size_t n_entries = get16(tiff + at, is_big);
    at += 2;
    for (size_t i = 0; i < n_entries && n_bytes - at >= ENTRY_BYTES; i++, at += ENTRY_BYTES) {
        if (get16(tiff + at, is_big) != TAG_ORIENTATION)
            continue;
        uint32_t value = entry_value(tiff + at, is_big);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

enum { MARKER_SOI = 0xD8, MARKER_EOI = 0xD9, MARKER_SOS = 0xDA, MARKER_APP1 = 0xE1 };

/* Walk the segments up to the first scan: FF, code, two bytes length (which count themselves). */
int td_exif_orientation_of_jpeg(const uint8_t *bytes, size_t n_bytes)
{
    static const char head[6] = "Exif\0";
    size_t at = 2;
    while (at + 4 <= n_bytes && bytes[at] == 0xFF) {
        unsigned code = bytes[at + 1];
        if (code == 0xFF) { /* fill bytes before a marker */
            at++;
            continue;
        }
        size_t length = get16(bytes + at + 2, true);
        if (code == MARKER_SOS || code == MARKER_EOI || length < 2 || length > n_bytes - at - 2)
            return 1;
        const uint8_t *body = bytes + at + 4;
        if (code == MARKER_APP1 && length >= 2 + sizeof head && !memcmp(body, head, sizeof head))
            return td_exif_orientation(body + sizeof head, length - 2 - sizeof head);
        at += 2 + length;
    }
    return 1;
}

/* Chunks: four bytes length, name, content, checksum.  eXIf precedes the pixels (IDAT). */
int td_exif_orientation_of_png(const uint8_t *bytes, size_t n_bytes)
{
    enum { SIGNATURE_BYTES = 8, AROUND_BYTES = 12 };
    size_t at = SIGNATURE_BYTES;
    while (at < n_bytes && n_bytes - at >= AROUND_BYTES) {
        size_t length = get32(bytes + at, true);
        const uint8_t *name = bytes + at + 4;
        if (length > n_bytes - at - AROUND_BYTES || !memcmp(name, "IDAT", 4))
            return 1;
        if (!memcmp(name, "eXIf", 4))
            return td_exif_orientation(name + 4, length);
        at += AROUND_BYTES + length;
    }
    return 1;
}

/* RIFF chunks after 12 bytes: name, four bytes length, content, a byte if the length is odd. */
int td_exif_orientation_of_webp(const uint8_t *bytes, size_t n_bytes)
{
    static const char head[6] = "Exif\0";
    enum { FIRST_CHUNK = 12, HEAD_BYTES = 8 };
    size_t at = FIRST_CHUNK;
    while (at < n_bytes && n_bytes - at >= HEAD_BYTES) {
        size_t length = get32(bytes + at + 4, false);
        const uint8_t *name = bytes + at, *body = name + HEAD_BYTES;
        if (length > n_bytes - at - HEAD_BYTES)
            return 1;
        if (!memcmp(name, "EXIF", 4)) {
            const bool is_jpeg_block = length >= sizeof head && !memcmp(body, head, sizeof head);
            const size_t skipped = is_jpeg_block ? sizeof head : 0; /* some programs write it */
            return td_exif_orientation(body + skipped, length - skipped);
        }
        at += HEAD_BYTES + length + length % 2;
    }
    return 1;
}

/* --- turning ---------------------------------------------------------------------------------- */

static bool mirrors_x(int orientation)
{
    return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

static bool mirrors_y(int orientation)
{
    return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}

bool td_orient_swaps(int orientation)
{
    return orientation >= 5;
}

static td_box swapped(td_box b)
{
    return (td_box){ .x = b.y, .y = b.x, .width = b.height, .height = b.width };
}

static td_box mirrored(td_box b, int orientation, int width, int height)
{
    if (mirrors_x(orientation))
        b.x = width - b.x - b.width;
    if (mirrors_y(orientation))
        b.y = height - b.y - b.height;
    return b;
}

td_box td_orient_to_stored(td_box upright, int orientation, int width, int height)
{
    td_box b = td_orient_swaps(orientation) ? swapped(upright) : upright;
    return mirrored(b, orientation, width, height);
}

td_box td_orient_to_upright(td_box stored, int orientation, int width, int height)
{
    td_box b = mirrored(stored, orientation, width, height);
    return td_orient_swaps(orientation) ? swapped(b) : b;
}

td_status td_orient_image(const td_image *stored, int orientation, td_image *out)
{
    int w = stored->width, h = stored->height;
    bool swaps = td_orient_swaps(orientation);
    TD_TRY(td_image_resize_buffer(out, swaps ? h : w, swaps ? w : h));

    ptrdiff_t row = 3 * (ptrdiff_t)w;
    ptrdiff_t step_sx = mirrors_x(orientation) ? -3 : 3;
    ptrdiff_t step_sy = mirrors_y(orientation) ? -row : row;
    ptrdiff_t step_x = swaps ? step_sy : step_sx, step_y = swaps ? step_sx : step_sy;
    const uint8_t *corner = stored->px + (mirrors_x(orientation) ? row - 3 : 0) +
                            (mirrors_y(orientation) ? row * (h - 1) : 0);
    uint8_t *dst = out->px;
    for (int y = 0; y < out->height; y++) {
        for (int x = 0; x < out->width; x++, dst += 3)
            memcpy(dst, corner + y * step_y + x * step_x, 3);
    }
    return TD_OK;
}
