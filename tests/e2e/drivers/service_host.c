/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service_host.c: a brigd of a few lines: the provider `local` over a spawner's socket, and a link to every box, driven
 * by lines on stdin; lines on stdout say what happens.
 *
 *     service_host FD        FD: the engine's end of the socket, of which the caller keeps a copy
 *     service_host spawn     with a spawner of its own
 *
 * The words of a line are separated by tabs:
 *
 *     create KEY [name=value...]    memory, pids, disk, inodes, bind=SOURCE:TARGET, ro=SOURCE:TARGET, rootfs, image,
 *                                   require=all, zygote=KEY, profile=paranoid, statement=1 (then
 *                                   `layers KEY name=on:by:value ...` comes before `up`), template=LAYER,LAYER...,
 *                                   new_layer=NAME, writable=1, root=1, sudo=1, raw_upper=1, boxdisk=NAME, from=NAME,
 *                                   vol=NAME:TARGET, vol_ro=NAME:TARGET
 *     attach KEY | freeze KEY | thaw KEY | stats KEY | end KEY | pool N | run KEY ARGUMENT...
 *     channel KEY                   of process 1, which was there before brig-init; every whole frame is printed:
 *                                   `frame KEY TEXT`
 *     ask KEY TEXT                  one frame down
 *     limits KEY MEMORY CPUS PIDS
 *     layer make|commit|remove NAME [TO]      answered by `layer NAME ok` or the error
 *     stored -                                answered by `stored NAME NAME ...`
 *     disk make NAME SIZE INODES | disk snap NAME KEY [USES] | disk copy NAME FROM | disk remove NAME
 *                                             answered by `disk NAME ok size= ...` or by its code and the error
 *     disks -                                 answered by `disks kind= ... n=`, after `a-disk NAME size= ...` for each
 *     await TEXT                    the next lines wait until a line that begins so was printed
 *
 * A box that was found at the start has its id as KEY.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "link/link.h"
#include "provider/provider.h"

#define MAX_WORDS 64
#define MAX_BINDS 8
#define MAX_LAYERS 130

struct item {
    struct item *next;
    char key[64];
    struct box *box;
    struct link *link;
    uint32_t next_proc;
    bool statement;
    struct call *channel;
    uint8_t frames[65536];
    size_t n_frames;
};

struct program {
    struct item *item;
    uint32_t proc;
    struct call *wait, *output;
    char end[256]; /* what is told when it has ended and all of its output was told */
};

static struct loop *loop;
static struct provider *provider;
static struct item *items;
static bool stop;

static char awaited[64];

/* One line to whoever drives us. */
static void PRINTF_LIKE(1, 2) tell(const char *format, ...)
{
    static char line[80000];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fputs(line, stdout);
    if (awaited[0] && strncmp(line, awaited, strlen(awaited)) == 0)
        awaited[0] = '\0';
}

static struct item *find(const char *key)
{
    struct item *item = items;

    while (item && strcmp(item->key, key) != 0)
        item = item->next;
    return item;
}

static struct item *add(const char *key)
{
    struct item *item = mem_zalloc(sizeof *item);

    if (!item)
        abort();
    snprintf(item->key, sizeof item->key, "%s", key);
    item->next_proc = 1 + (uint32_t)getpid() % 100000 * 1000; /* not an earlier host's */
    item->next = items;
    items = item;
    return item;
}

static void removed(struct item *item)
{
    struct item **at = &items;

    while (*at != item)
        at = &(*at)->next;
    *at = item->next;
    link_destroy(item->link);
    free(item);
}

/* ---- links ------------------------------------------------------------------------------------------ */

static void on_hello(void *ctx, const struct svc_hello *hello)
{
    tell("hello %s boot=%" PRIx64 "\n", ((struct item *)ctx)->key, hello->boot);
}

static void on_link_gone(void *ctx, const struct brig_err *why)
{
    tell("unlinked %s %s\n", ((struct item *)ctx)->key, why->message);
}

static void make_link(struct item *item, int fd)
{
    const struct link_events events = {on_hello, on_link_gone, item};
    struct brig_err err;

    link_destroy(item->link);
    item->link = NULL;
    if (fd_set_nonblock(fd) < 0 || link_create(loop, fd, &events, &item->link, &err) < 0)
        tell("no-link %s\n", item->key);
}

