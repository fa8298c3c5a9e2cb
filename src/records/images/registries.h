/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registries.h: the logins of an organisation at image registries: kind "registry", whose id is the host. The password
 * is sealed as secrets are (sealed_value.h), and no answer has it.
 */
#ifndef BRIG_RECORDS_REGISTRIES_H
#define BRIG_RECORDS_REGISTRIES_H

#include "crypto/keyring.h"
#include "records/objects.h"
#include "records/rotate.h"

#define REGISTRY_HOST_MAX 128u /* with its NUL; HOST or HOST:PORT */
#define REGISTRY_USER_MAX 256u
#define REGISTRY_PASSWORD_MAX 16384u /* a token may be long */
#define REGISTRIES_PER_ORG 100u

struct registries;
int registries_create(struct store *store, const struct keyring *ring, bool plain, struct registries **ret,
                      struct brig_err *err) MUST_CHECK;
void registries_destroy(struct registries *registries);
struct objects *registries_objects(struct registries *registries);
const char *registry_user(const struct object *object);

/* BRIG_E_USAGE for a host that is none; BRIG_E_CONFLICT without a key to seal with. */
int registries_put(struct registries *registries, const char *org, const char *host, const char *user,
                   const char *password, objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
int registries_delete(struct registries *registries, const char *org, const char *host, objects_done_fn *done,
                      void *ctx, struct brig_err *err) MUST_CHECK;

struct registry_login {
    char user[REGISTRY_USER_MAX];
    char *password; /* in wiping memory */
    size_t len;
};
/* Opens a login. Returns 1, or 0 if there is none, or an error if it does not open (BRIG_E_REFUSED). */
int registries_login(const struct registries *registries, const char *org, const char *host,
                     struct registry_login *ret) MUST_CHECK;
void registry_login_done(struct registry_login *login);
/* Seals the passwords of all organisations with the current key. */
int registries_rotate(struct registries *registries, rotate_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;

#endif
