/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_docker.c: measures Docker as a peer. As root with dockerd installed, it starts an engine of its own on a
 * private socket with a private data root, configuration, cgroup and mount namespace, and no network. So nothing of the
 * machine is touched and nothing remains; the engine always ends with us. Otherwise an engine that already answers is
 * used. The image is this machine's /bin/true with its libraries: no registry is asked.
 */
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/str.h"
#include "cli/bench/bench.h"

#define START_SECONDS 30
#define STOP_SECONDS 15

/* What dockerd and containerd leave on the machine outside their roots goes into memory that ends with them. */
static const char in_private[] = "for dir in /run /opt /etc/docker; do"
                                 " case $0 in \"$dir\"/*) continue; esac;"
                                 " [ ! -d \"$dir\" ] || mount -t tmpfs brig-bench \"$dir\" || exit; done;"
                                 "exec dockerd \"$@\"";

static bool answers(const struct bench_docker *docker)
{
    const char *const argv[] = {"docker", "-H", docker->host, "version", NULL};
    return bench_spawn(argv, NULL) == 0;
}

static bool has_ended(pid_t pid)
{
    return waitpid(pid, NULL, WNOHANG) != 0;
}

static int start_engine(struct bench_docker *docker, char *reason, size_t size)
{
    char log[PATH_MAX], config[96], data[96], exec[96], pidfile[96], cgroup[64];
    const char *dir = docker->directory;
    snprintf(log, sizeof(log), "%s/dockerd.log", dir);
    snprintf(config, sizeof(config), "--config-file=%s/daemon.json", dir);
    snprintf(data, sizeof(data), "--data-root=%s/data", dir);
    snprintf(exec, sizeof(exec), "--exec-root=%s/exec", dir);
    snprintf(pidfile, sizeof(pidfile), "--pidfile=%s/pid", dir);
    snprintf(docker->host, sizeof(docker->host), "unix://%s/docker.sock", dir);
    snprintf(docker->cgroup, sizeof(docker->cgroup), "brig-bench-%ld", (long)getpid());
    snprintf(cgroup, sizeof(cgroup), "--cgroup-parent=/%s", docker->cgroup);
    const char *const argv[] = {"setpriv",
                                "--pdeathsig",
                                "TERM",
                                "unshare",
                                "--mount",
                                "sh",
                                "-c",
                                in_private,
                                dir,
                                "-H",
                                docker->host,
                                config,
                                data,
                                exec,
                                pidfile,
                                cgroup,
                                "--exec-opt=native.cgroupdriver=cgroupfs",
                                "--bridge=none",
                                "--iptables=false",
                                "--ip6tables=false",
                                "--ip-forward=false",
                                NULL};
    int r = bench_write_file(dir, "daemon.json", "{}\n");
    pid_t pid = r < 0 ? r : bench_spawn_background(argv, log);
    if (pid < 0) {
        snprintf(reason, size, "dockerd: %s", strerror(-pid));
        return pid;
    }
    docker->engine = pid;
    for (int i = 0; i < START_SECONDS * 5; i++) {
        if (answers(docker))
            return 0;
        if (has_ended(pid)) {
            docker->engine = 0;
            snprintf(reason, size, "dockerd does not start here");
            return -ENOENT;
        }
        bench_nap(200);
    }
    snprintf(reason, size, "dockerd does not answer within %d s", START_SECONDS);
    return -ETIMEDOUT;
}

static int make_image(const struct bench_docker *docker, char *reason, size_t size)
{
    static const char script[] =
        "set -e; cd /; tar -chf \"$1/image.tar\" bin/true $(ldd bin/true | grep -o '/[^ ]*' | sed 's,^/,,');"
        "exec docker -H \"$2\" import \"$1/image.tar\" brig-bench";
    const char *const argv[] = {"sh", "-c", script, "sh", docker->directory, docker->host, NULL};
    if (bench_spawn(argv, NULL) == 0)
        return 0;
    snprintf(reason, size, "no image could be imported");
    return -EIO;
}

int bench_docker_start(struct bench_docker *docker, char *reason, size_t size)
{
    *docker = (struct bench_docker){0};
    if (!bench_installed("docker")) {
        snprintf(reason, size, "docker is not installed");
        return -ENOENT;
    }
    int r = bench_make_directory(docker->directory, sizeof(docker->directory));
    if (r < 0) {
        snprintf(reason, size, "no temporary directory: %s", strerror(-r));
        return r;
    }
    if (geteuid() == 0 && bench_installed("dockerd")) {
        r = start_engine(docker, reason, size);
    } else {
        const char *host = getenv("DOCKER_HOST");
        if (str_copy(docker->host, sizeof(docker->host), host ? host : "unix:///var/run/docker.sock") < 0 ||
            !answers(docker)) {
            docker->host[0] = '\0'; /* nothing of ours is there */
            snprintf(reason, size, "no Docker engine answers, and none can be started (needs root and dockerd)");
            r = -ENOENT;
        }
    }
    return r < 0 ? r : make_image(docker, reason, size);
}

/* dockerd removes the cgroups of its containers but not their parent. */
static void remove_cgroups(const struct bench_docker *docker)
{
    static const char script[] =
        "find /sys/fs/cgroup -depth -type d \\( -name \"$1\" -o -path \"*/$1/*\" \\) -exec rmdir {} +";
    const char *const argv[] = {"sh", "-c", script, "sh", docker->cgroup, NULL};
    if (bench_spawn(argv, NULL) != 0)
        bench_say("a cgroup %s could not be removed", docker->cgroup);
}

void bench_docker_stop(struct bench_docker *docker)
{
    if (docker->engine > 0) {
        kill(docker->engine, SIGTERM);
        int left = STOP_SECONDS * 10;
        while (left-- > 0 && !has_ended(docker->engine))
            bench_nap(100);
        if (left < 0) {
            kill(docker->engine, SIGKILL);
            waitpid(docker->engine, NULL, 0);
        }
        remove_cgroups(docker);
    } else if (docker->host[0] != '\0') {
        const char *const argv[] = {"docker", "-H", docker->host, "rmi", "brig-bench", NULL};
        if (bench_spawn(argv, NULL) != 0)
            bench_say("the image brig-bench could not be removed");
    }
    bench_remove_directory(docker->directory);
}
