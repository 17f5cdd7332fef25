// SPDX-License-Identifier: Apache-2.0
#include "life.h"

#include "arena.h"
#include "fds.h"
#include "look.h"
#include "player.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/data/replay.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/recover/intent_log.h"
#include "veneer/union/node_table.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLK HISTORY_BLK
#define KEY 7 /* of the mount's intents */

/* What the seed has in store for a life. */
struct plan {
	unsigned nops;
	enum sim_end end;
	unsigned at; /* operation of this life in which it ends: 0 in the mount, nops + 1 in the
		      * unmount */
	uint64_t nth; /* change of that operation; 0: after it */
	bool fails; /* a call does, */
	uint64_t fail_at; /* in this operation; 0: in the mount */
	uint64_t fail_nth, fail_count;
	bool is_kept; /* killed: the next server takes the mount over */
	bool takes_snapshot; /* at the end: operation nops + 2 */
};

static uint32_t make_dir(uint32_t dir, const char *name)
{
	return (uint32_t)fs_make(sim->disk, dir, name, S_IFDIR | 0755, 0, NULL);
}

static void put_thing(struct history_names *n, const char *path, struct history_thing *t)
{
	history_add(n, path, t);
}

/* A file of the lower layer, in the model too. */
static uint32_t put_file(struct history_names *n, uint32_t dir, const char *path, size_t size)
{
	struct history_thing *t = history_thing(sim->history, HISTORY_FILE, 0644);
	const char *slash = strrchr(path, '/');
	struct dice dice = dice_stream(sim->seed, SIM_STREAM_WORLD, 1000 + size);
	uint8_t *bytes = arena_alloc(size + 1);
	int ino = fs_make(sim->disk, dir, slash ? slash + 1 : path, S_IFREG | 0644, 0, NULL);

	for (size_t k = 0; k < size; k++)
		bytes[k] = (uint8_t)(1 | dice_next(&dice));
	/* A hole of the lower file's own. */
	if (size > 4 * BLK)
		memset(bytes + 2 * BLK, 0, BLK);
	fs_write(sim->disk, (uint32_t)ino, bytes, size, 0);
	history_fill(t, bytes, size);
	arena_free(bytes);
	put_thing(n, path, t);
	return (uint32_t)ino;
}

static void fill_lower(uint32_t lower)
{
	struct history_names *n = history_edit(sim->history);
	const uint32_t d = make_dir(lower, "d"), e = make_dir(lower, "e");
	const uint32_t sub = make_dir(d, "sub");
	uint32_t hard;

	put_thing(n, "", history_thing(sim->history, HISTORY_DIR, 0755));
	put_thing(n, "d", history_thing(sim->history, HISTORY_DIR, 0755));
	put_thing(n, "e", history_thing(sim->history, HISTORY_DIR, 0755));
	put_thing(n, "d/sub", history_thing(sim->history, HISTORY_DIR, 0755));
	put_file(n, lower, "big", 9 * BLK + 3500);
	put_file(n, lower, "other", 6 * BLK);
	put_file(n, lower, "small", 5000);
	put_file(n, lower, "tiny", 100);
	put_file(n, lower, "whole", 33 * BLK + 700);
	put_file(n, d, "d/in", 7 * BLK + 1);
	put_file(n, sub, "d/sub/deep", 2 * BLK);
	hard = put_file(n, lower, "hard1", 5 * BLK + 17);
	fs_link(sim->disk, hard, lower, "hard2");
	put_thing(n, "hard2", n->at[n->n - 1].thing);
	history_set_names(sim->history, 0, n);
	history_all_synced(sim->history);
	(void)e;
}

static void new_boot(void)
{
	sim->boots++;
	snprintf(sim->boot_id, sizeof(sim->boot_id), "%08" PRIx64 "-0000-4000-8000-%012" PRIx64,
		 sim->seed & 0xffffffff, sim->boots);
}

static void fix_lower(uint32_t dir)
{
	struct disk_inode *i = disk_inode(sim->disk, dir);

	for (size_t k = 0; S_ISDIR(i->now->mode) && k < i->now->nentries; k++)
		fix_lower(i->now->entries[k].ino);
	i->is_fixed = true;
}

