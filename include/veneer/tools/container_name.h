/* SPDX-License-Identifier: Apache-2.0 */
/* The names that container engines give to their containers, by mount point. */
#pragma once

/* Find the name in the engine's files; malloc'd. NULL: they have none or cannot be read, or the
 * path is not of an engine. The owner of the engine can write any name there, so nothing may depend
 * on it. 0 or -ENOMEM. */
int container_name(const char *mountpoint, char **ret);
