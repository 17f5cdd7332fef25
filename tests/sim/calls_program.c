// SPDX-License-Identifier: Apache-2.0
/* Functions of the program itself: a death comes between two stores of a record, or a fault is
 * planted. */
#include "calls.h"

#include "map/journal.h"
#include "map/mapfile-internal.h"
#include "veneer/sys/boot_id.h"

#include <stdio.h>

int __real_file_map_store(void *dst, const void *src, size_t len);
int __real_file_map_store_last(void *dst, const void *src);
int __real_journal_append(struct journal *j, const struct record *rec);
bool __real_mapfile_is_durable(struct mapfile *mf, file_id_t id);
int __real_mapfile_is_cut(struct mapfile *mf, file_id_t id);
enum mapfile_pending __real_mapfile_pending(struct mapfile *mf, file_id_t id);

int __real_mapfile_open(int rootfd, int work_fd, unsigned flags, const char *name,
			const struct mapfile_rebuild *rebuild, struct mapfile **ret);

int __wrap_boot_id_read(char ret[BOOT_ID_SIZE]);
int __wrap_boot_id_read(char ret[BOOT_ID_SIZE])
{
	snprintf(ret, BOOT_ID_SIZE, "%s", sim->boot_id);
	return 0;
}

/* A death may leave any part of a record. */
int __wrap_file_map_store(void *dst, const void *src, size_t len);
int __wrap_file_map_store(void *dst, const void *src, size_t len)
{
	const size_t part = dice_below(&sim->kernel, len + 1);
	int r = __real_file_map_store(dst, src, part);

	fate_call(FATE_STORE, "the rest of a record");
	return r ?: __real_file_map_store((char *)dst + part, (const char *)src + part, len - part);
}

int __wrap_file_map_store_last(void *dst, const void *src);
int __wrap_file_map_store_last(void *dst, const void *src)
{
	int r;

	fate_call(FATE_STORE, "a record's checksum");
	r = __real_file_map_store_last(dst, src);
	fate_call(FATE_STORE, "what follows a record");
	return r;
}

int __wrap_journal_append(struct journal *j, const struct record *rec);
int __wrap_journal_append(struct journal *j, const struct record *rec)
{
	int r = __real_journal_append(j, rec);

	return r == 0 && fate_planted == FATE_PLANT_TWICE ? __real_journal_append(j, rec) : r;
}

bool __wrap_mapfile_is_durable(struct mapfile *mf, file_id_t id);
bool __wrap_mapfile_is_durable(struct mapfile *mf, file_id_t id)
{
	return fate_planted == FATE_PLANT_HOLE || __real_mapfile_is_durable(mf, id);
}

int __wrap_mapfile_is_cut(struct mapfile *mf, file_id_t id);
int __wrap_mapfile_is_cut(struct mapfile *mf, file_id_t id)
{
	return fate_planted == FATE_PLANT_GROWTH ? 0 : __real_mapfile_is_cut(mf, id);
}

enum mapfile_pending __wrap_mapfile_pending(struct mapfile *mf, file_id_t id);
enum mapfile_pending __wrap_mapfile_pending(struct mapfile *mf, file_id_t id)
{
	enum mapfile_pending pending = __real_mapfile_pending(mf, id);
	const struct table_file *f;

	if (fate_planted != FATE_PLANT_COMMIT || pending != MAPFILE_MUST_SYNC || mf->is_poisoned)
		return pending;
	f = table_find(&mf->now.table, id);
	if (f->must_lsn > mf->durable_lsn)
		return pending;
	return f->pend ? MAPFILE_OWN_ONLY : MAPFILE_CLEAN;
}

int __wrap_mapfile_open(int rootfd, int work_fd, unsigned flags, const char *name,
			const struct mapfile_rebuild *rebuild, struct mapfile **ret);
int __wrap_mapfile_open(int rootfd, int work_fd, unsigned flags, const char *name,
			const struct mapfile_rebuild *rebuild, struct mapfile **ret)
{
	int r = __real_mapfile_open(rootfd, work_fd, flags, name, rebuild, ret);

	if (r == 0 && fate_planted == FATE_PLANT_OPEN)
		(*ret)->is_open_doubted = false;
	return r;
}
