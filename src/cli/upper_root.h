/* SPDX-License-Identifier: Apache-2.0 */
/* The root of a new upper, which a mount shows as its own root: its mode and access lists decide
 * which users may enter the mount. */
#pragma once

/* Make the directory with owner (as far as this user may), mode, access lists and attributes of
 * another one. 0 or -errno. */
int upper_root_make(const char *path, const char *like);
