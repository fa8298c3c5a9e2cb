/* SPDX-License-Identifier: Apache-2.0 */
/* Documents of images: one text through every parser. What passes keeps its promises: digests, counts, absolute
 * paths, variables with a name; what is refused has a message. */
#include "fuzz.h"

#include "template/manifest.h"

static void check_manifest(const struct manifest *manifest)
{
    struct platform platform;
    const struct manifest_entry *entry;
    struct brig_err err = {0};

    platform_host(&platform);
    if (!manifest->is_index) {
        FUZZ_CHECK(digest_ok(manifest->config.digest) && manifest->n_layers <= IMAGE_LAYERS_MAX);
        for (size_t i = 0; i < manifest->n_layers; i++)
            FUZZ_CHECK(digest_ok(manifest->layers[i].digest) && layer_format_name(manifest->layers[i].format));
    } else if (manifest_choose(manifest, &platform, &entry, &err) == 0) {
        FUZZ_CHECK(digest_ok(entry->desc.digest));
    }
}

static void check_config(const struct image_config *config)
{
    FUZZ_CHECK(config->diff_ids.n == 2 && config->chain_ids.n == 2);
    FUZZ_CHECK(digest_ok(config->chain_ids.items[1]) && config->label_keys.n == config->label_values.n);
    FUZZ_CHECK(!config->workdir[0] || config->workdir[0] == '/');
    for (size_t i = 0; i < config->env.n; i++)
        FUZZ_CHECK(strchr(config->env.items[i], '=') > config->env.items[i]);
    FUZZ_CHECK(config->has_entrypoint || config->entrypoint.n == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = size ? (const char *)data : "";
    struct manifest *manifest = NULL;
    struct image_config *config = NULL;
    struct archive_manifest *archive = NULL;
    struct brig_err err = {0};

    if (manifest_parse(text, size, NULL, &manifest, &err) == 0)
        check_manifest(manifest);
    else
        FUZZ_CHECK(err.message[0]);
    if (image_config_parse(text, size, 2, &config, &err) == 0)
        check_config(config);
    if (archive_manifest_parse(text, size, &archive, &err) == 0)
        FUZZ_CHECK(archive->n_images > 0 && archive->images[0].config[0]);
    (void)!archive_layout_check(text, size, &err);
    manifest_free(manifest);
    image_config_free(config);
    archive_manifest_free(archive);
    return 0;
}
