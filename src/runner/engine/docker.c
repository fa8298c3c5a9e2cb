/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docker.c: the carrier of a container engine, Docker or Podman: every box is a container of it.
 *
 * Theory of operation. The engine is asked over its socket, one question after the other:
 *
 *     VERSION -> IMAGE [-> PULL or IMPORT] -> CREATE -> START -> INSPECT -> CONNECT -> ROOT -> carried_made()
 *
 * VERSION is asked until one answer has settled the API, so an engine may start after us. brig-init is a read-only bind
 * in the container, and listens on a socket in a directory that only it and we have (DOCKER_SOCKET_DIR). CONNECT waits
 * until it listens there, because an engine says that a container runs before its first instruction. ROOT gives it the
 * file systems of its sandbox (docker_root.c). From then on the engine is not needed: pid 1 is in our cgroup, so
 * limits, freezing, counting and the kill are ours, and the stream is a unix socket.
 *
 * What a sandbox starts from is an image of the engine by its name, or one of our templates. The container of a
 * template has an image of ours with nothing in it, which is imported when the engine does not have it.
 *
 * The cgroup: where a controller is of version 1, pid 1 is moved into our leaf before it has run anything of a user;
 * the engine's rules for devices are a hierarchy of their own and stay. Where all are of version 2 those rules hang on
 * the engine's cgroup, so the container is made below our leaf (CgroupParent) and stays where it is.
 *
 * A container has a name made of the sandbox's id, so whoever knows the box can remove it. A container that nobody
 * removed, because the engine was away at the time, is found by its label (docker_sweep.c).
 */
#include "runner/engine/docker.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"
#include "codec/reference.h"
#include "jail/sys.h"
#include "runner/engine/dock_container.h"
#include "runner/engine/docker_root.h"

#define CONNECT_FIRST_NS (2 * NS_PER_MS)
#define CONNECT_LAST_NS (50 * NS_PER_MS)
#define INIT_SOCKET DOCKER_SOCKET_DIR "/" DOCK_SOCKET_NAME
#define PULL_NS (600 * NS_PER_SEC)
#define REMOVE_NS (10 * NS_PER_SEC)
#define REMOVE_AGAIN_NS (100 * NS_PER_MS)
#define BODY_MAX (256u << 10)
#define PROCESSES_MAX 32768u
#define FIRST_VERSION_NS (2 * NS_PER_SEC)
#define SWEEP_DEFAULT 300u /* seconds */

struct docker docker;

enum step { ASK_VERSION, ASK_IMAGE, ASK_PULL, ASK_IMPORT, ASK_CREATE, ASK_START, ASK_INSPECT, CONNECT, ROOT };

/* A box on its way: carried.own. */
struct docker_box {
    struct carried *box;
    enum step step;
    struct dock_call *call; /* under way, or NULL */
    struct loop_timer again;
    uint64_t pause_ns, until_ns;
    pid_t pid;
    bool fetched; /* The image was pulled or imported. */
    bool ended;   /* Nobody wants it any more, but the engine may be about to make its container. */
    struct docker_image image;
    struct docker_root root;
    int stream; /* the first connection to brig-init; else -1 */
};

static void next(struct docker_box *b, enum step step);

static void docker_name(const struct sandbox *s, char out[DOCKER_NAME_MAX])
{
    (void)!str_format(out, DOCKER_NAME_MAX, "brig-%s", s->id);
}

/* The name that was asked for, or that of the configuration; "" if it starts from a template. */
static const char *image_of(const struct carried *box)
{
    const struct run_spec *run = box->s.run;

    return run->engine_image ? run->engine_image : run->rootfs || run->n_layers > 0 ? "" : docker.image;
}

/* The name of the image that its container is made of. */
static const char *image_name(const struct carried *box)
{
    return image_of(box)[0] ? image_of(box) : docker.empty;
}

static void own_free(struct carried *box)
{
    struct docker_box *b = box->own;

    if (!b)
        return;
    if (b->call)
        dock_drop(b->call);
    loop_timer_clear(docker.dock.loop, &b->again);
    base_close_fd(&b->stream);
    docker_root_done(&b->root);
    docker_image_done(&b->image);
    mem_free(b);
    box->own = NULL;
}

