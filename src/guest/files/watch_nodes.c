/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_nodes.c: the directories of one watch. inotify names a directory by a number; the path belonging to it is put
 * together here from names and parents, so that a directory that moves takes everything below it along by changing one
 * node. The table has a fixed size and is touched only as far as it is used.
 */
#include "guest/files/watch.h"

static uint16_t *head_of(struct watch_tree *tree, int wd)
{
    return &tree->heads[(unsigned)wd % WATCH_HEADS];
}

void tree_init(struct watch_tree *tree, int inotify)
{
    tree->inotify = inotify;
    tree->free = tree->pending = NODE_NONE;
    for (unsigned i = 0; i < WATCH_HEADS; i++)
        tree->heads[i] = NODE_NONE;
}

static void set_name(struct watch_node *node, const char *name, size_t len)
{
    node->name_len = (uint8_t)len;
    __builtin_memcpy(node->name, name, len);
    node->name[len] = 0;
}

void tree_push_pending(struct watch_tree *tree, uint16_t node, bool quiet)
{
    if (tree->nodes[node].pending)
        return;
    tree->nodes[node].pending = true;
    tree->nodes[node].quiet = quiet;
    tree->nodes[node].next_pending = tree->pending;
    tree->pending = node;
}

uint16_t tree_add(struct watch_tree *tree, uint16_t parent, const char *name, size_t len, bool quiet)
{
    uint16_t node = tree->free;

    if (len > NAME_MAX)
        return NODE_NONE;
    if (node != NODE_NONE)
        tree->free = tree->nodes[node].next;
    else if (tree->n_used < WATCHES_MAX)
        node = tree->n_used++;
    else
        return NODE_NONE;
    tree->nodes[node].wd = -1;
    tree->nodes[node].parent = parent;
    tree->nodes[node].used = true;
    tree->nodes[node].dead = tree->nodes[node].pending = false;
    set_name(&tree->nodes[node], name, len);
    tree_push_pending(tree, node, quiet);
    return node;
}

static void release(struct watch_tree *tree, uint16_t node)
{
    tree->nodes[node].used = tree->nodes[node].dead = false;
    tree->nodes[node].next = tree->free;
    tree->free = node;
}

uint16_t tree_next_pending(struct watch_tree *tree)
{
    while (tree->pending != NODE_NONE) {
        uint16_t node = tree->pending;

        tree->pending = tree->nodes[node].next_pending;
        tree->nodes[node].pending = false;
        if (!tree->nodes[node].dead)
            return node;
        release(tree, node);
    }
    return NODE_NONE;
}

void tree_set_wd(struct watch_tree *tree, uint16_t node, int wd)
{
    tree->nodes[node].wd = wd;
    tree->nodes[node].next = *head_of(tree, wd);
    *head_of(tree, wd) = node;
}

uint16_t tree_find_wd(const struct watch_tree *tree, int wd)
{
    uint16_t node = tree->heads[(unsigned)wd % WATCH_HEADS];

    while (node != NODE_NONE && tree->nodes[node].wd != wd)
        node = tree->nodes[node].next;
    return node;
}

uint16_t tree_find_child(const struct watch_tree *tree, uint16_t parent, const char *name, size_t len)
{
    for (uint16_t i = 0; i < tree->n_used; i++) {
        const struct watch_node *node = &tree->nodes[i];

        if (node->used && !node->dead && node->parent == parent && node->name_len == len && i != NODE_ROOT &&
            __builtin_memcmp(node->name, name, len) == 0)
            return i;
    }
    return NODE_NONE;
}

/* Parents lead to the root or nowhere; never in a circle, since tree_move() does not make one. */
static bool is_below(const struct watch_tree *tree, uint16_t node, uint16_t above)
{
    while (node != NODE_NONE && node != above)
        node = tree->nodes[node].parent;
    return node == above;
}

bool tree_move(struct watch_tree *tree, uint16_t node, uint16_t parent, const char *name, size_t len)
{
    if (len > NAME_MAX || node == NODE_ROOT || (parent != NODE_NONE && is_below(tree, parent, node)))
        return false;
    tree->nodes[node].parent = parent;
    set_name(&tree->nodes[node], name, len);
    return true;
}

static void forget_wd(struct watch_tree *tree, uint16_t node)
{
    uint16_t *at = head_of(tree, tree->nodes[node].wd);

    while (*at != node)
        at = &tree->nodes[*at].next;
    *at = tree->nodes[node].next;
    raw_call2(SYS_inotify_rm_watch, tree->inotify, tree->nodes[node].wd);
    tree->nodes[node].wd = -1;
}

/* Marked first: while some are gone already, the others must still find their way up. */
void tree_drop(struct watch_tree *tree, uint16_t top)
{
    for (uint16_t i = 0; i < tree->n_used; i++)
        if (tree->nodes[i].used && !tree->nodes[i].dead && is_below(tree, i, top)) {
            if (tree->nodes[i].wd >= 0)
                forget_wd(tree, i);
            tree->nodes[i].dead = true;
        }
    for (uint16_t i = 0; i < tree->n_used; i++)
        if (tree->nodes[i].used && tree->nodes[i].dead && !tree->nodes[i].pending)
            release(tree, i);
}

/* Filled from its end. */
int tree_path(const struct watch_tree *tree, uint16_t node, const char *name, char out[SVC_PATH_MAX + 1])
{
    size_t at = SVC_PATH_MAX, len = name ? __builtin_strlen(name) : 0;

    if (len > at)
        return -ENAMETOOLONG;
    at -= len;
    if (len > 0)
        __builtin_memcpy(out + at, name, len);
    for (; node != NODE_ROOT; node = tree->nodes[node].parent) {
        if (node == NODE_NONE)
            return -ENOENT;
        len = tree->nodes[node].name_len;
        if (len + 1 > at)
            return -ENAMETOOLONG;
        if (at < SVC_PATH_MAX)
            out[--at] = '/';
        at -= len;
        __builtin_memcpy(out + at, tree->nodes[node].name, len);
    }
    __builtin_memmove(out, out + at, SVC_PATH_MAX - at);
    out[SVC_PATH_MAX - at] = 0;
    return (int)(SVC_PATH_MAX - at);
}
