/*
 * pth.c -- reads PyTorch's two containers into a set of tensors
 *
 *     zip       NAME/data.pkl     the object; tensors name their storage by key
 *               NAME/data/KEY     a storage's bytes
 *               NAME/byteorder    "little" or "big"; absent in old files
 *
 *     legacy    pickles: magic number | 1001 | {little_endian, ...} | the object | [KEY, ...]
 *               for each KEY: i64 number of elements, the bytes | end of file
 *
 * The object is read first, then the state_dict is chosen from it, and only its tensors' bytes are
 * read.  A tensor that covers its storage in order is read directly; other tensors (transposed,
 * parts of a larger storage) are gathered from a copy of the storage, which is kept until the end.
 *
 * From a training checkpoint the optimizer's state_dict is read as well:
 *
 *     { "state":        { I: { "momentum_buffer": tensor, ... }, ... },
 *       "param_groups": [ { "params": [I, ...], "lr": 0.1, ... }, ... ] }
 *
 * Source: PyTorch 2, torch/serialization.py.
 */
#include "pth/pth.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/log.h"
#include "base/map.h"
#include "base/text.h"
#include "pth/pickle.h"
#include "pth/pickle_names.h"
#include "pth/pth_metadata.h"
#include "pth/zip.h"

#define NAME       "%.200s" /* a name from the file, in a message */
#define PICKLE_MAX (64u << 20)
#define KEY_MAX    256
#define SLACK      (16u << 20) /* allowance beyond four times the file's size for all tensors */
/* limits for an optimizer's state, since a pickle may contain the same value many times */
#define GROUPS_MAX 2      /* the reference's main.py has 2, plain SGD(net.parameters()) 1 */
#define PARAMS_MAX 100000 /* an SE-ResNeXt-101 has 446 */
#define STATE_MAX  16     /* entries of one parameter's state; RMSprop has 3 */

/* of torch.serialization.MAGIC_NUMBER: PROTO 2, LONG1 of ten bytes, STOP */
static const unsigned char magic[15] = { 0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                         0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e };

/* a storage in the file */
typedef struct {
    size_t entry;     /* zip: index of its entry */
    uint64_t at;      /* legacy: file offset */
    uint64_t n_bytes; /* available */
    void *data;       /* loaded when first gathered from; owned */
} storage;

typedef enum { WEIGHTS, AVERAGES, TRAINING } part;

typedef struct {
    td_blob blob;
    const char *what;
    part part;
    td_zip *zip; /* NULL: legacy */
    char *text;  /* the pickle's bytes; owned */
    size_t n_text;
    td_pickle *object;
    storage *storages; /* [storage_of.n] */
    size_t cap_storages;
    td_map storage_of;   /* key -> index into storages, plus 1 */
    uint64_t bytes_left; /* remaining for tensors */
    td_tensors *t;
    bool has_steps, steps_differ; /* of an optimizer's parameters */
    double steps;
} reader;

bool td_pth_is(const void *head, size_t n_bytes)
{
    const unsigned char *p = head;
    if (n_bytes >= 4 && p[0] == 'P' && p[1] == 'K')
        return (p[2] == 3 && p[3] == 4) || (p[2] == 5 && p[3] == 6);
    /* the header of a safetensors file may have any length, but begins with '{' */
    return n_bytes >= 9 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5 && p[8] != '{';
}

/* --- storages --------------------------------------------------------------------------------- */

static td_status add_storage(reader *r, const char *key, storage s)
{
    size_t n = r->storage_of.n;
    if (td_map_has(&r->storage_of, key))
        return td_error(TD_EFORMAT, "'%s': two storages have the key '" NAME "'", r->what, key);
    TD_TRY(td_reserve(&r->storages, &r->cap_storages, n + 1, sizeof *r->storages));
    TD_TRY(td_map_set(&r->storage_of, key, (void *)(uintptr_t)(n + 1)));
    r->storages[n] = s;
    return TD_OK;
}

static td_status read_storage(reader *r, const storage *s, void *to)
{
    if (r->zip)
        return td_zip_read(r->zip, s->entry, to);
    return td_blob_read(&r->blob, s->at, (size_t)s->n_bytes, to);
}

/* copies a text for a message or a key; false if it does not fit or has a NUL */
static bool copy_text(td_ptext t, char *out, size_t room)
{
    size_t n = t.len < room - 1 ? t.len : room - 1;
    memcpy(out, t.bytes, n);
    out[n] = '\0';
    return n == t.len && strlen(out) == n;
}

