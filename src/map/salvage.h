/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the readable part of a map file that breaks a rule of doc/SPEC.md, section 3. */
#pragma once

#include "mapfile-internal.h"

/* Read l->fd, in which reading by the rules found damage, into l. Bytes that a checksum tells are
 * set right. Of a gap in the snapshot the files that it may speak of lose their entries. 0, with
 * l->n_mended and l->n_gaps; -EUCLEAN: nothing in it can be believed; -EPROTONOSUPPORT: a newer
 * version may have written it; another -errno. */
int salvage_load(struct mapload *l, const char *name);
