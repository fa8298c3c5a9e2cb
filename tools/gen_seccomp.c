/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Build-time compiler of the system call filter: src/jail/seccomp_table.h in, a header with one
 * array of BPF instructions per filter out. It runs on the build machine so that the engine need
 * not link libseccomp (starting a program that does costs milliseconds, compiling a filter more).
 *
 * libseccomp makes the binary tree over the numbers and the architecture checks in front of it.
 * Two things it cannot say, or not compactly, are put around its tree:
 *
 *  - "this call, except when": its rules only match towards an action, so a list of refused options
 *    has no expression. A call with an argument rule goes into the tree with a marker action, and
 *    each marker in the finished tree is replaced by a jump to a chain of comparisons, which stand
 *    once each behind the tree.
 *  - "every number we do not know": what installing a filter costs is mostly its length (0.17 us an
 *    instruction, measured), and most numbers of the table are allowed. So the numbers outside the
 *    table are answered in front, and the tree holds only the exceptions to "allow". That is sound
 *    because the table has no gaps but the one named below (check_table), and because the finished
 *    program is run for every number and held against the table (check_answers).
 *
 *      nr past the table or in its gap, x86-64 -> ret ENOSYS
 *      ld arch; not x86-64 -> kill
 *      ld nr;   x32        -> kill
 *      tree ------------------> ret allow | ret errno | ja chain ---+
 *      chain of clone:  ld args[0]; and; jeq ...; ret  <------------+
 *      chain of socket: ...
 *
 * The kernel fills its per-number bitmap by running the filter until it returns or looks at an
 * argument. The tree looks at none, so every constant answer of the table is in the bitmap;
 * check_answers does the same walk.
 *
 * Same table, same libseccomp: same bytes. Nothing here depends on time, addresses or environment.
 */
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "jail/seccomp_table.h"

/* Numbers x86-64 leaves out, so that new calls have the same number on all architectures. */
#define GAP_FIRST 337
#define GAP_LAST 423

struct program {
    struct sock_filter insn[BPF_MAXINSNS];
    size_t len;
};

static void die(const char *what, const char *detail)
{
    fprintf(stderr, "gen_seccomp: %s: %s\n", what, detail);
    exit(1);
}

static size_t emit(struct program *p, uint16_t code, uint32_t k)
{
    if (p->len == BPF_MAXINSNS)
        die("filter", "more than BPF_MAXINSNS instructions");
    p->insn[p->len] = (struct sock_filter){.code = code, .jt = 0, .jf = 0, .k = k};
    return p->len++;
}

static bool is_rule(uint32_t verdict)
{
    return (verdict & SECCOMP_RET_ACTION_FULL) == SECCOMP_TABLE_RULE;
}

/* ---- the table itself ------------------------------------------------------------------------ */

static void check_table(void)
{
    int prev = -1;

    for (size_t i = 0; i < SECCOMP_TABLE_ROWS; i++) {
        const struct seccomp_row *row = &seccomp_table[i];
        int known = seccomp_syscall_resolve_name_arch(SCMP_ARCH_X86_64, row->name);

        if (row->nr <= prev)
            die("numbers not ascending at", row->name);
        /* Negative: newer than this libseccomp. Then only the name beside the number vouches. */
        if (known >= 0 && known != row->nr)
            die("number is not that of", row->name);
        /* A gap would silently turn into ENOSYS; the only one x86-64 has is 337..423. */
        if (row->nr != prev + 1 && !(prev + 1 == GAP_FIRST && row->nr == GAP_LAST + 1))
            die("numbers missing before", row->name);
        prev = row->nr;
    }
    for (size_t r = 0; r < SECCOMP_RULE_MAX; r++) {
        const struct seccomp_rule *rule = &seccomp_rules[r];

        for (size_t i = 0; i < rule->count; i++) {
            const struct seccomp_clause *clause = &rule->clauses[i];

            if ((clause->conds == 0) != (i + 1 == rule->count))
                die("only the last clause may and must be unconditional", rule->name);
            for (uint32_t k = 0; k < clause->conds; k++) {
                const struct seccomp_cond *c = &clause->cond[k];

                if (c->arg > 5 || c->min > c->max || (c->min == c->max && (c->min & ~c->mask)))
                    die("a condition that cannot hold", rule->name);
            }
        }
    }
}

