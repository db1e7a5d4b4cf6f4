/*
 * image/jpeg_scan.c -- decodes baseline JPEG: one Huffman-coded scan, gray or YCbCr, 8 bits
 *
 * Most of the decoding time is spent in the entropy code, which must be read from its start even if
 * a crop needs only a part.  Here the zeros stuffed after 0xFF are removed first, so that eight
 * bytes can be loaded at any position; and a table resolves LOOK bits to up to two values, their
 * positions and the end of the block at once.  The later stages work on the crop only:
 *
 *     codes --> 64 coefficients --> 8 x 8 samples in planes --> rows of RGB
 *               of blocks in the     that cover the crop and      of the crop
 *               crop, others skipped two pixels around it
 *
 * The pixels are libjpeg-turbo's, bit for bit: its accurate integer transform (13-bit constants,
 * two bits kept between the passes), its triangular upsampling, its 16-bit fixed-point colours.
 * Its vector code keeps 16 bits between the passes; blocks that could exceed that range, which no
 * encoder makes from an image, are left to libjpeg, like every other anomaly: an invalid code,
 * missing data, a marker inside the scan.
 *
 * Sources: ITU T.81; jidctint.c, jdsample.c, jdcolor.c of libjpeg-turbo 2.1.
 */
#include "image/jpeg_scan.h"

#include <string.h>

#include "base/isa.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define TD_SCAN_AVX2 1
#include <immintrin.h>
#else
#define TD_SCAN_AVX2 0
#endif

#if TD_SCAN_AVX2

#define TD_AVX2 __attribute__((target("avx2,bmi,bmi2")))

enum {
    LOOK = 10,            /* bits per look-up: 8 KiB a table, all four stay in the cache */
    LOOKS = 5,            /* look-ups per refill of 56 bits */
    MCU_BYTES_MAX = 2048, /* 6 blocks of 64 codes and values, 31 bits at most */
    SUM_MAX = 5800,       /* sum of a block's coefficients: 4 x 1.39 x this stays below 2^15 */
};

/* clang-format off */
static const uint8_t natural[64] = { /* zigzag index -> index in the block */
     0,  1,  8, 16,  9,  2,  3, 10, 17, 24, 32, 25, 18, 11,  4,  5,
    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13,  6,  7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};
/* clang-format on */

/* --- Huffman tables --------------------------------------------------------------------------- */

/*
 * The content of LOOK bits: a code, its value if it fits, and possibly a second code with its value
 * and the end of the block.
 */
typedef struct {
    int16_t value; /* 0: only the first code was seen */
    int16_t value2;
    uint8_t symbol;      /* its run and size */
    uint8_t code_length; /* 0: longer than LOOK */
    uint8_t step2;       /* zigzag steps from the first value to the second; 0: no second */
    uint8_t length;      /* bits consumed; ENDS is added when the block ends after it */
} look;

enum { ENDS = 128 };

typedef struct {
    look first[1 << LOOK];
    uint32_t end[18];   /* codes of a length are below this, left-aligned in 16 bits; 0: none */
    int32_t offset[17]; /* code + offset = index in symbols */
    uint8_t symbols[256];
    int n_symbols;
} huffman;

/* the value in the first `size` >= 1 bits: it is negative if the first bit is 0 */
static inline int extend(uint64_t bits, int size)
{
    int v = (int)(bits >> (64 - size)), is_negative = ~(int)(bits >> 63) & 1;
    return v + (-is_negative & (1 - (1 << size)));
}

static void enter(huffman *h, uint32_t code, int length, uint8_t symbol)
{
    int size = symbol & 15, rest = LOOK - length;
    uint32_t from = code << rest;
    for (uint32_t i = 0; i < 1u << rest; i++) {
        bool fits = size > 0 && size <= rest;
        h->first[from + i] =
            (look){ .value = (int16_t)(fits ? extend((uint64_t)i << (64 - rest), size) : 0),
                    .symbol = symbol,
                    .code_length = (uint8_t)length,
                    .length = (uint8_t)(fits ? length + size : length) };
    }
}

/* Adds to *l the second value or the end of the block, if within LOOK bits.  `of` has only first
   values. */
