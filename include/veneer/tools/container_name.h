/* SPDX-License-Identifier: Apache-2.0 */
/* The names that container engines give to their containers, by mount point. */
#pragma once

/* The name in the engine's files, malloc'd; NULL where they have none or cannot be read, and for
 * other paths. The owner of the engine can write any name there, so nothing depends on it. 0 or
 * -ENOMEM. */
int container_name(const char *mountpoint, char **ret);
