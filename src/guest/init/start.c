/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start.c: does what a C library would have done for brig-init: the entry point, the stack protector's canary, and the
 * five memory functions that the compiler and the codecs call. Why there is no C library: jail/rawcall.h.
 *
 * Invariants: nothing runs before guest_main() but this; the canary is the kernel's AT_RANDOM; a smashed stack ends pid
 * 1, and with it the sandbox. The rest of the auxiliary vector is not used.
 */
#include <elf.h>

#include "guest/init/guest.h"
#include "jail/rawcall.h"

#define ARCH_SET_FS 0x1002

/* The thread block the compiler expects at %fs: the canary is at 0x28, nothing else is read. */
static uint64_t thread_block[8];

__attribute__((noreturn)) void guest_exit(int status)
{
    for (;;)
        raw_call1(SYS_exit_group, status);
}

__attribute__((noreturn, used)) void __stack_chk_fail(void);
__attribute__((noreturn, used)) void __stack_chk_fail(void)
{
    guest_exit(GUEST_EXIT_BROKEN);
}

__attribute__((noreturn, used, no_stack_protector)) static void guest_entry(const uintptr_t *stack)
{
    const uintptr_t *at = stack + 1 + stack[0] + 1; /* argc, argv[], NULL */

    while (*at != 0) /* environment */
        at++;
    for (at++; at[0] != AT_NULL; at += 2)
        if (at[0] == AT_RANDOM)
            __builtin_memcpy(&thread_block[5], (const void *)at[1], sizeof(thread_block[5]));
    thread_block[5] &= ~UINT64_C(0xff); /* a NUL first: a string overrun cannot write the canary back */
    if (thread_block[5] == 0 || raw_call2(SYS_arch_prctl, ARCH_SET_FS, thread_block) != 0)
        guest_exit(GUEST_EXIT_BROKEN);
    guest_main((int)stack[0], (char *const *)(stack + 1), (char *const *)(stack + 1 + stack[0] + 1));
}

__asm__(".globl _start\n"
        ".type _start, @function\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call guest_entry\n"
        "    ud2\n");

/* String instructions, so that the compiler cannot turn a loop here into a call of itself. */
void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    void *ret = to;

    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
    return ret;
}

void *memset(void *to, int byte, size_t n);
void *memset(void *to, int byte, size_t n)
{
    void *ret = to;

    __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(byte) : "memory");
    return ret;
}

void *memmove(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n)
{
    if ((uintptr_t)to - (uintptr_t)from >= n)
        return memcpy(to, from, n);
    for (volatile uint8_t *d = (uint8_t *)to + n, *s = (uint8_t *)(uintptr_t)from + n; n > 0; n--)
        *--d = *--s;
    return to;
}

int memcmp(const void *a, const void *b, size_t n);
int memcmp(const void *a, const void *b, size_t n)
{
    const volatile uint8_t *x = a, *y = b;

    for (; n > 0; n--, x++, y++)
        if (*x != *y)
            return *x - *y;
    return 0;
}

void *memchr(const void *in, int byte, size_t n);
void *memchr(const void *in, int byte, size_t n)
{
    const volatile uint8_t *p = in;

    for (; n > 0; n--, p++)
        if (*p == (uint8_t)byte)
            return (void *)(uintptr_t)p;
    return NULL;
}

size_t strlen(const char *text);
size_t strlen(const char *text)
{
    const volatile char *p = text;

    while (*p)
        p++;
    return (size_t)(p - text);
}
