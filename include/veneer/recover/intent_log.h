/* SPDX-License-Identifier: Apache-2.0 */
/* Intents: the coming changes of requests, in memory that outlives the server: one slot for each
 * request under way, from before its first change until after its reply. The next server gets
 * unanswered requests again. The intent tells it the work that the dead server had begun; it
 * finishes or answers that instead of doing it twice.
 *
 * A slot is found without a lock, and written so that death at any instruction leaves either no
 * intent or a whole one. */
#pragma once

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum intent_kind {
	INTENT_REMOVE = 1, /* from */
	INTENT_RENAME, /* from, to */
	INTENT_EXCHANGE, /* likewise */
	INTENT_SETXATTR, /* XATTR_CREATE */
	INTENT_REMOVEXATTR,
	INTENT_RELEASE,
	INTENT_SETID, /* a write, of a file whose set-id bits and capabilities are put back after
		       * it */
	INTENT_INVALIDATE, /* any change, of names or of from.node: noted where it would not come
			    *
			    * again */
	INTENT_CREATE, /* from: a name that is made */
};

/* An inode as an intent names it. */
struct intent_object {
	uint64_t node; /* its id; 0: there is none */
	uint64_t ino; /* as presented */
	uint64_t upper_ino; /* 0: it has no entry in the upper */
};
#define INTENT_NOTHING ((struct intent_object){ 0 })

struct intent_end {
	uint64_t parent; /* node id of the directory */
	uint64_t node; /* the object of the name; 0: none */
	uint64_t ino; /* as presented */
	uint64_t upper_ino; /* 0: it had no entry in the upper */
	char name[NAME_MAX + 1];
};

struct intent {
	_Atomic uint64_t state; /* written last; intent_log.c's own */
	/* May read slots that another thread is filling: their content counts where the state has
	 * stayed the same. */
	_Atomic uint64_t key; /* of the mount */
	_Atomic uint64_t unique; /* of the request, without the bit that says it comes again */
	_Atomic uint32_t kind; /* enum intent_kind */
	_Atomic uint32_t is_begun; /* the next fields count, and the disk may have been changed */
	struct intent_end from, to;
	uint32_t mode; /* INTENT_SETID: of from before; 0: it has no such bits */
	uint32_t capability_len;
	char capability[24];
	uint32_t
		had_value; /* INTENT_SETXATTR, INTENT_REMOVEXATTR: the attribute was there before */
};

struct intent_request {
	uint64_t key, unique; /* key 0: no journal */
	enum intent_kind kind;
	bool is_resent; /* a slot that a dead server left for it is gone on with */
	uint64_t from_parent, to_parent;
	const char *from_name, *to_name; /* or NULL */
	uint64_t node; /* INTENT_INVALIDATE: inode of changed attributes or bytes, or 0 */
};

/* Shared memory of this many bytes, zeroes when fresh, is handed in before the first request and
 * stays; slots of its last user are kept. Without that a private one is used. */
size_t intent_log_area_bytes(void);
void intent_log_use_area(void *mem);

/* The calling thread's request. NULL if there is no journal, or no slot in it: then the request
 * goes on without, and is the less safe only if the server dies during it. */
struct intent *intent_log_begin(const struct intent_request *request);
/* A second slot for the same request, whole at once; INTENT_INVALIDATE. NULL as above. */
struct intent *intent_log_note(const struct intent_request *request);
/* Drop the note: the reply is out. NULL is fine. */
void intent_log_drop_note(struct intent *n);
/* The intent that the last call gave this thread, until it ends. */
struct intent *intent_log_current(void);
/* End the intent: the reply is out. NULL is fine. */
void intent_log_end(struct intent *n);
/* Just before the first change on disk by the calling thread's request: the present objects of the
 * names. */
void intent_log_about(struct intent_object from, struct intent_object to);
/* The same of a request that changes no names. */
void intent_log_mark(struct intent *n);
/* Unmark it: the noted change is undone or done, and the request begins anew if it comes again.
 * NULL is fine. */
void intent_log_unmark(struct intent *n);
/* Does a slot of kind INTENT_SETID stand? In doubt yes. Cheap. */
bool intent_log_has_setid(void);
/* Another request than `unique` gives the file nothing back that its slot has. Under the file's one
 * of tree->setid_locks. */
void intent_log_forget_setid(uint64_t key, uint64_t unique, struct intent_object file);
/* fn for each request of a mount that a dead server had begun, in no order. */
void intent_log_each(uint64_t key, void (*fn)(struct intent *n, void *arg), void *arg);
/* A request that comes again has been read. Before it is begun; its note, if any, is of this server
 * now. */
void intent_log_came_again(uint64_t key, uint64_t unique);
/* A dead server's, and it has not come again. */
bool intent_log_is_left(const struct intent *n);
/* The mount is no more. */
void intent_log_drop(uint64_t key);
/* Drop the intents that dead servers had begun for this mount. */
void intent_log_drop_old(uint64_t key);
/* Of that, the names that were to be made. Others may be asked for again meanwhile. */
void intent_log_drop_left(uint64_t key);