void life_make_world(uint64_t seed)
{
	const int trace = sim ? sim->trace : 0;
	const uint8_t *skip = sim ? sim->skip : NULL;
	const size_t nskip = sim ? sim->nskip : 0;
	struct dice dice = dice_stream(seed, SIM_STREAM_WORLD, 0);
	struct disk_tx tx;
	uint32_t lower;

	arena_reset();
	sim = arena_alloc(sizeof(*sim));
	*sim = (struct sim){ .seed = seed, .trace = trace, .skip = skip, .nskip = nskip };
	sim->fate.is_away = true;
	sim->has_true_extents = dice_once_in(&dice, 2);
	sim->is_about = (enum sim_about)dice_below(&dice, 3);
	if (dice_once_in(&dice, 5))
		strcpy(sim->options, ",cow=copy");
	sim->intents = arena_alloc(intent_log_area_bytes());
	sim->slots_fd = sim->names_fd = -1;
	sim->disk = disk_new(&(struct disk_options){ .is_eager = dice_once_in(&dice, 2) });
	sim->history = history_new();
	new_boot();
	disk_begin(&tx);
	disk_create(sim->disk, &tx, S_IFDIR | 0755);
	tx.image[0]->nlink = 2;
	tx.image[0]->parent = DISK_ROOT;
	disk_end(sim->disk, &tx);
	lower = make_dir(DISK_ROOT, "lower");
	make_dir(DISK_ROOT, "upper");
	make_dir(DISK_ROOT, "work");
	fill_lower(lower);
	disk_sync_all(sim->disk);
	fix_lower(lower);
}

unsigned life_count(void)
{
	struct dice dice = dice_stream(sim->seed, SIM_STREAM_WORLD, 1);

	return 3 + (unsigned)dice_below(&dice, 10);
}

static struct plan plan_life(unsigned n)
{
	static const enum sim_end ends[] = { SIM_END_KILLED, SIM_END_KILLED, SIM_END_CUT,
					     SIM_END_CUT,    SIM_END_CUT,    SIM_END_CLEAN };
	struct dice dice = dice_stream(sim->seed, SIM_STREAM_LIFE, n);
	struct plan p = { .nops = 1 + (unsigned)dice_below(&dice, 20) };

	p.end = ends[dice_below(&dice, sizeof(ends) / sizeof(*ends))];
	p.is_kept = !dice_once_in(&dice, 3);
	p.takes_snapshot = dice_once_in(&dice, 4);
	p.at = dice_once_in(&dice, 5)
		       ? 0
		       : 1 + (unsigned)dice_below(&dice, p.nops + 1 + p.takes_snapshot);
	/* Most operations have few changes. */
	p.nth = dice_once_in(&dice, 6) ? 0 : 1 + dice_below(&dice, 1 + dice_below(&dice, 10));
	if (!p.at)
		p.nth *= 3;
	if (dice_once_in(&dice, 4)) {
		p.fails = true;
		p.fail_at = dice_below(&dice, p.nops + 1);
		p.fail_nth = 1 + dice_below(&dice, 1 + dice_below(&dice, 30));
		p.fail_count = dice_once_in(&dice, 3) ? dice_below(&dice, 200) : 0;
	}
	return p;
}

static void parse(struct mount_opts *ret)
{
	char all[256], point[] = "/nowhere", self[] = "veneer", flag[] = "-o", err[256];
	char *argv[] = { self, flag, all, point, NULL };

	snprintf(all, sizeof(all), "lowerdir=/lower,upperdir=/upper,workdir=/work%s", sim->options);
	if (options_parse(&(struct options_argv){ 4, argv, "/", true, false }, ret, err,
			  sizeof(err)) < 0)
		sim_give_up("options: %s", err);
	ret->is_offline = true;
}

static __attribute__((noreturn)) void end(enum sim_end how)
{
	sim->end = how;
	_exit(0);
}

static void expect_closed(void)
{
	for (int k = 0; k < SIM_FDS; k++)
		if (sim->fds[k].is_open)
			sim_violation("descriptor %d is left open, inode %u", SIM_FD_FIRST + k,
				      sim->fds[k].ino);
}

/* It cannot be opened, which is right if a call failed; then nothing of it is left. m: NULL, or to
 * be closed. */
