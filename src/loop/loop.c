/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.c: the epoll loop and its timers. Theory of operation:
 *
 * Sources. Registered sources stand in a table; epoll carries "generation << 32 | slot", never a pointer. When a source
 * is removed, its slot becomes empty and the slot's generation rises. So events of the same batch that were already
 * fetched for it no longer match and are dropped, even when the slot (or the descriptor number) has a new owner by
 * then.
 *
 * Timers. They stand in a binary heap of pointers, ordered by deadline and then by the order of arming. Each timer
 * knows its place, so moving or clearing one is O(log n). The wait uses the timeout of epoll_pwait2(), so a loop that
 * is only run costs one system call per round and timers cost none. A deadline in the past is raised to the time of the
 * last round: a timer that arms itself again and again sorts after those that are due already, and is not fired twice
 * in one round.
 *
 * Outer loops. When loop_fd() was asked for, a timerfd is added to the epoll set, so that the epoll descriptor itself
 * becomes readable when a timer is due. The timerfd is set again only when the earliest deadline moves forward or when
 * it has expired; if a deadline moved back, the loop wakes once for nothing and notices it then.
 */
#include "loop/loop.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#define LOOP_BATCH 64
#define LOOP_FIRST 16u
#define TIMERFD_KEY UINT64_MAX
#define NOT_ARMED UINT64_MAX

struct slot {
    struct loop_source *source; /* NULL: free */
    uint32_t generation;
    uint32_t events;
    uint32_t next_free; /* slot number + 1, 0 at the end */
};

struct loop {
    int epoll_fd;
    int timer_fd; /* -1 until loop_fd() was asked for */
    struct slot *slots;
    uint32_t n_slots, cap_slots;
    uint32_t first_free;
    struct loop_timer **heap;
    size_t n_timers, cap_timers;
    uint64_t next_seq;
    uint64_t now_ns;      /* of the last round */
    uint64_t timer_fd_ns; /* what timer_fd is set to, or NOT_ARMED */
    unsigned depth;       /* nesting of loop_run_once() */
    bool no_pwait2;
};

uint64_t loop_now_ns(void)
{
    return clock_mono_ns();
}

int loop_create(struct loop **ret, struct brig_err *err)
{
    struct loop *loop = mem_zalloc(sizeof(*loop));

    if (!loop)
        return err_nomem(err);
    loop->timer_fd = -1;
    loop->timer_fd_ns = NOT_ARMED;
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0) {
        int r = err_host(err, "epoll_create1");
        mem_free(loop);
        return r;
    }
    *ret = loop;
    return 0;
}

void loop_destroy(struct loop *loop)
{
    if (!loop)
        return;
    base_close_fd(&loop->timer_fd);
    base_close_fd(&loop->epoll_fd);
    mem_free(loop->slots);
    mem_free(loop->heap);
    mem_free(loop);
}

/* ---- sources ------------------------------------------------------------------------------------ */

static int slot_take(struct loop *loop, uint32_t *ret)
{
    if (loop->first_free != 0) {
        *ret = loop->first_free - 1;
        loop->first_free = loop->slots[*ret].next_free;
        return 0;
    }
    if (loop->n_slots == loop->cap_slots) {
        uint32_t cap;
        if (__builtin_mul_overflow(loop->cap_slots, 2u, &cap))
            return -ENOMEM;
        if (cap == 0)
            cap = LOOP_FIRST;
        struct slot *slots = mem_realloc_array(loop->slots, cap, sizeof(*slots));
        if (!slots)
            return -ENOMEM;
        loop->slots = slots;
        loop->cap_slots = cap;
    }
    *ret = loop->n_slots++;
    loop->slots[*ret] = (struct slot){0};
    return 0;
}

static void slot_release(struct loop *loop, uint32_t number)
{
    struct slot *slot = &loop->slots[number];

    slot->source = NULL;
    slot->generation++;
    slot->next_free = loop->first_free;
    loop->first_free = number + 1;
}

static struct slot *slot_of(struct loop *loop, const struct loop_source *source)
{
    if (source->slot == 0 || source->slot > loop->n_slots)
        return NULL;
    struct slot *slot = &loop->slots[source->slot - 1];
    return slot->source == source ? slot : NULL;
}

static int slot_control(struct loop *loop, int op, int fd, uint32_t number, uint32_t events)
{
    struct epoll_event event = {
        .events = events,
        .data.u64 = (uint64_t)loop->slots[number].generation << 32 | number,
    };
    return epoll_ctl(loop->epoll_fd, op, fd, &event) < 0 ? -errno : 0;
}

