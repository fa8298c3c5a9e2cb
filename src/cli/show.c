/* SPDX-License-Identifier: Apache-2.0 */
/* show.c: writes numbers and times for people. An unknown value is "-". */
#include <stdio.h>
#include <time.h>

#include "cli/service.h"

const char *show_bytes(char out[SHOW_SIZE], int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (unit + 1 < ARRAY_SIZE(units) && value >= 1000) {
        value /= 1024;
        unit++;
    }
    if (bytes < 0)
        snprintf(out, SHOW_SIZE, "-");
    else
        snprintf(out, SHOW_SIZE, unit == 0 || value >= 99.95 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return out;
}

const char *show_duration(char out[SHOW_SIZE], int64_t ms)
{
    long long seconds = (long long)(ms / 1000);

    if (ms < 10000)
        snprintf(out, SHOW_SIZE, "%lld.%llds", seconds, (long long)(ms % 1000 / 100));
    else if (seconds < 120)
        snprintf(out, SHOW_SIZE, "%llds", seconds);
    else if (seconds < 120 * 60)
        snprintf(out, SHOW_SIZE, "%lldm", seconds / 60);
    else if (seconds < 48 * 3600)
        snprintf(out, SHOW_SIZE, "%lldh", seconds / 3600);
    else
        snprintf(out, SHOW_SIZE, "%lldd", seconds / 86400);
    return out;
}

static bool read_time(const char *text, int64_t *ret_s)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);

    if (!end)
        return false;
    *ret_s = (int64_t)timegm(&tm);
    return true;
}

static const char *show_seconds(char out[SHOW_SIZE], int64_t seconds)
{
    if (seconds < 120)
        snprintf(out, SHOW_SIZE, "%llds", (long long)seconds);
    else
        show_duration(out, seconds * 1000);
    return out;
}

const char *show_age(char out[SHOW_SIZE], const char *rfc3339)
{
    int64_t then, age;

    snprintf(out, SHOW_SIZE, "-");
    if (!read_time(rfc3339, &then))
        return out;
    age = (int64_t)time(NULL) - then;
    return show_seconds(out, age > 0 ? age : 0);
}

const char *show_until(char out[SHOW_SIZE], const char *rfc3339)
{
    int64_t then, left;

    snprintf(out, SHOW_SIZE, "-");
    if (!read_time(rfc3339, &then))
        return out;
    left = then - (int64_t)time(NULL);
    if (left < 0)
        snprintf(out, SHOW_SIZE, "past");
    else
        show_seconds(out, left);
    return out;
}

const char *show_time(char out[SHOW_SIZE], const char *rfc3339)
{
    int64_t then;
    struct tm tm;

    snprintf(out, SHOW_SIZE, "-");
    if (!read_time(rfc3339, &then))
        return out;
    time_t seconds = (time_t)then;
    if (gmtime_r(&seconds, &tm))
        strftime(out, SHOW_SIZE, "%Y-%m-%d %H:%M", &tm);
    return out;
}