static __attribute__((noreturn)) void give_up_mount(struct mount *m, const char *err)
{
	if (!sim->fate.error)
		sim_violation("the mount fails: %s", err);
	sim_trace(1, "   no mount: %s", err);
	if (m)
		mount_close(m);
	/* A node table that was to be taken over stays. */
	if (!sim->is_kept)
		expect_closed();
	sim->is_kept = false;
	end(SIM_END_CLEAN);
}

static void open_mount(struct mount *m, char *err, size_t size)
{
	struct mount_saved_tables saved = MOUNT_SAVED_TABLES_NONE;
	struct mount_opts opts;
	struct mount_dirs dirs;
	int r;

	intent_log_use_area(sim->intents);
	parse(&opts);
	r = mount_dirs_open(&opts, &dirs, err, size);
	if (r < 0) {
		mount_dirs_release(&dirs);
		options_release(&opts);
		give_up_mount(NULL, err);
	}
	saved.slots_fd = sim->is_kept ? sim->slots_fd : -1;
	saved.names_fd = sim->is_kept ? sim->names_fd : -1;
	r = mount_reopen_at(m, &opts, &dirs, &saved, err, size);
	if (r < 0)
		give_up_mount(m, err);
	m->key = KEY;
	node_table_fds(m->tree.nodes, &sim->slots_fd, &sim->names_fd);
	if (sim->is_kept)
		replay_settle(&m->tree, m->key);
	sim->is_kept = true;
}

/* The kernel sends the request that the dead server had under way. */
static void send_again(struct mount *m)
{
	struct request *r = &sim->request;
	int64_t n;

	if (!r->is_standing)
		return;
	sim_trace(1, "   again: request %u of operation %" PRIu64, r->kind, sim->ops);
	n = request_do_again(m);
	/* What it refuses it would have refused at once. */
	if (n == -EXDEV || n == -EOPNOTSUPP || (n < 0 && sim->fate.error))
		return;
	if (n < 0)
		sim_violation("a request that comes again fails: %s", strerror((int)-n));
	if (r->kind == REQUEST_SYNC)
		player_synced(r);
	if (r->is_last)
		sim->doubt = HISTORY_NONE;
}

/* From now on the end may come, or after so many more changes. */
static void arm(const struct plan *p, unsigned op)
{
	struct fate *f = &sim->fate;
	uint64_t *at = p->end == SIM_END_KILLED ? &f->kill_at : &f->cut_at;

	sim->kernel = dice_stream(sim->seed, SIM_STREAM_KERNEL, sim->ops);
	if (p->end != SIM_END_CLEAN && p->at == op && p->nth)
		*at = f->changes + p->nth;
	f->spares_xattrs = op == 0;
	if (p->fails && p->fail_at == op) {
		f->fail_at = f->calls + p->fail_nth;
		f->fail_until = f->fail_at + p->fail_count;
	}
}

static void disarm(const struct plan *p, unsigned op)
{
	struct fate *f = &sim->fate;

	/* The operation had fewer changes, or it was to come after them. */
	if (p->end != SIM_END_CLEAN && p->at == op) {
		sim_trace(1, "-- %s", p->end == SIM_END_CUT ? "the power goes" : "killed");
		end(p->end);
	}
	f->kill_at = f->cut_at = f->fail_at = 0;
}

static bool is_skipped(void)
{
	return sim->skip && sim->ops < sim->nskip && sim->skip[sim->ops];
}

static void play(const struct plan *p, struct mount *m)
{
	for (unsigned op = 1; op <= p->nops; op++) {
		sim->ops++;
		arm(p, op);
		if (!is_skipped()) {
			sim->doubt = HISTORY_LAST_OP;
			sim->doubt_op = sim->ops;
			player_do(m);
			sim->doubt = HISTORY_NONE;
		}
		disarm(p, op);
	}
}

