/*
 * init.c -- fresh weights of an architecture; checkpoints reduced to weights
 */
#include <string.h>

#include "base/text.h"
#include "io/safetensors.h"
#include "pass/amp.h"
#include "tandem/train.h"
#include "train/checkpoint.h"
#include "train/network.h"

td_status td_init_weights(const td_model_opts *model, uint64_t seed, const char *out_path)
{
    td_status st = TD_OK;
    td_model_opts m = *model;
    td_device *dev = NULL;
    td_graph *g = NULL;
    td_program *p = NULL;
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 };
    TD_TRY(td_model_resolve(&m));
    if (!m.num_classes)
        m.num_classes = 1000;
    td_weight_facts facts = { .model = &m, .num_classes = m.num_classes };
    TD_OUT(td_device_open("ref", &dev)); /* parameters in plain order, nothing to reorder */
    TD_OUT(td_judging_graph(&m, 1, 0, false, &g));
    TD_OUT(
        td_compile(g, dev, &(td_compile_opts){ .amp = &float32, .skip = "fold,fuse,layout" }, &p));
    TD_OUT(td_program_init(p, seed));
    TD_OUT(td_weight_file_save(out_path, p, false, 0, &facts));
out:
    td_program_free(p);
    td_graph_free(g);
    td_device_close(dev);
    return st;
}

/* everything but velocities and the run's own state */
static td_status copy_weights(const td_tensors *in, td_tensors *out)
{
    for (size_t i = 0; i < td_tensors_count(in); i++) {
        const td_tensor *t = td_tensors_at(in, i);
        if (!td_text_starts(t->name, TD_MOMENTUM_PREFIX))
            TD_TRY(td_tensors_add(out, t->name, t->dtype, t->rank, t->dim, t->data));
    }
    for (size_t i = 0; i < td_tensors_meta_count(in); i++) {
        const char *key = td_tensors_meta_key(in, i);
        const char *value = td_tensors_meta(in, key);
        if (strcmp(key, "tandem.kind") == 0)
            value = "weights";
        if (!td_text_starts(key, "digest") && strcmp(key, "tandem.state") != 0 &&
            strcmp(key, "tandem.config") != 0)
            TD_TRY(td_tensors_set_meta(out, key, value));
    }
    return TD_OK;
}

td_status td_convert(const char *in_path, const char *out_path)
{
    td_status st = TD_OK;
    td_tensors *in = NULL, *out = NULL;
    if (!td_text_ends(in_path, ".safetensors") || !td_text_ends(out_path, ".safetensors"))
        return td_error(TD_EUNSUPPORTED,
                        "convert reads and writes .safetensors so far, found '%s' and '%s'",
                        in_path, out_path);
    TD_OUT(td_tensors_read(in_path, &in));
    TD_OUT(td_tensors_new(&out));
    TD_OUT(copy_weights(in, out));
    TD_OUT(td_tensors_write(out, out_path));
out:
    td_tensors_free(in);
    td_tensors_free(out);
    return st;
}