static void on_data(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct program *job = ctx;

    tell("output %s %u %zu %.*s\n", job->item->key, stream, len, (int)len, (const char *)data);
    call_consumed(job->output, stream, len);
}

/* The end is told behind the last of the output, whichever of the two brig-init says first. */
static void tell_exit(struct program *job)
{
    if (job->output || !job->end[0])
        return;
    tell("%s", job->end);
    free(job);
}

static void on_output_end(void *ctx, uint32_t errnum UNUSED, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                          size_t len UNUSED)
{
    struct program *job = ctx;

    job->output = NULL;
    tell_exit(job);
}

static void on_exit_reply(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data, size_t len)
{
    struct program *job = ctx;
    struct svc_proc_exit end;
    int n;

    if (errnum || svc_proc_exit_parse(data, len, &end) < 0)
        n = snprintf(job->end, sizeof job->end, "failed %s errno=%u\n", job->item->key, errnum);
    else
        n = snprintf(job->end, sizeof job->end,
                     "exit %s status=%u leaf=%u oom=%u refused=%u cpu=%" PRIu64 " peak=%" PRIu64 " pids=%" PRIu64 "\n",
                     job->item->key, end.status, end.leaf, end.oom_kills, end.pids_refused, end.cpu_ns, end.memory_peak,
                     end.pids_peak);
    if (n < 0 || (size_t)n >= sizeof job->end)
        abort();
    tell_exit(job);
}

static void on_start_reply(void *ctx, uint32_t errnum, uint32_t stage, const uint8_t *data UNUSED, size_t len UNUSED)
{
    if (errnum)
        tell("unstarted %s errno=%u stage=%u\n", ((struct program *)ctx)->item->key, errnum, stage);
    else
        tell("started %s\n", ((struct program *)ctx)->item->key);
}

static void run(struct item *item, char **words, unsigned n)
{
    static uint8_t payload[65536], strings[32768];
    struct program *job = mem_zalloc(sizeof *job);
    struct svc_cursor at = {strings, strings + sizeof strings, false};
    struct call *start;
    struct brig_err err = {.message = ""};

    if (!job || !item->link)
        abort();
    job->item = item;
    job->proc = item->next_proc++;
    for (unsigned i = 0; i < n; i++)
        svc_put_raw(&at, words[i], strlen(words[i]) + 1);
    svc_put_raw(&at, "PATH=/usr/bin:/bin", sizeof "PATH=/usr/bin:/bin");
    const struct svc_proc_start begin = {.proc = job->proc,
                                         .workdir = {"/tmp", 4},
                                         .n_argv = n,
                                         .n_env = 1,
                                         .strings = strings,
                                         .strings_len = (size_t)(at.at - strings)};
    int len = svc_proc_start_put(payload, sizeof payload, &begin);
    const struct call_events on_start = {.reply = on_start_reply, .ctx = job};
    const struct call_events on_output = {.data = on_data, .reply = on_output_end, .ctx = job};
    const struct call_events on_wait = {.reply = on_exit_reply, .ctx = job};
    const struct svc_proc_attach attach = {.proc = job->proc, .streams = 6};
    const uint8_t number[4] = {(uint8_t)job->proc, (uint8_t)(job->proc >> 8), (uint8_t)(job->proc >> 16),
                               (uint8_t)(job->proc >> 24)};
    int r = len < 0 ? len : link_call(item->link, SVC_PROC_START, payload, (size_t)len, &on_start, &start, &err);
    if (r == 0 && (len = svc_proc_attach_put(payload, sizeof payload, &attach)) > 0)
        r = link_call(item->link, SVC_PROC_ATTACH, payload, (size_t)len, &on_output, &job->output, &err);
    if (r == 0)
        r = link_call(item->link, SVC_PROC_WAIT, number, sizeof number, &on_wait, &job->wait, &err);
    if (r < 0)
        tell("no-call %s %d %s\n", item->key, r, err.message);
}

static void on_frame_data(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct item *item = ctx;
    uint32_t size;

    if (len > sizeof item->frames - item->n_frames)
        abort();
    memcpy(item->frames + item->n_frames, data, len);
    item->n_frames += len;
    call_consumed(item->channel, stream, len);
    while (item->n_frames >= sizeof size &&
           (memcpy(&size, item->frames, sizeof size), item->n_frames - sizeof size >= size)) {
        for (uint8_t *at = item->frames + sizeof size;
             (at = memchr(at, '\n', (size_t)(item->frames + sizeof size + size - at)));)
            *at = ' ';
        tell("frame %s %.*s\n", item->key, (int)size, (const char *)item->frames + sizeof size);
        item->n_frames -= sizeof size + size;
        memmove(item->frames, item->frames + sizeof size + size, item->n_frames);
    }
}

