/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dist_auth.c: requests with a login. A registry answers 401 with a challenge. For Basic it gets user and password. For
 * Bearer we ask the token server that it names, with the login of this registry and of no other, and send the token. A
 * token is kept in wiping memory until shortly before it expires, by server, scope and login, and all threads share it.
 * A second 401 to the same request is the answer.
 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "crypto/crypto.h"
#include "crypto/keyring.h"
#include "template/distribution_priv.h"

#define TOKEN_BYTES (16u << 10)
#define TOKEN_ANSWER (64u << 10)
#define TOKENS_MAX 256u
#define TOKEN_LIFE_S 60u /* if the server does not say */
#define TOKEN_LIFE_MAX_S 3600u
#define TOKEN_EARLY_S 5u
#define AUTH_BYTES (TOKEN_BYTES + 16u)
#define KEY_BYTES (IMAGE_HOST + DIST_SCOPE + SHA256_HEX + 16u)

struct dist_token {
    struct dist_token *next;
    uint64_t until_ns;
    char key[KEY_BYTES];
    char *text; /* "Bearer ...", crypto_secret_alloc() */
    size_t size;
};

/* ---- the tokens that we have ------------------------------------------------------------------------------ */

static void token_free(struct dist_token *token)
{
    crypto_secret_free(token->text, token->size);
    mem_free(token);
}

void dist_tokens_free(struct dist *dist)
{
    for (struct dist_token *token; (token = dist->tokens);) {
        dist->tokens = token->next;
        token_free(token);
    }
}

/* Server, scope and login: a token of one login is not used for another. */
static int token_key(const struct dist_server *server, const char *scope, char out[KEY_BYTES])
{
    const struct dist_secret *login = &server->login;
    uint8_t sum[SHA256_SIZE];
    char hex[SHA256_HEX];

    if (crypto_sha256(login->memory ? login->memory : "", login->memory ? login->size : 0, sum) < 0)
        return -ENOMEM;
    crypto_hex(sum, sizeof sum, hex);
    return str_format(out, KEY_BYTES, "%s %s %s", server->address, scope, hex) < 0 ? -EINVAL : 0;
}

/* With the lock held: drops what is over, or too much (the list is newest first), and `key` if it is not NULL. */
static void tokens_trim(struct dist *dist, const char *key)
{
    uint64_t now = clock_mono_ns();
    unsigned n = 0;

    for (struct dist_token **at = &dist->tokens; *at;) {
        struct dist_token *token = *at;
        if (token->until_ns > now && (!key || !str_eq(token->key, key)) && ++n < TOKENS_MAX) {
            at = &token->next;
            continue;
        }
        *at = token->next;
        token_free(token);
    }
}

static bool token_find(struct dist *dist, const char *key, char out[AUTH_BYTES])
{
    bool found = false;

    pthread_mutex_lock(&dist->lock);
    tokens_trim(dist, NULL);
    for (const struct dist_token *token = dist->tokens; token && !found; token = token->next)
        found = str_eq(token->key, key) && str_copy(out, AUTH_BYTES, token->text) == 0;
    pthread_mutex_unlock(&dist->lock);
    return found;
}

/* Without memory it is not kept; that is all. */
static void token_keep(struct dist *dist, const char *key, const char *text, uint64_t life_s)
{
    struct dist_token *token = life_s > TOKEN_EARLY_S ? mem_zalloc(sizeof *token) : NULL;
    size_t size = strlen(text) + 1;

    if (token)
        token->text = crypto_secret_alloc(size);
    if (!token || !token->text) {
        mem_free(token);
        return;
    }
    memcpy(token->text, text, size);
    token->size = size;
    token->until_ns = clock_mono_ns() + (life_s - TOKEN_EARLY_S) * NS_PER_SEC;
    (void)!str_copy(token->key, sizeof token->key, key);
    pthread_mutex_lock(&dist->lock);
    tokens_trim(dist, key);
    token->next = dist->tokens;
    dist->tokens = token;
    pthread_mutex_unlock(&dist->lock);
}

/* ---- Basic ------------------------------------------------------------------------------------------------ */