static void add_second_symbol(const look *of, look *l, uint32_t i)
{
    const uint32_t mask = (1u << LOOK) - 1;
    int used = l->length;
    const look *next = &of[(i << used) & mask];
    if (next->value && used + next->length <= LOOK) {
        l->value2 = next->value;
        l->step2 = (uint8_t)((next->symbol >> 4) + 1);
        used += next->length;
        next = &of[(i << used) & mask];
    }
    bool ends = next->code_length > 0 && next->symbol == 0 && used + next->code_length <= LOOK;
    l->length = (uint8_t)(ends ? (used + next->code_length) | ENDS : used);
}

static bool build(huffman *h, const JHUFF_TBL *t, bool is_dc)
{
    uint32_t code = 0;
    int n = 0;
    if (!t)
        return false;
    memset(h, 0, sizeof *h);
    memcpy(h->symbols, t->huffval, sizeof h->symbols);
    for (int length = 1; length <= 16; length++, code <<= 1) {
        h->offset[length] = n - (int32_t)code;
        for (int i = 0; i < t->bits[length]; i++, code++, n++) {
            if (n == 256 || code >= 1u << length || (is_dc && t->huffval[n] > 15))
                return false;
            if (length <= LOOK)
                enter(h, code, length, t->huffval[n]);
        }
        h->end[length] = code << (16 - length);
        if (code >= 1u << length) /* a code of ones alone is not allowed */
            return false;
    }
    h->n_symbols = n;
    if (is_dc)
        return true;
    look singles[1 << LOOK];
    memcpy(singles, h->first, sizeof singles);
    for (uint32_t i = 0; i < 1u << LOOK; i++)
        if (h->first[i].value)
            add_second_symbol(singles, &h->first[i], i);
    return true;
}

/* --- bits ------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *at;  /* in the unstuffed bytes */
    const uint8_t *end; /* their end; MCU_BYTES_MAX zeros follow */
    uint64_t bits;      /* the next bits, left-aligned */
    int n;              /* valid bits; the following ones are correct too, or zero */
    bool is_bad;
} source;

/* fills to at least 56 bits */
static inline void refill(source *s)
{
    uint64_t x;
    memcpy(&x, s->at, sizeof x);
    s->bits |= __builtin_bswap64(x) >> s->n;
    s->at += (63 - s->n) >> 3;
    s->n |= 56;
}

static inline void drop(source *s, int n)
{
    s->bits <<= n;
    s->n -= n;
}

/* Were bits past the end consumed? */
static bool is_beyond(const source *s)
{
    return s->at - s->n / 8 > s->end;
}

/* Copy the scan's bytes up to the first marker; a zero after 0xFF is left out.  Returns the end. */
static uint8_t *unstuff(const uint8_t *p, const uint8_t *end, uint8_t *dst)
{
    while (p < end) {
        const uint8_t *mark = memchr(p, 0xFF, (size_t)(end - p));
        size_t n = (size_t)((mark ? mark : end) - p);
        memcpy(dst, p, n);
        dst += n;
        if (!mark || end - mark < 2 || mark[1] != 0)
            break;
        *dst++ = 0xFF;
        p = mark + 2;
    }
    return dst;
}

/* A code of more than LOOK bits: 256 x its length + the symbol; 0: invalid. */
static __attribute__((noinline)) int long_symbol(uint64_t bits, const huffman *h)
{
    uint32_t top = (uint32_t)(bits >> 48);
    for (int length = LOOK + 1; length <= 16; length++) {
        if (top >= h->end[length])
            continue;
        int32_t i = (int32_t)(top >> (16 - length)) + h->offset[length];
        return i < 0 || i >= h->n_symbols ? 0 : length << 8 | h->symbols[i];
    }
    return 0;
}

/* --- blocks ----------------------------------------------------------------------------------- */

typedef struct {
    huffman *dc, *ac;
    uint16_t step[64]; /* quantisation, in zigzag order */
    int h, v;          /* blocks in an MCU */
    int last_dc;

    uint8_t *plane; /* samples of the kept MCUs */
    int stride;
    int x0, y0;        /* of the plane's first sample, in samples of this component */
    int width, height; /* of the component in the image, in samples */
} component;

/* Consumes the next symbol, of any length.  Needs 16 bits. */
TD_AVX2 static inline int next_symbol(source *s, const huffman *h)
{
    look e = h->first[s->bits >> (64 - LOOK)];
    int found = e.code_length ? e.code_length << 8 | e.symbol : long_symbol(s->bits, h);
    s->is_bad |= !found;
    drop(s, found >> 8);
    return found & 255;
}

