/* SPDX-License-Identifier: Apache-2.0 */
/* The table of contents of an image archive, line by line, and the document of a template. What is found is a file; a
 * document that is read is written so that it is read again. */
#include "fuzz.h"

#include "base/buf.h"
#include "codec/json/json_read.h"
#include "records/templates.h"
#include "template/archive.h"

static void read_archive(const char *text)
{
    static const char *const names[] = {"index.json", "manifest.json", "./a/../b", "a/layer.tar", ""};
    struct archive *archive = NULL;

    FUZZ_CHECK(archive_create(&archive) == 0);
    for (const char *at = text; *at; at += at[strcspn(at, "\n")] ? strcspn(at, "\n") + 1 : strlen(at)) {
        int r = archive_add(archive, at, strcspn(at, "\n"));
        FUZZ_CHECK(r == 0 || r == -EINVAL || r == -EMSGSIZE);
    }
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const struct archive_member *member = archive_find(archive, names[i]);
        FUZZ_CHECK(!member || (member->is_file && !strstr(member->name, "..") && member->name[0] != '/'));
    }
    archive_free(archive);
}

static void read_document(const char *text, size_t len)
{
    struct json_doc *doc = NULL, *same = NULL;
    struct template_info info, again;
    struct buf out = BUF_INIT(16u << 20);

    if (json_read(text, len, 10000, &doc, NULL) < 0)
        return;
    if (template_parse(json_root(doc), &info, NULL) == 0) {
        FUZZ_CHECK(info.n_layers > 0 && info.n_layers <= TEMPLATE_LAYERS_MAX);
        FUZZ_CHECK(template_write(&info, &out, NULL) == 0);
        FUZZ_CHECK(json_read(out.data, out.len, 20000, &same, NULL) == 0);
        FUZZ_CHECK(template_parse(json_root(same), &again, NULL) == 0 && again.n_layers == info.n_layers);
        template_done(&again);
        template_done(&info);
    }
    json_doc_free(doc);
    json_doc_free(same);
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 1);

    FUZZ_CHECK(text);
    if (size > 0)
        memcpy(text, data, size);
    read_archive(text);
    read_document(text, size);
    free(text);
    return 0;
}
