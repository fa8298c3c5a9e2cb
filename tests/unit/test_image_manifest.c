/* SPDX-License-Identifier: Apache-2.0 */
/* Documents of images: what they say arrives, and every lie and every foreign type is refused by name. */
#include "unit.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "template/manifest.h"

#define OCI_INDEX "application/vnd.oci.image.index.v1+json"
#define OCI_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define DOCKER_LIST "application/vnd.docker.distribution.manifest.list.v2+json"
#define DOCKER_MANIFEST "application/vnd.docker.distribution.manifest.v2+json"
#define DA "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define DB "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define DC "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
#define CONFIG \
    "\"config\":{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\"digest\":\"" DA "\",\"size\":7}"
#define LAYER(type) "{\"mediaType\":\"application/vnd." type "\",\"digest\":\"" DB "\",\"size\":9}"
#define MANIFEST(layers) "{\"schemaVersion\":2," CONFIG ",\"layers\":[" layers "]}"

static struct manifest *parsed(const char *text, const char *type)
{
    struct manifest *manifest = NULL;
    struct brig_err err = {0};

    if (manifest_parse(text, strlen(text), type, &manifest, &err) < 0)
        fail_msg("%s", err.message);
    return manifest;
}

static void refused(const char *text, const char *type, const char *why)
{
    struct manifest *manifest = NULL;
    struct brig_err err = {0};

    assert_true(manifest_parse(text, strlen(text), type, &manifest, &err) < 0);
    assert_null(manifest);
    assert_string_equal(err.message, why);
    assert_int_equal(err.code, BRIG_E_INVALID);
}

static void manifests_of_both_kinds(void **state)
{
    (void)state;
    struct manifest *m = parsed(MANIFEST(LAYER("oci.image.layer.v1.tar") "," LAYER(
                                    "oci.image.layer.v1.tar+gzip") "," LAYER("oci.image.layer.v1.tar+zstd")),
                                OCI_MANIFEST);
    assert_false(m->is_index);
    assert_string_equal(m->config.digest, DA);
    assert_int_equal(m->config.size, 7);
    assert_int_equal(m->n_layers, 3);
    assert_string_equal(m->layers[0].digest, DB);
    assert_int_equal(m->layers[2].size, 9);
    assert_string_equal(layer_format_name(m->layers[0].format), "tar");
    assert_string_equal(layer_format_name(m->layers[1].format), "tar+gzip");
    assert_string_equal(layer_format_name(m->layers[2].format), "tar+zstd");
    manifest_free(m);
    m = parsed("{\"schemaVersion\":2,\"mediaType\":\"" DOCKER_MANIFEST "\",\"config\":{\"mediaType\":"
               "\"application/vnd.docker.container.image.v1+json\",\"digest\":\"" DA
               "\",\"size\":7},\"layers\":[" LAYER("docker.image.rootfs.diff.tar.gzip") "]}",
               NULL);
    assert_false(m->is_index);
    assert_string_equal(m->media_type, DOCKER_MANIFEST);
    assert_int_equal(m->layers[0].format, LAYER_TAR_GZIP);
    manifest_free(m);
    manifest_free(NULL);
}

