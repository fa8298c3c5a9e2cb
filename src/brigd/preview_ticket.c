/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preview_ticket.c: tickets that carry a browser from the API's host to a preview's own. A ticket is a random number
 * that brigd remembers for half a minute. The first request that brings it uses it up, so a ticket that stays in a
 * history or a log is worth nothing. Tickets live in this process only: after a restart there are none, and the browser
 * is redirected again.
 *
 * The table is small and an organisation has a quarter of it: if it asks for more, it loses its own oldest tickets.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "brigd/preview.h"
#include "crypto/crypto.h"

#define TICKETS_MAX 1024u
#define TICKETS_PER_ORG (TICKETS_MAX / 4)
#define TICKET_NS (30 * NS_PER_SEC)

struct ticket {
    char text[TICKET_SIZE]; /* "": free */
    char org[64], id[32];
    uint32_t port;
    int64_t until;
    uint64_t dies_ns;
};

struct tickets {
    struct ticket list[TICKETS_MAX];
};

bool ticket_is(const char *text)
{
    return str_starts(text, "once-");
}

/* A place for one more of this organisation, or NULL. */
static struct ticket *find_place(struct tickets *tickets, const char *org, uint64_t now)
{
    struct ticket *place = NULL, *oldest = NULL;
    unsigned own = 0;

    for (size_t i = 0; i < TICKETS_MAX; i++) {
        struct ticket *ticket = &tickets->list[i];

        if (ticket->text[0] == '\0' || ticket->dies_ns <= now) {
            place = ticket;
        } else if (str_eq(ticket->org, org)) {
            own++;
            if (!oldest || ticket->dies_ns < oldest->dies_ns)
                oldest = ticket;
        }
    }
    return own >= TICKETS_PER_ORG || !place ? oldest : place;
}

int ticket_issue(struct tickets **tickets, const char *org, const struct preview_way *way, int64_t until,
                 char out[TICKET_SIZE])
{
    uint64_t now = clock_mono_ns();
    uint8_t number[16];

    if (!*tickets && !(*tickets = mem_zalloc(sizeof(**tickets))))
        return -ENOMEM;
    struct ticket *ticket = find_place(*tickets, org, now);
    if (!ticket)
        return -EAGAIN;
    if (crypto_random(number, sizeof(number)) < 0)
        return -EIO;
    *ticket = (struct ticket){.port = way->port, .until = until, .dies_ns = now + TICKET_NS};
    if (str_copy(ticket->org, sizeof(ticket->org), org) < 0)
        return -EINVAL;
    str_assign(ticket->id, way->id);
    memcpy(ticket->text, "once-", 5);
    crypto_hex(number, sizeof(number), ticket->text + 5);
    memcpy(out, ticket->text, TICKET_SIZE);
    return 0;
}

bool ticket_take(struct tickets *tickets, const struct preview_way *way, const char *text, int64_t *ret_until)
{
    uint64_t now = clock_mono_ns();

    for (size_t i = 0; tickets && strlen(text) == TICKET_SIZE - 1 && i < TICKETS_MAX; i++) {
        struct ticket *ticket = &tickets->list[i];

        if (ticket->text[0] == '\0' || !crypto_equal(ticket->text, text, TICKET_SIZE - 1))
            continue;
        bool good = ticket->dies_ns > now && ticket->port == way->port && str_eq(ticket->id, way->id);
        *ret_until = ticket->until;
        *ticket = (struct ticket){0};
        return good;
    }
    return false;
}

void tickets_free(struct tickets *tickets)
{
    mem_free(tickets);
}