static void on_channel_end(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                           size_t len UNUSED)
{
    struct item *item = ctx;

    item->channel = NULL;
    tell("unchannelled %s %u\n", item->key, errnum);
}

static void open_channel(struct item *item)
{
    const struct call_events events = {.data = on_frame_data, .reply = on_channel_end, .ctx = item};
    const uint8_t number[8] = {1};
    struct brig_err err = {.message = ""};

    if (!item->link || link_call(item->link, SVC_CHANNEL, number, sizeof number, &events, &item->channel, &err) < 0)
        tell("no-call %s %s\n", item->key, err.message);
}

static void ask(struct item *item, const char *text)
{
    uint32_t size = (uint32_t)strlen(text);

    if (!item->channel || call_write(item->channel, &size, sizeof size) != (ssize_t)sizeof size ||
        call_write(item->channel, text, size) != (ssize_t)size)
        tell("no-call %s\n", item->key);
}

/* ---- boxes ------------------------------------------------------------------------------------------ */

static void tell_layers(const struct item *item, const struct box_up *up)
{
    char text[2048];
    size_t len = 0;

    for (int i = 0; i < BRIG_LAYER_MAX && len < sizeof text; i++) {
        const struct brig_layer_state *layer = &up->layers[i];
        len += (size_t)snprintf(text + len, sizeof text - len, " %s=%d:%s:%s", brig_layer_name((enum brig_layer)i),
                                layer->on, layer->by ? layer->by : "", layer->why ? layer->why : "");
    }
    tell("layers %s%s\n", item->key, text);
}

static void on_up(void *ctx, struct box_up *up)
{
    struct item *item = ctx;

    if (item->statement)
        tell_layers(item, up);
    tell("up %s %s complete=%d memory=%" PRIu64 " timeout=%" PRIu64 "\n", item->key, up->id, up->protection_complete,
         up->limits.memory, up->limits.timeout);
    make_link(item, take_fd(&up->stream_fd));
}

static void on_ended(void *ctx, const struct box_end *end)
{
    tell("ended %s %s hit=%x %s%s\n", ((struct item *)ctx)->key, brig_cause_name(end->cause), end->limits_hit,
         end->code == BRIG_E_LIMIT       ? "limit: "
         : end->code == BRIG_E_CONFLICT  ? "conflict: "
         : end->code == BRIG_E_NOT_FOUND ? "not-found: "
                                         : "",
         end->detail);
    removed(ctx);
}

static void on_attached(void *ctx, int fd, const struct brig_err *err)
{
    tell("attached %s %s\n", ((struct item *)ctx)->key, err ? err->message : "ok");
    if (!err)
        make_link(ctx, fd);
}

static void on_frozen(void *ctx, const struct brig_err *err)
{
    tell("frozen %s %s\n", ((struct item *)ctx)->key, err ? err->message : "ok");
}

static void on_stats(void *ctx, const struct box_stats *stats, const struct brig_err *err)
{
    if (err)
        tell("no-stats %s %s\n", ((struct item *)ctx)->key, err->message);
    else
        tell("stats %s cpu=%" PRIu64 " memory=%" PRIu64 " peak=%" PRIu64 " pids=%" PRIu64 " disk=%" PRIu64
             " oom=%u refused=%u untouched=%d\n",
             ((struct item *)ctx)->key, stats->cpu_ns, stats->memory_bytes, stats->memory_peak_bytes, stats->pids,
             stats->disk_bytes, stats->oom_kills, stats->pids_refused, stats->untouched);
}

static void on_limits(void *ctx, const struct brig_limits *limits, const struct brig_err *err)
{
    if (err)
        tell("no-limits %s %s\n", ((struct item *)ctx)->key, err->message);
    else
        tell("limits %s memory=%" PRIu64 " cpus=%" PRIu64 " pids=%" PRIu64 "\n", ((struct item *)ctx)->key,
             limits->memory, limits->cpus, limits->pids);
}