/* ---- the tree, by libseccomp ----------------------------------------------------------------- */

static void must(int rc, const char *what)
{
    if (rc < 0)
        die(what, strerror(-rc));
}

/*
 * The numbers that are not in the table. Another architecture and x32 go on to libseccomp's checks,
 * which kill; but not -1, which those let through for the sake of tracers.
 */
static void compile_unknown(struct program *p)
{
    const uint32_t last = (uint32_t)seccomp_table[SECCOMP_TABLE_ROWS - 1].nr;
    const struct sock_filter front[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, GAP_FIRST, 0, 6),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, GAP_LAST, 5, 2),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SECCOMP_TABLE_X32_BIT, 3, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_TABLE_UNKNOWN),
    };

    memcpy(p->insn, front, sizeof front);
    p->len = sizeof front / sizeof front[0];
}

static void compile_tree(struct program *p, enum seccomp_filter filter)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
    size_t room = sizeof p->insn - p->len * sizeof p->insn[0];
    ssize_t bytes;
    int fd;

    if (!ctx)
        die("seccomp_init", "failed");
    if (seccomp_arch_native() != SCMP_ARCH_X86_64) {
        must(seccomp_arch_add(ctx, SCMP_ARCH_X86_64), "arch_add");
        must(seccomp_arch_remove(ctx, SCMP_ARCH_NATIVE), "arch_remove");
    }
    must(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), "badarch");
    must(seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2), "optimize");
    for (size_t i = 0; i < SECCOMP_TABLE_ROWS; i++) {
        const struct seccomp_row *row = &seccomp_table[i];
        uint32_t verdict = seccomp_row_verdict(row, filter);

        if (verdict != SECCOMP_RET_ALLOW) /* libseccomp's action values are the kernel's */
            must(seccomp_rule_add_exact(ctx, verdict, row->nr, 0), row->name);
    }
    fd = memfd_create("bpf", MFD_CLOEXEC);
    if (fd < 0)
        die("memfd_create", "failed");
    must(seccomp_export_bpf(ctx, fd), "export_bpf");
    seccomp_release(ctx);
    bytes = pread(fd, p->insn + p->len, room, 0);
    if (bytes <= 0 || (size_t)bytes % sizeof p->insn[0] || (size_t)bytes == room)
        die("export_bpf", "unexpected size");
    p->len += (size_t)bytes / sizeof p->insn[0];
    close(fd);
}

/* ---- the chains of argument rules ------------------------------------------------------------ */

/* What the accumulator holds, so that a word already loaded and masked is not loaded again. */
struct acc {
    bool known;
    uint32_t arg, mask;
};

static void load_word(struct program *p, struct acc *acc, const struct seccomp_cond *c)
{
    if (acc->known && acc->arg == c->arg && acc->mask == c->mask)
        return;
    /* low half: little endian */
    emit(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offsetof(struct seccomp_data, args) + 8 * c->arg));
    if (c->mask != UINT32_MAX)
        emit(p, BPF_ALU | BPF_AND | BPF_K, c->mask);
    *acc = (struct acc){.known = true, .arg = c->arg, .mask = c->mask};
}

/* A branch whose target is not known yet: where it is, and which of its two ways leads there. */
struct hole {
    size_t at;
    bool if_true;
};

static void fill(struct program *p, struct hole h)
{
    size_t delta = p->len - h.at - 1;

    if (delta > UINT8_MAX)
        die("chain", "a jump too far; split the rule");
    if (h.if_true)
        p->insn[h.at].jt = (uint8_t)delta;
    else
        p->insn[h.at].jf = (uint8_t)delta;
}

/* The comparisons of one condition; the ways that lead out when it fails are added to `no`, the way
 * that leads on when it holds is returned. */
static struct hole test_word(struct program *p, const struct seccomp_cond *c, struct hole *no, size_t *nos)
{
    size_t at;

