/*
 * dnnl_common.c -- creates descriptors, converts layout names, runs primitives
 *
 * oneDNN names a layout by a tag ("aBcd16b"), which it can print but not parse; a table from text
 * to tag is built by printing every tag.
 */
#include "backend/dnnl/dnnl_common.h"

#include <dnnl_debug.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/isa.h"

td_status td_dnnl_failed(dnnl_status_t ds, const char *what)
{
    if (ds == dnnl_out_of_memory)
        return td_error(TD_ENOMEM, "oneDNN is out of memory in %s", what);
    return td_error(TD_EDEVICE, "oneDNN: %s in %s", dnnl_status2str(ds), what);
}

/* --- engine ----------------------------------------------------------------------------------- */

static struct {
    pthread_once_t once;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_status_t status;
} cpu = { .once = PTHREAD_ONCE_INIT };

/* the library's kernels obey TANDEM_MAX_ISA, too, unless its own variable is set */
static void limit_isa(void)
{
    static const dnnl_cpu_isa_t most[TD_N_ISA] = {
        [TD_ISA_GENERIC] = dnnl_cpu_isa_sse41,
        [TD_ISA_AVX2] = dnnl_cpu_isa_avx2,
        [TD_ISA_AVX512] = dnnl_cpu_isa_avx512_core_vnni,
        [TD_ISA_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16,
        [TD_ISA_AMX_BF16] = dnnl_cpu_isa_default,
    };
    if (td_isa_is_limited() && !getenv("ONEDNN_MAX_CPU_ISA"))
        cpu.status = dnnl_set_max_cpu_isa(most[td_isa_best()]);
}

static void open_engine(void)
{
    limit_isa();
    if (cpu.status != dnnl_success)
        return;
    cpu.status = dnnl_engine_create(&cpu.engine, dnnl_cpu, 0);
    if (cpu.status == dnnl_success)
        cpu.status = dnnl_stream_create(&cpu.stream, cpu.engine, dnnl_stream_default_flags);
}

td_status td_dnnl_engine(dnnl_engine_t *engine, dnnl_stream_t *stream)
{
    pthread_once(&cpu.once, open_engine);
    DNNL_TRY(cpu.status);
    *engine = cpu.engine;
    if (stream)
        *stream = cpu.stream;
    return TD_OK;
}

/* --- types ------------------------------------------------------------------------------------ */

/* f16 is left out on purpose: most of the library's f16 kernels, where it has any, are slower than
   float32 kernels between conversions (runtime/emulate_half.h) */
bool td_dnnl_dtype(td_dtype d, dnnl_data_type_t *out)
{
    static const dnnl_data_type_t known[TD_N_DTYPE] = {
        [TD_DT_F32] = dnnl_f32, [TD_DT_BF16] = dnnl_bf16, [TD_DT_U8] = dnnl_u8,
        [TD_DT_S8] = dnnl_s8,   [TD_DT_I32] = dnnl_s32,
    };
    *out = known[d];
    return known[d] != dnnl_data_type_undef;
}

/* the tag of plain layout (our "") for each rank */
static dnnl_format_tag_t plain_tag(int rank)
{
    static const dnnl_format_tag_t tags[] = {
        dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde
    };
    return rank >= 1 && rank <= 5 ? tags[rank] : dnnl_format_tag_undef;
}

static dnnl_format_tag_t tag_of(const char *text)
{
    for (int t = 1; t < (int)dnnl_format_tag_last; t++)
        if (strcmp(dnnl_fmt_tag2str((dnnl_format_tag_t)t), text) == 0)
            return (dnnl_format_tag_t)t;
    return dnnl_format_tag_undef;
}

static const char *layout_letters(const char *layout)
{
    size_t digits = strspn(layout, "0123456789");
    return digits && layout[digits] == 'g' ? layout + digits + 1 : layout;
}

td_status td_dnnl_md(const td_type *t, int groups, bool any, dnnl_memory_desc_t *out)
{
    dnnl_dims_t dims;
    dnnl_data_type_t dtype;
    int rank = t->rank;
    *out = NULL;
    if (!td_dnnl_dtype(t->dtype, &dtype))
        return td_error(TD_ENOKERNEL, "oneDNN is not used for %s", td_dtype_name(t->dtype));
    memcpy(dims, t->dim, (size_t)rank * sizeof dims[0]);
    if (groups > 1) {
        memmove(dims + 1, dims, (size_t)rank * sizeof dims[0]);
        dims[0] = groups;
        dims[1] /= groups;
        rank++;
    }
    dnnl_format_tag_t tag = any ? dnnl_format_tag_any : plain_tag(rank);
    if (!any && t->layout[0])
        tag = tag_of(layout_letters(t->layout));
    if (tag == dnnl_format_tag_undef)
        return td_error(TD_ENOKERNEL, "oneDNN does not know layout '%s'", t->layout);
    DNNL_TRY(dnnl_memory_desc_create_with_tag(out, rank, dims, dtype, tag));
    return TD_OK;
}

/* the letters of a matrix's layout exchanged: the layout's name for the transposed matrix */
static void exchange_letters(const char *from, char to[TD_LAYOUT_BYTES])
{
    static const char letters[] = "abAB", exchanged[] = "baBA";
    size_t i = 0;
    for (; from[i] && i + 1 < TD_LAYOUT_BYTES; i++) {
        const char *at = strchr(letters, from[i]);
        to[i] = at ? exchanged[at - letters] : from[i];
    }
    to[i] = '\0';
}

td_status td_dnnl_md_transposed(const td_type *t, bool any, dnnl_memory_desc_t *out)
{
    dnnl_dims_t dims = { t->dim[1], t->dim[0] };
    dnnl_data_type_t dtype;
    char layout[TD_LAYOUT_BYTES];
    *out = NULL;
    if (!td_dnnl_dtype(t->dtype, &dtype))
        return td_error(TD_ENOKERNEL, "oneDNN is not used for %s", td_dtype_name(t->dtype));
    exchange_letters(t->layout[0] ? t->layout : "ab", layout);
    const dnnl_format_tag_t tag = any ? dnnl_format_tag_any : tag_of(layout);
    if (tag == dnnl_format_tag_undef)
        return td_error(TD_ENOKERNEL, "oneDNN does not know layout '%s'", t->layout);
    DNNL_TRY(dnnl_memory_desc_create_with_tag(out, 2, dims, dtype, tag));
    return TD_OK;
}

/* --- the name of a descriptor's layout -------------------------------------------------------- */

typedef struct {
    int rank, n_blocks;
    dnnl_dims_t dims, strides, blocks, block_dims;
    dnnl_data_type_t dtype;
} md_info;

static bool info_of(const_dnnl_memory_desc_t md, md_info *f)
{
    const dnnl_dims_t *dims, *strides, *blocks, *block_dims;
    if (dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &f->rank) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &f->n_blocks) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_dims, &dims) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_strides, &strides) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_inner_blks, &blocks) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_inner_idxs, &block_dims) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_data_type, &f->dtype) != dnnl_success)
        return false;
    memcpy(f->dims, *dims, sizeof f->dims);
    memcpy(f->strides, *strides, sizeof f->strides);
    memcpy(f->blocks, *blocks, sizeof f->blocks);
    memcpy(f->block_dims, *block_dims, sizeof f->block_dims);
    return f->rank >= 1 && f->rank <= TD_RANK_MAX + 1;
}

