/*
 * fuzz_onnx.c -- any bytes: an error in words, or a model that can be walked, and made a graph of
 *
 * What parses is one graph by td_onnx_check, and every byte of its tensors is there.  Then it goes
 * the way of a file that is verified: a graph of our own, or an error in words.
 */
#include <string.h>

#include "onnx/onnx_export.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static volatile unsigned sum; /* what was read is wanted */

static void walk(const td_onnx *m)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        for (size_t k = 0; k < m->tensors[i].n_bytes; k++)
            sum = sum + ((const unsigned char *)m->tensors[i].data)[k];
    for (size_t i = 0; i < m->n_nodes; i++) {
        const td_onnx_node *n = &m->nodes[i];
        for (int k = 0; k < n->n_in; k++)
            sum = sum + (unsigned)strlen(n->in[k]);
        for (int k = 0; k < n->n_out; k++)
            TD_CHECK(*n->out[k]);
        for (int k = 0; k < n->n_attr; k++)
            TD_CHECK(td_onnx_attr_find(n, n->attr[k].name) == &n->attr[k]);
    }
}

/* a graph that its text repeats, or an error */
static void import(const td_onnx *m, const td_onnx_import_opts *o)
{
    td_onnx_graph g;
    char *text;
    td_error_clear();
    if (td_graph_of_onnx(m, "input", o, &g) == TD_OK) {
        TD_CHECK(td_graph_verify(g.graph) == TD_OK);
        TD_CHECK(td_graph_print(g.graph, &text) == TD_OK);
        td_graph *again = NULL;
        const td_status st = td_graph_parse(text, "text", &again);
        TD_CHECK(st == TD_OK || st == TD_ELIMIT);
        td_graph_free(again);
        td_text_free(text);
    } else {
        TD_CHECK(!g.graph && *td_error_message());
    }
    td_onnx_graph_release(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    td_onnx *m;
    td_error_clear();
    if (td_onnx_parse(data, n_bytes, "input", &m) != TD_OK) {
        TD_CHECK(!m && *td_error_message());
        return 0;
    }
    TD_CHECK(td_onnx_check(m, "input") == TD_OK);
    walk(m);
    td_error_clear();
    import(m, &(td_onnx_import_opts){
                  .batch = 2, .height = 24, .width = 32, .is_after = td_onnx_eval_knows });
    import(m, &(td_onnx_import_opts){ .batch = 1, .is_model = true, .height = 64 });
    const td_onnx_node *end = m->n_nodes ? &m->nodes[m->n_nodes - 1] : NULL;
    const char *last = end && end->n_out ? end->out[0] : "none";
    td_error_clear();
    import(m, &(td_onnx_import_opts){ .batch = 1, .is_model = true, .output = last });
    td_onnx_free(m);
    return 0;
}