/* Of an upper that no mount has: what was done before is in it, and on the disk. */
static void take_snapshot(const struct plan *p)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	char name[BRANCH_CHAIN_NAME_MAX + 1];
	uint64_t id = 0;
	int fd, lock, r;

	sim->ops++;
	arm(p, p->nops + 2);
	fd = open("/upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	lock = fd < 0 ? -errno : branch_dir_lock(fd);
	/* The first one makes what is locked. */
	r = lock < 0 && lock != -ENOENT ? lock : branch_dir_load(fd, &c);
	snprintf(name, sizeof(name), "s%" PRIu64, sim->ops);
	r = r == -ENOENT ? 0 : r;
	r = r ?: branch_dir_plan(&c, name, &id);
	if (r == 0 && syncfs(fd) < 0)
		r = -errno;
	r = r ?: branch_dir_take(fd, id, &c, false);
	sim_trace(1, "%4" PRIu64 " snapshot %s: %d", sim->ops, name, r);
	closep(&lock);
	closep(&fd);
	if (r == 0)
		history_all_synced(sim->history);
	else if (!sim->fate.error)
		sim_violation("a snapshot fails: %s", strerror(-r));
	disarm(p, p->nops + 2);
}

/* In the child. */
static __attribute__((noreturn)) void live(const struct plan *p)
{
	char err[512] = "";
	struct mount m;

	/* Nothing is said of faults that are meant. */
	log_set_level(sim->trace ? LOG_LVL_DEBUG : LOG_LVL_ERROR - 1);
	sim->fate = (struct fate){ .is_away = false };
	arm(p, 0);
	open_mount(&m, err, sizeof(err));
	send_again(&m);
	disarm(p, 0);
	look_at_all(&m.tree, sim->doubt, sim->doubt_op);
	sim->doubt = HISTORY_NONE;
	play(p, &m);
	if (!sim->fate.error)
		look_at_all(&m.tree, HISTORY_NONE, sim->ops);
	arm(p, p->nops + 1);
	sim->is_kept = false;
	mount_close(&m);
	disarm(p, p->nops + 1);
	expect_closed();
	if (!sim->fate.error)
		look_check();
	/* A server takes none of a mount whose map could not be closed. */
	if (p->takes_snapshot && !sim->fate.error)
		take_snapshot(p);
	end(SIM_END_CLEAN);
}

static void mark(int fd, void *arg)
{
	bool *keeps = arg;

	if (fd >= SIM_FD_FIRST && fd < SIM_FD_FIRST + SIM_FDS)
		keeps[fd - SIM_FD_FIRST] = true;
}

/* What a dead server had open goes, but what its mount's node table needs. */
static void close_unkept(void)
{
	bool keeps[SIM_FDS] = { false };

	mark(sim->slots_fd, keeps);
	mark(sim->names_fd, keeps);
	node_table_held_fds(sim->slots_fd, mark, keeps);
	for (int k = 0; k < SIM_FDS; k++)
		if (sim->fds[k].is_open && !keeps[k])
			fds_close(SIM_FD_FIRST + k);
}

/* The mount is no more. */
static void forget_mount(void)
{
	sim->is_kept = false;
	sim->request.is_standing = false;
	kernel_forget_all();
	history_close_all(sim->history);
	memset(sim->intents, 0, intent_log_area_bytes());
}

static void cut_power(void)
{
	struct dice dice = dice_stream(sim->seed, SIM_STREAM_CUT, sim->boots);

	memset(sim->fds, 0, sizeof(sim->fds));
	disk_cut_power(sim->disk, &dice);
	sim->doubt = HISTORY_CUT;
	new_boot();
}

bool life_play(unsigned n)
{
	const struct plan p = plan_life(n);
	int status;
	pid_t pid;

	sim_trace(1, "== life %u of seed %" PRIu64 "%s%s", n, sim->seed, sim->options,
		  sim->has_true_extents ? ", true extents" : "");
	sim->end = SIM_END_NONE;
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		live(&p);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		sim_give_up("no process for a server");
	sim->fate.is_away = true;
	if (sim->end == SIM_END_NONE)
		fprintf(stderr, "sim: the server ended by itself: status %x\n", (unsigned)status);
	if (sim->end == SIM_END_NONE || sim->end == SIM_END_VIOLATION)
		return false;
	if (sim->end == SIM_END_KILLED && p.is_kept && sim->is_kept) {
		close_unkept();
		return true;
	}
	forget_mount();
	if (sim->end == SIM_END_CUT)
		cut_power();
	else
		fds_close_all();
	return true;
}
