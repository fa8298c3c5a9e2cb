/* SPDX-License-Identifier: Apache-2.0 */
/*
 * completion.c: `brig completion bash|zsh|fish`: a script for the shell. It contains no flags: they come from `brig
 * VERB --help`, so it is never out of date. The names of sandboxes come from a daemon, if one answers at once.
 */
#include <string.h>

#include "cli/cli.h"
#include "cli/flags.h"

static const struct flag_table completion_table = {
    .usage = "brig completion bash|zsh|fish",
    .purpose = "Prints a script that completes verbs, flags and sandboxes.\n\n"
               "  brig completion bash > /etc/bash_completion.d/brig\n"
               "  brig completion zsh > \"${fpath[1]}/_brig\"\n"
               "  brig completion fish > ~/.config/fish/completions/brig.fish",
};

static const char bash_script[] =
    "# brig(1) completion for bash\n"
    "_brig() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} words=\n"
    "    COMPREPLY=()\n"
    "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
    "        words=\"@VERBS@\"\n"
    "    elif [[ $cur == -* ]]; then\n"
    "        local sub=\n"
    "        case $verb in @SUBBED@) sub=${COMP_WORDS[2]} ;; esac\n"
    "        words=$(brig \"$verb\" $sub --help 2>/dev/null | grep -oE '^ +(-[a-zA-Z], )?--[a-z-]+' | grep -oE -- "
    "'--[a-z-]+')\n"
    "    else\n"
    "        case $verb in\n"
    "        key) [ \"$COMP_CWORD\" -eq 2 ] && words=\"create ls revoke\" ;;\n"
    "        org) [ \"$COMP_CWORD\" -eq 2 ] && words=\"create ls rm\" ;;\n"
    "        policy) if [ \"$COMP_CWORD\" -eq 2 ]; then words=\"check ls rm set show\"; elif [ \"$COMP_CWORD\" -eq 3 "
    "]; then words=$(brig policy ls -q 2>/dev/null); fi ;;\n"
    "        secret) [ \"$COMP_CWORD\" -eq 2 ] && words=\"keygen ls rm set\" ;;\n"
    "        tool) if [ \"$COMP_CWORD\" -eq 2 ]; then words=\"add ls rm run schema show\"; else case ${COMP_WORDS[2]} "
    "in run|rm|show) words=$(brig tool ls -q 2>/dev/null) ;; esac; fi ;;\n"
    "        agent) if [ \"$COMP_CWORD\" -eq 2 ]; then words=\"add attach detach ls rm show\"; elif [ \"${COMP_WORDS[2]"
    "}\" != add ]; then words=$(brig agent ls -q 2>/dev/null); fi ;;\n"
    "        env) [ \"$COMP_CWORD\" -eq 2 ] && words=\"ls rm set show\" ;;\n"
    "        pool) [ \"$COMP_CWORD\" -eq 2 ] && words=\"ls prewarm\" ;;\n"
    "        service) [ \"$COMP_CWORD\" -eq 2 ] && words=\"ls start stop restart\" ;;\n"
    "        receipt) if [ \"$COMP_CWORD\" -eq 2 ]; then words=\"files ls show\"; else words=$(brig receipt ls -q "
    "2>/dev/null); fi ;;\n"
    "        approve|deny) words=$(brig approve -q 2>/dev/null) ;;\n"
    "        help) words=\"@VERBS@\" ;;\n"
    "        config) [ \"$COMP_CWORD\" -eq 2 ] && words=\"check reload sample show\" ;;\n"
    "        audit) [ \"$COMP_CWORD\" -eq 2 ] && words=\"export show tail verify\" ;;\n"
    "        completion) words=\"bash fish zsh\" ;;\n"
    "        @BOXES@) words=$(brig ps 2>/dev/null | awk 'NR > 1 {print $1; if ($2 != \"-\") print $2}') ;;\n"
    "        esac\n"
    "        if [ \"$verb\" = cp ] || [ -z \"$words\" ]; then\n"
    "            compopt -o default 2>/dev/null\n"
    "        fi\n"
    "    fi\n"
    "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
    "}\n"
    "complete -F _brig brig\n";

