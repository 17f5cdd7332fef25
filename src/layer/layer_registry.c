// SPDX-License-Identifier: Apache-2.0
/* Every image that layer_registry_image gave out has a record here, until it is freed. States of a
 * record, all changes under the lock:
 *
 * IN_USE   layer_registry_release by the last user   -> CLOSING, or freed if not worth keeping
 * CLOSING  descriptors closed                        -> KEPT
 * KEPT     layer_registry_image                      -> IN_USE
 * KEPT     layer_registry_trim                       -> freed
 *
 * Invariants:
 * 1. layer->users counts the records IN_USE or CLOSING that have the layer, once for each place in
 *    the stack; without users a layer has no descriptor and no mapping. A kept image gets a new one
 *    from the mount that takes it up;
 * 2. two layers with the same device and inode number are the same directory if both have a
 *    descriptor. So they are if a watch would have told of its end (image_is_current) and its birth
 *    time is the same. A static layer has no watch: there the same mount has to lead to it;
 * 3. an image is given to another mount only while image_is_current, after watch_drain. An image
 *    with a private layer never is: its directory does not tell the content alone, or it changes
 *    unseen.
 *
 * Calls that may block (opening, reading, closing) happen without the lock. */
#include "veneer/layer/layer_registry.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/htab.h"
#include "veneer/base/lock.h"
#include "veneer/sys/mmap_cache.h"
#include "veneer/sys/mountinfo.h"
#include "veneer/sys/watch.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/vfs.h>
#include <time.h>

enum record_state { RECORD_IN_USE, RECORD_CLOSING, RECORD_KEPT };

/* Resources that a layer without users must not have: it would keep a file system busy. */
struct left {
	struct layer *layer;
	int rootfd, readonly_root;
};

struct record {
	struct list_link link;
	struct image *img;
	unsigned users;
	enum record_state state;
	time_t since; /* KEPT */
	struct left left[]; /* room for the leftovers of its last user, one a layer at most */
};

static struct {
	mutex_t lock;
	pthread_cond_t closed;
	/* kept ones in the order in which they were left */
	GUARDED_BY(lock) struct list_link records;
	GUARDED_BY(lock) struct list_link uppers; /* struct layer */
	GUARDED_BY(lock) bool is_on;
	GUARDED_BY(lock) time_t keep_seconds;
	GUARDED_BY(lock) size_t keep_bytes;
	GUARDED_BY(lock) uint64_t made, shared, resumed;
} reg = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.closed = PTHREAD_COND_INITIALIZER,
	.records = { &reg.records, &reg.records },
	.uppers = { &reg.uppers, &reg.uppers },
};

#define record_of(l) container_of(l, struct record, link)
#define for_each_record(r)                                                                     \
	for (struct record *r = record_of(reg.records.next), *next_ = record_of(r->link.next); \
	     &r->link != &reg.records; r = next_, next_ = record_of(next_->link.next))

void layer_registry_keep(unsigned seconds, size_t bytes)
{
	LOCK_SCOPE(&reg.lock);
	reg.is_on = true;
	reg.keep_seconds = (time_t)seconds;
	reg.keep_bytes = bytes;
}

/* ---- layers ---- */

/* No watch would have told that a remote file system went, and another came in its place with the
 * same numbers. */
static bool is_surely_there(const struct layer *a, const struct layer *b)
{
	return !a->is_static || (a->rootfd >= 0 && b->rootfd >= 0) ||
	       (a->mount_id && a->mount_id == b->mount_id);
}

static bool is_same_layer(const struct layer *a, const struct layer *b)
{
	return a->ino == b->ino && a->dev == b->dev && a->btime.tv_sec == b->btime.tv_sec &&
	       a->btime.tv_nsec == b->btime.tv_nsec && a->override == b->override &&
	       a->is_doubted == b->is_doubted && a->is_snapshot == b->is_snapshot &&
	       a->is_frozen == b->is_frozen && a->is_rest == b->is_rest &&
	       a->root_mtime.tv_sec == b->root_mtime.tv_sec &&
	       a->root_mtime.tv_nsec == b->root_mtime.tv_nsec && is_surely_there(a, b);
}