    if (c->min == c->max) {
        at = emit(p, BPF_JMP | BPF_JEQ | BPF_K, c->min);
        no[(*nos)++] = (struct hole){at, false};
        return (struct hole){at, true};
    }
    if (c->max == UINT32_MAX) {
        at = emit(p, BPF_JMP | BPF_JGE | BPF_K, c->min);
        no[(*nos)++] = (struct hole){at, false};
        return (struct hole){at, true};
    }
    if (c->min > 0) {
        at = emit(p, BPF_JMP | BPF_JGE | BPF_K, c->min);
        no[(*nos)++] = (struct hole){at, false};
    }
    at = emit(p, BPF_JMP | BPF_JGT | BPF_K, c->max);
    no[(*nos)++] = (struct hole){at, true};
    return (struct hole){at, false};
}

#define MAX_CLAUSES 96

/* A chain in the making: the ways that lead to answers, which come last. */
struct chain {
    struct program *p;
    const struct seccomp_clause *clauses;
    struct hole yes[MAX_CLAUSES]; /* of clause i, if pending[i] */
    bool pending[MAX_CLAUSES];
};

static bool same_cond(const struct seccomp_cond *a, const struct seccomp_cond *b)
{
    return a->arg == b->arg && a->mask == b->mask && a->min == b->min && a->max == b->max;
}

/*
 * Clauses lo..hi-1, whose first `depth` conditions are known to hold. Neighbours that go on with the
 * same condition share its test. Returns whether control can run off the end.
 */
static bool compile_clauses(struct chain *ch, size_t lo, size_t hi, uint32_t depth, struct acc *acc)
{
    size_t next;

    for (size_t i = lo; i < hi; i = next) {
        const struct seccomp_clause *clause = &ch->clauses[i];
        struct hole no[2], yes;
        size_t nos = 0;

        if (clause->conds == depth) { /* always: what follows in this group cannot be reached */
            emit(ch->p, BPF_RET | BPF_K, clause->verdict);
            return false;
        }
        for (next = i + 1; next < hi && ch->clauses[next].conds > depth; next++)
            if (!same_cond(&ch->clauses[next].cond[depth], &clause->cond[depth]))
                break;
        load_word(ch->p, acc, &clause->cond[depth]);
        yes = test_word(ch->p, &clause->cond[depth], no, &nos);
        if (clause->conds == depth + 1) {
            ch->yes[i] = yes;
            ch->pending[i] = true;
        } else {
            struct acc inner = *acc;

            fill(ch->p, yes);
            if (compile_clauses(ch, i, next, depth + 1, &inner) && (inner.arg != acc->arg || inner.mask != acc->mask))
                acc->known = false;
        }
        for (size_t h = 0; h < nos; h++)
            fill(ch->p, no[h]);
    }
    return true;
}

static void compile_chain(struct program *p, const struct seccomp_rule *rule)
{
    struct chain ch = {.p = p, .clauses = rule->clauses};
    struct acc acc = {.known = false, .arg = 0, .mask = 0};

    if (rule->count > MAX_CLAUSES)
        die("too many clauses", rule->name);
    if (compile_clauses(&ch, 0, rule->count, 0, &acc))
        die("no answer at the end", rule->name);
    for (size_t i = 0; i < rule->count; i++) {
        bool wanted = false;

        for (size_t j = i; j < rule->count; j++) {
            if (!ch.pending[j] || ch.clauses[j].verdict != ch.clauses[i].verdict)
                continue;
            fill(p, ch.yes[j]);
            ch.pending[j] = false;
            wanted = true;
        }
        if (wanted)
            emit(p, BPF_RET | BPF_K, ch.clauses[i].verdict);
    }
}

static void append_chains(struct program *p)
{
    size_t tree = p->len;

    for (uint32_t r = 0; r < SECCOMP_RULE_MAX; r++) {
        size_t start = p->len;
        bool used = false;

        for (size_t i = 0; i < tree; i++) {
            struct sock_filter *in = &p->insn[i];

            if (in->code != (BPF_RET | BPF_K) || in->k != (SECCOMP_TABLE_RULE | r))
                continue;
            *in = (struct sock_filter){.code = BPF_JMP | BPF_JA, .jt = 0, .jf = 0, .k = (uint32_t)(start - i - 1)};
            used = true;
        }
        if (used)
            compile_chain(p, &seccomp_rules[r]);
    }
    for (size_t i = 0; i < p->len; i++)
        if (p->insn[i].code == (BPF_RET | BPF_K) && is_rule(p->insn[i].k))
            die("tree", "a marker was left over");
}

