/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_peers.c: measures `brig run -- /bin/true` as a command, with all its layers, against other sandboxes as
 * commands, each in its cheapest form. A peer that is not installed, or does not work here, is skipped by name and
 * reason. There is a pause between two commands: the kernel removes namespaces after a command has ended, and the next
 * command should not pay for that.
 */
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "cli/bench/bench.h"

#define WARM_UP 3
#define PAUSE_MS 20
#define SLOW_US 50000.0 /* a peer this slow is noted while it runs: 200 of it take their time */

struct peer {
    const char *name;
    const char *argv[24];
    struct bench_samples samples;
    unsigned failed;
    bool usable;
};

enum { PEER_BRIG, PEER_BWRAP, PEER_FIREJAIL, PEER_RUNC, PEER_DOCKER, PEER_MAX };

/* runc wants a bundle. The root is this machine's /usr, as in brig's own template. */
static const char runc_config[] =
    "{\"ociVersion\":\"1.0.2\",\"process\":{\"terminal\":false,\"user\":{\"uid\":0,\"gid\":0},"
    "\"args\":[\"/bin/true\"],\"env\":[\"PATH=/usr/bin:/bin\"],\"cwd\":\"/\",\"noNewPrivileges\":true},"
    "\"root\":{\"path\":\"rootfs\",\"readonly\":true},\"mounts\":["
    "{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"},"
    "{\"destination\":\"/dev\",\"type\":\"tmpfs\",\"source\":\"tmpfs\",\"options\":[\"nosuid\",\"mode=755\"]},"
    "{\"destination\":\"/usr\",\"type\":\"bind\",\"source\":\"/usr\",\"options\":[\"rbind\",\"ro\"]}],"
    "\"linux\":{\"namespaces\":[{\"type\":\"pid\"},{\"type\":\"network\"},{\"type\":\"ipc\"},"
    "{\"type\":\"uts\"},{\"type\":\"mount\"}]}}\n";

static int make_bundle(const char *directory)
{
    static const char *const links[] = {"bin", "lib", "lib64", "sbin"};
    static const char *const dirs[] = {"rootfs", "rootfs/usr", "rootfs/proc", "rootfs/dev"};
    char path[PATH_MAX], target[64];
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, dirs[i]);
        if (mkdir(path, 0755) < 0)
            return -errno;
    }
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        snprintf(path, sizeof(path), "%s/rootfs/%s", directory, links[i]);
        snprintf(target, sizeof(target), "usr/%s", links[i]);
        if (symlink(target, path) < 0)
            return -errno;
    }
    return bench_write_file(directory, "config.json", runc_config);
}

static const char *const why_not_root = "needs root";

static void prepare(struct bench *bench, struct peer *peers, const char *bundle, const char *runc_root,
                    struct bench_docker *docker)
{
    static const char *const programs[PEER_MAX] = {NULL, "bwrap", "firejail", "runc", "docker"};
    char reason[160];
    for (size_t i = 0; i < PEER_MAX; i++) {
        struct peer *peer = &peers[i];
        peer->usable = true;
        if (programs[i] && !bench_installed(programs[i])) {
            bench_skip(bench, peer->name, "%s is not installed", programs[i]);
            peer->usable = false;
        } else if (i == PEER_RUNC && geteuid() != 0) {
            bench_skip(bench, peer->name, "%s", why_not_root);
            peer->usable = false;
        } else if (i == PEER_RUNC && (bundle[0] == '\0' || make_bundle(bundle) < 0 || mkdir(runc_root, 0700) < 0)) {
            bench_skip(bench, peer->name, "no bundle could be made");
            peer->usable = false;
        } else if (i == PEER_DOCKER && bench_docker_start(docker, reason, sizeof(reason)) < 0) {
            bench_skip(bench, peer->name, "%s", reason);
            peer->usable = false;
        }
    }
}

/* The last line of what a failing peer said. */
static void explain(struct bench *bench, const struct peer *peer, int status)
{
    struct buf out = BUF_INIT(64 << 10);
    int again = bench_spawn_output(peer->argv, -1, &out);
    while (out.len > 0 && out.data[out.len - 1] == '\n')
        out.data[--out.len] = '\0';
    const char *last = out.len > 0 ? strrchr(out.data, '\n') : NULL;
    last = last ? last + 1 : out.len > 0 ? out.data : "";
    bench_skip(bench, peer->name, "exit status %d here%s%.100s", again > 0 ? again : status, *last ? ": " : "", last);
    buf_done(&out);
}