static bool is_being_written_locked(const struct layer *l) REQUIRES(reg.lock)
{
	for (struct list_link *i = reg.uppers.next; i != &reg.uppers; i = i->next) {
		const struct layer *upper = container_of(i, struct layer, live);

		if (upper->dev == l->dev && upper->ino == l->ino)
			return true;
	}
	return false;
}

/* In doubt yes. */
static bool has_changing_map(const struct layer *l)
{
	return !l->is_frozen &&
	       (faccessat(l->rootfd, MAPFILE_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
		errno != ENOENT);
}

/* Before any other thread knows them. */
static int judge_layers(struct layer *const *layers, size_t n, pid_t opener)
{
	_cleanup_(freep) bool *is_plain = calloc(n, sizeof(*is_plain));
	_cleanup_(freep) int *fds = calloc(n, sizeof(*fds));

	if (!is_plain || !fds)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		fds[i] = layers[i]->rootfd;
	if (opener == LAYER_REGISTRY_SEEN_PLAIN)
		memset(is_plain, true, n * sizeof(*is_plain));
	else if (opener != LAYER_REGISTRY_NOT_SEEN)
		mountinfo_plain(opener, fds, n, is_plain); /* where it fails all is false */
	for (size_t i = 0; i < n; i++) {
		struct statfs fs;

		layers[i]->is_private = !is_plain[i] || fstatfs(fds[i], &fs) < 0 ||
					!(layers[i]->is_static || watch_sees_type(fs.f_type)) ||
					has_changing_map(layers[i]);
	}
	return 0;
}

bool layer_registry_has_private(struct layer *const *layers, size_t n)
{
	bool is_any = false;

	for (size_t i = 0; i < n; i++)
		is_any = is_any || layers[i]->is_private;
	return is_any;
}

static bool has_private_locked(struct layer *const *layers, size_t n) REQUIRES(reg.lock)
{
	bool is_any = false;

	for (size_t i = 0; i < n; i++)
		is_any = is_any || layers[i]->is_private || is_being_written_locked(layers[i]);
	return is_any;
}

/* The layer of an image in use that is the same directory, or fresh itself. */
static struct layer *choose_layer_locked(struct layer *fresh) REQUIRES(reg.lock)
{
	if (fresh->is_private || is_being_written_locked(fresh))
		return fresh;
	for_each_record(r) {
		struct layer *const *layers;
		size_t n = image_layers(r->img, &layers);

		if (r->state != RECORD_IN_USE || !image_is_current(r->img))
			continue;
		for (size_t i = 0; i < n; i++)
			if (is_same_layer(layers[i], fresh))
				return layers[i];
	}
	return fresh;
}

static void enter_layers(struct layer *const *layers, size_t n)
{
	for (size_t i = 0; i < n; i++)
		layers[i]->users++;
}

/* Move layers without users to left. */
static size_t leave_layers_locked(struct layer *const *layers, size_t n, struct left *left)
{
	size_t nleft = 0;

	for (size_t i = 0; i < n; i++) {
		struct layer *l = layers[i];

		if (--l->users > 0)
			continue;
		left[nleft++] =
			(struct left){ l, steal_fd(&l->rootfd), layer_steal_readonly_root(l) };
	}
	return nleft;
}

/* Close them; the layers are still referenced. */
static void close_left(struct left *left, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (atomic_load(&left[i].layer->has_windows))
			mmap_cache_forget(left[i].layer);
		closep(&left[i].readonly_root);
		closep(&left[i].rootfd);
	}
}

/* ---- images ---- */