static const char zsh_script[] =
    "#compdef brig\n"
    "# brig(1) completion for zsh\n"
    "_brig() {\n"
    "    local -a words_\n"
    "    local verb=${words[2]}\n"
    "    if (( CURRENT == 2 )); then\n"
    "        words_=(${=:-\"@VERBS@\"})\n"
    "    elif [[ ${words[CURRENT]} == -* ]]; then\n"
    "        local sub=\n"
    "        case $verb in (@SUBBED@) sub=${words[3]} ;; esac\n"
    "        words_=(${(f)\"$(brig $verb $sub --help 2>/dev/null | grep -oE '^ +(-[a-zA-Z], )?--[a-z-]+' | grep -oE -- "
    "'--[a-z-]+')\"})\n"
    "    else\n"
    "        case $verb in\n"
    "        (key) (( CURRENT == 3 )) && words_=(create ls revoke) ;;\n"
    "        (org) (( CURRENT == 3 )) && words_=(create ls rm) ;;\n"
    "        (policy) if (( CURRENT == 3 )); then words_=(check ls rm set show); elif (( CURRENT == 4 )); then "
    "words_=(${(f)\"$(brig policy ls -q 2>/dev/null)\"}); fi ;;\n"
    "        (secret) (( CURRENT == 3 )) && words_=(keygen ls rm set) ;;\n"
    "        (tool) if (( CURRENT == 3 )); then words_=(add ls rm run schema show); else words_=(${(f)\"$(brig tool ls "
    "-q 2>/dev/null)\"}); _files; fi ;;\n"
    "        (agent) if (( CURRENT == 3 )); then words_=(add attach detach ls rm show); else words_=(${(f)\"$(brig "
    "agent ls -q 2>/dev/null)\"}); fi ;;\n"
    "        (env) (( CURRENT == 3 )) && words_=(ls rm set show) ;;\n"
    "        (pool) (( CURRENT == 3 )) && words_=(ls prewarm) ;;\n"
    "        (service) (( CURRENT == 3 )) && words_=(ls start stop restart) ;;\n"
    "        (receipt) if (( CURRENT == 3 )); then words_=(files ls show); else words_=(${(f)\"$(brig receipt ls -q "
    "2>/dev/null)\"}); fi ;;\n"
    "        (approve|deny) words_=(${(f)\"$(brig approve -q 2>/dev/null)\"}) ;;\n"
    "        (help) words_=(${=:-\"@VERBS@\"}) ;;\n"
    "        (config) (( CURRENT == 3 )) && words_=(check reload sample show) ;;\n"
    "        (audit) (( CURRENT == 3 )) && words_=(export show tail verify) ;;\n"
    "        (completion) words_=(bash fish zsh) ;;\n"
    "        (@BOXES@) words_=(${(f)\"$(brig ps 2>/dev/null | awk 'NR > 1 {print $1; if ($2 != \"-\") print "
    "$2}')\"}) ;;\n"
    "        esac\n"
    "        [[ $verb == (cp|run|serve) ]] && _files\n"
    "    fi\n"
    "    compadd -- $words_\n"
    "}\n"
    "_brig \"$@\"\n";

static const char fish_script[] =
    "# brig(1) completion for fish\n"
    "function __brig_boxes\n"
    "    brig ps 2>/dev/null | awk 'NR > 1 {print $1; if ($2 != \"-\") print $2}'\n"
    "end\n"
    "function __brig_flags\n"
    "    set -l words (commandline -opc)\n"
    "    test (count $words) -ge 2; or return\n"
    "    set -l sub\n"
    "    contains -- $words[2] @SUBBED_BLANK@; and test (count $words) -ge 3; and set sub $words[3]\n"
    "    brig $words[2] $sub --help 2>/dev/null | string match -r -a -- '^ +(?:-[a-zA-Z], )?--[a-z-]+' | string match "
    "-r -- '--[a-z-]+'\n"
    "end\n"
    "complete -c brig -n __fish_use_subcommand -f -a '@VERBS@'\n"
    "complete -c brig -n 'not __fish_use_subcommand; and string match -q -- \"-*\" (commandline -ct)' -f -a "
    "'(__brig_flags)'\n"
    "complete -c brig -n '__fish_seen_subcommand_from key' -f -a 'create ls revoke'\n"
    "complete -c brig -n '__fish_seen_subcommand_from org' -f -a 'create ls rm'\n"
    "complete -c brig -n '__fish_seen_subcommand_from policy' -a 'check ls rm set show (brig policy ls -q "
    "2>/dev/null)'\n"
    "complete -c brig -n '__fish_seen_subcommand_from secret' -f -a 'keygen ls rm set'\n"
    "complete -c brig -n '__fish_seen_subcommand_from tool' -a 'add ls rm run schema show (brig tool ls -q "
    "2>/dev/null)'\n"
    "complete -c brig -n '__fish_seen_subcommand_from agent' -f -a 'add attach detach ls rm show (brig agent ls -q "
    "2>/dev/null)'\n"
    "complete -c brig -n '__fish_seen_subcommand_from env' -f -a 'ls rm set show'\n"
    "complete -c brig -n '__fish_seen_subcommand_from pool' -f -a 'ls prewarm'\n"
    "complete -c brig -n '__fish_seen_subcommand_from service' -f -a 'ls start stop restart'\n"
    "complete -c brig -n '__fish_seen_subcommand_from receipt' -f -a 'files ls show (brig receipt ls -q 2>/dev/null)'\n"
    "complete -c brig -n '__fish_seen_subcommand_from approve deny' -f -a '(brig approve -q 2>/dev/null)'\n"
    "complete -c brig -n '__fish_seen_subcommand_from help' -f -a '@VERBS@'\n"
    "complete -c brig -n '__fish_seen_subcommand_from config' -f -a 'check reload sample show'\n"
    "complete -c brig -n '__fish_seen_subcommand_from audit' -f -a 'export show tail verify'\n"
    "complete -c brig -n '__fish_seen_subcommand_from completion' -f -a 'bash fish zsh'\n"
    "complete -c brig -n '__fish_seen_subcommand_from @BOXES_BLANK@' -a '(__brig_boxes)'\n";