/* ---- what the kernel will do with it --------------------------------------------------------- */

/*
 * The walk of seccomp_is_const_allow() in the kernel: the answer for a number if the filter gives
 * one without looking further, else NO_ANSWER. *ret_steps counts instructions.
 */
#define NO_ANSWER 0xffffffffu
static uint32_t const_answer(const struct program *p, int nr, size_t *ret_steps)
{
    uint32_t acc = 0;

    *ret_steps = 0;
    for (size_t pc = 0; pc < p->len; pc++) {
        const struct sock_filter *in = &p->insn[pc];
        bool yes;

        (*ret_steps)++;
        switch (in->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            if (in->k == offsetof(struct seccomp_data, nr))
                acc = (uint32_t)nr;
            else if (in->k == offsetof(struct seccomp_data, arch))
                acc = AUDIT_ARCH_X86_64;
            else
                return NO_ANSWER;
            continue;
        case BPF_RET | BPF_K: return in->k;
        case BPF_JMP | BPF_JA: pc += in->k; continue;
        case BPF_JMP | BPF_JEQ | BPF_K: yes = acc == in->k; break;
        case BPF_JMP | BPF_JGE | BPF_K: yes = acc >= in->k; break;
        case BPF_JMP | BPF_JGT | BPF_K: yes = acc > in->k; break;
        default: return NO_ANSWER;
        }
        pc += yes ? in->jt : in->jf;
    }
    return NO_ANSWER;
}

static void check_answers(const struct program *p, enum seccomp_filter filter, const char *name)
{
    size_t steps, total = 0, deepest = 0, cached = 0;
    int last = seccomp_table[SECCOMP_TABLE_ROWS - 1].nr;

    for (int nr = -1; nr <= 65536; nr++) {
        const struct seccomp_row *row = seccomp_table_row(nr);
        uint32_t want = row ? seccomp_row_verdict(row, filter) : SECCOMP_TABLE_UNKNOWN;
        uint32_t got = const_answer(p, nr, &steps);

        if (got != (is_rule(want) ? NO_ANSWER : want))
            die("the compiled tree disagrees with the table on", row ? row->name : "a gap");
        if (nr < 0 || nr > last)
            continue;
        cached += got == SECCOMP_RET_ALLOW;
        total += steps;
        deepest = steps > deepest ? steps : deepest;
    }
    fprintf(stderr,
            "gen_seccomp: %-8s %4zu instructions, %zu calls in the bitmap, "
            "%zu steps to an answer on average, %zu at worst\n",
            name, p->len, cached, total / (size_t)(last + 1), deepest);
}

static void print_program(const struct program *p, const char *name)
{
    printf("\n/* %zu instructions */\nstatic const struct sock_filter brig_filter_%s[] = {\n", p->len, name);
    for (size_t i = 0; i < p->len; i++)
        printf("    { 0x%02x, %u, %u, 0x%08x },\n", p->insn[i].code, p->insn[i].jt, p->insn[i].jf, p->insn[i].k);
    printf("};\n");
}

static void generate(const char *name, enum seccomp_filter filter)
{
    static struct program p;

    memset(&p, 0, sizeof p);
    compile_unknown(&p);
    compile_tree(&p, filter);
    append_chains(&p);
    check_answers(&p, filter, name);
    print_program(&p, name);
}

/* usage: gen_seccomp [FILE]; without a file to standard output */
int main(int argc, char **argv)
{
    if (argc > 1 && !freopen(argv[1], "w", stdout))
        die(argv[1], "cannot be written");
    check_table();
    printf("/* Made by tools/gen_seccomp.c from src/jail/seccomp_table.h; changes go there. */\n"
           "#include <linux/filter.h>\n");
    generate("default", SECCOMP_FILTER_NORMAL);
    generate("paranoid", SECCOMP_FILTER_PARANOID);
    generate("set_ids", SECCOMP_FILTER_SET_IDS);
    generate("kvm", SECCOMP_FILTER_KVM);
    if (fflush(stdout) || ferror(stdout))
        die("output", "write failed");
    return 0;
}