static void warm_up(struct bench *bench, struct peer *peer)
{
    for (int i = 0; i < WARM_UP && peer->usable; i++) {
        double us = 0;
        int status = bench_spawn(peer->argv, &us);
        if (status < 0) {
            bench_skip(bench, peer->name, "%s", strerror(-status));
            peer->usable = false;
        } else if (status != 0) {
            explain(bench, peer, status);
            peer->usable = false;
        } else if (i == WARM_UP - 1 && us > SLOW_US) {
            bench_say("%s takes %.0f ms", peer->name, us / 1000);
        }
    }
}

static int measure(struct bench *bench, struct peer *peers, struct brig_err *err)
{
    for (size_t i = 0; i < PEER_MAX; i++) {
        if (bench_samples_init(&peers[i].samples, bench->runs) < 0)
            return err_nomem(err);
        warm_up(bench, &peers[i]);
    }
    if (!peers[PEER_BRIG].usable)
        return err_set(err, BRIG_E_HOST, 0, "brig run -- /bin/true does not work here; see brig doctor");
    for (uint64_t run = 0; run < bench->runs; run++) {
        unsigned order[PEER_MAX];
        bench_shuffle(bench, order, PEER_MAX);
        for (size_t k = 0; k < PEER_MAX; k++) {
            struct peer *peer = &peers[order[k]];
            double us = 0;
            if (!peer->usable)
                continue;
            bench_nap(PAUSE_MS);
            if (bench_spawn(peer->argv, &us) == 0)
                bench_samples_add(&peer->samples, us);
            else
                peer->failed++;
        }
        if ((run + 1) % 50 == 0)
            bench_say("standalone: %llu of %llu", (unsigned long long)run + 1, (unsigned long long)bench->runs);
    }
    for (size_t i = 0; i < PEER_MAX; i++)
        if (peers[i].failed > 0)
            bench_skip(bench, peers[i].name, "%u of %llu runs failed", peers[i].failed,
                       (unsigned long long)bench->runs);
    return 0;
}

static void report(struct bench *bench, struct peer *peers)
{
    struct bench_row *brig = bench_add_row(bench, peers[PEER_BRIG].name, "us", &peers[PEER_BRIG].samples);
    struct bench_row *bwrap = bench_add_row(bench, peers[PEER_BWRAP].name, "us", &peers[PEER_BWRAP].samples);
    bench_compare(brig, bwrap);
    if (brig && bwrap)
        brig->bound = 0.8;
    for (size_t i = PEER_FIREJAIL; i < PEER_MAX; i++)
        bench_add_row(bench, peers[i].name, "us", &peers[i].samples);
}

int bench_standalone(struct bench *bench, struct brig_err *err)
{
    char bundle[64] = "", runc_root[80] = "", id[32];
    struct bench_docker docker = {0};
    if (bench_make_directory(bundle, sizeof(bundle)) == 0)
        snprintf(runc_root, sizeof(runc_root), "%s/state", bundle);
    snprintf(id, sizeof(id), "brig-bench-runc-%ld", (long)getpid());

    struct peer peers[PEER_MAX] = {
        [PEER_BRIG] = {"brig run", {bench->self, "run", "--", "/bin/true"}, {0}, 0, false},
        [PEER_BWRAP] = {"bwrap", {"bwrap", "--unshare-all", "--ro-bind", "/", "/", "/bin/true"}, {0}, 0, false},
        [PEER_FIREJAIL] = {"firejail", {"firejail", "--quiet", "--noprofile", "/bin/true"}, {0}, 0, false},
        [PEER_RUNC] = {"runc", {"runc", "--root", runc_root, "run", "--bundle", bundle, id}, {0}, 0, false},
        [PEER_DOCKER] = {"docker run",
                         {"docker", "-H", docker.host, "run", "--rm", "--network", "none", "brig-bench", "/bin/true"},
                         {0},
                         0,
                         false},
    };
    prepare(bench, peers, bundle, runc_root, &docker);
    int r = measure(bench, peers, err);
    if (r == 0)
        report(bench, peers);
    for (size_t i = 0; i < PEER_MAX; i++)
        bench_samples_done(&peers[i].samples);
    bench_docker_stop(&docker);
    bench_remove_directory(bundle);
    return r;
}
