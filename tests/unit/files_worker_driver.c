/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_worker_driver.c: the file worker as a program of its own, on descriptor 3, with the caller's rights. It is
 * linked as brig-init is, without a C library; under a sanitizer, which needs one, with it.
 */
#include "guest/files/files.h"
#include "guest/init/guest.h"

#ifdef FILES_HOSTED
void guest_exit(int status)
{
    exit(status);
}

int main(void)
{
    files_worker(3);
}
#else
void guest_main(int argc, char *const *argv, char *const *env)
{
    (void)argc, (void)argv, (void)env;
    files_worker(3);
}
#endif
