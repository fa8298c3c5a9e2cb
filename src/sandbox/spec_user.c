/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec_user.c: whose the programs of a sandbox are. "user" (uid 1000) and "root" (root inside) are ours and known here.
 * Every other user is a name or a number that brig-init looks up in the sandbox's own files (guest/init/who.c), because
 * only inside it is known what an image says. A sandbox has root inside only if root was asked for by this name or by
 * number: a name that turns out to be uid 0 is refused.
 */
#include "codec/passwd.h"
#include "codec/sudo_args.h"
#include "sandbox/private.h"

#define RULE "must be NAME or UID, and :GROUP or :GID if you like; ids are below %u"

int spec_user(const struct json_value *v, const char **ret, struct brig_err *err)
{
    struct user_text parts;
    const char *text;
    int r = spec_string(v, "user", USER_TEXT_MAX - 1, false, &text, err);

    if (r < 0)
        return r;
    if (user_text_parse(text, strlen(text), &parts) < 0)
        return err_usage(err, "user \"%s\": " RULE, text, USER_ID_MAX + 1);
    *ret = text;
    return 0;
}

int spec_user_of_image(struct sbox_spec *spec, const char *user, struct brig_err *err)
{
    struct user_text parts;

    if (!user[0])
        return 0;
    if (strlen(user) >= USER_TEXT_MAX || user_text_parse(user, strlen(user), &parts) < 0)
        return err_set(err, BRIG_E_REFUSED, 0, "template %s: its user \"%.64s\" " RULE "; name one (--user)",
                       spec->template_name, user, USER_ID_MAX + 1);
    return str_copy(spec->user, sizeof spec->user, user); /* its length is known */
}

bool spec_has_root(const struct sbox_spec *spec)
{
    return user_text_is_root(spec->user);
}

bool spec_root_inside(const struct sbox_spec *spec)
{
    return spec->sudo || spec_has_root(spec);
}

/* What is mounted there would hide the program. */
static int check_place(const char *target, struct brig_err *err)
{
    size_t len = strlen(target);

    if (len == 1 || (str_starts(SUDO_PLACE, target) && (SUDO_PLACE[len] == '/' || SUDO_PLACE[len] == '\0')))
        return err_usage(err, "sudo: its program is " SUDO_PLACE ", so nothing can be mounted at %s", target);
    return 0;
}

int spec_sudo_check(const struct sbox_spec *spec, struct brig_err *err)
{
    int r = 0;

    if (!spec->sudo)
        return 0;
    if (spec->require & BRIG_LAYER_BIT(BRIG_LAYER_CAPS))
        return err_set(err, BRIG_E_REFUSED, 0,
                       "sudo: root has capabilities inside, so the layer caps cannot be required (nor all layers)");
    for (size_t i = 0; r == 0 && i < spec->n_binds; i++)
        r = check_place(spec->binds[i].target, err);
    for (size_t i = 0; r == 0 && i < spec->n_volumes; i++)
        r = check_place(spec->volumes[i].target, err);
    return r;
}

const char *spec_user_to_find(const struct sbox_spec *spec)
{
    bool ours = str_eq(spec->user, "root") || str_eq(spec->user, "user");
    /* An image may have a user of its own that is called so. */
    bool theirs = str_eq(spec->user, "user") && spec->image && str_eq(spec->image->info.image.user, "user");

    return ours && !theirs && (!spec->sudo || spec_has_root(spec)) ? NULL : spec->user;
}

bool spec_has_users(const struct sbox_spec *spec)
{
    return spec_root_inside(spec) || spec->image;
}

int user_not_found(const char *user, uint32_t errnum, struct brig_err *err)
{
    switch (errnum) {
    case ENOTCONN: return err_set(err, BRIG_E_GONE, 0, "the sandbox has ended");
    case ESRCH:
        return err_usage(err, "user %s: neither /etc/passwd nor /etc/group of the sandbox has such a name", user);
    case EPERM:
        return err_set(err, BRIG_E_REFUSED, 0, "user %s: is root, and the sandbox has no root inside (--user root)",
                       user);
    case EINVAL:
        return err_set(err, BRIG_E_REFUSED, 0,
                       "user %s: the sandbox does not map this id, or its /etc/passwd or /etc/group is no plain file",
                       user);
    case EFBIG: return err_set(err, BRIG_E_REFUSED, 0, "user %s: /etc/passwd or /etc/group has more than 1 MiB", user);
    case E2BIG: return err_set(err, BRIG_E_REFUSED, 0, "user %s: has more than %u groups", user, USER_GROUPS_MAX);
    default: return err_set(err, BRIG_E_HOST, (int)errnum, "user %s", user);
    }
}