/* ---- CONNECT ------------------------------------------------------------------------------------------- */

static int docker_connect(struct carried *box, struct brig_err *err)
{
    struct docker_box *b = box->own;

    if (b && b->stream >= 0)
        return take_fd(&b->stream);
    return carried_connect(box, INIT_SOCKET, err);
}

static void fail(struct docker_box *b, const struct brig_err *err)
{
    struct brig_err why = *err;

    b->call = NULL;
    carried_failed(b->box, &why); /* and remove() follows */
}

static int into_cgroup(struct docker_box *b, struct brig_err *err)
{
    struct sandbox *s = &b->box->s;

    if (s->spawner->host.cg.n_v1 == 0)
        return 0; /* the engine has made it below our leaf */
    int r = cg_enter(&s->cg, b->pid);
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "the cgroup of the container") : 0;
}

static void on_again(struct loop_timer *timer)
{
    struct docker_box *b = timer->ctx;
    struct carried *box = b->box;
    struct brig_err err = {0};

    b->stream = carried_connect(box, INIT_SOCKET, &err);
    if (b->stream >= 0) {
        next(b, ROOT);
        return;
    }
    if (kill(b->pid, 0) < 0 && errno == ESRCH) {
        err_set(&err, BRIG_E_HOST, 0, "the container ended before brig-init answered");
    } else if (clock_mono_ns() >= b->until_ns) {
        err_set(&err, BRIG_E_TIMEOUT, ETIMEDOUT, "brig-init does not listen after start_timeout");
    } else {
        b->pause_ns = b->pause_ns * 2 < CONNECT_LAST_NS ? b->pause_ns * 2 : CONNECT_LAST_NS;
        if (loop_timer_set(docker.dock.loop, timer, clock_mono_ns() + b->pause_ns, &err) == 0)
            return;
    }
    fail(b, &err);
}

/* ---- ROOT ---------------------------------------------------------------------------------------------- */

static void on_root(void *ctx, int status)
{
    struct docker_box *b = ctx;
    struct brig_err err;

    if (docker_root_result(b->box, &b->root, status, &err) < 0) {
        fail(b, &err);
        return;
    }
    docker_root_done(&b->root);
    carried_made(b->box, b->pid);
}

static int begin_root(struct docker_box *b, struct brig_err *err)
{
    struct carried *box = b->box;

    box->child.done = on_root;
    box->child.ctx = b;
    return docker_root_start(box, &b->root, b->pid, image_of(box)[0] ? &b->image : NULL, err);
}

/* ---- the answers --------------------------------------------------------------------------------------- */

static int take_inspection(struct docker_box *b, const struct json_value *json, struct brig_err *err)
{
    struct dock_state state;

    dock_state_read(json, &state);
    if (!state.running || state.pid == 0 || state.pid > INT32_MAX)
        return err_set(err, BRIG_E_HOST, 0, "the container is %.20s with status %lld%s%.100s", state.status,
                       (long long)state.exit_code, state.error[0] ? ": " : "", state.error);
    if (!str_eq(state.installation, docker.installation) || !str_eq(state.sandbox, b->box->s.id))
        return err_set(err, BRIG_E_HOST, 0, "the engine shows a container of somebody else");
    b->pid = (pid_t)state.pid;
    return 0;
}

static void take_version(void)
{
    (void)snprintf(docker.runner->version, sizeof docker.runner->version, "%s %s",
                   docker.engine.podman ? "Podman" : "Docker", docker.engine.version);
}