static td_status find_storage(reader *r, const td_ptensor *x, const char *name, storage **out)
{
    char key[KEY_MAX];
    uintptr_t at = 0;
    size_t wanted;
    const td_pstorage *s = &x->storage->storage;

    if (copy_text(s->key, key, sizeof key))
        at = (uintptr_t)td_map_get(&r->storage_of, key);
    if (!at)
        return td_error(TD_EFORMAT, "'%s': tensor '" NAME "': there is no storage '" NAME "'",
                        r->what, name, key);
    *out = &r->storages[at - 1];
    if (!td_mul_size((size_t)s->n, td_dtype_bytes(x->dtype), &wanted) || wanted != (*out)->n_bytes)
        return td_error(TD_EFORMAT,
                        "'%s': tensor '" NAME "': its storage is declared with %" PRId64
                        " elements of %zu bytes, but has %" PRIu64 " bytes",
                        r->what, name, s->n, td_dtype_bytes(x->dtype), (*out)->n_bytes);
    return TD_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static bool is_in_order(const td_ptensor *x)
{
    int64_t step = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        if (x->dim[i] != 1 && x->stride[i] != step)
            return false;
        step *= x->dim[i];
    }
    return true;
}

/* copies a strided view to C order; x->n > 0 */
static void gather(const td_ptensor *x, const unsigned char *from, unsigned char *to)
{
    const size_t each = td_dtype_bytes(x->dtype);
    int64_t index[TD_PICKLE_RANK_MAX] = { 0 };
    int64_t at = x->offset;

    for (int64_t k = 0; k < x->n; k++, to += each) {
        memcpy(to, from + (size_t)at * each, each);
        for (int i = x->rank - 1; i >= 0; i--) {
            at += x->stride[i];
            if (++index[i] < x->dim[i])
                break;
            at -= x->stride[i] * x->dim[i];
            index[i] = 0;
        }
    }
}

static td_status fill(reader *r, const td_ptensor *x, storage *s, void *to)
{
    const size_t each = td_dtype_bytes(x->dtype);
    if (x->n == 0)
        return TD_OK;
    if (is_in_order(x) && (uint64_t)x->n * each == s->n_bytes)
        return read_storage(r, s, to);
    if (!s->data) {
        s->data = td_alloc((size_t)s->n_bytes, 1);
        if (!s->data)
            return TD_ENOMEM;
        td_status st = read_storage(r, s, s->data);
        if (st != TD_OK) {
            td_free(s->data);
            s->data = NULL;
            return st;
        }
    }
    gather(x, s->data, to);
    return TD_OK;
}

/* the total of all tensors is limited by the file's size, even if they share storage */
static td_status take_bytes(reader *r, const td_ptensor *x, const char *name)
{
    size_t n;
    if (!td_mul_size((size_t)x->n, td_dtype_bytes(x->dtype), &n) || n > r->bytes_left)
        return td_error(TD_ELIMIT,
                        "'%s': tensor '" NAME "' of %" PRId64
                        " elements: the tensors have more than four times the file's bytes",
                        r->what, name, x->n);
    r->bytes_left -= n;
    return TD_OK;
}

static td_status add_tensor(reader *r, const char *prefix, td_ptext key, const td_ptensor *x)
{
    char name[KEY_MAX];
    const size_t n_prefix = strlen(prefix);
    storage *s;
    void *data;

    memcpy(name, prefix, n_prefix);
    if (!copy_text(key, name + n_prefix, sizeof name - n_prefix))
        return td_error(TD_EFORMAT, "'%s': a tensor has a name of %zu bytes: '" NAME "'", r->what,
                        key.len, name);
    if (x->dtype == TD_DT_NONE)
        return td_error(TD_EUNSUPPORTED, "'%s': tensor '" NAME "' is %s, which is not supported",
                        r->what, name, x->type);
    TD_TRY(find_storage(r, x, name, &s));
    TD_TRY(take_bytes(r, x, name));
    td_status st = td_tensors_add_new(r->t, name, x->dtype, x->rank, x->dim, &data);
    if (st != TD_OK)
        return st == TD_EARG ? td_error_context(TD_EFORMAT, "'%s'", r->what) : st;
    return fill(r, x, s, data);
}

