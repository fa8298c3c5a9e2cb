/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h: the directories of one recursive watch, and where each is (watch_nodes.c). */
#ifndef BRIG_GUEST_FILES_WATCH_H
#define BRIG_GUEST_FILES_WATCH_H

#include "guest/files/files_int.h"

#define WATCHES_MAX 8192u
#define NODE_NONE UINT16_MAX
#define NODE_ROOT 0u
#define WATCH_HEADS 4096u

struct watch_node {
    int wd;          /* -1 if it is not watched yet. */
    uint16_t parent; /* NODE_NONE for the root, and for a directory that is being moved. */
    uint16_t next;   /* The next node with the same hash, or the next free one. */
    uint16_t next_pending;
    bool used, pending, dead; /* dead: it is forgotten when its turn comes. */
    bool quiet;               /* What is found in it is not reported. */
    uint8_t name_len;
    char name[NAME_MAX + 1];
};

struct watch_tree {
    int inotify;
    uint16_t n_used; /* The nodes that were ever used; above them are only zeroes. */
    uint16_t free, pending;
    uint16_t heads[WATCH_HEADS];
    struct watch_node nodes[WATCHES_MAX];
};

void tree_init(struct watch_tree *tree, int inotify);
/* Adds a directory that must be looked at. Returns NODE_NONE if there are too many. */
uint16_t tree_add(struct watch_tree *tree, uint16_t parent, const char *name, size_t len, bool quiet);
/* Returns the next one to look at, or NODE_NONE. */
uint16_t tree_next_pending(struct watch_tree *tree);
void tree_push_pending(struct watch_tree *tree, uint16_t node, bool quiet);
void tree_set_wd(struct watch_tree *tree, uint16_t node, int wd);
uint16_t tree_find_wd(const struct watch_tree *tree, int wd);
uint16_t tree_find_child(const struct watch_tree *tree, uint16_t parent, const char *name, size_t len);
/* Gives it another name or place. Returns false if it would be inside itself. */
bool tree_move(struct watch_tree *tree, uint16_t node, uint16_t parent, const char *name, size_t len);
/* The node and all nodes below it are no longer watched. */
void tree_drop(struct watch_tree *tree, uint16_t node);
/*
 * Writes its path from the root, then `name` if that is not NULL. Returns the length, -ENAMETOOLONG, or -ENOENT if it
 * has no place now.
 */
int tree_path(const struct watch_tree *tree, uint16_t node, const char *name, char out[SVC_PATH_MAX + 1]);

#endif
