/* SPDX-License-Identifier: Apache-2.0 */
/*
 * idempotency.c: the same create twice is one sandbox. An idempotency key belongs to the API key that sent it: the same
 * text from another API key is another key, so that nobody gets a sandbox that somebody else has put there. It is
 * remembered for 24 hours, here and in the store (so also over a restart), with a fingerprint of the request: the same
 * key with another request is a conflict, not a second sandbox.
 *
 * An organisation has a share of the table (base/share.h): if it makes more, only its own oldest are forgotten.
 *
 * While the first create still runs, those who repeat it wait for its answer, at most IDEM_WAITS of them. A create that
 * failed leaves nothing: the next attempt is a first one.
 */
#include "base/list.h"
#include "base/share.h"
#include "crypto/crypto.h"
#include "sandbox/private.h"

#define IDEM_WAITS 64u
#define IDEM_KEY_MAX 255u

struct idem_wait {
    struct idem_wait *next;
    sbox_done_fn *done;
    void *ctx;
};

/* What one organisation has in the table, by time. */
struct idem_org {
    struct idem_org *next; /* of its bucket */
    struct idem *first, *last;
    size_t n;
    char org_id[64];
};

struct idem {
    struct idem *next;          /* of its bucket */
    struct idem *newer, *older; /* of all, by time */
    struct idem_org *org;
    struct idem *org_newer, *org_older; /* of its organisation */
    char org_id[64];
    char key[IDEM_KEY_MAX + 1];
    uint8_t fingerprint[32];
    int64_t created_at_ns;
    char sandbox_id[32]; /* "" while it is being created */
    struct manager *manager;
    bool pending;
    struct idem_wait *waits;
    unsigned n_waits;
    struct loop_timer answer; /* tells those who wait, in a round of its own */
};

static struct idem *find(struct manager *manager, const char *org_id, const char *key)
{
    struct idem *idem = manager->idems[sandbox_bucket(org_id, key)];

    while (idem && !(str_eq(idem->org_id, org_id) && str_eq(idem->key, key)))
        idem = idem->next;
    return idem;
}

static struct idem_org **find_org(struct manager *manager, const char *org_id)
{
    struct idem_org **at = &manager->idem_orgs[sandbox_bucket(org_id, "")];

    while (*at && !str_eq((*at)->org_id, org_id))
        at = &(*at)->next;
    return at;
}

static int join(struct manager *manager, struct idem *idem)
{
    struct idem_org **at = find_org(manager, idem->org_id);

    if (!*at) {
        *at = mem_zalloc(sizeof **at);
        if (!*at)
            return -ENOMEM;
        str_assign((*at)->org_id, idem->org_id);
    }
    idem->org = *at;
    list_append_by(&idem->org->first, &idem->org->last, idem, org_newer, org_older);
    idem->org->n++;
    return 0;
}

static void leave(struct manager *manager, struct idem *idem)
{
    struct idem_org *org = idem->org;

    list_take_by(&org->first, &org->last, idem, org_newer, org_older);
    if (--org->n > 0)
        return;
    *find_org(manager, idem->org_id) = org->next;
    mem_free(org);
}

static void drop(struct manager *manager, struct idem *idem)
{
    struct idem **at = &manager->idems[sandbox_bucket(idem->org_id, idem->key)];

    while (*at != idem)
        at = &(*at)->next;
    *at = idem->next;
    list_take_by(&manager->idem_first, &manager->idem_last, idem, newer, older);
    manager->n_idems--;
    leave(manager, idem);
    loop_timer_clear(manager->loop, &idem->answer);
    while (idem->waits) {
        struct idem_wait *wait = idem->waits;
        idem->waits = wait->next;
        mem_free(wait);
    }
    mem_free(idem);
}

static struct idem *add(struct manager *manager, const char *org_id, const char *key, const uint8_t fingerprint[32],
                        int64_t created_at_ns)
{
    struct idem *idem = mem_zalloc(sizeof *idem);

    if (!idem || str_copy(idem->org_id, sizeof idem->org_id, org_id) < 0 ||
        str_copy(idem->key, sizeof idem->key, key) < 0) {
        mem_free(idem);
        return NULL;
    }
    memcpy(idem->fingerprint, fingerprint, sizeof idem->fingerprint);
    idem->created_at_ns = created_at_ns;
    idem->manager = manager;
    if (join(manager, idem) < 0) {
        mem_free(idem);
        return NULL;
    }
    struct idem **head = &manager->idems[sandbox_bucket(org_id, key)];
    idem->next = *head;
    *head = idem;
    list_append_by(&manager->idem_first, &manager->idem_last, idem, newer, older);
    manager->n_idems++;
    return idem;
}