static td_status add_tensors(reader *r, const char *prefix, const td_plist *dict)
{
    for (size_t i = 0; i + 1 < dict->n; i += 2) {
        const td_pvalue *key = dict->at[i], *x = dict->at[i + 1];
        if (key->kind == TD_PICKLE_TEXT && x->kind == TD_PICKLE_TENSOR)
            TD_TRY(add_tensor(r, prefix, key->text, &x->tensor));
        else if (key->kind == TD_PICKLE_TEXT)
            td_log(TD_LOG_DEBUG, "io", "%s: skipping '%.*s', which is %s", r->what,
                   key->text.len < 200 ? (int)key->text.len : 200, key->text.bytes,
                   td_pickle_kind_name(x->kind));
    }
    return TD_OK;
}

/* --- choosing the dict ------------------------------------------------------------------------ */

static bool has_tensors(const td_pvalue *v)
{
    if (v->kind != TD_PICKLE_DICT)
        return false;
    for (size_t i = 1; i < v->list.n; i += 2)
        if (v->list.at[i]->kind == TD_PICKLE_TENSOR)
            return true;
    return false;
}

/* the first entry with one of these names that has tensors */
static const td_pvalue *find_section(const td_pvalue *root, const char *const *names,
                                     const char **section)
{
    for (; *names; names++) {
        const td_pvalue *v = td_pickle_get(root, *names);
        if (v && has_tensors(v)) {
            *section = *names;
            return v;
        }
    }
    *section = NULL;
    return NULL;
}

static const char *const plain_names[] = { "state_dict", "model", "model_state_dict", NULL };
static const char *const ema_names[] = { "state_dict_ema", "model_ema", "ema_state_dict", NULL };

static td_status choose(const reader *r, const td_pvalue *root, const td_pvalue **out,
                        const char **section)
{
    *out = find_section(root, r->part == AVERAGES ? ema_names : plain_names, section);
    if (*out)
        return TD_OK;
    if (r->part == AVERAGES)
        return td_error(TD_EFORMAT, "'%s' has no averaged weights (state_dict_ema)", r->what);
    if (!has_tensors(root))
        return td_error(TD_EFORMAT,
                        "'%s' contains %s without weights, wanted a state_dict, or a dict with one "
                        "under 'state_dict', 'model' or 'model_state_dict'",
                        r->what, td_pickle_kind_name(root->kind));
    *out = root;
    return TD_OK;
}

/* --- other entries of a checkpoint ------------------------------------------------------------ */

/* reads a number, or a tensor with one element */
static td_status read_real(reader *r, const td_pvalue *v, const char *name, bool *is_there,
                           double *out)
{
    union {
        float f32;
        double f64;
    } x;
    storage *s;

    *is_there = true;
    if (v->kind == TD_PICKLE_INT)
        *out = (double)v->whole;
    else if (v->kind == TD_PICKLE_REAL)
        *out = v->real;
    else if (v->kind == TD_PICKLE_TENSOR && v->tensor.n == 1 &&
             (v->tensor.dtype == TD_DT_F32 || v->tensor.dtype == TD_DT_F64)) {
        TD_TRY(find_storage(r, &v->tensor, name, &s));
        TD_TRY(fill(r, &v->tensor, s, &x));
        *out = v->tensor.dtype == TD_DT_F32 ? (double)x.f32 : x.f64;
    } else
        *is_there = false;
    return TD_OK;
}

static td_status note_best(reader *r, const td_pvalue *root)
{
    char text[40];
    bool is_there;
    double best;
    const td_pvalue *v = td_pickle_get(root, "best_prec1");
    if (!v)
        v = td_pickle_get(root, "best_acc1");
    if (!v)
        return TD_OK;
    TD_TRY(read_real(r, v, "best_prec1", &is_there, &best));
    if (!is_there)
        return TD_OK;
    snprintf(text, sizeof text, "%.9g", best);
    return td_tensors_set_meta(r->t, "torch.best_prec1", text);
}

/* "resnet50", or the first of a tuple of texts */
static td_status note_arch(reader *r, const td_pvalue *root)
{
    char text[KEY_MAX];
    const td_pvalue *v = td_pickle_get(root, "arch");
    if (v && v->kind == TD_PICKLE_TUPLE && v->list.n > 0)
        v = v->list.at[0];
    if (!v || v->kind != TD_PICKLE_TEXT || !copy_text(v->text, text, sizeof text) ||
        !td_text_is_utf8(text))
        return TD_OK;
    return td_tensors_set_meta(r->t, "torch.arch", text);
}