static bool is_of_stack(const struct record *r, struct layer *const *fresh, size_t n)
{
	struct layer *const *layers;

	if (image_layers(r->img, &layers) != n || !image_is_current(r->img))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_same_layer(layers[i], fresh[i]))
			return false;
	return true;
}

/* A mount that passes nothing through has no clones; one that comes after it may bring some. */
static void bring_clones(struct layer *const *layers, struct layer *const *fresh, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (layers[i] != fresh[i])
			layer_take_readonly_root(layers[i], fresh[i]);
}

static void resume_locked(struct record *r, struct layer *const *fresh)
{
	struct layer *const *layers;
	size_t n = image_layers(r->img, &layers);

	for (size_t i = 0; i < n; i++)
		if (layers[i]->rootfd < 0) {
			layers[i]->rootfd = steal_fd(&fresh[i]->rootfd);
			layers[i]->root_mount = fresh[i]->root_mount;
		}
	enter_layers(layers, n);
	r->state = RECORD_IN_USE;
}

static struct record *find_stack_locked(struct layer *const *fresh, size_t n) REQUIRES(reg.lock)
{
	for_each_record(r)
		if (is_of_stack(r, fresh, n))
			return r;
	return NULL;
}

/* The image of that stack, with one more user; NULL: there is none. */
static struct image *take_known_locked(struct layer *const *fresh, size_t n) REQUIRES(reg.lock)
{
	struct layer *const *layers;
	struct record *found;

	/* After the wait it may be anything, freed too. */
	while ((found = find_stack_locked(fresh, n)) && found->state == RECORD_CLOSING)
		pthread_cond_wait(&reg.closed, &reg.lock);
	if (!found)
		return NULL;
	reg.shared += found->state == RECORD_IN_USE;
	reg.resumed += found->state == RECORD_KEPT;
	if (found->state == RECORD_KEPT)
		resume_locked(found, fresh);
	image_layers(found->img, &layers);
	bring_clones(layers, fresh, n);
	found->users++;
	return found->img;
}

struct stack {
	struct layer **layers; /* referenced and entered */
	size_t n;
	struct record *record; /* to be; has room for the descriptors */
	bool is_private;
};

static int stack_make(struct layer *const *fresh, size_t n, struct stack *s)
{
	*s = (struct stack){ .n = n };
	s->layers = calloc(n, sizeof(struct layer *));
	s->record = calloc(1, sizeof(*s->record) + n * sizeof(struct left));
	if (!s->layers || !s->record) {
		free(s->layers);
		free(s->record);
		return -ENOMEM;
	}
	LOCK_SCOPE(&reg.lock);
	s->is_private = has_private_locked(fresh, n);
	for (size_t i = 0; i < n; i++)
		s->layers[i] = layer_ref(choose_layer_locked(fresh[i]));
	bring_clones(s->layers, fresh, n);
	enter_layers(s->layers, n);
	return 0;
}

/* Release the rest when the image has been entered, or will not be. */
static void stack_release(struct stack *s, bool is_entered)
{
	if (!is_entered) {
		size_t nleft;

		mutex_lock(&reg.lock);
		nleft = leave_layers_locked(s->layers, s->n, s->record->left);
		mutex_unlock(&reg.lock);
		close_left(s->record->left, nleft);
	}
	for (size_t i = 0; i < s->n; i++)
		layer_unref(s->layers[i]);
	if (!is_entered)
		free(s->record);
	free(s->layers);
}

/* The image, unless one of the same stack was entered meanwhile: then that. */
static struct image *enter_image(struct stack *s, struct layer *const *fresh, struct image *img)
{
	struct image *known = NULL;

	LOCK_SCOPE(&reg.lock);
	/* Also if a mount began to write while the image was made. */
	if (s->is_private || has_private_locked(fresh, s->n))
		image_spoil(img);
	else
		known = take_known_locked(fresh, s->n);
	if (known)
		return known;
	*s->record = (struct record){ .img = img, .users = 1, .state = RECORD_IN_USE };
	list_add_tail(&reg.records, &s->record->link);
	reg.made++;
	return img;
}