static int change_limits(struct item *item, char **words, unsigned n, struct brig_err *err)
{
    uint64_t values[3] = {0};

    for (unsigned i = 0; i < n && i < 3; i++)
        values[i] = strtoull(words[i], NULL, 10);
    const struct brig_limits limits = {.memory = values[0], .cpus = values[1], .pids = values[2]};
    return provider->ops->limits(item->box, &limits, on_limits, item, err);
}

static bool on_found(void *ctx UNUSED, struct box *box, const struct box_up *up, struct box_events *ret)
{
    struct item *item = add(up->id);

    item->box = box;
    *ret = (struct box_events){.up = on_up, .ended = on_ended, .ctx = item};
    tell("found %s complete=%d memory=%" PRIu64 "\n", up->id, up->protection_complete, up->limits.memory);
    return true;
}

static void on_recovered(void *ctx UNUSED)
{
    tell("recovered rootless=%u images=%d\n", provider->rootless, provider->image_store);
}

static void on_gone(void *ctx UNUSED, const struct brig_err *why)
{
    tell("gone %s\n", why->message);
    stop = true;
}

/* ---- template layers --------------------------------------------------------------------------------- */

static void on_layer(void *ctx, const struct brig_err *err)
{
    tell("layer %s %s\n", (char *)ctx, err ? err->message : "ok");
    free(ctx);
}

static void on_stored(void *ctx UNUSED, const char *const *names, size_t n, const struct brig_err *err)
{
    static char text[60000];
    size_t len = 0;

    for (size_t i = 0; i < n && len < sizeof text; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, " %s", names[i]);
    tell("stored%s\n", err ? err->message : n > 0 ? text : "");
}

static void layer(const char *what, const char *name, const char *to)
{
    struct brig_err err = {.message = ""};
    enum layer_op op = strcmp(what, "make") == 0     ? LAYER_MAKE
                       : strcmp(what, "commit") == 0 ? LAYER_COMMIT
                                                     : LAYER_REMOVE;
    char *copy = mem_strdup(name);

    if (!copy || provider->ops->layer(provider, op, name, to, on_layer, copy, &err) < 0) {
        tell("layer %s %s\n", name, err.message);
        free(copy);
    }
}

/* ---- disks ------------------------------------------------------------------------------------------- */

static void tell_disk(const char *word, const struct disk_info *info)
{
    tell("%s %s size=%" PRIu64 " inodes=%" PRIu64 " used=%" PRIu64 " own=%" PRIu64 " writers=%u readers=%u\n", word,
         info->name, info->size, info->inodes, info->used, info->own, info->writers, info->readers);
}

static void on_disk_progress(void *ctx, uint64_t at, uint64_t of)
{
    tell("copied %s %" PRIu64 " %" PRIu64 "\n", (char *)ctx, at, of);
}

static void on_disk(void *ctx, const struct disk_info *info, const struct brig_err *err)
{
    if (err)
        tell("disk %s code=%d %s\n", (char *)ctx, err->code, err->message);
    else if (info)
        tell_disk("disk", info);
    else
        tell("disk %s removed\n", (char *)ctx);
    free(ctx);
}

static void on_disks(void *ctx UNUSED, const struct disk_info *disks, size_t n, const struct disk_space *space,
                     const struct brig_err *err)
{
    for (size_t i = 0; i < n; i++)
        tell_disk("a-disk", &disks[i]);
    if (err)
        tell("disks code=%d %s\n", err->code, err->message);
    else
        tell("disks kind=%s size=%" PRIu64 " used=%" PRIu64 " reserved=%" PRIu64 " n=%zu\n", space->kind, space->size,
             space->used, space->reserved, n);
}

static void disk(char **words, unsigned n)
{
    static const struct {
        const char *word;
        enum disk_op op;
    } ops[] = {{"make", DISK_MAKE}, {"snap", DISK_SNAP}, {"remove", DISK_REMOVE}};
    struct disk_order order = {.name = words[1]};
    struct brig_err err = {.message = ""};
    char *copy = mem_strdup(words[1]);

    for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
        if (strcmp(words[0], ops[i].word) == 0)
            order.op = ops[i].op;
    if (order.op == DISK_MAKE && n >= 4) {
        order.size = strtoull(words[2], NULL, 10);
        order.inodes = strtoull(words[3], NULL, 10);
    }
    struct item *item = order.op == DISK_SNAP && n >= 3 ? find(words[2]) : NULL;
    if (order.op == DISK_SNAP && !item) {
        tell("unknown %s\n", words[2]);
        free(copy);
        return;
    }
    order.box = item ? item->box : NULL;
    order.uses = item && n >= 4 ? (unsigned)strtoul(words[3], NULL, 10) : 0;
    if (provider->ops->disk(provider, &order, on_disk_progress, on_disk, copy, &err) < 0) {
        tell("disk %s code=%d %s\n", words[1], err.code, err.message);
        free(copy);
    }
}