/* reads the network's metadata that `tandem convert` wrote */
static td_status note_network(reader *r, const td_pvalue *from)
{
    const td_pvalue *own = from ? td_pickle_get(from, TD_PTH_METADATA_KEY) : NULL;
    return td_pth_metadata_read(own, r->what, r->t);
}

static td_status note(reader *r, const td_pvalue *root, const char *section)
{
    char text[24];
    const td_pvalue *epoch = td_pickle_get(root, "epoch");
    TD_TRY(td_tensors_set_meta(r->t, "torch.container", r->zip ? "zip" : "legacy"));
    if (!section)
        return note_network(r, root->attributes);
    TD_TRY(note_network(r, root));
    TD_TRY(td_tensors_set_meta(r->t, "torch.section", section));
    if (epoch && epoch->kind == TD_PICKLE_INT) {
        snprintf(text, sizeof text, "%" PRId64, epoch->whole);
        TD_TRY(td_tensors_set_meta(r->t, "torch.epoch", text));
    }
    TD_TRY(note_best(r, root));
    return note_arch(r, root);
}

static void log_other_entries(const reader *r, const td_pvalue *root)
{
    for (size_t i = 0; i + 1 < root->list.n; i += 2) {
        const td_pvalue *key = root->list.at[i];
        if (key->kind == TD_PICKLE_TEXT)
            td_log(TD_LOG_DEBUG, "io", "%s: the checkpoint has '%.*s', %s", r->what,
                   key->text.len < 200 ? (int)key->text.len : 200, key->text.bytes,
                   td_pickle_kind_name(root->list.at[i + 1]->kind));
    }
}

/* --- an optimizer's state_dict ---------------------------------------------------------------- */