static void foreign_types_are_named(void **state)
{
    (void)state;
    refused("{\"schemaVersion\":1,\"name\":\"x\",\"fsLayers\":[]}", NULL,
            "manifest: schema 1 (application/vnd.docker.distribution.manifest.v1+json) is not supported");
    refused("{\"schemaVersion\":1}", "application/vnd.docker.distribution.manifest.v1+prettyjws",
            "manifest: schema 1 (application/vnd.docker.distribution.manifest.v1+prettyjws) is not supported");
    refused(MANIFEST(""), "text/html", "manifest: the media type text/html is not supported");
    refused(MANIFEST(LAYER("docker.image.rootfs.foreign.diff.tar.gzip")), OCI_MANIFEST,
            "manifest: a foreign layer (application/vnd.docker.image.rootfs.foreign.diff.tar.gzip) is not supported");
    refused(MANIFEST(LAYER("oci.image.layer.nondistributable.v1.tar+gzip")), OCI_MANIFEST,
            "manifest: a foreign layer (application/vnd.oci.image.layer.nondistributable.v1.tar+gzip) is not "
            "supported");
    refused(MANIFEST(LAYER("cncf.helm.chart.content.v1.tar+gzip")), OCI_MANIFEST,
            "manifest: a layer of type application/vnd.cncf.helm.chart.content.v1.tar+gzip is not supported");
    refused("{\"schemaVersion\":2,\"artifactType\":\"application/vnd.x\"," CONFIG ",\"layers\":[]}", OCI_MANIFEST,
            "manifest: it is no image but an artefact of type application/vnd.x");
    refused("{\"schemaVersion\":2,\"config\":{\"mediaType\":\"application/vnd.cncf.helm.config.v1+json\",\"digest\":"
            "\"" DA "\",\"size\":1},\"layers\":[]}",
            OCI_MANIFEST,
            "manifest: it is no image: its configuration is of type application/vnd.cncf.helm.config.v1+json");
}

static void lies_are_refused(void **state)
{
    (void)state;
    refused("{\"schemaVersion\":2,\"mediaType\":\"" OCI_MANIFEST "\"," CONFIG ",\"layers\":[]}", OCI_INDEX,
            "manifest: it came as " OCI_INDEX " and says that it is " OCI_MANIFEST);
    refused("{\"schemaVersion\":2,\"manifests\":[]," CONFIG ",\"layers\":[]}", OCI_MANIFEST,
            "manifest: it has both manifests and layers");
    refused("{\"schemaVersion\":2,\"manifests\":[]}", OCI_MANIFEST, "manifest: layers is missing");
    refused(MANIFEST(""), OCI_INDEX, "manifest: manifests is missing");
    refused("{\"schemaVersion\":3," CONFIG ",\"layers\":[]}", OCI_MANIFEST, "manifest: schemaVersion must be 2");
    refused("{" CONFIG ",\"layers\":[]}", OCI_MANIFEST, "manifest: schemaVersion must be 2");
    refused("{\"schemaVersion\":2,\"layers\":[]}", OCI_MANIFEST, "manifest: config is missing");
    refused("{\"schemaVersion\":2," CONFIG ",\"layers\":null}", OCI_MANIFEST, "manifest: layers is null");
    refused("{\"schemaVersion\":2," CONFIG ",\"layers\":{}}", OCI_MANIFEST,
            "manifest: layers must be an array, not an object");
    refused("{\"schemaVersion\":2," CONFIG ",\"layers\":[7]}", OCI_MANIFEST,
            "manifest: a descriptor must be an object");
    refused("[]", OCI_MANIFEST, "manifest: it must be an object, not an array");
    refused("{\"schemaVersion\":2,\"config\":{\"digest\":\"sha256:00\",\"size\":1},\"layers\":[]}", OCI_MANIFEST,
            "manifest: digest \"sha256:00\": a digest is sha256: and 64 lower-case hexadecimal digits");
    refused("{\"schemaVersion\":2,\"config\":{\"digest\":\"" DA "\"},\"layers\":[]}", OCI_MANIFEST,
            "manifest: " DA " has no size");
    refused("{\"schemaVersion\":2,\"config\":{\"digest\":\"" DA "\",\"size\":-1},\"layers\":[]}", OCI_MANIFEST,
            "manifest: size must be a whole number from 0 to 8388608");
    refused("{\"schemaVersion\":2,\"config\":{\"digest\":\"" DA "\",\"size\":8388609},\"layers\":[]}", OCI_MANIFEST,
            "manifest: size must be a whole number from 0 to 8388608");
    refused("{\"schemaVersion\":2,\"config\":{\"mediaType\":\"a\\u0000b\",\"digest\":\"" DA "\",\"size\":1},"
            "\"layers\":[]}",
            OCI_MANIFEST, "manifest: mediaType \"a\" has a NUL");

    struct brig_err err = {0};
    struct manifest *m = NULL;
    char *text = mem_zalloc(MANIFEST_BYTES + 2);
    assert_non_null(text);
    memset(text, ' ', MANIFEST_BYTES + 1);
    assert_true(manifest_parse(text, MANIFEST_BYTES + 1, OCI_MANIFEST, &m, &err) < 0);
    assert_string_equal(err.message, "manifest: longer than 4194304 bytes");
    size_t at = (size_t)str_format(text, MANIFEST_BYTES, "{\"schemaVersion\":2," CONFIG ",\"layers\":[");
    for (unsigned i = 0; i < IMAGE_LAYERS_MAX + 1; i++)
        at += (size_t)str_format(text + at, MANIFEST_BYTES - at, "%s%s", i ? "," : "", LAYER("oci.image.layer.v1.tar"));
    (void)!str_format(text + at, MANIFEST_BYTES - at, "]}");
    refused(text, OCI_MANIFEST, "manifest: it has 129 layers, and at most 128 are allowed");
    mem_free(text);
}