int loop_add(struct loop *loop, struct loop_source *source, int fd, uint32_t events, struct brig_err *err)
{
    uint32_t number;

    if (slot_of(loop, source))
        return err_set(err, BRIG_E_HOST, EEXIST, "watch descriptor %d", fd);
    if (slot_take(loop, &number) < 0)
        return err_nomem(err);
    int r = slot_control(loop, EPOLL_CTL_ADD, fd, number, events);
    if (r < 0) {
        slot_release(loop, number);
        return err_set(err, BRIG_E_HOST, -r, "watch descriptor %d", fd);
    }
    loop->slots[number].source = source;
    loop->slots[number].events = events;
    source->fd = fd;
    source->slot = number + 1;
    return 0;
}

int loop_modify(struct loop *loop, struct loop_source *source, uint32_t events, struct brig_err *err)
{
    struct slot *slot = slot_of(loop, source);

    if (!slot)
        return err_set(err, BRIG_E_HOST, ENOENT, "watch descriptor %d", source->fd);
    if (slot->events == events)
        return 0;
    int r = slot_control(loop, EPOLL_CTL_MOD, source->fd, source->slot - 1, events);
    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "watch descriptor %d", source->fd);
    slot->events = events;
    return 0;
}

void loop_remove(struct loop *loop, struct loop_source *source)
{
    if (slot_of(loop, source)) {
        int saved = errno;
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
        slot_release(loop, source->slot - 1);
        errno = saved;
    }
    source->slot = 0;
    source->fd = -1;
}

/* ---- timers ------------------------------------------------------------------------------------- */

static bool timer_before(const struct loop_timer *a, const struct loop_timer *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

static void heap_put(struct loop *loop, size_t at, struct loop_timer *timer)
{
    loop->heap[at] = timer;
    timer->pos = at + 1;
}

/* Finds the place of a timer for which `at` is a hole. */
static void heap_settle(struct loop *loop, size_t at, struct loop_timer *timer)
{
    while (at > 0 && timer_before(timer, loop->heap[(at - 1) / 2])) {
        heap_put(loop, at, loop->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= loop->n_timers)
            break;
        if (child + 1 < loop->n_timers && timer_before(loop->heap[child + 1], loop->heap[child]))
            child++;
        if (!timer_before(loop->heap[child], timer))
            break;
        heap_put(loop, at, loop->heap[child]);
        at = child;
    }
    heap_put(loop, at, timer);
}

static bool timer_armed(const struct loop *loop, const struct loop_timer *timer)
{
    return timer->pos != 0 && timer->pos <= loop->n_timers && loop->heap[timer->pos - 1] == timer;
}

/* Makes timer_fd wake no later than the earliest timer; `expired` resets one that has fired. */
static int timer_fd_update(struct loop *loop, bool expired)
{
    struct itimerspec spec = {0};
    uint64_t want = loop->n_timers > 0 ? loop->heap[0]->at_ns : NOT_ARMED;

    if (loop->timer_fd < 0 || (want >= loop->timer_fd_ns && !expired))
        return 0;
    if (want != NOT_ARMED) {
        spec.it_value.tv_sec = (time_t)(want / NS_PER_SEC);
        spec.it_value.tv_nsec = (long)(want % NS_PER_SEC);
        if (want == 0)
            spec.it_value.tv_nsec = 1; /* zero would disarm it */
    }
    if (timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL) < 0)
        return -errno;
    loop->timer_fd_ns = want;
    return 0;
}

int loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t at_ns, struct brig_err *err)
{
    size_t at;

    if (timer_armed(loop, timer)) {
        at = timer->pos - 1;
    } else {
        if (MEM_GROW(loop->heap, loop->n_timers, loop->cap_timers) < 0)
            return err_nomem(err);
        at = loop->n_timers++;
    }
    if (at_ns == NOT_ARMED)
        at_ns--;
    timer->at_ns = at_ns > loop->now_ns ? at_ns : loop->now_ns;
    timer->seq = loop->next_seq++;
    heap_settle(loop, at, timer);
    /* During a round this is left to its end. */
    if (loop->depth == 0) {
        int r = timer_fd_update(loop, false);
        if (r < 0) {
            loop_timer_clear(loop, timer);
            return err_set(err, BRIG_E_HOST, -r, "timerfd_settime");
        }
    }
    return 0;
}

