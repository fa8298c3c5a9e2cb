/* SPDX-License-Identifier: Apache-2.0 */
/* docker_login.c: reads the logins of Docker's config.json (docker_login.h). */
#include "codec/docker_login.h"

#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/err.h"
#include "base/str.h"
#include "codec/json/json_read.h"

const char *docker_login_host(const char *host)
{
    static const char *const names[] = {"index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcasecmp(host, names[i]) == 0)
            return "docker.io";
    return host;
}

/* A key of "auths" may have a scheme and a path: "https://registry.example/v2/". */
static int host_of(const char *key, char out[DOCKER_HOST_MAX])
{
    const char *scheme = strstr(key, "://"), *at = scheme ? scheme + 3 : key;
    size_t len = strcspn(at, "/");

    if (len == 0 || len >= DOCKER_HOST_MAX)
        return -EINVAL;
    memcpy(out, at, len);
    out[len] = '\0';
    return str_copy(out, DOCKER_HOST_MAX, docker_login_host(out));
}

static bool is_text(const struct json_value *value)
{
    return value && value->type == JSON_STRING && value->len > 0 && value->len < DOCKER_AUTH_MAX &&
           !memchr(value->string, '\0', value->len);
}

/* USER:PASSWORD from base64. */
static int split_auth(const struct json_value *auth, const char *host, char plain[DOCKER_AUTH_MAX],
                      struct docker_login *ret, struct brig_err *err)
{
    ssize_t len = base64_decode_padded(auth->string, auth->len, plain, DOCKER_AUTH_MAX - 1);

    if (len < 0)
        return err_set(err, BRIG_E_INVALID, 0, "Docker's config.json: auth of %.100s is no base64", host);
    plain[len] = '\0';
    char *colon = memchr(plain, ':', (size_t)len);
    if (!colon || colon == plain || colon[1] == '\0' || memchr(plain, '\0', (size_t)len))
        return err_set(err, BRIG_E_INVALID, 0, "Docker's config.json: auth of %.100s is no USER:PASSWORD", host);
    *colon = '\0';
    ret->user = plain;
    ret->password = colon + 1;
    return 0;
}

/* 1: it was a login. */
static int read_entry(const struct json_value *entry, docker_login_fn *each, void *ctx, struct brig_err *err)
{
    const struct json_value *auth = json_get(entry, "auth"), *token = json_get(entry, "identitytoken");
    char host[DOCKER_HOST_MAX], plain[DOCKER_AUTH_MAX];
    struct docker_login login = {.host = host};

    if (entry->type != JSON_OBJECT || host_of(entry->key, host) < 0)
        return err_set(err, BRIG_E_INVALID, 0, "Docker's config.json: auths: %.100s is no host", entry->key);
    if (is_text(token)) {
        login.user = DOCKER_TOKEN_USER;
        login.password = token->string;
        int r = each(ctx, &login, err);
        return r < 0 ? r : 1;
    }
    if (!is_text(auth))
        return 0; /* a helper program has it */
    int r = split_auth(auth, host, plain, &login, err);
    if (r == 0)
        r = each(ctx, &login, err);
    explicit_bzero(plain, sizeof plain);
    return r < 0 ? r : 1;
}

int docker_logins_read(const char *text, size_t len, docker_login_fn *each, void *ctx, struct brig_err *err)
{
    struct json_doc *doc = NULL;
    int n = 0, r = 0;

    if (len > DOCKER_CONFIG_BYTES || json_read(text, len, 4096, &doc, NULL) < 0 ||
        json_root(doc)->type != JSON_OBJECT) {
        json_doc_free(doc);
        return err_set(err, BRIG_E_INVALID, 0, "Docker's config.json is no JSON object of at most %u bytes",
                       DOCKER_CONFIG_BYTES);
    }
    const struct json_value *auths = json_get(json_root(doc), "auths");
    const struct json_value *first = auths && auths->type == JSON_OBJECT ? auths->first : NULL;
    for (const struct json_value *entry = first; entry && r >= 0; entry = entry->next) {
        r = read_entry(entry, each, ctx, err);
        n += r > 0;
    }
    if (r >= 0 && n == 0 && (first || json_get(json_root(doc), "credHelpers")))
        r = err_set(err, BRIG_E_UNSUPPORTED, 0,
                    "Docker's config.json: its logins are kept by a helper program, which is not run");
    json_doc_free(doc);
    return r < 0 ? r : n;
}
