/* SPDX-License-Identifier: Apache-2.0 */
/*
 * banned.h: the functions that no file of brig may call. Each of them cannot be told how large its buffer is, or runs a
 * shell, or keeps state that threads share, or turns bad input into a silent zero. A call is a compile error that names
 * the function (the idea is git's). The headers that declare the functions are included first, so that a later #include
 * of them is harmless.
 *
 *   Use instead: str_copy() and str_format() (base/str.h), struct buf (base/buf.h), parse_u64() (base/parse.h),
 *                the _r variants of the time functions, memfd_create(), or openat() with O_TMPFILE.
 */
#ifndef BRIG_BASE_BANNED_H
#define BRIG_BASE_BANNED_H

#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BANNED(func) sorry_##func##_is_a_banned_function

#undef strcpy
#define strcpy(...) BANNED(strcpy)
#undef stpcpy
#define stpcpy(...) BANNED(stpcpy)
#undef strcat
#define strcat(...) BANNED(strcat)
#undef strncpy
#define strncpy(...) BANNED(strncpy)
#undef stpncpy
#define stpncpy(...) BANNED(stpncpy)
#undef strncat
#define strncat(...) BANNED(strncat)
#undef sprintf
#define sprintf(...) BANNED(sprintf)
#undef vsprintf
#define vsprintf(...) BANNED(vsprintf)
#undef gets
#define gets(...) BANNED(gets)
#undef strtok
#define strtok(...) BANNED(strtok)
#undef strdupa
#define strdupa(...) BANNED(strdupa)
#undef strndupa
#define strndupa(...) BANNED(strndupa)
#undef alloca
#define alloca(...) BANNED(alloca)

#undef system
#define system(...) BANNED(system)
#undef popen
#define popen(...) BANNED(popen)
#undef pclose
#define pclose(...) BANNED(pclose)

#undef mktemp
#define mktemp(...) BANNED(mktemp)
#undef tmpnam
#define tmpnam(...) BANNED(tmpnam)
#undef tempnam
#define tempnam(...) BANNED(tempnam)
#undef tmpfile
#define tmpfile(...) BANNED(tmpfile)

#undef asctime
#define asctime(...) BANNED(asctime)
#undef ctime
#define ctime(...) BANNED(ctime)
#undef gmtime
#define gmtime(...) BANNED(gmtime)
#undef localtime
#define localtime(...) BANNED(localtime)

#undef atoi
#define atoi(...) BANNED(atoi)
#undef atol
#define atol(...) BANNED(atol)
#undef atoll
#define atoll(...) BANNED(atoll)
#undef atof
#define atof(...) BANNED(atof)

#undef scanf
#define scanf(...) BANNED(scanf)
#undef sscanf
#define sscanf(...) BANNED(sscanf)

#undef getwd
#define getwd(...) BANNED(getwd)
#undef usleep
#define usleep(...) BANNED(usleep)
#undef rand
#define rand(...) BANNED(rand)
#undef srand
#define srand(...) BANNED(srand)

#endif