static void on_answer(void *ctx, const struct dock_answer *answer, const struct brig_err *err)
{
    static const enum step after[] = {
        [ASK_VERSION] = ASK_IMAGE, [ASK_IMAGE] = ASK_CREATE,  [ASK_PULL] = ASK_IMAGE, [ASK_IMPORT] = ASK_IMAGE,
        [ASK_CREATE] = ASK_START,  [ASK_START] = ASK_INSPECT, [ASK_INSPECT] = CONNECT};
    struct docker_box *b = ctx;
    struct brig_err why = {0};
    int r = 0;

    b->call = NULL;
    if (b->ended) {
        fail(b, &(struct brig_err){.code = BRIG_E_GONE, .message = "it was ended while the engine was at work"});
        return;
    }
    const bool ours = !image_of(b->box)[0];
    if (err && b->step == ASK_IMAGE && err->code == BRIG_E_NOT_FOUND && (docker.pull || ours) && !b->fetched) {
        b->fetched = true;
        next(b, ours ? ASK_IMPORT : ASK_PULL);
        return;
    }
    if (err) {
        if (err->code == BRIG_E_BUSY)
            docker.dock.api[0] = '\0'; /* whoever answers next may be another engine */
        if (b->step == ASK_CREATE && (err->code == BRIG_E_BUSY || err->code == BRIG_E_TIMEOUT))
            docker_sweep_soon();
        fail(b, err);
        return;
    }
    if (b->step == ASK_VERSION) {
        r = dock_settle(&docker.dock, answer->json, &docker.engine, &why);
        take_version();
    } else if (b->step == ASK_IMAGE) {
        r = docker_image_read(answer->json, image_name(b->box), &b->image, &why);
    } else if (b->step == ASK_INSPECT) {
        r = take_inspection(b, answer->json, &why);
        if (r == 0)
            r = into_cgroup(b, &why);
    }
    if (r < 0)
        fail(b, &why);
    else
        next(b, after[b->step]);
}

/* ---- the questions ------------------------------------------------------------------------------------- */

static int pull_target(const char *image, char out[DOCK_TARGET_MAX])
{
    struct image_ref ref;
    char name[IMAGE_REF_TEXT];

    if (image_ref_parse(image, &ref, NULL) < 0)
        return -EINVAL;
    (void)!str_format(name, sizeof name, "%s/%s", ref.host, ref.repository);
    AUTO_BUF struct buf tag = BUF_INIT(256);
    int r = buf_printf(&tag, "&tag=%s", ref.digest[0] ? ref.digest : ref.tag);
    return r < 0 ? r : dock_target(out, "/images/create?fromImage=", name, tag.data);
}

static int ask(struct docker_box *b, struct brig_err *err)
{
    const struct carried *box = b->box;
    char name[DOCKER_NAME_MAX], target[DOCK_TARGET_MAX], dir[4096];
    AUTO_BUF struct buf body = BUF_INIT(BODY_MAX), archive = BUF_INIT(DOCKER_EMPTY_MAX);
    struct dock_request request = {.method = "GET", .target = target, .done = on_answer, .ctx = b};
    int r = 0;

    docker_name(&box->s, name);
    request.timeout_ns = box->runner->start_timeout_ns;
    switch (b->step) {
    case ASK_VERSION: r = str_copy(target, sizeof target, "/version"); break;
    case ASK_IMAGE: r = dock_target(target, "/images/", image_name(box), "/json"); break;
    case ASK_PULL:
        r = pull_target(image_of(box), target);
        request.method = "POST";
        request.lines = true;
        request.timeout_ns = PULL_NS;
        break;
    case ASK_IMPORT:
        r = docker_empty_import(&archive, target);
        request.method = "POST";
        request.lines = true;
        request.tar = archive.data;
        request.tar_len = archive.len;
        break;
    case ASK_CREATE:
        r = str_format(dir, sizeof dir, "%s/%s", box->runner->dir, box->s.id);
        if (r > 0 && (r = docker_body(box, dir, &b->image, &body, err)) < 0)
            return r;
        if (r == 0)
            r = dock_target(target, "/containers/create?name=", name, "");
        request.method = "POST";
        request.body = body.data;
        break;
    case ASK_START:
        r = dock_target(target, "/containers/", name, "/start");
        request.method = "POST";
        break;
    case ASK_INSPECT: r = dock_target(target, "/containers/", name, "/json"); break;
    case CONNECT:
    case ROOT: return -EINVAL;
    }
    if (r < 0)
        return err_set(err, BRIG_E_INVALID, -r, "image %.100s: its name is too long", image_name(box));
    return dock_ask(&docker.dock, &request, &b->call, err);
}

