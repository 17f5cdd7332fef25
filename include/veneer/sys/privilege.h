/* SPDX-License-Identifier: Apache-2.0 */
/* May this process do more to a file than its owner? */
#pragma once

#include <stdbool.h>

/* trusted.* attributes are there for it: it has CAP_SYS_ADMIN in the first user namespace, as root
 * has. In doubt true: what the owner of a file may write is then believed less. Any thread; asks
 * the kernel until it has answered once. */
bool privilege_is_trusted(void);
