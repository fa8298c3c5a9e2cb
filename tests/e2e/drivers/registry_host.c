/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry_host CONFIG DIRECTORY REFERENCE PLATFORM [USER PASSWORD]: the registry client as brigd has it, for one
 * image. CONFIG is a config.toml. It writes the image as one JSON line and gets its layers into DIRECTORY/sha256. A
 * failure is one line on stderr and status 1.
 */
#include <fcntl.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fd.h"
#include "codec/json/json.h"
#include "config/config.h"
#include "template/distribution.h"

struct host {
    struct loop *loop;
    struct dist *dist;
    struct dist_ask ask;
    char **login;
    unsigned waits;
    int status;
};

static void fail(struct host *host, const struct brig_err *err)
{
    fprintf(stderr, "%s\n", err->message);
    host->status = 1;
}

static bool login(void *ctx, const char *name, struct dist_login *ret)
{
    char **words = ctx;

    (void)name;
    *ret = (struct dist_login){.user = words[0], .password = words[1]};
    return true;
}

static void on_blob(void *ctx, const struct brig_err *err)
{
    struct host *host = ctx;

    host->waits--;
    if (err)
        fail(host, err);
}

static void show(const struct dist_image *image)
{
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&out);
    char platform[PLATFORM_TEXT];

    platform_text(&image->config->platform, platform);
    json_object(&json);
    json_key_string(&json, "digest", image->digest);
    json_key_string(&json, "manifest", image->manifest_digest);
    json_key_string(&json, "platform", platform);
    json_key_string(&json, "env", image->config->env.n > 0 ? image->config->env.items[image->config->env.n - 1] : "");
    json_key_string(&json, "workdir", image->config->workdir);
    json_key(&json, "layers");
    json_array(&json);
    for (size_t i = 0; i < image->manifest->n_layers; i++) {
        json_object(&json);
        json_key_string(&json, "digest", image->manifest->layers[i].digest);
        json_key_string(&json, "format", layer_format_name(image->manifest->layers[i].format));
        json_end(&json);
    }
    json_end(&json);
    json_end(&json);
    if (json_finish(&json) == 0)
        printf("%s\n", out.data);
}

static void on_image(void *ctx, struct dist_image *image, const struct brig_err *err)
{
    struct host *host = ctx;

    host->waits--;
    if (err) {
        fail(host, err);
        return;
    }
    show(image);
    for (size_t i = 0; i < image->manifest->n_layers; i++) {
        const struct blob_desc *layer = &image->manifest->layers[i];
        struct dist_call *call;
        struct brig_err why = {0};
        if (dist_blob(host->dist, &host->ask, layer->digest, layer->size, NULL, on_blob, host, &call, &why) < 0)
            fail(host, &why);
        else
            host->waits++;
    }
    dist_image_free(image);
}

static int run(struct host *host, const struct config *config, char **argv, struct brig_err *err)
{
    AUTO_FD int blobs = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct platform platform;
    struct image_ref ref;
    struct dist_call *call;

    if (blobs < 0)
        return err_host(err, "%s", argv[2]);
    int r = image_ref_parse(argv[3], &ref, err);
    if (r == 0)
        r = platform_parse(argv[4], &platform, err);
    if (r == 0)
        r = loop_create(&host->loop, err);
    if (r == 0)
        r = dist_open(config, host->loop, blobs, &host->dist, err);
    host->ask = (struct dist_ask){
        .ref = &ref, .reach_private = true, .login = host->login ? login : NULL, .login_ctx = host->login};
    if (r == 0)
        r = dist_manifest(host->dist, &host->ask, &platform, on_image, host, &call, err);
    if (r == 0)
        host->waits = 1;
    while (r == 0 && host->waits > 0)
        r = loop_run_once(host->loop, -1, err);
    dist_destroy(host->dist);
    loop_destroy(host->loop);
    return r;
}

int main(int argc, char **argv)
{
    struct host host = {0};
    struct config_loaded *loaded = NULL;
    struct brig_err err = {0};
    char text[65536], *none[] = {NULL};

    if (argc != 5 && argc != 7)
        return 2;
    ssize_t len = fd_read_file(AT_FDCWD, argv[1], text, sizeof text);
    if (len < 0)
        return 2;
    host.login = argc == 7 ? argv + 5 : NULL;
    int r = config_load_text(argv[1], text, (size_t)len, none, &loaded, &err);
    if (r == 0)
        r = run(&host, config_get(loaded), argv, &err);
    if (r < 0)
        fail(&host, &err);
    config_free(loaded);
    return host.status;
}