static bool in_use(const struct idem *idem)
{
    return idem->pending || idem->waits;
}

/* Room for one more of this organisation: its own oldest go when it has its share. */
static void make_room(struct manager *manager, const char *org_id)
{
    const struct idem_org *org = *find_org(manager, org_id);
    size_t left = manager->idem_max > manager->n_idems ? manager->idem_max - manager->n_idems : 0;

    if (!share_allows(org ? org->n : 0, left, 1) && org && !in_use(org->first))
        drop(manager, org->first);
    while (manager->n_idems >= manager->idem_max && manager->idem_first && !in_use(manager->idem_first))
        drop(manager, manager->idem_first); /* as many organisations as places: the oldest of all */
}

/* Tells everybody who waits. The entry outlives a successful create, so ids are looked up when the answer is given. */
static void answer(struct idem *idem, struct sbox *sbox, const struct brig_err *err)
{
    struct idem_wait *waits = take_ptr(&idem->waits);

    idem->n_waits = 0;
    while (waits) {
        struct idem_wait *wait = waits;
        waits = wait->next;
        wait->done(wait->ctx, sbox, err);
        mem_free(wait);
    }
}

static void answer_known(struct idem *idem)
{
    struct sbox *sbox = sbox_by_id(idem->manager, idem->sandbox_id);
    struct brig_err err = {0};

    if (!sbox)
        (void)err_set(&err, BRIG_E_CONFLICT, 0, "Idempotency-Key %s: its sandbox %s has ended", idem->key,
                      idem->sandbox_id);
    answer(idem, sbox, sbox ? NULL : &err);
}

static void on_answer(struct loop_timer *timer)
{
    answer_known(timer->ctx);
}

static int wait_for(struct idem *idem, sbox_done_fn *done, void *ctx, struct brig_err *err)
{
    if (idem->n_waits >= IDEM_WAITS)
        return err_set(err, BRIG_E_LIMIT, 0, "Idempotency-Key %s: %u requests wait for its answer already", idem->key,
                       IDEM_WAITS);
    struct idem_wait *wait = mem_zalloc(sizeof *wait);
    if (!wait)
        return err_nomem(err);
    *wait = (struct idem_wait){.done = done, .ctx = ctx};
    if (!idem->pending) {
        idem->answer.fn = on_answer;
        idem->answer.ctx = idem;
        int r = loop_timer_set(idem->manager->loop, &idem->answer, loop_now_ns(), err);
        if (r < 0) {
            mem_free(wait);
            return r;
        }
    }
    struct idem_wait **at = &idem->waits;
    while (*at)
        at = &(*at)->next;
    *at = wait;
    idem->n_waits++;
    return 1;
}

/* What is kept of the text: for an API key a hash with its id; the socket's as it is. */
static int scope(const struct caller *caller, const char *key, char out[IDEM_KEY_MAX + 1])
{
    char text[sizeof caller->key_id + IDEM_KEY_MAX + 2];
    uint8_t sum[SHA256_SIZE];

    if (!caller->key_id[0])
        return str_copy(out, IDEM_KEY_MAX + 1, key);
    int r = str_format(text, sizeof text, "%s\n%s", caller->key_id, key);
    if (r >= 0)
        r = crypto_sha256(text, strlen(text), sum);
    if (r >= 0)
        crypto_hex(sum, sizeof sum, out);
    return r < 0 ? r : 0;
}

bool idem_is_known(struct manager *manager, const struct caller *caller, const char *key)
{
    char own[IDEM_KEY_MAX + 1];
    const struct idem *idem =
        strlen(key) <= IDEM_KEY_MAX && scope(caller, key, own) >= 0 ? find(manager, caller->org_id, own) : NULL;

    return idem && (in_use(idem) || clock_real_ns() - idem->created_at_ns <= IDEM_KEEP_NS);
}

