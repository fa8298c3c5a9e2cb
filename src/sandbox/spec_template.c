/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec_template.c: what the name of a template means. A name is looked for in this order: `host`; the templates of the
 * organisation; those that all organisations share; `python:VERSION`, which others write and which is the host's own
 * root here; the directory of `[sandbox] templates`. A template of layers is copied into the spec: the sandbox keeps
 * what the name meant when it was asked for, also over a restart, and a name may move meanwhile.
 */
#include <sys/stat.h>

#include "base/ascii.h"
#include "host/limits.h"
#include "records/disks/snapshots.h"
#include "sandbox/private.h"

/* Others call it "python:3.12-slim"; here it is the host's own python, and a note says so if the version differs. */
static void note_python(const char *name, char *note, size_t size)
{
    char target[256];
    const char *asked = name + strlen("python:");
    ssize_t n = readlink("/usr/bin/python3", target, sizeof target - 1);
    size_t len = strspn(asked, "0123456789.");

    target[n > 0 ? n : 0] = '\0';
    const char *have = strstr(target, "python3");
    have = have ? have + strlen("python") : "";
    while (len > 0 && asked[len - 1] == '.')
        len--;
    if (!have[0])
        snprintf(note, size, "template %s is the host's root here, which has no python3", name);
    else if (len == 0 || strncmp(have, asked, len) != 0 || (have[len] != '\0' && have[len] != '.'))
        snprintf(note, size, "template %s is the host's root here, with python %s", name, have);
}

static int find_directory(const char *name, const struct config *config, struct template_place *ret,
                          struct brig_err *err)
{
    struct stat st;

    if (!str_is_name(name, strlen(name), ASCII_ALNUM "_:", ASCII_ALNUM "_.:-"))
        return err_usage(err, "template %s: must be a name of [A-Za-z0-9_.:-]", name);
    if (config->templates && config->templates[0])
        for (int tar = 0; tar < 2; tar++) {
            int r = str_format(ret->rootfs, sizeof ret->rootfs, "%s/%s%s", config->templates, name, tar ? ".tar" : "");
            if (r > 0 && stat(ret->rootfs, &st) == 0 && (tar ? S_ISREG(st.st_mode) : S_ISDIR(st.st_mode)))
                return 0;
        }
    ret->rootfs[0] = '\0';
    return err_usage(err, "template %s: nothing here can supply it", name);
}

int spec_template(const char *name, const struct config *config, const struct templates *templates, const char *org,
                  bool admin, struct template_place *ret, struct brig_err *err)
{
    *ret = (struct template_place){.object = NULL};
    if (str_eq(name, "host"))
        return 0;
    ret->object = templates ? templates_find(templates, org, name) : NULL;
    if (ret->object)
        return 0;
    if (str_starts(name, "python:")) {
        note_python(name, ret->note, sizeof ret->note);
        return 0;
    }
    if (name[0] != '/')
        return find_directory(name, config, ret, err);
    if (!admin)
        return err_set(err, BRIG_E_FORBIDDEN, 0, "template %s: paths are only for administrators", name);
    int r = check_inside_path("template", name, err);
    if (r < 0)
        return r;
    return str_copy(ret->rootfs, sizeof ret->rootfs, name) < 0 ? err_usage(err, "template: too long") : 0;
}

/* One that a request could not name either is not used. */
static void take_workdir(struct sbox_spec *spec, const char *workdir)
{
    struct brig_err why = {0};

    if (!workdir[0])
        return;
    spec->workdir_of_image = check_inside_path("the working directory of the image", workdir, &why) == 0 &&
                             str_copy(spec->workdir, sizeof spec->workdir, workdir) >= 0;
    if (!spec->workdir_of_image)
        snprintf(spec->note, sizeof spec->note, "%.128s: %.100s is used", why.message, spec->workdir);
}

