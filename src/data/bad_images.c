/*
 * bad_images.c -- records unusable images
 */
#include "data/bad_images.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"

static const double bad_share = 0.01;

bool td_is_bad_image(td_status st)
{
    return st == TD_EFORMAT || st == TD_EUNSUPPORTED || st == TD_ELIMIT || st == TD_EIO ||
           st == TD_ENOTFOUND || st == TD_EARG;
}

/* --- notes of a worker ------------------------------------------------------------------------ */

/*
 * Remove the path, which the list contains already: "cannot open 'a.jpg': no" -> "cannot open: no".
 */
static void cut_path(char *reason, const char *path)
{
    size_t n = strlen(path);
    char *at = strstr(reason, path);
    if (!at || at == reason || at[-1] != '\'' || at[n] != '\'')
        return;
    char *from = at - 1, *rest = at + n + 1;
    if (from > reason)
        from--; /* the space before it */
    else if (*rest == ' ')
        rest++;
    memmove(from, rest, strlen(rest) + 1);
}

td_status td_bad_notes_add(td_bad_notes *b, const td_dataset *ds, int64_t sample, td_status why)
{
    TD_TRY(td_reserve(&b->notes, &b->cap, b->n + 1, sizeof *b->notes));
    char *reason = td_copy_text(td_error_message());
    if (!reason)
        return TD_ENOMEM;
    cut_path(reason, ds->samples[sample].path);
    b->notes[b->n++] = (td_bad_note){ sample, reason, why };
    return TD_OK;
}

void td_bad_notes_clear(td_bad_notes *b)
{
    for (size_t k = 0; k < b->n; k++)
        td_free(b->notes[k].reason);
    b->n = 0;
}

void td_bad_notes_release(td_bad_notes *b)
{
    td_bad_notes_clear(b);
    td_free(b->notes);
    *b = (td_bad_notes){ 0 };
}

/* --- the list --------------------------------------------------------------------------------- */

static double share_of(double share)
{
    return share < 0 ? 0 : share > 0 ? share : bad_share;
}

static int64_t count_allowed(double share, int64_t n)
{
    int64_t allowed = (int64_t)floor(share_of(share) * (double)n);
    return share == 0 && allowed == 0 ? 1 : allowed;
}

td_status td_bad_images_init(td_bad_images *b, const td_dataset *ds, double share)
{
    *b = (td_bad_images){ .ds = ds,
                          .share = share_of(share),
                          .n_allowed = count_allowed(share, ds->n) };
    b->is_listed = td_alloc((size_t)ds->n / 8 + 1, 1);
    return b->is_listed ? TD_OK : TD_ENOMEM;
}

void td_bad_images_release(td_bad_images *b)
{
    for (size_t i = 0; i < b->n; i++)
        td_free((char *)(uintptr_t)b->list[i].reason);
    td_free(b->list);
    td_free(b->is_listed);
    *b = (td_bad_images){ 0 };
}

/* Add a note to the list, unless the image is already listed. */
static td_status add_note(td_bad_images *b, td_bad_note *e)
{
    uint8_t bit = (uint8_t)(1 << (e->sample & 7));
    if (b->is_listed[e->sample >> 3] & bit)
        return TD_OK;
    TD_TRY(td_reserve(&b->list, &b->cap, b->n + 1, sizeof *b->list));
    b->is_listed[e->sample >> 3] |= bit;
    b->list[b->n++] = (td_bad_image){ .path = b->ds->samples[e->sample].path,
                                      .reason = e->reason,
                                      .sample = e->sample,
                                      .st = e->st };
    e->reason = NULL;
    td_log(TD_LOG_WARN, "data", "bad image '%s': %s", b->list[b->n - 1].path,
           b->list[b->n - 1].reason);
    return TD_OK;
}

td_status td_bad_images_add(td_bad_images *b, td_bad_notes *notes)
{
    for (size_t k = 0; k < notes->n; k++)
        TD_TRY(add_note(b, &notes->notes[k]));
    return TD_OK;
}

td_status td_bad_images_refuse(const td_bad_images *b)
{
    if (b->n == (size_t)b->ds->n)
        return td_error(TD_EFORMAT, "'%s': none of %zu images can be used; the first is '%s': %s",
                        b->ds->root, b->n, b->list[0].path, b->list[0].reason);
    return td_error(
        TD_EFORMAT,
        "'%s': %zu of %" PRId64 " images cannot be used, more than --max-bad %g allows (%" PRId64
        "); the first is '%s': %s",
        b->ds->root, b->n, b->ds->n, b->share, b->n_allowed, b->list[0].path, b->list[0].reason);
}
