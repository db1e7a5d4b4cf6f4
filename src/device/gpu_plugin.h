/*
 * device/gpu_plugin.h -- the interface of a GPU plug-in, and loading it
 *
 * The plug-in is a library that knows nothing of graphs: memory, and functions that start kernels
 * on plain structs (gpu_kernels.h).  libtandem_cuda.so is that of NVIDIA GPUs.  It is loaded when
 * a program asks for the device, so the command needs neither a driver nor CUDA.
 *
 * Everything runs in the order of the calls, on one queue, but what send_ahead copies, on another;
 * copy_in and copy_out wait for it.
 */
#ifndef TD_DEVICE_GPU_PLUGIN_H
#define TD_DEVICE_GPU_PLUGIN_H

#include "device/gpu_kernels.h"

/* the number of functions is a part of it: a plug-in of another build is refused, not called */
#define TD_GPU_PLUGIN_VERSION (1105 + (int)(sizeof(td_gpu_plugin) / sizeof(void *)))
#define TD_GPU_PLUGIN_SYMBOL  "td_gpu_plugin_v1"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    char name[256];   /* "NVIDIA H200" */
    char uuid[16];    /* no two GPUs have the same */
    int major, minor; /* compute capability */
    size_t bytes;     /* of memory */
} td_gpu_info;

enum {
    TD_GPU_SURVEYED = 16,
    TD_GPU_AHEAD = 2,                  /* slots of send_ahead */
    TD_GPU_PROPERTIES_BYTES = 1 << 14, /* of a GPU's properties as JSON, at most */
};

/* What is installed, usable or not. */
typedef struct {
    int driver_cuda, runtime_cuda; /* 13000: CUDA 13.0; the driver's is 0 if there is none */
    char why_not[512];             /* why GPU 0 cannot be used, or "" */
    int n_gpus;
    td_gpu_info gpus[TD_GPU_SURVEYED];
    char cudnn[512], cublaslt[512], nccl[512]; /* "9.28.1", or why it cannot be used */
} td_gpu_survey;

/** Calls return NULL, or an error message that is valid until the next call. */
typedef struct {
    int version;
    /** May be called before `open`, and opens nothing. */
    void (*survey)(td_gpu_survey *out);
    /**
     * Use GPU `index` of those that are visible, or the only one; before any other call.  `index`
     * is the rank's among those of its machine: a launcher may let each rank see its own GPU only.
     */
    const char *(*open)(int index, td_gpu_info *out);
    /** Instead of open: plan for the GPU with these properties (JSON, cuDNN's form), which need not
        be here; only functions that plan and free plans may be called. */
    const char *(*describe)(const char *json);
    /** The properties of the GPU that is open, as `describe` on another machine wants them. */
    const char *(*properties)(char *json, size_t room);
    const char *(*memory)(size_t *n_free, size_t *n_total);
    const char *(*alloc)(size_t n, void **out); /* zeros, aligned to 256 bytes */
    void (*free)(void *p);
    const char *(*copy_in)(void *to, const void *from_host, size_t n);
    const char *(*copy_out)(void *to_host, const void *from, size_t n);
    const char *(*fill)(void *p, int byte, size_t n);
    const char *(*sync)(void); /* wait until everything has finished, but for send_ahead */
    /* as the functions of td_device_memory with these names (device_memory.h) */
    const char *(*host_alloc)(size_t n, void **out);
    void (*host_free)(void *p);
    const char *(*queue_in)(void *to, const void *host, size_t n);
    const char *(*queue_out)(void *host, const void *from, size_t n);
    const char *(*wait_ahead)(int slot);
    const char *(*send_ahead)(int slot, void *to, const void *host, size_t n);
    const char *(*take_ahead)(int slot, void *to, const void *from, size_t n);
    const char *(*begin_capture)(void);
    const char *(*end_capture)(void **graph); /* NULL: after a failure, no graph is wanted */
    const char *(*run_captured)(void *graph);
    void (*free_captured)(void *graph);
#define TD_GPU_MEMBER(name) const char *(*name)(const td_gpu_##name *a);
    TD_GPU_KERNELS(TD_GPU_MEMBER)
#undef TD_GPU_MEMBER
} td_gpu_plugin;

/**
 * The plug-in, loaded and opened by the first call on the GPU of this rank: that with its index
 * among the ranks of its machine; 0 for one rank.  It is TANDEM_GPU_PLUGIN, else
 * libtandem_cuda.so in the program's folder, in the installed one or in the system's path.
 * TD_ENOTFOUND: it cannot be loaded, there is no driver, or no GPU.
 */
TD_CHECKED td_status td_gpu_open(const td_gpu_plugin **out);

/** Free memory of the GPU that is open, in bytes. */
TD_CHECKED td_status td_gpu_free_bytes(int64_t *out);

/** Count memory of the GPU that the plug-in has allocated (`bytes` > 0) or freed by itself. */
void td_gpu_memory_count(int64_t bytes);

/** Memory of the GPU that is open, in bytes. */
typedef struct {
    int64_t now,
        peak;      /* allocated by td_gpu_memory or counted, and the most at once in this process */
    int64_t other; /* used, but not so: CUDA's context and libraries, and other processes */
    int64_t total;
} td_gpu_memory_use;

TD_CHECKED td_status td_gpu_memory_used(td_gpu_memory_use *out);

/**
 * What is installed, without opening a GPU; `path`: the plug-in's file, TD_PLUGIN_PATH_BYTES.
 * TD_ENOTFOUND: the plug-in cannot be loaded, or is of another version.
 */
TD_CHECKED td_status td_gpu_look(td_gpu_survey *out, char *path);

/**
 * From now on td_gpu() plans for a GPU that is not here and runs nothing: with `json` the plug-in
 * asks cuDNN (TD_ENOTFOUND: one of them cannot be loaded, or refuses the properties), NULL: no
 * plug-in is loaded, and plans are empty.  TD_EUSAGE: a GPU has been opened.
 */
TD_CHECKED td_status td_gpu_describe(const char *json);

/** Writes the properties of the GPU that is open to json[room], as td_gpu_describe wants them. */
TD_CHECKED td_status td_gpu_properties(char *json, size_t room);

/** The GPU that td_gpu_open has opened. */
const td_gpu_info *td_gpu_opened(void);

/** The plug-in that td_gpu_open or td_gpu_describe has set. */
const td_gpu_plugin *td_gpu(void);

/** A message of the plug-in as a status: TD_OK for NULL, else TD_EDEVICE. */
TD_CHECKED td_status td_gpu_status(const char *message);

#ifdef __cplusplus
}
#endif
#endif
