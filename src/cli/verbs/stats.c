/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.c: `brig stats`: shows what sandboxes use now; with --watch again and again, and then CPU as a share since the
 * last look.
 */
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/service.h"

#define BOXES_MAX 4096u
#define CLEAR "\033[H\033[2J"

struct stats_options {
    bool json, watch;
};

static const struct flag stats_flags[] = {
    {"watch", NULL, "again every two seconds; CPU is then a percentage of one", flag_set_true,
     offsetof(struct stats_options, watch), 0},
    FLAG_TABLE(offsetof(struct stats_options, json)),
};

static const struct flag_table stats_table = {
    .usage = "brig stats [--watch] [-o FORMAT] [SANDBOX...]",
    .purpose = "Shows what the sandboxes use (default: all that run or are paused). CPU is the time used so far.\n\n"
               "  brig stats --watch build",
    FLAGS(stats_flags),
};

struct box {
    char id[80], name[80];
    int64_t cpu_ms;
    uint64_t at_ns;
    bool gone;
};

struct boxes {
    struct box *items;
    size_t n;
};

static bool add_box(struct boxes *boxes, const char *id, const char *name)
{
    struct box *items = boxes->n < BOXES_MAX ? reallocarray(boxes->items, boxes->n + 1, sizeof(*items)) : NULL;

    if (!items)
        return false;
    boxes->items = items;
    items[boxes->n] = (struct box){.cpu_ms = -1};
    if (str_copy(items[boxes->n].id, sizeof(items->id), id) < 0)
        return false;
    str_cut(items[boxes->n].name, sizeof(items->name), name);
    boxes->n++;
    return true;
}

static bool find_all(struct client *client, struct boxes *boxes)
{
    AUTO_JSON struct json_doc *doc = NULL;

    if (!service_call(client, "GET", NULL, &doc, "/v1/sandboxes?limit=1000"))
        return false;
    const struct json_value *list = json_get(json_root(doc), "sandboxes");
    for (const struct json_value *box = list ? list->first : NULL; box; box = box->next) {
        const char *state = get_text(box, "state", "");
        if ((str_eq(state, "running") || str_eq(state, "paused")) &&
            !add_box(boxes, get_text(box, "id", "-"), get_text(box, "name", "-")))
            return false;
    }
    return true;
}

/* By id or name; its id and name are what the table shows. */
static bool find_one(struct client *client, struct boxes *boxes, const char *word)
{
    AUTO_JSON struct json_doc *doc = NULL;

    if (!service_call(client, "GET", NULL, &doc, "/v1/sandboxes/%s", word))
        return false;
    return add_box(boxes, get_text(json_root(doc), "id", word), get_text(json_root(doc), "name", "-"));
}

static void put_of(struct table *table, const struct json_value *root, const char *used_key, const char *limit_key)
{
    char used[SHOW_SIZE], limit[SHOW_SIZE];
    int64_t most = get_i64(root, limit_key, 0);

    show_bytes(used, get_i64(root, used_key, -1));
    if (most > 0)
        table_cell(table, "%s / %s", used, show_bytes(limit, most));
    else
        table_cell(table, "%s", used);
}

static void put_row(struct table *table, struct box *box, const struct json_value *root)
{
    char text[SHOW_SIZE];
    int64_t cpu = get_i64(root, "cpu_ms", -1), most = get_i64(root, "pids_limit", 0);
    uint64_t now = clock_mono_ns();

    table_cell(table, "%s", box->id);
    table_cell(table, "%s", box->name);
    if (box->cpu_ms >= 0 && cpu >= 0 && now > box->at_ns)
        table_cell(table, "%.1f %%",
                   (double)(cpu - box->cpu_ms) * 100 * (double)NS_PER_MS / (double)(now - box->at_ns));
    else
        table_cell(table, "%s", cpu < 0 ? "-" : show_duration(text, cpu));
    box->cpu_ms = cpu;
    box->at_ns = now;
    put_of(table, root, "memory_bytes", "memory_limit_bytes");
    put_of(table, root, "disk_bytes", "");
    if (most > 0)
        table_cell(table, "%lld/%lld", (long long)get_i64(root, "pids", 0), (long long)most);
    else
        table_cell(table, "%lld", (long long)get_i64(root, "pids", 0));
}

static int put_json(struct buf *out, const char *id, const struct json_value *root)
{
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(out);
    int r = json_print(root, &text);

    json_object(&json);
    json_key_string(&json, "sandbox", id);
    json_key_raw(&json, "metrics", text.data, text.len);
    json_end(&json);
    return r < 0 ? r : json_finish(&json);
}

/* One look at all of them. */
static int look(struct client *client, struct boxes *boxes, const struct stats_options *options)
{
    static const char *const headers[] = {"ID", "*NAME", ">CPU", ">MEMORY", ">DISK", ">PIDS"};
    AUTO_TABLE struct table table = {0};
    AUTO_BUF struct buf text = BUF_INIT(64 << 20);
    int status = 0;
    size_t n = 0;

    table_init(&table, headers, ARRAY_SIZE(headers));
    for (size_t i = 0; i < boxes->n; i++) {
        AUTO_JSON struct json_doc *doc = NULL;
        struct brig_err err = {0};
        if (boxes->items[i].gone)
            continue;
        if (service_try(client, "GET", NULL, &doc, &err, "/v1/sandboxes/%s/metrics", boxes->items[i].id) < 0 || !doc) {
            boxes->items[i].gone = true;
            status = cli_error("%s", err.message);
        } else if (options->json) {
            if (buf_append_str(&text, n++ > 0 ? ",\n" : "[") < 0 ||
                put_json(&text, boxes->items[i].id, json_root(doc)) < 0)
                return cli_error("out of memory");
        } else {
            put_row(&table, &boxes->items[i], json_root(doc));
        }
    }
    if (options->json) {
        if (buf_append_str(&text, n > 0 ? "]\n" : "[]\n") < 0)
            return cli_error("out of memory");
        return cli_print(&text, status);
    }
    if (options->watch && isatty(STDOUT_FILENO) && cli_write(STDOUT_FILENO, CLEAR, strlen(CLEAR)) < 0)
        return CLI_FAILED;
    int shown = table_print(&table);
    return shown != 0 ? shown : status;
}

static int stats_main(int argc, char **argv)
{
    const struct timespec pause = {.tv_sec = 2};
    struct stats_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    struct boxes boxes = {0};
    int rest, status;

    if (!service_parse(&stats_table, argc, argv, &options, 0, -1, "", &rest, &status))
        return status;
    if (!service_open(&client))
        return CLI_FAILED;
    bool ok = rest < argc || find_all(client, &boxes);
    for (int i = rest; ok && i < argc; i++)
        ok = find_one(client, &boxes, argv[i]);
    status = ok ? look(client, &boxes, &options) : CLI_FAILED;
    while (options.watch && (status == 0 || boxes.n > 1)) {
        nanosleep(&pause, NULL);
        status = look(client, &boxes, &options);
    }
    free(boxes.items);
    return status;
}

const struct cli_verb cli_verb_stats = {"stats", "what sandboxes use: CPU, memory, disk, processes",
                                        .main = stats_main};