static void next(struct docker_box *b, enum step step)
{
    struct brig_err err = {0};
    int r;

    b->step = step;
    if (step == CONNECT) {
        b->pause_ns = CONNECT_FIRST_NS;
        b->until_ns = clock_mono_ns() + b->box->runner->start_timeout_ns;
        b->again = (struct loop_timer){.fn = on_again, .ctx = b};
        r = loop_timer_set(docker.dock.loop, &b->again, clock_mono_ns(), &err);
    } else if (step == ROOT) {
        r = begin_root(b, &err);
    } else {
        r = ask(b, &err);
    }
    if (r < 0)
        fail(b, &err);
}

static int docker_start(struct carried *box, struct brig_err *err)
{
    struct docker_box *b;

    if (box->s.run->flags & BRIG_RUN_ROOT)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "the provider %s has no root inside", box->runner->ops->name);
    if (mkdirat(box->dir_fd, DOCKER_SOCKET_DIR, 0700) < 0 && errno != EEXIST)
        return err_host(err, "the directory of the sandbox's socket");
    b = mem_zalloc(sizeof *b);
    if (!b)
        return err_nomem(err);
    *b = (struct docker_box){
        .box = box, .step = docker.dock.api[0] ? ASK_IMAGE : ASK_VERSION, .root = DOCKER_ROOT_INIT, .stream = -1};
    box->own = b;
    int r = ask(b, err);
    if (r < 0)
        own_free(box);
    return r;
}

static void docker_stop(struct carried *box)
{
    struct brig_err err = {0};

    struct docker_box *b = box->own;

    if (box->child.pid > 0) { /* its end tells */
        runner_child_kill(&box->child);
        return;
    }
    if (b && b->call && b->step == ASK_CREATE) { /* else it could be made after we have asked to remove it */
        b->ended = true;
        return;
    }
    err_set(&err, BRIG_E_GONE, 0, "it was ended while the engine was at work");
    carried_failed(box, &err);
}

static void on_released(void *ctx UNUSED, const struct dock_answer *answer UNUSED, const struct brig_err *err UNUSED)
{
}

