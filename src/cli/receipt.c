/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receipt.c: reads receipts that came from a daemon. For the exit status and the last line they become the struct that
 * a run in this process has, so that the same code handles both. For -o json and --receipt the output, which was passed
 * on here, is put into the receipt.
 */
#include <string.h>

#include "base/str.h"
#include "cli/attach.h"

#define STATUS_HEAD " (status "

static uint64_t thousandths(const struct json_value *object, const char *key)
{
    const struct json_value *value = json_get(object, key);
    return value && value->type == JSON_NUMBER && value->number > 0 && value->number < 1e15
               ? (uint64_t)(value->number * 1000 + 0.5)
               : 0;
}

static uint64_t number(const struct json_value *object, const char *key)
{
    int64_t value = get_i64(object, key, 0);
    return value > 0 ? (uint64_t)value : 0;
}

static enum brig_cause cause_of(const char *name)
{
    for (int i = 0; i < BRIG_CAUSE_MAX; i++)
        if (str_eq(brig_cause_name((enum brig_cause)i), name))
            return (enum brig_cause)i;
    return BRIG_CAUSE_HOST_ERROR;
}

void receipt_read(const struct json_value *json, struct brig_receipt *ret)
{
    const struct json_value *outcome = json_get(json, "outcome"), *limits = json_get(json, "limits");
    const struct json_value *truncated = json_get(json, "truncated");

    *ret = (struct brig_receipt){.size = sizeof(*ret), .cause = cause_of(get_text(outcome, "cause", "host-error"))};
    ret->exit_code = (int)get_i64(outcome, "exit_code", 0);
    ret->signal = (int)get_i64(outcome, "signal", 0);
    str_cut(ret->detail, sizeof(ret->detail), get_text(outcome, "detail", ""));
    /*
     * A program that could not be executed has a detail and the shell's status; a program that exits with that status
     * has no detail.
     */
    bool has_end = get_i64(outcome, "exit_code", -1) >= 0 || ret->signal != 0;
    bool no_exec =
        ret->cause == BRIG_CAUSE_EXITED && ret->detail[0] != '\0' && (ret->exit_code == 126 || ret->exit_code == 127);
    ret->started = has_end && !no_exec;
    ret->limits.memory = number(limits, "memory");
    ret->limits.disk = number(limits, "disk");
    ret->limits.pids = number(limits, "pids");
    ret->limits.output = number(limits, "output");
    ret->limits.cpu_time = thousandths(limits, "cpu_time");
    ret->limits.timeout = thousandths(limits, "timeout");
    ret->usage.wall_ms = number(json_get(json, "usage"), "wall_ms");
    ret->truncated[BRIG_STDOUT] = json_get_bool(truncated, "stdout");
    ret->truncated[BRIG_STDERR] = json_get_bool(truncated, "stderr");
}

int status_in_message(char *message, int otherwise)
{
    char *at = strstr(message, STATUS_HEAD);
    int status = 0;

    if (!at)
        return otherwise;
    for (const char *p = at + strlen(STATUS_HEAD); *p >= '0' && *p <= '9' && status < 256; p++)
        status = status * 10 + (*p - '0');
    if (status != 126 && status != 127)
        return otherwise;
    *at = '\0';
    return status;
}

/* ---- with the output ------------------------------------------------------------------------------ */

static bool is_ours(const char *key)
{
    static const char *const keys[] = {"stdout", "stderr", "stdout_encoding", "stderr_encoding", "truncated", "output"};

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (str_eq(keys[i], key))
            return true;
    return false;
}

static int put_output(const struct attach *attach, const struct json_value *truncated, struct buf *out)
{
    static const char *const names[] = {NULL, "stdout", "stderr"};
    int r = 0;

    for (unsigned i = 1; r == 0 && i <= 2; i++) {
        const struct buf *kept = &attach->kept[i];
        bool text = json_is_text(kept->data, kept->len);
        struct json json = JSON_INIT(out);
        r = buf_printf(out, ",\"%s\":", names[i]);
        if (text)
            json_string_n(&json, kept->data ? kept->data : "", kept->len);
        else
            json_base64(&json, kept->data, kept->len);
        if (r == 0)
            r = json_finish(&json);
        if (r == 0)
            r = buf_printf(out, ",\"%s_encoding\":\"%s\"", names[i], text ? "utf-8" : "base64");
    }
    bool cut[3];
    for (unsigned i = 1; i <= 2; i++)
        cut[i] = attach->truncated[i] || json_get_bool(truncated, names[i]);
    return r < 0 ? r
                 : buf_printf(out, ",\"truncated\":{\"stdout\":%s,\"stderr\":%s}", cut[1] ? "true" : "false",
                              cut[2] ? "true" : "false");
}

/* limits, with the output limit that was applied here. */
static int put_limits(const struct json_value *limits, uint64_t output_limit, struct buf *out)
{
    int r = json_print_line(limits, out);

    if (r < 0 || output_limit == 0 || limits->type != JSON_OBJECT || json_get(limits, "output"))
        return r;
    out->len--; /* the brace */
    return buf_printf(out, "%s\"output\":%llu}", limits->count > 0 ? "," : "", (unsigned long long)output_limit);
}

static int put_outcome(const struct attach *attach, const struct json_value *outcome, struct buf *out)
{
    bool cut = attach->truncated[1] || attach->truncated[2];
    const struct json_value *hit = json_get(outcome, "limits_hit");

    for (const struct json_value *item = hit ? hit->first : NULL; item; item = item->next)
        cut = cut && !(item->type == JSON_STRING && str_eq(item->string, "output"));
    int r = buf_append(out, "{", 1);
    for (const struct json_value *member = outcome->first; r == 0 && member; member = member->next) {
        r = buf_printf(out, "%s\"%s\":", member == outcome->first ? "" : ",", member->key);
        if (r == 0)
            r = json_print_line(member, out);
        if (r == 0 && member == hit && cut) {
            out->len--; /* the bracket */
            r = buf_append_str(out, hit->count > 0 ? ",\"output\"]" : "\"output\"]");
        }
    }
    return r < 0 ? r : buf_append(out, "}", 1);
}

int receipt_with_output(const struct attach *attach, uint64_t output_limit, struct buf *out)
{
    const struct json_value *receipt = attach->receipt;
    int r = buf_append(out, "{", 1);

    for (const struct json_value *member = receipt->first; r == 0 && member; member = member->next) {
        if (is_ours(member->key))
            continue;
        r = buf_printf(out, "%s\"%s\":", member == receipt->first ? "" : ",", member->key);
        if (r < 0)
            break;
        if (str_eq(member->key, "limits"))
            r = put_limits(member, output_limit, out);
        else if (str_eq(member->key, "outcome") && member->type == JSON_OBJECT)
            r = put_outcome(attach, member, out);
        else
            r = json_print_line(member, out);
        if (r == 0 && str_eq(member->key, "outcome"))
            r = put_output(attach, json_get(receipt, "truncated"), out);
    }
    return r < 0 ? r : buf_append(out, "}\n", 2);
}