#define ENTRY(digest, rest) "{\"mediaType\":\"" OCI_MANIFEST "\",\"digest\":\"" digest "\",\"size\":5" rest "}"
#define FOR(os, arch, more) ",\"platform\":{\"os\":\"" os "\",\"architecture\":\"" arch "\"" more "}"
#define INDEX(entries) "{\"schemaVersion\":2,\"manifests\":[" entries "]}"

static const char *chosen(const struct manifest *index, const char *platform)
{
    static char digest[DIGEST_TEXT];
    const struct manifest_entry *entry = NULL;
    struct brig_err err = {0};
    struct platform want;

    assert_int_equal(platform_parse(platform, &want, &err), 0);
    if (manifest_choose(index, &want, &entry, &err) < 0)
        str_cut(digest, sizeof digest, "none");
    else
        str_cut(digest, sizeof digest, entry->desc.digest);
    return digest;
}

static void an_index_chooses_by_platform(void **state)
{
    (void)state;
    struct manifest *m =
        parsed(INDEX(ENTRY(DA, FOR("linux", "amd64", "")) "," ENTRY(
                   DB, FOR("linux", "arm64", ",\"variant\":\"v8\"")) "," ENTRY(DC, FOR("unknown", "unknown", ""))),
               OCI_INDEX);
    assert_true(m->is_index);
    assert_int_equal(m->n_entries, 2); /* an attestation is none */
    assert_string_equal(chosen(m, "linux/amd64"), DA);
    assert_string_equal(chosen(m, "linux/arm64"), DB);
    assert_string_equal(chosen(m, "linux/aarch64/v8"), DB);
    assert_string_equal(chosen(m, "linux/riscv64"), "none");
    assert_string_equal(chosen(m, "windows/amd64"), "none");
    struct platform want;
    const struct manifest_entry *entry;
    struct brig_err err = {0};
    assert_int_equal(platform_parse("linux/s390x", &want, &err), 0);
    assert_int_equal(manifest_choose(m, &want, &entry, &err), -ENOENT);
    assert_string_equal(err.message, "there is no image for linux/s390x: the index has linux/amd64, linux/arm64");
    manifest_free(m);

    m = parsed(INDEX(ENTRY(DA, FOR("linux", "arm", ",\"variant\":\"v5\"")) "," ENTRY(
                   DB, FOR("linux", "arm", ",\"variant\":\"v6\""))),
               DOCKER_LIST);
    assert_string_equal(chosen(m, "linux/arm/v7"), DB);
    assert_string_equal(chosen(m, "linux/arm/v5"), DA);
    manifest_free(m);
}