/* Splits at commas, in place. */
static size_t split(char *text, const char **out)
{
    char *save = NULL;
    size_t n = 0;

    for (char *word = strtok_r(text, ",", &save); word && n < MAX_LAYERS; word = strtok_r(NULL, ",", &save))
        out[n++] = word;
    return n;
}

/* ---- lines ------------------------------------------------------------------------------------------ */

static void create(const char *key, char **words, unsigned n)
{
    struct provider_spec spec = {0};
    struct brig_bind binds[MAX_BINDS];
    const char *layers[MAX_LAYERS];
    struct provider_volume volumes[PROVIDER_VOLUMES_MAX];
    struct brig_err err = {.message = ""};
    struct item *item = add(key);

    for (unsigned i = 0; i < n; i++) {
        char *value = strchr(words[i], '=');
        char *colon = value ? strchr(value, ':') : NULL;
        if (!value)
            abort();
        *value++ = '\0';
        if (strcmp(words[i], "memory") == 0)
            spec.limits.memory = strtoull(value, NULL, 10);
        else if (strcmp(words[i], "pids") == 0)
            spec.limits.pids = strtoull(value, NULL, 10);
        else if (strcmp(words[i], "disk") == 0)
            spec.limits.disk = strtoull(value, NULL, 10);
        else if (strcmp(words[i], "inodes") == 0)
            spec.limits.inodes = strtoull(value, NULL, 10);
        else if (strcmp(words[i], "image") == 0)
            spec.image = value;
        else if (strcmp(words[i], "rootfs") == 0)
            spec.rootfs = value;
        else if (strcmp(words[i], "zygote") == 0)
            spec.zygote = value;
        else if (strcmp(words[i], "template") == 0)
            spec.n_layers = split(value, layers);
        else if (strcmp(words[i], "new_layer") == 0)
            spec.new_layer = value;
        else if (strcmp(words[i], "writable") == 0)
            spec.writable_root = true;
        else if (strcmp(words[i], "root") == 0)
            spec.root_inside = true;
        else if (strcmp(words[i], "sudo") == 0)
            spec.sudo = true;
        else if (strcmp(words[i], "raw_upper") == 0)
            spec.raw_upper = true;
        else if (strcmp(words[i], "boxdisk") == 0)
            spec.disk = value;
        else if (strcmp(words[i], "from") == 0)
            spec.disk_from = value;
        else if (strncmp(words[i], "vol", 3) == 0 && colon && spec.n_volumes < PROVIDER_VOLUMES_MAX) {
            *colon++ = '\0';
            volumes[spec.n_volumes++] = (struct provider_volume){value, colon, strcmp(words[i], "vol_ro") == 0};
        } else if (strcmp(words[i], "profile") == 0)
            spec.profile = strcmp(value, "paranoid") == 0 ? BRIG_PROFILE_PARANOID : BRIG_PROFILE_COMPAT;
        else if (strcmp(words[i], "statement") == 0)
            item->statement = true;
        else if (strcmp(words[i], "require") == 0)
            spec.require = BRIG_REQUIRE_ALL;
        else if (colon && spec.n_binds < MAX_BINDS) {
            *colon++ = '\0';
            binds[spec.n_binds++] =
                (struct brig_bind){value, colon, strcmp(words[i], "ro") == 0, strcmp(words[i], "overlay") == 0};
        }
    }
    spec.binds = binds;
    spec.layers = layers;
    spec.volumes = volumes;
    const struct box_events events = {.up = on_up, .ended = on_ended, .ctx = item};
    if (provider->ops->create(provider, &spec, &events, &item->box, &err) < 0) {
        tell("refused %s %s\n", key, err.message);
        removed(item);
    }
}