void loop_timer_clear(struct loop *loop, struct loop_timer *timer)
{
    if (timer_armed(loop, timer)) {
        size_t at = timer->pos - 1;
        struct loop_timer *last = loop->heap[--loop->n_timers];
        if (last != timer)
            heap_settle(loop, at, last);
    }
    timer->pos = 0;
}

static void timers_fire(struct loop *loop)
{
    uint64_t first_new = loop->next_seq;

    if (loop->n_timers == 0)
        return;
    loop->now_ns = clock_mono_ns();
    uint64_t now = loop->now_ns;
    while (loop->n_timers > 0) {
        struct loop_timer *timer = loop->heap[0];
        if (timer->at_ns > now || timer->seq >= first_new)
            break;
        loop_timer_clear(loop, timer);
        timer->fn(timer);
    }
}

/* ---- running ------------------------------------------------------------------------------------ */

int loop_fd(const struct loop *loop)
{
    struct loop *self = (struct loop *)(uintptr_t)loop; /* loops are never const objects */

    if (self->timer_fd < 0) {
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = TIMERFD_KEY};
        AUTO_FD int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (fd < 0 || epoll_ctl(self->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
            return -errno;
        self->timer_fd = take_fd(&fd);
        int r = timer_fd_update(self, false);
        if (r < 0) {
            base_close_fd(&self->timer_fd); /* closing takes it out of the epoll set */
            return r;
        }
    }
    return self->epoll_fd;
}

static int wait_ms(struct loop *loop, struct epoll_event *events, uint64_t wait_ns)
{
    uint64_t ms = wait_ns / NS_PER_MS + (wait_ns % NS_PER_MS != 0);

    return epoll_wait(loop->epoll_fd, events, LOOP_BATCH, ms > INT32_MAX ? INT32_MAX : (int)ms);
}

/* Number of events, or -errno. */
static int wait_events(struct loop *loop, struct epoll_event *events, int timeout_ms)
{
    uint64_t wait_ns = timeout_ms < 0 ? UINT64_MAX : (uint64_t)timeout_ms * NS_PER_MS;
    int n;

    if (wait_ns > 0 && loop->n_timers > 0) {
        uint64_t now = clock_mono_ns(), at = loop->heap[0]->at_ns;
        uint64_t until = at > now ? at - now : 0;
        if (until < wait_ns)
            wait_ns = until;
    }
    if (wait_ns == UINT64_MAX) {
        n = epoll_wait(loop->epoll_fd, events, LOOP_BATCH, -1);
    } else if (wait_ns % NS_PER_MS == 0 || loop->no_pwait2) {
        n = wait_ms(loop, events, wait_ns);
    } else {
        struct timespec ts = {(time_t)(wait_ns / NS_PER_SEC), (long)(wait_ns % NS_PER_SEC)};
        n = epoll_pwait2(loop->epoll_fd, events, LOOP_BATCH, &ts, NULL);
        /* Before Linux 5.11, or under a seccomp filter that is older than the call: whole milliseconds, rounded up. */
        if (n < 0 && (errno == ENOSYS || errno == EPERM)) {
            loop->no_pwait2 = true;
            n = wait_ms(loop, events, wait_ns);
        }
    }
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    return n;
}

int loop_run_once(struct loop *loop, int timeout_ms, struct brig_err *err)
{
    struct epoll_event events[LOOP_BATCH];
    bool expired = false;
    int n = wait_events(loop, events, timeout_ms);

    if (n < 0)
        return err_set(err, BRIG_E_HOST, -n, "epoll_wait");

    loop->depth++;
    for (int i = 0; i < n; i++) {
        uint64_t key = events[i].data.u64;
        uint32_t number = (uint32_t)key;
        if (key == TIMERFD_KEY) {
            expired = true;
            continue;
        }
        /* The table may have been moved by an earlier callback: look it up every time. */
        struct slot *slot = &loop->slots[number];
        if (slot->source && slot->generation == (uint32_t)(key >> 32))
            slot->source->fn(slot->source, events[i].events);
    }
    timers_fire(loop);
    loop->depth--;

    if (loop->timer_fd >= 0 && loop->depth == 0) {
        /* A nested round may have eaten the event that said so; the clock says it as well. */
        if (loop->timer_fd_ns <= loop->now_ns)
            expired = true;
        int r = timer_fd_update(loop, expired);
        if (r < 0)
            return err_set(err, BRIG_E_HOST, -r, "timerfd_settime");
    }
    return 0;
}
