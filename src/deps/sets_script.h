/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets_script.h: the scripts for /bin/sh of an install sandbox. The files of SET_WORK say what to do: requirements.txt
 * (pip installs it), package.json (npm; with package-lock.json exactly that). The results are pip.json, package.json
 * and package-lock.json. On failure it prints one line `failed WHO`, then the installer's last lines.
 */
#ifndef BRIG_DEPS_SETS_SCRIPT_H
#define BRIG_DEPS_SETS_SCRIPT_H

/* Prints the versions of what is there, one per line; an empty line for what is missing. */
#define VERSIONS_SCRIPT                                                                 \
    "\"$BRIG_PYTHON\" -I -S -c 'import sys, sysconfig\n"                                \
    "print(sys.implementation.name + \"-%d.%d.%d\" % sys.version_info[:3])\n"           \
    "print(sysconfig.get_platform())' 2>/dev/null || { echo; uname -sm | tr ' ' -; }\n" \
    "node --version 2>/dev/null || echo\n"

#define INSTALL_SCRIPT                                                                                                 \
    "umask 022\n"                                                                                                      \
    "top=/opt/brig work=/opt/brig/.brig bundle=/etc/ssl/certs/ca-certificates.crt\n"                                   \
    "export HOME=$work/home TMPDIR=$work/tmp XDG_CACHE_HOME=$work/cache npm_config_cache=$work/npm-cache "             \
    "PIP_CONFIG_FILE=/dev/null\n"                                                                                      \
    "mkdir -p $HOME $TMPDIR && cd $work || exit 1\n"                                                                   \
    "[ -f $bundle ] && export PIP_CERT=$bundle SSL_CERT_FILE=$bundle REQUESTS_CA_BUNDLE=$bundle "                      \
    "NODE_EXTRA_CA_CERTS=$bundle\n"                                                                                    \
    "fail() { echo \"failed $1\"; tail -n 25 log 2>/dev/null | tail -c 3000; exit 1; }\n"                              \
    "if [ -f requirements.txt ]; then\n"                                                                               \
    "  \"$BRIG_PYTHON\" -I -m venv --without-pip \"$BRIG_VENV\" >log 2>&1 || fail venv\n"                              \
    "  if \"$BRIG_PYTHON\" -I -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(\"pip\") is None)' "   \
    "2>/dev/null; then\n"                                                                                              \
    "    pip() { \"$BRIG_PYTHON\" -I -m pip --python \"$BRIG_VENV/bin/python\" \"$@\"; }\n"                            \
    "  else\n" /* the interpreter brings a pip of its own for new environments, or there is none */                    \
    "    \"$BRIG_PYTHON\" -I -m venv --upgrade-deps \"$BRIG_VENV\" >log 2>&1 || \"$BRIG_PYTHON\" -I -m venv "          \
    "\"$BRIG_VENV\" >>log 2>&1 || fail pip-missing\n"                                                                  \
    "    pip() { \"$BRIG_VENV/bin/python\" -I -m pip \"$@\"; }\n"                                                      \
    "  fi\n"                                                                                                           \
    "  pip install --no-input --no-cache-dir --disable-pip-version-check --no-color --progress-bar off $BRIG_PIP "     \
    "--report report.json -r requirements.txt "                                                                        \
    ">log 2>&1 || fail pip\n"                                                                                          \
    "  \"$BRIG_PYTHON\" -I -c 'import json\n"                                                                          \
    "out = []\n"                                                                                                       \
    "for item in json.load(open(\"report.json\", encoding=\"utf-8\"))[\"install\"]:\n"                                 \
    "    info = item[\"download_info\"].get(\"archive_info\", {})\n"                                                   \
    "    found = info.get(\"hashes\", {}).get(\"sha256\") or (info.get(\"hash\") or \"\").partition(\"sha256=\")[2]\n" \
    "    out.append({\"name\": item[\"metadata\"][\"name\"], \"version\": item[\"metadata\"][\"version\"], "           \
    "\"sha256\": found})\n"                                                                                            \
    "json.dump(out, open(\"pip.json\", \"w\", encoding=\"utf-8\"))' >>log 2>&1 || fail report\n"                       \
    "fi\n"                                                                                                             \
    "if [ -f package.json ]; then\n"                                                                                   \
    "  command -v npm >/dev/null || { echo 'npm: not in this template' >log; fail npm; }\n"                            \
    "  mkdir -p $top/npm && cp package*.json $top/npm/ && cd $top/npm || exit 1\n"                                     \
    "  echo \"const os = require('os'), times = {user: 0, nice: 0, sys: 0, idle: 0, irq: 0}\" >$work/cpus.js\n"        \
    "  echo \"if (!os.cpus().length) os.cpus = () => [{model: '', speed: 0, times}]\" >>$work/cpus.js\n"               \
    "  export NODE_OPTIONS=--require=$work/cpus.js\n" /* without a CPU npm 9 runs no script */                         \
    "  flags='--no-audit --no-fund --no-update-notifier --no-progress --loglevel=error --omit-lockfile-registry-"      \
    "resolved=false'\n"                                                                                                \
    "  if [ -f package-lock.json ]; then npm ci $flags >$work/log 2>&1; else npm install $flags -- \"$@\" >$work/log " \
    "2>&1; fi || { cd $work; fail npm; }\n"                                                                            \
    "  cp package.json package-lock.json $work/ && cd $work || exit 1\n"                                               \
    "fi\n"                                                                                                             \
    "chmod -R u+rwX,go+rX,go-w $top 2>/dev/null\n"                                                                     \
    "echo installed\n"

#endif
