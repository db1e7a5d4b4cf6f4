/*
 * norm_text.c -- reads and prints the constants of a normalisation
 */
#include "image/norm_text.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define STD_MIN 0.0001

/* one number of the list, up to the comma or the end */
static bool parse_one(const char **at, char end, double *out)
{
    char word[TD_REAL_WORD];
    const size_t n = strcspn(*at, ",");
    if (!n || n >= sizeof word || (*at)[n] != end)
        return false;
    memcpy(word, *at, n);
    word[n] = '\0';
    *at += n + (end == ',');
    return td_text_to_real(word, out);
}

static td_status parse(const char *text, const char *what, int channels, double min, float out[3])
{
    const char *at = text;
    double v[3] = { 0 };
    bool is_good = true;
    for (int c = 0; c < channels; c++)
        is_good = is_good && parse_one(&at, c + 1 < channels ? ',' : '\0', &v[c]) && v[c] >= min &&
                  v[c] <= 1;
    if (!is_good)
        return td_error(TD_EUSAGE, "%s '%.60s', wanted %s from %g to 1", what, text,
                        channels == 1 ? "one number, of gray images," : "three numbers R,G,B", min);
    for (int c = 0; c < 3; c++)
        out[c] = (float)(255 * v[channels == 1 ? 0 : c]);
    return TD_OK;
}

td_status td_norm_parse_mean(const char *text, const char *what, int channels, float out[3])
{
    return parse(text, what, channels, 0, out);
}

td_status td_norm_parse_std(const char *text, const char *what, int channels, float out[3])
{
    return parse(text, what, channels, STD_MIN, out);
}

static void print_one(float value, char out[TD_REAL_WORD])
{
    double v = 0;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, TD_REAL_WORD, "%.*g", digits, (double)value / 255);
        if (td_text_to_real(out, &v) && (float)(255 * v) == value)
            return;
    }
}

void td_norm_print(const float values[3], int channels, char out[TD_NORM_TEXT])
{
    char word[3][TD_REAL_WORD];
    for (int c = 0; c < 3; c++)
        print_one(values[c], word[c]);
    if (channels == 1)
        snprintf(out, TD_NORM_TEXT, "%.30s", word[0]);
    else
        snprintf(out, TD_NORM_TEXT, "%.30s,%.30s,%.30s", word[0], word[1], word[2]);
}
