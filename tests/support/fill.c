/*
 * fill.c -- weights, images and labels from a formula
 */
#include "support/fill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

bool td_fill_kind_parse(const char *text, td_fill_kind *out)
{
    static const char *const names[] = { "plain", "margin", "calm" };
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (td_fill_kind)i;
            return true;
        }
    return false;
}

bool td_fill_has_basic_blocks(const char *arch)
{
    return strcmp(arch, "resnet18") == 0 || strcmp(arch, "resnet34") == 0;
}

static uint64_t fnv1a(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h;
}

const char *td_fill_prefix(void)
{
    const char *prefix = getenv("TANDEM_GOLDEN_PREFIX");
    return prefix ? prefix : "";
}

uint64_t td_fill_seed(const char *prefix, const char *name)
{
    return fnv1a(fnv1a(0xcbf29ce484222325u, prefix), name);
}

double td_fill_u(uint64_t seed, int64_t i)
{
    uint64_t z = seed + ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 40) / 16777216.0;
}

/* --- what a tensor is, from its name --------------------------------------------------------- */

/* the place of "<part>" in `name`, at its start or after a '.' */
static bool has_part(const char *name, const char *part)
{
    for (const char *p = strstr(name, part); p; p = strstr(p + 1, part))
        if (p == name || p[-1] == '.')
            return true;
    return false;
}

/* a batch norm: "bn1.weight", "layer1.0.downsample.1.bias", "fpn.smooth3.bn.weight" */
static bool is_norm(const char *name)
{
    for (const char *p = strstr(name, "bn"); p; p = strstr(p + 1, "bn")) {
        const char *end = p + 2 + (p[2] >= '0' && p[2] <= '9');
        if ((p == name || p[-1] == '.') && *end == '.')
            return true;
    }
    return has_part(name, "downsample.1.");
}

static bool ends_branch(const char *name, bool is_basic)
{
    return has_part(name, "downsample.1.") || has_part(name, is_basic ? "bn2." : "bn3.");
}

/* "layerN.0." */
static bool is_first_block(const char *name)
{
    const char *dot = td_text_starts(name, "layer") ? strchr(name, '.') : NULL;
    return dot && td_text_starts(dot, ".0.");
}

/* --- values of element i --------------------------------------------------------------------- */

static double margin_weight(double u, bool is_end)
{
    double v = 0.9 + 0.2 * u;
    return is_end ? 0.05 * v : v;
}

static double margin_bias(double u, int64_t channel, bool is_end, bool is_first)
{
    if (is_end) {
        double b = channel % 64 == 9 ? 0.0 : is_first ? 2.5 : 0.7;
        return 0.05 * (b + 0.2 * (2 * u - 1));
    }
    if (channel % 64 == 5)
        return 2 * u - 1;
    return (u < 0.25 ? -1.0 : 1.0) * (3.5 + 0.5 * u);
}

void td_fill_tensor(td_fill_kind kind, bool is_basic, const char *prefix, const char *name,
                    int rank, const int64_t *dim, float *out)
{
    const uint64_t seed = td_fill_seed(prefix, name);
    const bool norm = is_norm(name), is_bias = td_text_ends(name, "bias");
    const bool is_end = ends_branch(name, is_basic), is_first = is_first_block(name);
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= dim[i];
    const bool is_calm = kind == TD_FILL_CALM;
    const double fan_in_bound = rank && n ? sqrt(6.0 / ((double)n / (double)dim[0])) : 0;
    const double bound = fan_in_bound * (is_calm && td_text_starts(name, "heads.") ? 0.25 : 1);
    const double prior = is_calm && strcmp(name, "heads.class.bias") == 0 ? -4.6 : 0;

    /* names are looked at once, not for each of millions of elements */
    const bool is_counter = td_text_ends(name, "num_batches_tracked");
    const bool is_mean = td_text_ends(name, "running_mean"),
               is_var = td_text_ends(name, "running_var");

    for (int64_t i = 0; i < n; i++) {
        double u = td_fill_u(seed, i), v;
        if (is_counter)
            v = 0;
        else if (is_mean)
            v = 0.2 * (2 * u - 1);
        else if (is_var)
            v = 0.5 + u;
        else if (!norm)
            v = is_bias ? 0.2 * (2 * u - 1) + prior : (2 * u - 1) * bound;
        else if (is_calm)
            v = is_bias ? 3 + 0.2 * (2 * u - 1) : 0.15 + 0.3 * u;
        else if (kind == TD_FILL_PLAIN)
            v = is_bias ? 0.2 * (2 * u - 1) : 0.5 + u;
        else
            v = is_bias ? margin_bias(u, i, is_end, is_first) : margin_weight(u, is_end);
        out[i] = (float)v;
    }
}

void td_fill_range(const char *prefix, const char *name, double lo, double hi, int64_t n,
                   float *out)
{
    const uint64_t seed = td_fill_seed(prefix, name);
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(lo + (hi - lo) * td_fill_u(seed, i));
}

void td_fill_images(const char *prefix, const char *name, int64_t n, float *out)
{
    td_fill_range(prefix, name, -2, 2, n, out); /* exact: u has 24 bits */
}

void td_fill_labels(const char *prefix, const char *name, int64_t n, int64_t classes, int64_t *out)
{
    const uint64_t seed = td_fill_seed(prefix, name);
    for (int64_t i = 0; i < n; i++)
        out[i] = (int64_t)(td_fill_u(seed, i) * (double)classes);
}
