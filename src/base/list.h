/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.h: doubly linked lists through the things themselves. A thing has `struct thing *next, *prev;`, the owner has
 * `struct thing *first` and, where things are put at the end, `struct thing *last` as well:
 *
 *   first -> a <-> b <-> c <- last
 *
 * NULL ends a list both ways, so zeroed memory is an empty list, and for (t = first; t; t = t->next) walks every list.
 * The macros take `struct thing **` and `struct thing *`: things of two kinds in one list do not compile.
 */
#ifndef BRIG_BASE_LIST_H
#define BRIG_BASE_LIST_H

#include "base/base.h"

/* Puts item at the front of a list that has no last. */
#define list_push(first, item)              \
    do {                                    \
        __typeof__(first) first_ = (first); \
        __typeof__(*first_) item_ = (item); \
        item_->prev = NULL;                 \
        item_->next = *first_;              \
        if (item_->next)                    \
            item_->next->prev = item_;      \
        *first_ = item_;                    \
    } while (0)

/* Puts item at the end. */
#define list_append(first, last, item) list_append_by(first, last, item, next, prev)

/* The same for a thing that is in several lists: its links have other names there. */
#define list_append_by(first, last, item, next, prev)       \
    do {                                                    \
        __typeof__(first) first_ = (first), last_ = (last); \
        __typeof__(*first_) item_ = (item);                 \
        item_->next = NULL;                                 \
        item_->prev = *last_;                               \
        *(*last_ ? &(*last_)->next : first_) = item_;       \
        *last_ = item_;                                     \
    } while (0)

/*
 * Takes item out of a list that has a last. Its own links stay as they were: one who walks the list and has kept the
 * item alive goes on from it.
 */
#define list_take(first, last, item) list_take_by(first, last, item, next, prev)

#define list_take_by(first, last, item, next, prev)                 \
    do {                                                            \
        __typeof__(first) first_ = (first), last_ = (last);         \
        __typeof__(*first_) item_ = (item);                         \
        *(item_->prev ? &item_->prev->next : first_) = item_->next; \
        *(item_->next ? &item_->next->prev : last_) = item_->prev;  \
    } while (0)

/* Takes item out of a list that has no last. */
#define list_remove(first, item)              \
    do {                                      \
        __typeof__(*(first)) no_last_ = NULL; \
        list_take(first, &no_last_, item);    \
    } while (0)

#endif
