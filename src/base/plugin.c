/*
 * plugin.c -- finds and loads plug-ins
 */
#include "base/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef TD_PRIVATE_DIR
#define TD_PRIVATE_DIR "../lib/tandem" /* from the program to where it is installed */
#endif

static void *load(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

void *td_plugin_open(const char *file, const char *name, char path[TD_PLUGIN_PATH_BYTES])
{
    static const char *const places[] = { "%.*s/%s", "%.*s/" TD_PRIVATE_DIR "/%s",
                                          "%.*s/../lib/tandem/%s" };
    char exe[TD_PLUGIN_PATH_BYTES - 100];
    const ssize_t n = file ? 0 : readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(exe, '/');
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        snprintf(path, TD_PLUGIN_PATH_BYTES, places[i], (int)(slash - exe), exe, name);
        if (access(path, R_OK) == 0)
            return load(path);
    }
    snprintf(path, TD_PLUGIN_PATH_BYTES, "%s", file ? file : name);
    return load(path);
}

void td_plugin_close(void *library)
{
    (void)dlclose(library);
}

void *td_plugin_symbol(void *library, const char *symbol)
{
    return dlsym(library, symbol);
}

const char *td_plugin_error(void)
{
    return dlerror();
}