/* its value; needs 15 bits */
TD_AVX2 static inline int next_value(source *s, int size)
{
    int v = size ? extend(s->bits, size) : 0;
    drop(s, size);
    return v;
}

/* Reads a code and value that are not in the table.  Returns the next index; 64: end. */
TD_AVX2 static inline int read_slowly(source *s, const component *c, int k, int16_t *coef,
                                      int64_t *total, int *last)
{
    refill(s);
    int symbol = next_symbol(s, c->ac), v = next_value(s, symbol & 15);
    if (v == 0)
        return symbol == 0xF0 ? k + 16 : 64;
    k += symbol >> 4;
    if (k > 63) {
        s->is_bad = true;
        return 64;
    }
    if (coef) {
        v *= c->step[k];
        coef[natural[k]] = (int16_t)v;
        *total += v < 0 ? -v : v;
        *last = k;
    }
    return k + 1;
}

/*
 * Read a block.  `coef`, if given and zero, receives its coefficients, dequantised; `sum` the sum
 * of their magnitudes.  Returns the last zigzag index that is not zero.
 */
TD_AVX2 static inline __attribute__((always_inline)) int read_block(source *from, component *c,
                                                                    int16_t *coef, int64_t *sum)
{
    source s = *from; /* in registers */
    int last = 0;
    int64_t total = 0;
    refill(&s);
    c->last_dc += next_value(&s, next_symbol(&s, c->dc));
    s.is_bad |= c->last_dc > 32767 || c->last_dc < -32768;
    if (coef) {
        int64_t v = (int64_t)c->last_dc * c->step[0]; /* steps may have 16 bits */
        coef[0] = (int16_t)v;
        total = v < 0 ? -v : v;
    }
    const look *first = c->ac->first;
    for (int k = 1; k < 64;) {
        refill(&s); /* enough bits for LOOKS look-ups */
        for (int i = 0; i < LOOKS; i++) {
            look e = first[s.bits >> (64 - LOOK)];
            int k1 = k + (e.symbol >> 4), k2 = k1 + e.step2, ends = e.length >> 7;
            if (!e.value || k2 + ends > 63) {
                k = e.code_length && !e.symbol ? 64 : k;
                if (k == 64)
                    drop(&s, e.code_length);
                else
                    k = read_slowly(&s, c, k, coef, &total, &last);
                break;
            }
            drop(&s, e.length & ~ENDS);
            if (coef) {
                int v = e.value * c->step[k1], v2 = e.value2 * c->step[k2];
                coef[natural[k2]] = (int16_t)v2; /* if k2 == k1, overwritten below */
                coef[natural[k1]] = (int16_t)v;
                total += (v < 0 ? -v : v) + (v2 < 0 ? -v2 : v2);
                last = k2;
            }
            k = ends ? 64 : k2 + 1;
            if (k == 64)
                break;
        }
    }
    if (coef)
        *sum = total;
    *from = s;
    return last;
}

TD_AVX2 static void skip_block(source *s, component *c)
{
    int64_t unused;
    (void)read_block(s, c, NULL, &unused);
}

/* --- the transform ---------------------------------------------------------------------------- */

TD_AVX2 static inline __m256i times(__m256i x, int by)
{
    return _mm256_mullo_epi32(x, _mm256_set1_epi32(by));
}

TD_AVX2 static inline __m256i add(__m256i a, __m256i b)
{
    return _mm256_add_epi32(a, b);
}

TD_AVX2 static inline __m256i sub(__m256i a, __m256i b)
{
    return _mm256_sub_epi32(a, b);
}