static void a_layouts_index(void **state)
{
    (void)state;
    struct manifest *m =
        parsed(INDEX(ENTRY(DA, ",\"annotations\":{\"org.opencontainers.image.ref.name\":\"latest\"}")), NULL);
    assert_int_equal(m->n_entries, 1);
    assert_string_equal(m->entries[0].name, "latest");
    assert_string_equal(chosen(m, "linux/amd64"), DA);
    manifest_free(m);
    static const char mixed[] =
        "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"" OCI_INDEX "\",\"digest\":\"" DB "\",\"size\":5,"
        "\"annotations\":{\"io.containerd.image.name\":\"docker.io/library/a:1\"}},{\"mediaType\":\"" OCI_MANIFEST
        "\",\"digest\":\"" DC "\",\"size\":5,\"annotations\":{\"vnd.docker.reference.type\":\"attestation-manifest\"}},"
        "{\"mediaType\":\"application/x\",\"digest\":\"" DC "\",\"size\":5}]}";
    m = parsed(mixed, NULL);
    assert_int_equal(m->n_entries, 1);
    assert_string_equal(m->entries[0].name, "docker.io/library/a:1");
    assert_string_equal(m->entries[0].desc.media_type, OCI_INDEX);
    manifest_free(m);
    struct brig_err err = {0};
    static const char good[] = "{\"imageLayoutVersion\": \"1.0.0\"}", bad[] = "{\"imageLayoutVersion\": \"2.0.0\"}";
    assert_int_equal(archive_layout_check(good, strlen(good), &err), 0);
    assert_true(archive_layout_check(bad, strlen(bad), &err) < 0);
    assert_string_equal(err.message, "oci-layout: imageLayoutVersion \"2.0.0\" is not supported");
}

/* ---- the configuration ------------------------------------------------------------------------------------ */

#define ROOTFS(ids) "\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[" ids "]}"
#define TWO "\"" DA "\",\"" DB "\""
#define HEAD "\"os\":\"linux\",\"architecture\":\"amd64\","

static struct image_config *config_of(const char *text, size_t layers)
{
    struct image_config *config = NULL;
    struct brig_err err = {0};

    if (image_config_parse(text, strlen(text), layers, &config, &err) < 0)
        fail_msg("%s", err.message);
    return config;
}

static void config_refused(const char *text, size_t layers, const char *why)
{
    struct image_config *config = NULL;
    struct brig_err err = {0};

    assert_true(image_config_parse(text, strlen(text), layers, &config, &err) < 0);
    assert_string_equal(err.message, why);
}

static void a_configuration_arrives(void **state)
{
    (void)state;
    struct image_config *c = config_of(
        "{" HEAD "\"created\":\"2024-01-01T00:00:00Z\",\"config\":{\"Env\":[\"A=1\",\"A=2=3\"],\"Entrypoint\":[],"
        "\"Cmd\":[\"sh\",\"\"],\"User\":\"a:b\",\"WorkingDir\":\"/w\",\"ExposedPorts\":{\"80/tcp\":{},\"53/udp\":{},"
        "\"8000-8010/tcp\":{}},\"Labels\":{\"k\":\"v\",\"l\":\"\"},\"Healthcheck\":{\"Test\":[\"CMD-SHELL\",\"x\"],"
        "\"Interval\":30000000000,\"Timeout\":1,\"StartPeriod\":2,\"StartInterval\":3,\"Retries\":4},\"StopSignal\":"
        "\"SIGRTMIN+3\",\"Volumes\":{\"/data\":{}}}," ROOTFS(
            TWO) ",\"history\":[{\"created_by\":\"ADD\"},{"
                 "\"created_by\":\"ENV\",\"empty_layer\":true},{\"comment\":\"c\"}]}",
        2);
    assert_int_equal(c->env.n, 2);
    assert_string_equal(c->env.items[1], "A=2=3");
    assert_true(c->has_entrypoint);
    assert_int_equal(c->entrypoint.n, 0);
    assert_true(c->has_cmd);
    assert_int_equal(c->cmd.n, 2);
    assert_string_equal(c->user, "a:b");
    assert_string_equal(c->workdir, "/w");
    assert_int_equal(c->exposed.n, 3);
    assert_string_equal(c->exposed.items[1], "53/udp");
    assert_string_equal(c->label_keys.items[0], "k");
    assert_string_equal(c->label_values.items[0], "v");
    assert_int_equal(c->health, HEALTH_CMD_SHELL);
    assert_int_equal(c->health_test.n, 1);
    assert_string_equal(c->health_test.items[0], "x");
    assert_true(c->health_interval_ns == UINT64_C(30000000000));
    assert_int_equal(c->health_start_interval_ns, 3);
    assert_int_equal(c->health_retries, 4);
    assert_string_equal(c->stop_signal, "SIGRTMIN+3");
    assert_string_equal(c->volumes.items[0], "/data");
    assert_int_equal(c->n_history, 3);
    assert_true(c->history[1].empty_layer);
    assert_string_equal(c->history[2].comment, "c");
    assert_string_equal(c->created, "2024-01-01T00:00:00Z");
    /* printf '%s' "sha256:aa.. sha256:bb.." | sha256sum */
    assert_string_equal(c->chain_ids.items[0], DA);
    assert_string_equal(c->chain_ids.items[1],
                        "sha256:ccd722928bd92476ba1745586fed6e45a102504185ad88cd89e01ff116fd146c");
    image_config_free(c);
    image_config_free(NULL);
}

