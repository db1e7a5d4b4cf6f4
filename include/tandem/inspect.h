/*
 * tandem/inspect.h -- print networks, graphs, kernel choices, memory plans, files and the machine's
 * capabilities
 */
#ifndef TD_INSPECT_H
#define TD_INSPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/amp.h"
#include "tandem/device.h"
#include "tandem/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    td_model_opts model;
    td_amp_opts amp;
    int batch_size;
    bool training;
    int64_t memory_limit; /* bytes for the program; 0: none */
    td_device_opts device;
    const char *svg;      /* amp-stats, memory: also write a chart to this file */
    const char *describe; /* kernels: file of the GPU's properties (JSON); NULL: none */
    const char *weights;  /* file whose network is used; NULL: the network set by the options */
    bool json;
    const char *log;
} td_inspect_opts;

TD_API const struct td_field *td_inspect_fields(void);
TD_API void td_inspect_defaults(td_inspect_opts *opts);

/**
 * THING: model graph amp amp-stats kernels memory checkpoint quantization dataset ops backends;
 * path: a file.
 * TD_EUSAGE: `thing` is NULL or unknown; the message lists the valid names.
 */
TD_API TD_CHECKED td_status td_inspect(const char *thing, const td_inspect_opts *opts,
                                       const char *path, char **text);

/** The capabilities of this machine, as text or JSON (td_text_free). */
TD_API TD_CHECKED td_status td_doctor(bool json, char **text);

#ifdef __cplusplus
}
#endif
#endif
