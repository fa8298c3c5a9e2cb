/* SPDX-License-Identifier: Apache-2.0 */
/* A tool's document, from anyone. What is accepted is within its bounds and parses to the same again; what is refused
 * has one line and leaves nothing. */
#include "fuzz.h"

#include "base/str.h"
#include "records/registry.h"

static void check_tool(const struct tool *tool)
{
    char hash[13];

    FUZZ_CHECK(tool->name && strlen(tool->name) > 0 && strlen(tool->name) <= TOOL_NAME_MAX &&
               !strpbrk(tool->name, " /.\n") && !str_eq(tool->name, "run"));
    FUZZ_CHECK(tool->language < TOOL_LANGUAGE_MAX && (tool->source || tool->language == TOOL_COMMAND));
    FUZZ_CHECK((tool->language == TOOL_COMMAND) <= (tool->command != NULL));
    FUZZ_CHECK(tool->source_len <= TOOL_SOURCE_MAX && (!tool->source || strlen(tool->source) == tool->source_len));
    FUZZ_CHECK(tool->return_limit >= 1 && tool->return_limit <= 1000000);
    FUZZ_CHECK(tool->n_pip <= TOOL_REQUIREMENTS_MAX && tool->n_npm <= TOOL_REQUIREMENTS_MAX);
    for (size_t i = 0; i < tool->n_pip; i++)
        FUZZ_CHECK(tool->pip[i].name[0] != '\0');
    FUZZ_CHECK((tool->rate_max == 0) == (tool->rate_window_s == 0));
    FUZZ_CHECK(tool_hash(tool, hash) == 0 && strlen(hash) == 12);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_doc *doc = NULL;
    struct tool tool = {0}, again = {0};
    struct brig_err err = {0};

    if (json_read((const char *)data, size, 10000, &doc, NULL) < 0)
        return 0;
    int r = tool_parse(json_root(doc), &tool, &err);
    if (r == 0) {
        check_tool(&tool);
        FUZZ_CHECK(tool_parse(json_root(doc), &again, NULL) == 0 && again.n_rules == tool.n_rules &&
                   str_eq(again.name, tool.name));
        tool_done(&again);
        tool_done(&tool);
    } else {
        FUZZ_CHECK(err.code != BRIG_E_NONE && err.message[0] != '\0' && !strchr(err.message, '\n') && !tool.schema &&
                   !tool.pip);
    }
    json_doc_free(doc);
    return 0;
}