static int make_image(struct layer *const *fresh, size_t n, struct image **ret)
{
	struct image *img;
	struct stack s;
	int r = stack_make(fresh, n, &s);

	if (r < 0)
		return r;
	r = s.is_private ? image_new(s.layers, n, &img) : image_new_watched(s.layers, n, &img);
	if (r == 0) {
		*ret = enter_image(&s, fresh, img);
		if (*ret != img)
			image_unref(img);
	}
	stack_release(&s, r == 0 && *ret == img);
	return r;
}

int layer_registry_image(struct layer *const *fresh, size_t n, pid_t opener, struct image **ret)
{
	struct image *known = NULL;
	bool is_on;
	int r;

	if (n == 0 || n > UINT16_MAX)
		return -EINVAL;
	mutex_lock(&reg.lock);
	is_on = reg.is_on;
	mutex_unlock(&reg.lock);
	if (!is_on)
		return image_new(fresh, n, ret);
	r = judge_layers(fresh, n, opener);
	if (r < 0)
		return r;
	watch_drain();
	mutex_lock(&reg.lock);
	if (!has_private_locked(fresh, n))
		known = take_known_locked(fresh, n);
	mutex_unlock(&reg.lock);
	layer_registry_trim();
	if (!known)
		return make_image(fresh, n, ret);
	*ret = known;
	return 0;
}

/* ---- letting go ---- */

static struct record *find_locked(const struct image *img) REQUIRES(reg.lock)
{
	for_each_record(r)
		if (r->img == img)
			return r;
	return NULL;
}

struct image *layer_registry_again(struct image *img)
{
	struct record *r;

	LOCK_SCOPE(&reg.lock);
	r = find_locked(img);
	if (!r)
		return image_ref(img);
	r->users++;
	reg.shared++;
	return img;
}

/* Without users nobody holds it, and tools may change its map. */
static bool has_frozen(const struct image *img)
{
	struct layer *const *layers;
	const size_t n = image_layers(img, &layers);
	bool is_any = false;

	for (size_t i = 0; i < n; i++)
		is_any = is_any || layers[i]->is_frozen;
	return is_any;
}

static bool is_worth_keeping_locked(const struct record *r) REQUIRES(reg.lock)
{
	return reg.is_on && !has_frozen(r->img) && reg.keep_seconds > 0 &&
	       image_is_current(r->img) && image_bytes(r->img) <= reg.keep_bytes;
}

static size_t leave_locked(struct record *r)
{
	struct layer *const *layers;
	size_t n = image_layers(r->img, &layers);

	return leave_layers_locked(layers, n, r->left);
}

static void keep(struct record *r)
{
	size_t nleft;

	image_close(r->img);
	mutex_lock(&reg.lock);
	nleft = leave_locked(r);
	mutex_unlock(&reg.lock);
	/* Close the layers: a program that unmounts the file system below, once this mount has
	 * gone, must not find it busy. Until then no other mount gets the image, as it would open
	 * them again. */
	close_left(r->left, nleft);
	mutex_lock(&reg.lock);
	r->state = RECORD_KEPT;
	r->since = clock_s();
	list_del(&r->link);
	list_add_tail(&reg.records, &r->link);
	pthread_cond_broadcast(&reg.closed);
	mutex_unlock(&reg.lock);
}

void layer_registry_release(struct image *img)
{
	struct record *r;
	bool is_kept = false;
	size_t nleft = 0;

	if (!img)
		return;
	watch_drain();
	mutex_lock(&reg.lock);
	r = find_locked(img);
	if (r && --r->users > 0) {
		mutex_unlock(&reg.lock);
		return;
	}
	if (r && is_worth_keeping_locked(r)) {
		r->state = RECORD_CLOSING;
		is_kept = true;
	} else if (r) {
		list_del(&r->link);
		nleft = leave_locked(r);
	}
	mutex_unlock(&reg.lock);
	if (is_kept) {
		keep(r);
		layer_registry_trim();
		return;
	}
	if (r)
		close_left(r->left, nleft);
	image_unref(img);
	free(r);
}

