/* SPDX-License-Identifier: Apache-2.0 */
/* What container engines call the container whose root is mounted somewhere. */
#pragma once

/* The name that the engine's files give it, malloc'd; NULL where they give none, or cannot be read, or the path is no engine's. The
 * files are those of the user whose engine it is, and are believed in nothing else. 0 or -ENOMEM. */
int container_name(const char *mountpoint, char **ret);