static int basic_value(const struct dist_secret *login, char out[AUTH_BYTES])
{
    struct buf line = BUF_INIT(AUTH_BYTES - 1);
    char plain[4096];
    int len = str_format(plain, sizeof plain, "%s:%s", login->user, login->password);
    int r = len < 0 ? -EINVAL : buf_append_str(&line, "Basic ");

    if (r == 0)
        r = base64_append(&line, plain, (size_t)len);
    if (r == 0)
        r = str_copy(out, AUTH_BYTES, line.data);
    crypto_wipe(plain, sizeof plain);
    if (line.data)
        crypto_wipe(line.data, line.cap);
    buf_done(&line);
    return r;
}

static bool has_password(const struct dist_server *server)
{
    return server->login.memory && server->login.user[0];
}

static int needs_login(const struct dist_server *server, struct brig_err *err)
{
    bool has = server->login.memory != NULL;

    return err_set(err, BRIG_E_FORBIDDEN, 0,
                   has ? "%.100s refuses the login" : "%.100s wants a login, or has no such image", server->host);
}

/* ---- asking for a token ----------------------------------------------------------------------------------- */

/* The token and how long it lives; what is no token of visible ASCII never becomes a field. */
static int read_token(const struct dist_server *server, const struct buf *answer, char out[AUTH_BYTES],
                      uint64_t *ret_life_s, struct brig_err *err)
{
    struct json_doc *doc = NULL;
    int r = -EINVAL;

    if (json_read(answer->data ? answer->data : "", answer->len, 4096, &doc, NULL) == 0) {
        const struct json_value *token = json_get(json_root(doc), "token");
        const struct json_value *life = json_get(json_root(doc), "expires_in");
        if (!token || token->type != JSON_STRING || token->len == 0)
            token = json_get(json_root(doc), "access_token");
        bool ok = token && token->type == JSON_STRING && token->len > 0 && token->len <= TOKEN_BYTES;
        for (size_t i = 0; ok && i < token->len; i++)
            ok = token->string[i] > ' ' && token->string[i] < 0x7f;
        if (ok && str_format(out, AUTH_BYTES, "Bearer %s", token->string) > 0)
            r = 0;
        *ret_life_s =
            life && life->type == JSON_NUMBER && life->integer && life->i64 > 0 ? (uint64_t)life->i64 : TOKEN_LIFE_S;
        if (*ret_life_s > TOKEN_LIFE_MAX_S)
            *ret_life_s = TOKEN_LIFE_MAX_S;
    }
    json_doc_free(doc);
    return r == 0 ? 0 : err_set(err, BRIG_E_INVALID, 0, "%.100s: its token server gave no token", server->host);
}

static int append(struct buf *to, const char *between, const char *name, const char *value)
{
    char *escaped = curl_easy_escape(NULL, value, 0);
    int r = escaped ? buf_printf(to, "%s%s=%s", between, name, escaped) : -ENOMEM;

    if (escaped)
        crypto_wipe(escaped, strlen(escaped));
    curl_free(escaped);
    return r;
}

/* The URL, and the form if there is a refresh token. */
static int make_question(const struct dist_server *server, const struct dist_challenge *challenge, struct buf *url,
                         struct buf *form)
{
    const bool refresh = server->login.memory && server->login.identity_token[0];
    struct buf *to = refresh ? form : url;
    const char *sep = refresh || strchr(challenge->realm, '?') ? "&" : "?";
    int r = buf_append_str(url, challenge->realm);

    if (r == 0 && refresh)
        r = buf_append_str(form, "grant_type=refresh_token&client_id=brig");
    if (r == 0 && refresh)
        r = append(form, sep, "refresh_token", server->login.identity_token);
    if (r == 0 && challenge->service[0]) {
        r = append(to, sep, "service", challenge->service);
        sep = "&";
    }
    if (r == 0 && challenge->scope[0]) {
        r = append(to, sep, "scope", challenge->scope);
        sep = "&";
    }
    if (r == 0 && !refresh && has_password(server))
        r = append(to, sep, "account", server->login.user);
    return r;
}