static bool tag_matches(const md_info *f, dnnl_format_tag_t tag, const_dnnl_memory_desc_t md)
{
    dnnl_memory_desc_t other;
    if (dnnl_memory_desc_create_with_tag(&other, f->rank, f->dims, f->dtype, tag) != dnnl_success)
        return false;
    bool same = dnnl_memory_desc_equal(md, other) &&
                dnnl_memory_desc_get_size(md) == dnnl_memory_desc_get_size(other);
    dnnl_memory_desc_destroy(other);
    return same;
}

/* one element, or one block of them? */
static bool is_one(const md_info *f, int dim)
{
    dnnl_dim_t block = 1;
    for (int b = 0; b < f->n_blocks; b++)
        if (f->block_dims[b] == dim)
            block *= f->blocks[b];
    return f->dims[dim] <= block;
}

/*
 * Outer dimensions by decreasing stride, then the inner blocks.  Equal strides keep their order,
 * or, with ones_last, a dimension of one element or block follows all that it can follow: oneDNN
 * names the same filters of one channel, or of one block of groups, Abcde8a and decbA8a.
 */
static void compose(const md_info *f, bool ones_last, char *out, size_t room)
{
    int order[TD_RANK_MAX + 1];
    char letter;
    for (int i = 0; i < f->rank; i++) {
        int k = i;
        for (; k > 0; k--) {
            const int before = order[k - 1];
            const bool is_tie = f->strides[before] == f->strides[i] && is_one(f, before);
            if (f->strides[before] >= f->strides[i] && !(ones_last && is_tie))
                break;
            order[k] = before;
        }
        order[k] = i;
    }
    size_t n = 0;
    for (int i = 0; i < f->rank && n + 1 < room; i++) {
        letter = (char)('a' + order[i]);
        for (int b = 0; b < f->n_blocks; b++)
            if (f->block_dims[b] == order[i])
                letter = (char)('A' + order[i]);
        out[n++] = letter;
    }
    out[n] = '\0';
    for (int b = 0; b < f->n_blocks; b++) {
        n = strlen(out);
        snprintf(out + n, room - n, "%d%c", (int)f->blocks[b], (char)('a' + f->block_dims[b]));
    }
}

