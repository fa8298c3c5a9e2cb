# SPDX-License-Identifier: Apache-2.0
# The bash runtime (4.4 and later): started before anybody needs it, takes one request on descriptor 3, runs it,
# answers, ends. It also runs commands. docs/PROTOCOL.md, "Runtime", is what goes over the descriptor;
# runtimes/README.md is how this text is started.
#
# Theory of operation. Nothing but bash and what every Debian or busybox has beside it: sha256sum, head, sed, tr,
# base64, mktemp, rm, mkdir, cat; iconv where there is one. Unlike in Python and Node, user code is another process: it
# has neither the channel nor the key, which never leaves this shell's variables (sha256sum gets it on its stdin, not as
# an argument). JSON is split at its quotes in one step (a word split), so that the work grows with the number of
# strings, not with their length.
LC_ALL=C
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
shopt -s extglob
set -f
declare -A got member
declare -a order
# ${x//a/b} and ${x%a} take time with the square of the length; longer texts go through sed, and are cut by number
LONG=8192

# --- the channel ------------------------------------------------------------------------------------------------------

send() { # payload
    local n=${#1} head
    printf -v head '\\x%02x\\x%02x\\x%02x\\x%02x' $((n & 255)) $((n >> 8 & 255)) $((n >> 16 & 255)) $((n >> 24 & 255))
    { printf '%b' "$head"; printf %s "$1"; } >&3
}

# -> length: four bytes, the lowest first; a NUL is an empty read that ended with its delimiter
read_length() {
    local i c n
    length=0
    for i in 0 8 16 24; do
        IFS= read -r -d '' -n 1 -u 3 c || exit 0
        n=0
        [ -z "$c" ] || printf -v n %d "'$c"
        length=$((length | (n & 255) << i))
    done
}

# --- JSON -------------------------------------------------------------------------------------------------------------

# scan TEXT: the members of an object, or the elements of an array by number, as JSON text: order[], member[]
scan() {
    local -a parts
    local depth=0 key= raw= value=0 count=0 array=0 i=0 gap pre
    order=() member=()
    IFS=\" parts=($1) # no globs: set -f
    IFS=$' \t\n'
    while [ $i -lt ${#parts[@]} ]; do
        gap=${parts[i++]}
        while [ -n "$gap" ]; do
            if [ $depth -gt 1 ]; then
                pre=${gap%%[][\{\}]*}
                [ "$pre" != "$gap" ] || { raw+=$gap; break; }
                gap=${gap:${#pre}}
                case $gap in [[{]*) depth=$((depth + 1)) ;; *) depth=$((depth - 1)) ;; esac
                raw+=$pre${gap:0:1} gap=${gap:1}
                continue
            fi
            case $gap in
            [[:space:]]*) gap=${gap##+([[:space:]])}; continue ;;
            '{'* | '['*)
                if [ $depth = 0 ]; then
                    case $gap in '['*) array=1 value=1 key=0 ;; esac
                else
                    raw+=${gap:0:1}
                fi
                depth=$((depth + 1)) ;;
            :*) value=1 raw= ;;
            ,*) order+=("$key") member[$key]=$raw raw= count=$((count + 1)); [ $array = 0 ] && value=0 || key=$count ;;
            '}'* | ']'*)
                if [ -n "$raw" ]; then order+=("$key"); member[$key]=$raw; fi
                depth=0 ;;
            *) pre=${gap%%[],\}[:space:]]*}; raw+=$pre gap=${gap:${#pre}}; continue ;;
            esac
            gap=${gap:1}
        done
        [ $i -lt ${#parts[@]} ] || break
        pre=${parts[i++]}
        while ends_escaped "${parts[i - 1]}" && [ $i -lt ${#parts[@]} ]; do pre+=\"${parts[i++]}; done
        if [ $depth = 1 ] && [ $value = 0 ]; then
            unescape "$pre"; key=$text; [ -n "$key" ] || key=_
        else raw+=\"$pre\"; fi
    done
}

ends_escaped() { # an odd number of backslashes at its end; patterns would look at all of a long text
    local n=${#1}
    while [ $n -gt 0 ] && [ "${1:n-1:1}" = \\ ]; do n=$((n - 1)); done
    [ $(((${#1} - n) % 2)) = 1 ]
}

# unescape RAW -> text
unescape() {
    text=$1
    case $text in *\\*) ;; *) return ;; esac
    if [ ${#text} -gt $LONG ]; then
        text=$(printf '%s.' "$text" | sed 's/\\\\/\\x5c/g; s/\\"/\\x22/g; s/\\\//\//g')
        text=${text:0:${#text}-1}
    else
        text=${text//\\\\/\\x5c}
        text=${text//\\\"/\\x22}
        text=${text//\\\//\/}
    fi
    case $text in *\\u*) code_points ;; esac
    printf -v text '%b' "$text"
}

code_points() {
    local rest=$text n low out=
    while [[ $rest == *\\u* ]]; do
        out+=${rest%%\\u*} rest=${rest#*\\u}
        n=$((16#${rest:0:4})) rest=${rest:4}
        if ((n >= 0xd800 && n < 0xdc00)) && [[ ${rest:0:2} == '\u' ]]; then
            low=$((16#${rest:2:4})) rest=${rest:6}
            n=$((0x10000 + ((n - 0xd800) << 10) + (low - 0xdc00)))
        fi
        utf8 $n
        out+=$bytes
    done
    text=$out$rest
}

utf8() { # code point -> bytes, as \xHH
    local n=$1
    if ((n == 0)); then bytes=
    elif ((n < 0x80)); then printf -v bytes '\\x%02x' $n
    elif ((n < 0x800)); then printf -v bytes '\\x%02x\\x%02x' $((n >> 6 | 0xc0)) $((n & 63 | 0x80))
    elif ((n < 0x10000)); then
        printf -v bytes '\\x%02x\\x%02x\\x%02x' $((n >> 12 | 0xe0)) $((n >> 6 & 63 | 0x80)) $((n & 63 | 0x80))
    else
        printf -v bytes '\\x%02x\\x%02x\\x%02x\\x%02x' $((n >> 18 | 0xf0)) $((n >> 12 & 63 | 0x80)) \
            $((n >> 6 & 63 | 0x80)) $((n & 63 | 0x80))
    fi
}

# plain RAW -> text: a string's text, null as nothing, anything else as it is written
plain() {
    case $1 in
    \"*) unescape "${1:1:${#1}-2}" ;;
    null) text= ;;
    *) text=$1 ;;
    esac
}

# quote TEXT -> quoted: a JSON string; what is not UTF-8 is dropped (clean: the text without it)
quote() {
    local i c code
    quoted=$1
    if [[ $quoted == *[$'\x80'-$'\xff']* ]]; then
        if type iconv >/dev/null 2>&1; then
            quoted=$(printf '%s.' "$quoted" | iconv -c -f UTF-8 -t UTF-8 2>/dev/null)
            quoted=${quoted:0:${#quoted}-1}
        else
            quoted=${quoted//[$'\x80'-$'\xff']/?}
        fi
    fi
    clean=$quoted
    if [ ${#quoted} -gt $LONG ]; then quote_long; return; fi
    quoted=${quoted//\\/\\\\}
    quoted=${quoted//\"/\\\"}
    quoted=${quoted//$'\n'/\\n}
    quoted=${quoted//$'\t'/\\t}
    if [[ $quoted == *[$'\x01'-$'\x1f']* ]]; then
        for ((i = 1; i < 32; i++)); do
            printf -v code '\\u%04x' $i
            printf -v c '%b' "\\x$(printf %02x $i)"
            quoted=${quoted//"$c"/"$code"}
        done
    fi
    quoted=\"$quoted\"
}

quote_long() {
    local i code script='s/\\/\\\\/g;s/"/\\"/g;'
    for ((i = 1; i < 32; i++)); do
        [ $i != 10 ] || continue
        printf -v code 's/\\x%02x/\\\\\\\\u%04x/g;' $i $i
        printf -v code '%b' "$code"
        script+=$code
    done
    quoted=$(printf '%s' "$quoted" | sed "$script" | sed 's/$/\\n/' | tr -d '\n')
    quoted=\"${quoted:0:${#quoted}-2}\"
}

# is_json TEXT: reduces strings, numbers and words to V, then innermost brackets, until one V is left
is_json() {
    local left
    left=$(printf '%s' "$1" | tr '\n' '\r' | sed -E '
        s/\\\\/P/g
        s/\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}/P/g
        /\\u[dD][89a-fA-F]/d
        s/"([^"\\[:cntrl:]]|\\(["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"/S/g
        /"/d
        s/-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/N/g
        /N[N0-9]/d
        s/true|false|null/N/g
        s/[[:space:]]+([],:}[{]|$)/\1/g
        s/([],:}[{]|^)[[:space:]]+/\1/g
        s/[[:space:]]/X/g
        :a
        s/\[([NS](,[NS])*)?\]|\{(S:[NS](,S:[NS])*)?\}/N/g
        ta')
    case $left in N | S) return 0 ;; *) return 1 ;; esac
}

# --- the answer -------------------------------------------------------------------------------------------------------

# The key becomes the two pads of HMAC at once.
take_key() {
    local i n one
    inner_pad= outer_pad=
    for ((i = 0; i < 64; i++)); do
        n=0
        [ $i -ge $((${#1} / 2)) ] || n=$((16#${1:2*i:2}))
        printf -v one '\\x%02x' $((n ^ 0x36)); inner_pad+=$one
        printf -v one '\\x%02x' $((n ^ 0x5c)); outer_pad+=$one
    done
}

answer() { # payload
    local digest i bytes=
    digest=$({ printf '%b' "$inner_pad"; printf %s "$1"; } | sha256sum)
    for ((i = 0; i < 64; i += 2)); do bytes+=\\x${digest:i:2}; done
    digest=$({ printf '%b' "$outer_pad"; printf '%b' "$bytes"; } | sha256sum)
    send "${digest:0:64}"$'\n'"$1"
    exit 0
}

# finish RESULT-JSON TYPE [ERROR-TYPE MESSAGE EXIT-CODE]
finish() {
    local payload status=ok
    [ -z "${3-}" ] || status=error
    payload="{\"status\":\"$status\",\"result\":$1,\"result_type\":\"$2\""
    if [ -n "${3-}" ]; then
        quote "$4"
        payload+=",\"error\":{\"type\":\"$3\",\"message\":$quoted,\"traceback\":\"\"}"
    fi
    [ -z "${got[collect]-}" ] || { get_files; payload+=",\"files\":[$collected]"; }
    compgen -G '/workspace/out/*' >/dev/null || compgen -G '/workspace/out/.[!.]*' >/dev/null || payload+=',"out":false'
    [ "$kind" != code ] && [ "$kind" != command ] || payload+=",\"exit_code\":${5:-0}"
    answer "$payload}"
}

# --- files ------------------------------------------------------------------------------------------------------------

put_files() {
    local -a all=()
    local one place
    scan "${got[files]}"
    for one in "${order[@]}"; do all+=("${member[$one]}"); done
    for one in "${all[@]}"; do
        scan "$one"
        plain "${member[path]-}"; place=$text
        [[ $place != */* ]] || mkdir -p "${place%/*}" 2>/dev/null
        plain "${member[base64]-}"
        { printf %s "$text" | base64 -d >"$place"; } 2>/dev/null \
            || finish null null OSError "$place cannot be written" 1
    done
}

get_files() {
    local one
    collected=
    scan "${got[collect]}"
    for one in "${order[@]}"; do
        plain "${member[$one]}"
        quote "$text"
        if [ -r "$text" ] && [ ! -d "$text" ]; then
            collected+=${collected:+,}"{\"path\":$quoted,\"base64\":\""
            collected+="$(head -c 33554432 "$text" | base64 | tr -d '\n')\"}"
        else
            collected+=${collected:+,}"{\"path\":$quoted,\"error\":\"No such file or directory\"}"
        fi
    done
}

# --- one request ------------------------------------------------------------------------------------------------------

# In the child: the request's environment and nothing else, the arguments as ARG_NAME, the result's descriptor.
environment() {
    local name
    local -a names
    mapfile -t names < <(compgen -e)
    for name in "${names[@]}"; do unset -v "$name" 2>/dev/null; done
    scan "${got[env]:-{\}}"
    for name in "${order[@]}"; do
        plain "${member[$name]}"
        [[ $name != [A-Za-z_]*([A-Za-z0-9_]) ]] || export "$name=$text" 2>/dev/null
    done
    scan "${got[args]:-{\}}"
    for name in "${order[@]}"; do
        [ "${member[$name]}" != null ] || continue
        plain "${member[$name]}"
        name=ARG_${name//[!A-Za-z0-9_]/_}
        [ ${#text} -gt 100000 ] || export "${name^^}=$text"
    done
    [ -n "${PATH-}" ] || export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    export BRIG_RESULT=4
}

# The program that is run, with its name for messages: a script as one argument where the kernel lets it be one
start() {
    local -a argv=()
    local one
    case $kind in
    command)
        scan "${got[command]:-$source}"
        for one in "${order[@]}"; do plain "${member[$one]}"; argv+=("$text"); done
        [ ${#argv[@]} -gt 0 ] || exit 127
        exec "${argv[@]}" ;;
    *)
        [ ${#source} -le 120000 ] || exec "$BASH" /dev/fd/6 6< <(printf %s "$source")
        exec "$BASH" -c -- "$source" "$title" ;;
    esac
}

run() {
    local place status limit result
    place=$(mktemp) || finish null null HostError "there is no place for a temporary file" 1
    exec 4>"$place" 5<"$place"
    rm -f "$place"
    (
        unset inner_pad outer_pad
        exec 3>&- 5>&-
        environment
        start
    ) < <(exec 3>&- 4>&- 5>&-; [ "$kind" = code ] || printf %s "${got[args]:-{\}}") &
    { wait $!; } 2>/dev/null # bash would tell of a signal
    status=$?
    exec 4>&-
    if [ $status -gt 128 ]; then
        finish null null CommandError "$title: signal $((status - 128))" $status
    elif [ $status != 0 ]; then
        finish null null CommandError "$title: exit status $status" $status
    fi
    limit=${got[result_max]:-16777216}
    result=$(head -c $((limit + 1)) <&5 | tr -d '\0'; printf .)
    result=${result:0:${#result}-1}
    [ "${result: -1}" != $'\n' ] || result=${result:0:${#result}-1}
    [ ${#result} -le "$limit" ] \
        || finish null null ResultTooLarge "the result is larger than the $limit bytes that are allowed" 1
    [[ $result == *[![:space:]]* ]] || finish null null
    quote "$result"
    if [ "$clean" = "$result" ] && is_json "$result"; then finish "$result" json; else finish "$quoted" str; fi
}

serve() {
    local name
    scan "$request"
    for name in "${order[@]}"; do got[$name]=${member[$name]}; done
    request=
    plain "${got[key]}"; take_key "$text"; unset 'got[key]' 'member[key]' text
    plain "${got[kind]}"; kind=$text
    plain "${got[name]-null}"; title="<tool ${text:-source}>"
    [ "$kind" != code ] || title='<code>'
    plain "${got[source]-null}"; source=$text
    plain "${got[cwd]-null}"
    if [ -n "$text" ]; then cd "$text" || finish null null FileNotFoundError "$text: no such directory" 1; fi
    [ "${got[files]-null}" = null ] || put_files
    [ "${got[collect]-null}" != null ] || unset 'got[collect]'
    if [ "$kind" = command ]; then
        title=${got[command]:-$source}; scan "$title"; plain "${member[0]-null}"; title=$text
    fi
    [ "$kind" != schema ] || finish null null TypeError "a tool in bash requires an explicit json_schema" 1
    run
}

version="${BASH_VERSINFO[0]}.${BASH_VERSINFO[1]}.${BASH_VERSINFO[2]}"
send "{\"ready\":1,\"language\":\"bash\",\"version\":\"$version\",\"pid\":$$}"
read_length
request=$(head -c "$length" <&3)
serve