static int ask_token(struct dist_fetch *fetch, struct dist_server *server, const struct dist_challenge *challenge,
                     char out[AUTH_BYTES], uint64_t *ret_life_s, struct dist_reply *reply, struct brig_err *err)
{
    AUTO_BUF struct buf url = BUF_INIT(2 * DIST_URL);
    struct buf form = BUF_INIT(64u << 10), answer = BUF_INIT(TOKEN_ANSWER);
    char basic[AUTH_BYTES] = "";
    int r = dist_url_check(fetch->dist, challenge->realm, str_starts(server->url, "https:"), err);

    if (r == 0 && (make_question(server, challenge, &url, &form) < 0 || buf_append(&answer, "", 0) < 0 ||
                   (form.len == 0 && has_password(server) && basic_value(&server->login, basic) < 0)))
        r = err_set(err, BRIG_E_INVALID, 0, "%.100s: the login or the challenge is too long", server->host);
    if (r == 0) {
        const struct dist_get get = {.url = url.data,
                                     .accept = "application/json",
                                     .authorization = basic[0] ? basic : NULL,
                                     .form = form.len > 0 ? form.data : NULL,
                                     .server = server,
                                     .total_s = 60,
                                     .body = &answer};
        r = dist_request(fetch, &get, reply, err);
    }
    if (r == 0 && (reply->status == 400 || reply->status == 401 || reply->status == 403))
        r = needs_login(server, err);
    else if (r == 0 && reply->status != 200)
        r = dist_status_error(server, "its token server", reply, err);
    if (r == 0)
        r = read_token(server, &answer, out, ret_life_s, err);
    crypto_wipe(basic, sizeof basic);
    if (answer.data)
        crypto_wipe(answer.data, answer.cap);
    if (form.data)
        crypto_wipe(form.data, form.cap);
    buf_done(&answer);
    buf_done(&form);
    return r;
}

/* ---- a request -------------------------------------------------------------------------------------------- */

/* What the challenge of a 401 asks for. */
static int authorize(struct dist_fetch *fetch, struct dist_server *server, const char *scope, const char *key,
                     char out[AUTH_BYTES], struct dist_reply *reply, struct brig_err *err)
{
    struct dist_challenge challenge;
    uint64_t life_s = 0;

    if (dist_challenge_parse(reply->challenge, &challenge) < 0 || (!challenge.bearer && !challenge.basic))
        return err_set(err, BRIG_E_INVALID, 0, "%.100s: its challenge \"%.60s\" is not supported", server->host,
                       reply->challenge);
    if (!challenge.bearer) {
        if (!has_password(server))
            return needs_login(server, err);
        server->basic = true;
        return basic_value(&server->login, out) < 0
                   ? err_set(err, BRIG_E_INVALID, 0, "%.100s: the login is too long", server->host)
                   : 0;
    }
    if (!challenge.scope[0] && scope[0] && str_copy(challenge.scope, sizeof challenge.scope, scope) < 0)
        return err_set(err, BRIG_E_INVALID, 0, "%.100s: the scope is too long", server->host);
    int r = ask_token(fetch, server, &challenge, out, &life_s, reply, err);
    if (r == 0)
        token_keep(fetch->dist, key, out, life_s);
    return r;
}

int dist_request_as(struct dist_fetch *fetch, struct dist_get *get, const char *scope, struct dist_reply *reply,
                    struct brig_err *err)
{
    char key[KEY_BYTES], value[AUTH_BYTES] = "";
    struct dist_server *server = get->server;

    get->server_itself = true;
    if (token_key(server, scope, key) < 0)
        return err_nomem(err);
    if (server->basic ? basic_value(&server->login, value) == 0 : token_find(fetch->dist, key, value))
        get->authorization = value;
    int r = dist_request(fetch, get, reply, err);
    if (r == 0 && reply->status == 401) {
        r = authorize(fetch, server, scope, key, value, reply, err);
        get->authorization = value;
        if (r == 0)
            r = dist_request(fetch, get, reply, err);
        if (r == 0 && reply->status == 401)
            r = needs_login(server, err);
    }
    get->authorization = NULL;
    crypto_wipe(value, sizeof value);
    return r;
}