/* Moves the images that are not kept any longer to victims. Seconds until there is more; -1:
 * nothing is kept. */
static int choose_victims_locked(struct list_link *victims) REQUIRES(reg.lock)
{
	size_t bytes = 0;
	time_t t = clock_s(), first = -1;

	for_each_record(r)
		if (r->state == RECORD_KEPT)
			bytes += image_bytes(r->img);
	for_each_record(r) {
		time_t left = reg.keep_seconds - (t - r->since);

		if (r->state != RECORD_KEPT)
			continue;
		if (reg.is_on && left > 0 && bytes <= reg.keep_bytes && image_is_current(r->img)) {
			first = first < 0 || left < first ? left : first;
			continue;
		}
		bytes -= image_bytes(r->img);
		list_del(&r->link);
		list_add_tail(victims, &r->link);
	}
	return first > INT_MAX ? INT_MAX : (int)first;
}

int layer_registry_trim(void)
{
	struct list_link victims;
	int left;

	list_init(&victims);
	watch_drain();
	mutex_lock(&reg.lock);
	left = choose_victims_locked(&victims);
	mutex_unlock(&reg.lock);
	while (!list_is_empty(&victims)) {
		struct record *r = record_of(victims.next);

		list_del(&r->link);
		image_unref(r->img);
		free(r);
	}
	return left;
}

void layer_registry_stop(void)
{
	mutex_lock(&reg.lock);
	reg.is_on = false;
	mutex_unlock(&reg.lock);
	layer_registry_trim();
}

/* ---- uppers ---- */

static bool outdate_locked(const struct layer *upper) REQUIRES(reg.lock)
{
	bool is_in_use = false;

	for_each_record(r) {
		struct layer *const *layers;
		size_t n = image_layers(r->img, &layers);

		for (size_t i = 0; i < n; i++)
			if (layers[i]->dev == upper->dev && layers[i]->ino == upper->ino) {
				image_spoil(r->img);
				is_in_use |= r->state == RECORD_IN_USE;
				break;
			}
	}
	return is_in_use;
}

bool layer_registry_is_written(const struct layer *l)
{
	LOCK_SCOPE(&reg.lock);
	return is_being_written_locked(l);
}

bool layer_registry_upper_open(struct layer *upper)
{
	LOCK_SCOPE(&reg.lock);
	list_add_tail(&reg.uppers, &upper->live);
	return outdate_locked(upper);
}

void layer_registry_upper_close(struct layer *upper)
{
	LOCK_SCOPE(&reg.lock);
	list_del(&upper->live);
	outdate_locked(upper);
}

void layer_registry_stats(struct layer_registry_stats *ret)
{
	*ret = (struct layer_registry_stats){ .watches = watch_count() };
	LOCK_SCOPE(&reg.lock);
	for_each_record(r) {
		struct layer *const *layers;
		size_t n = image_layers(r->img, &layers);

		ret->images += r->state == RECORD_IN_USE;
		ret->kept += r->state != RECORD_IN_USE;
		ret->bytes += image_bytes(r->img);
		for (size_t i = 0; i < n; i++)
			layers[i]->is_counted = false;
	}
	for_each_record(r) {
		struct layer *const *layers;
		size_t n = image_layers(r->img, &layers);

		for (size_t i = 0; i < n && r->state == RECORD_IN_USE; i++) {
			ret->layers += !layers[i]->is_counted;
			layers[i]->is_counted = true;
		}
	}
	ret->made = reg.made;
	ret->shared = reg.shared;
	ret->resumed = reg.resumed;
}
