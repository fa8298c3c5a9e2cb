/* SPDX-License-Identifier: Apache-2.0 */
/* spawner_exec.c: main() of libexec/brig/brig-spawner, which the library executes: argv[1] is the helper directory,
 * descriptor 3 the socket to the engine. */
#include <stdio.h>

#include "spawner/spawner.h"

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("brig-spawner: started by libbrig, not by hand\n", stderr);
        return 125;
    }
    return spawner_main(3, argv[1]);
}