/* Whoever pauses a container by the engine freezes it in the engine's cgroup, where no signal ends it (version 1). */
static void docker_release(struct carried *box)
{
    char name[DOCKER_NAME_MAX], target[DOCK_TARGET_MAX];
    const struct dock_request request = {.method = "POST", .target = target, .done = on_released};

    docker_name(&box->s, name);
    if (carried_host(box)->cg.n_v1 > 0 && dock_target(target, "/containers/", name, "/unpause") == 0)
        (void)!dock_ask(&docker.dock, &request, NULL, NULL);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

static void ask_removal(struct carried *box);

static void on_remove_again(struct loop_timer *timer)
{
    ask_removal(timer->ctx);
}

/* An engine says no while it is still busy with the end of the container. */
static void on_removed(void *ctx, const struct dock_answer *answer UNUSED, const struct brig_err *err)
{
    struct carried *box = ctx;
    bool refused = err && (err->code == BRIG_E_HOST || err->code == BRIG_E_CONFLICT);

    box->on_retry = (struct loop_timer){.fn = on_remove_again, .ctx = box};
    if (refused && clock_mono_ns() < box->open_by_ns &&
        loop_timer_set(docker.dock.loop, &box->on_retry, clock_mono_ns() + REMOVE_AGAIN_NS, NULL) == 0)
        return;
    if (err && err->code != BRIG_E_NOT_FOUND)
        docker_sweep_soon();
    carried_removed(box);
}

static void ask_removal(struct carried *box)
{
    char name[DOCKER_NAME_MAX], target[DOCK_TARGET_MAX];
    const struct dock_request request = {
        .method = "DELETE", .target = target, .done = on_removed, .ctx = box, .timeout_ns = DOCK_ANSWER_NS};
    struct brig_err err = {.code = BRIG_E_BUSY};

    docker_name(&box->s, name);
    if (!docker.runner || /* No engine is named any more: it keeps a container that has ended. */
        dock_target(target, "/containers/", name, "?force=1&v=1") < 0 ||
        dock_ask(&docker.dock, &request, NULL, NULL) < 0)
        on_removed(box, NULL, &err);
}

static void docker_remove(struct carried *box)
{
    own_free(box);
    box->open_by_ns = clock_mono_ns() + REMOVE_NS; /* nobody opens it any more */
    ask_removal(box);
}

/* ---- the engine ---------------------------------------------------------------------------------------- */

/* brig-init in a file that nobody else can change: the engine binds it by its path. */
static int place_init(struct runner *runner, struct brig_err *err)
{
    char piece[65536];
    off_t at = 0;
    ssize_t n;
    AUTO_FD int fd = openat(runner->dir_fd, "init.new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0755);

    if (fd < 0 || fchmod(fd, 0755) < 0)
        return err_host(err, "the copy of brig-init");
    AUTO_FD int from = fcntl(runner->spawner.host.init_fd, F_DUPFD_CLOEXEC, 3);
    AUTO_FD int in = -1;
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", from);
    in = open(path, O_RDONLY | O_CLOEXEC); /* the descriptor may be for its path only */
    while (in >= 0 && (n = pread(in, piece, sizeof piece, at)) > 0) {
        if (fd_write_all(fd, piece, (size_t)n) < 0)
            return err_host(err, "the copy of brig-init");
        at += n;
    }
    if (in < 0 || at == 0 || renameat(runner->dir_fd, "init.new", runner->dir_fd, "init") < 0)
        return err_host(err, "the copy of brig-init");
    return 0;
}

static void on_first_version(void *ctx, const struct dock_answer *answer, const struct brig_err *err)
{
    struct brig_err why = {0};

    *(bool *)ctx = true;
    if (!err && dock_settle(&docker.dock, answer->json, &docker.engine, &why) == 0)
        take_version();
}

/* For `brig provider check`. An engine that does not answer now may do so later. */
static void ask_version(struct runner *runner)
{
    bool told = false;
    const struct dock_request request = {
        .method = "GET", .target = "/version", .timeout_ns = FIRST_VERSION_NS, .done = on_first_version, .ctx = &told};

    if (dock_ask(&docker.dock, &request, NULL, NULL) < 0)
        return;
    while (!told && loop_run_once(runner->spawner.loop, -1, NULL) == 0)
        ;
}

static int docker_open(struct runner *runner, struct brig_err *err)
{
    const char *path = getenv("BRIG_RUNTIME_PATH"), *runtime = getenv("BRIG_ENGINE_RUNTIME"),
               *pull = getenv("BRIG_ENGINE_PULL"), *image = getenv("BRIG_ENGINE_IMAGE"),
               *every = getenv("BRIG_ENGINE_SWEEP");
    uint64_t seconds = 0;
    struct rlimit limit = {0};
    struct image_ref ref;
    int r = 0;

    if (!path || path[0] != '/')
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "no engine (set [docker] socket, or: apt-get install docker.io)");
    if (image && image[0]) {
        r = image_ref_parse(image, &ref, err);
        if (r < 0)
            return r;
        image_ref_text(&ref, docker.image);
    }
    docker.runner = runner;
    dock_init(&docker.dock, runner->spawner.loop, runner->spawner.host.root_fd, path);
    docker.runtime = runtime && runtime[0] ? mem_strdup(runtime) : NULL;
    docker.pull = !pull || !str_eq(pull, "never");
    docker.sweep_ns = (every && parse_u64(every, &seconds) == 0 && seconds > 0 ? seconds : SWEEP_DEFAULT) * NS_PER_SEC;
    (void)getrlimit(RLIMIT_NPROC, &limit);
    docker.processes = limit.rlim_max < PROCESSES_MAX ? limit.rlim_max : PROCESSES_MAX;
    runner->spawner.host_ids = true;
    r = place_init(runner, err);
    if (r == 0)
        r = docker_profiles_write(runner, err);
    if (r == 0)
        r = docker_installation(&docker, err);
    (void)!str_format(docker.empty, sizeof docker.empty, DOCKER_EMPTY_PREFIX "%s", docker.installation);
    if (r == 0)
        ask_version(runner);
    return r;
}

const struct carrier_ops carrier_docker = {
    .name = "docker",
    .images = true,
    .open = docker_open,
    .start = docker_start,
    .connect = docker_connect,
    .stop = docker_stop,
    .release = docker_release,
    .remove = docker_remove,
    .sweep = docker_sweep,
};
