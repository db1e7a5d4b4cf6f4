/*
 * fuzz_report.c -- any bytes as a report: an error in words, or runs that every page can show
 */
#include <string.h>

#include "report/run_log.h"
#include "report/run_page.h"
#include "report/run_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    td_run_log runs[2];
    td_text out = { 0 };
    td_error_clear();
    const td_status st = td_run_log_parse((const char *)data, n_bytes, "input", &runs[0]);
    if (st != TD_OK) {
        TD_CHECK(*td_error_message());
        td_run_log_release(&runs[0]);
        return 0;
    }
    TD_CHECK(td_run_log_parse((const char *)data, n_bytes, "input", &runs[1]) == TD_OK);
    for (int n = 1; n <= 2; n++)
        TD_CHECK(td_run_page(runs, n, "a page", "tests/data", &out) == TD_OK);
    TD_CHECK(!strstr(td_text_get(&out), "<script") && !strstr(td_text_get(&out), "=\"nan"));
    for (int form = TD_RUN_TEXT; form <= TD_RUN_CSV; form++)
        TD_CHECK(td_run_table(runs, 2, (td_run_table_form)form, &out) == TD_OK);
    td_text_release(&out);
    td_run_log_release(&runs[0]);
    td_run_log_release(&runs[1]);
    return 0;
}
