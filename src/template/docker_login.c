/* SPDX-License-Identifier: Apache-2.0 */
/* docker_login.c: finds a login in the text of Docker's config.json. The texts of a login are only ever in wiping
 * memory: the JSON reader's own, and the one that is handed out. */
#include "template/docker_login.h"

#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/str.h"
#include "codec/json/json_read.h"
#include "crypto/keyring.h"

/* Is a key of "auths" this host? Keys may have a scheme and a path: "https://registry.example/v2/". */
static bool is_for(const char *key, const char *host)
{
    const char *scheme = strstr(key, "://");
    const char *at = scheme ? scheme + 3 : key;
    size_t len = strcspn(at, "/");

    if (str_eq(host, "docker.io"))
        return (len == strlen("index.docker.io") && strncasecmp(at, "index.docker.io", len) == 0) ||
               (len == strlen("docker.io") && strncasecmp(at, "docker.io", len) == 0);
    return len == strlen(host) && strncasecmp(at, host, len) == 0;
}

static const struct json_value *find_key(const struct json_value *object, const char *host)
{
    for (const struct json_value *item = object && object->type == JSON_OBJECT ? object->first : NULL; item;
         item = item->next)
        if (is_for(item->key, host))
            return item;
    return NULL;
}

static bool is_text(const struct json_value *value)
{
    return value && value->type == JSON_STRING && value->len > 0 && !memchr(value->string, '\0', value->len);
}

/* USER:PASSWORD from base64, and the token behind it. */
static int take_login(const struct json_value *entry, const char *host, struct docker_login *ret, struct brig_err *err)
{
    const struct json_value *auth = json_get(entry, "auth"), *token = json_get(entry, "identitytoken");
    const size_t auth_len = is_text(auth) ? auth->len : 0, token_len = is_text(token) ? token->len : 0;
    struct docker_login login = {.size = auth_len + token_len + 3};
    size_t len = 0;

    login.memory = crypto_secret_alloc(login.size);
    if (!login.memory)
        return err_nomem(err);
    if (auth_len > 0 && crypto_unbase64(auth->string, auth_len, login.memory, auth_len, &len) < 0) {
        docker_login_done(&login);
        return err_set(err, BRIG_E_INVALID, 0, "Docker's config.json: auth of %.100s is no base64", host);
    }
    login.memory[len] = '\0';
    char *colon = memchr(login.memory, ':', len);
    if (len > 0 && (!colon || memchr(login.memory, '\0', len))) {
        docker_login_done(&login);
        return err_set(err, BRIG_E_INVALID, 0, "Docker's config.json: auth of %.100s is no USER:PASSWORD", host);
    }
    if (colon) {
        *colon = '\0';
        login.login.user = login.memory;
        login.login.password = colon + 1;
    }
    if (token_len > 0) {
        memcpy(login.memory + auth_len + 1, token->string, token_len + 1);
        login.login.identity_token = login.memory + auth_len + 1;
    }
    *ret = login;
    return 1;
}

int docker_login_find(const char *text, size_t len, const char *host, struct docker_login *ret, struct brig_err *err)
{
    struct json_doc *doc = NULL;
    int r = 0;

    if (len > DOCKER_CONFIG_BYTES || json_read(text, len, 4096, &doc, NULL) < 0 ||
        json_root(doc)->type != JSON_OBJECT) {
        json_doc_free(doc);
        return err_set(err, BRIG_E_INVALID, 0, "Docker's config.json is no JSON object of at most %u bytes",
                       DOCKER_CONFIG_BYTES);
    }
    const struct json_value *root = json_root(doc), *entry = find_key(json_get(root, "auths"), host);
    const bool has = is_text(json_get(entry, "auth")) || is_text(json_get(entry, "identitytoken"));
    if (find_key(json_get(root, "credHelpers"), host) || (!has && entry && is_text(json_get(root, "credsStore"))))
        r = err_set(err, BRIG_E_UNSUPPORTED, 0,
                    "Docker's config.json: the login of %.100s is kept by a helper program, which is not run", host);
    else if (has)
        r = take_login(entry, host, ret, err);
    json_doc_free(doc);
    return r;
}

void docker_login_done(struct docker_login *login)
{
    crypto_secret_free(login->memory, login->size);
    *login = (struct docker_login){0};
}