static void null_and_missing_are_alike(void **state)
{
    (void)state;
    struct image_config *c =
        config_of("{" HEAD "\"variant\":\"v1\",\"config\":{\"Env\":null,\"Entrypoint\":null,"
                  "\"Cmd\":null,\"User\":\"\",\"WorkingDir\":\"\",\"Labels\":null,\"Volumes\":"
                  "null,\"ExposedPorts\":null,\"Healthcheck\":{\"Test\":[\"NONE\"]}}," ROOTFS("") "}",
                  0);
    assert_false(c->has_entrypoint);
    assert_false(c->has_cmd);
    assert_int_equal(c->env.n + c->label_keys.n + c->volumes.n + c->exposed.n + c->n_history, 0);
    assert_int_equal(c->health, HEALTH_NONE);
    assert_string_equal(c->platform.variant, "");
    image_config_free(c);
    c = config_of("{" HEAD ROOTFS("\"" DA "\"") "}", 1);
    assert_int_equal(c->health, HEALTH_UNSET);
    assert_string_equal(c->workdir, "");
    assert_string_equal(c->stop_signal, "");
    image_config_free(c);
}

#define WITH(members) "{" HEAD "\"config\":{" members "}," ROOTFS("") "}"
#define WHAT "image configuration: "

static void bad_configurations_are_refused(void **state)
{
    (void)state;
    config_refused("{" HEAD ROOTFS(TWO) "}", 3, WHAT "the manifest has 3 layers and the configuration 2 diff_ids");
    config_refused("{" HEAD ROOTFS(TWO) "}", 1, WHAT "the manifest has 1 layers and the configuration 2 diff_ids");
    config_refused("{" HEAD ROOTFS("\"md5:1\"") "}", 1,
                   WHAT "diff_ids \"md5:1\": a digest is sha256: and 64 lower-case hexadecimal digits");
    config_refused("{" HEAD "\"rootfs\":{\"type\":\"base\"}}", 0, WHAT "rootfs.type \"base\" must be \"layers\"");
    config_refused("{" HEAD "\"x\":1}", 0, WHAT "rootfs is missing");
    config_refused("{" ROOTFS("") "}", 0, WHAT "os \"\", architecture \"\", variant \"\" is no platform");
    config_refused("{" HEAD ROOTFS("") ",\"history\":[{}]}", 0, WHAT "history names 1 layers and rootfs has 0");
    config_refused(WITH("\"Env\":[\"A\"]"), 0, WHAT "Env \"A\": a variable is NAME=value");
    config_refused(WITH("\"Env\":[\"=b\"]"), 0, WHAT "Env \"=b\": a variable is NAME=value");
    config_refused(WITH("\"Env\":[1]"), 0, WHAT "the items of Env must be strings");
    config_refused(WITH("\"Env\":\"A=1\""), 0, WHAT "Env must be an array, not a string");
    config_refused(WITH("\"Cmd\":[\"a\\u0000b\"]"), 0, WHAT "Cmd \"a\" has a NUL");
    config_refused(WITH("\"WorkingDir\":\"w\""), 0, WHAT "WorkingDir \"w\": a path must be absolute");
    config_refused(WITH("\"Volumes\":{\"w\":{}}"), 0, WHAT "Volumes \"w\": a path must be absolute");
    config_refused(WITH("\"ExposedPorts\":{\"x/tcp\":{}}"), 0,
                   WHAT "ExposedPorts \"x/tcp\": a port is NUMBER/tcp, NUMBER/udp or a range");
    config_refused(WITH("\"Labels\":{\"a\":1}"), 0, WHAT "the values of Labels must be strings");
    config_refused(WITH("\"StopSignal\":\"SIG TERM\""), 0,
                   WHAT "StopSignal \"SIG TERM\" is no name or number of a signal");
    config_refused(WITH("\"Healthcheck\":{\"Test\":[\"NONE\",\"x\"]}"), 0,
                   WHAT "Healthcheck.Test is [\"NONE\"], [\"CMD\", ARGS...] or [\"CMD-SHELL\", LINE]");
    config_refused(WITH("\"Healthcheck\":{\"Retries\":-1}"), 0,
                   WHAT "Retries must be a whole number from 0 to 4294967295");
    config_refused("{" HEAD HEAD ROOTFS("") "}", 0, WHAT "JSON, byte 37: a key that was there before");
}