/* Verbs whose words are sandboxes. */
static const char *const of_boxes[] = {"cp",     "exec", "inspect", "logs",  "ls",   "pause", "port",
                                       "resume", "rm",   "shell",   "stats", "stop", "top"};

/* Verbs that have verbs of their own. */
static const char *const of_verbs[] = {"agent", "config",  "env",    "key",     "org", "policy",
                                       "pool",  "receipt", "secret", "service", "tool"};

static int put_list(struct buf *out, const char *name)
{
    int r = 0;

    if (strcmp(name, "VERBS") == 0) {
        for (size_t i = 0; r == 0 && cli_verb_at(i); i++)
            r = buf_printf(out, "%s%s", i > 0 ? " " : "", cli_verb_at(i)->name);
        return r;
    }
    const bool boxes = strncmp(name, "BOXES", 5) == 0;
    const char *const *list = boxes ? of_boxes : of_verbs, *between = strstr(name, "BLANK") ? " " : "|";
    size_t n = boxes ? ARRAY_SIZE(of_boxes) : ARRAY_SIZE(of_verbs);
    for (size_t i = 0; r == 0 && i < n; i++)
        r = buf_printf(out, "%s%s", i > 0 ? between : "", list[i]);
    return r;
}

/* The script with its @NAMES@ filled in; "$@" of the shell has no second one on its line. */
static int put_script(struct buf *out, const char *script)
{
    static const char *const names[] = {"VERBS", "BOXES_BLANK", "BOXES", "SUBBED_BLANK", "SUBBED"};
    int r = 0;

    while (r == 0 && *script != '\0') {
        size_t plain = strcspn(script, "@");
        r = buf_append(out, script, plain);
        script += plain;
        if (r < 0 || *script == '\0')
            break;
        const char *found = NULL;
        for (size_t i = 0; !found && i < ARRAY_SIZE(names); i++)
            if (strncmp(script + 1, names[i], strlen(names[i])) == 0 && script[1 + strlen(names[i])] == '@')
                found = names[i];
        r = found ? put_list(out, found) : buf_append(out, "@", 1);
        script += found ? strlen(found) + 2 : 1;
    }
    return r;
}

static int completion_main(int argc, char **argv)
{
    struct buf out = BUF_INIT(64 << 10);
    struct brig_err err;
    int rest = 1, r = flags_parse(&completion_table, argc, argv, NULL, &rest, &err);

    if (r == FLAGS_HELP)
        return flags_help(&completion_table);
    if (r < 0)
        return cli_error("%s", err.message);
    if (argc - rest != 1)
        return cli_error("which shell: %s", completion_table.usage);
    const char *shell = argv[rest];
    const char *script = strcmp(shell, "bash") == 0   ? bash_script
                         : strcmp(shell, "zsh") == 0  ? zsh_script
                         : strcmp(shell, "fish") == 0 ? fish_script
                                                      : NULL;
    if (!script)
        return cli_error("%s: %s", shell, completion_table.usage);
    r = put_script(&out, script);
    int status = r < 0 ? cli_error("out of memory") : cli_print(&out, 0);
    buf_done(&out);
    return status;
}

const struct cli_verb cli_verb_completion = {"completion", "completion for bash, zsh or fish", .main = completion_main};