int idem_begin(struct manager *manager, const struct caller *caller, const char *key, const uint8_t fingerprint[32],
               sbox_done_fn *done, void *ctx, struct idem **ret, struct brig_err *err)
{
    size_t len = strlen(key);

    if (len == 0 || len > IDEM_KEY_MAX)
        return err_usage(err, "Idempotency-Key: must be 1 to %u bytes", IDEM_KEY_MAX);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)key[i] < 0x20 || key[i] == 0x7f)
            return err_usage(err, "Idempotency-Key: must not hold control characters");
    char own[IDEM_KEY_MAX + 1];
    int r = scope(caller, key, own);
    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "hash the Idempotency-Key");
    int64_t now = clock_real_ns();
    struct idem *idem = find(manager, caller->org_id, own);
    if (idem && !idem->pending && !idem->waits && now - idem->created_at_ns > IDEM_KEEP_NS) {
        drop(manager, idem);
        idem = NULL;
    }
    if (idem) {
        if (!crypto_equal(idem->fingerprint, fingerprint, sizeof idem->fingerprint))
            return err_set(err, BRIG_E_CONFLICT, 0, "Idempotency-Key %s: was used for another request", key);
        return wait_for(idem, done, ctx, err);
    }
    make_room(manager, caller->org_id);
    idem = add(manager, caller->org_id, own, fingerprint, now);
    if (!idem)
        return err_nomem(err);
    idem->pending = true;
    *ret = idem;
    return 0;
}

int idem_write(struct manager *manager, struct idem *idem, struct sbox *sbox, store_done_fn *done, void *ctx,
               struct brig_err *err)
{
    struct store_idempotency row = {.created_at_ns = idem->created_at_ns, .status = 201};
    char doc[64];

    str_assign(row.org_id, idem->org_id);
    str_assign(row.key, idem->key);
    memcpy(row.fingerprint, idem->fingerprint, sizeof row.fingerprint);
    snprintf(doc, sizeof doc, "{\"sandbox_id\":\"%s\"}", sbox->id);
    row.doc = doc;
    struct store_op *op = store_op_new(manager, sbox, done, NULL, ctx);
    if (!op)
        return err_nomem(err);
    int r = store_put_idempotency(manager->store, &row, store_op_done, op, err);
    if (r < 0)
        store_op_drop(op);
    return r;
}

void idem_settle(struct manager *manager, struct idem *idem, struct sbox *sbox, const struct brig_err *err)
{
    if (!idem)
        return;
    idem->pending = false;
    if (sbox) {
        str_assign(idem->sandbox_id, sbox->id);
        answer(idem, sbox, NULL);
        return;
    }
    /* Out of the table first: who is told may try again at once. */
    struct idem_wait *waits = take_ptr(&idem->waits);
    drop(manager, idem);
    while (waits) {
        struct idem_wait *wait = waits;
        waits = wait->next;
        wait->done(wait->ctx, NULL, err);
        mem_free(wait);
    }
}

static int on_row(void *ctx, const struct store_idempotency *row)
{
    struct manager *manager = ctx;
    AUTO_JSON struct json_doc *doc = NULL;

    if (clock_real_ns() - row->created_at_ns > IDEM_KEEP_NS || find(manager, row->org_id, row->key))
        return 0;
    if (!row->doc || json_read(row->doc, strlen(row->doc), 64, &doc, NULL) < 0)
        return 0; /* not ours to refuse the start for */
    const char *id = json_get_text(json_root(doc), "sandbox_id", NULL);
    make_room(manager, row->org_id); /* the oldest came first */
    struct idem *idem = id ? add(manager, row->org_id, row->key, row->fingerprint, row->created_at_ns) : NULL;
    /* An id that is too long becomes no id, so it is not found. */
    if (idem)
        (void)!str_copy(idem->sandbox_id, sizeof idem->sandbox_id, id);
    return 0;
}

int idem_load(struct manager *manager, struct brig_err *err)
{
    return store_each_idempotency(manager->store, on_row, manager, err);
}

void idem_expire(struct manager *manager, int64_t before_ns)
{
    for (struct idem *idem = manager->idem_first, *next; idem; idem = next) {
        next = idem->newer;
        if (!idem->pending && !idem->waits && idem->created_at_ns < before_ns)
            drop(manager, idem);
    }
}

void idem_done(struct manager *manager)
{
    while (manager->idem_first)
        drop(manager, manager->idem_first);
}