static void archives(void **state)
{
    (void)state;
    static const char good[] = "[{\"Config\":\"c.json\",\"RepoTags\":null,\"Layers\":[\"a/layer.tar\",\"b\"]},"
                               "{\"Config\":\"d\",\"RepoTags\":[\"x:1\"],\"Layers\":[]}]";
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"[]", "manifest.json: it has 0 images, and 1 to 256 are allowed"},
        {"{}", "manifest.json: it must be an array, not an object"},
        {"[1]", "manifest.json: its items must be objects"},
        {"[{\"Layers\":[]}]", "manifest.json: Config is missing"},
        {"[{\"Config\":\"c\"}]", "manifest.json: Layers is missing"},
        {"[{\"Config\":\"c\",\"Layers\":[\"\"]}]", "manifest.json: a layer has no name"},
    };
    struct archive_manifest *a = NULL;
    struct brig_err err = {0};

    assert_int_equal(archive_manifest_parse(good, strlen(good), &a, &err), 0);
    assert_int_equal(a->n_images, 2);
    assert_int_equal(a->images[0].tags.n, 0);
    assert_string_equal(a->images[0].layers.items[1], "b");
    assert_string_equal(a->images[1].tags.items[0], "x:1");
    archive_manifest_free(a);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_true(archive_manifest_parse(bad[i].text, strlen(bad[i].text), &a, &err) < 0);
        assert_string_equal(err.message, bad[i].why);
    }
}

/* Every allocation fails once; nothing leaks and nothing is half made (the sanitizer looks on). */
static void without_memory(void **state)
{
    (void)state;
    static const char text[] = "{" HEAD "\"config\":{\"Env\":[\"A=1\"]}," ROOTFS(TWO) ",\"history\":[{}]}";
    struct image_config *config = NULL;
    struct brig_err err = {0};
    int r = -1;

    for (size_t n = 0; r < 0; n++) {
        mem_fail_after(n);
        r = image_config_parse(text, strlen(text), 2, &config, &err);
        assert_true(r == 0 || r == -ENOMEM);
    }
    mem_fail_after(MEM_FAIL_NEVER);
    image_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifests_of_both_kinds),
        cmocka_unit_test(foreign_types_are_named),
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(an_index_chooses_by_platform),
        cmocka_unit_test(a_layouts_index),
        cmocka_unit_test(a_configuration_arrives),
        cmocka_unit_test(null_and_missing_are_alike),
        cmocka_unit_test(bad_configurations_are_refused),
        cmocka_unit_test(archives),
        cmocka_unit_test(without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