/* finds a name of the layout */
static bool name_layout(const md_info *f, const_dnnl_memory_desc_t md, char *out, size_t room)
{
    for (int ones_last = 0; ones_last < 2; ones_last++) {
        compose(f, ones_last, out, room);
        const dnnl_format_tag_t tag = tag_of(out);
        if (tag != dnnl_format_tag_undef && tag_matches(f, tag, md))
            return true;
    }
    return false;
}

bool td_dnnl_layout(const_dnnl_memory_desc_t md, int groups, char out[TD_LAYOUT_BYTES])
{
    md_info f;
    char text[64];
    if (!info_of(md, &f))
        return false;
    memset(out, 0, TD_LAYOUT_BYTES);
    if (tag_matches(&f, plain_tag(f.rank), md))
        return true;
    if (!name_layout(&f, md, text, sizeof text))
        return false;
    int n = groups > 1 ? snprintf(out, TD_LAYOUT_BYTES, "%dg%s", groups, text)
                       : snprintf(out, TD_LAYOUT_BYTES, "%s", text);
    return n > 0 && n < TD_LAYOUT_BYTES;
}

bool td_dnnl_layout_transposed(const_dnnl_memory_desc_t md, char out[TD_LAYOUT_BYTES])
{
    char layout[TD_LAYOUT_BYTES];
    if (!td_dnnl_layout(md, 1, layout))
        return false;
    memset(out, 0, TD_LAYOUT_BYTES);
    exchange_letters(layout[0] ? layout : "ab", out);
    if (strcmp(out, "ab") == 0)
        out[0] = '\0';
    return true;
}

/* --- primitives ------------------------------------------------------------------------------- */

td_status td_dnnl_attr(dnnl_primitive_attr_t *out)
{
    *out = NULL;
    DNNL_TRY(dnnl_primitive_attr_create(out));
    DNNL_TRY(dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user));
    return TD_OK;
}

td_status td_dnnl_check_primitive(dnnl_status_t ds, const dnnl_primitive_desc_t *pd)
{
    const char *impl = "";
    if (ds == dnnl_unimplemented)
        return td_error(TD_ENOKERNEL, "oneDNN has no implementation");
    DNNL_TRY(ds);
    DNNL_TRY(dnnl_primitive_desc_query(*pd, dnnl_query_impl_info_str, 0, (void *)&impl));
    if (strncmp(impl, "ref", 3) == 0 || strstr(impl, ":ref"))
        return td_error(TD_ENOKERNEL, "oneDNN has only its reference code");
    return TD_OK;
}