static bool is_state_key(const td_pvalue *key)
{
    static const char *const keys[] = { "momentum_buffer", "square_avg", "exp_avg", "exp_avg_sq" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (td_pvalue_is(key, keys[i]))
            return true;
    return false;
}

/* notes a parameter's count of steps, a number or a tensor of one */
static td_status take_step(reader *r, const td_pvalue *v)
{
    bool is_there;
    double step;
    TD_TRY(read_real(r, v, "step", &is_there, &step));
    if (!is_there)
        return TD_OK;
    r->steps_differ =
        r->steps_differ || (r->has_steps && (r->steps < step || r->steps > step)) || step != step;
    r->has_steps = true;
    r->steps = step;
    return TD_OK;
}

/* {"momentum_buffer": tensor, "step": ...} of one parameter */
static td_status add_state(reader *r, int64_t index, const td_pvalue *state)
{
    char prefix[48], name[64];
    if (index < 0 || state->kind != TD_PICKLE_DICT || state->list.n > (size_t)2 * STATE_MAX)
        return td_error(TD_EFORMAT,
                        "'%s': the optimizer's state of parameter %" PRId64 " is malformed",
                        r->what, index);
    snprintf(prefix, sizeof prefix, "optimizer.%" PRId64 ".", index);
    for (size_t i = 0; i + 1 < state->list.n; i += 2) {
        const td_pvalue *key = state->list.at[i], *x = state->list.at[i + 1];
        if (td_pvalue_is(key, "step"))
            TD_TRY(take_step(r, x));
        if (x->kind == TD_PICKLE_NONE || td_pvalue_is(key, "step"))
            continue;
        if (x->kind == TD_PICKLE_TENSOR && is_state_key(key)) {
            TD_TRY(add_tensor(r, prefix, key->text, &x->tensor));
            continue;
        }
        if (key->kind != TD_PICKLE_TEXT || !copy_text(key->text, name, sizeof name))
            snprintf(name, sizeof name, "%s", td_pickle_kind_name(key->kind));
        return td_error(
            TD_EUNSUPPORTED,
            "'%s': the optimizer state of parameter %" PRId64
            " contains '%s', %s; only SGD's momentum_buffer, RMSprop's square_avg and Adam's "
            "exp_avg and exp_avg_sq are supported",
            r->what, index, name, td_pickle_kind_name(x->kind));
    }
    return TD_OK;
}

static td_status add_states(reader *r, const td_pvalue *states)
{
    if (!states || states->kind != TD_PICKLE_DICT || states->list.n > (size_t)2 * PARAMS_MAX)
        return td_error(TD_EFORMAT, "'%s': its optimizer has no 'state' with at most %d parameters",
                        r->what, PARAMS_MAX);
    for (size_t i = 0; i + 1 < states->list.n; i += 2) {
        const td_pvalue *index = states->list.at[i];
        if (index->kind != TD_PICKLE_INT)
            return td_error(TD_EFORMAT,
                            "'%s': its optimizer state is indexed by %s, wanted a number", r->what,
                            td_pickle_kind_name(index->kind));
        TD_TRY(add_state(r, index->whole, states->list.at[i + 1]));
    }
    return TD_OK;
}

static td_status print_real(reader *r, const td_pvalue *v, const char *name, td_text *j)
{
    bool is_there;
    double x;
    TD_TRY(read_real(r, v, name, &is_there, &x));
    if (is_there && !isfinite(x))
        return td_error(TD_EFORMAT, "'%s': its optimizer has an invalid %s of %g", r->what, name,
                        x);
    if (is_there)
        td_text_add(j, ", \"%s\": %.17g", name, x);
    return TD_OK;
}

/* one setting of a group; skips settings that are absent, None or of another type */
static td_status print_setting(reader *r, const td_pvalue *group, const char *name, td_text *j)
{
    const td_pvalue *v = td_pickle_get(group, name);
    if (!v)
        return TD_OK;
    if (v->kind == TD_PICKLE_BOOL) {
        td_text_add(j, ", \"%s\": %s", name, v->whole ? "true" : "false");
        return TD_OK;
    }
    return print_real(r, v, name, j);
}

static td_status print_group(reader *r, const td_pvalue *group, td_text *j)
{
    static const char *const settings[] = { "lr",
                                            "momentum",
                                            "dampening",
                                            "weight_decay",
                                            "eps",
                                            "nesterov",
                                            "maximize",
                                            "alpha",
                                            "step",
                                            "centered",
                                            "amsgrad",
                                            "decoupled_weight_decay",
                                            "caution",
                                            "grad_averaging",
                                            "trust_clip",
                                            "always_adapt",
                                            "max_grad_norm",
                                            "bias_correction",
                                            "decoupled_decay" };
    const td_pvalue *params = td_pickle_get(group, "params");
    const td_pvalue *betas = td_pickle_get(group, "betas");
    if (!params || params->kind != TD_PICKLE_LIST || params->list.n > PARAMS_MAX)
        return td_error(TD_EFORMAT,
                        "'%s': a group of its optimizer has no list of at most %d params", r->what,
                        PARAMS_MAX);
    td_text_add(j, "{\"params\": [");
    for (size_t i = 0; i < params->list.n; i++) {
        const td_pvalue *x = params->list.at[i];
        if (x->kind != TD_PICKLE_INT)
            return td_error(TD_EFORMAT, "'%s': a parameter of its optimizer is %s, wanted a number",
                            r->what, td_pickle_kind_name(x->kind));
        td_text_add(j, i ? ", %" PRId64 : "%" PRId64, x->whole);
    }
    td_text_add(j, "]");
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        TD_TRY(print_setting(r, group, settings[i], j));
    if (betas && (betas->kind == TD_PICKLE_TUPLE || betas->kind == TD_PICKLE_LIST) &&
        betas->list.n == 2) {
        TD_TRY(print_real(r, betas->list.at[0], "beta1", j));
        TD_TRY(print_real(r, betas->list.at[1], "beta2", j));
    }
    td_text_add(j, "}");
    return TD_OK;
}

static td_status note_groups(reader *r, const td_pvalue *groups)
{
    td_status st = TD_OK;
    td_text j = { 0 };
    if (!groups || groups->kind != TD_PICKLE_LIST || groups->list.n < 1 ||
        groups->list.n > GROUPS_MAX)
        return td_error(TD_EUNSUPPORTED,
                        "'%s': its optimizer does not have the one or two parameter groups that "
                        "the reference program's main.py creates",
                        r->what);
    td_text_add(&j, "[");
    for (size_t i = 0; i < groups->list.n; i++) {
        td_text_add(&j, i ? ", " : "");
        TD_OUT(print_group(r, groups->list.at[i], &j));
    }
    td_text_add(&j, "]");
    TD_OUT(td_text_status(&j));
    TD_OUT(td_tensors_set_meta(r->t, "torch.param_groups", td_text_get(&j)));
out:
    td_text_release(&j);
    return st;
}

/* adds the averaged weights and the optimizer's state */
static td_status add_training(reader *r, const td_pvalue *root)
{
    const char *section;
    const td_pvalue *optimizer = td_pickle_get(root, "optimizer");
    const td_pvalue *epoch = td_pickle_get(root, "epoch");
    const td_pvalue *averages = find_section(root, ema_names, &section);
    if (!optimizer || optimizer->kind != TD_PICKLE_DICT || !epoch || epoch->kind != TD_PICKLE_INT)
        return td_error(TD_EFORMAT,
                        "'%s' is not a training checkpoint: it has no '%s'; use "
                        "--pretrained-weights for a file of weights only",
                        r->what, optimizer ? "epoch" : "optimizer");
    if (averages)
        TD_TRY(add_tensors(r, "ema.", &averages->list));
    TD_TRY(add_states(r, td_pickle_get(optimizer, "state")));
    if (r->has_steps && !r->steps_differ) {
        char text[40];
        snprintf(text, sizeof text, "%.17g", r->steps);
        TD_TRY(td_tensors_set_meta(r->t, "torch.step", text));
    }
    return note_groups(r, td_pickle_get(optimizer, "param_groups"));
}

/* --- the zip container ------------------------------------------------------------------------ */

static td_status check_order(reader *r, const char *folder, int n_folder)
{
    char name[KEY_MAX + 16], order[8] = { 0 };
    size_t i;
    snprintf(name, sizeof name, "%.*sbyteorder", n_folder, folder);
    if (!td_zip_find(r->zip, name, &i))
        return TD_OK;
    if (td_zip_bytes(r->zip, i) < sizeof order)
        TD_TRY(td_zip_read(r->zip, i, order));
    if (strcmp(order, "little") != 0)
        return td_error(TD_EUNSUPPORTED, "'%s': its byte order is '%s', wanted little", r->what,
                        order);
    return TD_OK;
}

/* the one entry FOLDER/data.pkl; n_folder is the length of "FOLDER/" */
static td_status find_object(const reader *r, size_t *at, int *n_folder)
{
    const char *const last = "/data.pkl";
    size_t n_found = 0;
    for (size_t i = 0; i < td_zip_count(r->zip); i++) {
        const char *name = td_zip_name(r->zip, i), *slash = strchr(name, '/');
        if (!slash || strcmp(slash, last) != 0)
            continue;
        *at = i;
        *n_folder = (int)(slash - name) + 1;
        n_found++;
    }
    if (n_found != 1 || *n_folder > KEY_MAX)
        return td_error(TD_EFORMAT,
                        "'%s': a zip archive with %zu entries FOLDER/data.pkl, wanted one: this "
                        "may not be a PyTorch file",
                        r->what, n_found);
    if (td_zip_bytes(r->zip, *at) > PICKLE_MAX)
        return td_error(TD_ELIMIT, "'%s': a pickle of %" PRIu64 " bytes, at most %u are read",
                        r->what, td_zip_bytes(r->zip, *at), PICKLE_MAX);
    return TD_OK;
}

static td_status load_zip(reader *r)
{
    size_t at = 0;
    int n_folder = 0;

    TD_TRY(td_zip_open(&r->blob, &r->zip));
    TD_TRY(find_object(r, &at, &n_folder));
    const char *folder = td_zip_name(r->zip, at);
    TD_TRY(check_order(r, folder, n_folder));
    r->n_text = (size_t)td_zip_bytes(r->zip, at);
    r->text = td_alloc(r->n_text + 1, 1);
    if (!r->text)
        return TD_ENOMEM;
    TD_TRY(td_zip_read(r->zip, at, r->text));
    TD_TRY(td_pickle_load(r->text, r->n_text, 0, r->what, &r->object));
    if (td_pickle_end(r->object) != r->n_text)
        return td_error(TD_EFORMAT, "'%s': %zu bytes after the end of its pickle", r->what,
                        r->n_text - td_pickle_end(r->object));
    for (size_t i = 0; i < td_zip_count(r->zip); i++) {
        const char *name = td_zip_name(r->zip, i), *rest = name + n_folder;
        if (strncmp(name, folder, (size_t)n_folder) == 0 && td_text_starts(rest, "data/"))
            TD_TRY(add_storage(r, rest + 5,
                               (storage){ .entry = i, .n_bytes = td_zip_bytes(r->zip, i) }));
    }
    return TD_OK;
}

/* --- the legacy container --------------------------------------------------------------------- */

/* loads the pickle at *at and advances *at; reads more of the file if necessary */
static td_status load_next(const reader *r, size_t *at, td_pickle **out)
{
    td_status st = td_pickle_load(r->text, r->n_text, *at, r->what, out);
    if (st == TD_OK)
        *at = td_pickle_end(*out);
    else if (st == TD_EFORMAT && r->n_text < r->blob.n_bytes)
        st = td_error_context(st, "in the first %zu bytes", r->n_text);
    return st;
}

/* checks the pickles 1001 and {"little_endian": True, ...} */
static td_status check_prologue(const reader *r, size_t *at)
{
    td_status st = TD_OK;
    td_pickle *version = NULL, *system = NULL;
    TD_OUT(load_next(r, at, &version));
    const td_pvalue *v = td_pickle_root(version);
    if (v->kind != TD_PICKLE_INT || v->whole != 1001)
        TD_OUT(td_error(TD_EUNSUPPORTED, "'%s': its protocol version is not 1001", r->what));
    TD_OUT(load_next(r, at, &system));
    v = td_pickle_get(td_pickle_root(system), "little_endian");
    if (!v || v->kind != TD_PICKLE_BOOL || !v->whole)
        TD_OUT(td_error(TD_EUNSUPPORTED, "'%s': its byte order is not little-endian", r->what));
out:
    td_pickle_free(version);
    td_pickle_free(system);
    return st;
}

/* builds a map from key to the storage in the object's pickle */
static td_status index_storages(const reader *r, td_map *named)
{
    char key[KEY_MAX];
    for (const td_pvalue *v = td_pickle_values(r->object); v; v = v->next)
        if (v->kind == TD_PICKLE_STORAGE && copy_text(v->storage.key, key, sizeof key))
            TD_TRY(td_map_set(named, key, (void *)(uintptr_t)v));
    return TD_OK;
}

/* records the storage that starts at *at and advances *at */
static td_status place_storage(reader *r, const td_map *named, const td_pvalue *key, uint64_t *at)
{
    char name[KEY_MAX];
    unsigned char head[8];
    size_t n_bytes;
    const td_pvalue *v = NULL;

    if (key->kind == TD_PICKLE_TEXT && copy_text(key->text, name, sizeof name))
        v = td_map_get(named, name);
    if (!v)
        return td_error(TD_EFORMAT, "'%s': its list of storages names one that no tensor uses",
                        r->what);
    if (r->blob.n_bytes - *at < sizeof head)
        return td_error(TD_EFORMAT, "'%s': ends before storage '" NAME "'", r->what, name);
    TD_TRY(td_blob_read(&r->blob, *at, sizeof head, head));
    *at += sizeof head;
    const uint64_t n = td_get_le(head, sizeof head);
    if (n != (uint64_t)v->storage.n)
        return td_error(TD_EFORMAT,
                        "'%s': storage '" NAME "' has %" PRIu64
                        " elements, its tensors need %" PRId64,
                        r->what, name, n, v->storage.n);
    if (!td_mul_size((size_t)n, v->storage.type->n_bytes, &n_bytes) ||
        n_bytes > r->blob.n_bytes - *at)
        return td_error(TD_EFORMAT,
                        "'%s': storage '" NAME "' of %" PRIu64 " elements in a file of %" PRIu64
                        " bytes",
                        r->what, name, n, r->blob.n_bytes);
    TD_TRY(add_storage(r, name, (storage){ .at = *at, .n_bytes = n_bytes }));
    *at += n_bytes;
    return TD_OK;
}

static td_status place_storages(reader *r, const td_pvalue *keys, uint64_t at)
{
    td_status st = TD_OK;
    td_map named = { 0 };

    if (keys->kind != TD_PICKLE_LIST)
        return td_error(TD_EFORMAT, "'%s': its list of storages is %s", r->what,
                        td_pickle_kind_name(keys->kind));
    TD_OUT(index_storages(r, &named));
    for (size_t i = 0; i < keys->list.n; i++)
        TD_OUT(place_storage(r, &named, keys->list.at[i], &at));
    if (at != r->blob.n_bytes)
        TD_OUT(td_error(TD_EFORMAT, "'%s': %" PRIu64 " bytes after the last storage", r->what,
                        r->blob.n_bytes - at));
out:
    td_map_release(&named);
    return st;
}

static td_status load_legacy(reader *r)
{
    td_status st = TD_OK;
    size_t at = sizeof magic;
    td_pickle *keys = NULL;

    r->n_text = r->blob.n_bytes < PICKLE_MAX ? (size_t)r->blob.n_bytes : PICKLE_MAX;
    r->text = td_alloc(r->n_text + 1, 1);
    if (!r->text)
        return TD_ENOMEM;
    TD_TRY(td_blob_read(&r->blob, 0, r->n_text, r->text));
    if (r->n_text < sizeof magic)
        return td_error(TD_EFORMAT, "'%s': %zu bytes, too short for a PyTorch file", r->what,
                        r->n_text);
    if (memcmp(r->text, magic, sizeof magic) != 0)
        return td_error(TD_EUNSUPPORTED,
                        "'%s' is a pickle that torch.save did not write: it has no magic number",
                        r->what);
    TD_TRY(check_prologue(r, &at));
    TD_TRY(load_next(r, &at, &r->object));
    TD_OUT(load_next(r, &at, &keys));
    TD_OUT(place_storages(r, td_pickle_root(keys), at));
out:
    td_pickle_free(keys);
    return st;
}

/* --- reading ---------------------------------------------------------------------------------- */

static td_status load(reader *r)
{
    unsigned char head[TD_PTH_HEAD_BYTES];
    size_t n = r->blob.n_bytes < sizeof head ? (size_t)r->blob.n_bytes : sizeof head;

    TD_TRY(td_blob_read(&r->blob, 0, n, head));
    if (!td_pth_is(head, n))
        return td_error(TD_EFORMAT,
                        "'%s' is not a PyTorch file: it is neither a zip archive nor a pickle",
                        r->what);
    return head[0] == 'P' ? load_zip(r) : load_legacy(r);
}

static td_status read_all(reader *r, td_tensors **out)
{
    td_status st = TD_OK;
    const td_pvalue *dict;
    const char *section;

    r->what = r->blob.what;
    r->bytes_left = r->blob.n_bytes > UINT64_MAX / 8 ? UINT64_MAX : 4 * r->blob.n_bytes + SLACK;
    TD_OUT(load(r));
    const td_pvalue *root = td_pickle_root(r->object);
    TD_OUT(choose(r, root, &dict, &section));
    TD_OUT(td_tensors_new(&r->t));
    TD_OUT(add_tensors(r, "", &dict->list));
    TD_OUT(note(r, root, section));
    if (r->part == TRAINING)
        TD_OUT(add_training(r, root));
    if (section)
        log_other_entries(r, root);
    *out = r->t;
    r->t = NULL;
out:
    td_tensors_free(r->t);
    td_zip_close(r->zip);
    td_pickle_free(r->object);
    td_free(r->text);
    for (size_t i = 0; i < r->storage_of.n && r->storages; i++)
        td_free(r->storages[i].data);
    td_free(r->storages);
    td_map_release(&r->storage_of);
    return st;
}

static td_status read_file(const char *path, part wanted, td_tensors **out)
{
    reader r = { .part = wanted };
    *out = NULL;
    TD_TRY(td_blob_open(path, &r.blob));
    td_status st = read_all(&r, out);
    td_blob_close(&r.blob);
    return st;
}

td_status td_pth_read(const char *path, bool is_ema, td_tensors **out)
{
    return read_file(path, is_ema ? AVERAGES : WEIGHTS, out);
}

td_status td_pth_read_training(const char *path, td_tensors **out)
{
    return read_file(path, TRAINING, out);
}

td_status td_pth_parse(const void *bytes, size_t n_bytes, const char *what, bool is_ema,
                       td_tensors **out)
{
    reader r = { .blob = td_blob_of(bytes, n_bytes, what), .part = is_ema ? AVERAGES : WEIGHTS };
    *out = NULL;
    return read_all(&r, out);
}

td_status td_pth_parse_training(const void *bytes, size_t n_bytes, const char *what,
                                td_tensors **out)
{
    reader r = { .blob = td_blob_of(bytes, n_bytes, what), .part = TRAINING };
    *out = NULL;
    return read_all(&r, out);
}
