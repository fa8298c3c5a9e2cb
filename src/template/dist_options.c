/* SPDX-License-Identifier: Apache-2.0 */
/* dist_options.c: the client's copy of its options. Mirrors are judged here, once: a URL that no request may go to is
 * refused at the start. */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "template/distribution_priv.h"

static char *copy_text(const char *text)
{
    return mem_strdup(text ? text : "");
}

/* libcurl would not read HTTP_PROXY, which is right for CGI programs; brigd is none. */
static const char *from_environment(const char *lower, const char *upper)
{
    const char *text = getenv(lower);

    if (!text)
        text = getenv(upper);
    if (!text && !str_eq(lower, "no_proxy"))
        text = getenv("all_proxy") ? getenv("all_proxy") : getenv("ALL_PROXY");
    return text;
}

static int copy_lists(struct dist *dist, const struct dist_options *options, struct brig_err *err)
{
    dist->mirrors = mem_zalloc((options->n_mirrors + 1) * sizeof *dist->mirrors);
    dist->insecure = mem_zalloc((options->n_insecure + 1) * sizeof *dist->insecure);
    if (!dist->mirrors || !dist->insecure)
        return err_nomem(err);
    for (size_t i = 0; i < options->n_insecure; i++)
        if (!(dist->insecure[dist->n_insecure++] = mem_strdup(options->insecure[i])))
            return err_nomem(err);
    for (size_t i = 0; i < options->n_mirrors; i++) {
        int r = dist_url_check(dist, options->mirrors[i].url, false, err);
        if (r < 0)
            return r;
        struct dist_mirror *to = &dist->mirrors[dist->n_mirrors++];
        char *url = mem_strdup(options->mirrors[i].url);
        to->url = url;
        to->host = mem_strdup(options->mirrors[i].host);
        if (!to->host || !to->url)
            return err_nomem(err);
        for (size_t len = strlen(url); len > 0 && url[len - 1] == '/'; len--)
            url[len - 1] = '\0';
    }
    return 0;
}

int dist_options_copy(struct dist *dist, const struct dist_options *options, struct brig_err *err)
{
    dist->off = options->off;
    dist->attempts = options->attempts ? options->attempts : 5;
    dist->rest_ms = options->rest_ms ? options->rest_ms : 500;
    dist->connect_s = options->connect_s ? options->connect_s : 15;
    dist->stall_s = options->stall_s ? options->stall_s : 30;
    dist->proxy_http = copy_text(options->proxy ? options->proxy : from_environment("http_proxy", "HTTP_PROXY"));
    dist->proxy_https = copy_text(options->proxy ? options->proxy : from_environment("https_proxy", "HTTPS_PROXY"));
    dist->no_proxy = copy_text(options->no_proxy ? options->no_proxy : from_environment("no_proxy", "NO_PROXY"));
    if (!dist->proxy_http || !dist->proxy_https || !dist->no_proxy)
        return err_nomem(err);
    if (options->ca_file && options->ca_file[0] && !(dist->ca_file = mem_strdup(options->ca_file)))
        return err_nomem(err);
    return copy_lists(dist, options, err);
}

void dist_options_free(struct dist *dist)
{
    for (size_t i = 0; i < dist->n_mirrors; i++) {
        mem_free((char *)dist->mirrors[i].host);
        mem_free((char *)dist->mirrors[i].url);
    }
    for (size_t i = 0; i < dist->n_insecure; i++)
        mem_free(dist->insecure[i]);
    mem_free(dist->mirrors);
    mem_free(dist->insecure);
    mem_free(dist->proxy_http);
    mem_free(dist->proxy_https);
    mem_free(dist->no_proxy);
    mem_free(dist->ca_file);
}
