/*
 * fingerprint.c -- describes a run as text, for comparison between ranks
 */
#include "comm/fingerprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "io/digest.h"
#include "tandem/status.h"

/* options that may differ from rank to rank */
static const char *const own_options[] = {
    "threads",        "workers",      "prefetch",     "log",         "data",
    "workspace",      "tune_cache",   "gpu_affinity", "resume",      "pretrained_weights",
    "final_weights",  "train_logits", "raport_file",  "tensorboard", "csv",
    "csv_iterations", "trace",        "amp_stats",    "dump_dir",    "weights",
    "confusion",      "detections",
};

/* adds `config` without these, as `"name": value, ` */
static void add_options(const char *config, td_text *out)
{
    for (const char *p = config; *p;) {
        size_t n = 0;
        bool is_text = false;
        while (p[n] && (is_text || strncmp(p + n, ", \"", 3) != 0)) {
            is_text ^= p[n] == '"' && (n == 0 || p[n - 1] != '\\');
            n++;
        }
        bool is_own = false;
        for (size_t i = 0; i < sizeof own_options / sizeof *own_options; i++) {
            const char *name = strchr(p, '"');
            const size_t k = strlen(own_options[i]);
            is_own =
                is_own || (name && strncmp(name + 1, own_options[i], k) == 0 && name[1 + k] == '"');
        }
        if (!is_own)
            td_text_add(out, "%.*s\n", (int)n, p);
        p += n;
        p += *p ? 2 : 0;
    }
}

td_status td_describe_file(const char *what, const char *path, td_text *out)
{
    enum { PART = 1 << 16 };
    td_digest d;
    FILE *f = path ? fopen(path, "rb") : NULL;
    char *part = f ? td_alloc(PART, 1) : NULL;
    if (f && !part) {
        fclose(f);
        return TD_ENOMEM;
    }
    if (f) {
        td_digest_init(&d);
        for (size_t n; (n = fread(part, 1, PART, f)) > 0;)
            td_digest_add(&d, part, n);
        fclose(f);
        td_text_add(out, "%s: %016" PRIx64 "\n", what, td_digest_value(&d));
    }
    td_free(part);
    return TD_OK;
}

td_status td_describe_run(const char *config, td_text *out)
{
    td_text_add(out, "tandem: version %s\n", td_version());
    TD_TRY(td_describe_file("the program file", "/proc/self/exe", out));
    add_options(config, out);
    return td_text_status(out);
}
