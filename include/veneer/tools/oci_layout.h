/* SPDX-License-Identifier: Apache-2.0 */
/* Deltas as artifacts of an OCI image layout (image-spec 1.1, image-layout.md and manifest.md),
 * which existing tools carry to registries and back. Their media types are veneer's own, so engines
 * refuse them. */
#pragma once

#include "veneer/tools/delta.h"

#define OCI_LAYOUT_ARTIFACT_TYPE "application/vnd.veneer.delta.v1"
#define OCI_LAYOUT_CONFIG_TYPE	 "application/vnd.veneer.delta.config.v1+json"
#define OCI_LAYOUT_DELTA_TYPE	 "application/vnd.veneer.delta.v1.tar+zstd"

/* A delta that is being written into a layout. */
struct oci_layout {
	int dirfd; /* of the layout */
	int blobs; /* its blobs/sha256 */
	int fd; /* receives the compressed delta */
};

#define OCI_LAYOUT_NONE (struct oci_layout){ -1, -1, -1 }

/* Begin a delta in the layout at path, which is created if needed. 0, or -errno after a line in the
 * log; release in both cases. */
int oci_layout_begin(const char *path, struct oci_layout *ret);
/* Commit the written delta under `tag`. 0, or -errno after a line in the log; then the layout is
 * unchanged, except for unreferenced blobs. */
int oci_layout_commit(struct oci_layout *l, const char *tag, const struct delta_head *head,
		      const struct delta_progress *done);
void oci_layout_release(struct oci_layout *l);

/* Open the delta of `tag`, after checking its digest. A descriptor, or -errno after a line in the
 * log. */
int oci_layout_open(const char *path, const char *tag);
/* Split LAYOUT:TAG at the last colon, which becomes a NUL. Returns the tag; NULL: there is none. */
char *oci_layout_split(char *name);