/* eight transforms of eight numbers, one in each lane; results are rounded and shifted */
TD_AVX2 static inline __attribute__((always_inline)) void transform(__m256i x[8], int shift)
{
    __m256i z1 = times(add(x[2], x[6]), 4433);
    __m256i t2 = sub(z1, times(x[6], 15137)), t3 = add(z1, times(x[2], 6270));
    __m256i t0 = _mm256_slli_epi32(add(x[0], x[4]), 13);
    __m256i t1 = _mm256_slli_epi32(sub(x[0], x[4]), 13);
    __m256i half = _mm256_set1_epi32(1 << (shift - 1));
    t0 = add(t0, half);
    t1 = add(t1, half);
    __m256i t10 = add(t0, t3), t13 = sub(t0, t3), t11 = add(t1, t2), t12 = sub(t1, t2);

    __m256i z2 = add(x[5], x[3]), z3 = add(x[7], x[3]), z4 = add(x[5], x[1]);
    z1 = add(x[7], x[1]);
    __m256i z5 = times(add(z3, z4), 9633);
    z1 = times(z1, -7373);
    z2 = times(z2, -20995);
    z3 = add(times(z3, -16069), z5);
    z4 = add(times(z4, -3196), z5);
    t0 = add(times(x[7], 2446), add(z1, z3));
    t1 = add(times(x[5], 16819), add(z2, z4));
    t2 = add(times(x[3], 25172), add(z2, z3));
    t3 = add(times(x[1], 12299), add(z1, z4));

    x[0] = _mm256_srai_epi32(add(t10, t3), shift);
    x[7] = _mm256_srai_epi32(sub(t10, t3), shift);
    x[1] = _mm256_srai_epi32(add(t11, t2), shift);
    x[6] = _mm256_srai_epi32(sub(t11, t2), shift);
    x[2] = _mm256_srai_epi32(add(t12, t1), shift);
    x[5] = _mm256_srai_epi32(sub(t12, t1), shift);
    x[3] = _mm256_srai_epi32(add(t13, t0), shift);
    x[4] = _mm256_srai_epi32(sub(t13, t0), shift);
}