int spec_template_use(struct sbox_spec *spec, const struct config *config, const struct templates *templates,
                      const struct caller *caller, bool workdir_given, bool user_given, struct brig_err *err)
{
    struct template_place place;

    if (spec->engine_image[0]) {
        /* An engine has images of whoever uses it, and fetches those that it does not have. */
        if (!caller_is_admin(caller))
            return err_set(err, BRIG_E_FORBIDDEN, 0, "image %.128s: images of an engine are only for administrators",
                           spec->engine_image);
        (void)!str_copy(spec->template_name, sizeof spec->template_name, "host");
        return 0;
    }
    int r = spec_template(spec->template_name, config, templates, caller->org_id, caller_is_admin(caller), &place, err);
    if (r < 0)
        return r;
    str_assign(spec->note, place.note);
    if (!place.object)
        return 0;
    r = template_copy(place.object, &spec->image, err);
    if (r < 0)
        return r;
    if (!user_given && (r = spec_user_of_image(spec, spec->image->info.image.user, err)) < 0)
        return r;
    if (!workdir_given)
        take_workdir(spec, spec->image->info.image.workdir);
    return 0;
}

int spec_template_disk(struct sbox_spec *spec, bool disk_given, bool writable_root_given, struct brig_err *err)
{
    const struct template_info *info = &spec->image->info;

    if (disk_given && spec->limits.disk != info->disk_size)
        return err_usage(err, "limits.disk %llu: template %s has a disk of %llu bytes, and its copies have that size",
                         (unsigned long long)spec->limits.disk, spec->template_name,
                         (unsigned long long)info->disk_size);
    if (writable_root_given && info->writable_root && !spec->writable_root)
        return err_usage(err, "writable_root: template %s has files in a writable root, so it must be true",
                         spec->template_name);
    spec->limits.disk = info->disk_size;
    spec->limits.inodes = info->disk_inodes;
    spec->writable_root = spec->writable_root || info->writable_root;
    return 0;
}

int sbox_template_check(const char *name, const struct config *config, const struct templates *templates,
                        const struct caller *caller, struct brig_err *err)
{
    struct template_place place;

    if (strlen(name) >= sizeof((struct sbox_spec *)0)->template_name)
        return err_usage(err, "template %.64s: too long", name);
    return spec_template(name, config, templates, caller->org_id, caller_is_admin(caller), &place, err);
}

const struct template_image *sbox_image(const struct sbox *sbox)
{
    return sbox->spec.image ? &sbox->spec.image->info.image : NULL;
}

bool sbox_has_own_root(const struct sbox *sbox)
{
    const struct sbox_spec *spec = &sbox->spec;
    const char *base = spec->image ? spec->image->info.base : spec->template_name;

    return spec->engine_image[0] || (!str_eq(base, "host") && !str_starts(base, "python:"));
}

/* ---- what is in use ------------------------------------------------------------------------------------ */

struct templates *manager_templates(const struct manager *manager)
{
    return manager->templates;
}

static bool list_uses_layer(const struct sbox *first, const char *layer)
{
    for (const struct sbox *s = first; s; s = s->next)
        for (size_t i = 0; s->spec.image && i < s->spec.image->info.n_layers; i++)
            if (str_eq(s->spec.image->info.layers[i], layer))
                return true;
    return false;
}

bool manager_uses_layer(const struct manager *manager, const char *layer)
{
    return list_uses_layer(manager->first, layer) || list_uses_layer(manager->children, layer) ||
           (manager->snapshots && snapshots_have_layer(manager->snapshots, layer));
}

static size_t list_uses_template(const struct sbox *first, const char *org, const char *name)
{
    size_t n = 0;

    for (const struct sbox *s = first; s; s = s->next) /* parked ones are ended when the template goes */
        n += !s->priv->parked && s->spec.image && str_eq(s->spec.image->org, org) && str_eq(s->spec.image->name, name);
    return n;
}

size_t manager_uses_template(const struct manager *manager, const char *org, const char *name)
{
    return list_uses_template(manager->first, org, name) + list_uses_template(manager->children, org, name);
}