static td_status add_memory(td_dnnl_call *c, int arg, const_dnnl_memory_desc_t md, int from)
{
    dnnl_engine_t engine = NULL;
    TD_TRY(td_dnnl_engine(&engine, NULL));
    dnnl_memory_t memory;
    DNNL_TRY(dnnl_memory_create(&memory, md, engine, DNNL_MEMORY_NONE));
    c->args[c->n_args] = (dnnl_exec_arg_t){ arg, memory };
    c->from[c->n_args++] = from;
    return TD_OK;
}

static td_status fill(td_dnnl_call *c, dnnl_primitive_desc_t pd, const td_node *n, int n_binds,
                      const td_dnnl_bind *binds, td_prepared *out)
{
    const char *impl = "";
    for (int i = 0; i < n_binds; i++) {
        const_dnnl_memory_desc_t md =
            dnnl_primitive_desc_query_md(pd, binds[i].what, binds[i].query_index);
        TD_TRY(add_memory(c, binds[i].arg, md, binds[i].from));
    }
    const_dnnl_memory_desc_t scratch =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    out->scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    if (out->scratch_bytes)
        TD_TRY(add_memory(c, DNNL_ARG_SCRATCHPAD, scratch, n->n_in + n->n_out));
    DNNL_TRY(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&impl));
    snprintf(out->impl, sizeof out->impl, "%s", impl);
    return TD_OK;
}

td_status td_dnnl_prepare(dnnl_primitive_desc_t pd, const td_node *n, int n_binds,
                          const td_dnnl_bind *binds, td_prepared *out)
{
    dnnl_status_t created = dnnl_success;
    td_dnnl_call *c = TD_NEW(td_dnnl_call);
    td_status st = c ? TD_OK : TD_ENOMEM;
    out->state = c;
    if (c) {
        created = dnnl_primitive_create(&c->primitive, pd);
        if (created != dnnl_success)
            st = td_dnnl_failed(created, "dnnl_primitive_create");
    }
    if (st == TD_OK)
        st = fill(c, pd, n, n_binds, binds, out);
    if (st != TD_OK)
        td_dnnl_release(out);
    /* oneDNN 3.2 frees parts of a description whose primitive it has no memory for */
    if (created != dnnl_out_of_memory)
        dnnl_primitive_desc_destroy(pd);
    return st;
}

td_status td_dnnl_add_arg(td_prepared *p, int arg, const td_type *t, int from, void *constant)
{
    td_dnnl_call *c = p->state;
    dnnl_memory_desc_t md;
    TD_CHECK(c->n_args < TD_DNNL_ARGS_MAX);
    TD_TRY(td_dnnl_md(t, 1, false, &md));
    td_status st = add_memory(c, arg, md, constant ? -1 : from);
    dnnl_memory_desc_destroy(md);
    TD_TRY(st);
    if (constant)
        DNNL_TRY(dnnl_memory_set_data_handle(c->args[c->n_args - 1].memory, constant));
    return TD_OK;
}

td_status td_dnnl_run(const td_prepared *p, void *const *args)
{
    const td_dnnl_call *c = p->state;
    for (int i = 0; i < c->n_args; i++)
        if (c->from[i] >= 0)
            DNNL_TRY(dnnl_memory_set_data_handle(c->args[i].memory, args[c->from[i]]));
    DNNL_TRY(dnnl_primitive_execute(c->primitive, cpu.stream, c->n_args, c->args));
    return TD_OK;
}

void td_dnnl_release(td_prepared *p)
{
    td_dnnl_call *c = p->state;
    if (!c)
        return;
    for (int i = 0; i < c->n_args; i++)
        dnnl_memory_destroy(c->args[i].memory);
    dnnl_primitive_destroy(c->primitive);
    td_free(c);
    p->state = NULL;
}
