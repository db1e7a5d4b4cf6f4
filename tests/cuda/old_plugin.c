/*
 * old_plugin.c -- a GPU plug-in of another version: nothing but the version may be read
 */
extern const struct {
    int version;
} td_gpu_plugin_v1;

const __typeof__(td_gpu_plugin_v1) td_gpu_plugin_v1 = { 1 };
