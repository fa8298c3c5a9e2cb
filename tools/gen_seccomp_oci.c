/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Build-time writer of the system call filter in the form that container engines and runtimes take (the object
 * `seccomp` of an OCI runtime's config.json): src/jail/seccomp_table.h in, a header with one JSON text per filter out.
 *
 * That form has no "first clause that holds": its conditions are alternatives of 64-bit comparisons, without ranges.
 * So a call with an argument rule is allowed here whatever its arguments, and the rule is the exact filter's, which
 * brig-init puts on before the first program (jail/confine.c tells the two apart). Every other answer is the table's.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jail/seccomp_table.h"

#define LINE 100

static size_t column;

/* Writes a piece of JSON as a piece of a C string. */
static void put(const char *text)
{
    if (column == 0)
        column = (size_t)printf("    \"");
    for (; *text; text++)
        column += (size_t)printf(*text == '"' ? "\\\"" : "%c", *text);
    if (column > LINE) {
        printf("\"\n");
        column = 0;
    }
}

static uint32_t answer(const struct seccomp_row *row, enum seccomp_filter filter)
{
    uint32_t verdict = seccomp_row_verdict(row, filter);

    return (verdict & SECCOMP_RET_ACTION_FULL) == SECCOMP_TABLE_RULE ? SECCOMP_RET_ALLOW : verdict;
}

static void put_group(enum seccomp_filter filter, uint32_t verdict, bool *first_group)
{
    bool first = true;
    char end[96];

    for (size_t i = 0; i < SECCOMP_TABLE_ROWS; i++) {
        if (answer(&seccomp_table[i], filter) != verdict)
            continue;
        put(first ? (*first_group ? "{\"names\":[\"" : ",{\"names\":[\"") : ",\"");
        put(seccomp_table[i].name);
        put("\"");
        first = false;
    }
    if (first)
        return;
    *first_group = false;
    if (verdict == SECCOMP_RET_ALLOW)
        snprintf(end, sizeof end, "],\"action\":\"SCMP_ACT_ALLOW\"}");
    else
        snprintf(end, sizeof end, "],\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":%u}", verdict & SECCOMP_RET_DATA);
    put(end);
}

static void generate(const char *name, enum seccomp_filter filter)
{
    bool first = true;
    char head[160];

    printf("\nstatic const char brig_profile_%s[] =\n", name);
    snprintf(head, sizeof head,
             "{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"defaultErrnoRet\":%u,"
             "\"architectures\":[\"SCMP_ARCH_X86_64\"],\"syscalls\":[",
             SECCOMP_TABLE_UNKNOWN & SECCOMP_RET_DATA);
    put(head);
    put_group(filter, SECCOMP_RET_ALLOW, &first);
    for (uint32_t e = 0; e <= SECCOMP_RET_DATA; e++)
        put_group(filter, SECCOMP_RET_ERRNO | e, &first);
    put("]}");
    printf("%s;\n", column ? "\"" : "");
    column = 0;
}

/* usage: gen_seccomp_oci [FILE]; without a file to standard output */
int main(int argc, char **argv)
{
    if (argc > 1 && !freopen(argv[1], "w", stdout)) {
        fprintf(stderr, "gen_seccomp_oci: %s: cannot be written\n", argv[1]);
        return 1;
    }
    printf("/* Made by tools/gen_seccomp_oci.c from src/jail/seccomp_table.h; changes go there. */\n");
    generate("default", SECCOMP_FILTER_NORMAL);
    generate("paranoid", SECCOMP_FILTER_PARANOID);
    return fflush(stdout) || ferror(stdout) ? 1 : 0;
}
