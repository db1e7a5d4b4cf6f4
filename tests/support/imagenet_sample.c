/* imagenet_sample.c -- see imagenet_sample.h */
#include "support/imagenet_sample.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/paths.h"
#include "support/scratch.h"

int td_test_sample_open(td_dataset **out)
{
    const char *shared = getenv("TANDEM_SHARED");
    char tar[4096], command[16384];
    (void)snprintf(tar, sizeof tar, "%s/data/imagenet-sample.tar", shared ? shared : "../shared");
    if (!td_path_exists(tar)) {
        (void)fprintf(stderr, "skipped: '%s' is absent\n", tar);
        return TD_TEST_SKIPPED;
    }
    (void)snprintf(command, sizeof command, "tar -xf '%s' -C '%s'", tar, td_scratch_folder());
    if (system(command) != 0)
        return 1;
    td_dataset_opts o = { .path = td_scratch_path("imagenet-sample"), .split = "val" };
    if (td_dataset_open(&o, out) != TD_OK) {
        (void)fprintf(stderr, "%s\n", td_error_message());
        return 1;
    }
    return 0;
}
