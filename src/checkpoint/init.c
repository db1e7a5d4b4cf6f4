/*
 * init.c -- tandem init: writes initial weights of an architecture
 */
#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_file.h"
#include "io/atomic.h"
#include "optim/training_graph.h"
#include "pass/amp.h"
#include "tandem/amp.h"
#include "tandem/convert.h"
#include "tandem/graph.h"
#include "tandem/model.h"
#include "tandem/program.h"

td_status td_init_weights(const td_model_opts *model, uint64_t seed, const char *out_path,
                          bool overwrite)
{
    td_status st = TD_OK;
    td_model_opts m = *model;
    td_device *dev = NULL;
    td_graph *g = NULL;
    td_program *p = NULL;
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 };
    TD_TRY(td_weight_file_name_check("--output", out_path));
    TD_TRY(td_model_resolve(&m));
    TD_TRY(td_model_check_resize(&m));
    TD_TRY(td_output_check_new(out_path, overwrite));
    if (!m.num_classes)
        m.num_classes = td_model_default_classes(&m, 1000);
    td_weight_metadata metadata = { .model = &m, .num_classes = m.num_classes };
    TD_OUT(td_device_open("ref", &dev)); /* stores parameters in plain layout */
    TD_OUT(td_inference_graph(&m, 1, NULL, &g));
    TD_OUT(
        td_compile(g, dev, &(td_compile_opts){ .amp = &float32, .skip = "fold,fuse,layout" }, &p));
    TD_OUT(td_program_init(p, seed));
    TD_OUT(td_weight_file_save(out_path, p, 0, 0, &metadata));
out:
    td_program_free(p);
    td_graph_free(g);
    td_device_close(dev);
    return st;
}
