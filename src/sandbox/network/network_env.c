/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_env.c: the variables that a sandbox's network and secrets put into programs: placeholders (or, if exposed,
 * the values themselves), and the place of the CA bundle, for programs that do not look where the system has it.
 */
#include "sandbox/private.h"

#define BUNDLE "/etc/ssl/certs/ca-certificates.crt"

/* OpenSSL and what is built on it, Python's requests, curl, Node, git, the AWS SDKs, Deno, pip, Cargo, gRPC. Go reads
 * SSL_CERT_FILE; Java has its own store. */
static const char *const bundle_names[] = {
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE", "DENO_CERT",          "PIP_CERT",       "CARGO_HTTP_CAINFO",   "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
};

size_t network_env(struct sbox *sbox, bool weak, struct sbox_pair out[NETWORK_ENV_MAX])
{
    const struct sbox_network *net = sbox->priv->network;
    size_t n = 0;

    if (!net)
        return 0;
    if (weak) {
        for (size_t i = 0; net->trust && i < ARRAY_SIZE(bundle_names); i++)
            out[n++] = (struct sbox_pair){bundle_names[i], BUNDLE};
        return n;
    }
    for (size_t i = 0; i < sbox->spec.n_secrets; i++) {
        const char *value = net->exposed[i] ? (const char *)net->exposed[i] : net->placeholders[i];
        out[n++] = (struct sbox_pair){sbox->spec.secrets[i].env, value};
    }
    return n;
}
