/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service.h: what the verbs that talk to the daemon share: parsing their words, one request, and how its answer is
 * shown.
 *
 *   service.c      words, requests, members of answers
 *   columns.c      a table that fits the terminal
 *   listing.c      a list verb as data: path, member, columns
 *   json_print.c   an answer as JSON, indented
 *   show.c         ages, sizes and times for people
 *   attach.c       a program's stdin, stdout, signals and terminal over a WebSocket
 *
 * Whatever a sandbox's owner could have chosen (names, paths, commands, messages) is escaped before it meets a
 * terminal.
 */
#ifndef BRIG_CLI_SERVICE_H
#define BRIG_CLI_SERVICE_H

#include "cli/cli.h"
#include "cli/flags.h"
#include "client/client.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"

/* ---- words ---------------------------------------------------------------------------------------- */

struct words { /* A flag that is given several times; the strings are in argv. */
    const char **items;
    size_t n, cap;
};
#define AUTO_WORDS __attribute__((cleanup(words_done)))
void words_done(struct words *words);

/* apply() of flags: -o table|json into a bool; a word into struct words; K=V into struct words. */
int flag_set_table(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
/* clang-format off */
#define FLAG_TABLE(at) {NULL, "FORMAT", "table (default) or json", flag_set_table, (at), 'o'}
/* clang-format on */
int flag_add_word(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
int flag_add_pair(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);

/*
 * Parses the flags, and then from min to max words (what is "sandbox", for the message). Returns true to go on; false
 * when it is over, and *ret_status is the exit status.
 */
bool service_parse(const struct flag_table *table, int argc, char **argv, void *ctx, int min, int max, const char *what,
                   int *ret_rest, int *ret_status);

/* ---- requests ------------------------------------------------------------------------------------- */

#define AUTO_CLIENT __attribute__((cleanup(service_client_close)))
void service_client_close(struct client **client);

/* These three print what is wrong. They return true if it is done. */
bool service_open(struct client **ret);
/*
 * Sends one request. format and what follows are those of client_target(). client is NULL for a connection of its own;
 * body and ret may be NULL, and without ret the answer stays in client_reply().
 */
bool service_call(struct client *client, const char *method, const struct buf *body, struct json_doc **ret,
                  const char *format, ...);
/* Sends a GET to a target that client_target() made. */
bool service_ask(struct client *client, const char *target, struct json_doc **ret);
/* Like service_call() without a message, for callers that have their own. */
int service_try(struct client *client, const char *method, const struct buf *body, struct json_doc **ret,
                struct brig_err *err, const char *format, ...) MUST_CHECK;
/* Makes a target in a buffer that buf_done() frees; data is NULL when memory is short (a line was printed). */
#define service_target(buf, ...) (client_target(buf, __VA_ARGS__) == 0 || (cli_error("out of memory"), false))

/*
 * Writes K=V words as an object, a member of a body; the last of a name wins. A word that is not UTF-8 is -EILSEQ with
 * a message.
 */
int service_put_pairs(struct json *json, const char *key, const char *const *items, size_t n,
                      struct brig_err *err) MUST_CHECK;
int service_put_argv(struct json *json, const char *const *argv, struct brig_err *err) MUST_CHECK;
/* The same for another member; first (or NULL) comes before the words. */
int service_put_words(struct json *json, const char *key, const char *first, const char *const *words,
                      struct brig_err *err) MUST_CHECK;
void service_put_text(struct json *json, const char *key, const char *value); /* Writes nothing if value is NULL. */

/* Reads a file, or stdin for "-", up to the limit of the buffer. Returns false after it has printed the failure. */
bool service_read_file(const char *path, struct buf *out);

/* Read members of an answer. If it is missing, null or of another type, they return otherwise. */
const char *get_text(const struct json_value *object, const char *key, const char *otherwise);
int64_t get_i64(const struct json_value *object, const char *key, int64_t otherwise);

/* Decodes a member with bytes, "data" with its "encoding" ("utf-8", "base64"), onto out. */
int service_get_bytes(const struct json_value *object, const char *key, const char *encoding_key,
                      struct buf *out) MUST_CHECK;

/* Makes a descriptor of SIGINT and SIGTERM for client_set_cancel(), so that half a transfer can be cleaned up. */
int service_signals(void);
/* The same for a client that sends or gets much; a pipe whose reader has left is an error from now on. */
int service_transfers(struct client *client);

/* ---- answers -------------------------------------------------------------------------------------- */

/* Indented, without a newline at the end. */
int json_print(const struct json_value *value, struct buf *out) MUST_CHECK;
int json_print_line(const struct json_value *value, struct buf *out) MUST_CHECK;
int service_print_value(const struct json_value *value);
/* Prints on stdout, escaped for a terminal. Returns the exit status. */
int service_print_json(const struct json_doc *doc);
/* Prints one line on stdout; control bytes are escaped. */
int service_say(const char *format, ...) PRINTF_LIKE(1, 2);

/* These write texts for people and return out. */
#define SHOW_SIZE 32u
const char *show_bytes(char out[SHOW_SIZE], int64_t bytes);       /* "12.3 MiB"; "-" below zero */
const char *show_age(char out[SHOW_SIZE], const char *rfc3339);   /* "12s", "5m", "3h", "9d"; "-" */
const char *show_until(char out[SHOW_SIZE], const char *rfc3339); /* The same for a time ahead; "past". */
const char *show_duration(char out[SHOW_SIZE], int64_t ms);
const char *show_time(char out[SHOW_SIZE], const char *rfc3339); /* "2026-01-31 12:00" UTC; "-" */

/*
 * A table: a header per column, then cell after cell. A column whose header begins with ">" is aligned to the right;
 * one with "*" may be cut if the terminal is too narrow.
 */
#define TABLE_COLUMNS 10u
struct table {
    struct buf text; /* The cells, each with a NUL. */
    const char *headers[TABLE_COLUMNS];
    size_t n_columns, n_cells;
    int error;
};
#define AUTO_TABLE __attribute__((cleanup(table_done)))
void table_init(struct table *table, const char *const *headers, size_t n);
void table_cell(struct table *table, const char *format, ...) PRINTF_LIKE(2, 3);
int table_print(struct table *table); /* Returns the exit status. */
void table_done(struct table *table);

#endif
