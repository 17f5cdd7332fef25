/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the root of a new upper. A mount shows it as its own root, so its mode and ACLs decide
 * which users may enter the mount. */
#pragma once

/* Make the directory with the mode, ACLs and attributes of another one, and its owner if this user
 * may. 0 or -errno. */
int upper_root_make(const char *path, const char *like);