static void obey(char *line)
{
    char *words[MAX_WORDS], *save = NULL;
    unsigned n = 0;
    struct brig_err err = {.message = ""};
    int r = 0;

    for (char *word = strtok_r(line, "\t\n", &save); word && n < MAX_WORDS; word = strtok_r(NULL, "\t\n", &save))
        words[n++] = word;
    if (n < 2)
        return;
    struct item *item = find(words[1]);
    if (strcmp(words[0], "await") == 0)
        snprintf(awaited, sizeof awaited, "%s", words[1]);
    else if (strcmp(words[0], "create") == 0)
        create(words[1], words + 2, n - 2);
    else if (strcmp(words[0], "layer") == 0 && n >= 3)
        layer(words[1], words[2], n > 3 ? words[3] : NULL);
    else if (strcmp(words[0], "disk") == 0 && n >= 3)
        disk(words + 1, n - 1);
    else if (strcmp(words[0], "disks") == 0)
        r = provider->ops->disks(provider, on_disks, NULL, &err);
    else if (strcmp(words[0], "stored") == 0)
        r = provider->ops->layers(provider, on_stored, NULL, &err);
    else if (strcmp(words[0], "pool") == 0)
        r = provider->ops->pool(provider, (unsigned)strtoul(words[1], NULL, 10), &err);
    else if (!item)
        tell("unknown %s\n", words[1]);
    else if (strcmp(words[0], "attach") == 0)
        r = provider->ops->attach(item->box, on_attached, item, &err);
    else if (strcmp(words[0], "freeze") == 0 || strcmp(words[0], "thaw") == 0)
        r = provider->ops->freeze(item->box, words[0][0] == 'f', on_frozen, item, &err);
    else if (strcmp(words[0], "stats") == 0)
        r = provider->ops->stats(item->box, on_stats, item, &err);
    else if (strcmp(words[0], "limits") == 0)
        r = change_limits(item, words + 2, n - 2, &err);
    else if (strcmp(words[0], "end") == 0)
        provider->ops->end(item->box);
    else if (strcmp(words[0], "channel") == 0)
        open_channel(item);
    else if (strcmp(words[0], "ask") == 0 && n == 3)
        ask(item, words[2]);
    else if (strcmp(words[0], "run") == 0)
        run(item, words + 2, n - 2);
    if (r < 0)
        tell("refused %s %s\n", words[1], err.message);
}

static char lines[65536];
static size_t have;
static bool ended_input;

static void go_on(void)
{
    for (char *end; !awaited[0] && (end = memchr(lines, '\n', have));) {
        *end = '\0';
        obey(lines);
        have -= (size_t)(end + 1 - lines);
        memmove(lines, end + 1, have);
    }
    stop = stop || (ended_input && !awaited[0]);
}

static void on_stdin(struct loop_source *source, uint32_t events UNUSED)
{
    ssize_t n = have < sizeof lines ? read(0, lines + have, sizeof lines - have) : -1;

    if (n <= 0) {
        ended_input = true;
        loop_remove(loop, source);
    } else {
        have += (size_t)n;
    }
}

int main(int argc, char **argv)
{
    struct loop_source input = {.fd = -1, .fn = on_stdin};
    int fd = -1;
    pid_t forked;
    struct brig_err err = {.message = ""};

    if (argc != 2)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    int r = loop_create(&loop, &err);
    if (r == 0 && strcmp(argv[1], "spawn") == 0)
        r = engine_spawn(NULL, &fd, &forked, &err);
    else
        fd = (int)strtol(argv[1], NULL, 10);
    if (r == 0)
        r = provider_local_create(loop, fd, &provider, &err);
    if (r == 0) {
        provider->gone = on_gone;
        r = provider->ops->recover(provider, on_found, on_recovered, NULL, &err);
    }
    if (r == 0 && loop_add(loop, &input, 0, EPOLLIN, &err) == -EPERM) /* a file */
        while (!ended_input)
            on_stdin(&input, EPOLLIN);
    while (r == 0 && !stop) {
        go_on(); /* before anything is told that a line waits for */
        fflush(stdout);
        if (!stop)
            r = loop_run_once(loop, -1, &err);
    }
    if (r < 0)
        fprintf(stderr, "service_host: %s\n", err.message);
    while (items)
        removed(items);
    if (provider)
        provider->ops->destroy(provider);
    loop_destroy(loop);
    return r < 0;
}
