/* SPDX-License-Identifier: Apache-2.0 */
/* The date as text: the one form that receipts, logs, lists and the audit share. Fractions are cut, never rounded. */
#include "base/clock.h"

#include "base/str.h"

void clock_text(int64_t real_ns, unsigned digits, char out[CLOCK_TEXT])
{
    const int64_t second = (int64_t)NS_PER_SEC;
    int64_t rest = real_ns % second;
    time_t seconds = (time_t)(real_ns / second - (rest < 0)); /* before 1970 */
    char fraction[16] = "";
    struct tm tm;

    if (digits > 0)
        snprintf(fraction, sizeof fraction, ".%09u", (unsigned)(rest < 0 ? rest + second : rest));
    fraction[digits > 0 ? digits + 1 : 0] = '\0';
    if (!gmtime_r(&seconds, &tm) ||
        str_format(out, CLOCK_TEXT, "%04d-%02d-%02dT%02d:%02d:%02d%sZ", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
                   tm.tm_hour, tm.tm_min, tm.tm_sec, fraction) < 0)
        out[0] = '\0';
}
