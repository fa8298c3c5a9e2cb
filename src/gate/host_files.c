/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_files.c: gives brig-egress the host's files that it cannot open itself: the resolver's configuration, /etc/hosts
 * and the CA bundle. Each is sent as a sealed memfd when it is new or has changed (mtime, size or inode). A missing
 * file is sent as an empty text, so that brig-egress forgets its former content too. What could not be sent is sent
 * with the next call.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "gate/gate_client.h"

#define SMALL_MAX (1u << 20)
#define BUNDLE_MAX (8u << 20)
#define MISSING UINT64_MAX /* as an inode */

enum which { RESOLV_CONF, HOSTS, CA };

struct seen {
    int64_t mtime_ns;
    uint64_t size, inode;
};

/* Where distributions keep the bundle: Debian, Fedora, openSUSE, Alpine. */
static const char *const bundles[] = {
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
};

static struct seen look(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return (struct seen){0, 0, MISSING};
    return (struct seen){(int64_t)st.st_mtim.tv_sec * (int64_t)NS_PER_SEC + st.st_mtim.tv_nsec, (uint64_t)st.st_size,
                         st.st_ino};
}

static const char *bundle_path(const char *ca_path)
{
    struct stat st;

    if (ca_path[0])
        return ca_path;
    for (size_t i = 0; i < ARRAY_SIZE(bundles); i++)
        if (stat(bundles[i], &st) == 0 && S_ISREG(st.st_mode))
            return bundles[i];
    return bundles[0];
}

static int send_text(int sock, const char *name, const char *text, size_t len, struct brig_err *err)
{
    struct gate_file msg = {.head = {.magic = GATE_MAGIC, .version = GATE_VERSION, .type = GATE_FILE}};
    AUTO_FD int fd = gate_memfd(name, text, len);
    int r = fd < 0 ? fd : str_copy(msg.name, sizeof msg.name, name);

    if (r >= 0)
        r = gate_send(sock, &msg, &fd, 1);
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "%s for brig-egress", name) : 0;
}

static int send_file(int sock, const char *name, const char *path, size_t max, struct brig_err *err)
{
    AUTO_FREE char *text = mem_alloc(max);

    if (!text)
        return err_nomem(err);
    ssize_t len = fd_read_file(AT_FDCWD, path, text, max);
    if (len == -EFBIG)
        return err_set(err, BRIG_E_TOO_LARGE, EFBIG, "%s: more than %zu bytes", path, max - 1);
    return send_text(sock, name, text, len < 0 ? 0 : (size_t)len, err);
}

/* "1.1.1.1 10.0.0.1:5353 10.0.0.1#5353 fd00::1 [fd00::1]:53" as lines of a resolv.conf; a port is written after '#'. */
static int resolvers_text(const char *resolvers, struct buf *out)
{
    int r = 0;

    while (r == 0 && *(resolvers += strspn(resolvers, " ,"))) {
        size_t len = strcspn(resolvers, " ,");
        struct gate_addr server;
        char text[GATE_ADDR_TEXT];
        r = gate_server_parse(resolvers, len, &server);
        if (r < 0)
            return r;
        resolvers += len;
        uint16_t port = server.port;
        server.port = 0;
        gate_addr_text(&server, text);
        r = buf_printf(out, port == 53 ? "nameserver %s\n" : "nameserver %s#%u\n", text, port);
    }
    return r;
}

static bool same(const struct gate_host_files *files, enum which which, const struct seen *now)
{
    return files->seen[which].mtime_ns == now->mtime_ns && files->seen[which].size == now->size &&
           files->seen[which].inode == now->inode;
}

static void note(struct gate_host_files *files, enum which which, const struct seen *now)
{
    files->seen[which].mtime_ns = now->mtime_ns;
    files->seen[which].size = now->size;
    files->seen[which].inode = now->inode;
}

static int send_resolvers(struct gate_host_files *files, int sock, const char *resolvers, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(16384);
    struct seen now = {-1, strlen(resolvers), 5381}; /* of a text: its hash in place of an inode */
    int r = 0;

    for (const char *p = resolvers; *p; p++)
        now.inode = now.inode * 33 + (unsigned char)*p;
    if (same(files, RESOLV_CONF, &now))
        return 0;
    if (resolvers_text(resolvers, &text) < 0)
        return err_usage(err, "gate.resolvers %s: must be addresses with blanks between them", resolvers);
    r = send_text(sock, "resolv.conf", text.data ? text.data : "", text.len, err);
    if (r == 0)
        note(files, RESOLV_CONF, &now);
    return r;
}

static int send_changed(struct gate_host_files *files, enum which which, int sock, const char *name, const char *path,
                        struct brig_err *err)
{
    struct seen now = look(path);

    if (same(files, which, &now))
        return 0;
    int r = send_file(sock, name, path, which == CA ? BUNDLE_MAX : SMALL_MAX, err);
    if (r == 0)
        note(files, which, &now);
    return r;
}

int gate_host_files_send(struct gate_host_files *files, int sock, const char *resolvers, const char *ca_path,
                         struct brig_err *err)
{
    int r = resolvers[0] ? send_resolvers(files, sock, resolvers, err)
                         : send_changed(files, RESOLV_CONF, sock, "resolv.conf", "/etc/resolv.conf", err);

    if (r == 0)
        r = send_changed(files, HOSTS, sock, "hosts", "/etc/hosts", err);
    if (r == 0)
        r = send_changed(files, CA, sock, "ca", bundle_path(ca_path), err);
    return r;
}