TD_AVX2 static inline __attribute__((always_inline)) void transpose(__m256i x[8])
{
    __m256i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        b[4 * i] = _mm256_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm256_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm256_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm256_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        x[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        x[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

/* coefficients -> samples around 128 */
TD_AVX2 static void block_samples(const int16_t *coef, uint8_t *dst, int stride)
{
    __m256i x[8];
    for (int i = 0; i < 8; i++)
        x[i] = _mm256_cvtepi16_epi32(
            _mm_load_si128((const __m128i *)(const void *)(coef + 8 * (size_t)i)));
    transform(x, 11);
    transpose(x);
    transform(x, 18);
    transpose(x);
    const __m128i middle = _mm_set1_epi8((char)128);
    for (int i = 0; i < 8; i++) {
        __m128i w =
            _mm_packs_epi32(_mm256_castsi256_si128(x[i]), _mm256_extracti128_si256(x[i], 1));
        w = _mm_xor_si128(_mm_packs_epi16(w, w), middle);
        _mm_storel_epi64((__m128i *)(void *)(dst + (ptrdiff_t)i * stride), w);
    }
}

/* for a block whose only non-zero coefficient is the first */
static void flat_block(int dc, uint8_t *dst, int stride)
{
    int v = ((dc + 4) >> 3) + 128;
    for (int i = 0; i < 8; i++)
        memset(dst + (ptrdiff_t)i * stride, v < 0 ? 0 : v > 255 ? 255 : v, 8);
}

TD_AVX2 static void make_block(source *s, component *c, uint8_t *dst)
{
    _Alignas(32) int16_t coef[64];
    int64_t sum;
    for (int i = 0; i < 4; i++)
        _mm256_store_si256((__m256i *)(void *)(coef + 16 * i), _mm256_setzero_si256());
    int last = read_block(s, c, coef, &sum);
    if (sum > SUM_MAX)
        s->is_bad = true;
    if (last == 0)
        flat_block(coef[0], dst, c->stride);
    else
        block_samples(coef, dst, c->stride);
}

/* --- the scan --------------------------------------------------------------------------------- */

typedef struct {
    struct jpeg_decompress_struct *c;
    source src;
    huffman *tables; /* [8]: DC 0 .. 3, AC 0 .. 3 */
    component comps[3];
    int n_comps, h, v; /* MCUs are 8 h x 8 v pixels */
    td_box box;
    int mx0, mx1, my0, my1; /* range of the kept MCUs */
    int n_mx;               /* in a row of the image */
    bool is_fast;
} scan;

static void make_blocks(scan *s, component *c, int mx, int my)
{
    int x = 8 * mx * c->h - c->x0, y = 8 * my * c->v - c->y0;
    uint8_t *dst = c->plane + (ptrdiff_t)y * c->stride + x;
    for (int by = 0; by < c->v; by++, dst += 8 * (ptrdiff_t)c->stride)
        for (int bx = 0; bx < c->h; bx++)
            make_block(&s->src, c, dst + 8 * (ptrdiff_t)bx);
}

static bool read_mcu(scan *s, int mx, int my)
{
    bool is_kept = my >= s->my0 && mx >= s->mx0 && mx < s->mx1;
    for (int i = 0; i < s->n_comps; i++) {
        component *c = &s->comps[i];
        if (is_kept) {
            make_blocks(s, c, mx, my);
            continue;
        }
        for (int b = 0; b < c->h * c->v; b++)
            skip_block(&s->src, c);
    }
    return !s->src.is_bad && !is_beyond(&s->src);
}

static bool read_mcus(scan *s)
{
    for (int my = 0; my < s->my1; my++) {
        for (int mx = 0; mx < s->n_mx; mx++)
            if (!read_mcu(s, mx, my))
                return false;
    }
    return true;
}

/* --- colours ---------------------------------------------------------------------------------- */

static int clamp(int x, int low, int high)
{
    return x < low ? low : x > high ? high : x;
}

/* Row y of a component, clamped to the image; it must be kept. */
static const uint8_t *plane_row(const component *c, int y)
{
    return c->plane + (ptrdiff_t)(clamp(y, 0, c->height - 1) - c->y0) * c->stride;
}

/* Buffers for upsampling a chroma row to full width. */
typedef struct {
    uint16_t *sums; /* the samples, or 3 x this row + the other row */
    uint8_t *wide;  /* a sample for each pixel */
} widener;

/*
 * Samples first - 1 .. first + n of a row: from `near`, or 3 near + far; outside the image the last
 * one is repeated.  `near` and `far` point to sample `first`.
 */
TD_AVX2 static void gather(const component *c, const uint8_t *near, const uint8_t *far, int first,
                           int n, uint16_t *sums)
{
    int from = first > 0 ? 0 : 1; /* in sums */
    int to = first + n < c->width ? n + 2 : c->width - first + 1;
    if (far) {
        for (int i = from; i < to; i++)
            sums[i] = (uint16_t)(3 * near[i - 1] + far[i - 1]);
    } else {
        for (int i = from; i < to; i++)
            sums[i] = near[i - 1];
    }
    if (from == 1)
        sums[0] = sums[1];
    for (int i = to; i < n + 2; i++)
        sums[i] = sums[to - 1];
}

/* triangular: 3/4 of the nearer sample, 1/4 of the farther one; rounding alternates */
TD_AVX2 static void widen(const uint16_t *sums, int n, bool is_tall, uint8_t *out)
{
    int even = is_tall ? 8 : 1, odd = is_tall ? 7 : 2, shift = is_tall ? 4 : 2;
    for (int i = 0; i < n; i++) {
        const uint16_t *s = sums + i + 1;
        out[2 * i] = (uint8_t)((3 * s[0] + s[-1] + even) >> shift);
        out[2 * i + 1] = (uint8_t)((3 * s[0] + s[1] + odd) >> shift);
    }
}

/* the chroma samples for pixels x0 .. x0 + width - 1 of row y; `room` is scratch */
static const uint8_t *colour_row(const scan *s, const component *c, int y, widener *room)
{
    int x0 = s->box.x, width = s->box.width;
    if (c->h == s->h && c->v == s->v)
        return plane_row(c, y) + (x0 - c->x0);
    int first = x0 / 2, n = (x0 + width - 1) / 2 - first + 1;
    bool is_tall = s->v == 2;
    int cy = is_tall ? y / 2 : y;
    if (s->is_fast || c->width <= 2) { /* too narrow to smooth: libjpeg's rule */
        const uint8_t *p = plane_row(c, cy) + (first - c->x0);
        for (int i = 0; i < n; i++)
            room->wide[2 * i] = room->wide[2 * i + 1] = p[i];
    } else {
        const uint8_t *far = is_tall ? plane_row(c, y % 2 ? cy + 1 : cy - 1) : NULL;
        int at = first - c->x0;
        gather(c, plane_row(c, cy) + at, far ? far + at : NULL, first, n, room->sums);
        widen(room->sums, n, is_tall, room->wide);
    }
    return room->wide + x0 % 2;
}

/* loads eight bytes into 32-bit lanes */
TD_AVX2 static inline __m256i load8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

/* 8 x 32 bits, clipped to bytes, in the low half */
TD_AVX2 static inline __m128i to_bytes(__m256i x)
{
    __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return _mm_packus_epi16(w, w);
}

/* eight pixels, 24 bytes */
TD_AVX2 static inline void store_rgb(__m128i r, __m128i g, __m128i b, uint8_t *dst)
{
    const __m128i of_rg = _mm_setr_epi8(0, 1, -1, 2, 3, -1, 4, 5, -1, 6, 7, -1, 8, 9, -1, 10);
    const __m128i of_b = _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1);
    const __m128i rest_rg =
        _mm_setr_epi8(11, -1, 12, 13, -1, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m128i rest_b =
        _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, -1, -1, -1, -1, -1, -1);
    __m128i rg = _mm_unpacklo_epi8(r, g);
    __m128i low = _mm_or_si128(_mm_shuffle_epi8(rg, of_rg), _mm_shuffle_epi8(b, of_b));
    __m128i high = _mm_or_si128(_mm_shuffle_epi8(rg, rest_rg), _mm_shuffle_epi8(b, rest_b));
    _mm_storeu_si128((__m128i *)(void *)dst, low);
    _mm_storel_epi64((__m128i *)(void *)(dst + 16), high);
}

/* n pixels in 16-bit fixed point; reads and writes up to seven more */
TD_AVX2 static void rgb_row(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, int n,
                            uint8_t *dst)
{
    const __m256i middle = _mm256_set1_epi32(128), half = _mm256_set1_epi32(1 << 15);
    for (int i = 0; i < n; i += 8) {
        __m256i l = load8(y + i), u = sub(load8(cb + i), middle), v = sub(load8(cr + i), middle);
        __m256i r = add(l, _mm256_srai_epi32(add(times(v, 91881), half), 16));
        __m256i b = add(l, _mm256_srai_epi32(add(times(u, 116130), half), 16));
        __m256i g = add(times(u, -22554), add(times(v, -46802), half));
        g = add(l, _mm256_srai_epi32(g, 16));
        store_rgb(to_bytes(r), to_bytes(g), to_bytes(b), dst + 3 * (size_t)i);
    }
}

static void gray_row(const uint8_t *y, int n, uint8_t *dst)
{
    for (int i = 0; i < n; i++)
        dst[3 * i] = dst[3 * i + 1] = dst[3 * i + 2] = y[i];
}

/* allocates from libjpeg; a failure leaves through its error handler */
static void *borrow(struct jpeg_decompress_struct *c, size_t n_bytes)
{
    return c->mem->alloc_large((j_common_ptr)c, JPOOL_IMAGE, n_bytes);
}

static void make_rgb(scan *s, td_image *out)
{
    enum { ROOM = 32 };
    size_t width = (size_t)s->box.width, row = 3 * width;
    widener rooms[2];
    for (int i = 0; i < 2; i++) {
        rooms[i].sums = borrow(s->c, (width / 2 + ROOM) * sizeof(uint16_t));
        rooms[i].wide = borrow(s->c, width + 2 * ROOM);
    }
    for (int i = 0; i < s->box.height; i++) {
        int y = s->box.y + i;
        uint8_t *dst = out->px + row * (size_t)i;
        const uint8_t *luma = plane_row(&s->comps[0], y) + (s->box.x - s->comps[0].x0);
        if (s->n_comps == 1) {
            gray_row(luma, s->box.width, dst);
            continue;
        }
        const uint8_t *cb = colour_row(s, &s->comps[1], y, &rooms[0]);
        const uint8_t *cr = colour_row(s, &s->comps[2], y, &rooms[1]);
        rgb_row(luma, cb, cr, s->box.width, dst); /* the next row overwrites the excess */
    }
}

/* --- which files are supported ---------------------------------------------------------------- */

static bool is_usual(const struct jpeg_decompress_struct *c)
{
    if (c->progressive_mode || c->arith_code || c->restart_interval || c->data_precision != 8 ||
        c->Ss != 0 || c->Se != 63 || c->Ah != 0 || c->Al != 0 || c->CCIR601_sampling ||
        c->comps_in_scan != c->num_components || c->dct_method != JDCT_ISLOW)
        return false;
    const jpeg_component_info *p = c->comp_info;
    if (c->num_components == 1)
        return c->jpeg_color_space == JCS_GRAYSCALE && p->h_samp_factor == 1 &&
               p->v_samp_factor == 1;
    if (c->num_components != 3 || c->jpeg_color_space != JCS_YCbCr || p[1].h_samp_factor != 1 ||
        p[1].v_samp_factor != 1 || p[2].h_samp_factor != 1 || p[2].v_samp_factor != 1)
        return false;
    int h = p->h_samp_factor, v = p->v_samp_factor;
    for (int i = 0; i < 3; i++)
        if (c->cur_comp_info[i] != &c->comp_info[i])
            return false;
    return (h == 1 && v == 1) || (h == 2 && (v == 1 || v == 2));
}

static bool take_tables(scan *s)
{
    bool is_built[8] = { false };
    for (int i = 0; i < s->n_comps; i++) {
        const jpeg_component_info *p = &s->c->comp_info[i];
        component *c = &s->comps[i];
        const JQUANT_TBL *q = s->c->quant_tbl_ptrs[clamp(p->quant_tbl_no, 0, NUM_QUANT_TBLS - 1)];
        int dc = clamp(p->dc_tbl_no, 0, 3), ac = clamp(p->ac_tbl_no, 0, 3);
        if (!q || dc != p->dc_tbl_no || ac != p->ac_tbl_no)
            return false;
        if (!is_built[dc] && !build(&s->tables[dc], s->c->dc_huff_tbl_ptrs[dc], true))
            return false;
        if (!is_built[4 + ac] && !build(&s->tables[4 + ac], s->c->ac_huff_tbl_ptrs[ac], false))
            return false;
        is_built[dc] = is_built[4 + ac] = true;
        c->dc = &s->tables[dc];
        c->ac = &s->tables[4 + ac];
        for (int k = 0; k < 64; k++)
            c->step[k] = q->quantval[natural[k]];
        c->h = p->h_samp_factor;
        c->v = p->v_samp_factor;
        s->h = c->h > s->h ? c->h : s->h;
        s->v = c->v > s->v ? c->v : s->v;
    }
    return true;
}

/* chooses the MCUs that cover the box and two pixels around it, and allocates their planes */
static void lay_out(scan *s)
{
    enum { AROUND = 2, ROOM = 64 };
    int width = (int)s->c->image_width, height = (int)s->c->image_height;
    int mw = 8 * s->h, mh = 8 * s->v;
    s->n_mx = (width + mw - 1) / mw;
    int n_my = (height + mh - 1) / mh;
    s->mx0 = clamp(s->box.x - AROUND, 0, width) / mw;
    s->my0 = clamp(s->box.y - AROUND, 0, height) / mh;
    s->mx1 = clamp((s->box.x + s->box.width + AROUND + mw - 1) / mw, 0, s->n_mx);
    s->my1 = clamp((s->box.y + s->box.height + AROUND + mh - 1) / mh, 0, n_my);
    for (int i = 0; i < s->n_comps; i++) {
        component *c = &s->comps[i];
        c->x0 = 8 * c->h * s->mx0;
        c->y0 = 8 * c->v * s->my0;
        c->width = (width * c->h + s->h - 1) / s->h;
        c->height = (height * c->v + s->v - 1) / s->v;
        c->stride = 8 * c->h * (s->mx1 - s->mx0) + ROOM; /* rows are read eight samples at a time */
        size_t rows = 8 * (size_t)c->v * (size_t)(s->my1 - s->my0);
        c->plane = borrow(s->c, rows * (size_t)c->stride);
    }
}

td_status td_jpeg_scan(struct jpeg_decompress_struct *c, td_box box, bool is_fast, td_image *out,
                       bool *done)
{
    *done = false;
    if (!is_usual(c) || !td_isa_has(TD_ISA_AVX2))
        return TD_OK;
    size_t n_bytes = c->src->bytes_in_buffer;
    uint8_t *bytes = borrow(c, n_bytes + MCU_BYTES_MAX);
    uint8_t *end = unstuff(c->src->next_input_byte, c->src->next_input_byte + n_bytes, bytes);
    memset(end, 0, MCU_BYTES_MAX);
    scan s = { .c = c,
               .box = box,
               .is_fast = is_fast,
               .n_comps = c->num_components,
               .tables = borrow(c, 8 * sizeof *s.tables),
               .src = { .at = bytes, .end = end } };
    if (!take_tables(&s))
        return TD_OK;
    lay_out(&s);
    if (!read_mcus(&s))
        return TD_OK;
    TD_TRY(td_image_resize_buffer(out, box.width, box.height));
    make_rgb(&s, out);
    *done = true;
    return TD_OK;
}

#else

td_status td_jpeg_scan(struct jpeg_decompress_struct *c, td_box box, bool is_fast, td_image *out,
                       bool *done)
{
    (void)c, (void)box, (void)is_fast, (void)out;
    *done = false;
    return TD_OK;
}

#endif
